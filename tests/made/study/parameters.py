"""What every study takes, with a seed of its own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from helpers.book import parameters


class Parameters(parameters.Parameters):
    """Nothing of its own but a seed."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(1, description="of nothing")
