"""Acceptance thresholds: ratios measured in one run, each with how it was computed.

Every bar compares two things measured in turn on this machine, because an
absolute time means nothing from one day to the next.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from dataclasses import dataclass
from typing import Any

import nbformat
import pandas as pd

from helpers.benchmark.memory import watch_memory
from helpers.book import cases as runner
from helpers.errors import UserError
from helpers.netem import calibration
from helpers.netem.profiles import get_profile
from helpers.paths import ROOT
from studies.acceptance.workload import (
    RESULTS,
    Say,
    Setup,
    Threshold,
    check_2020,
    check_ceiling,
    check_growth,
    check_knee,
    check_netcdf,
    open_setup,
)


def check_proxy(bench: Setup) -> list[Threshold]:
    """Measure what the proxy costs with no network emulated."""
    proxy = bench.testbed.proxy
    if proxy is None:
        raise UserError("store: has no proxy before it; allowed: embedded, for the bars")
    proxy.emulate(get_profile("loopback"))
    far, near = bench.testbed.probe_url(), bench.testbed.probe_url(is_near=True)
    found = calibration.measure_overhead([near] * 8, [far] * 8, cpu_s=proxy.cpu_s)
    how = "8 connections reading an object of 32 MB over and over, directly and through the proxy in turn"
    return [
        Threshold(
            "proxy: throughput over direct, no network emulated", found.ratio, 0.6, True, how
        ),
        Threshold("proxy: CPU-seconds for each GB", found.cpu_s_per_gb, 0.6, False, how),
    ]


@dataclass(frozen=True, slots=True)
class Promise:
    """What the cases of a study are held to, and the glued finding that says whether they keep it.

    A key stands also for those that end with it, as in one for each medium.
    """

    notebook: str
    key: str
    name: str
    bound: float
    is_least: bool
    how: str


_FIRST_STUDY = "cluster-scaling/"

PROMISES = (
    Promise(
        "cluster-scaling",
        "median-prediction-error",
        "cluster scaling: prediction error (%)",
        20,
        False,
        "predicted against measured read time, median over contenders and points; nothing that is predicted is used for the fit",
    ),
    Promise(
        "caching-costs",
        "worst-prediction-error",
        "caching: prediction error (%)",
        15,
        False,
        "median latency with a cache, predicted from requests that were alone, largest over caches",
    ),
    Promise(
        "caching-costs",
        "hit-ratio-error",
        "caching: error of the hit ratio (percentage points)",
        3,
        False,
        "predicted by Che's approximation against a real cache, 100 datasets",
    ),
    Promise(
        "caching-costs",
        "failed-requests",
        "caching: failed requests, but those that must fail",
        0,
        False,
        "of all contenders and blocks",
    ),
    Promise(
        "hdf5-drivers",
        "ratio-untuned-original-to-best",
        "HDF5: tuned and repacked over untuned and as written",
        20,
        True,
        "time of the slowest driver and layout over that of the fastest; its page says what the rest waits for",
    ),
    Promise(
        "hdf5-drivers",
        "requests-to-open-best",
        "HDF5: requests to open a repacked file",
        5,
        False,
        "counted by the proxy",
    ),
    Promise(
        "hdf5-drivers",
        "replay-error-time",
        "HDF5: error of replayed times (%)",
        15,
        False,
        "tuned drivers predicted from the trace of the untuned one and a calibration, median",
    ),
    Promise(
        "hdf5-drivers",
        "replay-error-requests",
        "HDF5: error of replayed requests (%)",
        2,
        False,
        "deterministic caches, median",
    ),
    Promise(
        "hdf5-drivers",
        "replay-error-bytes",
        "HDF5: error of replayed bytes (%)",
        2,
        False,
        "deterministic caches, median",
    ),
    Promise(
        "hdf5-drivers",
        "advisor-worst-error",
        "HDF5: error of the advisor's gain (%)",
        20,
        False,
        "on three files that it was not developed on, the largest",
    ),
    Promise(
        "chunk-shape",
        "median-error",
        "chunk shape: prediction error (%)",
        20,
        False,
        "predicted against measured time of what no fit has seen, median over layouts and accesses",
    ),
    Promise(
        "chunk-shape",
        "rank-correlation",
        "chunk shape: rank correlation of predicted and measured times",
        0.95,
        True,
        "the same layouts and accesses",
    ),
    Promise(
        "chunk-shape",
        "gain-worst-access",
        "chunk shape: worst access, ours over the balance rule",
        1.3,
        True,
        "at the same bound on chunk bytes",
    ),
    Promise(
        "chunk-shape",
        "gain-worst-access-any-size",
        "chunk shape: worst access, ours over the balance rule at its best chunk size",
        1.3,
        True,
        "where the rule may choose its bytes too; equal is asked for where no shape is better",
    ),
)


def check_promises() -> list[Threshold]:
    """Read the bars of the studies from the notebooks of the laptop's cases."""
    return [_check_promise(promise) for promise in PROMISES]


