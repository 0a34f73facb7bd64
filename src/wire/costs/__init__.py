"""What a month of a tile service costs with each choice of cache."""
