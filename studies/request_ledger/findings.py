"""Rows of the ledger as a table of counts, and what changed between versions."""

from __future__ import annotations

import json
import math
import re

import pandas as pd

from helpers.benchmark.record import read_records
from helpers.findings import Finding
from helpers.paths import ROOT
from helpers.plotting.tables import trace_of
from studies.request_ledger.environments import read_environments
from wire.bed.networks import get_profile
from wire.costs.prices import find_price
from wire.models.transfer import network_of

COMMITTED = ROOT / "results" / "reference" / "request-ledger" / "versions.csv"
PRESETS = ("in-region", "other-region", "wide-area", "express")
KEY = ["client", "environment", "layout", "operation"]
COUNTS = ["n_get", "n_head", "n_put", "n_other", "wire_nbytes"]
"""Counts that two runs have to agree in; chains and connections depend on the moment too."""
MORE = 1.05
"""Ratio from which a count is more: metadata differ by some bytes from version to version."""


def tabulate(rows: pd.DataFrame) -> pd.DataFrame:
    """Make a table of a record of the ledger, with a line for each operation of each run.

    `needed_nbytes` are stored bytes of the chunks that the operation touches; `absent` says why
    there is nothing to count, and else is empty.
    """
    names = {"contender": "client", "stored_nbytes": "needed_nbytes"}
    counted = ["n_requests", "wire_nbytes"]
    columns = [*KEY, "network", "control_of", "phase", "block", "needed_nbytes", *counted]
    table = rows.rename(columns=names).reindex(columns=columns)
    return table.join(trace_of(rows)).reset_index(drop=True)


def merge_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Make one line of the measured runs of each operation: the medians, and the versions."""
    measured = table[(table["absent"] == "") & (table["phase"] == "measured")]
    groups = measured.groupby(KEY, sort=False)
    chains = ["n_waits", "n_in_flight", "n_connections", "n_joined"]
    merged = groups[[*COUNTS, "n_requests", *chains, "span_s", "needed_nbytes"]].median()
    merged["least_waits"], merged["most_waits"] = groups["n_waits"].min(), groups["n_waits"].max()
    merged["versions"] = groups["versions"].first()
    return merged.reset_index().sort_values("environment", key=_rank, kind="stable")


_PATH = re.compile(r"\s*\(?(?:[\w.~+-]*/){2,}[^\s)]*\)?")


def list_refusals(table: pd.DataFrame) -> pd.DataFrame:
    """List what clients raised instead of asking, a line for each reason, with the versions that did.

    A reason is its first sentence, without the paths of the machine that ran it.
    """
    refused = table[table["absent"] != ""]
    reasons = refused["absent"].map(shorten_reason)
    lines = refused.assign(raised=reasons).groupby(["client", "raised"], sort=False)
    versions = lines["environment"].agg(lambda names: ", ".join(dict.fromkeys(names)))
    return versions.rename("version").reset_index("raised")[["version", "raised"]]


def shorten_reason(reason: str) -> str:
    """Shorten what a client raised to one sentence without paths.

    Examples
    --------
    >>> shorten_reason("ImportError: cannot import 'a' from 'b' (./venv/lib/b.py). Try c.")
    "ImportError: cannot import 'a' from 'b'"
    """
    return _PATH.sub("", reason).partition(". ")[0].rstrip(".")


def _rank(environments: pd.Series[str]) -> pd.Series[float]:
    """Give the place of each environment in their list."""
    return environments.map(
        {environment.name: i for i, environment in enumerate(read_environments())}
    )


def compare_repeats(table: pd.DataFrame) -> pd.Series[bool]:
    """Tell of each operation that ran more than once, warm-ups included, whether all counts agree.

    A warm-up serves here: each run has a process of its own, which nothing before has warmed.
    """
    groups = table[table["absent"] == ""].groupby(KEY, sort=False)
    spread = groups[COUNTS].max() - groups[COUNTS].min()
    return (spread == 0).all(axis=1)[groups.size() > 1]


def choose_years(merged: pd.DataFrame) -> pd.DataFrame:
    """Choose the stacks of a day, in their order."""
    return merged[merged["environment"].str.fullmatch(r"\d{4}(-\d\d)?")]


def compare(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Compare what two sets of lines of `merge_runs` ask for, each of one environment a client.

    A line for each count that differs by more than a factor of `MORE`: client, layout and operation,
    `count`, `before` and `after`. Requests, bytes, and chains of waits beyond what runs differ in.
    """
    key = [name for name in KEY if name != "environment"]
    pairs = before.merge(after, on=key, suffixes=("_before", "_after"))
    differences = []
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
        differences.append(part)
    return pd.concat(differences, ignore_index=True)


