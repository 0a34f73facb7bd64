"""A petabyte on clusters of growing size, and slow first bytes: what the page on scaling out says.

What is simulated is kept, for a book is built more often than a model changes: `wire simulate
--derive` does it anew, in a minute, and tests hold the two together.
"""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from advisors.costs.prices import find_price, get_prices
from advisors.scaling.cluster import Simulated
from advisors.scaling.latency import Tail, fit_tail
from advisors.scaling.outlook import MEMORY_GB_PER_CORE, Plan, make_plan, tell_time
from advisors.scaling.validation import KEPT, PUBLISHED, check_curve, list_curves, read_kept
from helpers.paths import ROOT

SIZES = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
_N_WAVES = 8  # enough for a steady rate
_PETABYTE_CHUNKS = 10_000_000
_NEAR = 0.9  # of the most throughput: from there on more workers bring nothing

# Of the reads for the tails: chunks so small that the first byte is most of their time.
_TAIL_WORKERS, _TAIL_CHUNK_MB, _TAIL_WAVES = 500, 1.0, 10
_HEDGES_MS = (None, 500, 200, 100, 60)
_SLOW_P95_MS = 200.0  # the upper end of what the user guide of S3 says of a first byte


@dataclass(frozen=True, slots=True)
class Read:
    """A read to simulate."""

    plan: Plan
    n_workers: int
    n_waves: int

    def simulate(self) -> Simulated:
        """Simulate it, event by event."""
        return self.plan.simulate(self.n_workers, n_waves=self.n_waves)


@cache
def list_reads() -> Mapping[str, Sequence[Read]]:
    """List what the page simulates: sizes of cluster by plan, and whiles to a hedge by tail."""
    plans, tails = _plan_petabyte(), _plan_tails()
    return {
        label: [Read(plan, n, _N_WAVES) for n in SIZES] for label, plan in plans.items()
    } | {
        label: [Read(_hedge(plan, ms), _TAIL_WORKERS, _TAIL_WAVES) for ms in _HEDGES_MS]
        for label, plan in tails.items()
    }  # fmt: skip


def derive(path: Path = KEPT) -> int:
    """Simulate all reads anew, those of published curves too, and keep them; return how many."""
    found = {
        label: [asdict(read.simulate()) for read in reads] for label, reads in list_reads().items()
    }
    curves = list_curves().items()
    found[PUBLISHED] = [asdict(one) for curve in curves for one in check_curve(*curve)]
    lines = ",\n".join(
        f"{json.dumps(label)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]"
        for label, rows in found.items()
    )
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return sum(map(len, found.values()))


@cache
def read_simulated() -> Mapping[str, Sequence[Simulated]]:
    """Read the simulated reads that are kept."""
    return {
        label: [Simulated(**row | {"chunk_s": tuple(row["chunk_s"])}) for row in rows]
        for label, rows in read_kept().items()
        if label != PUBLISHED
    }


@dataclass(frozen=True, slots=True)
class Outlook:
    """A plan on clusters of `SIZES`."""

    label: str
    found: Sequence[Simulated]
    usd: Sequence[float]

    @property
    def saturation(self) -> Simulated:
        """The smallest cluster that comes near the most throughput."""
        fastest = min(each.seconds for each in self.found)
        return next(each for each in self.found if each.seconds <= fastest / _NEAR)

    @property
    def cheapest(self) -> int:
        """Where in `found` the price is lowest."""
        return min(range(len(self.usd)), key=self.usd.__getitem__)


def _plan_petabyte() -> dict[str, Plan]:
    """Plan to read a petabyte in chunks of 100 MB, in three ways."""
    shared = make_plan(n_chunks=_PETABYTE_CHUNKS)
    wide = replace(shared, profile=replace(shared.profile, aggregate_mb_per_s=None))
    return {
        f"link of {shared.profile.aggregate_mb_per_s or 0:,.0f} MB/s": shared,
        "no shared link": wide,
        "and 10 chunks a task": replace(wide, chunks_per_task=10),
    }


