"""The order of choices: a front of seconds against dollars, its knee, and what is recommended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from advisors.chunks.question import Question
from advisors.chunks.search import WORTH
from advisors.decide.choices import Choice

_LEAST_USD = 1.0  # a month, below which nobody weighs it
_ORDER = ("stay", "set", "rechunk", "copy")  # the less is changed, the earlier


@dataclass(frozen=True, slots=True)
class Answer:
    """The choice that is recommended, and what it stands beside."""

    question: Question
    best: Choice
    now: Choice  # what is there, or what a client does by default
    choices: tuple[Choice, ...]  # cheapest first

    def gain(self, choice: Choice) -> float:
        """Compute how many times as fast as what is there a choice is."""
        return self.now.seconds / choice.seconds


def rank(question: Question, choices: Sequence[Choice]) -> Answer:
    """Recommend the knee of the front, or what costs least where waiting has a price.

    At the knee one percent more of a bill stops buying one percent of time: seconds times dollars
    are least, where a bill below a dollar counts as one. What changes less is preferred where it is within `WORTH` of that, and choices
    above a budget are left out, so that a budget never raises a bill.
    """
    ordered = sorted(choices, key=lambda one: (one.bill, one.seconds))
    least, marked = float("inf"), []
    knee = min(ordered, key=_weigh)
    for one in ordered:
        budget = question.budget_usd_month
        marked.append(
            replace(
                one,
                is_on_front=one.seconds < least,
                is_knee=one is knee,
                is_over_budget=budget is not None and one.bill > budget,
            )
        )
        least = min(least, one.seconds)
    key = _weigh if question.wait_usd_hour is None else _pay
    pool = [one for one in marked if not one.is_over_budget] or marked[:1]
    now = next(one for one in marked if one.action in ("stay", "default"))
    return Answer(
        question, _recommend(pool, key, has_data=now.action == "stay"), now, tuple(marked)
    )


def _recommend(pool: Sequence[Choice], key: Callable[[Choice], float], *, has_data: bool) -> Choice:
    """Take the least; of data that are there, what changes least of those about as good."""
    best = min(pool, key=key)
    if not has_data:
        return best
    near = [one for one in pool if key(one) <= WORTH * key(best)]
    return min(near, key=lambda one: (_ORDER.index(one.action), key(one)))


def _weigh(choice: Choice) -> float:
    """Multiply seconds by dollars."""
    return choice.seconds * max(choice.bill, _LEAST_USD)


def _pay(choice: Choice) -> float:
    """Add up the bill and the price of waiting."""
    return choice.usd
