"""The series that everyone makes: open a dataset, and go through its steps in time."""

import sys

import xarray as xr

ds = xr.open_zarr(sys.argv[1], chunks=None)
series = [float(ds["temperature"].isel(time=step).mean()) for step in range(ds.sizes["time"])]
print(max(series))
