"""Parameters of opening trees."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from helpers import parameters
from helpers.parameters import RECORD, Contains, Count, OneOf, RecordName, Seed
from studies.opening_trees.openings import BASELINE, OPENINGS


class Parameters(parameters.Parameters):
    """A tree of radar sweeps, a flat dataset, and the calls that open them."""

    study = "opening-trees"

    n_sweeps: Annotated[int, Field(ge=1, le=200)] = Field(24, description="groups of the tree")
    n_coordinates: Annotated[int, Field(ge=1, le=400)] = Field(
        40, description="coordinates of the flat dataset"
    )
    n_azimuths: Count = Field(360, description="rays of a sweep")
    n_ranges: Count = Field(500, description="gates of a ray")
    openings: Annotated[
        list[Annotated[str, OneOf(OPENINGS)]], Field(min_length=1), Contains(BASELINE)
    ] = Field([*OPENINGS], description="calls to compare")
    seed: Seed = Field(2026, description="of values, order and network delays")
    record: RecordName = Field("opening-trees.csv", description=RECORD)
