"""Parameters of the harness."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from helpers import parameters
from helpers.arrays.stores import check_chunk_shape
from helpers.parameters import RECORD, ArrayShape, Count, Dilation, RecordName, Seed, Shape
from wire.errors import UserError


class Parameters(parameters.Parameters):
    """An array in few and in many chunks, and a network to emulate at two dilations."""

    study = "harness"

    array_shape: ArrayShape = Field([2, 10, 240, 320], description="elements: time, depth, y, x")
    chunk_shapes: Annotated[list[Shape], Field(min_length=2)] = Field(
        [[1, 1, 240, 320], [1, 1, 60, 320]],
        description="elements of a stored chunk, the largest first",
    )
    n_connections: Count = Field(4, description="requests in flight of raw reads")
    n_times: Count = Field(1, description="times that a raw read asks for each object")
    dilation: Dilation = Field(1.0, description="factor that slows down the network and its time")
    ladder: list[Dilation] = Field(
        [], description="dilations to compare clients at, charged and not"
    )
    seed: Seed = Field(2020, description="of values, order and network delays")
    record: RecordName = Field("harness.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for chunk_shape in self.chunk_shapes:
            check_chunk_shape(self.array_shape, chunk_shape)
        if self.store != "embedded":  # the proxy stands before a store of this machine
            raise UserError("store", f"{self.store!r}", "'embedded'")
        if self.ladder and not self.processors:
            raise UserError("processors", "0 with a ladder", "at least 1, which are charged")
        return self
