"""Parameters of peak memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from helpers import parameters
from helpers.parameters import RECORD, OneOf, RecordName, Seed
from studies.peak_memory.ways import WAYS


class Parameters(parameters.Parameters):
    """An array in chunks, in shards and in a file, and the ways to read it."""

    study = "peak-memory"

    n_steps: Annotated[int, Field(ge=8, le=4096)] = Field(
        8, description="steps of the array, each a chunk"
    )
    side: Annotated[int, Field(ge=8, le=8192)] = Field(64, description="elements of a chunk's side")
    ways: Annotated[list[Annotated[str, OneOf(WAYS)]], Field(min_length=1)] = Field(
        [*WAYS], description="ways to read"
    )
    seed: Seed = Field(2026, description="of values, order and network delays")
    record: RecordName = Field("peak-memory.csv", description=RECORD)
