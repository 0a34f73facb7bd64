"""Rows of the ledger as a table of counts, what changed between versions, and what counts take elsewhere."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import pandas as pd

from helpers.benchmark.record import read_published
from helpers.book.findings import Finding
from helpers.models.transfer import Network, Step, replay
from helpers.paths import ROOT
from studies.request_ledger.environments import HERE, read_environments

KEY = ["client", "environment", "layout", "operation"]
COUNTS = ["n_get", "n_head", "n_put", "n_other", "wire_nbytes"]
"""Counts that two runs have to agree in; chains and connections depend on the moment too."""
MORE = 1.05
"""Ratio from which a count is more: metadata differ by some bytes from version to version."""


def tabulate(rows: pd.DataFrame) -> pd.DataFrame:
    """Make a table with a line for each operation of each run.

    Parameters
    ----------
    rows : DataFrame
        Record of the ledger.

    Returns
    -------
    DataFrame
        Columns of `KEY`, `block`, the counts, `n_requests`, `n_waits`, `needed_nbytes` (stored
        bytes of the chunks that the operation touches), `versions`, and `reason`, which says why
        an operation is absent and is empty where it is not.
    """
    traces = pd.json_normalize([json.loads(text) for text in rows["trace"]]).set_index(rows.index)
    table = rows[["environment", "layout", "operation", "block", "n_requests", "wire_nbytes"]].join(
        traces
    )
    table.insert(0, "client", rows["contender"])
    table["needed_nbytes"] = rows["stored_nbytes"]
    is_absent = rows["check"].str.startswith("absent: ")
    table["versions"] = rows["check"].str.partition("; ")[2].where(~is_absent, "")
    table["reason"] = rows["check"].where(is_absent, "").str.removeprefix("absent: ")
    return table.reset_index(drop=True)


def merge_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Make one line of the runs of each operation: the median, and whether all counts are the same."""
    there = table[table["reason"] == ""]
    groups = there.groupby(KEY, sort=False)
    numbers = [
        *COUNTS,
        "n_requests",
        "n_waits",
        "n_in_flight",
        "n_connections",
        "n_joined",
        "span_s",
    ]
    merged = groups[[*numbers, "needed_nbytes"]].median()
    spread = groups[COUNTS].max() - groups[COUNTS].min()
    merged["is_identical"] = (spread == 0).all(axis=1)
    merged["n_runs"] = groups.size()
    merged["least_waits"], merged["most_waits"] = groups["n_waits"].min(), groups["n_waits"].max()
    merged["versions"] = groups["versions"].first()
    merged = merged.reset_index()
    order = {one.name: place for place, one in enumerate(read_environments())}
    return merged.sort_values("environment", key=lambda names: names.map(order), kind="stable")


def choose_years(merged: pd.DataFrame) -> pd.DataFrame:
    """Choose the stacks of a day, in their order; where there is none, the environment of today."""
    is_year = merged["environment"].str.fullmatch(r"\d{4}(-\d\d)?")
    return merged[is_year if is_year.any() else merged["environment"] == HERE]


def pick(merged: pd.DataFrame, value: str, *place: str) -> float:
    """Return a number of one line, by client, environment, layout and operation; NaN if it is not there."""
    found = merged.set_index(KEY)[value]
    return float(found.get(place, math.nan))


