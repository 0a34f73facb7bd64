"""What a page found, as numbers: written by its notebook, printed in prose by name, guarded by claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.benchmark.statistics import Comparison, Interval
from helpers.errors import UserError
from helpers.plotting.tables import digits

SUFFIX = ".findings.csv"
"""Of the file next to a record."""
NOISE, N_BLOCKS = "noise", "n-blocks"
"""Findings that every page has: the A/A ratio less 1 of what it judges, and its measured blocks."""
UNSTABLE_ABOVE = 0.08
"""Noise above which a page is unstable: pages rank contenders that differ by a tenth."""
CLAIM = "claim"
"""Unit of a claim, whose value is 1 where it holds and 0 where it does not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A number that prose quotes, with its interval, or a name where `verdict` alone is given."""

    value: float = math.nan
    low: float = math.nan  # 95 % interval
    high: float = math.nan
    unit: str = ""  # as in MB/s; empty for a ratio
    n: int = 0  # blocks behind it; 0 where that is not what it rests on
    verdict: str = ""  # what is judged, as in faster, or a name


Found = Finding | Interval | Comparison | float


def as_finding(found: Found) -> Finding:
    """Turn what statistics return into a finding."""
    if isinstance(found, Finding):
        return found
    if isinstance(found, Comparison):
        ratio = found.ratio
        return Finding(ratio.centre, ratio.low, ratio.high, n=ratio.n, verdict=found.verdict)
    if isinstance(found, Interval):
        return Finding(found.centre, found.low, found.high, n=found.n)
    return Finding(float(found))


def write_findings(
    record: str | Path,
    findings: Mapping[str, Found],
    claims: Mapping[str, bool | np.bool_],
    *,
    noise: float,
    n_blocks: int,
) -> None:
    """Write the findings of a page next to its record.

    Parameters
    ----------
    record : str or Path
        CSV record of the page; the file takes its name and the suffix `SUFFIX`.
    findings : mapping
        By the key under which prose quotes them.
    claims : mapping
        What sentences of the page claim: whether it holds of these rows.
    noise : float
        A/A ratio less 1 of the quantity that the page judges; NaN where it is unknown.
    n_blocks : int
        Measured blocks.
    """
    common = {NOISE: Finding(noise), N_BLOCKS: Finding(n_blocks)}
    held = {key: Finding(float(holds), unit=CLAIM) for key, holds in claims.items()}
    if twice := {*findings, *common} & {*held} | {*findings} & {*common}:
        raise UserError(f"findings: {', '.join(sorted(twice))} twice; allowed: each key once")
    rows = {key: as_finding(found) for key, found in {**findings, **common}.items()} | held
    frame = pd.DataFrame(
        [asdict(found) for found in rows.values()], index=pd.Index(rows, name="key")
    )
    frame.to_csv(Path(record).with_suffix(SUFFIX), lineterminator="\n")


def read_findings(path: Path) -> dict[str, Finding]:
    """Read the findings next to a record, or of their own path; none where there is no such file."""
    path = path if path.name.endswith(SUFFIX) else path.with_suffix(SUFFIX)
    return dict(_read(path, path.stat().st_mtime_ns)) if path.exists() else {}


@cache
def _read(path: Path, _changed_ns: int) -> dict[str, Finding]:
    """Read a file once; it may come from a stranger, so a wrong one is refused in a line."""
    try:
        frame = pd.read_csv(path, index_col="key", dtype={"unit": str, "verdict": str, "n": int})
        frame = frame[[*Finding.__slots__]].fillna({"unit": "", "verdict": ""})
        frame = frame.astype({name: float for name in ("value", "low", "high")})
    except (ValueError, KeyError, OSError) as error:
        told = " ".join(str(error).split())
        raise UserError(f"{path.name}: not the findings of a page: {told}") from error
    names = Finding.__slots__
    lines = frame.itertuples(name=None)
    return {str(key): Finding(**dict(zip(names, line, strict=True))) for key, *line in lines}


def format_finding(found: Finding | None, how: str = "") -> str:
    """Format a finding for prose.

    Parameters
    ----------
    found : Finding or None
        None where a page has not found it.
    how : {"", "range", "verdict", "unstable"}
        The number alone, with its interval, the verdict in the place of the number, or, of the
        noise of a page, that it is unstable where it is above what the book trusts.

    Examples
    --------
    >>> format_finding(Finding(1.523, 1.31, 1.7, n=5)), format_finding(Finding(1.523, 1.31, 1.7, n=5), "range")
    ('1.5', '1.5 (1.3 to 1.7)')
    >>> format_finding(Finding(verdict="zarr-obstore"), "verdict")
    'zarr-obstore'
    """
    if how not in ("", "range", "verdict", "unstable"):
        raise UserError(f"num: {how!r}; allowed: nothing, range, verdict, unstable")
    if how == "unstable":
        return "; unstable" if found is not None and found.value > UNSTABLE_ABOVE else ""
    if found is None:
        return "not measured here"
    if how == "verdict":
        return found.verdict
    ends = how == "range" and math.isfinite(found.low)
    return digits(found.value) + (f" ({digits(found.low)} to {digits(found.high)})" * ends)
