"""Parameters of caching and its costs."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from helpers import parameters
from helpers.parameters import RECORD, Contains, OneOf, OwnNotebook, RecordName, Seed
from studies.caching_costs.caches import CACHES
from studies.caching_costs.datasets import dataset_names


class Parameters(parameters.Parameters):
    """Caches to compare, datasets to serve, and the load on the service."""

    study = "caching-costs"
    own_notebooks: ClassVar = {
        "four-caches": OwnNotebook(
            {
                "rates": [],
                "caches": [
                    "as-shipped",
                    "none",
                    "diskcache",
                    "filecache",
                    "filecache-in-turn",
                    "redis",
                ],
                "maps": ["single-4mib", "references", "unconsolidated", "netcdf", "broken"],
            },
            frozenset({"process_per_user"}),
        ),
        "published-size": OwnNotebook(
            {
                "rates": [],
                "caches": ["as-shipped", "none", "diskcache", "filecache-in-turn", "redis"],
                "maps": ["single-4mib", "references", "unconsolidated", "netcdf"],
                "process_per_user": True,
            }
        ),
    }

    # what a cache gains is a ratio to the service as shipped, and to one without a cache
    caches: Annotated[
        list[Annotated[str, OneOf(CACHES)]], Contains("as-shipped"), Contains("none")
    ] = Field(["as-shipped", "none", "lru"], description="contenders")
    maps: Annotated[
        list[Annotated[str, OneOf(dataset_names())]],
        Field(min_length=1),
        Contains("broken", is_other=True),
    ] = Field(["single-4mib", "netcdf", "broken"], description="datasets to serve")
    map_scale: Annotated[float, Field(gt=0, le=1)] = Field(
        0.0625, description="factor on the sides of the published grids and chunks"
    )
    n_tiles: Annotated[int, Field(ge=1, le=20)] = Field(
        2, description="tiles of each dataset in a load, of zooms 1 and 2"
    )
    users: list[Annotated[int, Field(ge=2, le=1000)]] = Field(
        [2], description="users at once in each load after that of one user"
    )
    process_per_user: bool = Field(
        False,
        description="whether each user has a process of the service, as each request has on Lambda",
    )
    rates: list[Annotated[float, Field(gt=0, le=1000)]] = Field(
        [4.0],
        description="arrivals in each load after these, answered or not",
        json_schema_extra={"unit": "1/s"},
    )
    ttl_s: Annotated[float, Field(gt=0, le=1e9)] = Field(
        86400.0,
        description="time that an entry lives, but for those of titiler itself",
        json_schema_extra={"unit": "s"},
    )
    redis_url: str = Field("", description="a Redis of your own; empty for one started here")
    seed: Seed = Field(2023, description="of values, tiles, order and network delays")
    record: RecordName = Field("caching-costs.csv", description=RECORD)
