"""Parameters of chunk shape."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from helpers import parameters
from helpers.parameters import (
    RECORD,
    SLOWED,
    Count,
    Dilation,
    OwnNotebook,
    Profile,
    RecordName,
    Seconds,
    Seed,
)
from studies.chunk_shape.layouts import Medium


class Parameters(parameters.Parameters):
    """Media, the scale of the array, and how many positions of each access are read."""

    study = "chunk-shape"
    own_notebooks: ClassVar = {
        "balanced": OwnNotebook(
            left_out=frozenset(
                {"media", "access_time_s", "dilation", "profile", "processors", "store"}
            )
        )
    }

    media: Annotated[list[Medium], Field(min_length=1)] = Field(
        ["hdf5"], description="hdf5 on local disk, zarr and sharded in the object store"
    )
    scale_factor: Annotated[float, Field(ge=1, le=1000)] = Field(
        20.0, description="by which each dimension of the reanalysis is divided"
    )
    n_boxes: Count = Field(3, description="most random positions of each access in each block")
    access_time_s: Seconds = Field(
        0.2,
        description="reading time of an access in a block, as predicted",
        json_schema_extra={"unit": "s"},
    )
    dilation: Dilation = Field(1.0, description=SLOWED)
    profile: Profile = Field("loopback", description="network to emulate on the object store")
    n_blocks: Count = Field(1, description="most repetitions, each at positions of its own")
    seed: Seed = Field(2014, description="of values, positions, order and network delays")
    record: RecordName = Field("chunk-shape.csv", description=RECORD)
