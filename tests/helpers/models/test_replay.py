"""Simulated caches ask for what the real ones ask for, and replays take the time they must."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fsspec import caching
from hypothesis import given, settings
from hypothesis import strategies as st

from advisors.hdf5.recording import LoggedFile, list_tree, open_hdf5, open_source, record_reads
from helpers.errors import UserError
from helpers.models.caches import (
    BackgroundCache,
    BlockCache,
    Cache,
    FirstCache,
    NoCache,
    PageBuffer,
    Read,
    ReadAheadCache,
    Reading,
    Ros3Cache,
    read_through,
)
from helpers.models.replay import Step, order_reads, replay
from helpers.models.transfer import Network

Spans = list[tuple[int, int]]

CACHES: tuple[tuple[Callable[[int, int], Cache], Callable[..., Any], dict[str, Any]], ...] = (
    (lambda block, keep: NoCache(), caching.BaseCache, {}),
    (lambda block, keep: ReadAheadCache(block), caching.ReadAheadCache, {}),
    (lambda block, keep: FirstCache(block), caching.FirstChunkCache, {}),
    (BlockCache, caching.BlockCache, {"maxblocks": True}),
    (BackgroundCache, caching.BackgroundBlockCache, {"maxblocks": True}),
)


def ask_real(make: Callable[..., Any], file_nbytes: int, reads: Spans, **options: Any) -> Spans:
    """Give what a real cache asks its fetcher for, clipped to the file, background last."""
    asked: Spans = []
    content = bytes(file_nbytes)

    def fetch(start: int, stop: int) -> bytes:
        stop = min(stop, file_nbytes)
        if start < stop:
            asked.append((start, stop - start))
        return content[start:stop]

    cache = make(fetcher=fetch, size=file_nbytes, **options)
    for offset, nbytes in reads:
        stop = min(offset + nbytes, file_nbytes)
        assert len(cache._fetch(offset, stop)) == max(0, stop - offset)
        future = getattr(cache, "_fetch_future", None)
        if future is not None:
            future.result()
    if hasattr(cache, "close"):
        cache.close()
    return asked


@pytest.mark.parametrize("case", CACHES, ids=lambda case: case[1].name)
@settings(max_examples=150, deadline=None)
@given(
    file_nbytes=st.integers(1, 400),
    block_nbytes=st.integers(1, 120),
    n_kept=st.integers(1, 5),
    reads=st.lists(st.tuples(st.integers(0, 420), st.integers(1, 150)), max_size=25),
)
def test_caches_ask_for_what_fsspec_asks_for(
    case: tuple[Any, Any, dict[str, Any]],
    file_nbytes: int,
    block_nbytes: int,
    n_kept: int,
    reads: Spans,
) -> None:
    """Every request of a real cache is simulated: offset, length and order."""
    make, real, names = case
    reads = [span for span in reads if span[0] < file_nbytes]
    options = {"blocksize": block_nbytes} | ({"maxblocks": n_kept} if names else {})
    asked = ask_real(real, file_nbytes, reads, **options)
    reading = Reading(tuple(Read(*span) for span in reads))
    found = read_through(make(block_nbytes, n_kept), reading, file_nbytes=file_nbytes)
    simulated = [(read.offset, read.nbytes) for read in found.reads]
    if real is caching.BackgroundBlockCache:  # its thread may come before or after
        simulated, asked = sorted(simulated), sorted(asked)
    assert simulated == asked


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a file with pages of 16 KiB, of which 30 hold metadata and raw data."""
    path, rng = tmp_path_factory.mktemp("paged") / "paged.h5", np.random.default_rng(0)
    with h5py.File(path, "w", fs_strategy="page", fs_page_size=16384) as file:
        for number in range(24):
            made = file.create_dataset(
                f"g{number % 3}/v{number}", data=rng.normal(size=2500), chunks=(700,), shuffle=True
            )
            made.attrs["long_name"] = "x" * 300
    return path


@pytest.mark.parametrize("n_pages", [1, 2, 3, 5, 200])
@pytest.mark.parametrize(
    ("min_metadata", "min_raw"),
    # nothing kept; all or half for one kind; a share for each
    [(0, 0), (100, 0), (0, 100), (50, 0), (0, 50), (40, 60)],
)
def test_page_buffer_asks_for_what_hdf5_asks_for(
    paged: Path, n_pages: int, min_metadata: int, min_raw: int
) -> None:
    """Every read of the library behind its page buffer is simulated from those without one."""
    variables = ["g1/v4", "g2/v5", "g1/v7", "g1/v4"]
    buffer_nbytes = n_pages * 16384 + 100  # HDF5 rounds down
    shares = {"min_meta_keep": min_metadata, "min_raw_keep": min_raw}
    with open_source(str(paged)) as file:
        recording = record_reads(file, "paged", variables)
        log = LoggedFile(file)
        with open_hdf5(log, "paged", page_buf_size=buffer_nbytes, **shares) as opened:
            list_tree(opened)
            for variable in variables:
                opened[variable][...]
    reading = Reading(
        tuple(Read(r.offset, r.nbytes, is_metadata=r.is_metadata) for r in recording.reads)
    )
    buffer = PageBuffer(16384, buffer_nbytes, min_metadata, min_raw, recording.n_first_past)
    found = read_through(buffer, reading, file_nbytes=recording.file_nbytes)
    assert [(read.offset, read.nbytes) for read in found.reads] == log.spans


