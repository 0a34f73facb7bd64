"""How an HDF5 file lies for reading over a network, and what repacking it gains."""
