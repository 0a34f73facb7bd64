"""The order of choices: a front of seconds against dollars, its knee, and what is recommended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from advisors.chunks.question import Question
from advisors.chunks.search import WORTH
from advisors.decide.choices import Choice

_LEAST_USD = 1.0  # a month, below which nobody weighs it
# the less is changed, the earlier
_ORDER = ("stay", "default", "set", "write", "rechunk", "copy")


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
    are least, where a bill below a dollar counts as one. Of choices within `WORTH` of that the one
    that changes least is taken. A budget only takes choices away, so it never raises a bill.
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
    best = _recommend(marked, key)
    if best.is_over_budget:
        best = _recommend([one for one in marked if not one.is_over_budget] or marked[:1], key)
    now = next(one for one in marked if one.action in ("stay", "default"))
    return Answer(question, best, now, tuple(marked))


def _recommend(pool: Sequence[Choice], key: Callable[[Choice], float]) -> Choice:
    """Take the least, or of those about as good and as fast what changes least."""
    best = min(pool, key=key)
    near = [
        one for one in pool if key(one) <= WORTH * key(best) and one.seconds <= WORTH * best.seconds
    ]
    return min(near, key=lambda one: (_ORDER.index(one.action), key(one)))


def _weigh(choice: Choice) -> float:
    """Multiply seconds by dollars."""
    return choice.seconds * max(choice.bill, _LEAST_USD)


def _pay(choice: Choice) -> float:
    """Add up the bill and the price of waiting."""
    return choice.usd
