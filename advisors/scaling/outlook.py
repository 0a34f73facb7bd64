"""A read planned on clusters of several sizes: hours, dollars, tails and what limits it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from advisors.costs.prices import get_prices
from advisors.scaling.cluster import MOST_TRIES, Cluster, Simulated, simulate_cluster
from advisors.scaling.latency import Tail
from advisors.scaling.scheduler import read_costs
from helpers.errors import UserError, show
from helpers.models.transfer import Client
from helpers.netem.profiles import RATES, FirstByte, Profile, check_number, get_profile

DECODE_S_PER_MB = 0.004
"""Processor seconds to decode a megabyte as stored, where nothing else is said: an assumption."""
MEMORY_GB_PER_CORE = 4.0
"""Memory that is paid for with each core, as of a general-purpose instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An array to read, the network and the store, and what a worker is."""

    profile: Profile
    n_chunks: int
    chunk_nbytes: float  # as stored
    chunks_per_task: int = 1
    slots: int = 2  # chunks that a worker has in the making at once
    cores: float = 2.0  # of a worker
    decode_s: float  # processor seconds of a chunk
    task_s: float  # of the scheduler, for a task
    graph_s: float  # of submission, for a task
    hedge_after_s: float = math.inf
    tail: Tail = field(default_factory=Tail)
    leaves_region: bool = False  # whether the bytes are paid for as data out

    def simulate(self, n_workers: int, *, seed: int = 0, n_waves: int = 50) -> Simulated:
        """Simulate the read on one size of cluster."""
        client = Client(
            self.chunk_nbytes,
            connections_per_worker=self.slots,
            cpu_s_per_chunk=self.decode_s,
            task_s=self.task_s,
            chunks_per_task=self.chunks_per_task,
        )
        cluster = Cluster(
            n_workers,
            cores_per_worker=self.cores,
            graph_s=self.graph_s,
            hedge_after_s=self.hedge_after_s,
            tail=self.tail,
        )
        given = {"seed": seed, "n_waves": n_waves}
        return simulate_cluster(self.profile, client, cluster, self.n_chunks, **given)

    def price(self, found: Simulated, prices: Mapping[str, float]) -> dict[str, float]:
        """Price a simulated read in USD: instances while it lasts, requests, and data out."""
        core_hours = found.n_workers * self.cores * found.seconds / 3600
        of_core = prices["instance_vcpu_hour"] + MEMORY_GB_PER_CORE * prices["instance_gb_hour"]
        return {
            "workers": core_hours * of_core,
            "requests": found.n_requests / 1e3 * prices["store_gets_1e3"],
            "data out": self.leaves_region * found.nbytes / 1e9 * prices["data_out_gb"],
        }


def make_plan(
    profile: str = "in-region",
    *,
    n_chunks: int = 1_000_000,
    chunk_mb: float = 100.0,
    decode_ms: float | None = None,
    task_ms: float | None = None,
    graph_ms: float | None = None,
    changes: Mapping[str, float] | None = None,
    **given: Any,
) -> Plan:
    """Make a plan in the units of the command line; what is not given was measured or is assumed.

    Milliseconds are those of a core for a chunk, and of the scheduler for a task, while it runs
    and before the first one does. `changes` are figures of the profile that are others: its rates,
    and `median_ms` and `p95_ms` of the first byte; a rate of 0 limits nothing. The rest are
    fields of `Plan`.

    Examples
    --------
    >>> make_plan(changes={"aggregate_mb_per_s": 0}, task_ms=1, graph_ms=0).profile.aggregate_mb_per_s
    """
    for name, value in (("chunk_mb", chunk_mb), ("decode_ms", decode_ms), ("task_ms", task_ms), ("graph_ms", graph_ms)):  # fmt: skip
        least = 0 if name != "chunk_mb" else 1e-9
        if value is not None and not least <= value < math.inf:
            raise UserError(f"{name}: {show(value)}; allowed: {'above' if least else 'at least'} 0")
    costs = None if task_ms is not None and graph_ms is not None else read_costs()
    return Plan(
        profile=_change(get_profile(profile), changes or {}),
        n_chunks=n_chunks,
        chunk_nbytes=1e6 * chunk_mb,
        decode_s=DECODE_S_PER_MB * chunk_mb if decode_ms is None else decode_ms / 1e3,
        task_s=costs.task_s if task_ms is None and costs else (task_ms or 0.0) / 1e3,
        graph_s=costs.graph_s if graph_ms is None and costs else (graph_ms or 0.0) / 1e3,
        **given,
    )


def _change(profile: Profile, changes: Mapping[str, float]) -> Profile:
    """Put other figures into a profile; a rate of 0 limits nothing."""
    allowed = (*RATES, "median_ms", "p95_ms")
    for name, value in changes.items():
        if name not in allowed:
            raise UserError(f"--set {name}={value:g}; allowed: {', '.join(allowed)}")
        check_number(name, value)
    rates: dict[str, Any] = {name: changes[name] or None for name in RATES if name in changes}
    profile = replace(profile, **rates)
    first = profile.first_byte_s
    if {"median_ms", "p95_ms"} & {*changes}:
        if first is None and len({"median_ms", "p95_ms"} & {*changes}) < 2:
            raise UserError(f"--set: median_ms or p95_ms alone; allowed: both, for {profile.name}")
        median_s = (
            changes["median_ms"] / 1e3 if "median_ms" in changes or not first else first.median_s
        )
        p95_s = changes["p95_ms"] / 1e3 if "p95_ms" in changes or not first else first.p95_s
        profile = replace(profile, first_byte_s=FirstByte(median_s, p95_s))
    return profile


def read_sizes(text: str) -> list[int]:
    """Read numbers of workers, as in ``1,10,100``.

    Examples
    --------
    >>> read_sizes("1, 10,10000")
    [1, 10, 10000]
    """
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or not all(1 <= size <= 100_000 for size in sizes):
        raise UserError(
            f"--workers {show(text)}; allowed: whole numbers from 1 to 100000, as in 1,10,100"
        )
    return sizes


def describe(plan: Plan, sizes: Sequence[int], *, seed: int = 0) -> dict[str, Any]:
    """Simulate a plan on clusters of several sizes, and gather all that is found."""
    prices = get_prices()
    rows = []
    for found in (plan.simulate(n, seed=seed) for n in sizes):
        usd = plan.price(found, prices)
        p50, p95, p99 = (1e3 * each for each in found.chunk_s)
        rows.append(
            asdict(found)
            | {
                "mb_per_s": found.nbytes / found.seconds / 1e6,
                "chunk_ms": {"p50": p50, "p95": p95, "p99": p99},
                "limit": found.limit,
                "usd": {**usd, "total": math.fsum(usd.values())},
            }
        )
        del rows[-1]["chunk_s"]
    given = {
        "profile": plan.profile.name,
        "n_chunks": plan.n_chunks,
        "chunk_mb": plan.chunk_nbytes / 1e6,
        "chunks_per_task": plan.chunks_per_task,
        "slots": plan.slots,
        "cores": plan.cores,
        "decode_ms": 1e3 * plan.decode_s,
        "task_ms": 1e3 * plan.task_s,
        "graph_ms": 1e3 * plan.graph_s,
        "hedge_after_ms": 1e3 * plan.hedge_after_s if math.isfinite(plan.hedge_after_s) else None,
        "tail": {"share": plan.tail.share, "alpha": plan.tail.alpha}
        if math.isfinite(plan.tail.alpha)
        else None,
    }
    return {"plan": given, "sizes": rows}


def render(found: Mapping[str, Any]) -> list[str]:
    """Write what was simulated as lines of text."""
    plan, rows = found["plan"], found["sizes"]
    total = plan["n_chunks"] * plan["chunk_mb"] / 1e6
    lines = [
        f"{plan['n_chunks']:,} chunks of {plan['chunk_mb']:g} MB, {total:.3g} TB as stored, over {plan['profile']};"
        f" a task takes the scheduler {plan['task_ms']:.2g} ms and {plan['graph_ms']:.2g} ms before",
        "",
        f"{'workers':>8} {'time':>9} {'MB/s':>9} {'chunk p50':>10} {'p95':>7} {'p99 (ms)':>9} {'USD':>9}  limited by",
    ]
    for row in rows:
        chunk, shares = row["chunk_ms"], row["shares"]
        lines.append(
            f"{row['n_workers']:8,} {tell_time(row['seconds']):>9} {row['mb_per_s']:9,.0f} {chunk['p50']:10,.0f}"
            f" {chunk['p95']:7,.0f} {chunk['p99']:9,.0f} {row['usd']['total']:9,.2f}"
            f"  {row['limit']}, {100 * shares[row['limit']]:.0f} % of slot time"
        )
    for row in rows:
        if row["n_given_up"] >= 1:
            lines.append(
                f"{row['n_workers']:,} workers: {row['n_given_up']:,.0f} chunks are refused more than"
                f" {MOST_TRIES} times; a client ends the read then"
            )
    last = rows[-1]
    if last["n_hedges"]:
        lines.append(f"hedges: {100 * last['n_hedges'] / last['n_chunks']:.2g} % more requests at {last['n_workers']:,} workers")  # fmt: skip
    return [*lines, "", "simulated, not measured; prices: current list, instances and requests"]


def tell_time(seconds: float) -> str:
    """Write a time in its own unit.

    Examples
    --------
    >>> tell_time(5400), tell_time(12.34), tell_time(1e6)
    ('1.5 h', '12.3 s', '11.6 d')
    """
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= (1.5 if unit != "d" else 2) * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"
