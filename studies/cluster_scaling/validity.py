"""Whether dilated time is valid: one read over one network at several dilations, as ratios.

`python -m studies.cluster_scaling.validity` prints the table of `compare`. Where processors do
not bind, virtual times are the same at every dilation.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import obstore
import pandas as pd

from helpers.arrays.reads import RawRead
from helpers.benchmark.loop import timed
from helpers.errors import UserError
from helpers.netem.profiles import FirstByte, Profile, check_dilation
from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Testbed, open_testbed

SLOW = Profile(
    "slow",
    FirstByte(0.05, 0.1),
    stream_mb_per_s=2.0,
    aggregate_mb_per_s=12.0,
)
"""A network so slow that two cores have little to do: eight connections fill its link."""


@contextmanager
def _open_testbeds(profile: Profile, dilations: Sequence[float]) -> Iterator[dict[float, Testbed]]:
    """Stand a proxy for each dilation before one store, each with the same sequence of delays."""
    with ExitStack() as stack:
        base = stack.enter_context(open_testbed("embedded", Profile("loopback")))
        beds = {}
        for k in dilations:
            opened = open_proxy(str(base.near.endpoint_url), profile=profile, dilation=k)
            proxy = stack.enter_context(opened)
            beds[k] = Testbed(base.near, base.near.through(proxy.endpoint_url), proxy)
        yield beds


def _write_objects(testbed: Testbed, n_objects: int, nbytes: int) -> list[str]:
    """Write the objects that are read."""
    keys = [f"validity/{nbytes}/{i}" for i in range(n_objects)]
    body = os.urandom(nbytes)
    for key in keys:
        obstore.put(testbed.near.obstore(), key, body)
    return keys


def compare(
    profile: Profile = SLOW,
    dilations: Sequence[float] = (1, 2, 4, 8, 16),
    *,
    n_objects: int = 32,
    object_nbytes: int = 250_000,
    n_connections: int = 8,
    n_rounds: int = 3,
) -> pd.DataFrame:
    """Read the same objects at each dilation, in turn, and compare virtual times.

    The others are compared with the first; the order turns by one from round to round. A row for
    each dilation has virtual seconds (median), the ratio to the first dilation paired within
    rounds (median, least and most), and medians of what the trace saw of a request: virtual
    seconds to the first byte and of the body.
    """
    if not dilations or n_rounds < 1:
        raise UserError(
            f"dilations, n_rounds: {tuple(dilations)}, {n_rounds}; allowed: one or more"
        )
    for dilation in dilations:
        check_dilation(dilation)
    lines = []
    with _open_testbeds(profile, dilations) as beds:
        keys = _write_objects(beds[dilations[0]], n_objects, object_nbytes)
        ways = {k: _make_read(bed, keys, object_nbytes, n_connections) for k, bed in beds.items()}
        for i in range(n_rounds):
            turned = [*dilations[i % len(dilations) :], *dilations[: i % len(dilations)]]
            lines += [(i, k, *_read_once(ways[k], k)) for k in turned]
    names = ["round", "dilation", "seconds", "first_byte_s", "body_s"]
    return _tabulate(pd.DataFrame(lines, columns=names), dilations[0])


def _make_read(testbed: Testbed, keys: list[str], nbytes: int, n_connections: int) -> RawRead:
    nbytes *= len(keys)
    counts = {"array_nbytes": nbytes, "stored_nbytes": nbytes}
    facts = {"cache_state": "nothing cached"}
    return RawRead(
        testbed.near, keys, testbed, n_connections=n_connections, settings=facts, **counts
    )


def _read_once(way: RawRead, dilation: float) -> tuple[float, float, float]:
    """Read once, check it, and tell its virtual seconds and those of its requests."""
    way.prepare()
    checksums, seconds = timed(partial(way.read, way.open()), dilation=dilation)
    trace = way.testbed.take_trace()
    way.check(checksums)
    moments = pd.DataFrame([(one.start_s, one.first_byte_s, one.end_s) for one in trace])
    spans = moments.diff(axis=1).median()
    return seconds, float(spans[1]), float(spans[2])


def _tabulate(reads: pd.DataFrame, first: float) -> pd.DataFrame:
    """Put medians and ratios paired within rounds into a table."""
    seconds = reads.pivot(index="round", columns="dilation", values="seconds")
    ratios = seconds.div(seconds[first], axis=0)
    medians = reads.groupby("dilation")[["seconds", "first_byte_s", "body_s"]].median()
    return medians.assign(ratio=ratios.median(), least=ratios.min(), most=ratios.max())


if __name__ == "__main__":
    print(compare().round(4).to_string())
