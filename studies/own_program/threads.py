"""Threads whose causes were found by hand, traced again: `python -m studies.own_program.threads`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
import yaml
import zarr
from zarr.errors import ZarrUserWarning
from zarr.storage import ObjectStore

from helpers.parameters import write_table
from helpers.paths import ROOT
from studies.request_ledger.environments import Environment, make_environment
from wire.bed.locations import Location, credentials
from wire.bed.networks import get_profile
from wire.bed.testbed import open_testbed
from wire.errors import UserError
from wire.trace import findings, launch
from wire.trace.report import Report

LISTED = Path(__file__).with_name("threads.yaml")
RECORD = ROOT / "results" / "traced" / "threads.csv"
_N_RUNS = 3
_SHAPE, _CHUNK = (64, 400, 400), (4, 200, 200)


def write_stores(place: Location, seed: int = 0) -> None:
    """Store what the programs read: chunks, one chunk, shards, a dataset of many coordinates, a netCDF file."""
    values = np.random.default_rng(seed).random(_SHAPE, np.float32)
    options: dict[str, Any] = {"compressors": None, "dtype": "f4", "shape": _SHAPE}

    def store(name: str) -> ObjectStore[Any]:
        return ObjectStore((place / name).obstore())

    place.clear()
    zarr.create_array(store("chunks.zarr"), zarr_format=2, chunks=_CHUNK, **options)[:] = values
    large = np.tile(values, (3, 1, 1))
    zarr.create_array(store("one.zarr"), **options | {"shape": large.shape, "chunks": large.shape})[:] = large  # fmt: skip
    zarr.create_array(store("shards.zarr"), chunks=_CHUNK, shards=_SHAPE, **options)[:] = values
    coordinates = {f"c{n:02}": (f"c{n:02}", np.arange(50.0 + n)) for n in range(20)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZarrUserWarning)
        xr.Dataset(coords=coordinates).to_zarr(store("coordinates.zarr"), zarr_format=3, consolidated=False)  # fmt: skip
    # larger than a block of s3fs, the description of each variable before its values
    variables = {f"v{n}": (("time", "y", "x"), values) for n in range(4)}
    layout = {name: {"chunksizes": _CHUNK} for name in variables}
    file = xr.Dataset(variables).to_netcdf(engine="h5netcdf", encoding=layout)
    place.fsspec().pipe_file(f"{place.path}/file.nc", bytes(file))


def trace_thread(thread: Mapping[str, Any], listed: Mapping[str, Any], place: Location) -> list[dict[str, Any]]:  # fmt: skip
    """Trace a program as it was, and with what helped; what is said of each, in a line.

    The first run fills the caches of Python, and of the others that of median waiting for the network counts.
    `predicted_s` is what is left of the waiting without the first cause; nothing where that is computing.
    """
    lines, then = [], thread["then"]
    where = {"AWS_ENDPOINT_URL": str(place.endpoint_url), "AWS_REGION": str(place.region)}
    for state, wanted in (("as it was", thread), (then["change"], {**thread, **then})):
        environment = Environment(thread["thread"], (), (*wanted["packages"],), listed["until"], listed["python"])  # fmt: skip
        command = [os.fspath(make_environment(environment)), "-c", wanted["script"], place.url]
        variables = where | {"AWS_ALLOW_HTTP": "true"} | wanted.get("variables", {})
        runs = [
            launch.run(command, environment=variables, is_silent=True) for _ in range(1 + _N_RUNS)
        ]
        if any(run.exit_code for run in runs):
            raise UserError(f"{thread['thread']}, {state}", "the program failed")
        report = sorted(map(findings.report, runs[1:]), key=_waiting_s)[_N_RUNS // 2]
        first = report.findings[0] if report.findings else None
        lines.append(
            {
                **{name: thread[name] for name in ("thread", "url", "slow")},
                "state": state,
                "packages": " ".join(wanted["packages"]),
                "n_requests": report.n_requests,
                "n_waits": report.n_waits,
                "moved_mb": report.moved_nbytes / 1e6,
                "wall_s": report.wall_s,
                "waiting_s": _waiting_s(report),
                "cause": first.title if first else "",
                "predicted_s": _waiting_s(report)
                - (report.wall_s - first.seconds if first else 0.0),
                "is_bound": bool(first and first.is_bound),
            }
        )
    return lines


def _waiting_s(report: Report) -> float:
    return sum(report.time_s[part] for part in ("connections", "first bytes", "bodies"))


def trace_all() -> pd.DataFrame:
    """Trace all threads over one emulated network."""
    listed = yaml.load(LISTED.read_text(), yaml.BaseLoader)  # noqa: S506  # it makes text alone
    with open_testbed("embedded", get_profile("in-region"), needed_nbytes=500_000_000) as testbed:
        write_stores(testbed.near / "threads")
        location = testbed.far / "threads"
        with credentials(location):
            return pd.DataFrame([line for thread in listed["threads"] for line in trace_thread(thread, listed, location)])  # fmt: skip


SAME = 0.05
"""Share by which two times of three runs each may differ and still be called about the same."""


def compare_whole(before_s: float, after_s: float) -> str:
    """Describe what a change did to the time of the whole program.

    Examples
    --------
    >>> compare_whole(20.0, 8.0), compare_whole(5.49, 5.48), compare_whole(6.2, 7.4)
    ('2.5x faster', 'about the same', '1.2x slower')
    """
    if max(before_s, after_s) <= (1 + SAME) * min(before_s, after_s):
        return "about the same"
    if after_s < before_s:
        return f"{before_s / after_s:.2g}x faster"
    return f"{after_s / before_s:.2g}x slower"


def write_threads(record: Path = RECORD) -> str:
    """Write the threads as a table for the page: what was slow, what the trace says, what the change did.

    Below it stands how many of the whole programs the change made faster.
    """
    lines, whole = [], []
    for _, part in pd.read_csv(record, keep_default_na=False).groupby("thread", sort=False):
        was, then = (line for _, line in part.iterrows())
        predicted = f"{'at least ' if was['is_bound'] else ''}{was['predicted_s']:.2g}" if was["cause"] else ""  # fmt: skip
        pairs = (f"{was[name]:.3g} → {then[name]:.3g}" for name in ("n_requests", "n_waits", "moved_mb"))  # fmt: skip
        waited = f"{was['waiting_s']:.2g} → {then['waiting_s']:.2g}"
        wall_text = f"{was['wall_s']:.3g} → {then['wall_s']:.3g}"
        whole.append(compare_whole(was["wall_s"], then["wall_s"]))
        link = f"[{was['thread']}]({was['url']}): {was['slow']}"
        lines.append([link, was["cause"], then["state"], *pairs, waited, predicted, wall_text, whole[-1]])  # fmt: skip
    heads = ["thread", "first cause", "what helped", "requests", "waits", "MB", "s waiting", "s waiting, predicted", "s of the whole program", "whole program"]  # fmt: skip
    n_faster, n_slower = (
        sum(text.endswith(direction) for text in whole) for direction in ("faster", "slower")
    )
    n_same = len(whole) - n_faster - n_slower
    return (
        f"{write_table(heads, lines)}\n"
        f"With the change {n_faster} of {len(whole)} whole programs ran faster, {n_same} took about"
        f" the same time (within {100 * SAME:.0f} %), and {n_slower} ran slower.\n"
    )


if __name__ == "__main__":
    trace_all().to_csv(RECORD, index=False, float_format="%.4g")
