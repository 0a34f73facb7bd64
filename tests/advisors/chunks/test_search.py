"""The best chunk shape against trying every shape, and against the balance rule."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from advisors.chunks import candidates
from advisors.chunks.candidates import predict_seconds
from advisors.chunks.problem import Access, AccessPattern, Bounds
from advisors.chunks.replicas import Prices, compare_replicas
from advisors.chunks.search import best_chunk_shape
from helpers.arrays.chunks import balanced_chunk_shape
from helpers.errors import UserError
from helpers.models.access import Store
from helpers.models.transfer import Network

DISK = Store(start_s=1e-3, chunk_s=2e-3, decode_s_per_nbyte=5e-9)
OBJECTS = Store(
    Network(0.03, 0.1, 36e6, 200e6, 2200),
    10,
    start_s=5e-3,
    chunk_s=5e-4,
    decode_s_per_nbyte=2e-9,
    compression_ratio=2,
)
REANALYSIS = (98128, 277, 349)


def pair(shape: tuple[int, ...]) -> list[Access]:
    """Read a series at a point, and a slice at a time."""
    ones = (1,) * (len(shape) - 1)
    return [Access("series", (shape[0], *ones)), Access("slice", (1, *shape[1:]))]


def try_all(pattern: AccessPattern) -> float:
    """Score every shape within bounds; return the least."""
    every = np.indices(pattern.shape).reshape(len(pattern.shape), -1).T + 1
    nbytes = every.prod(axis=1) * pattern.itemsize
    n_chunks = (-(-np.asarray(pattern.shape) // every)).prod(axis=1)
    kept = (nbytes <= pattern.max_nbytes) & (nbytes >= pattern.min_nbytes)
    kept &= n_chunks <= pattern.bounds.max_objects
    return float(pattern.score(predict_seconds(pattern, every[kept])).min())


@st.composite
def draw_patterns(draw: st.DrawFn) -> AccessPattern:
    """Draw a small array, a series, a slice and a box of it, weights, and a bound on bytes."""
    shape = draw(st.tuples(st.integers(2, 60), st.integers(2, 25), st.integers(2, 25)))
    box = Access("box", tuple(draw(st.integers(1, n)) for n in shape))
    weights = tuple(draw(st.floats(0.01, 1)) for _ in range(3))
    bounds = Bounds(max_chunk_nbytes=draw(st.integers(8, 4 * math.prod(shape))))
    criterion = draw(st.sampled_from(["mean", "worst"]))
    store = draw(st.sampled_from([DISK, OBJECTS]))
    return AccessPattern(shape, 4, (*pair(shape), box), weights, store, bounds, criterion)


def pattern_of(
    shape: tuple[int, ...], box: tuple[int, ...], weights: tuple[float, ...], most: int
) -> AccessPattern:
    """Make a pattern on a disk, of what once failed."""
    accesses = (*pair(shape), Access("box", box))
    return AccessPattern(shape, 4, accesses, weights, DISK, Bounds(max_chunk_nbytes=most))


@settings(max_examples=40, deadline=None)
@given(draw_patterns())
@example(pattern_of((17, 2, 9), (12, 1, 1), (0.5, 1, 1), 288))  # the best is between two steps
def test_no_shape_of_a_small_array_is_better(pattern: AccessPattern) -> None:
    """Every shape is tried, so none that fits the bound is better at all."""
    found = best_chunk_shape(pattern).best
    assert found.score <= try_all(pattern) * (1 + 1e-9)
    assert math.prod(found.chunk_shape) * 4 <= pattern.max_nbytes


@settings(max_examples=40, deadline=None)
@given(draw_patterns())
@example(pattern_of((17, 2, 9), (12, 1, 1), (0.5, 1, 1), 288))
def test_a_search_finds_what_trying_all_finds(pattern: AccessPattern) -> None:
    """With fifteen extents a dimension, as in large arrays, it is within 2 percent of the best."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_N_CANDIDATES", min(15**3, math.prod(pattern.shape) - 1))
        assert best_chunk_shape(pattern).best.score <= 1.02 * try_all(pattern)


