"""What a page of cluster scaling says in words: computed, formatted, glued."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from helpers.arrays.readers import READERS
from helpers.benchmark import ranking as rankings
from helpers.benchmark import statistics
from helpers.benchmark.study import read_published
from helpers.netem.profiles import Profile
from helpers.plotting.palette import AXIS, RULE, THEIRS_GREY, find_look
from helpers.plotting.tables import describe_profile, digits

_2020 = "zarr-s3fs"
_NETCDF = "netcdf-fsspec"

Gains = Mapping[tuple[str, int, int], statistics.Gain]
"""The gain of a contender from a number of workers to the next, by these three."""

_LIMITS = {
    "latency": "the time to the first byte",
    "stream": "the rate of one connection",
    "aggregate": "the shared link",
    "request rate": "the rate of requests",
    "processors": "the processors",
    "tasks": "the task graph",
}
"""What binds, as prose calls it."""


def select_readers(rows: pd.DataFrame, *, n_workers: int) -> pd.DataFrame:
    """Choose the measured rows of the readers and of the control at a number of workers."""
    part = rows[(rows["phase"] == "measured") & (rows["n_workers"] == n_workers)]
    return part[~part["is_ceiling"]]


def find_all(
    rows: pd.DataFrame,
    expected: pd.DataFrame,
    errors: pd.DataFrame,
    ranking: rankings.Ranking,
    gains: Gains,
    *,
    profile: Profile,
) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them.

    What is said of the best is said of the reader with the shortest median; that it is the
    fastest, or among them, is the ranking's word.
    """
    measured, best = rows[rows["phase"] == "measured"], ranking.best
    most = int(measured["n_workers"].max())
    top = measured[(measured["contender"] == best) & (measured["n_workers"] == most)]
    limits = expected[expected["contender"] == best].set_index("n_workers")["limit"].map(_LIMITS)
    ratios = measure_ratios(rows)
    control = measured[measured["n_workers"] == most]
    machine = json.loads(measured["machine"].iloc[0])
    described = {name: f"{reader.description} ({name})" for name, reader in READERS.items()}
    return {
        "profile": describe_profile(profile),
        "best-contender": ranking.tell(),
        "best-reads": ranking.tell(described),
        "best-throughput": f"{digits(top['throughput_mb_per_s'].median())} MB/s",
        "best-share-of-ceiling": f"{digits(100 * top['share_of_ceiling'].median())} %",
        "ratio-best-to-s3fs": tell_ratio(ranking, _2020),
        "ratio-best-to-netcdf": tell_ratio(ranking, _NETCDF),
        "ratio-zarr-to-netcdf": digits(ratios["ratio"].iloc[-1]) if len(ratios) else "not measured",
        "knee-workers": tell_knee(gains, best),
        "most-workers": str(most),
        "bottleneck": str(limits[most]),
        "scaling": tell_scaling(gains, best, limits),
        "limits-of-others": _tell_others(expected[expected["n_workers"] == most], best),
        "median-prediction-error": f"{digits(100 * errors['relative_error'].abs().median())} %",
        "aa-noise": f"{digits(100 * (statistics.noise_ratio(control, 'control') - 1))} %",
        "n-blocks": str(measured["block"].nunique()),
        "machine": f"{machine['n_cores']} cores, {machine['cpu']}",
    }


def _steps_of(gains: Gains, contender: str) -> list[tuple[int, int, statistics.Gain]]:
    """List the steps of a contender in the order of workers."""
    return sorted(
        ((low, high, gain) for (name, low, high), gain in gains.items() if name == contender),
        key=lambda step: step[0],
    )


def find_knee(gains: Gains, contender: str) -> int | None:
    """Find the number of workers from which on no step gains; None where that is not shown.

    Only steps that were judged to gain nothing count, up to the most workers measured.
    """
    knee = None
    for low, _, gain in reversed(_steps_of(gains, contender)):
        if gain.verdict not in ("ended", "falls"):
            break
        knee = low
    return knee


def tell_knee(gains: Gains, contender: str) -> str:
    """Say at how many workers growth ended, that it did not, or that it is undecided."""
    steps = _steps_of(gains, contender)
    if not steps:
        return "not measured"
    knee, (low, high, last) = find_knee(gains, contender), steps[-1]
    if knee is not None:
        return str(knee)
    return f"none up to {high}" if last.verdict == "grows" else f"undecided from {low} on"


