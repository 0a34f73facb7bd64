"""Whether dilated time is valid: one read over one network at several dilations, as ratios.

`python -m studies.cluster_scaling.validity` measures for about five minutes and writes the record
that the page on method shows. Where processors do not bind, the network's seconds are the same at
every dilation; a contender that uses a processor for a known time is as much faster as it says.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import obstore
import pandas as pd
import xxhash
from obstore.store import ObjectStore

from helpers.arrays.reads import WrongValuesError
from helpers.benchmark.loop import timed
from helpers.benchmark.provenance import machine
from helpers.benchmark.statistics import Interval, ratio_interval
from helpers.book.studies import write_table
from helpers.errors import UserError
from helpers.netem.profiles import MB, FirstByte, Profile, check_dilation
from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Testbed, open_testbed
from helpers.paths import ROOT
from helpers.plotting.tables import digits, tell_interval

SLOW = Profile("slow", FirstByte(0.1, 0.1), stream_mb_per_s=1.0)
"""A network so slow that two cores have little to do.

Its delays do not scatter, for those of few requests would hide what is looked for, and its
connections share nothing, so that a read is arithmetic.
"""

BAR = 0.05
"""How far from 1 the ends of an interval may lie."""

RECORD = ROOT / "results" / "reference" / "dilation.csv"


@dataclass(frozen=True, slots=True)
class Workload:
    """Objects read by one process that keeps several requests in flight."""

    n_objects: int = 16
    object_nbytes: int = 250_000
    n_connections: int = 8

    def predict_s(self, first_byte_s: float, mb_per_s: float, processor_s: float) -> float:
        """Predict the read, where one processor works so long on each object, in order of arrival.

        Examples
        --------
        Two waves of 0.1 s and 0.25 for 250 kB; with half a second of work an object, the
        processor waits for the first and is busy from then on:

        >>> [round(Workload().predict_s(0.1, 1.0, seconds), 3) for seconds in (0.0, 0.5)]
        [0.7, 8.35]
        """
        arrives_s = first_byte_s + self.object_nbytes / (mb_per_s * MB)
        starts_s, free_s = [0.0] * self.n_connections, 0.0
        for _ in range(self.n_objects):
            begins_s = max(heapq.heappop(starts_s) + arrives_s, free_s)
            free_s = begins_s + processor_s
            heapq.heappush(starts_s, free_s)
        return max(starts_s)


PLAN = (*((k, 0.0) for k in (1, 2, 4, 8, 16)), *((k, 0.12) for k in (1, 4, 16)))
"""What is read in a round: dilations, with the seconds of a processor for each object."""


@contextmanager
def open_testbeds(
    networks: Sequence[tuple[Profile, float]], *, needed_nbytes: int = 0
) -> Iterator[list[Testbed]]:
    """Stand a proxy for each network and dilation before one store, with the same delays in each."""
    with ExitStack() as stack:
        opened = open_testbed("embedded", Profile("loopback"), needed_nbytes=needed_nbytes)
        near, beds = stack.enter_context(opened).near, []
        for profile, k in networks:
            at = open_proxy(str(near.endpoint_url), profile=profile, dilation=k)
            proxy = stack.enter_context(at)
            beds.append(Testbed(near, near.through(proxy.endpoint_url), proxy))
        yield beds


def use_processor(seconds: float) -> None:
    """Use a processor for so long, a millisecond at a time and without the interpreter's lock."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        hashlib.pbkdf2_hmac("sha256", b"known", b"time", 1000)


def _read_all(
    store: ObjectStore, keys: Sequence[str], n_connections: int, processor_s: float
) -> set[int]:
    """Read every object, work on one after the other, and keep nothing but checksums."""
    processor = threading.Lock()

    def read_one(key: str) -> int:
        body = obstore.get(store, key).bytes()
        with processor:
            use_processor(processor_s)
        return xxhash.xxh3_64_intdigest(body)

    with ThreadPoolExecutor(n_connections) as pool:
        return {*pool.map(read_one, keys)}


