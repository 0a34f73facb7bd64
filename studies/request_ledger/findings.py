"""Rows of the ledger as a table of counts, what changed between versions, and what counts take elsewhere."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from statistics import median

import numpy as np
import pandas as pd

from helpers.benchmark.record import read_published, read_records
from helpers.benchmark.statistics import Interval, log_noise, ratio_interval
from helpers.findings import Finding
from helpers.models.transfer import Network, Step, replay
from helpers.netem.profiles import get_profile, network_of
from helpers.paths import ROOT
from helpers.plotting.tables import trace_of
from helpers.prices import find_price
from studies.request_ledger.client_process import GAPS, scatter
from studies.request_ledger.environments import read_environments

COMMITTED = ROOT / "results" / "reference" / "request-ledger" / "versions.csv"
PRESETS = ("in-region", "other-region", "wide-area", "express")
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
    rows = rows[rows["control_of"] == ""]
    traces = pd.json_normalize([json.loads(text) for text in rows["trace"]]).set_index(rows.index)
    table = rows[["environment", "layout", "operation", "block", "n_requests", "wire_nbytes"]].join(
        traces
    )
    table.insert(0, "client", rows["contender"])
    table["network"] = rows.get("network", "")
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
    """Choose the stacks of a day, in their order."""
    return merged[merged["environment"].str.fullmatch(r"\d{4}(-\d\d)?")]


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
    """Read back the requests of a row: -1 less the number that had ended, or, in records of before, the index of the last of them."""
    triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return [
        Step((int(after),) if after >= 0 else int(-1 - after), float(think_s), int(nbytes))
        for after, think_s, nbytes in triples
    ]


def replay_all(table: pd.DataFrame, networks: Mapping[str, Network]) -> pd.DataFrame:
    """Replay what each client asked on one network over each other one.

    Returns
    -------
    DataFrame
        A line for each operation and pair of networks: `KEY`, `seen_on`, `network`, `measured_s`
        and `predicted_s`, medians of the runs, and `error`, by which these differ.
    """
    table = table[(table["reason"] == "") & (table["n_requests"] > 0)]
    lines = []
    for key, part in table.groupby(KEY, sort=False):
        by_network = {str(name): one for name, one in part.groupby("network", sort=False)}
        for seen_on, on in permutations(by_network, 2):
            runs = [read_steps(one) for one in by_network[seen_on]["steps"]]
            predicted_s = median(replay(one, networks[on], n_draws=5).seconds for one in runs)
            lines.append((*key, seen_on, on, by_network[on]["span_s"].median(), predicted_s))
    columns = [*KEY, "seen_on", "network", "measured_s", "predicted_s"]
    found = pd.DataFrame(lines, columns=columns)
    return found.assign(error=100 * (found["predicted_s"] / found["measured_s"] - 1))


def compare_gaps(table: pd.DataFrame, networks: Mapping[str, Network]) -> pd.DataFrame:
    """Compare the seconds to read scattered ranges, joined over each gap, with those predicted.

    Returns
    -------
    DataFrame
        `measured_s`, the median of the runs, and `predicted_s`, by client, network and gap.
    """
    gaps = table[table["operation"].isin([*GAPS])]
    gaps = gaps.assign(gap_kib=[GAPS[one] // 1024 for one in gaps["operation"]])
    found = gaps.groupby(["client", "network", "gap_kib"])["span_s"].median()
    predicted_s = [
        predict_gap(1024 * gap_kib, networks[network], IN_FLIGHT[client])
        for client, network, gap_kib in found.index
    ]
    return found.to_frame("measured_s").assign(predicted_s=predicted_s)


IN_FLIGHT = {"ranges-obstore": 10, "ranges-fsspec": 128}
"""Requests that each client keeps in flight, by the defaults of object_store and fsspec."""


def predict_gap(gap_nbytes: int, network: Network, n_in_flight: int) -> float:
    """Predict the seconds to read the scattered ranges, joined over a gap."""
    joined = list[list[int]]()
    for start, end in zip(*scatter(), strict=True):
        if joined and start - joined[-1][1] <= gap_nbytes:
            joined[-1][1] = end
        else:
            joined.append([start, end])
    steps = [Step(max(0, i + 1 - n_in_flight), 0.0, b - a) for i, (a, b) in enumerate(joined)]
    return replay(steps, network).seconds


def gap_worth_joining(network: Network) -> float:
    """Compute the bytes that a connection receives in the time of a first byte.

    To read so many that nobody wants takes as long as another request on that connection.

    Examples
    --------
    >>> gap_worth_joining(Network(0.026, 0.045, stream_nbytes_per_s=86e6))
    2236000.0
    """
    return network.first_byte_median_s * network.stream_nbytes_per_s


def list_transfer(
    replayed: pd.DataFrame, table: pd.DataFrame, gaps: pd.DataFrame, networks: Mapping[str, Network]
) -> dict[str, Finding | Interval]:
    """List how far off replayed reads are, and what the gaps of obstore come to on each network."""
    errors = replayed["error"].abs()
    off = 100 * (gaps["predicted_s"] / gaps["measured_s"] - 1).abs()
    found: dict[str, Finding | Interval] = {
        "replay-error": Finding(float(errors.median()), unit="%", n=len(errors)),
        "replay-p90": Finding(float(errors.quantile(0.9)), unit="%", n=len(errors)),
        "gap-error": Finding(float(off.median()), unit="%", n=len(off)),
    }
    for name, network in networks.items():
        found[f"gap-worth-{name}"] = Finding(gap_worth_joining(network) / 1e6, unit="MB")
        is_here = (table["client"] == "ranges-obstore") & (table["network"] == name)
        by_gap = table[is_here].pivot(index="block", columns="operation", values="span_s")
        for of, gap in (("none", "gap 0 KiB"), ("large", "gap 8192 KiB"), ("small", "gap 64 KiB")):
            if {gap, DEFAULT_GAP} <= {*by_gap}:
                logs = np.log((by_gap[gap] / by_gap[DEFAULT_GAP]).to_numpy())
                found[f"gap-{of}-{name}"] = ratio_interval(logs)
    return found


DEFAULT_GAP = "gap 1024 KiB"
"""What obstore, and zarr inside a shard, join by default."""


def find_noise(rows: pd.DataFrame) -> float:
    """Find by what ratio less 1 the copy of a gap differs from it; 0 where only counts are judged."""
    rows = rows.assign(span_s=trace_of(rows)["span_s"])
    copies = rows[rows["control_of"] != ""]
    if copies.empty:
        return 0.0
    at = ["block", "network", "operation"]
    pairs = copies.merge(
        rows, left_on=["control_of", *at], right_on=["contender", *at], suffixes=("", "_of")
    )
    return log_noise(np.log((pairs["span_s"] / pairs["span_s_of"]).to_numpy())) - 1


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


def choose_newest(table: pd.DataFrame) -> pd.DataFrame:
    """Choose the last environment of each client, in the order of their list."""
    order = {one.name: i for i, one in enumerate(read_environments())}
    ranks = table["environment"].map(order)
    return table[ranks == ranks.groupby(table["client"]).transform("max")]


def write_data() -> str:
    """Write the data of the page, a script in Markdown; without a record there are no rows."""
    rows = []
    if COMMITTED.exists():
        table = tabulate(read_records([COMMITTED]))
        there = (table["reason"] == "") & (table["n_requests"] > 0) & (table["block"] == 0)
        for line in choose_newest(table[there]).to_dict("records"):
            gets = line["n_get"] + line["n_head"]
            kept = ("client", "environment", "layout", "operation", "n_requests", "n_waits")
            puts = line["n_requests"] - gets
            rows.append({**{name: line[name] for name in kept}, "gets": gets, "puts": puts}
                        | {"mb": round(line["wire_nbytes"] / 1e6, 3), "steps": list(line["steps"])})  # fmt: skip
    presets = {}
    for name in PRESETS:
        network = network_of(get_profile(name))
        presets[name] = {
            "p50": round(1e3 * network.first_byte_median_s, 3),
            "p95": round(1e3 * network.first_byte_p95_s, 3),
            "stream": network.stream_nbytes_per_s / 1e6,
            "link": min(network.aggregate_nbytes_per_s / 1e6, 10_000),
        }
    items = {"get": "store_gets_1e3", "put": "store_lists_1e3"}
    prices = {name: (find_price(item).value or 0.0) / 1e3 for name, item in items.items()}
    data = json.dumps({"rows": rows, "presets": presets, "prices": prices}).replace("<", "\\u003c")
    return f"```{{raw}} html\n<script>const LEDGER = {data};</script>\n```\n"
