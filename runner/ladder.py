"""Whether clients whose CPU time is counted take as long at every dilation on this machine.

Where they do not, a ratio that is measured with CPU time counted is one of the dilation, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.benchmark.record import read_records
from helpers.benchmark.statistics import measured
from runner.cases import Case, check_parameters
from studies.harness.findings import compare_rungs, name_rungs
from wire.errors import UserError
from wire.host import machine

LADDER = "harness/ladder"
FLAT = 1.1
"""Factor by which a counted read may differ between dilations on a machine that is flat."""
MOST_AGE = timedelta(days=90)
"""After which a machine is measured again: what it hosts besides changes."""


def counts_cpu_time(case: Case) -> bool:
    """Decide whether a case counts CPU time in a slow-motion network: it says how many CPUs."""
    try:
        settings = check_parameters(case).settings
    except UserError:
        return False  # it will not run, and the run says why
    return any(settings.get(name, 0) > 0 for name in ("processors", "cpus"))


def find_counted(cases: Iterable[Case]) -> list[Case]:
    """Find the cases for which the ladder has to be flat: all that count CPU time but the ladder."""
    return [case for case in cases if case.title != LADDER and counts_cpu_time(case)]


def is_current(record: Path, *, now: datetime | None = None) -> bool:
    """Decide whether a record of the ladder is of this machine, and not too old."""
    if not record.exists():
        return False
    rows = measured(read_records([record]))
    is_here = {json.dumps(machine(), sort_keys=True)} == {
        json.dumps(json.loads(text), sort_keys=True) for text in rows["machine"]
    }
    measured_at = pd.to_datetime(rows["started_utc"], utc=True).max()
    return is_here and (now or datetime.now(UTC)) - measured_at <= MOST_AGE


def measure_steepness(rows: pd.DataFrame) -> dict[str, float]:
    """Measure by which factor a counted read differs most between dilations, by reader.

    Above 1 it takes longer at a higher dilation than at the lowest, below 1 less.
    """
    (text,) = rows["parameters"].unique()
    parameters: Mapping[str, Any] = json.loads(text)
    names = name_rungs(parameters["ladder"], parameters["processors"])
    counted = {name: rung for name, rung in names.items() if rung[1]}
    part = rows[rows["part"].isin([*counted])]
    over = compare_rungs(part, counted).set_index("contender")["over_lowest"]
    return {
        str(reader): max(map(float, ratios), key=lambda ratio: abs(math.log(ratio)))
        for reader, ratios in over.groupby(level=0)
    }


def check_flat(rows: pd.DataFrame, counted: Iterable[Case]) -> None:
    """Refuse cases that count CPU time where a reader's time depends on the dilation."""
    titles = [case.title for case in counted]
    steep = {
        reader: ratio
        for reader, ratio in measure_steepness(rows).items()
        if not 1 / FLAT <= ratio <= FLAT
    }
    if titles and steep:
        times = ", ".join(f"{reader} {ratio:.2f}x" for reader, ratio in steep.items())
        raise UserError(
            ", ".join(titles),
            f"CPU time counted on a machine where it depends on the dilation ({times})",
            f"within {FLAT:g}x at every dilation of {LADDER}; --uncounted runs all other cases",
        )
