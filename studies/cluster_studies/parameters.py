"""Parameters of the two studies of growing clusters."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import Field, model_validator

from helpers import parameters
from helpers.arrays.clusters import KINDS, read_options
from helpers.arrays.stores import check_chunk_shape, open_entry
from helpers.arrays.writers import CODECS
from helpers.errors import UserError
from helpers.parameters import RECORD, ArrayShape, OneOf, RecordName, Seed, Shape
from studies.cluster_scaling.parameters import check_memory
from studies.cluster_studies.sources import SOURCES, TABLES


class Parameters(parameters.Parameters):
    """An array, the sources to read it from, and the clusters to read it with."""

    dataset: str = Field("enlarged-relief", description="entry of catalog.yml that is made here")
    array_shape: ArrayShape = Field([1, 1, 180, 360], description="elements: time, depth, y, x")
    chunk_shape: Shape = Field([1, 1, 90, 90], description="elements of a stored chunk")
    codec: Annotated[str, OneOf(CODECS)] = Field(
        "blosc-zstd", description="compression of the chunks"
    )
    contenders: list[Annotated[str, OneOf(SOURCES)]] = Field(
        ["zarr-2020", "netcdf-2020", "opendap", "csv", "parquet-parts", "zarr-array", "tiledb"],
        description="sources to compare",
    )
    entries: list[str] = Field(
        [], description="entries of catalog.yml that are read where they are"
    )
    n_workers: Annotated[list[Annotated[int, Field(ge=1, le=4096)]], Field(min_length=1)] = Field(
        [1, 2], description="sizes of the cluster"
    )
    threads_per_worker: Annotated[int, Field(ge=1, le=256)] = Field(
        2, description="threads of each worker"
    )
    steps_per_worker: Annotated[int, Field(ge=0)] = Field(
        0, description="steps of time for each worker; 0: all read the whole array"
    )
    dilation_per_worker: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = Field(
        0.0, description="factor for each worker that slows down time"
    )
    cluster_kind: Annotated[str, OneOf(KINDS)] = Field("local", description="where the workers run")
    cluster_address: str = Field(
        "", description="of gateway or scheduler; empty for the configured one"
    )
    cluster_options: list[str] = Field(
        [], description="of a gateway or of Slurm, each a name and a value"
    )
    seed: Seed = Field(2020, description="of values, order and network delays")
    record: RecordName = Field("cluster-studies.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_chunk_shape(self.array_shape, self.chunk_shape)
        read_options(self.cluster_kind, self.cluster_options)
        for name in (self.dataset, *self.entries):
            open_entry(name)
        if not [*self.contenders, *self.entries]:
            raise UserError("contenders: none; allowed: at least one, or an entry")
        if self.contenders and (self.store, self.cluster_kind) != ("embedded", "local"):
            raise UserError(
                f"contenders: {self.contenders[0]!r} at store {self.store} with cluster_kind:"
                f" {self.cluster_kind}; allowed: none but entries, or the embedded store and local"
            )
        most_steps = max(self.n_workers) * self.steps_per_worker
        if most_steps > self.array_shape[0] or self.steps_per_worker % self.chunk_shape[0]:
            raise UserError(
                f"steps_per_worker: {self.steps_per_worker} for {max(self.n_workers)} workers;"
                f" allowed: together at most {self.array_shape[0]}, in whole chunks"
            )
        if self.cluster_kind == "local":
            chunk_nbytes = 4 * math.prod(self.chunk_shape)
            check_memory(max(self.n_workers), self.threads_per_worker * chunk_nbytes)
        tables = [name for name in self.contenders if SOURCES[name].layout in TABLES]
        if tables and self.steps_per_worker:
            raise UserError(
                f"steps_per_worker: {self.steps_per_worker} with {tables[0]}; allowed: 0, as a table is"
                " read whole"
            )
        return self
