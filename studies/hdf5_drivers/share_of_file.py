"""Time against the share of a file that is read: where the download of the whole file begins to win."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pandas as pd

from helpers.benchmark import statistics
from helpers.findings import Claim, Finding, as_finding
from studies.hdf5_drivers.drivers import ONE_VARIABLE, SIX_VARIABLES, TWELVE_VARIABLES, VARIABLES
from studies.hdf5_drivers.files import TASKS, StoredFile
from studies.hdf5_drivers.findings import measured, select_reads

SHARES: Sequence[str] = (ONE_VARIABLE, VARIABLES, SIX_VARIABLES, TWELVE_VARIABLES)
"""Tasks that read a growing share of the file, each with the variables of the one before."""

WHOLE = "obstore-whole"
MOST_SHARES: Mapping[str, int] = {"fsspec-readahead": 2}
"""Drivers that read only the first so many shares, so that a repeat stays short."""
KEYS: Mapping[str, str] = {
    "fsspec-readahead": "default",
    "fsspec-tuned": "blocks",
    "references": "virtual-10",
    "references-64": "virtual-64",
    WHOLE: "whole",
}
"""Drivers of the case, by the names under which findings quote them."""


def list_reads(reads: Sequence[str]) -> dict[str, list[str]]:
    """List the reads ("driver on layout") of each share, without those beyond `MOST_SHARES`.

    Examples
    --------
    >>> [len(names) for names in list_reads(["fsspec-readahead on a", "references on a"]).values()]
    [2, 2, 1, 1]
    """
    return {
        task: [read for read in reads if place < MOST_SHARES.get(read.partition(" on ")[0], 99)]
        for place, task in enumerate(SHARES)
    }


def tabulate_shares(rows: pd.DataFrame, stored: StoredFile) -> pd.DataFrame:
    """Tabulate medians by share and driver: `share_percent` of the file's bytes, `total_s`."""
    part = measured(rows)
    medians = part.groupby(["task", "contender"], sort=False)["total_s"].median().reset_index()
    file_nbytes = stored.properties["original"].file_nbytes
    percent = {task: 100 * stored.needed_nbytes("original", task) / file_nbytes for task in SHARES}
    return medians.assign(
        share_percent=medians["task"].map(percent),
        n_variables=medians["task"].map({task: len(TASKS[task]) for task in SHARES}),
    ).sort_values(["share_percent", "contender"], ignore_index=True)


def find_crossing(shares: Sequence[float], ratios: Sequence[float]) -> float:
    """Find the share from which on a ratio of times is above 1, on a line between its logarithms.

    Shares grow; NaN where the ratio does not pass 1 from below between the first and the last.

    Examples
    --------
    Half as long at 2 %, twice as long at 8 %: as long between them.

    >>> find_crossing([2, 8], [0.5, 2.0])
    5.0
    >>> find_crossing([2, 8], [1.5, 2.0])
    nan
    """
    points = list(zip(shares, map(math.log, ratios), strict=True))
    for (before, low), (after, high) in pairwise(points):
        if low <= 0 < high:
            return before + (after - before) * -low / (high - low)
    return math.nan


def describe_crossing(shares: Sequence[float], ratios: Sequence[float]) -> Finding:
    """Describe from which share of the file on the download wins, in percent; in words where it is outside what was read."""
    crossing = find_crossing(shares, ratios)
    if not math.isnan(crossing):
        return Finding(crossing, unit="%", verdict=f"from {crossing:.2g} % on")
    always = min(ratios) > 1
    text = f"from below {shares[0]:.2g} % on" if always else f"not up to {shares[-1]:.2g} %"
    return Finding(verdict=text)


def find_all(rows: pd.DataFrame, table: pd.DataFrame) -> dict[str, Finding]:
    """Find times by share, each way's time over that of the download, and the crossing of virtual Zarr."""
    findings = {}
    for line in table.to_dict("records"):
        key = f"{KEYS[line['contender']]}-{line['n_variables']}"
        findings[f"{key}-s"] = Finding(line["total_s"], unit="s")
        findings[f"share-{line['n_variables']}"] = Finding(line["share_percent"], unit="%")
    for task in SHARES:
        reads = select_reads(rows, task)
        for driver in [*KEYS][:-1]:
            pair = (f"{driver} on original", f"{WHOLE} on original")
            if {*pair} <= {*reads["contender"]}:
                ratio = as_finding(statistics.paired_ratio(reads, *pair, value="total_s"))
                findings[f"{KEYS[driver]}-over-whole-{len(TASKS[task])}"] = ratio
    for key in ("virtual-10", "virtual-64"):
        named = [(task, f"{key}-over-whole-{len(TASKS[task])}") for task in SHARES]
        there = [(task, findings[name].value) for task, name in named if name in findings]
        if there:
            shares = [findings[f"share-{len(TASKS[task])}"].value for task, _ in there]
            findings[f"crossing-{key}"] = describe_crossing(shares, [value for _, value in there])
    return findings


def judge_claims(findings: Mapping[str, Finding]) -> dict[str, Claim]:
    """Judge whether the download wins over file objects at every share that was read."""
    claims = {}
    for key in ("default", "blocks"):
        names = [name for name in findings if name.startswith(f"{key}-over-whole-")]
        if names:
            holds = all(findings[name].low > 1 for name in names)
            claims[f"whole-beats-{key}"] = Claim(holds, of=tuple(names))
    return claims
