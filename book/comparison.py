"""A record next to another of the same case: ratios, the noise of both, and what differs in origin."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from book.cases import find_case
from helpers.benchmark.record import read_records
from helpers.benchmark.statistics import judge, measured, noise_ratio, pool_copies, unpaired_ratio
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
    times, noises = (
        [_times(side, value) for side in sides],
        [_noises(side, value) for side in sides],
    )
    common = [key for key in times[0] if key in times[1]]
    if not common:
        told = [", ".join(dict.fromkeys(name for name, _ in side)) for side in times]
        raise UserError(
            f"{a.name} and {b.name}: no contender at a point in common; allowed: at least one;"
            f" A has {cut(told[0])}, B has {cut(told[1])}"
        )
    lost = [
        [f"{k} at {p}" for k, p in one if (k, p) not in other]
        for one, other in (times, times[::-1])
    ]
    rows = []
    for name, point in common:
        over, under = (side[name, point] for side in times)
        noise_a, noise_b = (side[point] for side in noises)
        found = judge(unpaired_ratio(over, under), noise_a * noise_b)
        numbers = {
            "a_s": float(pd.Series(over).median()),
            "b_s": float(pd.Series(under).median()),
            "ratio": found.ratio.centre,
            "low": found.ratio.low,
            "high": found.ratio.high,
            "noise_a": noise_a,
            "noise_b": noise_b,
        }
        plain = {key: x if math.isfinite(x) else None for key, x in numbers.items()}
        told_of = {
            "n_a": len(over),
            "n_b": len(under),
            "verdict": found.verdict,
            "reason": found.reason,
        }
        rows.append({"contender": name, "point": json.loads(point), **plain, **told_of})
    origin = {
        kind: pairs
        for kind in ("machine", "versions", "parameters", "settings", "commit")
        if (pairs := _differ(kind, sides[0], sides[1]))
    }
    lists = {"only_in_a": lost[0], "only_in_b": lost[1], "origin": origin}
    return {"case": names[0], "value": value, "note": NOTE, "rows": rows, **lists}


def _read_side(path: Path) -> pd.DataFrame:
    """Read the measured rows of one record of one case."""
    rows = measured(read_records([path]))
    if rows.empty:
        raise UserError(f"{path.name}: no measured row; allowed: a record with at least one")
    return rows


def _times(rows: pd.DataFrame, value: str) -> dict[tuple[str, str], list[float]]:
    """List the durations by contender and point, a block each; a copy counts with its original."""
    return {
        (str(name), str(point)): times[value].tolist()
        for point, part in rows.groupby("point", sort=False)
        for name, times in pool_copies(part, value).groupby("contender", sort=False)
    }


def _noises(rows: pd.DataFrame, value: str) -> dict[str, float]:
    """Compute the largest A/A noise at each point; one without a control has the median of the others."""
    found = {}
    for point, part in rows.groupby("point", sort=False):
        ratios = [math.nan]
        for control in part.loc[part["control_of"] != "", "contender"].unique():
            with contextlib.suppress(UserError):
                ratios.append(noise_ratio(part, str(control), value=value))
        found[str(point)] = float(pd.Series(ratios).max())
    usual = float(pd.Series(found).median())
    return {point: usual if math.isnan(one) else one for point, one in found.items()}


def _differ(kind: str, a: pd.DataFrame, b: pd.DataFrame) -> dict[str, list[Any]]:
    """List what differs in a mapping of origin, each with its value in A and in B."""
    if kind == "commit":
        sides = [{"commit": ", ".join(sorted(rows["commit"].str[:8].unique()))} for rows in (a, b)]
    elif kind == "settings":
        sides = [
            {f"{name}: {key}": value for (name, text), _ in rows.groupby(["contender", "settings"]) for key, value in json.loads(str(text)).items()}
            for rows in (a, b)
        ]  # fmt: skip
    else:
        sides = [_merge(rows[kind].unique()) for rows in (a, b)]
    left, right = sides
    # what one side does not name it did not import, or does not have
    both = (
        left.keys() & right.keys()
        if kind in ("versions", "settings")
        else left.keys() | right.keys()
    )
    pairs = {name: [left.get(name), right.get(name)] for name in sorted(both)}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _merge(texts: Iterable[str]) -> dict[str, Any]:
    """Take the mappings of all rows together; not to dilate time is what older rows do not name."""
    pairs = (pair for text in texts for pair in json.loads(text).items())
    return {name: value for name, value in pairs if (name, value) != ("dilation", 1)}


def render_comparison(found: Mapping[str, Any], a: Path, b: Path) -> list[str]:
    """Write a comparison as lines of text."""
    words = {"faster": "A is faster", "slower": "A is slower"}
    table = pd.DataFrame(
        {
            "contender": row["contender"],
            "point": ", ".join(f"{k} {v}" for k, v in row["point"].items()),
            "A (s)": f"{row['a_s']:.3g}",
            "B (s)": f"{row['b_s']:.3g}",
            "A/B": f"{row['ratio']:.3g}",
            "95 %": " to ".join(
                "?" if row[k] is None else f"{row[k]:.3g}" for k in ("low", "high")
            ),
            "noise of A, B": ", ".join(
                "?" if row[k] is None else f"{100 * (row[k] - 1):.2g} %"
                for k in ("noise_a", "noise_b")
            ),
            "": "noise unknown"
            if None in (row["noise_a"], row["noise_b"])
            else words.get(row["verdict"], row["verdict"]),
        }
        for row in found["rows"]
    )
    lines = [
        f"{found['case']}, {found['value']}: A is {a}, B is {b}",
        "",
        table.to_string(index=False),
    ]
    lines += ["", f"{found['note']} Compared: {len(found['rows'])}.", ""]
    for side in ("a", "b"):
        if keys := found[f"only_in_{side}"]:
            lines.append(f"only in {side.upper()}: {', '.join(keys)}")
    for kind, pairs in found["origin"].items():
        lines.append(f"what differs in {kind} (A; B):")
        lines += [f"    {name}: {left}; {right}" for name, (left, right) in pairs.items()]
    return lines if found["origin"] else [*lines, "nothing differs in origin"]