def test_a_coarse_sweep_is_mended_by_looking_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """With six extents a dimension, as in large arrays, the result is still within 2 percent."""
    monkeypatch.setattr(candidates, "_N_CANDIDATES", 216)
    shape = (220, 23, 37)
    for weights in ([1, 1], [8, 2], [1, 9]):
        pattern = AccessPattern(shape, 4, pair(shape), weights, DISK)
        found = best_chunk_shape(AccessPattern(shape, 4, pair(shape), weights, DISK))
        assert found.best.score <= 1.02 * try_all(pattern)


@pytest.mark.parametrize("store", [DISK, OBJECTS])
@pytest.mark.parametrize("chunk_nbytes", [2**22, 2**20, 8192])
def test_at_equal_weights_it_is_no_worse_than_the_balance_rule(
    store: Store, chunk_nbytes: int
) -> None:
    """At the same bound of bytes, the predicted mean is at most the rule's."""
    bounds = Bounds(max_chunk_nbytes=chunk_nbytes, max_objects=10**9)
    found = best_chunk_shape(
        AccessPattern(REANALYSIS, 4, pair(REANALYSIS), [1, 1], store, bounds=bounds)
    )
    pattern = AccessPattern(REANALYSIS, 4, pair(REANALYSIS), [1, 1], store, bounds)
    rule = np.asarray([balanced_chunk_shape(REANALYSIS, 4, chunk_nbytes)])
    assert found.best.score <= float(pattern.score(predict_seconds(pattern, rule))[0])


def test_weights_move_the_shape() -> None:
    """Who reads series gets chunks that are long in time, and the reverse."""
    series, even, slices = (
        best_chunk_shape(AccessPattern(REANALYSIS, 4, pair(REANALYSIS), w, OBJECTS)).best
        for w in ([99, 1], [1, 1], [1, 99])
    )
    assert series.chunk_shape[0] > even.chunk_shape[0] > slices.chunk_shape[0]
    assert series.seconds["series"] < even.seconds["series"] < slices.seconds["series"]


def test_runs_of_a_file_are_those_of_boxes() -> None:
    """A series through tiles is a seek a tile, through whole time steps one, and ours knows."""
    store = Store(is_file=True, request_s=0.1, chunk_s=1e-4)
    accesses = [Access("series", (40, 1, 1)), Access("slice", (1, 8, 8))]
    pattern = AccessPattern((40, 8, 8), 4, accesses, (1, 1), store)
    runs = [
        candidates.touched_runs(pattern, a, np.asarray([(10, 4, 4), (1, 8, 8)])) for a in accesses
    ]
    assert [list(each) for each in runs] == [[4, 1], [1, 1]]
    best = best_chunk_shape(AccessPattern((40, 8, 8), 4, accesses, (1, 1), store)).best.chunk_shape
    assert best[0] == 40


def test_the_front_holds_what_nobody_beats() -> None:
    """No point of the front is faster than another in both accesses, and the best is near it."""
    found = best_chunk_shape(AccessPattern(REANALYSIS, 4, pair(REANALYSIS), [1, 1], OBJECTS))
    times = np.asarray([list(choice.seconds.values()) for choice in found.front])
    assert len(times) > 10
    for one in times:
        assert not ((times < one * 0.97).all(axis=1)).any()
    assert (times @ [0.5, 0.5]).min() <= 1.03 * found.best.score


def test_the_second_best_is_another_shape_and_costs_more() -> None:
    """It differs by half in some dimension, and is no faster."""
    found = best_chunk_shape(AccessPattern(REANALYSIS, 4, pair(REANALYSIS), [8, 2], OBJECTS))
    pairs = zip(found.best.chunk_shape, found.second.chunk_shape, strict=True)
    assert max(max(a / b, b / a) for a, b in pairs) >= 1.5
    assert found.second_costs >= 1


def test_too_many_chunks_are_sharded_or_made_larger() -> None:
    """Objects stay within their bound, and shards are whole chunks."""
    for most in (10**5, 10**3, 10**2):
        bounds = Bounds(max_objects=most)
        found = best_chunk_shape(
            AccessPattern(REANALYSIS, 4, pair(REANALYSIS), [1, 1], OBJECTS, bounds=bounds)
        )
        assert found.n_objects <= most
        if found.shard_shape:
            parts = zip(found.shard_shape, found.best.chunk_shape, strict=True)
            assert all(s % c == 0 for s, c in parts)
            assert math.prod(found.shard_shape) * 4 <= bounds.memory_nbytes
    assert found.shard_shape  # a hundred objects of 380 MB: only shards can be read well


