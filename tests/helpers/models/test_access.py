"""The closed form of an access against arithmetic and against simulation."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.models.access import (
    IoCounts,
    Store,
    access_seconds,
)
from helpers.models.transfer import Client, Network, simulate
from helpers.netem.profiles import get_profile, network_of

IN_REGION = Network(0.03, 0.1, 36e6, 200e6, 2200)

BY_HAND = [
    (Store(start_s=0.5), 4, 1e6, None, 0.5),  # nothing costs but the call
    (Store(chunk_s=0.1), 4, 1e6, None, 0.4),  # chunks queue for the processor
    (Store(decode_s_per_nbyte=1e-6), 4, 1e6, None, 4.0),  # so do their bytes
    (Store(Network(0.01, 0.01), n_connections=4), 8, 1e6, None, 0.02),  # two waves
    (Store(Network(0.01, 0.01), n_connections=4), 2, 1e6, None, 0.01),  # one wave, not full
    (Store(Network(stream_nbytes_per_s=1e6)), 2, 1e6, None, 2.0),  # one stream
    (Store(Network(aggregate_nbytes_per_s=1e6), n_connections=9), 9, 1e6, None, 9.0),  # the link
    (Store(Network(requests_per_s=10), n_connections=99), 50, 1, None, 5.0),  # the rate
    (Store(Network(stream_nbytes_per_s=1e6), compression_ratio=2), 2, 1e6, None, 1.0),  # stored
    (Store(Network(0.01, 0.01), n_connections=8), 8, 0, 2, 0.05),  # index, 4 chunks, in 2 shards
    (Store(Network(0.01, 0.01), n_connections=8), 8, 0, 8, 0.02),  # index, then its only chunk
    (Store(stored_s_per_nbyte=1e-6, compression_ratio=2), 4, 1e6, None, 2.0),  # inflating
    (Store(request_s=0.1), 8, 0, 2, 0.2),  # a look into each shard
]


@pytest.mark.parametrize(("store", "n_chunks", "nbytes", "n_shards", "expected"), BY_HAND)
def test_seconds_by_hand(
    store: Store, n_chunks: float, nbytes: float, n_shards: float | None, expected: float
) -> None:
    """Each limit alone gives a time that can be worked out in the head."""
    found = access_seconds(store, IoCounts(n_chunks, nbytes, n_shards or 0))
    assert float(found) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["in-region", "other-region", "wide-area"])
def test_the_closed_form_follows_the_simulation(name: str) -> None:
    """It is that of the fluid that requests are simulated as, in its middle and for most reads.

    Four connections to 32, chunks of 20 kB to 15 MB, from one to 300: where the
    link or the processor is the limit, or neither.
    """
    network, rng = network_of(get_profile(name)), np.random.default_rng(5)
    errors = []
    for n_connections in (4, 10, 32):
        for n_chunks in np.exp(rng.uniform(0, math.log(300), 15)).astype(int):
            nbytes = math.exp(rng.uniform(*np.log([2e4, 1.5e7])))
            cpu_s = 1e-3 + 4e-9 * nbytes
            client = Client(nbytes, connections_per_worker=n_connections, cpu_s_per_chunk=cpu_s)
            drawn = [
                simulate(network, client, int(n_chunks), n_workers=1, n_cores=1, seed=seed)
                for seed in range(41)
            ]
            store = Store(network, n_connections, chunk_s=cpu_s)
            found = float(access_seconds(store, IoCounts(int(n_chunks), nbytes)))
            errors.append(found / statistics.median(drawn) - 1)
    assert abs(statistics.median(errors)) < 0.04
    assert np.quantile(np.abs(errors), 0.5) < 0.05
    assert np.quantile(np.abs(errors), 0.9) < 0.16


@given(st.floats(1, 1e5), st.floats(1, 1e8), st.integers(1, 64))
def test_more_is_never_faster(n_chunks: float, nbytes: float, n_connections: int) -> None:
    """More chunks or larger ones take no less time."""
    store = Store(IN_REGION, n_connections, chunk_s=1e-4, decode_s_per_nbyte=1e-9)
    base = float(access_seconds(store, IoCounts(n_chunks, nbytes)))
    assert float(access_seconds(store, IoCounts(n_chunks, 2 * nbytes))) >= base * (1 - 1e-9)
    assert float(access_seconds(store, IoCounts(2 * n_chunks, nbytes))) >= base * (1 - 1e-9)


def test_requests_that_are_fewer_wait_less() -> None:
    """A shard read whole is one request, not one and one a chunk."""
    store = Store(IN_REGION, 10)
    several = access_seconds(store, IoCounts(64, 1e4, 1))
    assert float(access_seconds(store, IoCounts(64, 1e4, 1, 1))) < float(several) / 10


@pytest.mark.parametrize("name", ["in-region", "wide-area"])
@pytest.mark.parametrize(("n_chunks", "nbytes"), [(1, 1e6), (4, 1e6), (30, 2e5), (100, 1e5)])
def test_tails_are_those_of_simulated_reads(name: str, n_chunks: int, nbytes: float) -> None:
    """The 95th percentile is that of the last first byte of a wave."""
    network = network_of(get_profile(name))
    client = Client(nbytes, connections_per_worker=64, cpu_s_per_chunk=1e-4)
    drawn = [
        simulate(network, client, n_chunks, n_workers=1, n_cores=1, seed=seed)
        for seed in range(300)
    ]
    store = Store(network, 64, chunk_s=1e-4)
    found = float(access_seconds(store, IoCounts(n_chunks, nbytes), quantile=0.95))
    assert found == pytest.approx(statistics.quantiles(drawn, n=20)[-1], rel=0.15)


def test_a_tail_counts_where_a_request_is_likely_to_meet_it() -> None:
    """One in a hundred is late by a second: of one request seldom, of a hundred surely."""
    store = Store(Network(0.01, 0.01, tail_share=0.01, tail_s=1.0), 128)
    seconds = [float(access_seconds(store, IoCounts(n, 0), quantile=0.95)) for n in (1, 100)]
    assert seconds[0] < 0.03 and seconds[1] > 1