def find_outlooks() -> list[Outlook]:
    """Look at a petabyte under each plan, priced at today's list."""
    prices, found = get_prices(), read_simulated()
    return [
        Outlook(label, found[label], [math.fsum(plan.price(f, prices).values()) for f in found[label]])
        for label, plan in _plan_petabyte().items()
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hedged:
    """What hedging after a while does to the chunks of one read."""

    hedge_ms: float | None
    extra: float  # requests more, over those without hedges
    p50_ms: float
    p99_ms: float
    seconds: float


@cache
def fit_published_tail() -> Tail:
    """Fit the stragglers of published tile times: each over the median of its data set and zoom."""
    times: dict[tuple[str, ...], list[float]] = defaultdict(list)
    path = ROOT / "results" / "published" / "tile_generation_times.csv"
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            kind = [
                row[name]
                for name in ("experiment", "data_format", "dataset", "set_gdal_vars", "zoom")
            ]
            times[tuple(kind)].append(float(row["time_ms"]))
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    return fit_tail([one / medians[kind] for kind, values in times.items() for one in values])


TAILS = ("as the profile has it", "95 % within 200 ms", "fitted stragglers")


def _plan_tails() -> dict[str, Plan]:
    """Plan to read small chunks under three tails of the first byte."""
    plan = make_plan(
        n_chunks=2 * _TAIL_WORKERS * _TAIL_WAVES,
        chunk_mb=_TAIL_CHUNK_MB,
        changes={"aggregate_mb_per_s": 0, "requests_per_s": 0},
        task_ms=0,
        graph_ms=0,
    )
    slow = make_plan(changes={"p95_ms": _SLOW_P95_MS}, task_ms=0, graph_ms=0).profile.first_byte_s
    slower = replace(plan, profile=replace(plan.profile, first_byte_s=slow))
    return dict(zip(TAILS, (plan, slower, replace(plan, tail=fit_published_tail())), strict=True))


def _hedge(plan: Plan, hedge_ms: float | None) -> Plan:
    return replace(plan, hedge_after_s=math.inf if hedge_ms is None else hedge_ms / 1e3)


def find_tails() -> dict[str, list[Hedged]]:
    """Say what hedging after several whiles does, under each tail."""
    return {
        label: [
            Hedged(ms, f.n_hedges / f.n_chunks, 1e3 * f.chunk_s[0], 1e3 * f.chunk_s[2], f.seconds)
            for ms, f in zip(_HEDGES_MS, read_simulated()[label], strict=True)
        ]
        for label in TAILS
    }


def render_petabyte() -> str:
    """Write for each plan where it saturates, and the petabyte as a table."""
    lines = []
    for one in find_outlooks():
        rows = zip(SIZES, one.found, one.usd, strict=True)
        lines += [f"{tell_saturation(one)}\n", "| workers | time | USD | limited by |"]
        lines += ["| ---: | ---: | ---: | --- |"]
        lines += [
            f"| {n:,} | {tell_time(f.seconds)} | {usd:,.0f} | {f.limit} |" for n, f, usd in rows
        ]
        lines += [""]
    vcpu, gb = find_price("instance_vcpu_hour"), find_price("instance_gb_hour")
    paid = (
        f"A core costs {vcpu.value} USD an hour ({vcpu.source}, {vcpu.date}) and each of its {MEMORY_GB_PER_CORE:g} GB"
        f" {gb.value}; a thousand requests {find_price('store_gets_1e3').value} USD."
    )
    return "\n".join([*lines, paid, ""])


def tell_saturation(outlook: Outlook) -> str:
    """Say from how many workers on a plan gains nothing, why, and what is cheapest."""
    reached, last = outlook.saturation, outlook.found[-1]
    gb_per_s = max(each.nbytes / each.seconds for each in outlook.found) / 1e9
    if reached is last:
        ends = f"still grows at {last.n_workers:,} workers, to {gb_per_s:,.0f} GB/s"
    else:
        ends = f"saturates at {gb_per_s:,.0f} GB/s with some {reached.n_workers:,} workers"
    i = outlook.cheapest
    return (
        f"**{outlook.label}** {ends}; at {last.n_workers:,} most of the time of the slots goes to: {last.limit}"
        f" ({100 * last.shares[last.limit]:.0f} %)."
        f" It is cheapest with {SIZES[i]:,}, at {outlook.usd[i]:,.0f} USD; {last.n_workers:,} take"
        f" {tell_time(last.seconds)} for {outlook.usd[-1]:,.0f} USD."
    )


def render_tails() -> str:
    """Write what hedging costs and gains as a table, and the tail that was fitted."""
    tail = fit_published_tail()
    lines = [
        "| first bytes | hedge after (ms) | requests more (%) | median (ms) | 99th percentile (ms) | time, of unhedged |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, points in find_tails().items():
        for point in points:
            after = "never" if point.hedge_ms is None else f"{point.hedge_ms:g}"
            ratio = point.seconds / points[0].seconds
            lines.append(
                f"| {name} | {after} | {100 * point.extra:.1f} | {point.p50_ms:.0f} | {point.p99_ms:.0f} | {ratio:.2f} |"
            )
    return "\n".join([
        *lines,
        "",
        f"Fitted stragglers: beyond the 95th percentile a power law with exponent {tail.alpha:.1f},"
        " from published times of making tiles out of an object store"
        " ({cite:t}`developmentseed2023`, each over the median of its data set and zoom)."
        " These are times of many requests and of decoding, so of a single first byte they say little more than the shape.",
        "",
    ])  # fmt: skip
