"""Parameters of formats."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import Field, model_validator

from helpers import parameters
from helpers.arrays.readers import Codec
from helpers.arrays.stores import check_chunk_shape
from helpers.parameters import (
    RECORD,
    SLOWED,
    Contains,
    Dilation,
    OneOf,
    RecordName,
    Seed,
    Shape,
)
from studies.formats.readers import FORMAT_READERS
from studies.formats.source import ACCESSES
from wire.errors import UserError

_MOST_IN_MEMORY = 2 * 10**9  # values: every format is made from all of them
_MOST_OF_TEXT = 10**8  # values: some 1.2 GB of text, and the memory of several


class Parameters(parameters.Parameters):
    """An array, and the clients that read it in the format of each."""

    study = "formats"

    array_shape: Shape = Field([4, 10, 120, 160], description="elements: time, depth, y, x")
    chunk_shape: Shape = Field([1, 5, 120, 160], description="elements of a stored chunk")
    codec: Codec = Field(
        "blosc-zstd", description="compression of the chunks, where the format has chunks"
    )
    contenders: Annotated[list[Annotated[str, OneOf(FORMAT_READERS)]], Field(min_length=1)] = Field(
        [
            "zarr-s3fs",
            "netcdf-s3fs",
            "zarr-s3fs-one-get",
            "zarr-obstore",
            "zarr-tensorstore",
            "icechunk",
            "parquet-arrow",
            "csv-pandas",
        ],
        description="clients to compare, each with the format that it reads",
    )
    accesses: Annotated[
        list[Annotated[str, OneOf(ACCESSES)]], Field(min_length=1), Contains("whole")
    ] = Field(
        ["whole", "step"],
        description="what is read: all, one step of time, or all steps at one place",
    )
    n_requests: Annotated[int, Field(ge=1, le=1024)] = Field(
        16, description="requests in flight of clients that have no default to keep"
    )
    dilation: Dilation = Field(1.0, description=SLOWED)
    seed: Seed = Field(2022, description="of values, order and network delays")
    record: RecordName = Field("formats.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_chunk_shape(self.array_shape, self.chunk_shape)
        n_values = math.prod(self.array_shape)
        as_text = [
            name for name in self.contenders if FORMAT_READERS[name].format.startswith("csv")
        ]
        most = _MOST_OF_TEXT if as_text else _MOST_IN_MEMORY
        if n_values > most:
            why = f"with {as_text[0]}" if as_text else "which every format is made from"
            raise UserError(
                "array_shape",
                f"{self.array_shape} of {4 * n_values / 1e9:.3g} GB",
                f"at most {4 * most / 1e9:.3g} GB, {why}",
            )
        return self
