"""What a page of formats computes from its rows, as numbers and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from IPython.display import Markdown

from helpers.benchmark import statistics
from helpers.plotting.tables import trace_of
from studies.formats.formats import FORMATS, StoredFormats, find_values
from studies.formats.readers import FORMAT_READERS
from studies.formats.source import ACCESSES

PAIRS: Mapping[str, tuple[str, str]] = {
    "csv-over-parquet": ("csv-pandas", "parquet-pandas"),
    "netcdf-over-zarr": ("netcdf-s3fs", "zarr-s3fs"),
    "netcdf-over-references": ("netcdf-s3fs", "references-obstore"),
    "netcdf-over-references-parquet": ("netcdf-s3fs", "references-parquet-obstore"),
    "today-over-one-get": ("zarr-s3fs", "zarr-s3fs-one-get"),
    "s3fs-over-obstore": ("zarr-s3fs", "zarr-obstore"),
    "one-get-over-obstore": ("zarr-s3fs-one-get", "zarr-obstore"),
    "references-over-obstore": ("references-obstore", "zarr-obstore"),
    "obstore-over-told": ("zarr-obstore", "zarr-obstore-told"),
    "obstore-over-tensorstore": ("zarr-obstore", "zarr-tensorstore"),
    "icechunk-over-obstore": ("icechunk", "zarr-obstore"),
    "shards-over-chunks": ("shards-obstore", "zarr-obstore"),
    "parquet-over-zarr": ("parquet-arrow", "zarr-obstore"),
    "in-turn-over-async": ("cog-rasterio", "cog-async"),
    "gcsfs-over-obstore": ("zarr-gcsfs", "zarr-obstore-google"),
    "gcsfs-over-one-get": ("zarr-gcsfs", "zarr-s3fs-one-get"),
}
"""Pairs that are judged wherever both were measured: time of the first over that of the second."""

CLAIMED = ("csv-over-parquet", "netcdf-over-zarr", "netcdf-over-references", "today-over-one-get")
"""Pairs of which pages say that the first is slower."""


def name_finding(key: str, access: str) -> str:
    """Name a finding of an access; that of the whole array has the plain name.

    Examples
    --------
    >>> name_finding("netcdf-over-zarr", "series"), name_finding("netcdf-over-zarr", "whole")
    ('netcdf-over-zarr-series', 'netcdf-over-zarr')
    """
    return key if access == "whole" else f"{key}-{access}"


def add_totals(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Add throughputs, and `total_s` of opening and reading: no format is read without being opened.

    Rows of contenders that a case does not name any more are left out.
    """
    is_read = rows["access"].isin(ACCESSES)
    is_known = rows["contender"].isin([*names, "control", "raw"])
    measured = rows[is_read & is_known & (rows["phase"] == "measured")]
    measured = measured.assign(total_s=measured["open_s"] + measured["read_s"])
    return statistics.add_throughputs(measured)


def show_codes(names: Sequence[str]) -> Markdown:
    """Show the code of each reader, readers with the same code together."""
    labels, readers_by_code = FORMAT_READERS.labels(), dict[str, list[str]]()
    for name in names:
        readers_by_code.setdefault(FORMAT_READERS[name].show_code(), []).append(labels[name])
    parts = (
        f"**{', '.join(readers)}**\n\n```python\n{code}```"
        for code, readers in readers_by_code.items()
    )
    return Markdown("\n\n".join(parts))  # type: ignore[no-untyped-call]


def tabulate(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the medians of each contender and access, the quickest first.

    Bytes are those over the wire; processor time is that of the whole machine, for a gigabyte.
    """
    trace = trace_of(rows).reindex(columns=["n_open_requests", "busy_s"])
    columns = {
        "total_s": rows["total_s"],
        "open_s": rows["open_s"],
        "open_requests": trace["n_open_requests"].fillna(0),
        "n_requests": rows["n_requests"],
        "wire_mb": rows["wire_nbytes"] / 1e6,
        "processors (s/GB)": trace["busy_s"] / rows["array_nbytes"] * 1e9,
        "rate over raw reads": rows["share_of_ceiling"],
    }
    keys = [rows["access"], rows["contender"]]
    medians = pd.DataFrame(columns)[rows["control_of"] == ""].groupby(keys, sort=False).median()
    return medians.sort_values("total_s").sort_index(
        level="access", kind="stable", sort_remaining=False, ascending=False
    )


def tabulate_costs(
    names: Sequence[str], formats: StoredFormats, written: pd.DataFrame
) -> pd.DataFrame:
    """Tabulate what the format of each contender is: stored bytes, and seconds of the one write.

    References are stored next to the file that they lead to, so they take its bytes too.
    """
    writes = written[written["access"] == "write"].groupby("contender")["real_read_s"].median()
    lines = {
        name: {
            "format": FORMATS[client.format].description,
            "stored_mb": sum(formats.nbytes[n] for n in {client.format, find_values(client.format)})
            / 1e6,
            "write_s": writes.get(client.format, float("nan")),
        }
        for name, client in ((name, FORMAT_READERS[name]) for name in names)
    }
    return pd.DataFrame.from_dict(lines, orient="index")
