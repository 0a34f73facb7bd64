"""What every study takes, with a seed of its own and an address that may hold a password."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from helpers import parameters


class Parameters(parameters.Parameters):
    """Nothing to measure."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(1, description="of nothing")
    redis_url: str = Field("", description="of nothing either")
