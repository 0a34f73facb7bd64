"""What a tile service is assumed to be: every number that its bill depends on, with its bounds.

The same table makes the options of the command line and the fields of the page's calculator.
What is rarely another is a constant of `advisors.costs.bill`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from helpers.errors import UserError, show

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
    return field(default=default, metadata={"label": label, "bounds": (float(low), float(high))})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Hold everything but prices that a month's bill depends on, computing and memory first.

    The load is that of the published study. What the service takes is what the published case
    caching-costs/in-region took, to two digits, so that page and calculator tell one bill; a test
    says which number differs once it is measured again.
    """

    billing: Billing = field(
        default="instance", metadata={"label": "billing of computing", "choices": [*BILLINGS]}
    )
    memory_gb: float = _number(1.8, 0.128, 10.24, "memory of a function (GB)")
    instance_vcpus: float = _number(2, 1, 16, "processors of an instance, always on")
    instance_gb: float = _number(8, 0.5, 120, "memory of an instance (GB)")
    service_gb: float = _number(1.2, 0.05, 100, "memory that a process needs without a cache (GB)")
    requests_per_s: float = _number(185, 1e-3, 1e5, "tiles requested a second, mean of a day")
    peak_ratio: float = _number(2, 1, 12, "rate in the busiest hour over the mean")
    n_datasets: float = _number(100, 1, 1e6, "datasets")
    tiles_per_dataset: float = _number(1e5, 1, 1e9, "tiles of a dataset that anybody requests")
    zipf: float = _number(0.9, 0, 2, "Zipf exponent of the popularity of datasets and of tiles")
    ttl_s: float = _number(3600, 1, 1e9, "seconds for which data stay the same: time to live")
    tile_nbytes: float = _number(19_000, 100, 1e7, "bytes of a tile sent out")
    make_s: float = _number(0.39, 1e-3, 60, "time to make a tile from an open dataset (s)")
    open_s: float = _number(0.18, 0, 60, "time to open a dataset (s)")
    fetch_s: float = _number(0.017, 0, 60, "time to fetch an opened dataset from Redis (s)")
    make_cpu_s: float = _number(0.13, 1e-4, 60, "processor time to make a tile (s)")
    open_cpu_s: float = _number(0.024, 0, 60, "processor time to open a dataset (s)")
    open_gets: float = _number(7.8, 0, 1e4, "requests to the store to open a dataset")
    tile_gets: float = _number(0.75, 0, 1e4, "requests to the store for the chunks of a tile")
    metadata_nbytes: float = _number(49_000, 1e3, 1e9, "bytes of an opened dataset")


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
            raise UserError(f"{show(name)}: no such assumption; allowed: {', '.join(known)}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if "choices" in known[name]:
            is_good, allowed = value in BILLINGS, ", ".join(BILLINGS)
        else:
            low, high = known[name]["bounds"]
            is_good, allowed = (
                is_number and low <= value <= high,
                f"a number from {low:g} to {high:g}",
            )
        if not is_good:
            raise UserError(f"{name} is {show(value)}; allowed: {allowed}")
    return replace(given, **changes)


def describe() -> list[dict[str, Any]]:
    """List the assumptions: name, default, label, and bounds or choices.

    Examples
    --------
    >>> describe()[5]["name"], describe()[5]["bounds"]
    ('requests_per_s', (0.001, 100000.0))
    """
    return [
        {"name": one.name, "default": one.default, **one.metadata} for one in fields(Assumptions)
    ]
