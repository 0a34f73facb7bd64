"""The program whose trace is an example on its page: three reads, each slow in its own way."""

import sys

import s3fs
import zarr

url = sys.argv[1]
fs = s3fs.S3FileSystem()
for path in sorted(fs.ls(f"{url}/files")):
    header = fs.cat_file(path, start=0, end=4096)

group = zarr.open_group(f"{url}/cube.zarr", mode="r")
for time in range(24):
    point = group["t2m"][time, 40, 40]

mean = group["t2m"][:].mean(axis=0)