def list_counts(merged: pd.DataFrame, n_chunks: int) -> dict[str, Finding]:
    """List the counts that prose quotes; those of what was not asked are NaN."""
    today = "2026" if "2026" in set(merged["environment"]) else "here"
    lines, all_metadata, plain = merged.set_index(KEY), "metadata of 100", "zarr-v2-unconsolidated"

    def number(value: str, client: str, layout: str, operation: str, when: str = today) -> float:
        return float(lines[value].get((client, when, layout, operation), math.nan))

    by_gcsfs = "n_requests", "zarr-gcsfs", "zarr-v2", "whole"
    numbers = {
        "gcsfs-then": number(*by_gcsfs, "gcsfs 2026.8.0") / n_chunks,
        "gcsfs-after": number(*by_gcsfs, "gcsfs 2026.8.1") / n_chunks,
        "requests-of-today": number("n_requests", "zarr-s3fs", "zarr-v2", "whole") / n_chunks,
        "chain-2021": number("n_waits", "zarr-s3fs", "zarr-v2", "whole", "2021"),
        "chain-2022": number("n_waits", "zarr-s3fs", "zarr-v2", "whole", "2022"),
        "open-large-mb": number("wire_nbytes", "h5netcdf", "netcdf-large", "open") / 1e6,
        "metadata-consolidated": number("n_requests", "xarray-zarr", "zarr-v2", all_metadata),
        "metadata-plain": number("n_requests", "xarray-zarr-unconsolidated", plain, all_metadata),
        "n-client-versions": len(merged.groupby(["client", "environment"])),
    }
    return {key: Finding(value) for key, value in numbers.items()}


def choose_newest(table: pd.DataFrame) -> pd.DataFrame:
    """Choose the last environment of each client, in the order of their list."""
    ranks = _rank(table["environment"])
    return table[ranks == ranks.groupby(table["client"]).transform("max")]


def write_data() -> str:
    """Write the data of the page, a script in Markdown; without a record there are no rows."""
    rows = []
    if COMMITTED.exists():
        table = tabulate(read_records([COMMITTED]))
        is_measured = (table["phase"] == "measured") & (table["block"] == 0)
        is_shown = (table["absent"] == "") & (table["n_requests"] > 0) & is_measured
        for line in choose_newest(table[is_shown]).to_dict("records"):
            gets = line["n_get"] + line["n_head"]
            cells = {name: line[name] for name in (*KEY, "n_requests", "n_waits")}
            cells |= {"gets": gets, "puts": line["n_requests"] - gets}
            cells |= {"mb": round(line["wire_nbytes"] / 1e6, 3), "steps": list(line["steps"])}
            rows.append(cells)
    presets = {}
    for name in PRESETS:
        network = network_of(get_profile(name))
        presets[name] = {
            "p50": round(1e3 * network.first_byte_median_s, 3),
            "p95": round(1e3 * network.first_byte_p95_s, 3),
            "stream": network.stream_nbytes_per_s / 1e6,
            "link": min(network.aggregate_nbytes_per_s / 1e6, 10_000),
        }
    items = {"get": "store_gets_1e3", "put": "store_puts_1e3"}
    prices = {name: (find_price(item).value or 0.0) / 1e3 for name, item in items.items()}
    data = json.dumps({"rows": rows, "presets": presets, "prices": prices}).replace("<", "\\u003c")
    return f"```{{raw}} html\n<script>const LEDGER = {data};</script>\n```\n"