@pytest.mark.parametrize(
    ("cache", "reads", "asked"),
    [
        # the first block comes whole with the first read, wherever that is, and stays
        (Ros3Cache(100, 200), [(150, 10), (0, 8), (250, 10), (20, 8)], [0, 100, 200]),
        # one block of room beside the first: the second comes twice
        (Ros3Cache(100, 200), [(110, 9), (210, 9), (110, 9)], [0, 100, 200, 100]),
        # the first block may leave where it is not locked
        (Ros3Cache(100, 200, False), [(110, 9), (210, 9), (0, 9)], [0, 100, 200, 0]),
        # room for the locked block alone: the rest is read as asked
        (Ros3Cache(100, 100), [(110, 9), (110, 9)], [0, 110, 110]),
        # a read across blocks brings each of them
        (Ros3Cache(100, 400), [(90, 120)], [0, 100, 200]),
        # paged file space: nothing is kept but the first block
        (Ros3Cache(100, 400, True, True), [(10, 9), (110, 9), (110, 9)], [0, 110, 110]),
        # no cache
        (Ros3Cache(0, 0), [(10, 9), (10, 9)], [10, 10]),
    ],
)
def test_ros3_cache(cache: Ros3Cache, reads: Spans, asked: list[int]) -> None:
    """The block cache of ROS3 asks for the offsets that its source says."""
    reading = Reading(tuple(Read(*span) for span in reads))
    found = read_through(cache, reading, file_nbytes=1000)
    assert [read.offset for read in found.reads] == asked


def test_thinking_is_kept() -> None:
    """Time between reads is kept, whether the cache answers them or not."""
    reading = Reading((Read(0, 5, 1.0), Read(5, 5, 2.0), Read(50, 5, 4.0), Read(52, 1, 8.0)), 16.0)
    found = read_through(BlockCache(10), reading, file_nbytes=100)
    assert [read.think_s for read in found.reads] == [1.0, 6.0]
    assert found.rest_s == 24.0


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: BlockCache(0), "block_nbytes: 0"),
        (lambda: BackgroundCache(10, 0), "max_blocks: 0"),
        (lambda: ReadAheadCache(-1), "block_nbytes: -1"),
        (lambda: PageBuffer(4096, 4095), "page_buffer_nbytes: 4095"),
        (lambda: PageBuffer(4096, 8192, 60, 50), "min_metadata_percent, min_raw_percent"),
        (lambda: Read(-1, 5), "offset"),
    ],
)
def test_settings_are_refused(make: Callable[[], object], named: str) -> None:
    """What no cache and no trace can be is named in one line."""
    with pytest.raises(UserError, match=named):
        make()


NETWORK = Network(0.01, 0.01, stream_nbytes_per_s=100e6, aggregate_nbytes_per_s=150e6)


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        # one request: latency, then 1 MB at 100 MB/s
        ([Step((), 0.0, 10**6)], 0.02),
        # two in a row, with 5 ms of thinking between
        ([Step((), 0.0, 10**6), Step((0,), 0.005, 10**6)], 0.045),
        # two at once share 150 MB/s
        ([Step((), 0.0, 10**6), Step((), 0.0, 10**6)], 0.01 + 2e6 / 150e6),
        # the third waits for the slower of two
        ([Step((), 0.0, 0), Step((), 0.03, 0), Step((0, 1), 0.0, 0)], 0.05),
        # nothing asked
        ([], 0.0),
    ],
)
def test_replay_takes_what_arithmetic_says(steps: list[Step], seconds: float) -> None:
    """Latency, ceilings and waiting add up."""
    found = replay(steps, NETWORK)
    assert found.seconds == pytest.approx(seconds)
    assert found.n_requests == len(steps)
    assert replay(steps, NETWORK, rest_s=1.0).seconds == pytest.approx(seconds + 1.0)


@given(st.lists(st.tuples(st.floats(0, 0.1), st.integers(0, 10**6)), min_size=1, max_size=12))
def test_serial_requests_add_up(sent: list[tuple[float, int]]) -> None:
    """One request after the other takes its thinking, its latency and its bytes."""
    steps = [Step((n - 1,) if n else (), *one) for n, one in enumerate(sent)]
    now = sum(think_s + 0.01 + nbytes / 100e6 for think_s, nbytes in sent)
    assert replay(steps, NETWORK).seconds == pytest.approx(now)
    # with ten times the latency, each request adds 90 ms
    slow = Network(0.1, 0.1, stream_nbytes_per_s=100e6)
    assert replay(steps, slow).seconds == pytest.approx(now + 0.09 * len(sent))


def test_more_connections_are_faster_up_to_the_link() -> None:
    """Eight reads at once take an eighth of the latencies, and no less than the link allows."""
    reading = Reading(tuple(Read(n, 10_000) for n in range(64)))
    latency = Network(0.01, 0.01)
    one = replay(order_reads(reading), latency).seconds
    eight = replay(order_reads(reading, n_connections=8), latency).seconds
    assert one == pytest.approx(0.64)
    assert eight == pytest.approx(0.08)
    link = Network(0.01, 0.01, aggregate_nbytes_per_s=1e6)
    assert replay(order_reads(reading, n_connections=64), link).seconds == pytest.approx(0.65)


def test_background_is_not_waited_for() -> None:
    """A block fetched in the background costs its client no time."""
    reading = Reading((Read(0, 10), Read(10, 10), Read(20, 10)))
    found = read_through(BackgroundCache(100), reading, file_nbytes=1000)
    assert [read.is_ahead for read in found.reads] == [False, True]
    assert replay(order_reads(found), Network(0.01, 0.01)).seconds == pytest.approx(0.01)


def test_latencies_are_drawn() -> None:
    """With a tail, many requests in a row take the mean of the distribution each."""
    sigma = math.log(100 / 30) / 1.6448536269514722
    mean_s = 0.030 * math.exp(sigma**2 / 2)
    reading = Reading(tuple(Read(n, 1) for n in range(2000)))
    found = replay(order_reads(reading), Network(0.030, 0.100))
    assert found.seconds == pytest.approx(2000 * mean_s, rel=0.05)