def measure(
    profile: Profile = SLOW,
    plan: Sequence[tuple[float, float]] = PLAN,
    *,
    workload: Workload = Workload(),
    n_rounds: int = 6,
) -> pd.DataFrame:
    """Read the same objects at each dilation, in turn; the order turns by one from round to round.

    A row for each read has the network's seconds, measured and predicted, and medians of what the
    trace saw of a request: seconds to the first byte and of the body.
    """
    if not plan or n_rounds < 1:
        raise UserError(
            f"dilations, n_rounds: {tuple(plan)}, {n_rounds}; allowed: one or more of each"
        )
    for dilation, _ in plan:
        check_dilation(dilation)
    late, rate = profile.first_byte_s, profile.stream_mb_per_s
    if late is None or rate is None or late.p95_s != late.median_s or profile.aggregate_mb_per_s:
        raise UserError(
            f"profile: {profile.name!r}; allowed: one with a constant delay and a rate of each"
            " connection, and none that they share"
        )
    body, lines = os.urandom(workload.object_nbytes), []
    keys = [f"validity/{i}" for i in range(workload.n_objects)]
    dilations = [*dict.fromkeys(k for k, _ in plan)]
    with open_testbeds([(profile, k) for k in dilations]) as opened:
        beds = dict(zip(dilations, opened, strict=True))
        for key in keys:
            obstore.put(opened[0].near.obstore(), key, body)
        clients = {k: bed.far.obstore() for k, bed in beds.items()}
        for i in range(n_rounds):
            for at in (*range(len(plan))[i % len(plan) :], *range(i % len(plan))):
                k, seconds = plan[at]
                read = partial(_read_all, clients[k], keys, workload.n_connections, seconds)
                expected_s = workload.predict_s(late.median_s, rate, seconds / k)
                found = _read_once(read, beds[k], k, xxhash.xxh3_64_intdigest(body))
                lines.append((i, k, seconds, expected_s, *found))
    names = ["round", "dilation", "processor_s", "predicted_s", "read_s", "first_byte_s", "body_s"]
    return pd.DataFrame(lines, columns=names)


def _read_once(
    read: partial[set[int]], testbed: Testbed, dilation: float, checksum: int
) -> tuple[float, float, float]:
    """Read once, check it, and tell the network's seconds of it and of its requests."""
    testbed.take_trace()
    checksums, seconds = timed(read, dilation=dilation)
    if checksums != {checksum}:
        raise WrongValuesError("objects differ from those in the store")
    trace = testbed.take_trace()
    moments = pd.DataFrame([(one.start_s, one.first_byte_s, one.end_s) for one in trace])
    spans = moments.diff(axis=1).median()
    return seconds, float(spans[1]), float(spans[2])


def compare(rows: pd.DataFrame, *, is_worked: bool) -> dict[float, Interval]:
    """Compare reads with those at the first dilation, or with arithmetic where a processor works.

    Ratios are paired within rounds. The intervals hold for all of them at once, in 95 %.
    """
    part = rows[(rows["processor_s"] > 0) == is_worked].sort_values("round")
    dilations = sorted({*map(float, part["dilation"])})
    reads = {k: part[part["dilation"] == k] for k in dilations}
    seconds = {k: one["read_s"].to_numpy() for k, one in reads.items()}
    if is_worked:
        wanted = {k: one["predicted_s"].to_numpy() for k, one in reads.items()}
    else:
        wanted = dict.fromkeys(dilations[1:], seconds[dilations[0]])
    counts = {"n_compared": max(1, len(wanted))}
    return {k: ratio_interval(np.log(seconds[k] / to), **counts) for k, to in wanted.items()}


def tell_bar(ratios: dict[float, Interval]) -> str:
    """Say whether all ratios are shown to be 1 within the bar, or which are not."""
    beyond = [k for k, one in ratios.items() if not 1 - BAR <= one.low <= one.high <= 1 + BAR]
    bar = f"within {100 * BAR:g} % of 1"
    if not beyond:
        return f"All intervals lie {bar}."
    return f"Not {bar} is the interval at {', '.join(f'{k:g}' for k in beyond)}."


def render_validity(path: Path = RECORD) -> str:
    """Write both comparisons as tables, each with its verdict; nothing was lost where it is absent."""
    if not path.exists():
        return "Not measured yet; `python -m studies.cluster_scaling.validity` does it.\n"
    rows = pd.read_csv(path)
    same, exact = (compare(rows, is_worked=is_worked) for is_worked in (False, True))
    told, n_rounds = rows.iloc[0], rows["round"].nunique()
    parts = [
        _write_table(rows[rows["processor_s"] == 0], same, "over the first (95 % interval)"),
        f"{tell_bar(same)}\n",
        "With a processor that works a known real time on each object:\n",
        _write_table(rows[rows["processor_s"] > 0], exact, "over predicted (95 % interval)"),
        f"{tell_bar(exact)}\n",
        f"Measured on {told['measured']} in {n_rounds} rounds, on {told['machine']}.\n",
    ]
    return "\n".join(parts)


def _write_table(rows: pd.DataFrame, ratios: dict[float, Interval], name: str) -> str:
    lines = []
    for k in sorted({*map(float, rows["dilation"])}):
        reads = rows[rows["dilation"] == k]
        medians = [digits(reads[each].median(), n=3) for each in ("predicted_s", "read_s")]
        lines.append((f"{k:g}", *medians, tell_interval(ratios[k]) if k in ratios else "1"))
    return write_table(["dilation", "predicted (s)", "measured (s)", name], lines)


if __name__ == "__main__":
    found, here = measure().round(6), machine()
    found["machine"] = f"{here['n_cores']} cores, {here['cpu']}"
    found["measured"] = datetime.now(UTC).date().isoformat()
    found.to_csv(RECORD, index=False, lineterminator="\n")
    print(render_validity())
