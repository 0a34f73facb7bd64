"""What cases will ask of a store of one's own, and what that costs: said before they run, and bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helpers.book.cases import Case, is_done, read_parameters
from helpers.book.studies import Expected, find_study
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
