"""Parameters of HDF5 drivers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from helpers import parameters
from helpers.parameters import RECORD, SLOWED, Dilation, OneOf, OwnNotebook, RecordName, Seed
from studies.hdf5_drivers.drivers import DRIVERS
from studies.hdf5_drivers.files import FILE_LAYOUTS
from studies.hdf5_drivers.findings import DEFAULT
from wire.errors import UserError

READS = tuple(f"{driver} on {layout}" for driver in DRIVERS for layout in FILE_LAYOUTS)
"""Every driver on every layout, as parameter files name them."""

_Read = Annotated[str, OneOf(READS)]


class Parameters(parameters.Parameters):
    """A granule, and which drivers read it in which layouts."""

    study = "hdf5-drivers"
    own_notebooks: ClassVar = {
        "two-drivers": OwnNotebook(
            {
                "reads": [
                    "fsspec-none on original",
                    "fsspec-none on rechunked-8mib",
                    "ros3-none on original",
                    "fsspec-readahead on original",
                    "earthaccess on original",
                    "fsspec-tuned on paged-8mib",
                ]
            },
            frozenset({"one_variable", "n_times", "processors"}),
        ),
        "other-clouds": OwnNotebook(
            {
                "reads": [
                    "fsspec-readahead on original",
                    "gcsfs on original",
                    "gcsfs-blocks on original",
                    "google-whole on original",
                    "adlfs on original",
                    "adlfs-blocks on original",
                    "obstore-whole on original",
                ]
            },
            frozenset({"one_variable", "n_times", "processors", "store"}),
        ),
        "share-of-file": OwnNotebook(
            {
                "reads": [
                    "fsspec-readahead on original",
                    "fsspec-tuned on original",
                    "references on original",
                    "references-64 on original",
                    "obstore-whole on original",
                ]
            },
            frozenset({"one_variable", "n_times", "processors"}),
        ),
    }

    n_photons: Annotated[int, Field(ge=6000, le=10**10)] = Field(
        60_000, description="photons in six beams; ten million make some 220 MB"
    )
    reads: Annotated[list[_Read], Field(min_length=1)] = Field(
        [
            "fsspec-readahead on original",
            "xarray on original",
            "fsspec-none on original",
            "fsspec-tuned on original",
            "references on original",
            "references on rechunked-8mib",
            "fsspec-tuned on rechunked-8mib",
            "obstore-whole on original",
        ],
        description="drivers and layouts to compare; of the last one there is a second copy",
    )
    one_variable: list[_Read] = Field(
        ["fsspec-readahead on original"], description="those that also read one variable alone"
    )
    n_times: Annotated[list[Annotated[int, Field(ge=1, le=100)]], Field(min_length=1)] = Field(
        [4], description="files so many times as long, to predict"
    )
    dilation: Dilation = Field(1.0, description=SLOWED)
    seed: Seed = Field(2018, description="of values, order and network delays")
    record: RecordName = Field("hdf5-drivers.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_default(self) -> Self:
        for name in ("reads", "one_variable"):
            if (names := getattr(self, name)) and DEFAULT not in names:
                raise UserError(name, ", ".join(names), f"also {DEFAULT}")
        return self
