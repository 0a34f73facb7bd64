"""What the library will ask of a repaired file, found before anything is repaired."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from helpers.storage.repairs.choices import Repair
from helpers.storage.repairs.copying import copy_file
from helpers.storage.repairs.inspection import list_datasets, merge_spans
from helpers.storage.repairs.recording import LibraryRead, Recording, record_reads
from helpers.storage.repairs.sources import open_hdf5
from helpers.storage.repairs.sparse import SparseFile


def record_repaired(
    file: BinaryIO, name: str, repair: Repair, variables: Sequence[str]
) -> Recording:
    """Note what the library will ask for to open a repaired file and to read variables.

    Parameters
    ----------
    file : file object
        Open HDF5 file, not repaired.
    name : str
        How messages call it.
    repair : Repair
        What would be done.
    variables : sequence of str
        Paths of datasets inside the file.

    Returns
    -------
    Recording
        What it will ask for.
    """
    with _open_model(file, name, repair) as model:
        recording = record_reads(model, name, variables)
        if not repair.metadata_block_nbytes:
            return recording
        with open_hdf5(model, name) as opened:
            everything = list_datasets(opened)
        whole = record_reads(model, name, everything)
    metadata = merge_spans((r.offset, r.offset + r.nbytes) for r in whole.reads if r.is_metadata)
    return pack_front(recording, metadata, front_nbytes=repair.metadata_block_nbytes)


@contextmanager
def _open_model(file: BinaryIO, name: str, repair: Repair) -> Iterator[BinaryIO]:
    """Open a model of a repaired file: its layout by the library, without its values."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.h5"
        with open_hdf5(file, name) as source:
            target = SparseFile(path)
            copy_file(
                source,
                target,
                page_nbytes=repair.page_nbytes,
                chunk_shapes=dict(repair.chunk_shapes),
                is_model=True,
            )
            target.close()
        with path.open("rb") as model:
            yield model


def pack_front(
    recording: Recording, metadata: Sequence[tuple[int, int]], *, front_nbytes: int
) -> Recording:
    """Move metadata to a block at the front, and raw data behind it, both in their order.

    Metadata at `offset` go to the sum of the metadata before it. Raw data go
    to `front_nbytes` and `offset` less that sum.

    Parameters
    ----------
    recording : Recording
        What is asked of a file where both are mixed.
    metadata : sequence of (int, int)
        Where metadata lie in it: half-open ranges, sorted and apart.
    front_nbytes : int
        Bytes of the block.

    Returns
    -------
    Recording
        The same reads in the other layout.

    Examples
    --------
    Two pieces of metadata of 10 bytes, and 100 bytes of data between them:

    >>> read = LibraryRead(110, 10, True, "open"), LibraryRead(10, 100, False, "read")
    >>> moved = pack_front(Recording(read, 120, 0, 0), [(0, 10), (110, 120)], front_nbytes=64)
    >>> [read.offset for read in moved.reads], moved.file_nbytes
    ([10, 64], 164)
    """
    starts = [start for start, _ in metadata]
    sums = [0, *accumulate(stop - start for start, stop in metadata)]

    def before(offset: int) -> int:
        place = bisect_right(starts, offset)
        if not place:
            return 0
        start, stop = metadata[place - 1]
        return sums[place - 1] + min(offset, stop) - start

    def move(read: LibraryRead) -> LibraryRead:
        ahead = before(read.offset)
        return replace(
            read, offset=ahead if read.is_metadata else front_nbytes + read.offset - ahead
        )

    n_raw = recording.file_nbytes - sums[-1]
    reads = tuple(move(read) for read in recording.reads)
    return replace(recording, reads=reads, file_nbytes=front_nbytes + n_raw)
