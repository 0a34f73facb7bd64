"""The study of NSIDC as it was made: fsspec and ROS3, five layouts, default and tuned, and its figure."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from helpers.benchmark import statistics
from helpers.benchmark.record import read_published
from helpers.findings import Claim, Finding, as_finding
from helpers.plotting.figures import number_axis
from helpers.plotting.palette import CHARCOAL, find_style
from helpers.plotting.tables import trace_of
from studies.hdf5_drivers.files import LAYOUT_LABELS
from studies.hdf5_drivers.findings import measured, select_reads

LAYOUTS: Mapping[str, str] = {
    "original": "original",
    "paged-4mib": "page-only-4mb",
    "paged-8mib": "page-only-8mb",
    "rechunked-4mib": "rechunked-4mb",
    "rechunked-8mib": "rechunked-8mb",
}
"""Our layouts, in the order of the study's figure, and how it calls them."""

BASELINE = "fsspec-none on original"
AS_PUBLISHED = ("fsspec-none", "fsspec-tuned", "ros3-none", "ros3-tuned")
TODAY = ("fsspec-readahead", "earthaccess", "ros3", "ros3-blocks")

AT_EQUAL: Mapping[str, tuple[str, str]] = {
    "no cache": ("fsspec-none", "ros3-none"),
    "equal caches": ("fsspec-tuned", "ros3-blocks"),
    "tuned as published": ("fsspec-tuned", "ros3-tuned"),
    "defaults": ("fsspec-readahead", "ros3"),
    "earthaccess": ("earthaccess", "ros3"),
}
"""Settings at which the two drivers are compared, fsspec first."""


def read_study() -> pd.DataFrame:
    """Read what was published of the granule: `driver`, `layout`, and `over`, the baseline's time being 1.

    Of two rows the second is tuned, though the source does not mark it so for the original.
    """
    rows = read_published("hdf5_driver_access_times")
    rows = rows[rows["file_set"] == "h5py-atl03-benchmarks.csv"]
    is_tuned = rows.duplicated(["driver", "format"])
    names = rows["driver"] + np.where(is_tuned, "-tuned", "-none")
    layout = rows["format"].map(
        {published_layout: layout_here for layout_here, published_layout in LAYOUTS.items()}
    )
    times = pd.DataFrame({"driver": names, "layout": layout, "over": rows["time_s"]})
    base_s = times.set_index(["driver", "layout"])["over"][*BASELINE.split(" on ")]
    return times.assign(over=times["over"] / base_s)


