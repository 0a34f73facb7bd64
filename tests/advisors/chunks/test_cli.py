"""``wire chunks``: one layout in words and as JSON, and what cannot be asked."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from advisors.chunks.cli import chunks_command
from advisors.decide.cli import decide
from helpers.errors import UserError

ERA5 = ("--shape", "87600,721,1440", "--access", "series:0.8,map:0.2")


def run(*options: str, command: Any = chunks_command) -> str:
    """Run a command and return what it prints."""
    with warnings.catch_warnings(action="error"):
        found = CliRunner().invoke(command, list(options), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def ask(*options: str, command: Any = chunks_command) -> Any:
    """Run a command and read its JSON, which has no infinities."""
    return json.loads(run(*options, "--json", command=command), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "options",
    [ERA5, (*ERA5, "--arrays", "55", "--compression", "2"), (*ERA5, "--append", "time:24"),
     ("--shape", "200,1000,2048,2048", "--type", "uint16", "--access", "1x128x128x128"),
     ("--shape", "1,1,1"), ("--shape", "10")],
)  # fmt: skip
def test_chunks_and_decide_agree_to_the_digit(options: tuple[str, ...]) -> None:
    """The one copy of `wire decide` is the layout of `wire chunks`, with the same expectations."""
    found = ask(*options)
    choices = ask(*options, command=decide)["choices"]
    (one,) = [each for each in choices if each["label"] == "one copy"]
    assert one["layouts"][0]["chunk_shape"] == found["chunk_shape"]
    assert one["layouts"][0]["shard_shape"] == found["shard_shape"]
    assert one["reads"] == found["reads"]
    assert found["seconds"] == {read["access"]: read["p50_s"] for read in one["reads"]}


def test_the_answer_stands_first_and_why_tells_the_rest() -> None:
    """The shape, what is expected, and the line that makes such an array, which runs."""
    short, long = run(*ERA5).splitlines(), run(*ERA5, "--why")
    shape = ask(*ERA5)["chunk_shape"]
    assert short[0].startswith(",".join(map(str, shape))) and len(short) <= 10
    for part in ("Fastest:", "Cheapest to read:", "Two copies:", "zarr.create_array("):
        assert part in long
    line = next(line for line in short if line.startswith("zarr.create_array("))
    assert eval(line, {"zarr": zarr, "store": {}}).chunks == tuple(shape)


def test_a_dataset_has_its_own_layout_beside(tmp_path: Path) -> None:
    """What it takes as it is stands below, from its metadata and objects alone."""
    path = str(tmp_path / "a.zarr")
    array = zarr.create_array(path, shape=(400, 300, 200), chunks=(1, 300, 200), dtype="float32")
    array[:4] = np.random.default_rng(1).normal(size=(4, 300, 200))
    found = ask(path, "--access", "series")
    assert found["others"]["as it is"]["seconds"]["series"] > 5 * found["seconds"]["series"]
    assert "As it is: 1,300,200" in run(path, "--access", "series")


def test_a_calibration_is_what_is_predicted_on(tmp_path: Path) -> None:
    """Of a file of `wire calibrate` come the network and what a chunk costs."""
    path = tmp_path / "mine.yml"
    network = (
        "first_byte_s: {median_s: 0.5, p95_s: 0.6}\nstream_mb_per_s: 50\naggregate_mb_per_s: 100"
    )
    told = [ask(*ERA5, "--profile", "in-region")]
    for chunk_ms in (1, 50):
        measured = f"measurement: {{chunk_ms: {chunk_ms}, decode_mb_per_s: 321}}"
        path.write_text(f"{network}\n{measured}")
        told.append(ask(*ERA5, "--profile", str(path)))
    slowest = [max(one["seconds"].values()) for one in told]
    assert slowest == sorted(slowest) and told[1]["chunk_nbytes"] < told[2]["chunk_nbytes"]
    on = told[1]["predicted_on"]
    assert (on["stream_mb_per_s"], on["decode_mb_per_s"], on["chunk_ms"]) == (50, 2 * 321, 1)


BAD = [
    ((), "shape: none"),
    (("--shape", "0,10"), r"shape: \[0, 10\]"),
    (("--shape", "ten"), "shape: 'ten'"),
    (("--shape", ",".join("2" * 9)), "at most 8 dimensions"),
    (("--shape", "10,10", "--type", "float33"), "type: 'float33'"),
    (("--shape", "10,10", "--type", "object"), "type: 'object'"),
    (("--shape", "10,10", "--variable", "x"), "variable: 'x'"),
    (("--shape", "10,10", "--access", "zigzag:1"), "access: 'zigzag'"),
    (("--shape", "10,10", "--access", "20x1:1"), r"access: \[20, 1\]"),  # more than there is
    (("--shape", "10,10", "--access", "2x2@odd:1"), "access: '2x2@odd:1'"),
    (("--shape", "10,10", "--access", "series:often"), "access: 'series:often'"),
    (("--shape", "10,10", "--access", "series:0,map:0"), "access: 'series:0,map:0'"),
    (("--shape", "10,10", "--access", "series:nan"), "access: 'series:nan'"),
    (("--shape", "10,10", "--access", "series:1,series:1"), "access: 'series' is there twice"),
    (("--shape", "10,10", "--profile", "moon"), "'moon'"),
    (("--shape", "10,10", "--compression", "0"), "compression: 0"),
    (("--shape", "10,10", "--memory", "0"), "memory: 0"),
    (("--shape", "10,10", "--memory", "1e-9"), "memory: 1e-09"),
    (("--shape", "10,10", "--cores", "0"), "cores: 0"),
    (("--shape", "10,10", "--in-flight", "0"), "in-flight: 0"),
    (("--shape", "10,10", "--arrays", "0"), "arrays: 0"),
    (("--shape", "10,10", "--max-objects", "0"), "max-objects: 0"),
    (("--shape", "1000000,100,100", "--max-objects", "1", "--memory", "1"), "max-objects: 1"),
    (("--shape", "10,10", "--append", "depth"), "append: 'depth'"),
    (("--shape", "10,10", "--append", "time:0"), "append: 'time:0'"),
    (("nowhere.zarr",), "nothing is there"),
    (("nowhere.zarr", "--shape", "10,10"), "shape: '10,10'"),
]
BAD_OF_DECIDE = [
    (("--shape", "10,10", "--budget-usd-month", "0"), "budget-usd-month: 0"),
    (("--shape", "10,10", "--wait-usd-hour", "-5"), "wait-usd-hour: -5"),
    (("--shape", "10,10", "--per-second", "0"), "per-second: 0"),
    (("--shape", "10,10", "--reads-per-month", "-1"), "reads-per-month: -1"),
    (("--shape", "10,10", "--reads-per-month", "1", "--per-second", "1"), "reads-per-month: 1"),
    (("--shape", "10,10", "--chunks", "20,20"), r"chunks: \[20, 20\]"),
    (("--shape", "10,10", "--format", "hdf5"), "chunks: none"),
    (("--shape", "10,10", "--chunks", "4,4", "--shards", "6,6"), r"shards: \[6, 6\]"),
    (("--shape", "10,10", "--workers", "2"), "workers: 2"),
    (("--shape", "10,10", "--batch", "0"), "batch: 0"),
    (("--shape", "10,10", "--keep", "bytes"), "keep: bytes"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [(chunks_command, *bad) for bad in BAD] + [(decide, *bad) for bad in BAD_OF_DECIDE],
)
def test_bad_questions_are_one_line(command: Any, options: tuple[str, ...], message: str) -> None:
    """What cannot be asked says what it is, and what is allowed."""
    with pytest.raises(UserError, match=message) as caught:
        CliRunner().invoke(command, list(options), catch_exceptions=False)
    assert "\n" not in str(caught.value) and "allowed" in str(caught.value)
