"""What a page of cluster scaling finds, as numbers and frames."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from helpers.arrays.stores import StoredArray
from helpers.benchmark import statistics
from helpers.benchmark.record import read_published
from helpers.benchmark.statistics import Comparison, Interval
from helpers.findings import Finding, as_finding
from helpers.plotting.tables import trace_of
from wire.errors import UserError
from wire.models import WORTH
from wire.scaling import fit_curve

TODAY, OF_2020 = "zarr-s3fs", "zarr-s3fs-one-get"
"""s3fs at its defaults of today, and with one request for a chunk, as it was in 2020."""
NETCDF, OBSTORE = "netcdf-fsspec", "zarr-obstore"

LIMITS = {
    "latency": "latency",
    "stream": "bandwidth of a connection",
    "shared link": "shared bandwidth",
    "request rate": "request rate",
    "processors": "CPUs",
}
"""Bottlenecks, as prose calls them."""


def take_steps(stored: StoredArray, n_steps: int) -> StoredArray:
    """Take the first steps of an array along its first dimension, as whole chunks."""
    share = n_steps / stored.shape[0]
    return dataclasses.replace(
        stored,
        shape=(n_steps, *stored.shape[1:]),
        checksums=stored.checksums[: -(-n_steps // stored.chunk_shape[0])],
        stored_nbytes={name: int(share * nbytes) for name, nbytes in stored.stored_nbytes.items()},
    )


def describe_array(stored: StoredArray) -> pd.DataFrame:
    """Tabulate the layouts of an array: bytes in the store and ratio of compression."""
    sizes = {k: v for k, v in stored.stored_nbytes.items() if k != "references"}  # without values
    table = pd.DataFrame({"stored_mb": pd.Series(sizes) / 1e6}).rename_axis("layout")
    table.insert(0, "array_mb", stored.nbytes / 1e6)
    return table.assign(ratio=table["array_mb"] / table["stored_mb"], n_chunks=stored.n_chunks)


def check_fair(rows: pd.DataFrame) -> None:
    """Refuse rows of contenders that differ, at one point, in what a comparison holds equal."""
    compared = statistics.measured(rows[~rows["is_ceiling"].astype(bool)])
    for name in ("codec", "concurrency", "cache_state", "array_nbytes"):
        for point, part in compared.groupby("point"):
            if part[name].nunique(dropna=False) > 1:
                values = ", ".join(sorted(map(str, part[name].unique())))
                raise UserError(name, f"{values} at {point}", "the same of all contenders")


def find_knee(gains: Mapping[tuple[str, int, int], Comparison], contender: str) -> int | None:
    """Find the number of workers from which on no step gains; None where that is not shown.

    Only steps that were judged to gain nothing count, up to the most workers measured.
    """
    knee = None
    steps = sorted((low, gain) for (name, low, _), gain in gains.items() if name == contender)
    for low, gain in reversed(steps):
        if gain.verdict not in ("ended", "falls"):
            break
        knee = low
    return knee


BUSY_ABOVE = 50.0
"""Percent of this machine's processors above which a point shows them as well as the network."""


def measure_busy(rows: pd.DataFrame) -> pd.Series:
    """Compute the percent of this machine's processors that were busy, by contender and workers.

    Medians of the seconds that all processors were busy, over their number and the real seconds of
    opening and reading; server and proxy are among what keeps them busy. NaN where it was not counted.
    """
    rows = statistics.measured(rows)
    real_s = rows["real_open_s"] + rows["real_read_s"]
    cores = [json.loads(machine)["n_cores"] for machine in rows["machine"]]
    share = 100 * trace_of(rows).get("busy_s", np.nan) / (real_s * cores)
    return (
        share.groupby([rows["contender"], rows["n_workers"]]).median().rename("processors busy (%)")
    )


def judge_gain(ratio: Interval, noise: float) -> Comparison:
    """Give the verdict on a gain: that growth ended has to be shown, and is no lack of proof."""
    comparison = statistics.judge(ratio, noise)
    if comparison.verdict != "indistinguishable":
        return dataclasses.replace(comparison, verdict="falls" if ratio.centre < 1 else "grows")
    if ratio.high < WORTH and not math.isnan(noise):
        return dataclasses.replace(comparison, verdict="ended")
    return dataclasses.replace(comparison, verdict="undecided")