def compare(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Compare what two sets of lines ask for, by client, layout and operation.

    Parameters
    ----------
    before, after : DataFrame
        Lines of `merge_runs`, each of one environment a client.

    Returns
    -------
    DataFrame
        A line for each count that differs by more than a factor of `MORE`: the key, `count`,
        `before` and `after`. Requests, bytes, and chains of waits beyond what runs differ in.
    """
    key = [name for name in KEY if name != "environment"]
    pairs = before.merge(after, on=key, suffixes=("_before", "_after"))
    found = []
    for name in ("n_requests", "wire_nbytes", "n_waits"):
        low, high = pairs[f"{name}_before"], pairs[f"{name}_after"]
        differs = (high + 1 > MORE * (low + 1)) | (low + 1 > MORE * (high + 1))
        if name == "n_waits":  # a chain counts where no run of the one reaches the other's
            apart = (pairs["least_waits_after"] > 2 * pairs["most_waits_before"]) | (
                pairs["least_waits_before"] > 2 * pairs["most_waits_after"]
            )
            differs &= apart
        if name == "wire_nbytes":  # of metadata, versions differ by some bytes
            differs &= (high - low).abs() > 10_000
        part = pairs.loc[differs, key].assign(count=name, before=low[differs], after=high[differs])
        found.append(part)
    return pd.concat(found, ignore_index=True)


def read_steps(numbers: Sequence[float]) -> list[Step]:
    """Read back the requests of a row: which each followed, after how long, and their bytes."""
    triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return [
        Step((int(after),) if after >= 0 else (), float(think_s), int(nbytes))
        for after, think_s, nbytes in triples
    ]


def predict_seconds(table: pd.DataFrame, networks: Mapping[str, Network]) -> pd.DataFrame:
    """Predict by simulation what the requests of each line take over other networks, in s."""
    steps = [read_steps(one) for one in table["steps"]]
    columns = {
        name: [replay(one, network, n_draws=5).seconds if one else 0.0 for one in steps]
        for name, network in networks.items()
    }
    return table[KEY].assign(**columns)


def compare_predictions() -> pd.DataFrame:
    """Compare what was predicted of a published experiment with what was measured there.

    Returns
    -------
    DataFrame
        A line for each layout, query and quantity that both have: `value`, `low` and `high` as
        predicted, `measured`, and `is_inside`, whether the interval holds it.
    """
    predicted = pd.read_csv(ROOT / "results" / "predictions" / "wxtco.csv")
    measured = read_published("wxtco_results").rename(columns={"value": "measured"})
    key = ["layout", "query", "quantity"]
    both = predicted.merge(measured[[*key, "measured"]], on=key)
    return both.assign(is_inside=both["measured"].between(both["low"], both["high"]))


def list_counts(merged: pd.DataFrame, n_chunks: int) -> dict[str, Finding]:
    """List the counts that prose quotes; those of what was not asked are NaN."""
    today = "2026" if "2026" in set(merged["environment"]) else "here"

    def number(value: str, client: str, layout: str, operation: str, when: str = today) -> float:
        return pick(merged, value, client, when, layout, operation)

    many = "metadata of 100"
    plain = number("n_requests", "xarray-zarr-unconsolidated", "zarr-v2-unconsolidated", many)
    numbers = {
        "requests-of-today": number("n_requests", "zarr-s3fs", "zarr-v2", "whole") / n_chunks,
        "chain-2021": number("n_waits", "zarr-s3fs", "zarr-v2", "whole", "2021"),
        "chain-2022": number("n_waits", "zarr-s3fs", "zarr-v2", "whole", "2022"),
        "open-large-mb": number("wire_nbytes", "h5netcdf", "netcdf-large", "open") / 1e6,
        "metadata-consolidated": number("n_requests", "xarray-zarr", "zarr-v2", many),
        "metadata-plain": plain,
        "n-client-versions": len(merged.groupby(["client", "environment"])),
    }
    return {key: Finding(value) for key, value in numbers.items()}


def list_foretold(held_out: pd.DataFrame) -> dict[str, Finding]:
    """List the shares of intervals of seconds that hold, of array layouts and files and of others."""
    seconds = held_out[held_out["quantity"] == "seconds"]
    is_array = seconds["layout"].isin(["native_ts", "native_dl", "virtual", "download"])
    parts = {"foretold-arrays": seconds[is_array], "foretold-others": seconds[~is_array]}
    shares = {
        key: Finding(100 * part["is_inside"].mean(), unit="%", n=len(part))
        for key, part in parts.items()
    }
    totals = held_out[held_out["quantity"] == "total"].set_index("layout")
    value, measured = totals.loc["native_ts", ["value", "measured"]].to_numpy(dtype=float)
    return shares | {"foretold-bill": Finding(value / measured)}
