"""Bars: ratios measured in one run, each with how it was computed.

Every bar compares two things measured in turn on this machine, because an
absolute time means nothing from one day to the next.
"""

from __future__ import annotations

import dataclasses

import pandas as pd

from helpers.bench.bars import RESULTS, Bar, Say, open_bench
from helpers.bench.knee import check_knee
from helpers.bench.reading import check_2020, check_ceiling, check_growth, check_netcdf
from helpers.bench.runs import check_promises, check_relay, check_whole_runs
from helpers.memory import watch_memory

__all__ = ["Bar", "run_bench"]


def run_bench(say: Say) -> list[Bar]:
    """Compute every bar, print it, and write them as CSV.

    Parameters
    ----------
    say : callable
        Takes lines to print.

    Returns
    -------
    list of Bar
        In the order printed.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    bars = [*check_promises(), *check_whole_runs()]
    with watch_memory() as peak, open_bench(say) as bench:
        for check in (
            check_relay,
            check_ceiling,
            check_2020,
            check_netcdf,
            check_growth,
            check_knee,
        ):
            bars += check(bench)
    bars.append(
        Bar(
            "peak memory of all processes (GB)",
            peak.nbytes / 1e9,
            6,
            False,
            "sum of the peaks of this process and its children, each shared page counted in each",
        )
    )
    table = pd.DataFrame([{**dataclasses.asdict(bar), "holds": bar.holds} for bar in bars])
    table.to_csv(RESULTS / "bench.csv", index=False)
    say("\n".join(bar.line() for bar in bars))
    return bars
