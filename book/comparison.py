"""A record next to another of the same case: ratios with intervals, and what differs in origin."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from book.cases import find_case
from helpers.benchmark.record import read_records
from helpers.benchmark.statistics import measured, pool_copies, unpaired_ratio
from helpers.errors import UserError, cut
from helpers.paths import check_file
from helpers.plotting.tables import digits

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

    Copies of a contender count together with it. Ratios are those of the durations of A over those
    of B, in the column `value`. Plain values, as JSON has them: `case`, `rows`, and `origin`, a
    pair of values for each thing that differs.
    """
    sides = [_read_side(path) for path in (a, b)]
    names = ["/".join(side[["study", "case"]].iloc[0]) for side in sides]
    if names[0] != names[1]:
        raise UserError(
            f"{a.name} is of {names[0]}, {b.name} of {names[1]}; allowed: two records of one case"
        )
    times = [_times(side, value) for side in sides]
    common = [key for key in times[0] if key in times[1]]
    if not common:
        told = [cut(", ".join(dict.fromkeys(name for name, _ in side))) for side in times]
        raise UserError(
            f"{a.name} and {b.name}: no contender at a point in common; allowed: at least one;"
            f" A has {told[0]}, B has {told[1]}"
        )
    rows = []
    for name, point in common:
        with np.errstate(all="ignore"):  # of forged durations it is beyond floats
            ratio = unpaired_ratio(*(side[name, point] for side in times))
        found = {"ratio": ratio.centre, "low": ratio.low, "high": ratio.high}
        plain = {key: one if math.isfinite(one) else None for key, one in found.items()}
        n = {f"n_{key}": len(side[name, point]) for key, side in zip("ab", times, strict=True)}
        rows.append({"contender": name, "point": json.loads(point), **plain, **n})
    left, right = map(_describe_origin, sides)
    # what one side does not name it did not import, or does not have
    origin = {
        name: [left[name], right[name]]
        for name in left
        if left[name] != right.get(name, left[name])
    }
    return {"case": names[0], "value": value, "note": NOTE, "rows": rows, "origin": origin}


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


def _describe_origin(rows: pd.DataFrame) -> dict[str, Any]:
    """List machine, versions, parameters, settings and commits, each by its kind and name."""
    found: dict[str, Any] = {"commit": ", ".join(sorted(rows["commit"].str[:8].unique()))}
    for kind in ("machine", "versions", "parameters"):
        for text in rows[kind].unique():
            found |= {f"{kind}: {name}": one for name, one in json.loads(text).items()}
    for (name, text), _ in rows.groupby(["contender", "settings"], sort=False):
        found |= {f"settings of {name}: {key}": one for key, one in json.loads(str(text)).items()}
    return found


def render_comparison(found: Mapping[str, Any], a: Path, b: Path) -> list[str]:
    """Write a comparison as lines of text."""
    table = pd.DataFrame(
        {
            "contender": row["contender"],
            "point": ", ".join(f"{key} {one}" for key, one in row["point"].items()),
            "A/B": digits(row["ratio"] or math.inf, n=3),
            "95 %": "one value"
            if row["low"] is None
            else f"{digits(row['low'], n=3)} to {digits(row['high'] or math.inf, n=3)}",
            "blocks": f"{row['n_a']}, {row['n_b']}",
        }
        for row in found["rows"]
    )
    head = f"{found['case']}, {found['value']}: A is {a}, B is {b}"
    pairs = [f"    {name}: {left}; {right}" for name, (left, right) in found["origin"].items()]
    origin = ["what differs in origin (A; B):", *pairs] if pairs else ["nothing differs in origin"]
    return [head, "", table.to_string(index=False), "", found["note"], "", *origin]
