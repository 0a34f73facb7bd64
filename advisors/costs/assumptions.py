"""What a tile service is assumed to be: every number that its cost depends on, with its bounds.

The same table makes the options of the command line, the controls of the page's
calculator and the bars of the tornado, so that none of them has its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from helpers.errors import UserError

Option = Literal["none", "process", "disk", "shared", "redis", "cdn", "cdn-process"]
"""Where the cache is: nowhere, each process, each instance's disk, a shared file system, Redis, or a CDN in front of no cache or of one in each process."""

OPTIONS: tuple[Option, ...] = get_args(Option)

Billing = Literal["invocation", "instance"]
Mode = Literal["bursting", "elastic"]

CHOICES: Mapping[str, tuple[str, ...]] = {
    "billing": get_args(Billing),
    "shared_mode": get_args(Mode),
}
"""Assumptions that are no number, with what they may be."""


def _number(
    default: float, bounds: tuple[float, float], group: str, label: str, *, is_whole: bool = False
) -> Any:
    """Declare a number with its least and its largest value, its group and what it is, with unit."""
    known = {"bounds": bounds, "group": group, "label": label, "whole": is_whole}
    return field(default=default, metadata=known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Hold everything but prices that a month's cost depends on; defaults are the published study's load.

    Each field's unit is in its name, and what it is in its metadata, which `describe` lists.
    """

    requests_per_s: float = _number(
        185, (1e-3, 1e5), "load", "tiles asked for, a second, averaged over a day"
    )
    peak_ratio: float = _number(2.0, (1, 12), "load", "rate in the busiest hour over the average")
    n_datasets: float = _number(100, (1, 1e6), "load", "datasets", is_whole=True)
    dataset_zipf: float = _number(0.9, (0, 2), "load", "Zipf exponent of the datasets' popularity")
    tile_nbytes: float = _number(1400, (100, 1e7), "load", "bytes of a tile sent out")
    make_s: float = _number(
        0.35, (1e-3, 60), "service", "mean time to make a tile from an open dataset (s)"
    )
    open_s: float = _number(
        0.15, (0, 60), "service", "mean time to open a dataset without a cache (s)"
    )
    metadata_nbytes: float = _number(5e5, (1e3, 1e9), "service", "bytes of an opened dataset")
    open_gets: float = _number(6, (0, 1e4), "service", "requests to the store to open a dataset")
    tile_gets: float = _number(
        2, (0, 1e4), "service", "requests to the store for the chunks of a tile"
    )
    tile_read_nbytes: float = _number(
        8e6, (0, 1e9), "service", "bytes read from the store for a tile"
    )
    billing: Billing = field(
        default="invocation",
        metadata={"group": "computing", "label": "how computing is billed"},
    )
    memory_gb: float = _number(10, (0.128, 10.24), "computing", "memory of an invocation (GB)")
    instance_vcpus: float = _number(
        2, (0.25, 16), "computing", "processors of an instance that is always on"
    )
    instance_gb: float = _number(
        8, (0.5, 120), "computing", "memory of an instance that is always on (GB)"
    )
    make_cpu_s: float = _number(
        0.04, (1e-4, 60), "computing", "processor seconds to make a tile from an open dataset"
    )
    open_cpu_s: float = _number(
        0.025, (0, 60), "computing", "processor seconds to open a dataset without a cache"
    )
    target_utilisation: float = _number(
        0.7, (0.05, 1), "computing", "share of its processors in use in the busiest hour"
    )
    lifetime_s: float = _number(
        7200, (60, 1e8), "computing", "mean life of an instance and its disk (s)"
    )
    ttl_s: float = _number(
        86400, (1, 1e9), "caches", "time to live of an opened dataset in a cache (s)"
    )
    process_gb: float = _number(
        0.5, (0.01, 500), "caches", "memory of a process for opened datasets (GB)"
    )
    disk_gb: float = _number(10, (0.512, 10.24), "caches", "disk of an instance (GB)")
    disk_fetch_s: float = _number(
        0.02, (0, 60), "caches", "mean time to fetch an opened dataset from disk (s)"
    )
    shared_mode: Mode = field(
        default="bursting",
        metadata={"group": "caches", "label": "throughput of the shared file system"},
    )
    shared_fetch_s: float = _number(
        0.03, (0, 60), "caches", "mean time to fetch it from the shared file system (s)"
    )
    shared_read_nbytes: float = _number(
        1e6, (0, 1e9), "caches", "bytes read from the shared file system for a hit"
    )
    shared_gets: float = _number(
        0,
        (0, 1e4),
        "caches",
        "requests to the store that a hit on the shared file system still makes",
    )
    shared_lists: float = _number(
        0, (0, 1e4), "caches", "listings of the store for a tile with the shared file system"
    )
    redis_fetch_s: float = _number(0.01, (0, 60), "caches", "mean time to fetch it from Redis (s)")
    redis_nodes: float = _number(
        1,
        (1, 100),
        "caches",
        "Redis nodes, more where their throughput asks for them",
        is_whole=True,
    )
    redis_gb: float = _number(1.1, (0.1, 500), "caches", "usable memory of a Redis node (GB)")
    # 128 Mb/s is what a t3.small sends for long, by gist.github.com/DingGGu, EC2 network bandwidth
    redis_mb_per_s: float = _number(
        16, (0.1, 1e5), "caches", "throughput that a Redis node keeps up (MB/s)"
    )
    tiles_per_dataset: float = _number(
        1e5, (1, 1e9), "caches", "tiles of a dataset that anybody asks for", is_whole=True
    )
    tile_zipf: float = _number(0.8, (0, 2), "caches", "Zipf exponent of the tiles' popularity")
    cdn_ttl_s: float = _number(3600, (1, 1e9), "caches", "time to live of a tile in the CDN (s)")
    n_edges: float = _number(
        10, (1, 1000), "caches", "places of the CDN that share the requests", is_whole=True
    )
    n_nat_gateways: float = _number(
        1,
        (0, 10),
        "network",
        "NAT gateways, for caches that need a private network",
        is_whole=True,
    )
    nat_share: float = _number(0, (0, 1), "network", "share of what is read from the store that goes through NAT")  # fmt: skip

    def __post_init__(self) -> None:
        """Refuse what is out of bounds."""
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in CHOICES:
                if value not in CHOICES[one.name]:
                    raise UserError(
                        f"{one.name} is {value!r}; allowed are {', '.join(CHOICES[one.name])}"
                    )
                continue
            low, high = one.metadata["bounds"]
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise UserError(f"{one.name} is {value!r}; allowed is a number")
            if not (math.isfinite(value) and low <= value <= high):
                raise UserError(
                    f"{one.name} is {value:g}; allowed is a number from {low:g} to {high:g}"
                )
            if one.metadata["whole"] and value != round(value):
                raise UserError(f"{one.name} is {value:g}; allowed is a whole number")


def change(given: Assumptions, changes: Mapping[str, Any]) -> Assumptions:
    """Change some assumptions by name.

    Examples
    --------
    >>> change(Assumptions(), {"requests_per_s": 10}).requests_per_s
    10
    """
    known = asdict(given)
    for name, value in changes.items():
        if name not in known:
            raise UserError(f"{name}: {value!r}; no such assumption; allowed: {', '.join(known)}")
    return replace(given, **changes)


def describe() -> list[dict[str, Any]]:
    """List the assumptions: name, default, what it is, its group, and its bounds or choices.

    Examples
    --------
    >>> describe()[0]["name"], describe()[0]["bounds"]
    ('requests_per_s', [0.001, 100000.0])
    """
    listed = []
    for one in fields(Assumptions):
        entry = {"name": one.name, "default": one.default, **one.metadata}
        if one.name in CHOICES:
            entry["choices"] = list(CHOICES[one.name])
        else:
            entry["bounds"] = [float(bound) for bound in one.metadata["bounds"]]
        listed.append(entry)
    return listed
