"""Parameters of caching and its costs."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from helpers.book import studies
from helpers.book.studies import RECORD, Contains, OneOf, Positive, RecordName, Seed
from helpers.errors import UserError
from studies.caching_costs.caches import CACHES
from studies.caching_costs.datasets import dataset_names


class Parameters(studies.Parameters):
    """Caches to compare, datasets to serve, and the load on the service."""

    # what a cache saves is told over the service without one
    caches: Annotated[
        list[Annotated[str, OneOf(CACHES)]], Field(min_length=2), Contains("none")
    ] = Field(["as-shipped", "none", "lru", "redis"], description="contenders")
    maps: Annotated[
        list[Annotated[str, OneOf(dataset_names())]],
        Field(min_length=1),
        Contains("broken", is_other=True),
    ] = Field(
        ["single-4mib", "netcdf", "references", "broken"],
        description="datasets to serve",
    )
    map_scale: Annotated[float, Field(gt=0, le=1)] = Field(
        0.0625, description="factor on the sides of the published grids and chunks"
    )
    n_users: Annotated[int, Field(ge=1, le=10_000)] = Field(2, description="users at once")
    spawn_rate: Positive = Field(
        50.0, description="users that begin in a second", json_schema_extra={"unit": "1/s"}
    )
    think_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        0.05,
        description="pause of a user between an answer and the next request",
        json_schema_extra={"unit": "s"},
    )
    n_requests: Annotated[int, Field(ge=1, le=10**7)] = Field(
        8, description="requests of all users in a warm phase"
    )
    zipf_exponent: Annotated[float, Field(ge=0, le=10)] = Field(
        1.0, description="popularity of datasets and of tiles, by rank"
    )
    sweep_caches: Annotated[
        list[Annotated[str, OneOf(CACHES)]], Field(min_length=2), Contains("none")
    ] = Field(
        ["none", "lru"], description="of the contenders, those that meet each load of the sweep"
    )
    sweep_users: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        [1, 4],
        description="users at once in each load of the sweep, who wait for answers; none for no sweep",
    )
    sweep_rates: list[Annotated[float, Field(gt=0, le=1000)]] = Field(
        [4.0],
        description="arrivals in each load of the sweep, whether answered or not",
        json_schema_extra={"unit": "1/s"},
    )
    sweep_workers: list[Annotated[int, Field(ge=1, le=16)]] = Field(
        [1], description="services that share the largest load of users"
    )
    sweep_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        0.5, description="time of each load of the sweep", json_schema_extra={"unit": "s"}
    )
    ttl_s: Annotated[float, Field(gt=0, le=1e9)] = Field(
        86400.0,
        description="time that an entry lives, but for those of titiler itself",
        json_schema_extra={"unit": "s"},
    )
    redis_url: str = Field("", description="a Redis of your own; empty for one started here")
    seed: Seed = Field(2023, description="of values, popularity, order and network delays")
    record: RecordName = Field("caching-costs.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_sweep(self) -> Self:
        if strangers := [name for name in self.sweep_caches if name not in self.caches]:
            raise UserError(
                f"sweep_caches: {', '.join(strangers)}; allowed: those of caches, {', '.join(self.caches)}"
            )
        return self
