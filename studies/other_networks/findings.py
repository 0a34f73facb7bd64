"""What counted requests take on another network, which gap is worth joining, and what was predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from statistics import median

import numpy as np
import pandas as pd

from helpers.benchmark.record import read_published
from helpers.benchmark.statistics import Interval, log_noise, name_ratio, paired_ratio
from helpers.findings import Finding, read_findings
from helpers.paths import ROOT
from studies.request_ledger.clients import GAPS, scatter
from studies.request_ledger.findings import KEY
from wire.bed.networks import get_profile
from wire.models.transfer import Network, Step, network_of, replay

REFERENCE = ROOT / "results" / "reference"
FORMATS = REFERENCE / "formats"
PREDICTED = ROOT / "results" / "predictions" / "wxtco.csv"
IN_FLIGHT = 10
"""Requests in flight of either client: ten in obstore, and in s3fs the ten connections of botocore."""
DEFAULT_GAP = "gap 1024 KiB"
"""What obstore, and zarr inside a shard, join by default."""
FILES_AND_ARRAYS = ("native_ts", "native_dl", "virtual", "download")
"""Layouts of the experiment on real S3 that are arrays, and whole files; the others are a mount and a table."""


def read_steps(numbers: Sequence[float]) -> list[Step]:
    """Read back the requests of a row: -1 less the number that had ended, or, in records of before, the index of the last of them."""
    triples = zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    return [
        Step((int(after),) if after >= 0 else int(-1 - after), float(think_s), int(nbytes))
        for after, think_s, nbytes in triples
    ]


def replay_all(table: pd.DataFrame, networks: Mapping[str, Network]) -> pd.DataFrame:
    """Replay what each client asked on one network over each other one: medians of the runs, in seconds.

    A line for each operation and pair of networks; `error_percent` is by how much they differ.
    """
    table = table[(table["absent"] == "") & (table["n_requests"] > 0)]
    lines = []
    for key, part in table.groupby(KEY, sort=False):
        by_network = {
            str(name): network_rows for name, network_rows in part.groupby("network", sort=False)
        }
        for seen_on, on in permutations(by_network, 2):
            runs = [read_steps(text) for text in by_network[seen_on]["steps"]]
            predicted_s = median(replay(steps, networks[on], n_draws=5) for steps in runs)
            lines.append((*key, seen_on, on, by_network[on]["span_s"].median(), predicted_s))
    columns = [*KEY, "seen_on", "network", "measured_s", "predicted_s"]
    replayed = pd.DataFrame(lines, columns=columns)
    error = replayed["predicted_s"] / replayed["measured_s"] - 1
    return replayed.assign(error_percent=100 * error.abs())


def count_biased(replayed: pd.DataFrame) -> dict[str, Finding]:
    """Count the replays of `replay_all` that come out too slow, or too fast, by where requests were seen."""
    is_express = replayed["seen_on"] == "express"
    is_slow = replayed["predicted_s"] > replayed["measured_s"]
    counts = {
        "slow-from-express": is_slow & is_express,
        "replays-from-express": is_express,
        "fast-from-elsewhere": ~is_slow & ~is_express,
        "replays-from-elsewhere": ~is_express,
    }
    return {key: Finding(int(is_counted.sum())) for key, is_counted in counts.items()}


def compare_gaps(table: pd.DataFrame, networks: Mapping[str, Network]) -> pd.DataFrame:
    """Compare the median seconds to read scattered ranges, joined over each gap, with those predicted."""
    gaps = table[table["operation"].isin([*GAPS]) & (table["control_of"] == "")]
    gap_kib = (gaps["operation"].map(GAPS) // 1024).rename("gap_kib")
    medians_s = gaps.groupby(["client", "network", gap_kib])["span_s"].median()
    predicted_s = [predict_gap(1024 * gap, networks[name]) for _, name, gap in medians_s.index]
    return medians_s.to_frame("measured_s").assign(predicted_s=predicted_s)


def predict_gap(gap_nbytes: int, network: Network, n_in_flight: int = IN_FLIGHT) -> float:
    """Predict the seconds to read the scattered ranges, joined over a gap."""
    joined = list[list[int]]()
    for start, end in zip(*scatter(), strict=True):
        if joined and start - joined[-1][1] <= gap_nbytes:
            joined[-1][1] = end
        else:
            joined.append([start, end])
    steps = [Step(max(0, i + 1 - n_in_flight), 0.0, b - a) for i, (a, b) in enumerate(joined)]
    return replay(steps, network)


def gap_worth_joining(network: Network) -> float:
    """Compute the bytes that a connection receives in the time of a first byte.

    To read so many that nobody wants takes as long as another request on that connection.

    Examples
    --------
    >>> gap_worth_joining(Network(0.026, 0.045, stream_nbytes_per_s=86e6))
    2236000.0
    """
    return network.first_byte_median_s * network.stream_nbytes_per_s


def compare_joined(table: pd.DataFrame, network: str) -> dict[str, Interval]:
    """Compare, through obstore, the seconds of each gap with those of the default."""
    on_network = table[table["network"] == network]
    noise = 1 + find_noise(on_network)
    reads = on_network[on_network["client"] == "ranges-obstore"].drop(columns="control_of")
    return {
        f"gap-{of}-{network}": replace(
            paired_ratio(reads, gap, DEFAULT_GAP, column="operation", value="span_s"),
            quantity=name_ratio(gap, DEFAULT_GAP, "span_s"),
            noise=noise,
        )
        for of, gap in {"none": "gap 0 KiB", "large": "gap 8192 KiB"}.items()
        if {gap, DEFAULT_GAP} <= {*reads["operation"]}
    }


def find_noise(table: pd.DataFrame) -> float:
    """Find by what ratio less 1 the copy of a gap differs from it; NaN where there is none."""
    copies = table[table["control_of"] != ""]
    keys = ["block", "network", "operation"]
    pairs = copies.merge(
        table, left_on=["control_of", *keys], right_on=["client", *keys], suffixes=("", "_of")
    )
    if pairs.empty:
        return math.nan
    return log_noise(np.log((pairs["span_s"] / pairs["span_s_of"]).to_numpy())) - 1


def predict_asking_twice(network: Network, chunk_nbytes: float, n_chunks: float) -> float:
    """Predict how many times as long chunks take that are asked for twice, one after the other.

    Each connection reads `n_chunks` of them, and is set up and goes through slow start once.

    Examples
    --------
    A first byte of 100 ms and a body of 100 ms; the second first byte makes it half as long again:

    >>> round(predict_asking_twice(Network(0.1, 0.1, stream_nbytes_per_s=1e6), 1e5, 8), 9)
    1.5
    """
    body_s = chunk_nbytes / network.stream_nbytes_per_s
    body_s += network.new_connection_s(chunk_nbytes) / n_chunks
    first_s = network.first_byte_median_s
    return (2 * first_s + body_s) / (first_s + body_s)


def compare_asking_twice() -> pd.DataFrame:
    """Compare what asking twice costs by formula, without and with new connections, with what it cost.

    Read were 80 chunks of 0.95 MB over ten connections (`formats`): eight on each.
    """
    lines = {}
    for name in ("in-region", "other-region"):
        network = network_of(get_profile(name))
        finding = read_findings(FORMATS / f"{name}.csv").get("today-over-one-get", Finding())
        lines[name] = {
            "by formula, without w": predict_asking_twice(network, 0.95e6, math.inf),
            "by formula": predict_asking_twice(network, 0.95e6, 8),
            "measured": finding.value,
            "low": finding.low,
            "high": finding.high,
        }
    return pd.DataFrame.from_dict(lines, orient="index")


def predict_headlines(network: Network, seen_on: Network) -> dict[str, float]:
    """Predict three ratios of times that pages lead with, by requests and bytes that were counted.

    What took longer than these explain on the network on which it was seen, processors above all,
    takes as long on any other.
    """
    granule = read_findings(REFERENCE / "hdf5-drivers" / "granule.csv")
    tiles = read_findings(REFERENCE / "caching-costs" / "in-region.csv")

    def read_s(on: Network, driver: str, n_connections: int) -> float:
        n_requests, mb = (granule[f"{driver}-{of}"].value for of in ("requests", "mb"))
        rate = min(n_connections * on.stream_nbytes_per_s, on.aggregate_nbytes_per_s)
        return math.ceil(n_requests / n_connections) * on.first_byte_median_s + 1e6 * mb / rate

    def take_s(driver: str, n_connections: int) -> float:
        other_s = granule[f"{driver}-s"].value - read_s(seen_on, driver, n_connections)
        return max(0.0, other_s) + read_s(network, driver, n_connections)

    n_to_open = tiles["requests-none"].value - tiles["requests-lru"].value
    tile_s = n_to_open * seen_on.first_byte_median_s / (tiles["gain-lru"].value - 1)
    return {
        "file whole over read-ahead": take_s("default", 1) / take_s("whole", IN_FLIGHT),
        "asked once over twice": predict_asking_twice(network, 0.95e6, 8),
        "cache of datasets over none": 1 + n_to_open * network.first_byte_median_s / tile_s,
    }


def vary_network(network: Network) -> pd.DataFrame:
    """Compute each headline ratio at half and twice the first byte and the rate, and links of 0.1 to 3 GB/s.

    Returns
    -------
    DataFrame
        By headline and what varies: ``here``, and ``low`` and ``high`` over the values tried.
    """
    tried = {
        "first byte, half to twice": [replace(network, first_byte_median_s=k * network.first_byte_median_s) for k in (0.5, 1, 2)],
        "rate of a stream, half to twice": [replace(network, stream_nbytes_per_s=k * network.stream_nbytes_per_s) for k in (0.5, 1, 2)],
        "link, 0.1 to 3 GB/s": [replace(network, aggregate_nbytes_per_s=link) for link in (1e8, 3e8, 1e9, 3e9)],
    }  # fmt: skip
    ratios, lines = predict_headlines(network, network), []
    for varied, networks in tried.items():
        headlines = pd.DataFrame(
            [predict_headlines(tried_network, network) for tried_network in networks]
        )
        lines += [
            (name, varied, ratios[name], headlines[name].min(), headlines[name].max())
            for name in ratios
        ]
    columns = ["headline", "what", "here", "low", "high"]
    return pd.DataFrame(lines, columns=columns).set_index(["headline", "what"]).sort_index()


def compare_predictions() -> pd.DataFrame:
    """Compare what was predicted of a published experiment with what was measured there.

    A line for each layout, query and quantity that both have; `value`, `low` and `high` are as
    predicted, and `of` is seconds, requests, bytes or bill.
    """
    measured = read_published("wxtco_results").rename(columns={"value": "measured"})
    key = ["layout", "query", "quantity"]
    both = pd.read_csv(PREDICTED).merge(measured[[*key, "measured"]], on=key)
    of = both["quantity"].replace({"get": "requests", "list": "requests", "wire": "bytes"})
    return both.assign(
        is_inside=both["measured"].between(both["low"], both["high"]),
        is_array=both["layout"].isin(FILES_AND_ARRAYS),
        of=of.where(both["query"] != "bill", "bill"),
    )


def summarise_predictions(held_out: pd.DataFrame) -> pd.DataFrame:
    """Count the intervals that hold, of arrays and files and of the other layouts.

    `factor` is the median by which a point is off in either direction, `n_near` the points that are
    off by at most 1.5, and `width` the median of the upper end of an interval over its lower end.
    """
    ratio = held_out["value"] / held_out["measured"]
    error_factor = ratio.where(ratio > 1, 1 / ratio)
    parts = held_out.assign(
        factor=error_factor, is_near=error_factor <= 1.5, width=held_out["high"] / held_out["low"]
    ).groupby(["is_array", "of"])
    return parts.agg(
        n=("is_inside", "size"),
        n_inside=("is_inside", "sum"),
        factor=("factor", "median"),
        n_near=("is_near", "sum"),
        width=("width", "median"),
    )


def list_predicted(summary: pd.DataFrame) -> dict[str, Finding]:
    """List how many intervals there are and hold, by quantity, and by how much the points are off."""
    findings: dict[str, Finding] = {}
    for line in summary.reset_index().to_dict("records"):
        of = line["of"] if line["is_array"] else f"{line['of']}-others"
        named = {"predicted": line["n"], "foretold": line["n_inside"], "off": line["factor"]}
        findings |= {f"{name}-{of}": Finding(float(value)) for name, value in named.items()}
    return findings
