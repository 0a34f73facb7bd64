"""Parameters of the jumps between releases."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from helpers import parameters
from helpers.parameters import RECORD, OneOf, RecordName, Seed
from wire.ledger.clients import CLIENTS
from wire.ledger.environments import HERE, read_environments

_Names = Field(min_length=1)
_ENVIRONMENTS = ("all", *(environment.name for environment in read_environments()))


class Parameters(parameters.Parameters):
    """Which clients are measured, in which environments."""

    study = "request-jumps"

    environments: Annotated[list[Annotated[str, OneOf(_ENVIRONMENTS)]], _Names] = Field(
        [HERE], description="environments of the ledger, all of them, or the one here"
    )
    clients: Annotated[list[Annotated[str, OneOf(("all", *CLIENTS))]], _Names] = Field(
        ["s3fs-file", "xarray-tree-obstore", "zarr-array-obstore"],
        description="clients to measure, or all",
    )
    seed: Seed = Field(2026, description="of values, order and network delays")
    record: RecordName = Field("request-jumps.csv", description=RECORD)
