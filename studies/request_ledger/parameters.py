"""Parameters of the request ledger."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from helpers import parameters
from helpers.parameters import RECORD, Count, OneOf, RecordName, Seed
from studies.request_ledger.environments import HERE, read_environments
from studies.request_ledger.workload import LAYOUTS, OPERATIONS

_Names = Field(min_length=1)
Shape = Annotated[list[Count], Field(min_length=3, max_length=3)]


class Parameters(parameters.Parameters):
    """Which clients are asked for what, in which environments."""

    study = "request-ledger"

    environments: Annotated[
        list[
            Annotated[
                str, OneOf(["all", *(environment.name for environment in read_environments())])
            ]
        ],
        _Names,
    ] = Field([HERE], description="environments of environments.yaml, all of them, or the one here")
    clients: Annotated[list[Annotated[str, OneOf(LAYOUTS)]], _Names] = Field(
        ["zarr-s3fs", "zarr-obstore", "h5netcdf"], description="clients to ask"
    )
    operations: Annotated[list[Annotated[str, OneOf(OPERATIONS)]], _Names] = Field(
        ["open", "series", "whole"], description="operations to ask them for"
    )
    array_shape: Shape = Field([64, 256, 256], description="elements: time, y, x")
    chunk_shape: Shape = Field([8, 128, 128], description="elements of a stored chunk")
    seed: Seed = Field(2020, description="of values, order and network delays")
    record: RecordName = Field("request-ledger.csv", description=RECORD)