def scale(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute each time over that of the baseline in its block: medians, `driver`, `layout`, `over`."""
    part = measured(rows)
    base_s = part[part["read"] == BASELINE].set_index("block")["total_s"]
    part = part.assign(over=part["total_s"] / part["block"].map(base_s))
    medians = part.groupby(["contender", "layout"], sort=False)["over"].median()
    return medians.reset_index().rename(columns={"contender": "driver"})


def draw_bars(
    ax: Axes, measured_times: pd.DataFrame, drivers: tuple[str, ...], published_times: pd.DataFrame
) -> None:
    """Draw bars by layout and driver on a logarithmic axis, published points hollow, the baseline as a line."""
    width = 0.8 / len(drivers)
    for place, driver in enumerate(drivers):
        style = find_style(driver, "driver")
        looks: dict[str, Any] = {"color": style.color, "alpha": 1 - 0.4 * (place % 2)}
        for frame in (measured_times, published_times):
            part = frame[frame["driver"] == driver].set_index("layout")["over"]
            x = [[*LAYOUTS].index(layout) + (place - 1.5) * width for layout in part.index]
            if frame is measured_times:
                ax.bar(x, part, width, label=style.label, **looks)
            else:
                ax.plot(x, part, "D", markersize=5, markerfacecolor="white", color=CHARCOAL)
    ax.axhline(1, color=CHARCOAL, linewidth=1)
    ax.set_xticks(range(len(LAYOUTS)), [fill(LAYOUT_LABELS[name], 13) for name in LAYOUTS])
    ax.set(yscale="log", ylabel="time over the baseline")
    number_axis(ax.yaxis)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def compare_drivers(rows: pd.DataFrame) -> dict[tuple[str, str], Finding]:
    """Compute the time of fsspec over that of ROS3 by setting and layout, where both were measured."""
    reads, findings = select_reads(rows), {}
    for setting, drivers in AT_EQUAL.items():
        for layout in LAYOUTS:
            a, b = (f"{driver} on {layout}" for driver in drivers)
            if {a, b} <= {*reads["contender"]}:
                comparison = statistics.compare_contenders(
                    reads, a, b, control="control", value="total_s"
                )
                findings[setting, layout] = as_finding(comparison)
    return findings


def tabulate(findings: Mapping[tuple[str, str], Finding]) -> pd.DataFrame:
    """Tabulate ratios with their intervals; the verdict is of fsspec."""
    cells = [
        (finding.value, finding.low, finding.high, finding.verdict) for finding in findings.values()
    ]
    index = (
        pd.MultiIndex.from_tuples([*findings], names=["setting", "layout"]) if findings else None
    )
    return pd.DataFrame(cells, index, ["fsspec over ROS3", "low", "high", "fsspec is"])


GAINS: Mapping[str, tuple[str, str]] = {
    "gain-fsspec": (BASELINE, "fsspec-tuned on paged-8mib"),
    "gain-ros3": ("ros3-none on original", "ros3-tuned on rechunked-8mib"),
    "ros3-over-fsspec": ("fsspec-tuned on paged-8mib", "ros3-tuned on rechunked-8mib"),
    "paged-alone": ("fsspec-none on paged-4mib", BASELINE),
    "default-since-fsspec": (BASELINE, "fsspec-readahead on original"),
    "default-since-ros3": ("ros3-none on original", "ros3 on original"),
}
"""Reads whose ratio the study gives, each driver at its best, and what defaults changed since."""


def find_all(rows: pd.DataFrame) -> dict[str, Finding]:
    """Find the ratios of the drivers, gains of each, and their requests, as far as measured."""
    reads, part = select_reads(rows), measured(rows)
    names = {*part["read"]}
    ratios = {"-".join(key): finding for key, finding in compare_drivers(rows).items()}
    findings = {key.replace(" ", "-"): finding for key, finding in ratios.items()}
    for key, pair in GAINS.items():
        if {*pair} <= names:
            findings[key] = as_finding(
                statistics.compare_contenders(reads, *pair, control="control", value="total_s")
            )
    requests = trace_of(part)["all_requests"].groupby(part["read"]).median()
    for name, read in {"fsspec": BASELINE, "ROS3": "ros3-none on original"}.items():
        if read in names:
            quantity = f"requests seen of {name}"
            findings[f"requests-{name.lower()}"] = Finding(requests[read], quantity=quantity)
    return findings


def judge_claims(findings: Mapping[str, Finding]) -> dict[str, Claim]:
    """Judge what the page says, as far as the reads that it is about are there."""
    counts = ("requests-ros3", "requests-fsspec")
    ratios = ("equal-caches-original", "equal-caches-rechunked-8mib", "defaults-original")
    claims = {}
    if {*counts} <= {*findings}:
        over = findings["requests-ros3"].value / findings["requests-fsspec"].value
        claims["same-requests"] = Claim(abs(over - 1) < 0.05, of=counts)
    if {*ratios} <= {*findings}:
        holds = all(findings[key].verdict != "faster" for key in ratios)
        claims["ros3-no-slower"] = Claim(holds, of=ratios)
    if "paged-alone" in findings:
        claims["pages-alone-gain-nothing"] = Claim(
            findings["paged-alone"].value > 0.9, of="paged-alone"
        )
    return claims
