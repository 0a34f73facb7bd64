"""Which chunk shape reads an access pattern in the least time."""
