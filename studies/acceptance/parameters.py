"""Parameters of the acceptance thresholds."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from helpers.arrays.stores import check_chunk_shape
from helpers.book import studies
from helpers.book.studies import RECORD, ArrayShape, Count, OneOf, RecordName, Seed, Shape

CHECKS = (
    "proxy",
    "ceiling",
    "decoding",
    "read-path",
    "configuration-2020",
    "netcdf",
    "growth",
    "overhead-per-chunk",
)


class Parameters(studies.Parameters):
    """Which comparisons are measured, and on which arrays."""

    checks: Annotated[list[Annotated[str, OneOf(CHECKS)]], Field(min_length=1)] = Field(
        [*CHECKS], description="comparisons to measure"
    )
    array_shape: ArrayShape = Field([2, 10, 240, 320], description="elements: time, depth, y, x")
    chunk_shapes: Annotated[list[Shape], Field(min_length=1)] = Field(
        [[1, 10, 240, 320], [1, 1, 240, 320]],
        description="elements of a stored chunk; the first where a comparison needs one",
    )
    chunks_per_task: Annotated[list[Count], Field(min_length=1)] = Field(
        [2, 4], description="chunks that a batching reader takes in one task, for each chunk shape"
    )
    n_workers: Annotated[int, Field(ge=1, le=4096)] = Field(2, description="workers of the cluster")
    threads_per_worker: Annotated[int, Field(ge=1, le=256)] = Field(
        2, description="threads of each worker"
    )
    seed: Seed = Field(2020, description="of values, order and network delays")
    record: RecordName = Field("acceptance.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for chunk_shape in self.chunk_shapes:
            check_chunk_shape(self.array_shape, chunk_shape)
        if len(self.chunks_per_task) != len(self.chunk_shapes):
            raise ValueError(
                f"chunks_per_task: {self.chunks_per_task};"
                f" allowed: {len(self.chunk_shapes)} numbers, one for each of chunk_shapes"
            )
        if self.store != "embedded" and "proxy" in self.checks:
            raise ValueError(f"store: {self.store!r}; allowed with the check proxy: embedded")
        return self
