"""Threads whose causes were found by hand, traced again: `python -m studies.own_program.threads`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import xarray as xr
import yaml
import zarr
from zarr.errors import ZarrUserWarning
from zarr.storage import ObjectStore

from advisors.trace import findings, launch
from helpers.errors import UserError
from helpers.netem.profiles import get_profile
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import open_testbed
from helpers.parameters import write_table
from helpers.paths import ROOT
from studies.request_ledger.environments import Environment, make_environment

LISTED = Path(__file__).with_name("threads.yaml")
RECORD = ROOT / "results" / "traced" / "threads.csv"
PROFILE = "in-region"
_SHAPE, _CHUNK = (64, 400, 400), (4, 200, 200)


def write_stores(place: Location, seed: int = 0) -> None:
    """Store what the programs read: chunks, shards, a dataset of many coordinates, a netCDF file."""
    values = np.random.default_rng(seed).random(_SHAPE, np.float32)
    how: dict[str, Any] = {"chunks": _CHUNK, "compressors": None, "dtype": "f4", "shape": _SHAPE}

    def store(name: str) -> ObjectStore[Any]:
        return ObjectStore((place / name).obstore())

    zarr.create_array(store("chunks.zarr"), zarr_format=2, **how)[:] = values
    zarr.create_array(store("shards.zarr"), shards=_SHAPE, **how)[:] = values
    coordinates = {f"c{n:02}": (f"c{n:02}", np.arange(50.0 + n)) for n in range(20)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZarrUserWarning)
        xr.Dataset(coords=coordinates).to_zarr(store("coordinates.zarr"), zarr_format=3, consolidated=False)  # fmt: skip
    with place.fsspec().open(f"{place.path}/file.nc", "wb") as file, h5py.File(file, "w") as made:
        made.create_dataset("values", data=values, chunks=_CHUNK, compression=1, shuffle=True)


def trace_thread(thread: Mapping[str, Any], place: Location, **made: Any) -> list[dict[str, Any]]:
    """Trace a program as it was, and with what helped; what is said of each, in a line."""
    lines, then = [], thread["then"]
    for state, asked in (("as it was", thread), (then["change"], {**thread, **then})):
        python = make_environment(Environment(thread["thread"], (), tuple(asked["packages"]), **made))  # fmt: skip
        command = [os.fspath(python), "-c", asked["script"], place.url]
        variables = {
            "AWS_ENDPOINT_URL": place.endpoint_url, "AWS_ACCESS_KEY_ID": place.access_key,
            "AWS_SECRET_ACCESS_KEY": place.secret_key, "AWS_REGION": place.region,
            "AWS_ALLOW_HTTP": "true",
        }  # fmt: skip
        given = {name: value for name, value in variables.items() if value}
        run = launch.run(command, environment=given | asked.get("variables", {}), is_silent=True)
        if run.exit_code:
            raise UserError(f"{thread['thread']}, {state}: exit code {run.exit_code}")
        told = findings.report(run)
        first = told.findings[0] if told.findings else None
        lines.append(
            {
                "thread": thread["thread"],
                "url": thread["url"],
                "slow": thread["slow"],
                "state": state,
                "packages": " ".join(asked["packages"]),
                "n_requests": told.n_requests,
                "n_waits": told.n_waits,
                "moved_mb": told.moved_nbytes / 1e6,
                "wall_s": told.wall_s,
                "cause": first.title if first else "",
                "gain": first.gain if first else 0.0,
                "is_bound": bool(first and first.is_bound),
            }
        )
    return lines


def trace_all(names: Sequence[str] = ()) -> pd.DataFrame:
    """Trace all threads, or those that are named, over one emulated network."""
    listed = yaml.load(LISTED.read_text(), yaml.BaseLoader)  # noqa: S506  # it makes text alone
    made = {"until": listed["until"], "python": listed["python"]}
    lines = []
    with open_testbed("embedded", get_profile(PROFILE), needed_nbytes=200_000_000) as testbed:
        write_stores(testbed.near / "threads")
        for thread in listed["threads"]:
            if not names or thread["thread"] in names:
                lines += trace_thread(thread, testbed.far / "threads", **made)
    return pd.DataFrame(lines)


def write_threads() -> str:
    """Write the threads as a table for the page: what was slow, what the trace says, what the change did."""
    lines = []
    for _, part in pd.read_csv(RECORD, keep_default_na=False).groupby("thread", sort=False):
        was, then = (line for _, line in part.iterrows())
        gain = f"{'at most ' if was['is_bound'] else ''}{was['gain']:.2g} times" if was["gain"] else ""  # fmt: skip
        pairs = (f"{was[name]:.3g} → {then[name]:.3g}" for name in ("n_requests", "n_waits", "moved_mb", "wall_s"))  # fmt: skip
        lines.append([f"[{was['thread']}]({was['url']}): {was['slow']}", was["cause"], gain, then["state"], *pairs])  # fmt: skip
    heads = ["thread", "first cause", "predicted", "what helped", "requests", "waits", "MB", "s"]
    return write_table(heads, lines)


if __name__ == "__main__":
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    trace_all().to_csv(RECORD, index=False, float_format="%.4g")