def test_memory_bounds_the_chunks_decoded_at_once() -> None:
    """Ten connections decode ten chunks."""
    bounds = Bounds(memory_nbytes=10**6)
    found = best_chunk_shape(
        AccessPattern(REANALYSIS, 4, pair(REANALYSIS), [1, 1], OBJECTS, bounds=bounds)
    )
    assert math.prod(found.best.chunk_shape) * 4 * OBJECTS.n_connections <= 10**6


def test_large_arrays_take_no_longer_than_a_look() -> None:
    """A sweep of 4-D arrays of 10^12 elements tries a bounded number of shapes."""
    shape = (10_000, 100, 1000, 1000)
    pattern = AccessPattern(shape, 4, pair(shape), [1, 1], OBJECTS)
    start = time.process_time()
    shapes, _ = candidates.predict_candidates(pattern)
    swept_s = time.process_time() - start
    assert len(shapes) <= candidates._N_CANDIDATES
    best_chunk_shape(AccessPattern(shape, 4, pair(shape), [1, 1], OBJECTS))
    assert time.process_time() - start < 100 * max(swept_s, 0.01)  # refining is no second sweep


def test_two_replicas_win_when_reads_are_many() -> None:
    """Below the break-even one replica is cheaper, above it two are."""
    pattern = AccessPattern(REANALYSIS, 4, pair(REANALYSIS), [1, 1], OBJECTS)
    prices = Prices(0.023, get_per_1000=0.0004, waiting_per_hour=1)
    even = compare_replicas(pattern, prices, n_reads_per_month=0).breakeven_reads_per_month
    assert 0 < even < math.inf
    few = compare_replicas(pattern, prices, n_reads_per_month=even / 2)
    many = compare_replicas(pattern, prices, n_reads_per_month=even * 2)
    assert few.one_per_month < few.two_per_month
    assert many.two_per_month < many.one_per_month
    assert [set(each.seconds) for each in many.two] in (
        [{"series"}, {"slice"}],
        [{"slice"}, {"series"}],
    )


def test_two_replicas_never_win_where_waiting_and_requests_are_free() -> None:
    """Storage alone is paid, and twice."""
    pattern = AccessPattern(REANALYSIS, 4, pair(REANALYSIS), [1, 1], OBJECTS)
    found = compare_replicas(pattern, Prices(0.023), n_reads_per_month=10**9)
    assert found.breakeven_reads_per_month == math.inf
    assert found.two_per_month == pytest.approx(2 * found.one_per_month)


SERIES = Access("series", (10, 1))

REFUSED = [
    (((), 4, [SERIES], [1]), "shape: []"),
    (((10, 0), 4, [SERIES], [1]), "shape: [10, 0]"),
    (((10, 5), 0, [SERIES], [1]), "itemsize: 0"),
    (((10, 5), 4, [], []), "accesses: none"),
    (((10, 5), 4, [SERIES], [-1]), "weights: [-1]"),  # negative
    (((10, 5), 4, [SERIES], [0]), "weights: [0]"),  # sums to zero
    (((10, 5), 4, [SERIES], [1, 1]), "weights: [1, 1]"),  # one too many
    (((9, 5), 4, [SERIES], [1]), "access series: [10, 1]"),  # outside the array
    (((10, 5, 5), 4, [SERIES], [1]), "access series: [10, 1]"),  # other dimensions
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_bad_input_is_named(arguments: tuple, words: str) -> None:  # type: ignore[type-arg]
    """One line names the parameter, the value and what is allowed."""
    with pytest.raises(UserError) as caught:
        best_chunk_shape(AccessPattern(*arguments, DISK))
    assert str(caught.value).startswith(words)
    assert "allowed" in str(caught.value)


def test_bounds_without_room_are_named() -> None:
    """Bounds that nothing can respect are refused before the sweep."""
    with pytest.raises(UserError, match="min_chunk_nbytes: 9; allowed: at most"):
        Bounds(min_chunk_nbytes=9, max_chunk_nbytes=8)
    with pytest.raises(UserError, match="max_objects: 1; allowed: more"):
        best_chunk_shape(
            AccessPattern(
                (10, 5), 4, [SERIES], [1], DISK, bounds=Bounds(max_objects=1, memory_nbytes=50)
            )
        )
