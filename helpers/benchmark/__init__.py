"""The measurement protocol: contenders, the one timing loop, records, statistics, provenance."""
