"""What a page of the acceptance thresholds says: ratios by key, in numbers and in words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import nbformat
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from helpers.benchmark import statistics
from helpers.benchmark.statistics import Interval
from helpers.book import cases as runner
from helpers.book.studies import Study, Threshold, find_studies, write_table
from helpers.netem.profiles import get_profile
from helpers.paths import ROOT
from helpers.plotting import palette, tables
from helpers.plotting.figures import label_ends, number_axis
from helpers.plotting.tables import digits, tell_interval
from studies.acceptance import STUDY
from studies.acceptance.workload import (
    A_TASK_A_CHUNK,
    ALONE,
    BATCHED,
    BEST,
    DECODED,
    DIRECT,
    GROWTH,
    NETCDF,
    OF_2020,
    RECEIVED,
    TODAY,
    Way,
)

Read = tuple[str, str]
"""Part and contender."""

RATIOS: Mapping[str, tuple[Read, Read]] = {
    "proxy-throughput": (("proxy", "direct"), ("proxy", "through the proxy")),
    "share-of-ceiling": (("ceiling", "raw"), ("ceiling", BEST)),
    "free-share": (("decoding", "raw"), ("decoding", BEST)),
    "share-of-decoding": (("decoding", ALONE), ("decoding", BEST)),
    "gain-in-place": (("decoding", BATCHED), ("decoding", BEST)),
    "gain-direct": (("read-path", BEST), ("read-path", DIRECT)),
    **{
        f"over-{whose}-{size}": ((f"2020-{size}", name), (f"2020-{size}", BEST))
        for size in ("small", "medium", "large")
        for whose, name in (("2020", OF_2020), ("today", TODAY))
    },
    "over-netcdf": (("netcdf", NETCDF), ("netcdf", BEST)),
    "over-read-ahead": (("netcdf", f"{NETCDF}-5mib"), ("netcdf", BEST)),
    "over-default-read-ahead": (("netcdf", f"{NETCDF}-50mib"), ("netcdf", BEST)),
    "growth-time": ((f"growth-{GROWTH}", BEST), ("growth-1", BEST)),
}
"""Time of the first over time of the second, by the key of the threshold.

Where both read the same bytes, that is the throughput of the second over that of the first.
"""

_SLOPES = {"ms-per-chunk": A_TASK_A_CHUNK, "ms-per-batched": BEST}


def select(rows: pd.DataFrame, read: Read) -> pd.DataFrame:
    """Choose the measured rows of a contender in a part, its copy left out."""
    part, name = read
    found = statistics.measured(rows)
    return found[(found["part"] == part) & (found["contender"] == name)]


def list_pairs(rows: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """List the pairs of reads that were measured, by the key of their threshold."""
    pairs = {
        key: (select(rows, over), select(rows, under)) for key, (over, under) in RATIOS.items()
    }
    return {key: pair for key, pair in pairs.items() if not (pair[0].empty or pair[1].empty)}


def expect(ways: list[Way]) -> pd.DataFrame:
    """Compute the least time of each read over an emulated network.

    One median wait for a first byte, and the bytes at the rate of all
    connections together or of as many as read: no reader can be faster.
    NaN where no network is emulated.
    """
    lines = []
    for way in ways:
        profile, mb = get_profile(way.profile), way.steps.nbytes()[1] / 1e6
        first_s = profile.first_byte_s.median_s if profile.first_byte_s else 0.0
        streams = profile.stream_mb_per_s and way.concurrency * profile.stream_mb_per_s
        rate = min((r for r in (streams, profile.aggregate_mb_per_s) if r), default=np.inf)
        least_s = first_s + mb / rate
        lines.append((way.part, way.name, mb, least_s if least_s else np.nan))
    return pd.DataFrame(lines, columns=["part", "contender", "stored_mb", "least_s"])


def tabulate(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate every part: median times, share of the ceiling, and what the trace counts.

    A share is the lead that the link leaves: over a reader at half of the
    ceiling, no other can lead by more than two.
    """
    measured = statistics.measured(rows)
    trace = tables.trace_of(measured)
    told = measured.assign(
        over_read=measured["wire_nbytes"] / measured["stored_nbytes"],
        requests_per_chunk=measured["n_requests"] / measured["n_chunks"].replace(0, np.nan),
        in_flight=trace.get("mean_in_flight", np.nan),
        most_chunks=measured.groupby("part")["n_chunks"].transform("max"),
        median_s=measured.groupby(["part", "contender"])["read_s"].transform("median"),
    ).sort_values(["most_chunks", "part", "median_s"], kind="stable")
    columns = ["read_s", "share_of_ceiling", "over_read", "requests_per_chunk", "in_flight"]
    return told.groupby(["part", "contender"], sort=False)[columns].median()


