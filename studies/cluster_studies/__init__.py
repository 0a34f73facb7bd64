"""What two studies measured with growing clusters, as they did it: stores of 2020, formats of 2022."""

from helpers.parameters import Study

STUDY = Study(
    name="cluster-studies",
    headline="zarr-over-netcdf",
    by_name=("stores-of-2020", "formats-of-2022", "many-files"),
)
