"""What a page of cluster scaling says in words: computed, formatted, glued."""

from __future__ import annotations

import json

import pandas as pd
from matplotlib.axes import Axes

from helpers.measurement import statistics
from helpers.measurement.figures import find_look
from helpers.measurement.looks import AXIS, RULE, THEIRS_GREY
from helpers.storage.formats import READERS
from helpers.storage.network import Profile
from helpers.study import describe_profile, digits, read_published

_2020 = "zarr-s3fs"
_NETCDF = "netcdf-fsspec"

_LIMITS = {
    "latency": "the time to the first byte",
    "stream": "the rate of one connection",
    "aggregate": "the shared link",
    "request rate": "the rate of requests",
    "processors": "the processors",
    "tasks": "the task graph",
}
"""What binds, as prose calls it."""


def best_contender(rows: pd.DataFrame, *, n_workers: int) -> str:
    """Name the contender with the shortest median read at a number of workers."""
    part = rows[(rows["phase"] == "measured") & (rows["n_workers"] == n_workers)]
    part = part[~part["is_ceiling"] & (part["control_of"] == "")]
    return str(part.groupby("contender")["read_s"].median().idxmin())


def judge_all(rows: pd.DataFrame, best: str, *, n_workers: int) -> pd.DataFrame:
    """Compare each contender with the best: time ratio, interval, noise and verdict.

    One is faster or slower where the interval excludes 1 and the ratio lies outside the noise.
    """
    part = rows[(rows["phase"] == "measured") & (rows["n_workers"] == n_workers)]
    names = part.loc[~part["is_ceiling"] & (part["control_of"] == ""), "contender"].unique()
    lines = {}
    for name in names:
        if name != best:
            found = statistics.compare(part, name, best, control="control")
            ratio = found.ratio
            lines[name] = (ratio.centre, ratio.low, ratio.high, found.noise, found.verdict)
    columns = [f"time over {best}", "low", "high", "A/A noise", "verdict"]
    table = pd.DataFrame.from_dict(lines, orient="index", columns=columns)
    return table.sort_values(columns[0]).round(3).rename_axis("contender")


def find_knee(rows: pd.DataFrame, contender: str) -> int:
    """Find the smallest number of workers whose interval reaches the throughput of the most."""
    part = rows[rows["contender"] == contender]
    found = statistics.summarise(part, ["n_workers"], value="throughput_mb_per_s").sort_values(
        "n_workers"
    )
    most = found.iloc[-1]
    reached = found[found["high"].fillna(found["median"]) >= most[["low", "median"]].min()]
    return int(reached["n_workers"].min())


def find_all(
    rows: pd.DataFrame,
    expected: pd.DataFrame,
    errors: pd.DataFrame,
    verdicts: pd.DataFrame,
    *,
    best: str,
    profile: Profile,
) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them."""
    measured = rows[rows["phase"] == "measured"]
    most = int(measured["n_workers"].max())
    top = measured[(measured["contender"] == best) & (measured["n_workers"] == most)]
    knee = find_knee(measured, best)
    limits = expected[expected["contender"] == best].set_index("n_workers")["limit"].map(_LIMITS)
    ratios = measure_ratios(rows)
    control = measured[measured["n_workers"] == most]
    machine = json.loads(measured["machine"].iloc[0])
    times = verdicts[f"time over {best}"]
    return {
        "profile": describe_profile(profile),
        "best-contender": best,
        "best-reads": f"{READERS[best].description} ({best})",
        "best-throughput": f"{digits(top['throughput_mb_per_s'].median())} MB/s",
        "best-share-of-ceiling": f"{digits(100 * top['share_of_ceiling'].median())} %",
        "ratio-best-to-s3fs": _ratio(times, _2020, best),
        "ratio-best-to-netcdf": _ratio(times, _NETCDF, best),
        "ratio-zarr-to-netcdf": digits(ratios["ratio"].iloc[-1]) if len(ratios) else "not measured",
        "knee-workers": str(knee) if knee < most else f"none up to {most}",
        "most-workers": str(most),
        "binding-limit": str(limits[most]),
        "scaling": _tell_scaling(knee, most, limits),
        "limits-of-others": _tell_others(expected[expected["n_workers"] == most], best),
        "median-prediction-error": f"{digits(100 * errors['relative_error'].abs().median())} %",
        "aa-noise": f"{digits(100 * (statistics.noise_ratio(control, 'control') - 1))} %",
        "n-blocks": str(measured["block"].nunique()),
        "machine": f"{machine['n_cores']} cores, {machine['cpu']}",
    }


def _tell_scaling(knee: int, most: int, limits: pd.Series[str]) -> str:
    """Say where growth ends, if it does, and what binds there by the model."""
    if knee == most:
        return f"throughput still grows at {most} workers, the most measured, where the model names {limits[most]} as what binds"
    return f"more than {knee} workers gain less than can be told apart; the model names {limits[knee]} as what binds there, and {limits[most]} at {most}"


def _tell_others(expected: pd.DataFrame, best: str) -> str:
    """Say how many of the slower readers wait for this machine's processors, by the model."""
    others = expected[~expected["contender"].isin([best, "raw"])]
    n_bound = int((others["limit"] == "processors").sum())
    if not n_bound:
        return "By the model none of the other readers is held up by this machine's processors."
    return (
        f"By the model {n_bound} of the {len(others)} other readers are held up by this machine's processors,"
        " so ratios to these are not those of a cloud."
    )


def _ratio(times: pd.Series[float], name: str, best: str) -> str:
    if name == best:
        return "1.0"
    return digits(times[name]) if name in times else "not measured"


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
