"""Products that stand alone: which chunk shape, what to do with an HDF5 file, what a cache costs."""
