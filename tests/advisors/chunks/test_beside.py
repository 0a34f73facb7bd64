"""Examples, shards from many objects on, aligned accesses, and what stands beside a recommendation."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from advisors.chunks import search
from advisors.chunks.beside import pick_by_tools
from advisors.chunks.candidates import aligned_touched, predict_seconds
from advisors.chunks.cli import chunks_command
from advisors.chunks.examples import EXAMPLES
from advisors.chunks.problem import Access, AccessPattern, Bounds
from advisors.chunks.search import best_chunk_shape
from helpers.arrays.chunks import chunks_touched
from tests.advisors.chunks.test_cli import run
from tests.advisors.chunks.test_search import OBJECTS, REANALYSIS, pair


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    """Ask for each example once."""
    return {name: json.loads(run("--like", name, "--json")) for name in EXAMPLES}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gets_chunks_and_shards_of_good_size(
    answers: dict[str, dict[str, Any]], name: str
) -> None:
    """Chunks have 100 kB or more; what has over ten thousand comes in shards of 0.1 to 1 GB."""
    answer = answers[name]
    nbytes = math.prod(answer["chunk_shape"]) * answer["itemsize"]
    assert 100_000 <= nbytes <= 100_000_000
    assert answer["shape"] == list(EXAMPLES[name].shape)
    if answer["shard_shape"] is None:
        assert answer["n_objects"] <= 10_000
    else:
        assert 1e8 <= math.prod(answer["shard_shape"]) * answer["itemsize"] <= 1e9
        parts = zip(answer["shard_shape"], answer["chunk_shape"], strict=True)
        assert all(shard % chunk == 0 for shard, chunk in parts)


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_tool_picks_better(answers: dict[str, dict[str, Any]], name: str) -> None:
    """Each tool's own chunks are predicted beside, and take longer within the model's error."""
    beside = answers[name]["beside"]
    assert len(beside) == 4
    for row in beside:
        assert row["costs"] >= 0.9, row
        assert len(row["chunk_shape"]) == len(answers[name]["shape"])
        assert set(row["seconds"]) == set(answers[name]["seconds"])


def test_era5_has_squares_in_shards(answers: dict[str, dict[str, Any]]) -> None:
    """Of what is as fast for series and maps, latitude and longitude are cut alike."""
    answer = answers["era5"]
    _, y, x = answer["chunk_shape"]
    assert max(x / y, y / x) <= 2
    assert answer["shard_shape"]
    for name, seconds in answer["seconds"].items():
        assert seconds <= 1.05 * answer["fastest"]["seconds"][name] + 1e-9


def test_speed_and_cost_are_labelled(answers: dict[str, dict[str, Any]]) -> None:
    """The one is the recommendation, the other costs no more; both are in the words."""
    for name, answer in answers.items():
        speed, cost = answer["answers"]["speed"], answer["answers"]["cost"]
        assert speed["chunk_shape"] == answer["chunk_shape"], name
        assert speed["shard_shape"] == answer["shard_shape"]
        assert cost["usd_per_million_reads"] <= speed["usd_per_million_reads"]
        assert any(line.startswith("Speed answer: chunks ") for line in answer["reasons"])
        assert any(line.startswith("Cost answer: ") for line in answer["reasons"])


def test_prices_move_the_cost_answer() -> None:
    """Where requests alone are paid, the cost answer asks for no more of them."""
    shape = ("--shape", "9000,90,90", "--itemsize", "4", "--json", "--price", "waiting_per_hour=0")
    answers = json.loads(run(*shape))["answers"]
    assert answers["cost"]["usd_per_million_reads"] < answers["speed"]["usd_per_million_reads"]
    assert math.prod(answers["cost"]["chunk_shape"]) > math.prod(answers["speed"]["chunk_shape"])
    free = (*shape, "--price", "get_per_1000=0")
    assert json.loads(run(*free))["answers"]["cost"]["usd_per_million_reads"] == 0


def test_tools_are_asked_themselves() -> None:
    """Zarr's guess is what an array gets, netCDF's what its library chooses."""
    found = pick_by_tools((1000, 700, 500), np.dtype("f4"))
    assert set(found) == {
        "Dask's auto",
        "Zarr's guess",
        "netCDF-C and nccopy",
        "netCDF-C with an unlimited first dimension",
    }
    assert found["netCDF-C with an unlimited first dimension"][0] == 1
    for shape in found.values():
        assert all(1 <= c <= n for c, n in zip(shape, (1000, 700, 500), strict=True))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 120))
def test_aligned_ranges_are_counted(extent: int, chunk: int, n: int) -> None:
    """The mean over all ranges on their grid is that of counting each."""
    extent = min(extent, n)
    starts = range(0, n - extent + 1, extent)
    counted = [chunks_touched((slice(s, s + extent),), (chunk,)) for s in starts]
    assert aligned_touched(extent, chunk, n) == pytest.approx(np.mean(counted))
    assert aligned_touched(extent, np.asarray([chunk]), n) == pytest.approx(np.mean(counted))


def test_tiles_on_a_grid_get_chunks_on_it() -> None:
    """A tile of a viewer is one chunk or whole chunks; drawn anywhere it crosses borders."""
    shape, times = (64, 4096, 4096), []
    for is_aligned in (True, False):
        tile = Access("tile", (1, 256, 256), is_aligned)
        pattern = AccessPattern(shape, 2, [tile], [1], OBJECTS, Bounds(100_000))
        best = best_chunk_shape(pattern, tolerance=search.MODEL_ERROR).best
        times.append(best.seconds["tile"])
        if is_aligned:
            assert all(256 % c == 0 or c % 256 == 0 for c in best.chunk_shape[1:])
    assert times[0] < times[1]
    named = json.loads(
        run("--shape", "64,4096,4096", "--itemsize", "2", "--json", "--access", "1x256x256@aligned")
    )
    assert set(named["seconds"]) == {"1x256x256@aligned"}


MANY = Bounds(
    100_000, shard_from=10_000, min_shard_nbytes=100_000_000, max_shard_nbytes=1_000_000_000
)


LONGER = (2 * REANALYSIS[0], *REANALYSIS[1:])


@pytest.mark.parametrize("shape", [LONGER, (10**6, 1000, 1000), (10**6, 10**4, 5000)])
def test_shards_come_from_many_objects_on(shape: tuple[int, ...]) -> None:
    """They are sized as asked; an array so large that it has more objects has the largest shards."""
    accesses, abreast = pair(shape), {"reads_shards_abreast": True}
    pattern = AccessPattern(shape, 4, accesses, [1, 1], OBJECTS, MANY, **abreast)
    found = best_chunk_shape(pattern)
    assert found.shard_shape is not None
    nbytes = math.prod(found.shard_shape) * 4
    assert 1e8 <= nbytes <= 1e9
    assert found.n_objects <= 10_000 or nbytes > 2.5e8


def test_chunks_read_abreast_are_no_slower() -> None:
    """A reader that asks for the chunks of a shard side by side waits no longer than one in turn."""
    chunks, shards = np.asarray([(400, 35, 35)]), np.asarray([(98400, 35, 35)])
    times = [
        predict_seconds(
            AccessPattern(REANALYSIS, 4, pair(REANALYSIS), [1, 1], OBJECTS, MANY, "mean", abreast),
            chunks,
            shard_shapes=shards,
        )[0]
        for abreast in (True, False)
    ]
    assert (times[0] <= 1.05 * times[1]).all()
    assert times[0][0] < times[1][0] / 2  # a series lies in a shard or two


def test_shards_are_asked_for_otherwise() -> None:
    """Fewer or larger, as options say; who reads them in turn is told so."""
    shape = ("--shape", "98128,277,349", "--itemsize", "4")
    answer = json.loads(run(*shape, "--json", "--min-shard-nbytes", "2000000000",
                            "--memory-nbytes", "8000000000"))  # fmt: skip
    assert math.prod(answer["shard_shape"]) * 4 >= 2e9
    plain = json.loads(run(*shape, "--json", "--shard-from", "1000000"))
    assert plain["shard_shape"] is None and plain["n_objects"] > 10_000
    assert "read side by side, as zarr does from 3.3 on" in run("--like", "era5")
    sequential = run("--like", "era5", "--shard-reader", "sequential")
    assert "in turn, as zarr does before 3.3" in sequential


REFUSED = [
    (("--like", "era5", "--shape", "3,3"), "like: 'era5'; allowed: without STORE"),
    (("--like", "era5", "there.zarr"), "like: 'era5'; allowed: without STORE"),
    (("--shape", "9,9", "--itemsize", "4", "--access", "1x9@random"), "access: '1x9@random'; allowed"),
    (
        (*("--shape", "9,9", "--itemsize", "4"), "--min-shard-nbytes", "9", "--max-shard-nbytes", "8"),
        "min_shard_nbytes: 9; allowed: at most max_shard_nbytes, 8",
    ),
    (("--shape", "9,9", "--itemsize", "4", "--shard-from", "0"), "shard_from: 0; allowed: at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_bad_input_is_named(arguments: tuple[str, ...], words: str) -> None:
    """One line names the parameter, the value and what is allowed."""
    error = CliRunner().invoke(chunks_command, list(arguments)).exception
    assert str(error).startswith(words) and "\n" not in str(error)
