"""What cases will take in time, and ask of a store of one's own at what price: said before they run, and bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from helpers.book.cases import (
    Case,
    duration_s,
    find_cases,
    is_done,
    read_metadata,
    read_parameters,
)
from helpers.book.studies import Expected, find_study, write_table
from helpers.errors import UserError


def check_expected(
    cases: Sequence[Case],
    say: Callable[[str], None],
    *,
    max_usd: float | None = None,
    in_region: bool = False,
    again: bool = False,
    quick: bool = False,
    budget_s: float = 0.0,
) -> float:
    """Say what each case will ask of a store that is billed; refuse more USD in all than `max_usd`.

    Cases that are done or that will be refused ask for nothing, and those that bring a store
    of their own or read from a file system are not billed.

    Returns
    -------
    float
        The sum that was compared, in USD.

    Raises
    ------
    UserError
        If the sum is above `max_usd`, or if there is such a bound and nobody knows the sum.
    """
    if max_usd is not None and not max_usd >= 0:
        raise UserError(f"--max-usd: {max_usd:g}; allowed: from 0 on")
    usd = 0.0
    for case in cases:
        values = _read_billed(case, budget_s, again=again)
        if values:
            values |= {"n_blocks": 1} if quick else {}
            found = _expect(case, values)
            say(f"{case.title} {_tell(found, values)}")
            if found is None and max_usd is not None:
                raise UserError(
                    f"--max-usd: {max_usd:g}; nobody has measured what {case.title} asks of a store;"
                    " allowed: without it"
                )
            usd += (found.usd_in_region if in_region else found.usd_outside) if found else 0.0
    if max_usd is not None and usd > max_usd:
        where, other = ("in", "") if in_region else ("outside", ", or --in-region if workers are")
        raise UserError(
            f"--max-usd: {max_usd:g}; {usd:.2f} USD are expected {where} the region of the store;"
            f" allowed: at least that{other}"
        )
    return usd


def _read_billed(case: Case, budget_s: float, *, again: bool) -> dict[str, Any]:
    """Read all parameters of a case that will run on a store that is billed; else nothing."""
    try:
        given = read_parameters(case, budget_s)
    except UserError:  # it is told when its turn comes
        return {}
    values = find_study(case.notebook).parameters.check(given, case.title)
    is_free = values["store"] == "embedded" or values["store"].startswith("file:")
    return {} if is_free or (is_done(case, given) and not again) else values


def _expect(case: Case, values: Mapping[str, Any]) -> Expected | None:
    expect = find_study(case.notebook).expect
    return expect(values) if expect else None


def _tell(found: Expected | None, values: Mapping[str, Any]) -> str:
    until = f"within about {values['time_budget_s'] / 60:.0f} minutes"
    if found is None:
        return f"asks {values['store']} for what nobody has measured, {until}"
    return (
        f"asks {values['store']} for up to {found.n_requests:,.0f} requests and {found.gb:,.1f} GB {until}:"
        f" {found.usd_in_region:.2f} USD in the region of the store, {found.usd_outside:.2f} outside"
        f" ({found.prices})"
    )


AROUND_S = 15.0
"""Of a case outside its time budget: kernel, imports, figures."""

QUICK_S = 15 * 60.0
"""A first look is over by then."""

_BLOCKS_OF_A_LOOK = 3  # to calibrate and to warm up take about a block each
_BETWEEN_S = 10.0  # from a read to the next: after longer the record was continued by another run


def expect_s(case: Case, say: Callable[[str], None], budget_s: float = 0.0) -> float:
    """Expect what a case took here before, at least its time budget and what surrounds it; 0 if unknown.

    A reference had a budget of its own, so what it took is asked only where a case has none. What
    will be refused is said here, before an hour of measuring.
    """
    values = _read_or_tell(case, say, budget_s)
    if not values:
        return 0.0
    if "time_budget_s" not in values:
        return duration_s(case) or duration_s(case, "reference")
    return max(duration_s(case), _plan_s(case, values))


def _plan_s(case: Case, values: Mapping[str, Any]) -> float:
    """Plan a case by its time budget, or by what its first block takes, whatever the budget says."""
    return max(float(values["time_budget_s"]) + AROUND_S, read_look_s(case))


def expect_look_s(case: Case, say: Callable[[str], None], budget_s: float = 0.0) -> float:
    """Expect what one block of a case takes, with all before and after it; 0 for what is done or refused.

    The reference tells what it took there; without one, it is a part of the time budget.
    """
    values = _read_or_tell(case, say, budget_s)
    if not values or is_done(case, values) or is_done(case, values | {"n_blocks": 1}):
        return 0.0
    block_s = float(values.get("time_budget_s", 0.0)) / values.get("n_blocks", 1)
    return read_look_s(case) or AROUND_S + _BLOCKS_OF_A_LOOK * block_s


def _read_or_tell(case: Case, say: Callable[[str], None], budget_s: float) -> dict[str, Any]:
    try:
        return read_parameters(case, budget_s)
    except UserError as error:
        say(f"{case.title} will not run: {error}")
        return {}


def read_look_s(case: Case) -> float:
    """Read from the reference what its first block took, and all before and around it; 0 without one.

    Around it is what the executed page took beyond the reads that it made itself: a page that was
    set anew from its rows made none.
    """
    record = case.result(".csv", "reference")
    if not record.exists():
        return 0.0
    names = {"phase", "block", "started_utc", "open_s", "read_s", "dilation"}
    rows = pd.read_csv(record, usecols=lambda name: name in names)
    started = pd.to_datetime(rows["started_utc"], utc=True)
    rows = rows.assign(started=started).sort_values("started", ignore_index=True)
    own_s = (rows["open_s"].fillna(0) + rows["read_s"]) * rows.get("dilation", 1)
    until_next_s = -rows["started"].diff(-1).dt.total_seconds()
    took_s = until_next_s.where(until_next_s < own_s + _BETWEEN_S, own_s)
    is_warm_up, is_measured = rows["phase"] == "warm-up", rows["phase"] == "measured"
    # a case may measure more than once, a load and then a sweep of loads
    is_later = ~is_warm_up & (rows["block"] > rows["block"].where(~is_warm_up).min())
    is_later |= is_warm_up & (is_later & is_measured).cummax()  # of a run that went on
    page = read_metadata(case.result(".ipynb", "reference"))["papermill"]
    is_of_page = rows["started"].between(page["start_time"], page["end_time"])
    return float(took_s[~is_later].sum() + page["duration"] - took_s[is_of_page].sum())


def order_looks(expected: Mapping[Case, float]) -> list[Case]:
    """Put the shortest case of each study before all others, and these in the order of their seconds.

    Examples
    --------
    >>> times = {Case("laptop", "a", "1"): 9.0, Case("laptop", "a", "2"): 5.0, Case("laptop", "b", "1"): 7.0}
    >>> [one.title for one in order_looks(times)]
    ['a/2', 'b/1', 'a/1']
    """
    shortest: dict[str, Case] = {}
    for case in sorted(expected, key=lambda one: expected[one]):
        shortest.setdefault(case.notebook, case)
    firsts = {*shortest.values()}
    return sorted(expected, key=lambda case: (case not in firsts, expected[case]))


def render_minutes(site: str = "laptop") -> str:
    """Write what runs are planned to take, by budgets and by first blocks of the reference, beside their targets."""
    from helpers.plotting.tables import digits  # which draws: runs need neither

    cases = find_cases(site)
    planned_s = [_plan_s(case, read_parameters(case)) for case in cases]
    looks = {case: seconds for case in cases if (seconds := read_look_s(case))}
    ordered = order_looks(looks)
    firsts = ordered[: len({case.notebook for case in ordered})]
    rows = (
        ("the longest case, measured", max(planned_s), 4),
        (f"all {len(cases)} cases, measured", sum(planned_s), 60),
        (
            f"a first look at {len(firsts)} studies, the shortest case of each",
            sum(map(looks.__getitem__, firsts)),
            15,
        ),
        (f"a first look at all {len(looks)} cases that have a reference", sum(looks.values()), 15),
    )
    lines = [
        (what, digits(seconds / 60), most, "met" if seconds <= 60 * most else "missed")
        for what, seconds, most in rows
    ]
    return write_table(["run", "minutes", "target", "verdict"], lines)
