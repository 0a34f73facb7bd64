"""A record laid over another of the same case: ratios, the noise of both, and what differs in origin."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.benchmark.record import read_records
from helpers.benchmark.statistics import (
    judge,
    measured,
    noise_ratio,
    pool_copies,
    unpaired_ratio,
)
from helpers.book.cases import find_case
from helpers.errors import UserError, cut
from helpers.paths import check_file

NOTE = (
    "A/B above 1: A took longer. The records share no block, so the ratios are unpaired: each"
    " interval (Welch's t on logarithms) covers 95 % by itself, and knows nothing of other days."
)


def find_records(given: Sequence[str], site: str) -> tuple[Path, Path]:
    """Find the two records that are meant: files, or those of a case at a site and in the reference."""
    if len(given) == 2:
        return check_file(Path(given[0])), check_file(Path(given[1]))
    if len(given) != 1 or given[0].endswith(".csv"):
        raise UserError(f"compare: {cut(' '.join(given))}; allowed: A.csv B.csv, or CASE")
    case = find_case(given[0], site)
    own, reference = case.result(".csv"), case.result(".csv", "reference")
    if not own.exists():
        raise UserError(
            f"CASE: {case.title!r} has no record at site {site};"
            f" allowed: after wire run {case.title} --site {site}"
        )
    return own, reference


def compare_records(a: Path, b: Path, *, value: str = "read_s") -> dict[str, Any]:
    """Compare two records of one case, contender by contender and point by point.

    Copies of a contender count together with it. A ratio is called a difference where its interval
    excludes 1 and it lies outside the noises of both records together. Ratios are those of the
    durations of A over those of B, in the column `value`. Plain values, as JSON has them: what is
    compared, `rows`, `origin` (what differs, a pair of each), `only_in_a` and `only_in_b`.
    """
    sides = [_read_side(path) for path in (a, b)]
    names = ["/".join(side[["study", "case"]].iloc[0]) for side in sides]
    if names[0] != names[1]:
        raise UserError(
            f"{a.name} is of {names[0]}, {b.name} of {names[1]}; allowed: two records of one case"
        )
    found = [_times(side, value) for side in sides]
    common = sorted(found[0].keys() & found[1].keys(), key=_place)
    if not common:
        told = [", ".join(dict.fromkeys(name for name, _ in side)) for side in found]
        raise UserError(
            f"{a.name} and {b.name}: no contender at a point in common; allowed: at least one;"
            f" A has {cut(told[0])}, B has {cut(told[1])}"
        )
    noises = [_noises(side, value) for side in sides]
    return {
        "case": names[0],
        "value": value,
        "note": NOTE,
        "rows": [_compare(key, found[0][key], found[1][key], noises) for key in common],
        "only_in_a": _tell_keys(found[0].keys() - found[1].keys()),
        "only_in_b": _tell_keys(found[1].keys() - found[0].keys()),
        "origin": {name: pairs for name, pairs in _contrast(sides[0], sides[1], common) if pairs},
    }


Key = tuple[str, str]
"""Contender, and point as JSON."""


def _read_side(path: Path) -> pd.DataFrame:
    """Read the measured rows of one record of one case."""
    rows = measured(read_records([path]))
    if rows.empty:
        raise UserError(f"{path.name}: no measured row; allowed: a record with at least one")
    for name in ("study", "case"):
        if rows[name].nunique() > 1:
            raise UserError(f"{path.name}: {rows[name].nunique()} of {name}; allowed: one")
    return rows


def _times(rows: pd.DataFrame, value: str) -> dict[Key, list[float]]:
    """List the durations of each contender at each point, a block each; a copy counts with its original."""
    found: dict[Key, list[float]] = {}
    for point, part in rows.groupby("point", sort=False):
        for name, times in pool_copies(part, value).groupby("contender", sort=False):
            found[str(name), str(point)] = times[value].tolist()
    return found


def _noises(rows: pd.DataFrame, value: str) -> dict[str, float]:
    """Compute the A/A noise at each point; a point without a control has the median of the others."""
    parts = {str(point): part for point, part in rows.groupby("point", sort=False)}
    found = {point: _find_noise(part, value) for point, part in parts.items()}
    usual = float(pd.Series(found, dtype=float).median())
    return {point: usual if math.isnan(noise) else noise for point, noise in found.items()}


def _find_noise(rows: pd.DataFrame, value: str) -> float:
    """Compute the largest noise of the controls at a point; NaN where none has a pair."""
    found = []
    for name in rows.loc[rows["control_of"] != "", "contender"].unique():
        with contextlib.suppress(UserError):
            found.append(noise_ratio(rows, str(name), value=value))
    return float(pd.Series(found, dtype=float).max())


def _compare(
    key: Key, over: list[float], under: list[float], noises: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Judge one contender at one point."""
    name, point = key
    noise = [side[point] for side in noises]
    found = judge(unpaired_ratio(over, under), math.prod(noise))
    return {
        "contender": name,
        "point": json.loads(point),
        "a_s": float(pd.Series(over).median()),
        "b_s": float(pd.Series(under).median()),
        "n_a": len(over),
        "n_b": len(under),
        "ratio": found.ratio.centre,
        "low": _plain(found.ratio.low),
        "high": _plain(found.ratio.high),
        "noise_a": _plain(noise[0]),
        "noise_b": _plain(noise[1]),
        "verdict": found.verdict,
        "reason": found.reason,
    }