def _check_promise(promise: Promise) -> Threshold:
    """Read the worst case of a study, here if it ran here and else in the reference."""
    worst = min if promise.is_least else max
    found = {
        f"{case.name}, {key}": number
        for case in runner.find_cases("laptop")
        if case.notebook == promise.notebook
        for key, number in _read_numbers(case, promise.key).items()
    }
    where = worst(found, key=found.__getitem__)
    told = f"{promise.how}; worst of {len(found)}: {where}" if len(found) > 1 else promise.how
    return Threshold(promise.name, found[where], promise.bound, promise.is_least, told)


def _read_numbers(case: runner.Case, key: str) -> dict[str, float]:
    """Read glued findings that begin with a number: under a key and those that end with it."""
    site = "laptop" if case.result(".ipynb").exists() else "reference"
    if not case.result(".ipynb", site).exists():
        raise UserError(
            f"{case.title}: has not run; run `make run CASE={case.title}` before the bars"
        )
    notebook = nbformat.read(case.result(".ipynb", site), as_version=4)  # type: ignore[no-untyped-call]
    texts = {
        name: text
        for name, text in runner.list_glued(notebook).items()
        if f"-{name}".endswith(f"-{key}")
    }
    numbers = {name: re.match(r"-?[\d.]+", text) for name, text in texts.items()}
    return {name: float(number[0]) for name, number in numbers.items() if number}


def check_whole_runs() -> list[Threshold]:
    """Read what the last whole `make run-all` and the set-up took, if they ran here."""
    thresholds = []
    run, setup = RESULTS / "run-all.json", ROOT / ".venv" / "setup.json"
    if run.exists():
        thresholds += _describe_run(json.loads(run.read_text()))
    if setup.exists():
        minutes = json.loads(setup.read_text())["seconds"] / 60
        how = "environment and S3 server, as the last `make env` took"
        thresholds.append(Threshold("minutes of the first set-up", minutes, 6, False, how))
    return thresholds


def _describe_run(note: dict[str, Any]) -> list[Threshold]:
    """Describe a whole run: the minutes of the first study's cases, of one case, and of everything."""
    cases: dict[str, float] = note["cases"]
    first = [seconds for title, seconds in cases.items() if title.startswith(_FIRST_STUDY)]
    slowest = max(cases, key=lambda name: cases[name])
    how, memory = (
        "wall time of {}, in the last run of every case",
        "sum of the peaks of all its processes, each shared page counted in each",
    )
    return [
        Threshold(
            "minutes of cluster scaling",
            sum(first) / 60,
            12,
            False,
            how.format(f"its {len(first)} cases"),
        ),
        Threshold(
            "minutes of the longest case", cases[slowest] / 60, 4, False, how.format(slowest)
        ),
        Threshold(
            "minutes of run-all",
            note["seconds"] / 60,
            math.inf,
            False,
            how.format(f"{len(cases)} cases and the book"),
        ),
        Threshold("peak memory of run-all (GB)", note["peak_nbytes"] / 1e9, 6, False, memory),
    ]


def run_bench(say: Say) -> list[Threshold]:
    """Compute every bar, print it, and write them as CSV."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    thresholds = [*check_promises(), *check_whole_runs()]
    with watch_memory() as peak, open_setup(say) as bench:
        for check in (
            check_proxy,
            check_ceiling,
            check_2020,
            check_netcdf,
            check_growth,
            check_knee,
        ):
            thresholds += check(bench)
    thresholds.append(
        Threshold(
            "peak memory of all processes (GB)",
            peak.nbytes / 1e9,
            6,
            False,
            "sum of the peaks of this process and its children, each shared page counted in each",
        )
    )
    table = pd.DataFrame([{**dataclasses.asdict(bar), "holds": bar.holds} for bar in thresholds])
    table.to_csv(RESULTS / "bench.csv", index=False)
    say("\n".join(bar.line() for bar in thresholds))
    return thresholds
