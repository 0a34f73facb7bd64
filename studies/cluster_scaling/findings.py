"""What a page of cluster scaling says in words: computed, formatted, glued."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from helpers.arrays.readers import READERS
from helpers.arrays.reads import CACHE_STATE, CACHE_STATE_BEFORE
from helpers.benchmark import ranking as rankings
from helpers.benchmark import statistics
from helpers.benchmark.record import read_published
from helpers.errors import UserError
from helpers.netem.profiles import Profile
from helpers.plotting.tables import describe_profile, digits, tell_interval, tell_measuring
from studies.cluster_scaling.prediction import MOST_SHARE

TODAY, OF_2020 = "zarr-s3fs", "zarr-s3fs-one-get"
"""s3fs at its defaults of today, and with one request for a chunk, as it was in 2020."""
NETCDF = "netcdf-fsspec"

TRACE_TOLERANCE = 1.1
"""Ratio of the most to the least up to which traces of contenders count as equal."""

Gains = Mapping[tuple[str, int, int], statistics.Gain]
"""The gain of a contender from a number of workers to the next, by these three."""

LIMITS = {
    "latency": "the time to the first byte",
    "stream": "the rate of one connection",
    "shared link": "the shared link",
    "request rate": "the rate of requests",
    "processors": "the processors",
    "tasks": "the task graph",
}
"""Bottlenecks, as prose calls them."""


def select_rows(rows: pd.DataFrame, *, n_workers: int) -> pd.DataFrame:
    """Choose the measured rows at a number of workers."""
    return rows[(rows["phase"] == "measured") & (rows["n_workers"] == n_workers)]


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
    limits = expected[expected["contender"] == best].set_index("n_workers")["limit"].map(LIMITS)
    ratios = measure_ratios(rows)
    top_rows = measured[measured["n_workers"] == most]
    described = {name: f"{reader.description} ({name})" for name, reader in READERS.items()}
    found = {
        "profile": describe_profile(profile),
        "best-contender": ranking.tell(),
        "best-reads": ranking.tell(described),
        "best-throughput": f"{digits(top['throughput_mb_per_s'].median())} MB/s",
        "best-share-of-ceiling": f"{digits(100 * top['share_of_ceiling'].median())} %",
        "ratio-best-to-s3fs": tell_ratio(ranking, TODAY),
        "ratio-best-to-s3fs-one-get": tell_ratio(ranking, OF_2020),
        "gain-one-get": tell_gain(top_rows, TODAY, OF_2020),
        "ratio-best-to-netcdf": tell_ratio(ranking, NETCDF),
        "ratio-zarr-to-netcdf": digits(ratios["ratio"].iloc[-1]) if len(ratios) else "not measured",
        "knee-workers": tell_knee(gains, best),
        "most-workers": str(most),
        "binding-limit": str(limits[most]),
        "scaling": tell_scaling(gains, best, limits),
        "limits-of-others": _tell_others(
            expected[expected["n_workers"] == most], best, dilation=measured["dilation"].iloc[0]
        ),
        "median-prediction-error": f"{digits(100 * errors['relative_error'].abs().median())} %",
        **tell_measuring(measured, statistics.noise_ratio(top_rows, "control")),
        "machine": tell_machine(measured),
        "least-gain": f"{statistics.WORTH:g}",
        "most-share": f"{100 * MOST_SHARE:g} %",
    }
    scaling = found["scaling"]
    share = f"{found['best-share-of-ceiling']} of what raw reads reach"
    lead = ranking.tell_lead(f"{found['best-throughput']} of array bytes, {share}")
    verdict = f"With {most} workers {lead} {scaling[:1].upper()}{scaling[1:]}."
    return found | {"verdict": verdict}


def tell_cores(rows: pd.DataFrame) -> str:
    """Say how many cores rows stand for, where time was dilated; else nothing."""
    dilation = float(rows["dilation"].iloc[0])
    n_cores = json.loads(rows["machine"].iloc[0])["n_cores"]
    return "" if dilation == 1 else f"as on {dilation * n_cores:g} cores"


def tell_machine(rows: pd.DataFrame) -> str:
    """Name the machine, and what it stands for where time was dilated."""
    machine = json.loads(rows["machine"].iloc[0])
    told = f"{machine['n_cores']} cores, {machine['cpu']}"
    if cores := tell_cores(rows):
        told += f"; {cores}, because time is dilated {rows['dilation'].iloc[0]:g} times"
    return told


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
            f" as the bottleneck there, and {limits[high]} at {high}"
        )
    if last.verdict == "grows":
        return (
            f"throughput still grows at {high} workers, the most measured: {step};"
            f" the model names {limits[high]} as the bottleneck there"
        )
    return (
        f"whether throughput still grows from {low} to {high} workers is undecided: {step};"
        f" the model names {limits[high]} as the bottleneck at {high}"
    )


def _tell_others(expected: pd.DataFrame, best: str, *, dilation: float) -> str:
    """Say how many of the other readers wait for this machine's processors, by the model."""
    others = expected[~expected["contender"].isin([best, "raw"])]
    n_bound, n = int((others["limit"] == "processors").sum()), len(others)
    whose = "this machine's processors"
    if dilation != 1:
        whose = f"processors {dilation:g} times as fast as this machine's"
    if not n_bound:
        return f"By the model none of the other readers is held up by {whose}."
    who = f"{n_bound} of the {n} other readers"
    if n_bound == n:
        who = "the only other reader" if n == 1 else f"all {n} other readers"
    beyond = ", so ratios to these are not those of a cloud" if dilation == 1 else ""
    return f"By the model {who} {'is' if n_bound == 1 else 'are'} held up by {whose}{beyond}."


