"""Rows of loads as tables: numbers of each load, medians of each map, requests one by one."""

from __future__ import annotations

import pandas as pd

from helpers import study

BASELINE = "none"
"""The contender that every other is compared with."""


def read_numbers(rows: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Spread the trace of a phase into columns, beside contender and block."""
    part = rows[rows["phase"] == phase]
    trace = study.trace_of(part).drop(columns=["n_requests"], errors="ignore")
    return trace.assign(
        contender=part["contender"], n_requests=part["n_requests"], block=part["block"]
    )


def tabulate_maps(rows: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Give the medians over blocks of what each map cost: contender, map, and times in s."""
    numbers = read_numbers(rows, phase)
    columns = [name for name in map(str, numbers) if name.count("|") == 1]
    medians = numbers.groupby("contender")[columns].median()
    pairs = [tuple(name.split("|")) for name in columns]
    medians.columns = pd.MultiIndex.from_tuples(pairs, names=["map", None])
    return pd.DataFrame(medians.stack(level="map", future_stack=True).reset_index())


def list_requests(rows: pd.DataFrame, phase: str) -> pd.DataFrame:
    """List the requests of a phase one by one.

    Parameters
    ----------
    rows : DataFrame
        A record.
    phase : str
        ``"calibration"`` or ``"measured"``.

    Returns
    -------
    DataFrame
        ``contender``, ``block``, ``map`` and ``latency_s``; of requests that
        were alone also ``open_s``, ``cpu_s`` and ``make_s``, the latency less
        the opening.
    """
    numbers = read_numbers(rows, phase).set_index(["contender", "block"])
    each = numbers[[name for name in map(str, numbers) if name.count("|") == 2]]
    each.columns = pd.MultiIndex.from_tuples(
        [tuple(name.split("|")) for name in each.columns], names=["map", None, "number"]
    )
    table = each.stack(level=["map", "number"], future_stack=True).dropna(how="all").reset_index()
    if "open_s" in table:
        table = table.assign(make_s=table["latency_s"] - table["open_s"])
    return pd.DataFrame(table)
