"""Reads that can be computed by hand take as long as by hand, in closed form and simulated; chunks are those counted."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from zarr.abc.store import RangeByteRequest
from zarr.core._coalesce import coalesce_ranges
from zarr.core.indexing import morton_order_coords

from helpers.benchmark.record import read_published
from wire.bed.networks import get_profile
from wire.bed.requests import RequestRow
from wire.models import access
from wire.models.access import (
    IoCounts,
    Store,
    access_seconds,
    balanced_chunk_shape,
    balanced_extents,
    chunks_touched,
    count_object_io,
    expected_touched,
)
from wire.models.transfer import (
    ClientModel,
    Network,
    Step,
    count_waits,
    find_dependencies,
    fit_client,
    network_of,
    predict_transfer,
    replay,
    simulate,
)

MB = 1e6
FREE = Network()
DECODES = ClientModel(MB, cpu_s_per_chunk=0.01)


def seconds(
    network: Network, client: ClientModel, n_chunks: int, n_workers: int = 1, n_cores: float = 4
) -> float:
    """Simulate one read."""
    return simulate(network, client, n_chunks, n_workers=n_workers, n_cores=n_cores, seed=0)


@pytest.mark.parametrize(
    ("network", "client", "n_chunks", "n_workers", "expected_s"),
    [
        # one connection: each chunk its latency and its bytes over the stream
        (Network(0.01, 0.01, 100 * MB), ClientModel(MB), 10, 1, 10 * (0.01 + 0.01)),
        (Network(0.03, 0.03), ClientModel(MB), 7, 1, 7 * 0.03),
        (Network(stream_nbytes_per_s=50 * MB), ClientModel(5 * MB), 4, 1, 4 * 0.1),
        # two requests a chunk wait twice, half a request half as long
        (Network(0.01, 0.01), ClientModel(MB, 2.0), 10, 1, 10 * 2 * 0.01),
        (Network(0.01, 0.01), ClientModel(MB, 0.5), 10, 1, 10 * 0.5 * 0.01),
        # four connections share ten chunks: three rounds
        (Network(0.01, 0.01, 100 * MB), ClientModel(MB), 10, 4, 3 * 0.02),
        (Network(0.01, 0.01, 100 * MB), ClientModel(MB, connections_per_worker=4), 10, 1, 3 * 0.02),
        # as many connections as chunks: all at once, over the link
        (Network(aggregate_nbytes_per_s=100 * MB), ClientModel(MB), 50, 50, 50 / 100),
        (Network(0.02, 0.02, 100 * MB, 100 * MB), ClientModel(MB), 50, 50, 0.02 + 50 / 100),
        # the link is shared only as far as streams reach: 4 streams of 10 below 100
        (Network(0, 0, 10 * MB, 100 * MB), ClientModel(MB), 8, 4, 2 * 0.1),
        # four processors, one chunk a connection: two rounds, or eight at half speed
        (FREE, ClientModel(MB, cpu_s_per_chunk=0.1), 8, 4, 2 * 0.1),
        (FREE, ClientModel(MB, cpu_s_per_chunk=0.1), 8, 8, 8 * 0.1 / 4),
        # waiting costs no processor
        (FREE, ClientModel(MB, wait_s_per_chunk=0.1), 8, 8, 0.1),
        # requests leave at 100/s: the last of 50 half a second late, less one gap
        (Network(requests_per_s=100), ClientModel(MB), 50, 50, 49 / 100),
        (Network(requests_per_s=100), ClientModel(MB, 2.0), 50, 50, 98 / 100),
        # overlapped: the next chunk arrives while this one is decoded, only the last waits
        (Network(0.01, 0.01), DECODES, 10, 1, 10 * 0.02),
        (Network(0.01, 0.01), replace(DECODES, is_overlapped=True), 10, 1, 11 * 0.01),
    ],
)
def test_closed_forms(
    network: Network, client: ClientModel, n_chunks: int, n_workers: int, expected_s: float
) -> None:
    """Reads that can be computed by hand take as long as by hand."""
    assert seconds(network, client, n_chunks, n_workers) == pytest.approx(expected_s, rel=1e-6)


@pytest.mark.parametrize(
    ("network", "client", "n_workers", "limit"),
    [
        (Network(0.1, 0.2, 100 * MB), ClientModel(MB), 1, "latency"),
        (Network(0.001, 0.001, 10 * MB), ClientModel(MB), 1, "stream"),
        (Network(0.001, 0.001, 100 * MB, 100 * MB), ClientModel(MB), 40, "shared link"),
        (Network(0.001, 0.001, 100 * MB, requests_per_s=20), ClientModel(MB), 40, "request rate"),
        (Network(0.001, 0.001, 100 * MB), ClientModel(MB, cpu_s_per_chunk=0.1), 40, "processors"),
    ],
)
def test_names_what_binds(
    network: Network, client: ClientModel, n_workers: int, limit: str
) -> None:
    """Where one limit takes nearly all the time, it is the one named; the time is the median of nine draws."""
    counts: dict[str, Any] = {"n_workers": n_workers, "n_cores": 2}
    found = predict_transfer(network, client, n_chunks=40, **counts)
    draws = {simulate(network, client, 40, **counts, seed=seed) for seed in range(9)}
    assert found.limit == limit and found.seconds == statistics.median(draws)


@pytest.mark.parametrize(
    ("cpu_s", "wait_s", "is_overlapped"),
    [(0.05, 0.08, False), (0.02, 0.0, False), (0.05, 0.3, True), (0.01, 0.02, False)],
)
def test_fit_finds_a_known_client(cpu_s: float, wait_s: float, is_overlapped: bool) -> None:
    """From times at one worker and at many, processor and waiting time come back."""
    known = ClientModel(
        MB,
        connections_per_worker=2,
        cpu_s_per_chunk=cpu_s,
        wait_s_per_chunk=wait_s,
        is_overlapped=is_overlapped,
    )
    measured = [(n, seconds(FREE, known, 400, n, n_cores=2)) for n in (1, 4, 40)]
    unknown = replace(known, cpu_s_per_chunk=9.0, wait_s_per_chunk=9.0)
    found = fit_client(unknown, measured, n_chunks=400, n_cores=2)
    assert found.cpu_s_per_chunk == pytest.approx(cpu_s, rel=0.05)
    for n, expected_s in measured:
        assert seconds(FREE, found, 400, n, n_cores=2) == pytest.approx(expected_s, rel=0.05)


STEADY = Network(0.01, 0.01, stream_nbytes_per_s=100e6, aggregate_nbytes_per_s=150e6)


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        # one request: latency, then 1 MB at 100 MB/s
        ([Step((), 0.0, 10**6)], 0.02),
        # two in a row, with 5 ms of thinking between
        ([Step((), 0.0, 10**6), Step((0,), 0.005, 10**6)], 0.045),
        ([Step(0, 0.0, 10**6), Step(1, 0.005, 10**6)], 0.045),
        # two at once share 150 MB/s
        ([Step((), 0.0, 10**6), Step((), 0.0, 10**6)], 0.01 + 2e6 / 150e6),
        # the third waits for the slower of two
        ([Step((), 0.0, 0), Step((), 0.03, 0), Step((0, 1), 0.0, 0)], 0.05),
        # a block fetched in the background, for which nobody waits
        ([Step((), 0.0, 0), Step((0,), 0.0, 10**6, is_waited=False)], 0.01),
        # nothing asked
        ([], 0.0),
    ],
)
def test_replay_takes_what_arithmetic_says(steps: list[Step], seconds: float) -> None:
    """Latency, ceilings and waiting add up."""
    assert replay(steps, STEADY) == pytest.approx(seconds)


spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda at: (at[0] / 10, sum(at) / 10)),
    max_size=9,
)


@given(spans)
def test_waits_are_those_of_the_longest_chain(times: list[tuple[float, float]]) -> None:
    """Of all sequences in which each began once the one before had ended; tried one by one."""

    def longest(after_s: float) -> int:
        later = [1 + longest(end_s) for start_s, end_s in times if start_s >= after_s - 1e-9]
        return max(later, default=0)

    assert count_waits([RequestRow(start_s, 0.0, end_s) for start_s, end_s in times]) == longest(-1)


def test_what_waits_is_told_with_one_tolerance() -> None:
    """A stamp may be late by a tenth of a millisecond; a request waits for no later one, nor itself."""
    ends = [(0.0, 1.0), (0.99995, 2.0), (1.9, 3.0)]
    rows = [RequestRow(start_s, 0.0, end_s) for start_s, end_s in ends]
    assert [one.n_ended for one in find_dependencies(rows)] == [0, 1, 1]
    assert [one.n_ended for one in find_dependencies(rows, 0.0)] == [0, 0, 1]
    assert [one.depth for one in find_dependencies(rows, 0.2)] == [1, 2, 3]
    short = [RequestRow(0.0, 0.0, 0.00001), RequestRow(0.00002, 0.0, 0.00003)]
    assert [one.n_ended for one in find_dependencies(short)] == [0, 1]


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
            client = ClientModel(
                nbytes, connections_per_worker=n_connections, cpu_s_per_chunk=cpu_s
            )
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


@pytest.mark.parametrize("name", ["in-region", "wide-area"])
@pytest.mark.parametrize(("n_chunks", "nbytes"), [(1, 1e6), (4, 1e6), (30, 2e5), (100, 1e5)])
def test_tails_are_those_of_simulated_reads(name: str, n_chunks: int, nbytes: float) -> None:
    """The 95th percentile is that of the last first byte of a wave."""
    network = network_of(get_profile(name))
    client = ClientModel(nbytes, connections_per_worker=64, cpu_s_per_chunk=1e-4)
    drawn = [
        simulate(network, client, n_chunks, n_workers=1, n_cores=1, seed=seed)
        for seed in range(300)
    ]
    store = Store(network, 64, chunk_s=1e-4)
    found = float(access_seconds(store, IoCounts(n_chunks, nbytes), quantile=0.95))
    assert found == pytest.approx(statistics.quantiles(drawn, n=20)[-1], rel=0.15)


REANALYSIS = (98128, 277, 349)


def test_the_continuous_rule_is_the_published_one() -> None:
    """The formula agrees with the table of the source, to its two decimals (one digit is off)."""
    for row in read_published("rew2013_chunk_shape_examples").itertuples():
        expected = [float(text) for text in str(row.formula_shape_continuous).split(" x ")]
        found = balanced_extents(REANALYSIS, 4, int(row.max_chunk_bytes))
        assert found == pytest.approx(expected, rel=2e-3)


BALANCED = [
    # published by Rew
    (REANALYSIS, 4, 2**22, (1032, 29, 35)),  # a few MB: the usual advice
    (REANALYSIS, 4, 2**20, (516, 20, 25)),
    (REANALYSIS, 4, 8192, (46, 6, 7)),  # two blocks of a disk
    (REANALYSIS, 4, 4096, (33, 5, 6)),  # one block of a disk
    # worked out by hand
    ((100,), 1, 10, (10,)),  # one dimension: nothing to balance
    ((4, 4), 1, 4, (2, 2)),  # whole extents are not rounded down
    ((4, 100, 100), 1, 100, (1, 10, 10)),  # too few times to balance: cut into single ones
    ((10**6, 2, 2), 1, 1000, (1000, 1, 1)),  # too few points to balance
    ((100, 100), 1, 10**4, (100, 100)),  # one chunk is the array
    ((7, 7, 7), 8, 8, (1, 1, 1)),  # a chunk is an element
    ((16, 4, 4), 1, 16, (4, 2, 2)),  # 16 chunks: 4 along, 2 by 2 across
]


@pytest.mark.parametrize(("shape", "itemsize", "chunk_nbytes", "expected"), BALANCED)
def test_balanced_shapes(
    shape: tuple[int, ...], itemsize: int, chunk_nbytes: int, expected: tuple[int, ...]
) -> None:
    """They come out exactly."""
    assert balanced_chunk_shape(shape, itemsize, chunk_nbytes) == expected


@given(
    st.lists(st.integers(1, 10**5), min_size=1, max_size=5),
    st.sampled_from([1, 2, 4, 8]),
    st.floats(0, 1),
)
def test_a_balanced_chunk_never_exceeds_its_bound(
    shape: list[int], itemsize: int, share: float
) -> None:
    """It fits the bound and the array, and rounds the rule by less than one element."""
    n_elements = math.prod(shape)
    chunk_nbytes = min(int(itemsize * n_elements**share) + itemsize - 1, itemsize * n_elements)
    chunk = balanced_chunk_shape(shape, itemsize, chunk_nbytes)
    extents = balanced_extents(shape, itemsize, chunk_nbytes)
    assert math.prod(chunk) * itemsize <= chunk_nbytes
    assert all(1 <= c <= n for c, n in zip(chunk, shape, strict=True))
    assert all(abs(c - e) < 1 + 1e-6 * e for c, e in zip(chunk, extents, strict=True))


@given(st.data())
def test_touched_chunks_are_those_counted(data: st.DataObject) -> None:
    """The formula agrees with a set of chunk indices, one an element."""
    n_dimensions = data.draw(st.integers(1, 3))
    chunk = [data.draw(st.integers(1, 6)) for _ in range(n_dimensions)]
    starts = [data.draw(st.integers(0, 12)) for _ in chunk]
    selection = [slice(i, i + data.draw(st.integers(1, 8))) for i in starts]
    elements = itertools.product(*[range(s.start, s.stop) for s in selection])
    counted = {tuple(i // c for i, c in zip(at, chunk, strict=True)) for at in elements}
    assert chunks_touched(selection, chunk) == len(counted)


@given(st.integers(1, 40), st.integers(1, 45), st.data())
def test_expected_chunks_are_the_mean_over_starts(n: int, chunk: int, data: st.DataObject) -> None:
    """The closed form agrees with enumerating every start."""
    extent = data.draw(st.integers(1, n))
    counts = [chunks_touched((slice(i, i + extent),), (chunk,)) for i in range(n - extent + 1)]
    assert expected_touched(extent, chunk, n) == pytest.approx(sum(counts) / len(counts))


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_requests_of_shards_are_counted(data: st.DataObject) -> None:
    """Shard by shard: one request where all its chunks are touched, else an index and runs of chunks.

    Runs are put together as zarr puts ranges together; a shard at the edge of the array holds
    fewer chunks, and nothing lies between them for those it lacks.
    """
    chunk = tuple(data.draw(st.lists(st.integers(1, 4), min_size=3, max_size=3)))
    by = tuple(data.draw(st.lists(st.integers(1, 3), min_size=3, max_size=3)))
    starts = [data.draw(st.integers(0, 20)) for _ in range(3)]
    box = tuple(slice(i, i + data.draw(st.integers(1, 12))) for i in starts)
    extents = tuple(part.stop + data.draw(st.integers(0, 8)) for part in box)
    nbytes = 4 * math.prod(chunk)
    most = {
        "max_gap_bytes": nbytes * data.draw(st.integers(0, 3)),
        "max_coalesced_bytes": 6 * nbytes,
    }
    n_chunks = [-(-n // c) for n, c in zip(extents, chunk, strict=True)]
    ranges = [range(s.start // c, (s.stop - 1) // c + 1) for s, c in zip(box, chunk, strict=True)]
    touched = defaultdict(list)
    for at in itertools.product(*ranges):
        where = tuple(i // n for i, n in zip(at, by, strict=True))
        every = (
            tuple(i * n + j for i, n, j in zip(where, by, one, strict=True))
            for one in morton_order_coords(by)
        )
        held = [one for one in every if all(i < n for i, n in zip(one, n_chunks, strict=True))]
        start = nbytes * held.index(at)
        touched[where].append(RangeByteRequest(start, start + nbytes))
    runs = [
        run
        for asked in touched.values()
        for run in (
            coalesce_ranges(asked, **most)[0]
            if len(asked) < math.prod(by)
            else [[*enumerate(asked)]]
        )
    ]
    n_nbytes = sum(max(r.end for _, r in run) - min(r.start for _, r in run) for run in runs)
    shard = tuple(c * n for c, n in zip(chunk, by, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "_MOST_APART_NBYTES", most["max_gap_bytes"])
        patch.setattr(access, "_MOST_TOGETHER_NBYTES", most["max_coalesced_bytes"])
        found = count_object_io(box, chunk, shard, extents, nbytes=nbytes)
    n_indices = sum(len(asked) < math.prod(by) for asked in touched.values())
    assert found.n_chunks == sum(map(len, touched.values()))
    assert (found.n_fetches, found.n_indices) == (len(runs), n_indices)
    assert found.fetched_nbytes == n_nbytes
