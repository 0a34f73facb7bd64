"""What a page of formats computes from its rows, as numbers and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from helpers.benchmark import statistics
from helpers.plotting.tables import trace_of
from studies.formats.clients import CLIENTS
from studies.formats.formats import FORMATS, Kept, find_values
from studies.formats.source import ACCESSES

PAIRS: Mapping[str, tuple[str, str]] = {
    "csv-over-parquet": ("csv-pandas", "parquet-pandas"),
    "netcdf-over-zarr": ("netcdf-s3fs", "zarr-s3fs-one-get"),
    "plain-over-consolidated": ("zarr2-plain-s3fs", "zarr2-s3fs"),
    "today-over-one-get": ("zarr-s3fs", "zarr-s3fs-one-get"),
    "s3fs-over-obstore": ("zarr-s3fs", "zarr-obstore"),
    "obstore-over-told": ("zarr-obstore", "zarr-obstore-told"),
    "icechunk-over-obstore": ("icechunk", "zarr-obstore-told"),
    "obstore-over-tensorstore": ("zarr-obstore-told", "zarr-tensorstore"),
    "obstore-over-zarrs": ("zarr-obstore", "zarr-zarrs"),
    "fused-over-batched": ("zarr-obstore-fused", "zarr-obstore-told"),
    "shards-over-chunks": ("shards-obstore", "zarr-obstore-told"),
    "dask-over-one-call": ("zarr-dask", "zarr-obstore"),
    "dask-batches-over-one-call": ("zarr-dask-batches", "zarr-obstore"),
    "dask-over-dask-batches": ("zarr-dask", "zarr-dask-batches"),
    "unaligned-over-equal": ("netcdf-dask-unaligned", "netcdf-dask-equal"),
    "multiple-over-equal": ("netcdf-dask-multiple", "netcdf-dask-equal"),
}
"""Pairs that are judged wherever both were measured: time of the first over that of the second."""

MIXES: Mapping[str, float] = {"equal-mix": 0.5, "skewed-mix": 0.8}
"""Mixes of accesses, as in chunk shape: their share of time series, the others are steps."""


def add_totals(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Add throughputs, and `total_s` of opening and reading: no format is read without being opened.

    Rows of contenders that a case does not name any more are left out.
    """
    is_read = rows["access"].isin(ACCESSES)
    is_known = rows["contender"].isin([*names, "control", "raw"])
    kept = rows[is_read & is_known & (rows["phase"] == "measured")]
    kept = kept.assign(total_s=kept["open_s"] + kept["read_s"])
    return statistics.add_throughputs(kept)


def tabulate(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the medians of each contender and access, the quickest first.

    Bytes are those over the wire; processor time is that of the client, for a gigabyte of values.
    """
    trace = trace_of(rows).reindex(columns=["n_open_requests", "cpu_s"])
    columns = {
        "total_s": rows["total_s"],
        "open_s": rows["open_s"],
        "open_requests": trace["n_open_requests"].fillna(0),
        "n_requests": rows["n_requests"],
        "wire_mb": rows["wire_nbytes"] / 1e6,
        "cpu_s_per_gb": trace["cpu_s"] / rows["array_nbytes"] * 1e9,
        "share_of_raw_reads": rows["share_of_ceiling"],
    }
    is_first = rows["control_of"] == ""
    table = pd.DataFrame(columns)[is_first].assign(**rows[is_first][["access", "contender"]])
    medians = table.groupby(["access", "contender"], sort=False).median()
    return medians.sort_values("total_s").sort_index(
        level="access", kind="stable", sort_remaining=False, ascending=False
    )


def mix(rows: pd.DataFrame, series: float) -> pd.DataFrame:
    """Mix accesses: the mean time of one, where `series` of them are time series and others steps.

    The mean is of each block, so that contenders stay paired.
    """
    keys = ["block", "contender", "control_of", "is_ceiling"]
    wide = rows.pivot(index=keys, columns="access", values="total_s")
    mean_s = series * wide["series"] + (1 - series) * wide["step"]
    return mean_s.dropna().rename("total_s").reset_index()


def tabulate_costs(names: Sequence[str], kept: Kept, written: pd.DataFrame) -> pd.DataFrame:
    """Tabulate what the format of each contender is: stored bytes, and seconds of the one write.

    References are stored next to the file that they lead to, so they take its bytes too.
    """
    writes = written[written["access"] == "write"].groupby("contender")["read_s"].median()
    lines = {
        name: {
            "format": FORMATS[client.format].description,
            "client": client.description,
            "stored_mb": sum(kept.nbytes[n] for n in {client.format, find_values(client.format)})
            / 1e6,
            "write_s": writes.get(client.format, float("nan")),
        }
        for name, client in ((name, CLIENTS[name]) for name in names)
    }
    return pd.DataFrame.from_dict(lines, orient="index")
