"""The caches of fsspec are its own; that of the library's pages asks for what HDF5 asks for."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from advisors.hdf5.files import open_hdf5, open_source
from advisors.hdf5.inspection import LoggedFile, Read, list_tree, record_reads
from advisors.hdf5.prediction import TODAY, FileCache, PageBuffer, order_reads, read_through


def ask(name: str, reads: list[tuple[int, int]], file_nbytes: int = 950) -> list[tuple[int, int]]:
    """Give offsets and lengths of what a cache of blocks of 100 bytes asks for."""
    given = [Read(*span) for span in reads]
    _, asked = read_through([FileCache(name, 100)], given, file_nbytes)
    return [(one.offset, one.nbytes) for one in asked]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("none", [(0, 10), (150, 60), (20, 10), (940, 10)]),  # clipped to the file
        ("readahead", [(0, 110), (150, 160), (20, 110), (940, 10)]),
        ("first", [(0, 100), (150, 60), (940, 10)]),
        ("blockcache", [(0, 100), (100, 100), (200, 100), (900, 50)]),
        # the next block comes too, and is there
        ("background", [(0, 100), (100, 100), (200, 100), (300, 100), (900, 50)]),
    ],
)
def test_fsspec_is_asked_as_it_is(name: str, asked: list[tuple[int, int]]) -> None:
    """The requests are those of the class of that name in fsspec."""
    assert ask(name, [(0, 10), (150, 60), (20, 10), (940, 30)]) == asked


def test_what_is_read_ahead_is_not_waited_for() -> None:
    """A block fetched in the background is marked, and starts with the read after it."""
    _, asked = read_through([FileCache("background", 100)], [Read(0, 10), Read(150, 10)], 1000)
    assert [one.is_ahead for one in asked] == [False, True, True]
    assert [step.after for step in order_reads(asked)] == [(), (0,), (0,)]
    assert [step.is_waited for step in order_reads(asked)] == [True, False, False]


def test_the_default_reads_ahead_as_far_as_s3fs_does() -> None:
    """What is called today's default is what s3fs has."""
    from s3fs import S3FileSystem

    files = S3FileSystem(anon=True, skip_instance_cache=True)
    assert (TODAY.cache_type, TODAY.block_nbytes) == (files.default_cache_type, files.default_block_size)  # fmt: skip


@pytest.mark.parametrize("n_pages", [1, 2, 3, 5, 200])
def test_page_buffer_asks_for_what_hdf5_asks_for(n_pages: int, tmp_path: Path) -> None:
    """Every read of the library behind its page buffer is simulated from those without one."""
    path, rng = tmp_path / "paged.h5", np.random.default_rng(0)
    with h5py.File(path, "w", fs_strategy="page", fs_page_size=16384) as file:
        for number in range(24):
            made = file.create_dataset(
                f"g{number % 3}/v{number}", data=rng.normal(size=2500), chunks=(700,), shuffle=True
            )
            made.attrs["long_name"] = "x" * 300
    variables = ["g1/v4", "g2/v5", "g1/v7", "g1/v4"]
    buffer_nbytes = n_pages * 16384 + 100  # HDF5 rounds down
    with open_source(str(path)) as file:
        recording = record_reads(file, "paged", variables)
        log = LoggedFile(file)
        with open_hdf5(log, "paged", page_buf_size=buffer_nbytes) as opened:
            list_tree(opened)
            for variable in variables:
                opened[variable][...]
    reads = [*recording.opened, *recording.read]
    buffer = PageBuffer(16384, buffer_nbytes, recording.n_first_past)
    n_first = len(recording.opened)
    opening, reading = read_through([buffer], reads, recording.file_nbytes, n_first=n_first)
    assert [(read.offset, read.nbytes) for read in (*opening, *reading)] == log.spans