def _plain(value: float) -> float | None:
    """Put None where JSON has no number."""
    return value if math.isfinite(value) else None


def _place(key: Key) -> tuple[str, list[tuple[bool, float, str]]]:
    """Sort by contender, then by point: numbers by size, texts by letters."""
    values = json.loads(key[1]).values()
    are_numbers = [(value, isinstance(value, int | float)) for value in values]
    return key[0], [
        (not is_number, value if is_number else 0.0, str(value)) for value, is_number in are_numbers
    ]


def _tell_keys(keys: Iterable[Key]) -> list[str]:
    return [f"{name} at {point}" for name, point in sorted(keys, key=_place)]


def _contrast(
    a: pd.DataFrame, b: pd.DataFrame, common: Collection[Key]
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Name what differs in origin, each with its value in A and in B."""
    for kind in ("machine", "versions", "parameters"):
        left, right = (_merge(rows[kind].unique()) for rows in (a, b))
        # a version that one side does not name is of a package that it did not import
        both = left.keys() & right.keys() if kind == "versions" else left.keys() | right.keys()
        yield kind, _differ(left, right, both)
    left, right = (_settings(rows, common) for rows in (a, b))
    yield "settings", _differ(left, right, left.keys() | right.keys())
    days = {"commit": ("commit", 8), "day": ("started_utc", 10)}
    left, right = (
        {name: ", ".join(sorted(rows[at].str[:n].unique())) for name, (at, n) in days.items()}
        for rows in (a, b)
    )
    yield "run", _differ(left, right, days)


def _merge(texts: Iterable[str]) -> dict[str, Any]:
    """Take the mappings of all rows together; not to dilate time is what older rows do not name."""
    pairs = (pair for text in texts for pair in json.loads(text).items())
    return {name: value for name, value in pairs if (name, value) != ("dilation", 1)}


def _settings(rows: pd.DataFrame, common: Collection[Key]) -> dict[str, Any]:
    """List the settings of each contender at each point that both records have."""
    return {
        f"{row.contender} at {row.point}: {name}": value
        for row in rows[["contender", "point", "settings"]].itertuples()
        if (row.contender, row.point) in common
        for name, value in json.loads(str(row.settings)).items()
    }


def _differ(
    left: Mapping[str, Any], right: Mapping[str, Any], names: Iterable[str]
) -> dict[str, list[Any]]:
    pairs = {name: [left.get(name), right.get(name)] for name in sorted(names)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def render_comparison(found: Mapping[str, Any], a: Path, b: Path) -> list[str]:
    """Write a comparison as lines of text."""
    points = [", ".join(f"{k} {v}" for k, v in row["point"].items()) for row in found["rows"]]
    width = max(len(row["contender"]) for row in found["rows"]) + 2
    across = max(map(len, [*points, "point"])) + 2
    lines = [
        f"{found['case']}, {found['value']}: A is {a}, B is {b}",
        "",
        f"{'contender':{width}}{'point':{across}}{'A (s)':>8}{'B (s)':>8}{'A/B':>7}"
        f"  {'95 %':15}  A/A noise of A and B",
    ]
    for row, point in zip(found["rows"], points, strict=True):
        ends = " to ".join("?" if row[k] is None else f"{row[k]:.3g}" for k in ("low", "high"))
        noises = (row["noise_a"], row["noise_b"])
        noise = ", ".join("?" if n is None else f"{100 * (n - 1):.2g} %" for n in noises)
        lines.append(
            f"{row['contender']:{width}}{point:{across}}{row['a_s']:8.3g}{row['b_s']:8.3g}"
            f"{row['ratio']:7.3g}  {ends:15}  {noise:22}{_say(row)}"
        )
    lines += ["", f"{found['note']} Compared: {len(found['rows'])}.", ""]
    for side in ("a", "b"):
        if keys := found[f"only_in_{side}"]:
            lines.append(f"only in {side.upper()}: {', '.join(keys)}")
    for kind, pairs in found["origin"].items():
        lines.append(f"what differs in {kind} (A; B):")
        lines += [f"    {name}: {left}; {right}" for name, (left, right) in pairs.items()]
    return lines if found["origin"] else [*lines, "nothing differs in origin"]


def _say(row: Mapping[str, Any]) -> str:
    """Give the verdict in words."""
    if None in (row["noise_a"], row["noise_b"]):
        return "noise unknown"
    verdict = str(row["verdict"])
    return {"faster": "A is faster", "slower": "A is slower"}.get(verdict, verdict)
