"""A tile service of maps, and the load on it."""
