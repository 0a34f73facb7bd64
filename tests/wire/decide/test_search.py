"""The search for layouts: against exhaustive search, round and stable, within its bounds, sharded as zarr reads."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wire.decide import layouts
from wire.decide.layouts import Access, AccessPattern, Layout, expect
from wire.models.access import IoCounts, Shape, Store, access_seconds, chunks_touched
from wire.models.transfer import Network

NETWORK = Network(0.026, 0.045, 90e6, 500e6, 5500)
STORE = Store(NETWORK, 64, chunk_s=0.0005, decode_s_per_nbyte=1e-9)
ERA5 = (87600, 721, 1440)


def make(
    shape: Shape, *boxes: tuple[Shape, float], aligned: bool = False, **bounds: int
) -> AccessPattern:
    """Describe an array of float32 that is read in boxes."""
    accesses = [Access(f"{i}", box, is_aligned=aligned) for i, (box, _) in enumerate(boxes)]
    least: dict[str, Any] = {"min_chunk_nbytes": 1_000_000, **bounds}
    return AccessPattern(shape, 4, accesses, [share for _, share in boxes], STORE, **least)


def pair(shape: Shape, share: float, **bounds: int) -> AccessPattern:
    """Describe series and maps."""
    return make(shape, ((shape[0], 1, 1), share), ((1, *shape[1:]), 1 - share), **bounds)


@pytest.mark.parametrize(
    "pattern",
    [
        pair((365, 40, 60), 0.5, min_chunk_nbytes=20_000),
        pair((365, 40, 60), 0.9, min_chunk_nbytes=20_000),
        make((60, 97, 61), ((9, 20, 20), 1), min_chunk_nbytes=8_000),
        make((50, 96, 64), ((1, 32, 32), 3), ((50, 1, 1), 1), aligned=True, min_chunk_nbytes=9_000),
    ],
)
def test_a_layout_is_near_the_best_of_all(pattern: AccessPattern) -> None:
    """Within 10 % of the predicted best of every shape there is."""
    best, (first, *others) = math.inf, [range(1, n + 1) for n in pattern.shape]
    for extent in first:
        shapes = np.asarray([*itertools.product([extent], *others)])
        nbytes = layouts.chunk_nbytes(pattern, shapes)
        kept = shapes[(nbytes >= pattern.min_nbytes) & (nbytes <= pattern.max_nbytes)]
        if len(kept):
            nbytes = layouts.chunk_nbytes(pattern, kept)
            touched = [layouts.touched_chunks(pattern, access, kept) for access in pattern.accesses]
            seconds = [access_seconds(STORE, IoCounts(n, nbytes)) for n in touched]
            best = min(best, float((pattern.shares @ np.stack(seconds)).min()))
    assert layouts.score(pattern, layouts.best_layout(pattern)) <= 1.1 * best


@pytest.mark.parametrize("shape", [ERA5, (8760, 100, 120), (60225, 192, 288)])
def test_near_shares_have_one_layout_of_round_extents(shape: Shape) -> None:
    """Extents are powers of two, thrice these, or even cuts of the axis."""
    found = {layouts.best_layout(pair(shape, round(20 * s) / 20)) for s in (0.79, 0.8, 0.81)}
    assert len(found) == 1
    for extent, n in zip(found.pop().chunk_shape, shape, strict=True):
        parts = {-(-n // k) for k in layouts._PARTS}
        assert extent in parts or (extent & (extent - 1)) == 0 or math.log2(extent / 3) % 1 == 0


def test_many_objects_come_in_shards_within_the_array() -> None:
    """Shards hold whole chunks, reach no further than the array, and are few enough."""
    for most in (18_000, 1_800):
        layout = layouts.best_layout(pair(ERA5, 0.8, max_objects=most))
        assert layout.shard_shape and layout.count_objects(ERA5) <= most
        for shard, chunk, n in zip(layout.shard_shape, layout.chunk_shape, ERA5, strict=True):
            assert shard % chunk == 0 and shard <= n


@pytest.mark.parametrize("most", [100_000, 1_800])  # plain, and in shards
@pytest.mark.parametrize("steps", [1, 24, 240])
def test_an_append_rewrites_no_more_than_is_allowed(most: int, steps: int) -> None:
    """Played through: what an append finds in objects that it opens again; no shard holds all of time."""
    pattern = pair(ERA5, 0.8, max_objects=most)
    assert layouts.best_layout(pattern).object_shape[0] > 240
    bound = replace(pattern, append=(0, steps))
    extent = layouts.best_layout(bound).object_shape[0]
    stored = pattern.nbytes / STORE.compression_ratio / ERA5[0]
    found = [n % extent * stored for n in range(0, 40 * extent * steps, steps)]
    assert max(found) == layouts.rewritten_nbytes(bound, extent) <= layouts.APPEND_NBYTES
    assert extent < ERA5[0]


def test_the_cheapest_asks_least() -> None:
    """At a price of requests alone fewer are asked than by the fastest."""
    pattern = make(ERA5, ((24, 100, 100), 1), max_objects=10**9)
    cheap = layouts.cheapest_of(layouts.make_grid(pattern), get_usd=1, out_usd=0)
    both = (cheap, layouts.best_layout(pattern))
    n = [expect(pattern, pattern.accesses[0], one).n_requests for one in both]
    assert n[0] < n[1]


def test_what_is_expected_is_the_mean_over_all_places() -> None:
    """Chunks that a box touches, over every start that it may have; twice as many of two together."""
    pattern = make((30, 17), ((4, 5), 1))
    starts = itertools.product(range(27), range(13))
    counts = [chunks_touched((slice(i, i + 4), slice(j, j + 5)), (6, 7)) for i, j in starts]
    for together in (1, 2):
        many = replace(pattern, together=together)
        asked = expect(many, many.accesses[0], Layout((6, 7)))
        assert asked.n_requests == pytest.approx(together * sum(counts) / len(counts))


def test_a_shard_is_an_index_before_its_chunks_and_tails_are_later_than_medians() -> None:
    """Of a map through 3 by 6 shards: as many indices as shards, as many bytes else, and no read before its first byte."""
    pattern = pair((8760, 721, 1440), 0.5)
    chunk, shard = (64, 32, 32), (1024, 256, 256)
    plain, of_map = (expect(pattern, pattern.accesses[1], Layout(chunk, one)) for one in (None, shard))  # fmt: skip
    assert of_map.n_requests - plain.n_requests == pytest.approx(3 * 6)
    assert of_map.nbytes - plain.nbytes == pytest.approx(3 * 6 * 16 * 16 * 8 * 8)
    for asked in (plain, of_map):
        assert NETWORK.first_byte_median_s < asked.p50_s <= asked.p95_s