def tell_ratio(ranking: rankings.Ranking, name: str) -> str:
    """Say by which factor the best is ahead, and whether the two can be told apart."""
    if name == ranking.best:
        return "1.0"
    if name not in ranking.others:
        return "not measured"
    found = ranking.others[name]
    told = "" if found.verdict == "slower" else " (cannot be told apart)"
    return f"{digits(found.ratio.centre)}{told}"


def tell_gain(rows: pd.DataFrame, slow: str, quick: str) -> str:
    """Say how many times as fast the second reader is as the first, paired in blocks."""
    if not {slow, quick} <= set(rows["contender"]):
        return "not measured"
    return tell_interval(statistics.paired_ratio(rows, slow, quick))


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
    """Compute our ratio of Zarr through s3fs to netCDF through a file object, paired in blocks.

    Of s3fs the way of 2020, one request for a chunk, where it was measured.
    """
    ours = OF_2020 if OF_2020 in set(rows["contender"]) else TODAY
    lines = []
    for n_threads, part in rows[rows["phase"] == "measured"].groupby("concurrency"):
        if {ours, NETCDF} <= set(part["contender"]):
            found = statistics.paired_ratio(part, NETCDF, ours)
            lines.append((n_threads, found.centre, found.low, found.high))
    return pd.DataFrame(lines, columns=["n_threads", "ratio", "low", "high"])


_COMPARED = ("codec", "concurrency", "cache_state", "array_nbytes")  # settings


class UnfairComparisonError(UserError):
    """Contenders differ in a setting that nobody declared."""


def compare_settings(df: pd.DataFrame, *, declared: Collection[str] = (), n_chunks: int = 0) -> str:
    """Refuse a comparison that mixes settings, or write its footnote.

    Contenders are compared at each point of the x-axis; the ceiling is not a
    contender, for it decodes nothing. A setting is what was asked: whether as
    many requests were in flight is what the trace saw. It is how a contender
    reads, so it is not refused, but where it differs the footnote says so.
    """
    if missing := [name for name in (*_COMPARED, "point") if name not in df]:
        raise UserError(f"rows: {', '.join(missing)} is in none; allowed: those of a record")
    if unknown := sorted({*declared} - {*_COMPARED}):
        raise UserError(f"declared: {', '.join(unknown)}; allowed: {', '.join(_COMPARED)}")
    rows = statistics.measured(df[~df["is_ceiling"]] if "is_ceiling" in df else df)
    rows = rows[rows["control_of"] == ""] if "control_of" in rows else rows
    rows = rows.replace({"cache_state": {CACHE_STATE_BEFORE: CACHE_STATE}})
    notes = [note for name in _COMPARED if (note := _mixture(rows, name))]
    unfair = [note for note in notes if note.split(":")[0] not in declared]
    if unfair:
        raise UnfairComparisonError(
            f"contenders differ in {'; '.join(unfair)}; make them equal or declare it"
        )
    told = [f"Not equal, by declaration: {'; '.join(notes)}."] if notes else []
    return " ".join([*told, *filter(None, [_compare_traces(rows, n_chunks)])])


def _compare_traces(rows: pd.DataFrame, n_chunks: int) -> str:
    """Say in what the traces of contenders differ, or that there are none."""
    if "trace" not in rows:
        return ""
    traced = _read_traces(rows, n_chunks)
    if traced.empty:
        return "Requests were not traced, so they are not compared."
    points = rows["point"]
    notes = [_scatter(traced[name], rows["contender"], points) for name in traced]
    told = "; ".join(note for note in notes if note)
    return f"Not equal, in the trace: {told}." if told else ""


def _read_traces(rows: pd.DataFrame, n_chunks: int) -> pd.DataFrame:
    """Tabulate what the trace saw of each row, in the words of the footnote."""
    trace = pd.DataFrame([json.loads(text) for text in rows["trace"]], index=rows.index)
    threads = rows["concurrency"]
    columns = {
        "requests a chunk" if n_chunks else "requests": rows["n_requests"] / (n_chunks or 1),
        "bytes over the wire over those stored": rows["wire_nbytes"] / rows["stored_nbytes"],
    }
    for name, word in (("mean", "on average"), ("max", "at most")):
        if f"{name}_in_flight" in trace:
            columns[f"requests in flight over threads, {word}"] = (
                trace[f"{name}_in_flight"] / threads
            )
    return pd.DataFrame(columns).dropna(axis="columns", how="all")


def _scatter(seen: pd.Series[float], contenders: pd.Series[str], points: pd.Series[str]) -> str:
    """Say which contender has how much, at the point where they differ most, if they do."""
    medians: Any = seen.groupby([points, contenders], sort=False).median().unstack()
    # of points at which they differ alike, the largest speaks
    places = sorted(map(str, medians.index), key=lambda p: [*json.loads(p).values()], reverse=True)
    spans = {p: medians.loc[p].max() / medians.loc[p].min() for p in places}
    point = max(places, key=lambda p: spans[p] if spans[p] > 0 else 0)
    if not spans[point] > TRACE_TOLERANCE:
        return ""
    found = medians.loc[point].dropna().sort_values().map("{:.2g}".format)
    told = ", ".join(
        f"{value} ({', '.join(found.index[found == value])})" for value in dict.fromkeys(found)
    )
    place = ", ".join(f"{name} {value}" for name, value in json.loads(point).items())
    return f"{seen.name}: {told}, at {place}"


def _mixture(rows: pd.DataFrame, name: str) -> str:
    """Say which contender has which value, if they differ at any point."""
    for _, part in rows.groupby("point", sort=False):
        if part[name].nunique(dropna=False) > 1:
            told = part.groupby(name, dropna=False, sort=False)["contender"].unique()
            return f"{name}: " + ", ".join(
                f"{value} ({', '.join(who)})" for value, who in told.items()
            )
    return ""
