"""Clients that were measured side by side: what each asks, what that takes by the model, and its overhead."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from advisors.chunks.answers import CHUNK_MS, store_from
from advisors.decide.evidence import ORIGINAL, Measured
from advisors.decide.question import Question
from helpers.models.access import IoCounts, Store, access_seconds
from helpers.netem.profiles import get_recorded_profile, network_of


@dataclass(frozen=True, slots=True)
class Group:
    """Clients that were measured side by side."""

    case: str
    point: str  # of the x-axis, as text
    nbytes: float  # of the array, that all of them read
    rows: Mapping[str, Measured]  # by contender
    asked: Mapping[str, float]  # seconds that its requests and bytes take by the model


def list_groups(rows: Iterable[Measured]) -> list[Group]:
    """Put clients together that read the same bytes at the same point of a case, where requests were traced.

    A conversion of a file stands beside the readers of the file as it was written.
    """
    found: dict[tuple[str, str, float], dict[str, Measured]] = defaultdict(dict)
    for row in rows:
        if row.is_box or row.is_tile or not row.n_requests or not row.wire_nbytes:
            continue
        is_conversion = row.point.get("layout") == row.contender
        point = {**row.point, **({"layout": ORIGINAL} if is_conversion else {})}
        found[row.case, json.dumps(point, sort_keys=True), row.array_nbytes][row.contender] = row
    return [
        Group(*key, clients, {name: predict_row(row) for name, row in clients.items()})
        for key, clients in found.items()
    ]


def describe_store(row: Measured) -> Store:
    """Describe the network of a record as it was emulated, and the reader that every answer assumes.

    Where time was dilated, processors are as many times faster; processes that are alike share
    what the network carries for all.
    """
    n_connections = int(row.settings["concurrency"])
    n_each = -(-n_connections // int(row.point.get("n_workers", 1)))
    network = network_of(get_recorded_profile(row.profile), streams_per_worker=n_each)
    options = {
        "profile": row.profile,
        "connections": n_connections,
        "decode_mb_per_s": row.dilation * Question.model_fields["decode_mb_per_s"].default,
        "chunk_ms": CHUNK_MS / row.dilation,
        "compression_ratio": None,
    }
    store = store_from(options)
    shared = replace(
        network,
        aggregate_nbytes_per_s=network.aggregate_nbytes_per_s / row.n_processes,
        requests_per_s=network.requests_per_s / row.n_processes,
    )
    return replace(store, network=shared)


def predict_row(row: Measured) -> float:
    """Predict a read from its requests, its bytes and how many it may have in flight; in seconds.

    Requests and bytes are those of the trace, refused ones among them. What is fetched is
    decoded, wanted or not. A server beside the data that cuts out what is asked follows the same
    law: one request, and the bytes that are wanted; its own work is not counted.
    """
    n_requests, wire_nbytes = float(row.n_requests or 1), float(row.wire_nbytes or 0)
    counts = IoCounts(
        n_requests,
        max(wire_nbytes, row.array_nbytes) / n_requests,
        stored_nbytes=wire_nbytes / n_requests,
    )
    return float(access_seconds(describe_store(row), counts))


@dataclass(frozen=True, slots=True)
class Overhead:
    """What a client takes beyond its requests and bytes."""

    ratio: float = 1.0  # its time over the model's, relative to that of others
    cases: tuple[str, ...] = ()  # where it was seen, each once for each comparison


def find_overheads(groups: Iterable[Group]) -> dict[str, Overhead]:
    """Find how many times longer each client takes than its requests and bytes explain, relative to others.

    Accesses differ in what they ask, and so do networks; that is the model's. What is left, the
    measured time over the model's, has two factors: one that all of a comparison share, of
    machine and data, and one of the client. Both are found at once, by least squares of the
    logarithms, so who else was there does not count. A mean of ratios to the fastest depends on
    that: a client that was only measured beside slow ones would seem fast. Each client has one
    more comparison, in which it is as others are: one that was seen once is half believed, and
    one that was never seen is taken for an average one.

    Examples
    --------
    Both ask the same, and one takes four times as long: seen once, the difference is halved.

    >>> row = Measured("a/b", "loopback", "x", {}, 1.0, 1.0, 0.0, 5, 1e6, 1, 1e6, settings={"concurrency": 1})
    >>> groups = list_groups([row, replace(row, contender="y", p50_s=4.0)])
    >>> {name: round(one.ratio, 3) for name, one in find_overheads(groups).items()}
    {'x': 0.707, 'y': 1.414}
    """
    compared = [group for group in groups if len(group.rows) > 1]
    names = sorted({name for group in compared for name in group.rows})
    pairs = [(i, names.index(name)) for i, group in enumerate(compared) for name in group.rows]
    n_rows, n_shared = len(pairs), len(compared)
    design = np.zeros((n_rows + len(names), n_shared + len(names)))
    for place, (shared, own) in enumerate(pairs):
        design[place, [shared, n_shared + own]] = 1.0
    design[n_rows:, n_shared:] = np.eye(len(names))  # one more comparison each, at the average
    logs = np.zeros(n_rows + len(names))
    logs[:n_rows] = [
        math.log(row.seconds / group.asked[name])
        for group in compared
        for name, row in group.rows.items()
    ]
    found = np.exp(np.linalg.solve(design.T @ design, design.T @ logs)[n_shared:])
    cases: dict[str, list[str]] = {name: [] for name in names}
    for shared, own in pairs:
        cases[names[own]].append(compared[shared].case)
    return {
        name: Overhead(float(ratio), tuple(cases[name]))
        for name, ratio in zip(names, found, strict=True)
    }


def rank_clients(overheads: Mapping[str, Overhead], asked: Mapping[str, float]) -> dict[str, float]:
    """Multiply what each client asks takes by the model, in seconds, by its overhead; the fastest first.

    Examples
    --------
    >>> rank_clients({"x": Overhead(3.0)}, {"x": 1.0, "y": 2.0})
    {'y': 2.0, 'x': 3.0}
    """
    expected = {name: overheads.get(name, Overhead()).ratio * s for name, s in asked.items()}
    return dict(sorted(expected.items(), key=lambda pair: pair[1]))


def compare_clients(groups: Iterable[Group], one: str, other: str) -> float | None:
    """Compute the time of `one` over that of another where both were measured: a geometric mean."""
    logs = [
        math.log(group.rows[one].seconds / group.rows[other].seconds)
        for group in groups
        if {one, other} <= group.rows.keys()
    ]
    return math.exp(statistics.mean(logs)) if logs else None