def share_in_turn(rows: pd.DataFrame) -> str:
    """Compute what share of decoding alone it would reach to read raw and then decode; or nothing."""
    alone, raw = (select(rows, ("decoding", name))["read_s"] for name in (ALONE, "raw"))
    if alone.empty or raw.empty:
        return ""
    return digits(float(alone.median() / (alone.median() + raw.median())))


def tell_in_turn(rows: pd.DataFrame) -> str:
    """Say it in a sentence, where it was measured."""
    if not (share := share_in_turn(rows)):
        return ""
    return (
        f"Read raw and then decoded on the same processors, one after the other, the bytes would come at {share}"
        " of the rate of decoding alone. That is no limit, for fetching beside decoding can hide waits."
    )


def measure_rest(rows: pd.DataFrame) -> dict[str, Interval]:
    """Compute what is no ratio of two times: processor time, memory, and the cost of a chunk."""
    found = _measure_memory(rows)
    proxied = select(rows, ("proxy", "through the proxy"))
    if len(proxied):
        cpu_s = tables.trace_of(proxied)["proxy_cpu_s"].to_numpy()
        found["proxy-cpu"] = statistics.median_interval(cpu_s / proxied["stored_nbytes"] * 1e9)
    shares = share_of_processors(rows)
    if len(shares):
        found["share-of-processors"] = statistics.median_interval(shares)
    for key, name in _SLOPES.items():
        slopes = slope_s(rows, name)
        if len(slopes):
            found[key] = statistics.median_interval(1000 * slopes)
    return found


def _measure_memory(rows: pd.DataFrame) -> dict[str, Interval]:
    """Compare the peaks of the two reads that were watched; each was read once."""
    watched = rows[rows["phase"] == "calibration"]
    if watched.empty:
        return {}
    peaks = tables.trace_of(watched)["peak_nbytes"].groupby(watched["part"]).max()
    small, large = float(peaks["growth-1"]), float(peaks[f"growth-{GROWTH}"])
    values = {"growth-memory": large / small, "peak-memory": max(small, large) / 1e9}
    return {key: Interval(value, np.nan, np.nan, 1) for key, value in values.items()}


def share_of_processors(rows: pd.DataFrame) -> pd.Series[float]:
    """Compute the least time of a read by arithmetic over the time it took, block by block.

    The least is what its parts take of all processors together, without a wait: server, proxy and
    receiving, measured where nothing is decoded, and decoding, measured where nothing is fetched.
    As each part has the processors' caches for itself, the share may pass 1 by a little.
    """
    received, decoded = (select(rows, ("read-path", name)) for name in (RECEIVED, DECODED))
    took_s = select(rows, ("read-path", DIRECT)).set_index("block")["read_s"]
    if took_s.empty or received.empty or decoded.empty:
        return pd.Series(dtype=float)
    spent_s = _spend_by_block(received) + _spend_by_block(decoded)
    n_cores = json.loads(received["machine"].iloc[0])["n_cores"]
    shares: pd.Series[float] = (spent_s / n_cores / took_s).dropna()
    return shares


def _spend_by_block(rows: pd.DataFrame) -> pd.Series[float]:
    spent: pd.Series[float] = tables.trace_of(rows).set_axis(rows["block"])["cpu_s"]
    return spent


def slope_s(rows: pd.DataFrame, name: str) -> pd.Series[float]:
    """Compute the seconds that each more chunk costs, between the two largest numbers, by block."""
    measured = statistics.measured(rows)
    part = measured[measured["part"].str.startswith("overhead-") & (measured["contender"] == name)]
    times = part.pivot(index="block", columns="n_chunks", values="read_s").sort_index(axis=1)
    if times.shape[1] < 2:
        return pd.Series(dtype=float)
    low, high = map(int, times.columns[-2:])
    slopes: pd.Series[float] = (times[high] - times[low]).dropna() / (high - low)
    return slopes


def tell(found: Mapping[str, Interval]) -> dict[str, str]:
    """Put values with their intervals into words, by the key of their threshold."""
    return {key: tell_interval(interval) for key, interval in found.items()}


def describe_run(rows: pd.DataFrame) -> dict[str, str]:
    """Tell blocks, noise and machine, and what decoding after reading would reach, if both were measured."""
    measured = statistics.measured(rows)
    noisy = measured[measured["part"].isin(measured.loc[measured["control_of"] != "", "part"])]
    found = tables.tell_measuring(measured, statistics.noise_ratio(noisy, "control"))
    share = share_in_turn(rows)
    return {**found, "share-in-turn": share} if share else found