def tell_scaling(gains: Gains, contender: str, limits: pd.Series[str]) -> str:
    """Say whether throughput still grows, where growth ended, or that it is undecided."""
    steps = _steps_of(gains, contender)
    if not steps:
        return "one size of the cluster was measured, so growth was not"
    knee, (low, high, last) = find_knee(gains, contender), steps[-1]
    ratio = last.ratio
    ends = f" ({digits(ratio.low, n=3)} to {digits(ratio.high, n=3)})" if ratio.n > 1 else ""
    step = f"{high} workers read {digits(ratio.centre, n=3)} times as fast as {low}{ends}"
    if knee is not None:
        return (
            f"growth ends at {knee} workers: {step}; the model names {limits[knee]}"
            f" as what binds there, and {limits[high]} at {high}"
        )
    if last.verdict == "grows":
        return (
            f"throughput still grows at {high} workers, the most measured: {step};"
            f" the model names {limits[high]} as what binds there"
        )
    return (
        f"whether throughput still grows from {low} to {high} workers is undecided: {step};"
        f" the model names {limits[high]} as what binds at {high}"
    )


def _tell_others(expected: pd.DataFrame, best: str) -> str:
    """Say how many of the other readers wait for this machine's processors, by the model."""
    others = expected[~expected["contender"].isin([best, "raw"])]
    n_bound = int((others["limit"] == "processors").sum())
    if not n_bound:
        return "By the model none of the other readers is held up by this machine's processors."
    return (
        f"By the model {n_bound} of the {len(others)} other readers are held up by this machine's processors,"
        " so ratios to these are not those of a cloud."
    )


def tell_ratio(ranking: rankings.Ranking, name: str) -> str:
    """Say by which factor the best is ahead, and whether the two can be told apart."""
    if name == ranking.best:
        return "1.0"
    if name not in ranking.others:
        return "not measured"
    found = ranking.others[name]
    told = "" if found.verdict == "slower" else " (cannot be told apart)"
    return f"{digits(found.ratio.centre)}{told}"


def read_published_ratios() -> pd.DataFrame:
    """Compute the published ratio of Zarr to netCDF on Google Cloud Storage.

    Points of the figure of 2020 at the same number of threads, median over
    median: `n_threads` and `ratio`.
    """
    points = read_published("abernathey2020_figure_digitised")
    panels = points[points["panel"].isin(["GCS Zarr", "GCS NetCDF"])]
    medians = panels.pivot_table(
        index="ncores", columns="panel", values="throughput_mb_per_s", aggfunc="median"
    )
    ratio = (medians["GCS Zarr"] / medians["GCS NetCDF"]).dropna()
    return pd.DataFrame({"n_threads": ratio.index, "ratio": ratio.to_numpy()})


def measure_ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """Compute our ratio of Zarr through s3fs to netCDF through a file object, paired in blocks."""
    lines = []
    for n_threads, part in rows[rows["phase"] == "measured"].groupby("concurrency"):
        if {_2020, _NETCDF} <= set(part["contender"]):
            found = statistics.paired_ratio(part, _NETCDF, _2020)
            lines.append((n_threads, found.centre, found.low, found.high))
    return pd.DataFrame(lines, columns=["n_threads", "ratio", "low", "high"])


def draw_published(ax: Axes, published: pd.DataFrame, ours: pd.DataFrame) -> None:
    """Draw the published ratios of Zarr to netCDF and ours on logarithmic axes."""
    look = find_look(_NETCDF, "reader")
    ax.plot(published["n_threads"], published["ratio"], "o", color=THEIRS_GREY, alpha=0.8)
    spread = [ours["ratio"] - ours["low"], ours["high"] - ours["ratio"]]
    ax.errorbar(ours["n_threads"], ours["ratio"], spread, fmt=look.marker, color=look.color)
    ax.axhline(10, color=RULE, linewidth=0.8)
    most = max(10.0, *published["ratio"], *ours["ratio"])
    ticks = sorted({*published["n_threads"], *ours["n_threads"]})
    ax.set(xscale="log", xlabel="threads", ylabel="Zarr over netCDF (ratio)", ylim=(0, 1.2 * most))
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()
    ax.annotate("tenfold", (ticks[0], 10), xytext=(0, 3), textcoords="offset points", color=AXIS)
    for table, text, color in (
        (published, "published, 2020", AXIS),
        (ours, "here", look.color),
    ):
        if len(table):
            first = table.iloc[0]
            at = (first["n_threads"], first["ratio"])
            ax.annotate(text, at, xytext=(6, 8), textcoords="offset points", color=color)
