"""What a page of formats says in words: computed, formatted, glued."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from helpers.benchmark import ranking as rankings
from helpers.benchmark import statistics
from helpers.netem.profiles import Profile
from helpers.plotting.tables import (
    describe_profile,
    digits,
    tell_interval,
    tell_measuring,
    trace_of,
)
from studies.formats.clients import CLIENTS
from studies.formats.formats import FORMATS, Kept, find_values

CLAIMS: Mapping[str, tuple[str, str]] = {
    "csv-over-parquet": ("csv-pandas", "parquet-pandas"),
    "netcdf-over-zarr": ("netcdf-s3fs", "zarr-s3fs-one-get"),
    "plain-over-consolidated": ("zarr2-plain-s3fs", "zarr2-s3fs"),
    "today-over-one-get": ("zarr-s3fs", "zarr-s3fs-one-get"),
    "s3fs-over-obstore": ("zarr-s3fs", "zarr-obstore"),
    "icechunk-over-obstore": ("icechunk", "zarr-obstore-told"),
    "obstore-over-tensorstore": ("zarr-obstore-told", "zarr-tensorstore"),
    "zarrs-over-zarrs-told": ("zarr-zarrs", "zarr-zarrs-told"),
    "shards-over-chunks": ("shards-obstore", "zarr-obstore-told"),
}
"""Pairs that were named before anything was measured: time of the first over that of the second."""


def add_totals(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `total_s`, of opening and reading: a format is not read without being opened."""
    return rows.assign(total_s=rows["open_s"] + rows["read_s"])


def select(rows: pd.DataFrame, access: str) -> pd.DataFrame:
    """Choose the measured rows of an access."""
    return rows[(rows["phase"] == "measured") & (rows["access"] == access)]


def installable(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out what is this project's own, and copies of it."""
    ours = {name for name, client in CLIENTS.items() if client.is_ours}
    return rows[~rows["contender"].isin(ours) & ~rows["control_of"].isin(ours)]


def tabulate(rows: pd.DataFrame, kept: Kept) -> pd.DataFrame:
    """Tabulate each contender: times, share of the ceiling, requests, bytes, processor time.

    `rows` are those of one access. Bytes over the wire are those of the values that are
    wanted once over; processor time is that of the client, for a gigabyte of values.
    """
    told = rows.assign(
        share=rows["share_of_ceiling"],
        over_read=rows["wire_nbytes"] / rows["stored_nbytes"],
        opening=trace_of(rows).get("n_open_requests", 0),
        cpu=trace_of(rows).get("cpu_s", float("nan")) / rows["array_nbytes"] * 1e9,
    )
    shown = told[(told["control_of"] == "")]
    columns = {
        "total_s": "seconds",
        "open_s": "of these opening",
        "share": "share of the ceiling",
        "opening": "requests to open",
        "n_requests": "requests to read",
        "over_read": "bytes read over bytes wanted",
        "cpu": "processor seconds a GB",
    }
    table = shown.groupby("contender", sort=False)[[*columns]].median().rename(columns=columns)
    stored = {name: kept.nbytes.get(client.format, 0) / 1e6 for name, client in CLIENTS.items()}
    table.insert(0, "stored MB", [stored.get(str(name), float("nan")) for name in table.index])
    return table.sort_values("seconds")


def describe_contenders(names: list[str], kept: Kept) -> pd.DataFrame:
    """Tabulate what each contender reads and by whom."""
    lines = []
    for name in names:
        client = CLIENTS[name]
        told = FORMATS[client.format].description, client.description
        lines.append((name, *told, kept.nbytes[find_values(client.format)] / 1e6))
    columns = ["contender", "format", "client", "stored MB"]
    return pd.DataFrame(lines, columns=columns).set_index("contender")


def compare_pairs(rows: pd.DataFrame, *, control: str) -> dict[str, statistics.Comparison]:
    """Judge the pairs of `CLAIMS` that were measured, each named beforehand."""
    present = set(rows["contender"])
    return {
        key: statistics.compare(rows, *pair, control=control, value="total_s")
        for key, pair in CLAIMS.items()
        if present.issuperset(pair)
    }


def tell_comparison(found: statistics.Comparison) -> str:
    """Write a ratio with its interval, and whether the two can be told apart."""
    told = tell_interval(found.ratio)
    return told if found.verdict != "indistinguishable" else f"{told}, which cannot be told apart"


def find_all(
    rows: pd.DataFrame,
    errors: pd.DataFrame,
    ranking: rankings.Ranking,
    of_all: rankings.Ranking,
    pairs: Mapping[str, statistics.Comparison],
    *,
    profile: Profile,
) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them.

    `ranking` is of what can be installed, `of_all` counts this project's own path too.
    """
    whole = select(rows, "whole")
    best = whole[whole["contender"] == ranking.best]
    measured = rows[rows["phase"] == "measured"]
    noise = statistics.noise_ratio(whole, "control", value="total_s")
    share = statistics.median_interval(best["share_of_ceiling"])
    # only where a network is emulated is it the one that the threshold means
    of_what = "share-of-ceiling" if profile.first_byte_s else "share-of-raw"
    return {
        "profile": describe_profile(profile),
        "fastest-installable": ranking.tell(),
        "fastest-of-all": of_all.tell(),
        "best-installable": ranking.best,
        "best-throughput": f"{digits(best['throughput_mb_per_s'].median())} MB/s",
        of_what: tell_interval(share),
        **{key: tell_comparison(found) for key, found in pairs.items()},
        "median-prediction-error": f"{digits(100 * errors['relative_error'].abs().median())} %",
        **tell_measuring(measured, noise),
    }
