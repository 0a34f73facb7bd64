"""Parameters of flipped bytes."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from helpers import parameters
from helpers.arrays.stores import check_chunk_shape
from helpers.parameters import RECORD, ArrayShape, Contains, Count, OneOf, RecordName, Seed, Shape
from studies.flipped_bytes.protection import BASELINE, FORMATS
from wire.errors import UserError


class Parameters(parameters.Parameters):
    """An array, the formats that hold it, and how many of their bytes are flipped."""

    study = "flipped-bytes"

    array_shape: ArrayShape = Field([1, 4, 160, 160], description="elements: time, depth, y, x")
    chunk_shape: Shape = Field([1, 1, 160, 160], description="elements of a chunk")
    formats: Annotated[
        list[Annotated[str, OneOf(FORMATS)]], Field(min_length=1), Contains(BASELINE)
    ] = Field([BASELINE, "zarr-crc32c"], description="formats and their checksums")
    n_flips: Count = Field(2, description="bytes flipped in each block, one at a time")
    n_reads: Count = Field(1, description="reads of the sound copy in a measurement")
    seed: Seed = Field(2026, description="of values, order and flipped bytes")
    record: RecordName = Field("flipped-bytes.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_chunk_shape(self.array_shape, self.chunk_shape)
        if self.store != "embedded":
            raise UserError("store", f"{self.store!r}", "'embedded'")
        for name in self.formats:
            if missing := FORMATS[name].missing():
                raise UserError(
                    "formats",
                    f"{name!r} cannot be read here",
                    f"with it installed (pip install {' '.join(missing)}), or without it",
                )
        return self
