"""Chunk arithmetic against published shapes, and against counting."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.abc.store import RangeByteRequest
from zarr.core._coalesce import coalesce_ranges
from zarr.core.indexing import morton_order_coords

from helpers.arrays import chunks
from helpers.benchmark.record import read_published

REANALYSIS = (98128, 277, 349)


def test_the_continuous_rule_is_the_published_one() -> None:
    """The formula agrees with the table of the source, to its two decimals (one digit is off)."""
    for row in read_published("rew2013_chunk_shape_examples").itertuples():
        expected = [float(text) for text in str(row.formula_shape_continuous).split(" x ")]
        found = chunks.balanced_extents(REANALYSIS, 4, int(row.max_chunk_bytes))
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
    assert chunks.balanced_chunk_shape(shape, itemsize, chunk_nbytes) == expected


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
    chunk = chunks.balanced_chunk_shape(shape, itemsize, chunk_nbytes)
    extents = chunks.balanced_extents(shape, itemsize, chunk_nbytes)
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
    assert chunks.chunks_touched(selection, chunk) == len(counted)


@given(st.integers(1, 40), st.integers(1, 45), st.data())
def test_expected_chunks_are_the_mean_over_starts(n: int, chunk: int, data: st.DataObject) -> None:
    """The closed form agrees with enumerating every start."""
    extent = data.draw(st.integers(1, n))
    counts = [
        chunks.chunks_touched((slice(i, i + extent),), (chunk,)) for i in range(n - extent + 1)
    ]
    assert chunks.expected_touched(extent, chunk, n) == pytest.approx(sum(counts) / len(counts))


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
        patch.setattr(chunks, "_MOST_APART_NBYTES", most["max_gap_bytes"])
        patch.setattr(chunks, "_MOST_TOGETHER_NBYTES", most["max_coalesced_bytes"])
        found = chunks.count_object_io(box, chunk, shard, extents, nbytes=nbytes)
    n_indices = sum(len(asked) < math.prod(by) for asked in touched.values())
    assert found.n_chunks == sum(map(len, touched.values()))
    assert (found.n_fetches, found.n_indices) == (len(runs), n_indices)
    assert found.fetched_nbytes == n_nbytes
