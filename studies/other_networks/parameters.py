"""Parameters of the study of other networks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from helpers import parameters
from helpers.parameters import RECORD, SLOWED, Dilation, OneOf, Profile, RecordName, Seed
from studies.request_ledger.clients import GAPS
from studies.request_ledger.parameters import Shape
from studies.request_ledger.workload import LAYOUTS, SELECTING

_Names = Field(min_length=1)


class Parameters(parameters.Parameters):
    """Which clients are asked for what, over which networks."""

    study = "other-networks"

    networks: Annotated[list[Profile], _Names] = Field(
        ["express", "in-region"], description="networks to emulate in turn"
    )
    clients: Annotated[list[Annotated[str, OneOf(LAYOUTS)]], _Names] = Field(
        ["zarr-s3fs", "ranges-obstore"], description="clients to ask"
    )
    operations: Annotated[list[Annotated[str, OneOf((*SELECTING, *GAPS))]], _Names] = Field(
        ["whole", "gap 0 KiB", "gap 1024 KiB"], description="operations to ask them for"
    )
    array_shape: Shape = Field([64, 256, 256], description="elements: time, y, x")
    chunk_shape: Shape = Field([8, 128, 128], description="elements of a stored chunk")
    dilation: Dilation = Field(1.0, description=SLOWED)
    seed: Seed = Field(2020, description="of values, order and network delays")
    record: RecordName = Field("other-networks.csv", description=RECORD)