def draw_overhead(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw the time for each chunk against the number of chunks, reader by reader."""
    measured = statistics.measured(rows)
    shown = measured[(measured["n_chunks"] > 0) & (measured["control_of"] == "")]
    ends, places = [], []
    for name, look in palette.get_looks("reader").items():
        part = shown[shown["contender"] == name]
        each = 1000 * part["read_s"] / part["n_chunks"]
        ax.plot(part["n_chunks"], each, look.marker, color=look.color, alpha=0.4, markersize=4)
        steps = part["part"].str.startswith("overhead-")
        medians = each[steps].groupby(part.loc[steps, "n_chunks"]).median()
        ax.plot(medians.index, medians, color=look.color)
        if len(part):
            ends.append((name, each.iloc[-1], look.color))
            places.append(part["n_chunks"].iloc[-1])
    ax.set(xscale="log", yscale="log", xlabel="chunks", ylabel="time for each chunk (ms)")
    number_axis(ax.xaxis)
    number_axis(ax.yaxis)
    label_ends(ax, ends, at=places)


Verdict = Literal["met", "missed", "undecided", "reported only", "not measured"]
_SEVERITY: Mapping[Verdict, int] = {"undecided": 1, "missed": 2}
Glued = Mapping[str, Mapping[str, str]]
"""Glued findings by the title of their case and their key."""

_NUMBER = re.compile(
    r"(?P<centre>-?\d[\d.]*)[^\[(\d]*"
    r"(?:[\[(](?P<low>-?\d[\d.]*)(?: to |, )(?P<high>-?\d[\d.]*)[\])])?"
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A threshold, what was measured, and where."""

    threshold: Threshold
    value: Interval | None
    where: str = ""

    @property
    def is_target(self) -> bool:
        """Whether it is held to anything, and not only reported."""
        return self.threshold.bound != (0 if self.threshold.is_least else math.inf)

    @property
    def verdict(self) -> Verdict:
        """Whether the whole interval lies on one side of the bound; the value, if it has none."""
        if self.value is None:
            return "not measured"
        if not self.is_target:
            return "reported only"
        ends = [self.value.low, self.value.high] if self.value.n > 1 else [self.value.centre]
        sign = 1 if self.threshold.is_least else -1
        kept = [sign * end >= sign * self.threshold.bound for end in ends]
        return "met" if all(kept) else "undecided" if any(kept) else "missed"

    @property
    def target(self) -> str:
        """The bound in words."""
        sign = "at least" if self.threshold.is_least else "at most"
        return f"{sign} {self.threshold.bound:g}" if self.is_target else "none"


def read_number(text: str) -> Interval | None:
    """Read a glued finding that begins with a number, and its interval if it tells one.

    Examples
    --------
    >>> read_number("1.41 (1.35 to 1.47)")
    Interval(centre=1.41, low=1.35, high=1.47, n=2, note='')
    >>> read_number("1.11 [0.928, 1.3] times (indistinguishable)").high
    1.3
    >>> read_number("4.6 %").centre, read_number("none up to 8")
    (4.6, None)
    """
    found = _NUMBER.match(text)
    if found is None:
        return None
    centre = float(found["centre"].rstrip("."))
    if found["low"] is None:
        return Interval(centre, math.nan, math.nan, 1)
    return Interval(centre, float(found["low"]), float(found["high"]), 2)


def read_glued(site: str) -> dict[str, dict[str, str]]:
    """Read what the executed cases of a site glued; of the reference where a case has not run here."""
    found = {}
    for case in runner.find_cases(site):
        paths = [path for at in (site, "reference") if (path := case.result(".ipynb", at)).exists()]
        if paths:
            notebook = nbformat.read(paths[0], as_version=4)  # type: ignore[no-untyped-call]
            found[case.title] = runner.list_glued(notebook)
    return found


def judge_all(glued: Glued, site: str) -> list[Judged]:
    """Judge the thresholds of every study by its worst case, and those of whole runs."""
    studies = find_studies()
    judged = [judge(study, one, glued) for study in studies.values() for one in study.thresholds]
    return [*judged, *_judge_runs(site, studies)]


def judge_own(told: Mapping[str, str]) -> list[Judged]:
    """Judge the thresholds of this study that one of its cases tells."""
    own = [judge(STUDY, one, {f"{STUDY.name}/": told}) for one in STUDY.thresholds]
    return [one for one in own if one.value]


def judge(study: Study, threshold: Threshold, glued: Glued) -> Judged:
    """Judge a threshold by the worst of the cases that tell it: by its verdict, then by its value."""
    found = [
        (Judged(threshold, number, title.partition("/")[2].replace("-", " ")), number.centre)
        for title, texts in glued.items()
        if title.split("/")[0] == study.name
        for key, text in texts.items()
        if f"-{key}".endswith(f"-{threshold.key}") and (number := read_number(text))
    ]
    if not found:
        return Judged(threshold, None)
    sign = -1 if threshold.is_least else 1
    worst, _ = max(found, key=lambda one: (_SEVERITY.get(one[0].verdict, 0), sign * one[1]))
    told = f"worst of {len(found)} cases:" if found[1:] else "case"
    return replace(worst, where=f"{told} {worst.where}")


def _judge_runs(site: str, studies: Mapping[str, Study]) -> list[Judged]:
    """Judge what the last whole run of a site and the set-up took, if they ran here."""
    run, setup = ROOT / "results" / site / "run-all.json", ROOT / ".venv" / "setup.json"
    judged = _judge_run(json.loads(run.read_text()), studies) if run.exists() else []
    if setup.exists():
        how = "environment and S3 server, as the last `make env` took"
        minutes = json.loads(setup.read_text())["seconds"] / 60
        judged.append(_whole("minutes of the first set-up", minutes, 6, how))
    return judged


def _judge_run(note: Mapping[str, Any], studies: Mapping[str, Study]) -> list[Judged]:
    """Describe a whole run: minutes of each study with a target, of one case, of all, and memory."""
    seconds: dict[str, float] = note["cases"]
    slowest = max(seconds, key=lambda title: seconds[title])
    words = slowest.replace("/", ", ").replace("-", " ")
    of_all = f"wall time of {len(seconds)} cases and the book, in the last run of every case"
    memory = "sum of the peaks of all its processes, each shared page counted in each"
    judged = []
    for name, study in studies.items():
        own = [took for title, took in seconds.items() if title.startswith(f"{name}/")]
        if own and study.minutes < math.inf:
            how = f"wall time of its {len(own)} cases, in the last run of every case"
            judged.append(_whole(f"minutes of {name}", sum(own) / 60, study.minutes, how))
    return [
        *judged,
        _whole("minutes of the longest case", seconds[slowest] / 60, 4, f"wall time of {words}"),
        _whole("minutes of run-all", note["seconds"] / 60, 60, of_all),
        _whole("peak memory of run-all (GB)", note["peak_nbytes"] / 1e9, 6, memory),
    ]


def _whole(name: str, value: float, bound: float, how: str) -> Judged:
    threshold = Threshold(key="", name=name, bound=bound, is_least=False, how=how)
    return Judged(threshold, Interval(value, math.nan, math.nan, 1))


def tabulate_thresholds(judged: list[Judged]) -> pd.DataFrame:
    """Tabulate thresholds: value and interval, target, verdict."""
    lines = [
        (
            one.threshold.name,
            tell_interval(one.value) if one.value else "—",
            one.target,
            one.verdict,
        )
        for one in judged
    ]
    names = ["threshold", "measured", "target", "verdict"]
    return pd.DataFrame(lines, columns=names).set_index("threshold")


def tell_met(judged: list[Judged]) -> str:
    """Say how many thresholds are met, of those with a target that were measured."""
    verdicts = [one.verdict for one in judged if one.is_target and one.value]
    if not verdicts:
        told = "; ".join(
            f"{one.threshold.name}: {tell_interval(one.value)}" for one in judged if one.value
        )
        return f"reported only, without a target. {told[:1].upper()}{told[1:]}"
    n_met = verdicts.count("met")
    rest = [f"{n} {name}" for name in ("missed", "undecided") if (n := verdicts.count(name))]
    more = f" ({', '.join(rest)})" if rest else ""
    return f"{n_met} of {len(verdicts)} thresholds are met{more}"


def render(site: str = "laptop") -> str:
    """Write the thresholds of every study as a table for the page, and below it how each came about."""
    judged = judge_all(read_glued(site), site)
    shown = tabulate_thresholds(judged).reset_index()
    shown = shown.replace({"verdict": {"missed": "**missed**"}})
    how = "\n".join(
        f"{one.threshold.name}\n: {'; '.join(filter(None, [one.threshold.how, one.where]))}\n"
        for one in judged
    )
    written = write_table([*shown], shown.itertuples(index=False))
    return f"{tell_met(judged)}.\n\n{written}\nHow each is computed:\n\n{how}"
