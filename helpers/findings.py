"""What a page found, as numbers: written by its notebook, printed in prose by name, guarded by claims."""

from __future__ import annotations

import csv
import math
from collections import UserDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from helpers.benchmark.statistics import Comparison, Interval
from helpers.plotting.tables import format_digits
from wire.errors import UserError, show

SUFFIX = ".findings.csv"
"""Of the file next to a record."""
NOISE, N_BLOCKS = "noise", "n-blocks"
"""Findings that every page has: the A/A ratio less 1 of what it judges, and its measured blocks."""
UNSTABLE_ABOVE = 0.08
"""Noise above which a finding is unstable: pages rank contenders that differ by a tenth."""
UNSTABLE_MARK = "\u2020"
"""Dagger that a number carries which is unstable."""
CLAIM = "claim"
"""Unit of a claim, whose value is 1 where it holds, 0 where it does not, and NaN where it is not decided."""
QUOTED = "What other pages quote"
"""Head of the table that ends a notebook."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A number that prose quotes, with its interval, or a name where `verdict` alone is given."""

    value: float = math.nan
    low: float = math.nan  # 95 % interval
    high: float = math.nan
    unit: str = ""  # as in MB/s; empty for a ratio
    n: int = 0  # blocks behind it; 0 where that is not what it rests on
    verdict: str = ""  # what is judged, as in faster, or a name
    noise: float = math.nan  # A/A ratio less 1 of this quantity; NaN where only the page's is known
    quantity: str = ""  # what over what, in which column; of a claim, the findings that it judges


@dataclass(frozen=True, slots=True)
class Claim:
    """What a sentence says of findings: whether it holds of these rows, and of which it speaks."""

    holds: bool | np.bool_
    of: str | tuple[str, ...] = ()  # keys of the findings that the claim judges

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, be there one or several."""
        return (self.of,) if isinstance(self.of, str) else self.of

    def is_decided(self, judged: Mapping[str, Finding]) -> bool:
        """Tell whether the findings that the claim judges can decide it.

        They cannot where one of them was not measured, or rests on one value, which has no interval.
        """
        return not any(
            finding.n == 1 and math.isnan(finding.low)
            if math.isfinite(finding.value)
            else not finding.verdict
            for finding in (judged[key] for key in self.keys)
        )


CONSTANTS = {"unstable-above": Finding(100 * UNSTABLE_ABOVE, unit="%")}
"""Numbers of the code that pages print by name, as they print what they found."""

FindingLike = Finding | Interval | Comparison | float


def as_finding(result: FindingLike) -> Finding:
    """Turn what statistics return into a finding, which knows its quantity and the noise of that."""
    if isinstance(result, Finding):
        return result
    if isinstance(result, Comparison):
        noise = result.noise - 1
        return replace(as_finding(result.ratio), verdict=result.verdict, noise=noise)
    if isinstance(result, Interval):
        ends, quantity = (result.centre, result.low, result.high), result.quantity
        return Finding(*ends, n=result.n, noise=result.noise - 1, quantity=quantity)
    return Finding(float(result))


class Findings(UserDict[str, Any]):
    """Findings of a page by the keys under which prose quotes them, checked as they are assigned."""

    def __setitem__(self, key: str, value: FindingLike) -> None:
        """Keep a finding; refuse what is no number, and keys that every page has."""
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not (is_number or isinstance(value, Finding | Interval | Comparison)):
            allowed = "a Finding, an Interval, a Comparison or a number"
            raise UserError(f"findings: {key}", show(value), allowed)
        if key in (NOISE, N_BLOCKS):
            raise UserError("findings", f"{key}, which every page has", "another key")
        super().__setitem__(key, value)

    def __ior__(self, results: Any) -> Self:  # type: ignore[override,misc]
        """Add other findings, each checked."""
        self.update(results)
        return self


class Claims(UserDict[str, Any]):
    """Claims of a page by key, each of `findings` that are there when it is assigned."""

    def __init__(
        self, findings: Mapping[str, Any], claims: Mapping[str, Any] | None = None
    ) -> None:
        self.findings = findings
        super().__init__(claims)

    def __setitem__(self, key: str, value: bool | np.bool_ | Claim) -> None:
        """Keep a claim; refuse one of findings that are not there, and a key that is a finding's."""
        claim = value if isinstance(value, Claim) else Claim(value)
        if not isinstance(claim.holds, bool | np.bool_):
            raise UserError(f"claims: {key}", show(value), "a Claim, or whether it holds")
        if unknown := {*claim.keys} - {*self.findings}:
            raise UserError(
                f"claims: {key}", f"of {', '.join(sorted(unknown))}", "keys of findings"
            )
        if key in {*self.findings, NOISE, N_BLOCKS}:
            raise UserError("claims", f"{key}, which a finding has", "another key")
        super().__setitem__(key, claim)

    def __ior__(self, claims: Any) -> Self:  # type: ignore[override,misc]
        """Add other claims, each checked."""
        self.update(claims)
        return self


