"""Parameters of requests in flight."""

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
    ArrayShape,
    Count,
    Dilation,
    OneOf,
    RecordName,
    Seed,
    Shape,
)
from studies.requests_in_flight.workload import CONTROL, OBSTORE, POOLS, S3FS
from wire.errors import UserError

CLIENTS = (OBSTORE, "zarr-s3fs", S3FS, CONTROL, f"{CONTROL}-{S3FS}", *POOLS)
_LEAST_WAVES = 8  # of requests, or the start and the burst of the store decide
_MOST_IN_FLIGHT = 4096  # connections of one process, each a file that is open


class Parameters(parameters.Parameters):
    """An array, and the settings of one process that reads it."""

    study = "requests-in-flight"

    array_shape: ArrayShape = Field([2, 16, 60, 80], description="elements: time, depth, y, x")
    chunk_shape: Shape = Field([1, 1, 60, 80], description="elements of a stored chunk")
    codec: Codec = Field("blosc-zstd", description="compression of the chunks")
    n_threads: Annotated[list[Annotated[int, Field(ge=1, le=256)]], Field(min_length=1)] = Field(
        [1, 2], description="threads of Dask, each of which reads one step of time"
    )
    concurrency: Annotated[list[Annotated[int, Field(ge=1, le=1024)]], Field(min_length=1)] = Field(
        [2, 8], description="async.concurrency of zarr, for each thread"
    )
    n_steps: Annotated[int, Field(ge=0)] = Field(
        0, description="steps that each setting reads; 0: one for each thread"
    )
    clients: list[Annotated[str, OneOf(CLIENTS)]] = Field(
        [*CLIENTS[:3]],
        description="clients to compare, one thread each; control: one of them once more",
    )
    client_chunk_shapes: list[Shape] = Field(
        [[1, 4, 60, 80]], description="elements of a chunk of that comparison; none: no comparison"
    )
    client_n_chunks: list[Count] = Field([8], description="chunks of each of these that are read")
    n_processes: Count = Field(
        1,
        description="equal processes that share link and request rate of the store",
    )
    link_gbit: Annotated[float, Field(ge=0)] = Field(
        0.0, description="link of this machine (Gbit/s); 0: as the profile has it"
    )
    dilation: Dilation = Field(1.0, description=SLOWED)
    seed: Seed = Field(2020, description="of values, order and network delays")
    record: RecordName = Field("requests-in-flight.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_chunk_shape(self.array_shape, self.chunk_shape)
        if len(self.client_n_chunks) != len(self.client_chunk_shapes):
            raise UserError(
                "client_n_chunks",
                f"{len(self.client_n_chunks)} numbers",
                f"{len(self.client_chunk_shapes)}, one for each of client_chunk_shapes",
            )
        most = max(self.n_threads)
        if most > self.array_shape[0]:
            raise UserError(
                "n_threads", most, f"at most {self.array_shape[0]}, a step of time for each"
            )
        n_each = math.prod(
            -(-n // c) for n, c in zip(self.array_shape[1:], self.chunk_shape[1:], strict=True)
        )
        least = max(most, -(-_LEAST_WAVES * most * max(self.concurrency) // n_each))
        if self.n_steps and not least <= self.n_steps <= self.array_shape[0]:
            raise UserError(
                "n_steps",
                self.n_steps,
                (
                    f"0, or from {least}, {_LEAST_WAVES} waves of requests for each setting, to "
                    f"{self.array_shape[0]}, all of array_shape"
                ),
            )
        if most * max(self.concurrency) > _MOST_IN_FLIGHT:
            raise UserError(
                "concurrency",
                f"{max(self.concurrency)} in each of {most} threads",
                f"{_MOST_IN_FLIGHT} requests in flight together",
            )
        return self
