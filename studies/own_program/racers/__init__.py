"""One read, four ways: each module is a program that reads three variables of an HDF5 file over S3.

Its arguments are the URL of the file and the paths of the variables. It prints when it began to open
the file and when it had the values, in seconds since 1970.
"""
