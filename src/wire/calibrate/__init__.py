"""A reader's own store measured: what its latency, bandwidth and request rate are, as a profile."""
