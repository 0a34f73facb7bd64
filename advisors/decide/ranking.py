"""One answer: choices of format, chunks, client and cache, the best first.

Of a tile service, each place where a cache can be is a choice, priced by the cost advisor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from advisors.costs.assumptions import Assumptions, Option, change
from advisors.costs.bill import SECONDS_PER_MONTH, Cost, compare_options
from advisors.costs.calculator import NAMES, tell_billing
from advisors.costs.prices import get_prices
from advisors.decide import snippets
from advisors.decide.choices import Choice, find_prices, list_plans, price_plan, tell_usd
from advisors.decide.evidence import Measured, load
from advisors.decide.forecasts import Forecast
from advisors.decide.question import Question
from advisors.decide.support import Support
from helpers.errors import UserError

WORTH = 1.1  # times as fast, below which a second copy is not told of


@dataclass(frozen=True, slots=True)
class Answer:
    """Choices, best first, and what all of them assume."""

    question: Question
    choices: tuple[Choice, ...]
    notes: tuple[str, ...]

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        told = [
            {**asdict(one), "n_copies": one.n_copies, "usd_month": one.usd_month}
            for one in self.choices
        ]
        question = self.question.model_dump()
        return {"question": question, "choices": told, "notes": list(self.notes)}


def decide(question: Question) -> Answer:
    """Rank what could be stored and how it is read.

    Chunk and shard shapes, and whether a second copy pays, come from the search of
    `advisors.chunks`; clients from the records; blocks of HDF5 files from `advisors.hdf5`;
    caches of a tile service and all prices from `advisors.costs`. The fastest stands first,
    choices above the budget last. A second copy stands before one only where it costs less
    a month, or fits a budget that is given. Choices of a tile service are ranked by cost.

    Raises
    ------
    UserError
        If no chunk shape fits the bounds, or no way to read the format is known.

    Examples
    --------
    >>> answer = decide(Question.ask(shape="8760,200,200", access="series:0.8,map:0.2"))
    >>> answer.choices[0].format, len(answer.choices[0].chunk_shapes[0])
    ('zarr', 3)
    """
    prices, notes = find_prices(question)
    plans = list(list_plans(question, prices))
    if not plans:
        raise UserError(
            f"reader: {question.reader!r}; allowed: one that opens what may be stored, or more memory"
        )
    choices = rank(question, [price_plan(question, plan, prices) for plan in plans])
    if question.requests_per_s is None:
        return Answer(question, tuple(choices), (*notes, *_tell_copies(choices)))
    return Answer(
        question, tuple(rank(question, list_services(question, choices[0]))), tell_service(question)
    )


def _tell_copies(choices: Sequence[Choice]) -> Iterator[str]:
    """Say what a second copy would bring, where one copy stands first and it would bring much."""
    best = choices[0]
    for other in choices:
        if other.n_copies > best.n_copies and other.seconds < best.seconds / WORTH:
            more = tell_usd(other.usd_month - best.usd_month)
            yield (
                f"Two copies would read {best.seconds / other.seconds:.2g} times as fast for {more}"
                " more a month; they stand first where a budget that they fit is given."
            )


def rank(question: Question, choices: Sequence[Choice]) -> list[Choice]:
    """Put the fastest first, and what costs too much last; choices with a cache by their cost."""
    budget = question.budget_usd_month
    told = [
        replace(one, is_over_budget=budget is not None and one.usd_month > budget)
        for one in choices
    ]
    if any(one.cache for one in told):
        return sorted(told, key=lambda one: (one.is_over_budget, one.usd_month))
    least = min((one.usd_month for one in told if one.n_copies == 1), default=math.inf)

    def key(one: Choice) -> tuple[bool, bool, float]:
        never_pays = budget is None and one.n_copies > 1 and one.usd_month > least
        return one.is_over_budget, never_pays, one.seconds

    return sorted(told, key=key)


_MEASURED: Mapping[Option, str] = {
    "none": "none-v3",
    "disk": "diskcache",
    "shared": "filecache-v3",
    "redis": "redis",
    "cdn": "none-v3",  # what the CDN does not hold is made without a cache
    "process": "lru",
    "cdn-process": "lru",
}
"""The contender of the records that stands for each place of a cache."""


def assume(question: Question, base: Choice) -> Assumptions:
    """Put the question, and what a tile reads of the chosen chunks, in the place of defaults."""
    given: dict[str, Any] = {
        "requests_per_s": question.requests_per_s,
        "n_datasets": question.datasets,
        "ttl_s": question.change_every_s,
        "cdn_ttl_s": question.change_every_s,
        "tile_gets": sum(one.share * one.n_requests for one in base.forecasts),
        "tile_read_nbytes": sum(one.share * one.nbytes for one in base.forecasts),
        "billing": "instance",
        "instance_vcpus": question.cores,
        "instance_gb": question.memory_gb,
    }
    return change(Assumptions(), {name: v for name, v in given.items() if v is not None})


def list_services(question: Question, base: Choice) -> list[Choice]:
    """Price a month of every place of a cache, with what its tiles took where it was measured."""
    assumptions = assume(question, base)
    costs = compare_options(assumptions, get_prices())
    return [_make(question, base, assumptions, cost) for cost in costs.values()]


def _make(question: Question, base: Choice, assumptions: Assumptions, cost: Cost) -> Choice:
    ttl_s = assumptions.cdn_ttl_s if cost.option.startswith("cdn") else assumptions.ttl_s
    keeping = snippets.keep_open(cost.option, ttl_s, round(assumptions.n_datasets))
    writing = base.code.partition("\n\nimport xarray")[0]
    row = find_measured(cost.option)
    return replace(
        base,
        label=f"{base.label}, {NAMES[cost.option]}",
        cache=NAMES[cost.option],
        n_workers=cost.n_instances,
        forecasts=(_forecast(assumptions, cost, row),),
        usd={"storage": base.usd["storage"], **{k: usd for k, usd in cost.lines.items() if usd}},
        support=_support(question, cost.option, row),
        code=f"{writing}\n\n{keeping}" if base.format == "zarr" else base.code,
        limits=(
            f"Tiles take what they took where they were measured; the bill is {tell_billing(assumptions)},"
            f" with {assumptions.make_cpu_s:g} s of a processor assumed to make one and"
            f" {assumptions.open_cpu_s:g} s to open a dataset."
        ),
    )


def find_measured(option: Option) -> Measured | None:
    """Find the tiles that were measured with a cache there, under the heaviest load that all caches met."""
    tiles = [row for row in load().rows if row.is_tile and "n_workers" not in row.point]
    rows = [row for row in tiles if row.contender == _MEASURED[option]]
    return max(rows, key=lambda row: float(row.point["n_users"]), default=None)


def _forecast(assumptions: Assumptions, cost: Cost, row: Measured | None) -> Forecast:
    """Tell what a tile took where it was measured, and what it asks of the store."""
    opening_s = (1 - cost.hit_ratio) * assumptions.open_s
    n_tiles = assumptions.requests_per_s * SECONDS_PER_MONTH
    return Forecast(
        "tile",
        1.0,
        row.p50_s if row else None,
        row.p95_s if row else None,
        cost.store_gets / n_tiles,
        (1 - cost.edge_hit_ratio) * assumptions.tile_read_nbytes,
        "opening datasets" if opening_s > assumptions.make_s else "making the tile",
    )


def _support(question: Question, option: Option, row: Measured | None) -> Support:
    """Say what was measured of a place of a cache."""
    if row is None:
        return Support("", "uncertain", "", f"{NAMES[option]} is in no record of this book.")
    why = f"A tile took so long with {row.point['n_users']} users at once over {row.profile}."
    if option.startswith("cdn"):
        why += " That is one that the CDN does not hold; the CDN itself was not measured."
    is_same = row.profile == question.store and not option.startswith("cdn")
    return Support(row.contender, "measured" if is_same else "near", row.case, why)


def tell_service(question: Question) -> tuple[str, ...]:
    """Say what all choices of a service assume."""
    n_tiles = (question.requests_per_s or 0.0) * SECONDS_PER_MONTH
    return (
        f"A month has {round(n_tiles):,} tiles, made by instances of {question.cores} processors and"
        f" {question.memory_gb:g} GB that are always on, priced as in the cost calculator.",
    )
