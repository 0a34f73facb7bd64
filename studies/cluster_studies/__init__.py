"""What two studies measured with growing clusters, as they did it, and many files: a notebook each."""

from helpers.parameters import Study

STUDY = Study(
    name="cluster-studies",
    headline="zarr-over-netcdf",
    headlines={
        "formats-of-2022": "csv-over-parquet",
        "formats-at-size": "csv-over-parquet",
        "many-files": "files-by-recipe",
        "many-steps": "stored-chunks-cost",
    },
    by_name=(
        "stores-of-2020",
        "formats-of-2022",
        "formats-at-size",
        "many-files",
        "many-steps",
    ),
)
