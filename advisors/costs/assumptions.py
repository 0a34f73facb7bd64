"""What a tile service is assumed to be: every number that its bill depends on, with its bounds.

The same table makes the options of the command line and the fields of the page's calculator.
What is rarely another is a constant of `advisors.costs.bill`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from helpers.errors import UserError

Option = Literal["process", "none", "redis", "cdn"]
"""Where opened datasets are kept: in each process, nowhere, in Redis, or in each process behind a CDN."""

OPTIONS: tuple[Option, ...] = get_args(Option)
"""The baseline first: a cache in each process is what titiler.xarray ships with."""

NAMES: Mapping[Option, str] = {
    "process": "memory of each process (as shipped)",
    "none": "no cache",
    "redis": "Redis",
    "cdn": "a CDN, then memory of each process",
}
"""What readers call the options."""

Billing = Literal["instance", "function"]
BILLINGS: tuple[Billing, ...] = get_args(Billing)

ONE_PROCESSOR_GB = 1.769
"""Memory at which a function has one whole processor, all that a Python process can use; from AWS Lambda's guide."""


def _number(default: float, low: float, high: float, label: str) -> Any:
    """Declare a number with its bounds and what it is, with its unit."""
    return field(default=default, metadata={"bounds": (low, high), "label": label})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Hold everything but prices that a month's bill depends on, computing and memory first.

    The load is that of the published study. What the service takes is what the case
    caching-costs/in-region took, to two digits.
    """

    billing: Billing = field(default="instance", metadata={"label": "billing of computing"})
    memory_gb: float = _number(1.9, 0.128, 10.24, "memory of a function (GB)")
    instance_vcpus: float = _number(2, 1, 16, "processors of an instance, always on")
    instance_gb: float = _number(8, 0.5, 120, "memory of an instance (GB)")
    service_gb: float = _number(1.8, 0.05, 100, "memory that a process needs without a cache (GB)")
    requests_per_s: float = _number(185, 1e-3, 1e5, "tiles requested a second, mean of a day")
    peak_ratio: float = _number(2, 1, 12, "rate in the busiest hour over the mean")
    n_datasets: float = _number(100, 1, 1e6, "datasets")
    tiles_per_dataset: float = _number(1e5, 1, 1e9, "tiles of a dataset that anybody requests")
    zipf: float = _number(0.9, 0, 2, "Zipf exponent of the popularity of datasets and of tiles")
    ttl_s: float = _number(3600, 1, 1e9, "seconds for which data stay the same: time to live")
    tile_nbytes: float = _number(11_000, 100, 1e7, "bytes of a tile sent out")
    make_s: float = _number(1.3, 1e-3, 60, "time to make a tile from an open dataset (s)")
    open_s: float = _number(0.3, 0, 60, "time to open a dataset (s)")
    fetch_s: float = _number(0.0013, 0, 60, "time to fetch an opened dataset from Redis (s)")
    make_cpu_s: float = _number(0.23, 1e-4, 60, "processor time to make a tile (s)")
    open_cpu_s: float = _number(0.064, 0, 60, "processor time to open a dataset (s)")
    open_gets: float = _number(9, 0, 1e4, "requests to the store to open a dataset")
    tile_gets: float = _number(1, 0, 1e4, "requests to the store for the chunks of a tile")
    metadata_nbytes: float = _number(65_000, 1e3, 1e9, "bytes of an opened dataset")


def change(given: Assumptions, changes: Mapping[str, Any]) -> Assumptions:
    """Change some assumptions by name; what is unknown or out of bounds is refused.

    Examples
    --------
    >>> change(Assumptions(), {"requests_per_s": 10}).requests_per_s
    10
    """
    known = {one.name: one.metadata for one in fields(given)}
    for name, value in changes.items():
        if name not in known:
            raise UserError(f"{name}: {value!r}; no such assumption; allowed: {', '.join(known)}")
        if name == "billing":
            if value not in BILLINGS:
                raise UserError(f"billing is {value!r}; allowed are {', '.join(BILLINGS)}")
            continue
        low, high = known[name]["bounds"]
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UserError(f"{name} is {value!r}; allowed is a number")
        if not (math.isfinite(value) and low <= value <= high):
            raise UserError(f"{name} is {value:g}; allowed is a number from {low:g} to {high:g}")
    return replace(given, **changes)


def describe() -> list[dict[str, Any]]:
    """List the assumptions: name, default, label, and bounds or choices.

    Examples
    --------
    >>> describe()[5]["name"], describe()[5]["bounds"]
    ('requests_per_s', [0.001, 100000.0])
    """
    listed = []
    for (name, value), one in zip(asdict(Assumptions()).items(), fields(Assumptions), strict=True):
        allowed: dict[str, Any] = {"choices": [*BILLINGS]}
        if name != "billing":
            allowed = {"bounds": [float(bound) for bound in one.metadata["bounds"]]}
        listed.append({"name": name, "default": value, "label": one.metadata["label"], **allowed})
    return listed
