"""One answer: choices of format, chunks, client and cache, the best first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from advisors.decide.choices import Choice, find_prices, list_plans, price_plan, tell_usd
from advisors.decide.question import Question
from advisors.decide.services import list_services, tell_service
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
