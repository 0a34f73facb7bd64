"""A damaged copy is refused, right or silently wrong, and the sound one stays as it was."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.benchmark import statistics
from studies.flipped_bytes import findings, workload
from studies.flipped_bytes.parameters import Parameters
from studies.flipped_bytes.protection import FORMATS
from tests.refusals import refused

ARRAY = np.random.default_rng(1).normal(size=(1, 2, 32, 48)).astype(np.float32)
CHUNK = (1, 1, 32, 48)


@pytest.mark.parametrize("name", FORMATS)
def test_sound_copies_come_back_and_checksums_refuse(name: str, tmp_path: Path) -> None:
    """What has a checksum returns no wrong values; what has none and no codec returns nearly all."""
    if missing := FORMATS[name].missing():
        pytest.skip(f"not installed: {', '.join(missing)}")
    steps = workload.FlippedRead(name, tmp_path / "a", ARRAY, CHUNK, workload.Trial(), 0, 1, 0)
    assert steps.check(FORMATS[name].read(steps.folder)) == "sha256 of all 3072 values"
    before = [path.read_bytes() for path in workload.list_files(steps.folder)]
    ended = []
    for seed in range(12):
        with workload.flipped(steps.folder, np.random.default_rng(seed)):
            sums = workload.sum_values(ARRAY)
            ended.append(workload.read_flipped(name, steps.folder, sums))
    assert [path.read_bytes() for path in workload.list_files(steps.folder)] == before
    if FORMATS[name].checksum:
        assert "silent" not in ended and "refused" in ended
    if name == "zarr-plain":
        assert ended.count("silent") > 6


@pytest.mark.parametrize("name", ["tensorstore", "icechunk", "tiledb"])
def test_readers_without_a_checksum_return_wrong_values(name: str, tmp_path: Path) -> None:
    """Of flips in the default layouts of newer readers some come back as values, which are counted."""
    if missing := FORMATS[name].missing():
        pytest.skip(f"not installed: {', '.join(missing)}")
    steps = workload.FlippedRead(name, tmp_path / "a", ARRAY, CHUNK, workload.Trial(), 0, 1, 0)
    ended = []
    for seed in range(20):
        with workload.flipped(steps.folder, np.random.default_rng(seed)):
            ended.append(workload.read_flipped(name, steps.folder, workload.sum_values(ARRAY)))
    assert "silent" in ended
    assert steps.versions().keys() == {*FORMATS[name].packages}


def test_a_format_without_its_package_is_refused_at_the_door(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line names the format, and what to install."""
    lacking = replace(FORMATS["zarr"], packages=("no_such_package",))
    monkeypatch.setitem(FORMATS, "tensorstore", lacking)  # type: ignore[arg-type]
    with refused("case: formats", "'tensorstore' cannot be read", "install no_such_package"):
        Parameters.check({"formats": ["zarr", "tensorstore"]}, "case")


def abort(*_given: object) -> None:
    """End the process as a fault of a C library does."""
    os.abort()


def test_a_crash_is_counted_and_the_next_read_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that ends its process does not end the measurement."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"abc")
    trial, rng = workload.Trial(), np.random.default_rng(0)
    with monkeypatch.context() as patch:
        patch.setattr(workload, "read_flipped", abort)
        assert trial.read("zarr", tmp_path / "a", "", rng) == "crashed"
    assert trial.read("zarr", tmp_path / "a", "", rng) == "refused"
    trial.close()
    assert (tmp_path / "a" / "file").read_bytes() == b"abc"


def test_shares_have_wilsons_interval() -> None:
    """None of twenty is not the same as never."""
    counts = pd.Series({"n_right": 0, "n_refused": 20, "n_silent": 0, "n_crashed": 0})
    found = findings.silent_percent(counts)
    assert (found.centre, found.low, found.n) == (0, 0, 20) and found.high == pytest.approx(
        16.1, 0.01
    )


def test_costs_are_told_of_the_format_with_its_checksum() -> None:
    """A format that is slower with a checksum is told to be slower, next to what it is without."""
    cost = statistics.judge(statistics.Interval(2.0, 1.8, 2.2, 5), 1.1)
    labels = {name: one.label for name, one in FORMATS.items()}
    line = findings.tabulate_costs({"zarr-crc32c": cost}, labels).loc["Zarr, Zstandard, crc32c"]
    assert [*line] == ["Zarr, Zstandard (default)", 2.0, 1.8, 2.2, "slower"]