def compare_points(
    df: pd.DataFrame,
    contender: str,
    from_point: float,
    to_point: float,
    *,
    control: str,
    x: str = "n_workers",
    value: str = "read_s",
    n_compared: int = 1,
) -> Comparison:
    """Judge what a contender gains from one point to another, as from 4 to 8 workers.

    The A/A noise is that of `control`, a second copy of a contender, at the last
    point where it was measured; `n_compared` is as in `paired_ratio`.
    """
    rows = df[df["contender"] == contender]
    ratio = statistics.paired_ratio(
        rows, from_point, to_point, column=x, value=value, n_compared=n_compared
    )
    last = df.loc[df["contender"] == control, x].max()
    noise = statistics.noise_ratio(df[df[x] == last], control, value=value)
    return judge_gain(ratio, noise)


def compare_gain(rows: pd.DataFrame, name: str, *, control: str) -> Comparison:
    """Judge how many times as fast a reader is as s3fs at its defaults of today.

    The ratio is the time of the defaults over that of the reader; the verdict is the reader's.
    """
    gain = statistics.compare_contenders(rows, TODAY, name, control=control, value="s_per_gb")
    turned: dict[str, statistics.Verdict] = {"slower": "faster", "faster": "slower"}
    return dataclasses.replace(gain, verdict=turned.get(gain.verdict, gain.verdict))


def compare_growth(rows: pd.DataFrame, name: str, fewest: int, most: int) -> Interval:
    """Compute the growth of a reader over that of raw reads, from the fewest workers to the most.

    `rows` have the share of the ceiling, as `statistics.add_throughputs` computes it in each block.
    """
    part = rows[rows["contender"] == name]
    growth = statistics.paired_ratio(
        part, most, fewest, column="n_workers", value="share_of_ceiling"
    )
    return dataclasses.replace(growth, quantity=f"growth of {name} over that of raw reads")


def find_growth(
    rows: pd.DataFrame, name: str, fewest: int, most: int, *, control: str
) -> dict[str, Finding]:
    """Find the growth of raw reads, and that of a reader over it; the noise is that of `control`."""
    ceiling = compare_points(rows, "raw", fewest, most, control=control, value="s_per_gb")
    over_ceiling = compare_growth(rows, name, fewest, most)
    return {"growth-ceiling": as_finding(ceiling), "growth-over-ceiling": as_finding(over_ceiling)}


def tabulate_fit(
    rows: pd.DataFrame, n_chunks: Mapping[int, int], *, slots: int, sizes: list[int]
) -> pd.DataFrame:
    """Fit a law to the reads of one contender, and tabulate its seconds at some sizes of cluster.

    The only column says why where the runs of the record tell no law.
    """
    points = rows["n_workers"].tolist(), rows["read_s"].tolist()
    chunks = [n_chunks[n] for n in rows["n_workers"]]
    try:
        fit = fit_curve(*points, chunks, slots)
    except UserError as refusal:
        return pd.DataFrame({"no law can be told": [str(refusal)]}, index=["why"])
    table = pd.DataFrame(fit.predict(sizes), index=pd.Index(sizes, name="n_workers"))
    heads = {"value": "middle (s)", "low": "90 % of runs from (s)", "high": "to (s)"}
    return table.rename(columns=heads)


def tabulate_requests(rows: pd.DataFrame, *, n_chunks: int) -> pd.DataFrame:
    """Tabulate what the trace says of each contender in rows of one point."""
    trace = trace_of(rows)
    if "mean_in_flight" not in trace:
        return pd.DataFrame(columns=["not traced"])
    table = pd.DataFrame(
        {
            "reader": rows["contender"],
            "requests a chunk": rows["n_requests"] / n_chunks,
            "wire over stored bytes": rows["wire_nbytes"] / rows["stored_nbytes"],
            "requests to open": trace["n_open_requests"],
            "in flight a thread": trace["mean_in_flight"] / rows["concurrency"],
            "most in flight a thread": trace["max_in_flight"] / rows["concurrency"],
        }
    )
    return table.groupby("reader").median()


def measure_ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute ratios of Zarr through s3fs, one request a chunk, to netCDF, and the published ones.

    Both are by threads. The published ones are of the figure of 2020 on Google Cloud Storage,
    median over median; ours are paired in blocks.
    """
    points = read_published("abernathey2020_figure_digitised")
    medians = points.groupby(["panel", "ncores"])["throughput_mb_per_s"].median()
    ratios = (medians["GCS Zarr"] / medians["GCS NetCDF"]).dropna()
    lines: list[tuple[Any, ...]] = [
        ("published, 2020", *item, None, None) for item in ratios.items()
    ]
    for n, part in statistics.measured(rows).groupby("concurrency"):
        if {OF_2020, NETCDF} <= {*part["contender"]}:
            ratio: Interval = statistics.paired_ratio(part, NETCDF, OF_2020)
            lines.append(("here", n, ratio.centre, ratio.low, ratio.high))
    return pd.DataFrame(lines, columns=["where", "threads", "ratio", "low", "high"])
