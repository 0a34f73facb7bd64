"""Parameters of loaders."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from helpers import parameters
from helpers.arrays.stores import check_chunk_shape
from helpers.parameters import RECORD, ArrayShape, Contains, Count, OneOf, RecordName, Seed, Shape
from helpers.registry import list_missing
from studies.loaders.loaders import BASELINE, LOADERS
from wire.errors import UserError


class Parameters(parameters.Parameters):
    """An array whose steps of time are samples, and the loaders that draw them."""

    study = "loaders"

    array_shape: ArrayShape = Field([64, 1, 60, 80], description="elements: time, depth, y, x")
    chunk_shape: Shape = Field([4, 1, 60, 80], description="elements of a stored chunk")
    loaders: Annotated[
        list[Annotated[str, OneOf(LOADERS)]], Field(min_length=1), Contains(BASELINE)
    ] = Field([BASELINE, "processes", "batch", "chunks", "cache"], description="loaders to compare")
    batch_size: Count = Field(8, description="samples of a batch")
    n_processes: Annotated[int, Field(ge=1, le=64)] = Field(
        2, description="of a loader with worker processes"
    )
    prefetch_factor: Annotated[int, Field(ge=1, le=64)] = Field(
        2, description="batches that each process keeps ready"
    )
    n_window: Count = Field(4, description="chunks whose samples are shuffled together")
    seed: Seed = Field(2026, description="of values, order and network delays")
    record: RecordName = Field("loaders.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_chunk_shape(self.array_shape, self.chunk_shape)
        if self.batch_size > self.array_shape[0]:
            allowed = f"at most {self.array_shape[0]}, the steps of the array"
            raise UserError("batch_size", self.batch_size, allowed)
        for name in self.loaders:
            if missing := list_missing(LOADERS[name].packages):
                raise UserError(
                    "loaders",
                    f"{name!r} cannot run here",
                    f"with it installed (pip install {' '.join(missing)}), or without it",
                )
        return self
