"""Bars that are read from what ran before: predictions, whole runs, the set-up; and the relay's."""

from __future__ import annotations

import json

import nbformat

from helpers import runner
from helpers.bench.bars import RESULTS, Bar, Bench
from helpers.errors import UserError
from helpers.measurement import calibration
from helpers.paths import ROOT
from helpers.storage.network import get_profile


def check_relay(bench: Bench) -> list[Bar]:
    """Measure what the relay costs with nothing imposed."""
    relay = bench.wire.relay
    if relay is None:
        raise UserError("store: has no relay before it; allowed: embedded, for the bars")
    relay.impose(get_profile("loopback"))
    far, near = bench.wire.probe_url(), bench.wire.probe_url(is_near=True)
    found = calibration.measure_overhead([near] * 8, [far] * 8, cpu_s=relay.cpu_s)
    how = "8 connections reading an object of 32 MB over and over, directly and through the relay in turn"
    return [
        Bar("relay: throughput over direct, nothing imposed", found.ratio, 0.6, True, how),
        Bar("relay: CPU-seconds for each GB", found.cpu_s_per_gb, 0.6, False, how),
    ]


def check_predictions() -> list[Bar]:
    """Read the error of the predictions from the notebooks of the laptop's cases."""
    errors = []
    for case in runner.find_cases("laptop"):
        site = "laptop" if case.result(".ipynb").exists() else "reference"
        if case.result(".ipynb", site).exists():
            notebook = nbformat.read(case.result(".ipynb", site), as_version=4)  # type: ignore[no-untyped-call]
            errors.append(float(runner.read_glued(notebook, "median-prediction-error").split()[0]))
    how = (
        "predicted against measured read time, median over contenders and points of a case, largest of all cases;"
        " nothing that is predicted is used for the fit"
    )
    return [Bar("prediction error (%), worst case", max(errors), 20, False, how)]


_WHOLE_RUN = RESULTS / "run-all.json"
_NOTES = (
    (
        "minutes of run-all",
        _WHOLE_RUN,
        "seconds",
        60,
        12,
        "wall time of the last run of every case, book included",
    ),
    ("minutes of its longest case", _WHOLE_RUN, "longest_seconds", 60, 4, "of the same run"),
    (
        "peak memory of run-all (GB)",
        _WHOLE_RUN,
        "peak_nbytes",
        1e9,
        6,
        "unique memory of all its processes, largest of ten looks a second",
    ),
    (
        "minutes of the first set-up",
        ROOT / ".venv" / "setup.json",
        "seconds",
        60,
        6,
        "environment and S3 server, as the last `make env` took",
    ),
)


def check_whole_runs() -> list[Bar]:
    """Read what the last whole `make run-all` and the set-up took, if they ran here."""
    return [
        Bar(name, json.loads(path.read_text())[key] / scale, bound, False, how)
        for name, path, key, scale, bound, how in _NOTES
        if path.exists()
    ]
