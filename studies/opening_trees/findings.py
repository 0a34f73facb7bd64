"""What the openings cost: requests, the longest chain of them, seconds, and how much the options gain."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from helpers.benchmark import statistics
from helpers.benchmark.statistics import Comparison, judge, paired_ratio
from helpers.findings import Claim, Finding, as_finding, format_finding
from helpers.plotting import palette
from helpers.plotting.tables import trace_of
from studies.opening_trees.openings import BASELINE, OPENINGS
from wire.bed.networks import Profile

GAINS = {
    "tree-gain": (BASELINE, "tree-lazy"),
    "undecoded-gain": (BASELINE, "tree-undecoded"),
    "unindexed-gain": (BASELINE, "tree-unindexed"),
    "groups-gain": (BASELINE, "groups"),
    "consolidated-gain": ("unconsolidated", BASELINE),
    "unconsolidated-gain": ("unconsolidated", "unconsolidated-lazy"),
    "coordinates-gain": ("coordinates", "coordinates-lazy"),
}
"""Openings that are compared: the slower one as expected, over the faster one."""


def _in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in the order of `OPENINGS`, without those of the second copy."""
    originals = rows[rows["control_of"] == ""]
    places = {name: number for number, name in enumerate(OPENINGS)}
    return originals.sort_values("contender", key=lambda names: names.map(places))


def prepare_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the measured rows with the counts of their traces and the seconds of opening and reading."""
    measured_rows = statistics.measured(rows)
    counts = trace_of(measured_rows)
    names = ["n_waits", "n_in_flight", "n_failed", "n_read_requests", "start_ms", "end_ms"]
    counts = counts.reindex(columns=names)
    return pd.concat([measured_rows, counts], axis=1).assign(
        total_s=measured_rows["open_s"] + measured_rows["read_s"]
    )


def tabulate_openings(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate requests, the longest chain, MB and seconds of each opening, medians over the blocks."""
    grouped = _in_order(rows).groupby("contender", sort=False)
    columns = ["n_requests", "n_waits", "n_in_flight", "wire_nbytes", "open_s", "total_s"]
    table = grouped[columns].median()
    table["wire_nbytes"] /= 1e6
    heads = {
        "n_requests": "requests",
        "n_waits": "in a chain",
        "n_in_flight": "at once",
        "wire_nbytes": "MB",
        "open_s": "to open (s)",
        "total_s": "to open and read (s)",
    }
    table.index = pd.Index([OPENINGS[name].label for name in table.index], name="opening")
    table[["n_requests", "n_waits", "n_in_flight"]] = table[
        ["n_requests", "n_waits", "n_in_flight"]
    ].astype(int)
    return table.rename(columns=heads)


def predict_seconds(
    rows: pd.DataFrame, network: Profile, *, n_sweeps: int, n_coordinates: int
) -> pd.Series[float]:
    """Predict the seconds to open: what it took without a network, and a latency for each expected wait.

    `rows` are those of the calibration, over loopback.
    """
    calibrated = rows[(rows["phase"] == "calibration") & (rows["control_of"] == "")]
    latency_s = network.first_byte_s.median_s if network.first_byte_s else 0.0
    seconds: dict[str, float] = {}
    for name, open_s in calibrated.groupby("contender")["open_s"].median().items():
        opening = OPENINGS[str(name)]
        n_waits = opening.count_waits(n_sweeps, n_coordinates)
        seconds[opening.label] = open_s + latency_s * n_waits
    return pd.Series(seconds)


def name_totals(total: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """Name comparisons of opening and reading together as findings."""
    return {f"{key}-total": comparison for key, comparison in total.items()}


def tabulate_gains(
    opening: Mapping[str, Comparison], total: Mapping[str, Comparison]
) -> pd.DataFrame:
    """Tabulate by how many times the first call is slower than the second, with 95 % intervals."""
    lines = []
    for key, comparison in opening.items():
        slow, fast = (OPENINGS[name].label for name in GAINS[key])
        ends = [format_finding(as_finding(side[key]), "range") for side in (opening, total)]
        lines.append((slow, fast, *ends, comparison.verdict))
    heads = ["over", "to open", "to open and read", "verdict"]
    return pd.DataFrame(lines, columns=["opening", *heads]).set_index("opening")


def compare_openings(rows: pd.DataFrame, value: str = "open_s") -> dict[str, Comparison]:
    """Compare the openings of `GAINS` that were measured: seconds of the first over those of the second."""
    measured_names = {*rows["contender"]}
    comparisons = {}
    for key, (slow, fast) in GAINS.items():
        if {slow, fast} <= measured_names:
            ratio = paired_ratio(rows, slow, fast, value=value)
            comparisons[key] = judge(ratio, ratio.noise)
    return comparisons


def count_openings(rows: pd.DataFrame) -> dict[str, Finding]:
    """Return requests, the longest chain and median seconds of each opening, as findings."""
    findings: dict[str, Finding] = {}
    for name, part in _in_order(rows).groupby("contender", sort=False):
        n_requests, n_waits = part["n_requests"].median(), part["n_waits"].median()
        findings[f"{name}-requests"] = Finding(float(n_requests), noise=0.0)
        findings[f"{name}-chain"] = Finding(float(n_waits))
        findings[f"{name}-s"] = Finding(float(part["open_s"].median()), unit="s")
    return findings


def list_claims(comparisons: Mapping[str, Comparison], rows: pd.DataFrame) -> dict[str, Claim]:
    """List what the pages say of the openings: that the options gain, and that requests wait once."""
    claims = {
        f"{key}s": Claim(comparison.verdict == "slower", of=key)
        for key, comparison in comparisons.items()
        if key in ("tree-gain", "coordinates-gain", "consolidated-gain")
    }
    chains = rows.groupby("contender")["n_waits"].median()
    if "tree-lazy" in chains:
        claims["one-wait"] = Claim(bool(chains["tree-lazy"] == 1), of="tree-lazy-chain")
    return claims


def draw_requests(ax: Axes, rows: pd.DataFrame, names: tuple[str, ...]) -> None:
    """Draw each request of an opening as a line from its beginning to its end, the first at the top.

    The rows are those of the first block, which keep when each request began and ended.
    """
    colors = (palette.RED, palette.BLUE, palette.BROWN)
    for name, color in zip(names, colors, strict=False):
        part = rows[(rows["contender"] == name) & rows["start_ms"].notna()]
        if part.empty:
            continue
        starts_s, ends_s = (np.array(part[key].iloc[0]) / 1e3 for key in ("start_ms", "end_ms"))
        numbers = np.arange(1, len(starts_s) + 1)
        noun = "request" if len(numbers) == 1 else "requests"
        label = f"{OPENINGS[name].label}: {len(numbers)} {noun}"
        ax.hlines(numbers, starts_s, ends_s, color=color, linewidth=1.6, label=label)
        ax.plot(ends_s[-1:], numbers[-1:], marker="o", markersize=4, color=color)
    ax.invert_yaxis()
    ax.set(xlabel="time since the opening began (s)", ylabel="request", xlim=(0, None))


def find_noise(rows: pd.DataFrame, control: str) -> float:
    """Compute the A/A ratio of the seconds to open, less 1; NaN where there is no second copy."""
    if control not in {*rows["contender"]}:
        return math.nan
    return statistics.noise_ratio(rows, control, value="open_s") - 1
