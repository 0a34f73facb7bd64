"""A folder of a file system as a store: the same readers, the same checks, its pages dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.arrays.clusters import open_cluster
from helpers.arrays.readers import READERS
from helpers.arrays.reads import ON_FILES, ArrayRead, RawRead
from helpers.arrays.stores import prepare_array
from helpers.errors import UserError
from helpers.netem.profiles import get_profile
from helpers.objectstore.testbed import open_testbed
from tests.stores import CHUNK_SHAPE, make_sample

FIT = [name for name, reader in READERS.items() if not reader.needs_s3]


def test_readers_of_files_read_what_was_written(tmp_path: Path) -> None:
    """Every reader that fits, on workers, value by value; nothing traces, and raw reads are there."""
    folder = tmp_path / "a project"
    folder.mkdir()
    with (
        open_testbed(f"file://{folder}", get_profile("loopback")) as testbed,
        open_cluster("local", threads_per_worker=2) as cluster,
    ):
        stored = prepare_array(
            make_sample(),
            testbed.near,
            chunk_shape=CHUNK_SHAPE,
            codec="blosc-zstd",
            layouts=("zarr", "netcdf"),
        )
        cluster.scale(1)
        for name in FIT:
            read = ArrayRead(stored, READERS[name], testbed, cluster, 2)
            read.prepare()
            assert read.check(read.read(read.open())) == "xxh3 of 12 chunks"
            assert read.settings()["cache_state"] == ON_FILES
            assert "n_requests" not in read.collect()
        raw = RawRead.of_array(stored, testbed, n_connections=2)
        raw.prepare()
        assert raw.check(raw.read(raw.open())) == "xxh3 of 12 objects"
    assert [*folder.rglob("zarr.json")], "the array is in the folder that was named"


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """It may be a mistake, and nothing is made."""
    place = tmp_path / "absent"
    with (
        pytest.raises(UserError, match="allowed: a folder that is there and may be written to"),
        open_testbed(f"file://{place}", get_profile("loopback")),
    ):
        pytest.fail("not reached")
    assert not place.exists()
