"""Fetch an HDF5 file whole, in parallel ranges, and read variables of it from memory."""

import io
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import h5py
import obstore
from obstore.store import S3Store

url, *names = sys.argv[1:]
folder, _, key = url.rpartition("/")
part = 8 * 2**20

began_s = time.time()
store = S3Store.from_url(folder)
nbytes = obstore.head(store, key)["size"]
with ThreadPoolExecutor(10) as pool:
    ranges = [(start, min(start + part, nbytes)) for start in range(0, nbytes, part)]
    parts = pool.map(lambda ends: obstore.get_range(store, key, start=ends[0], end=ends[1]), ranges)
    content = io.BytesIO(b"".join(map(memoryview, parts)))
with h5py.File(content) as file:
    values = [file[name][:] for name in names]
print(began_s, time.time())
