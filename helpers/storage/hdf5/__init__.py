"""HDF5 files: a granule as producers write it, layouts made of it, and what a file says of itself."""
