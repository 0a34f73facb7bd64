"""What each way takes at its peak, and the ratios that pages quote."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from helpers.benchmark import statistics
from helpers.benchmark.statistics import Interval, median_interval, paired_ratio
from helpers.findings import Claim, Finding, as_finding
from helpers.plotting import palette
from helpers.plotting.tables import trace_of
from studies.peak_memory.ways import WAYS

RATIOS = {
    "file-twice": ("file-joined", "file-buffer"),
    "concurrency-adds": ("whole-128", "whole-10"),
    "threads-add": ("maximum-16", "maximum-2"),
    "mapper-over-ranges": ("shard-mapper", "shard-ranges"),
}
"""Ways that are compared: the peak of the first over that of the second."""


def add_peaks(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the measured rows with `peak_nbytes` and `n_files`, peaks of a read above what its process held before."""
    part = statistics.measured(rows)
    trace = trace_of(part)
    columns = {name: trace[name].astype(float) for name in ("peak_nbytes", "n_files")}
    return part.assign(**columns)


def _select_originals(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows without those of the second copy, in the order of `WAYS`."""
    places = {name: number for number, name in enumerate(WAYS)}
    part = rows[rows["control_of"] == ""]
    return part.sort_values("contender", key=lambda names: names.map(places))


def tabulate_peaks(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate medians by way: MB asked for, MB moved, MB at the peak, the peak over what is asked for, and open files."""
    grouped = _select_originals(rows).groupby("contender", sort=False)
    table = grouped[["array_nbytes", "wire_nbytes", "peak_nbytes"]].median() / 1e6
    table["times"] = table["peak_nbytes"] / table["array_nbytes"]
    table["files"] = grouped["n_files"].median().to_numpy()
    heads = ["asked for (MB)", "moved (MB)", "peak (MB)", "peak over asked for", "open files"]
    labels = pd.Index([WAYS[str(name)].label for name in table.index], name="way")
    return table.set_axis(heads, axis=1).set_axis(labels, axis=0)


def find_peaks(rows: pd.DataFrame) -> dict[str, Finding]:
    """Find the peak of each way in MB, with its interval, and what it was asked for."""
    findings = {}
    for name, part in _select_originals(rows).groupby("contender", sort=False):
        findings[f"{name}-mb"] = _name_unit(median_interval(part["peak_nbytes"] / 1e6))
        findings[f"{name}-files"] = Finding(float(part["n_files"].median()))
        findings[f"{name}-asked-mb"] = Finding(float(part["array_nbytes"].iloc[0]) / 1e6, unit="MB")
        findings[f"{name}-moved-mb"] = Finding(float(part["wire_nbytes"].median()) / 1e6, unit="MB")
    return findings


def _name_unit(interval: Interval) -> Finding:
    return Finding(interval.centre, interval.low, interval.high, "MB", interval.n)


def compare_peaks(rows: pd.DataFrame) -> dict[str, Interval]:
    """Compare the ways of `RATIOS` that were measured: the peak of the first over that of the second."""
    names = {*rows["contender"]}
    return {
        key: paired_ratio(rows, more, less, value="peak_nbytes")
        for key, (more, less) in RATIOS.items()
        if {more, less} <= names
    }


def judge_claims(ratios: Mapping[str, Interval]) -> dict[str, Claim]:
    """Judge whether each first way takes at least a fifth more than the second."""
    return {f"{key}-holds": Claim(ratio.low > 1.2, of=key) for key, ratio in ratios.items()}


def tabulate_ratios(ratios: Mapping[str, Interval]) -> pd.DataFrame:
    """Tabulate the ratios with their 95 % intervals."""
    lines = [
        (WAYS[RATIOS[key][0]].label, WAYS[RATIOS[key][1]].label, r.centre, r.low, r.high)
        for key, r in ratios.items()
    ]
    heads = ["peak of", "over that of", "ratio", "low", "high"]
    return pd.DataFrame(lines, columns=heads).set_index("peak of")


def draw_peaks(ax: Axes, table: pd.DataFrame) -> None:
    """Draw the peak of each way as a bar, and what it was asked for as a mark."""
    labels = list(table.index)
    ax.barh(labels, table["peak (MB)"], color=palette.BLUE, label="peak of the read")
    asked = table["asked for (MB)"]
    ax.plot(asked, labels, "|", color="black", markersize=16, markeredgewidth=2, label="values asked for")  # fmt: skip
    ax.invert_yaxis()
    ax.set(xlabel="memory above what the process held before (MB)", xlim=(0, None))
    ax.grid(visible=False, axis="y")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)


def find_noise(rows: pd.DataFrame, control: str) -> float:
    """Compute the A/A ratio of the peaks, less 1; NaN where there is no second copy."""
    if control not in {*rows["contender"]}:
        return math.nan
    return statistics.noise_ratio(rows, control, value="peak_nbytes") - 1


def as_findings(ratios: Mapping[str, Interval]) -> dict[str, Finding]:
    """Name the ratios as findings."""
    return {key: as_finding(ratio) for key, ratio in ratios.items()}