def write_findings(
    record: str | Path,
    findings: Mapping[str, FindingLike],
    claims: Mapping[str, bool | np.bool_ | Claim],
    *,
    noise: float,
    n_blocks: int,
) -> pd.DataFrame:
    """Write the findings of a page next to its CSV record, and return them as the page shows them.

    `findings` have the keys under which prose quotes them; `claims` are what sentences claim:
    whether it holds of these rows, and of which findings. A claim whose findings have no interval,
    as after one block, is not decided, whatever the comparison with NaN returned. `noise` is the A/A ratio less 1 of the
    quantity that the page judges, NaN where it is unknown.
    """
    common = {NOISE: Finding(noise), N_BLOCKS: Finding(n_blocks)}
    checked = Findings(findings)
    rows = {key: as_finding(finding) for key, finding in {**checked, **common}.items()}
    for key, claim in Claims(checked, claims).items():
        value = float(claim.holds) if claim.is_decided(rows) else math.nan
        rows[key] = Finding(value, unit=CLAIM, quantity=", ".join(claim.keys))
    frame = pd.DataFrame(
        [asdict(finding) for finding in rows.values()], index=pd.Index(rows, name="key")
    )
    frame.to_csv(Path(record).with_suffix(SUFFIX), lineterminator="\n")
    lines = [tabulate_finding(finding) for finding in rows.values()]
    return pd.DataFrame(lines, index=pd.Index(rows, name=QUOTED))


def tabulate_finding(finding: Finding) -> dict[str, str]:
    """Write a finding as a line of the table that ends a notebook."""
    line = dict.fromkeys(["value", "95 % interval", "unit", "noise"], "")
    if finding.unit == CLAIM:
        return line | {"value": describe_claim(finding)}
    if math.isfinite(finding.low):
        line["95 % interval"] = f"{format_digits(finding.low)} to {format_digits(finding.high)}"
    if math.isfinite(finding.noise):
        line["noise"] = f"{format_digits(100 * finding.noise)} %"
    value = (
        format_digits(finding.value) if math.isfinite(finding.value) or not finding.verdict else ""
    )
    text = ", ".join(filter(None, (value, finding.verdict)))
    return line | {"value": text, "unit": finding.unit}


def describe_claim(finding: Finding) -> str:
    """Describe in words what rows say of a claim."""
    if math.isnan(finding.value):
        return "not decided"
    return "holds" if finding.value else "does not hold"


def read_findings(path: Path) -> dict[str, Finding]:
    """Read the findings next to a record, or of their own path; none where there is no such file."""
    path = path if path.name.endswith(SUFFIX) else path.with_suffix(SUFFIX)
    return dict(_read(path, path.stat().st_mtime_ns)) if path.exists() else {}


@cache
def _read(path: Path, _changed_ns: int) -> dict[str, Finding]:
    """Read a file once; it may come from a stranger, so a wrong one is refused in a line."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.DictReader(file)
            if "key" not in (lines.fieldnames or ()):
                raise KeyError("key")
            findings = dict[str, Finding]()
            for line in lines:
                value, low, high, noise = (
                    float(line[name] or "nan") for name in ("value", "low", "high", "noise")
                )
                unit, verdict, quantity = (
                    line[name] or "" for name in ("unit", "verdict", "quantity")
                )
                findings[line["key"]] = Finding(
                    value, low, high, unit, int(line["n"]), verdict, noise, quantity
                )
            return findings
    except (ValueError, TypeError, KeyError, OSError, csv.Error) as error:
        reason = " ".join(str(error).split())
        raise UserError(path.name, f"not the findings of a page: {reason}") from error


def format_finding(result: Finding | None, spec: str = "", *, noise: float = math.nan) -> str:
    """Format a finding for prose: the number, as a factor `x` or `bar`, its `range`, the `verdict`, a mark if `unstable`, or a `count`.

    The mark is a dagger; `describe_noise` has its reason. A count has all its digits.

    Examples
    --------
    >>> format_finding(Finding(1.523, 1.31, 1.7, n=5)), format_finding(Finding(1.523, 1.31, 1.7, n=5), "range")
    ('1.5', '1.5 (1.3 to 1.7)')
    >>> format_finding(Finding(1.183, 1.176, 1.188), "range")  # no wider than the number
    '1.2'
    >>> format_finding(Finding(1357), "count"), format_finding(Finding(8.5), "count")
    ('1,357', '8.5')
    >>> format_finding(Finding(12.8), "x")
    '13x'
    >>> format_finding(Finding(verdict="zarr-obstore"), "verdict")
    'zarr-obstore'
    >>> format_finding(Finding(1.02, verdict="indistinguishable"), "verdict")
    'about the same'
    >>> format_finding(Finding(1.5, noise=0.01), "unstable", noise=0.2)
    ''
    >>> format_finding(Finding(1.5), "unstable", noise=0.2) == UNSTABLE_MARK
    True
    """
    if spec not in ("", "x", "bar", "range", "verdict", "unstable", "count"):
        raise UserError("num", f"{spec!r}", "nothing, x, bar, range, verdict, unstable, count")
    if spec == "unstable":
        return UNSTABLE_MARK if describe_noise(result, noise) else ""
    if result is None:
        return "not measured here"
    if spec == "verdict":
        return "about the same" if result.verdict == "indistinguishable" else result.verdict
    if spec == "count" and result.value.is_integer():
        return f"{result.value:,.0f}"
    if spec in ("x", "bar"):
        return format_digits(result.value) + "x" * math.isfinite(result.value)
    if spec != "range" or not math.isfinite(result.low):
        return format_digits(result.value)
    value, low, high = (format_digits(end) for end in (result.value, result.low, result.high))
    return value if low == high else f"{value} ({low} to {high})"


def describe_noise(finding: Finding | None, page_noise: float = math.nan) -> str:
    """Describe why a finding is unstable; empty where it is not.

    It is where the noise of its quantity, or else that of its page, is above what the book trusts.

    Examples
    --------
    >>> describe_noise(Finding(1.5, noise=0.13))
    'unstable: noise of 13 % exceeds 8 %'
    """
    noise = page_noise if finding is None or math.isnan(finding.noise) else finding.noise
    if not noise > UNSTABLE_ABOVE:
        return ""
    return f"unstable: noise of {format_digits(100 * noise)} % exceeds {format_digits(100 * UNSTABLE_ABOVE)} %"
