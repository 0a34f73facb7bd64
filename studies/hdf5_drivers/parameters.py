"""Parameters of HDF5 drivers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from helpers.book import studies
from helpers.book.studies import RECORD, OneOf, RecordName, Seed
from studies.hdf5_drivers.drivers import DRIVERS, LISTERS
from studies.hdf5_drivers.files import LAYOUTS
from studies.hdf5_drivers.tasks import ON_VALUES, TASKS

_Driver = Annotated[str, OneOf(DRIVERS)]
_Lister = Annotated[str, OneOf(LISTERS)]
_Layout = Annotated[str, OneOf(LAYOUTS)]
_Task = Annotated[str, OneOf(TASKS)]
_OnValues = Annotated[str, OneOf(ON_VALUES)]
_Mebibytes = Annotated[int, Field(ge=1, le=4096)]


class Parameters(studies.Parameters):
    """A granule, its layouts, and which drivers are asked what of them."""

    n_photons: Annotated[int, Field(ge=6000, le=10**10)] = Field(
        60_000, description="photons in six beams; ten million make some 220 MB"
    )
    drivers: Annotated[list[_Driver], Field(min_length=1)] = Field(
        ["fsspec-none", "fsspec-tuned", "ros3", "ros3-tuned"],
        description="drivers to compare on every layout: the published pairs",
    )
    file_layouts: Annotated[list[_Layout], Field(min_length=1)] = Field(
        ["original", "paged-4mib"], description="arrangements of the file"
    )
    tasks: Annotated[list[_OnValues], Field(min_length=1)] = Field(
        ["variables"], description="asked of these drivers on these layouts"
    )
    more_drivers: list[_Driver] = Field(
        [
            "obstore-tuned",
            "h5coro",
            "pyfive-tuned",
            "zarr",
            "references",
            "fsspec-readahead",
            "xarray",
            "obstore-whole",
        ],
        description="other drivers",
    )
    more_layouts: list[_Layout] = Field(
        ["original", "zarr", "references"], description="what they read"
    )
    metadata_drivers: list[_Lister] = Field(
        ["fsspec-tuned"], description="asked about the tree and parts"
    )
    metadata_layouts: list[_Layout] = Field(["original"], description="layouts on which they are")
    metadata_tasks: list[_Task] = Field(
        ["tree", "attributes", "subset"], description="what they are asked"
    )
    metadata_group: str = Field("gt1l/heights", description="group to list; empty for the file")
    block_mib: list[_Mebibytes] = Field(
        [8], description="block of the file object, to vary", json_schema_extra={"unit": "MiB"}
    )
    page_buffer_mib: list[_Mebibytes] = Field(
        [16], description="page buffer, to vary", json_schema_extra={"unit": "MiB"}
    )
    seed: Seed = Field(2018, description="of values, order and network delays")
    record: RecordName = Field("hdf5-drivers.csv", description=RECORD)
