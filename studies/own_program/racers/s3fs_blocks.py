"""Read variables of an HDF5 file through a block cache: one argument more."""

import sys
import time

import h5py
import s3fs

url, *names = sys.argv[1:]
fs = s3fs.S3FileSystem()

began_s = time.time()
with (
    fs.open(url, cache_type="blockcache", block_size=8 * 2**20) as remote,
    h5py.File(remote) as file,
):
    values = [file[name][:] for name in names]
print(began_s, time.time())
