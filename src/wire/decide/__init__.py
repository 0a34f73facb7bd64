"""Which format, chunks, client and settings to read an array with: one answer out of those of the other advisors."""
