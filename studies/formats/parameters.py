"""Parameters of formats."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from helpers.arrays.stores import check_chunk_shape
from helpers.arrays.writers import CODECS
from helpers.book import studies
from helpers.book.studies import RECORD, Contains, OneOf, RecordName, Seed, Shape
from helpers.errors import UserError
from studies.formats.blocks import misalign
from studies.formats.clients import CLIENTS
from studies.formats.elsewhere import ENTRIES
from studies.formats.formats import ACCESSES
from studies.formats.workload import choose_control

DATASETS = ("enlarged-ocean-temperature", "enlarged-relief")
_MOST_OF_TEXT = 10**8  # values: some 1.2 GB of text, and the memory of several
_NBYTES_OF_A_LINE, _WRITE_S_OF_A_LINE = 12, 1.6e-7  # the second as the case of tables took
_TEXT = ("csv", "csv-parts")
_MOST_IN_MEMORY = 2 * 10**9  # values: every format is made from all of them


class Parameters(studies.Parameters):
    """An array, and the clients that read it in the format of each."""

    # an entry more or less changes no other row, and memory is tried apart
    not_measured: ClassVar[frozenset[str]] = studies.Parameters.not_measured | {
        "entries",
        "memory_limit_mb",
    }

    dataset: Annotated[str, OneOf(DATASETS)] = Field(
        "enlarged-ocean-temperature", description="entry of catalog.yml, made at that shape"
    )
    array_shape: Shape = Field([4, 10, 120, 160], description="elements: time, depth, y, x")
    chunk_shape: Shape = Field([1, 5, 120, 160], description="elements of a stored chunk")
    codec: Annotated[str, OneOf(CODECS)] = Field(
        "blosc-zstd", description="compression of the chunks, where the format has chunks"
    )
    contenders: Annotated[list[Annotated[str, OneOf(CLIENTS)]], Field(min_length=1)] = Field(
        [
            "zarr-obstore-told",
            "zarr-s3fs-one-get",
            "zarr-tensorstore",
            "zarr-direct",
            "icechunk",
            "netcdf-s3fs",
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
    entries: list[Annotated[str, OneOf(ENTRIES)]] = Field(
        [], description="of the catalogue, read where they are, a map of each"
    )
    n_requests: Annotated[int, Field(ge=1, le=1024)] = Field(
        16, description="requests in flight of clients that can be told"
    )
    memory_limit_mb: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0,
        description="that reading one Parquet file may add; 0: untried",
        json_schema_extra={"unit": "MB"},
    )
    seed: Seed = Field(2022, description="of values, order and network delays")
    record: RecordName = Field("formats.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_chunk_shape(self.array_shape, self.chunk_shape)
        choose_control(self.contenders)
        if "netcdf-dask-unaligned" in self.contenders:
            misalign(tuple(self.array_shape), tuple(self.chunk_shape))
        group_mb = 4 * math.prod(self.array_shape[1:]) / 1e6
        if 0 < self.memory_limit_mb < group_mb:
            raise UserError(
                f"memory_limit_mb: {self.memory_limit_mb:g}; allowed: at least {group_mb:.3g},"
                " the values of one row group, or 0 for none"
            )
        n_values = math.prod(self.array_shape)
        if n_values > _MOST_IN_MEMORY:
            raise UserError(
                f"array_shape: {self.array_shape} of {4 * n_values / 1e9:.0f} GB;"
                f" allowed: at most {4 * _MOST_IN_MEMORY / 1e9:.0f} GB, which every format is made from"
            )
        as_text = [name for name in self.contenders if CLIENTS[name].format in _TEXT]
        if as_text and n_values > _MOST_OF_TEXT:
            size, seconds = _NBYTES_OF_A_LINE * n_values / 1e9, _WRITE_S_OF_A_LINE * n_values
            raise UserError(
                f"contenders: {as_text[0]} of {n_values} values, some {size:.0f} GB of text"
                f" that take {seconds:.0f} s to write, without a network;"
                f" allowed: at most {_MOST_OF_TEXT} values with it"
            )
        return self
