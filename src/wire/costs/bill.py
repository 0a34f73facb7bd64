"""What a month of a tile service costs with each place of a cache, and what follows from it.

Pure rules on assumptions and prices; nothing here knows where prices come from. Volume discounts,
free allowances, commitments and the way in (a load balancer, a gateway) are left out.
`_static/caching-costs/cost-calculator.js` has the same rules; a test holds both to the same digits.

How often a cache hits: requests for an item are Poisson and independent. A miss brings an item in; it stays until it is
evicted, its time to live ends, or the process that holds it is gone. Eviction follows Che's
approximation :cite:p:`che2002,fricker2012`: the least recently used item goes when nobody has
requested it for the *characteristic time*, which is the same for all items and such that the
expected content fills the cache.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wire.costs.prices import BILLED_GB_NBYTES
from wire.errors import UserError, convert_validation_error, show

Option = Literal["process", "none", "redis", "cdn"]
"""Where opened datasets are kept: in each process, nowhere, in Redis, or in each process behind a CDN."""

OPTIONS: tuple[Option, ...] = get_args(Option)
"""The baseline first: a cache in each process is what titiler.xarray ships with."""

NAMES: Mapping[Option, str] = {
    "process": "memory of each process, titiler's default",
    "none": "no cache",
    "redis": "Redis",
    "cdn": "a CDN, then memory of each process",
}
"""What readers call the options."""

STALE: Mapping[Option, str] = {
    "process": "shows data as they were when its process opened them, until they expire or it restarts",
    "redis": "shows data as they were when an entry was made, until that expires",
    "cdn": "keeps a tile, old or wrong, until it expires",
}
"""How an option shows old tiles once data change; one that is not here makes each tile anew."""

Billing = Literal["instance", "function"]

ONE_PROCESSOR_GB = 1.769
"""Memory at which a function has one whole CPU, all that a Python process can use; from AWS Lambda's guide."""


def _number(default: float, low: float, high: float, label: str) -> Any:
    """Declare a number with its bounds and what it is, with its unit."""
    return Field(default, ge=low, le=high, description=label)


