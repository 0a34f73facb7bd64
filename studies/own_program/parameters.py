"""Parameters of a program of one's own."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from helpers import parameters
from helpers.parameters import RECORD, Count, RecordName, Seed
from wire.trace.cli import read_setting


def _known_setting(pair: list[str]) -> list[str]:
    read_setting("=".join(pair))
    return pair


class Parameters(parameters.Parameters):
    """A command, and a setting that is tried on it."""

    study = "own-program"

    command: Annotated[list[str], Field(min_length=1)] = Field(
        ["python", "studies/own_program/everyone.py", "STORED"],
        description="program and arguments; STORED stands for the array that is stored here",
    )
    setting: Annotated[
        list[str], Field(min_length=2, max_length=2), AfterValidator(_known_setting)
    ] = Field(["max_concurrency", "1"], description="what `wire trace --try` tries, and its value")
    array_shape: Annotated[list[Count], Field(min_length=3, max_length=3)] = Field(
        [4, 128, 256], description="elements of the stored array: time, y, x"
    )
    chunk_shape: Annotated[list[Count], Field(min_length=3, max_length=3)] = Field(
        [1, 64, 64], description="elements of a stored chunk"
    )
    seed: Seed = Field(2020, description="of values, order and network delays")
    record: RecordName = Field("own-program.csv", description=RECORD)