class Assumptions(BaseModel):
    """Everything but prices that a month's bill depends on, computing and memory first.

    The same table makes what `--set` takes and the fields of the page's calculator.
    The load is that of the published study. What the service takes is what the published case
    caching-costs/in-region took, to two digits, where the page's own bill has all of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    billing: Billing = Field(default="instance", description="billing of computing")
    memory_gb: float = _number(1.8, 0.128, 10.24, "memory of a function (GB)")
    instance_vcpus: float = _number(2, 1, 16, "CPUs of an instance, always on")
    instance_gb: float = _number(8, 0.5, 120, "memory of an instance (GB)")
    service_gb: float = _number(1.1, 0.05, 100, "memory that a process needs without a cache (GB)")
    requests_per_s: float = _number(185, 1e-3, 1e5, "tiles requested a second, mean of a day")
    peak_ratio: float = _number(2, 1, 12, "rate in the busiest hour over the mean")
    n_datasets: float = _number(100, 1, 1e6, "datasets")
    tiles_per_dataset: float = _number(1e5, 1, 1e9, "tiles of a dataset that anybody requests")
    zipf: float = _number(0.9, 0, 2, "Zipf exponent of the popularity of datasets and of tiles")
    ttl_s: float = _number(3600, 1, 1e9, "seconds for which data stay the same: time to live")
    tile_nbytes: float = _number(19_000, 100, 1e7, "bytes of a tile sent out")
    make_s: float = _number(0.43, 1e-3, 60, "time to make a tile from an open dataset (s)")
    open_s: float = _number(0.19, 0, 60, "time to open a dataset (s)")
    fetch_s: float = _number(0.018, 0, 60, "time to fetch an opened dataset from Redis (s)")
    make_cpu_s: float = _number(0.18, 1e-4, 60, "CPU time to make a tile (s)")
    open_cpu_s: float = _number(0.023, 0, 60, "CPU time to open a dataset (s)")
    open_gets: float = _number(7.8, 0, 1e4, "requests to the store to open a dataset")
    tile_gets: float = _number(0.75, 0, 1e4, "requests to the store for the chunks of a tile")
    metadata_nbytes: float = _number(49_000, 1e3, 1e9, "bytes of an opened dataset")


def change_assumptions(assumptions: Assumptions, changes: Mapping[str, Any]) -> Assumptions:
    """Change some assumptions by name; what is unknown or out of bounds is refused."""
    fields = Assumptions.model_fields
    if strange := [name for name in changes if name not in fields]:
        raise UserError(show(strange[0]), "no such assumption", ", ".join(fields))
    try:
        return Assumptions(**{**assumptions.model_dump(), **changes})
    except ValidationError as error:
        raise convert_validation_error(error) from error


def describe() -> list[dict[str, Any]]:
    """List the assumptions: name, default, label, and bounds or choices."""
    entries = []
    for name, field in Assumptions.model_json_schema()["properties"].items():
        entry = {"name": name, "default": field["default"], "label": field["description"]}
        if "enum" in field:
            entries.append({**entry, "choices": field["enum"]})
        else:
            entries.append({**entry, "bounds": (float(field["minimum"]), float(field["maximum"]))})
    return entries


Floats = NDArray[np.float64]

_GB = 1e9  # of memory
HOURS_PER_MONTH = 720.0
SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600

TARGET_UTILISATION = 0.7  # of an instance's CPUs in the busiest hour
LIFETIME_S = 7200.0  # mean life of a process and of what it keeps
N_EDGES = 10  # places of a CDN that share the requests
REDIS_GB = 1.1  # usable memory of a cache.t3.small
# 128 Mb/s is what a t3.small sends for long, by gist.github.com/DingGGu, EC2 network bandwidth
REDIS_MB_PER_S = 16.0
LEAST_SAVING = 0.05  # of a bill: a smaller one is none
LEAST_RATE = 0.01  # tiles/s
N_ROUNDS = 50  # in which hit ratio and number of processes settle; ten are usual


@dataclass(frozen=True, slots=True)
class Cost:
    """What a month of one option costs, and what stands behind it."""

    option: Option
    lines: Mapping[str, float]  # USD a month, line by line
    hit_ratio: float  # share of the tiles made whose dataset is in the cache
    edge_hit_ratio: float  # share of the tiles that the CDN holds
    duration_s: float  # mean time in the service of a tile that is made
    busy: float  # tiles in the making at once, mean of the busiest hour
    n_instances: int  # always on; 0 where functions are billed
    store_gets: float  # requests to the store in a month

    @property
    def usd(self) -> float:
        """USD a month in all."""
        return math.fsum(self.lines.values())


def compare_options(assumptions: Assumptions, prices: Mapping[str, float]) -> dict[Option, Cost]:
    """Price a month of every option, the baseline first."""
    return {option: price_option(assumptions, prices, option=option) for option in OPTIONS}


def price_option(assumptions: Assumptions, prices: Mapping[str, float], *, option: Option) -> Cost:
    """Price a month of 30 days of one option; prices are USD in the units of `PRICE_UNITS`."""
    a, rate, edge = assumptions, assumptions.requests_per_s, 0.0
    if option == "cdn":  # its bytes are never short
        tiles = zipf(round(a.n_datasets) * round(a.tiles_per_dataset), a.zipf)
        edge = hit_ratio(tiles, rate, CacheModel(ttl_s=a.ttl_s, n_replicas=N_EDGES))
    made_per_s = rate * (1 - edge)
    hit, n_instances = _settle(a, option, made_per_s)
    duration_s = _duration_s(a, option, hit)
    requests, tiles_made = (SECONDS_PER_MONTH * per_second for per_second in (rate, made_per_s))
    store_gets = tiles_made * (a.tile_gets + (1 - hit) * a.open_gets)
    sent_gb = requests * a.tile_nbytes / BILLED_GB_NBYTES
    is_cdn, is_redis = option == "cdn", option == "redis"
    if a.billing == "instance":
        cpus, memory = prices["instance_vcpu_hour"], prices["instance_gb_hour"]
        hour = a.instance_vcpus * cpus + a.instance_gb * memory
        computing = {"computing": n_instances * HOURS_PER_MONTH * hour}
    else:
        computing = {
            "computing": tiles_made * duration_s * a.memory_gb * prices["invocation_gb_s"],
            "calls of functions": tiles_made / 1e6 * prices["invocations_1e6"],
        }
    lines = {
        **computing,
        "Redis": is_redis * count_redis_nodes(a) * HOURS_PER_MONTH * prices["redis_node_hour"],
        "NAT gateway": is_redis * HOURS_PER_MONTH * prices["nat_hour"],  # of its private network
        "data out": sent_gb * prices["cdn_gb" if is_cdn else "data_out_gb"],
        "CDN requests": is_cdn * requests / 1e4 * prices["cdn_requests_1e4"],
        "store requests": store_gets / 1e3 * prices["store_gets_1e3"],
    }
    busy = made_per_s * a.peak_ratio * duration_s  # by Little's law :cite:p:`little1961`
    return Cost(option, lines, hit, edge, duration_s, busy, n_instances, store_gets)


def count_redis_nodes(assumptions: Assumptions) -> int:
    """Count the nodes that hold all datasets and carry the busiest hour, one dataset a tile."""
    a = assumptions
    mb_per_s = a.requests_per_s * a.peak_ratio * a.metadata_nbytes / 1e6
    held_gb = a.n_datasets * a.metadata_nbytes / _GB
    return max(1, math.ceil(max(mb_per_s / REDIS_MB_PER_S, held_gb / REDIS_GB) - 1e-9))


def _duration_s(a: Assumptions, option: Option, hit: float) -> float:
    """Compute the mean time to make a tile; a miss looks in the cache first, and opens then."""
    return a.make_s + (a.fetch_s if option == "redis" else 0.0) + (1 - hit) * a.open_s


def _settle(a: Assumptions, option: Option, made_per_s: float) -> tuple[float, int]:
    """Find the hit ratio and the number of instances, which agree.

    Each process has a cache for itself, so that more of them hit less, and fewer hits take more
    of them. From no hit upwards the rounds climb to the first point where both agree.
    """
    is_instance = a.billing == "instance"
    datasets = zipf(round(a.n_datasets), a.zipf)
    memory_gb = a.instance_gb / a.instance_vcpus if is_instance else a.memory_gb
    room = max(0.0, memory_gb - a.service_gb) * _GB / a.metadata_nbytes
    usable = a.instance_vcpus * TARGET_UTILISATION
    hit, n_instances = 0.0, 0
    for _ in range(N_ROUNDS):
        before, n_processes = hit, max(1.0, made_per_s * _duration_s(a, option, hit))
        if is_instance:
            busy_cpus = made_per_s * a.peak_ratio * (a.make_cpu_s + (1 - hit) * a.open_cpu_s)
            n_instances = max(1, math.ceil(busy_cpus / usable - 1e-9))
            n_processes = n_instances * a.instance_vcpus
        if option in ("process", "cdn"):
            cache = CacheModel(room, a.ttl_s, LIFETIME_S, n_processes)
            hit = hit_ratio(datasets, made_per_s, cache)
        elif option == "redis":
            hit = hit_ratio(datasets, made_per_s, CacheModel(ttl_s=a.ttl_s))
        if abs(hit - before) < 1e-12:
            break
    return hit, n_instances


def list_levers(assumptions: Assumptions) -> dict[str, Assumptions]:
    """List the ways of billing that change a bill more than a cache does, by what readers call them.

    Instances, functions as large as the process needs, and functions of 10 GB, as in the published study.
    """
    a = assumptions
    needed_gb = a.service_gb + a.n_datasets * a.metadata_nbytes / _GB
    fitting = max(ONE_PROCESSOR_GB, math.ceil(10 * needed_gb - 1e-9) / 10)
    sizes = {fitting, 10.0, *([a.memory_gb] if a.billing == "function" else [])}
    machine = f"instances of {a.instance_vcpus:g} CPUs and {a.instance_gb:g} GB"
    options = {machine: a.model_copy(update={"billing": "instance"})}
    for gb in sorted(sizes):
        changes = {"billing": "function", "memory_gb": gb}
        options[f"functions of {gb:g} GB"] = a.model_copy(update=changes)
    return options


def find_break_even(
    assumptions: Assumptions, prices: Mapping[str, float], option: Option
) -> float | None:
    """Find the rate (tiles/s) from which on, to 10,000, an option saves what it is worth.

    None where it never does, and `LEAST_RATE` where it always does. Less than `LEAST_SAVING` of the bill of
    titiler's default is within the errors of any estimate.
    """

    def saves(rate: float) -> bool:
        at_rate = assumptions.model_copy(update={"requests_per_s": rate})
        usd, shipped = (
            price_option(at_rate, prices, option=priced).usd for priced in (option, OPTIONS[0])
        )
        return usd <= (1 - LEAST_SAVING) * shipped

    rates = [LEAST_RATE * 10 ** (step / 4) for step in range(25)]
    worth = [saves(rate) for rate in rates]
    last = max((k for k, is_worth in enumerate(worth) if not is_worth), default=-1)
    if last in (-1, len(rates) - 1):
        return LEAST_RATE if last < 0 else None
    low, high = rates[last], rates[last + 1]
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if saves(middle) else (middle, high)
    return high


N_SINGLE = 200  # ranks that stand alone; further ones are grouped
GROUP_GROWTH = 1.05  # ratio of the bounds of a group of ranks
N_BISECTIONS = 60


@dataclass(frozen=True, slots=True)
class CacheModel:
    """A cache, or several alike that share the requests evenly and know nothing of one another."""

    n_items: float = math.inf  # that each has room for
    ttl_s: float = math.inf  # seconds from being stored to being stale
    lifetime_s: float = math.inf  # mean seconds that a process lives
    n_replicas: float = 1.0  # caches that share the requests


@lru_cache(maxsize=32)
def zipf(n_items: int, exponent: float) -> tuple[Floats, Floats]:
    """Spread requests so that rank r is requested in proportion to r to the power -exponent.

    Ranks above the first 200 are grouped, and a group's weight is the integral over it, so that
    ten billion tiles are a few hundred groups: the items in each, and the share of one of them.

    Examples
    --------
    Two items of weights 1 and 1/2:

    >>> zipf(2, 1.0)[1].round(4).tolist()
    [0.6667, 0.3333]
    """
    bounds = [*range(1, min(n_items, N_SINGLE) + 2)]
    while bounds[-1] <= n_items:
        bounds.append(min(math.floor(bounds[-1] * GROUP_GROWTH), n_items + 1))
    edges = np.array(bounds, float)
    counts = np.diff(edges)
    if abs(1 - exponent) < 1e-9:
        integrals = np.diff(np.log(edges - 0.5))
    else:
        integrals = np.diff((edges - 0.5) ** (1 - exponent)) / (1 - exponent)
    weights = np.where(counts == 1, edges[:-1] ** -exponent, integrals / counts)
    return counts, weights / (counts @ weights)


def hit_ratio(popularity: tuple[Floats, Floats], requests_per_s: float, cache: CacheModel) -> float:
    """Predict the share of the requests, those to all replicas together, that find their item."""
    counts, shares = popularity
    rates = shares * requests_per_s / cache.n_replicas
    kept_s = cache.ttl_s
    if cache.lifetime_s < math.inf:  # mean of the shorter of both
        kept_s = cache.lifetime_s * -math.expm1(-cache.ttl_s / cache.lifetime_s)
    probabilities = (
        np.ones_like(rates) if kept_s == math.inf else rates * kept_s / (1 + rates * kept_s)
    )
    if counts @ probabilities > cache.n_items:
        probabilities = _evict(counts, rates, probabilities, cache.n_items)
    return float(counts @ (shares * probabilities))


def _evict(counts: Floats, rates: Floats, probabilities: Floats, n_items: float) -> Floats:
    """Bound what is kept by the characteristic time at which it fills the cache."""

    def hold(log_s: float) -> Floats:
        return np.minimum(probabilities, -np.expm1(-rates * math.exp(log_s)))

    low, high = -math.log(rates.max()) - 60, -math.log(rates.min()) + 60
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if counts @ hold(middle) > n_items else (middle, high)
    return hold(low)
