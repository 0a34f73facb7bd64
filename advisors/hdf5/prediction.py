"""What opening and reading an HDF5 file takes: recorded reads through simulated caches.

What the library asks for passes through the caches of a client, and what is left of it over
the network of a profile, with what client and server take beside the network.
"""

from __future__ import annotations

import math
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Literal

from advisors.hdf5.copying import SparseFile
from advisors.hdf5.inspection import FileReport, Variable, merge_spans
from advisors.hdf5.recording import (
    LibraryRead,
    Recording,
    list_datasets,
    list_tree,
    open_hdf5,
    record_reads,
)
from advisors.hdf5.repack import Repack
from helpers.errors import UserError
from helpers.models.caches import (
    BlockCache,
    Cache,
    NoCache,
    PageBuffer,
    Read,
    Reading,
    read_through,
)
from helpers.models.replay import Replay, Step, order_reads, replay
from helpers.models.transfer import ClientCosts, Network
from helpers.objectstore.locations import Location

MIB = 2**20
_PAGE_BUFFER_NBYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class Settings:
    """How h5py reads through a file object of fsspec."""

    cache_type: Literal["none", "blockcache"] = "blockcache"  # cache of the file object
    block_nbytes: int = 8 * MIB  # bytes of its blocks
    max_blocks: int = 32  # blocks that it keeps
    # HDF5's page buffer, where file space is paged; 0 for none, None for what holds a page
    page_buffer_nbytes: int | None = None

    def file_options(self) -> dict[str, Any]:
        """Give the options with which fsspec opens the file so."""
        if self.cache_type == "none":
            return {"cache_type": "none"}
        return {
            "cache_type": "blockcache",
            "block_size": self.block_nbytes,
            "cache_options": {"maxblocks": self.max_blocks},
        }

    def choose_page_buffer(self, page_nbytes: int) -> int:
        """Choose the page buffer for pages of a file: 16 MiB, or a page, unless it is given.

        Examples
        --------
        >>> [Settings().choose_page_buffer(pages * MIB) // MIB for pages in (0, 4, 32)]
        [0, 16, 32]
        """
        if not page_nbytes:
            return 0
        if self.page_buffer_nbytes is None:
            return max(_PAGE_BUFFER_NBYTES, page_nbytes)
        if 0 < self.page_buffer_nbytes < page_nbytes:
            raise UserError(
                f"page-buffer: {self.page_buffer_nbytes / MIB:g} MiB; allowed: 0, or at least a page"
                f" of the file, {page_nbytes / MIB:g} MiB"
            )
        return self.page_buffer_nbytes

    def caches(self, recording: Recording) -> list[Cache]:
        """Give the caches between the library and the network, for a recorded file."""
        page_nbytes, n_first = recording.page_nbytes, recording.n_first_past
        found: list[Cache] = []
        if buffer_nbytes := self.choose_page_buffer(page_nbytes):
            found.append(PageBuffer(page_nbytes, buffer_nbytes, n_first_past=n_first))
        is_none = self.cache_type == "none"
        return [*found, NoCache() if is_none else BlockCache(self.block_nbytes, self.max_blocks)]


UNTUNED = Settings("none", page_buffer_nbytes=0)
"""No cache at all: published comparisons start from it."""

TUNED = Settings()
"""Blocks of 8 MiB and a page buffer of 16 MiB, as published advice has them."""


@dataclass(frozen=True, slots=True)
class LibraryCosts:
    """What the library takes on one processor, whatever the network: an assumption until it is fitted."""

    object_s: float = 1e-4  # to list an object or an attribute
    nbyte_s: float = 5e-10  # for a byte of values, beside its filters
    in_heap_s: float = 1e-6  # for a value of variable length
    factor: float = 1.0  # seconds here over these

    def listing_s(self, report: FileReport) -> float:
        """Estimate the time of listing a file."""
        return self.factor * self.object_s * report.n_listed

    def decode_s(self, report: FileReport, variables: Sequence[str]) -> float:
        """Estimate the time of decoding what is stored of some variables.

        Examples
        --------
        >>> from advisors.hdf5.inspection import Variable
        >>> one = Variable("x", (10**6,), "f4", (10**5,), 10, 10**6, 4 * 10**6, (), (), False, (),
        ...     filter_numbers=(2, 1))
        >>> round(1e3 * LibraryCosts().of_variable(one), 1)
        20.7
        """
        return self.factor * sum(self.of_variable(report.variable(name)) for name in variables)

    def of_variable(self, variable: Variable) -> float:
        """Estimate the time of decoding a variable, before the factor."""
        nbytes = min(variable.nbytes, variable.n_chunks * variable.chunk_nbytes)
        rates = (_MB_PER_S.get(number, _OTHER_MB_PER_S) for number in variable.filter_numbers)
        in_heaps = math.prod(variable.shape) if variable.is_variable_length else 0
        return in_heaps * self.in_heap_s + nbytes * (self.nbyte_s + sum(1e-6 / r for r in rates))


# Values that a filter decodes in a second, in MB. deflate, shuffle, fletcher32, szip, nbit,
# scaleoffset; LZF, Blosc, LZ4, bitshuffle, Zstd, Blosc2
_MB_PER_S = {1: 250.0, 2: 1500.0, 3: 1500.0, 4: 150.0, 5: 400.0, 6: 300.0, 32000: 400.0,
             32001: 1000.0, 32004: 1500.0, 32008: 1500.0, 32015: 500.0, 32026: 1000.0}  # fmt: skip
_OTHER_MB_PER_S = 200.0

TYPICAL_LIBRARY = LibraryCosts()
"""Costs of the library where none were fitted: an assumption, not a measurement."""


@dataclass(frozen=True, slots=True)
class ReadPrediction:
    """What to expect of opening a file and reading variables."""

    open: Replay  # opening with the listing of every object and attribute; reading
    read: Replay
    listing_s: float = 0.0  # what the library itself takes to list, and to decode
    decode_s: float = 0.0

    @property
    def open_s(self) -> float:
        """Time of opening, with the library's own."""
        return self.open.seconds + self.listing_s

    @property
    def read_s(self) -> float:
        """Time of reading, with the library's own."""
        return self.read.seconds + self.decode_s

    @property
    def seconds(self) -> float:
        """Time of both."""
        return self.open_s + self.read_s

    @property
    def n_requests(self) -> int:
        """Requests of both."""
        return self.open.n_requests + self.read.n_requests

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.open.nbytes + self.read.nbytes


def predict_read(
    recording: Recording, settings: Settings, network: Network, *, costs: ClientCosts | None = None
) -> ReadPrediction:
    """Predict opening and reading from what the library asks for."""
    reads = [Read(r.offset, r.nbytes, is_metadata=r.is_metadata) for r in recording.reads]
    n_open = sum(read.phase == "open" for read in recording.reads)
    opened, whole = (
        _pass(Reading(tuple(part)), settings, recording).reads for part in (reads[:n_open], reads)
    )
    parts = Reading((Read(0, 0), *opened)), Reading(whole[len(opened) :])
    opening, reading = (order_reads(part) for part in parts)
    return replay_both(opening, reading, network, costs or ClientCosts())


def replay_both(
    opened: Sequence[Step], read: Sequence[Step], network: Network, costs: ClientCosts
) -> ReadPrediction:
    """Predict an opening and a read, of which both are sequences of requests."""
    request_s = costs.request_s
    return ReadPrediction(
        replay(
            opened, network, request_s=request_s, rest_s=costs.start_s, n_draws=_count_draws(opened)
        ),
        replay(read, network, request_s=request_s, n_draws=_count_draws(read)),
    )


def _count_draws(steps: Sequence[Step]) -> int:
    """Choose more simulations where few requests leave the median to chance."""
    return max(9, min(201, 2_000 // max(1, len(steps))))


def _pass(reading: Reading, settings: Settings, recording: Recording) -> Reading:
    for cache in settings.caches(recording):
        reading = read_through(cache, reading, file_nbytes=recording.file_nbytes)
    return reading


def read_file(
    location: Location, settings: Settings, variables: Sequence[str], *, page_nbytes: int = 0
) -> None:
    """Open a file, list it and read variables whole, as `predict_read` has it."""
    page_buffer_nbytes = settings.choose_page_buffer(page_nbytes)
    files = location.fsspec(skip_instance_cache=True)
    with (
        files.open(location.path, **settings.file_options()) as file,
        open_hdf5(file, location.url, page_buf_size=page_buffer_nbytes) as found,
    ):
        list_tree(found)
        for variable in variables:
            found[variable][...]


def record_repacked(
    file: BinaryIO,
    name: str,
    repack: Repack,
    variables: Sequence[str],
    *,
    is_listed: bool = True,
) -> Recording:
    """Note what the library will ask for to open a repacked file, list it, and read variables."""
    with _open_model(file, name, repack) as model:
        recording = record_reads(model, name, variables, is_listed=is_listed)
        if not repack.metadata_block_nbytes:
            return recording
        with open_hdf5(model, name) as opened:
            everything = list_datasets(opened)
        whole = record_reads(model, name, everything)
    metadata = merge_spans((r.offset, r.offset + r.nbytes) for r in whole.reads if r.is_metadata)
    return pack_front(recording, metadata, front_nbytes=repack.metadata_block_nbytes)


@contextmanager
def _open_model(file: BinaryIO, name: str, repack: Repack) -> Iterator[BinaryIO]:
    """Open a model of a repacked file: its layout by the library, without its values."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.h5"
        with open_hdf5(file, name) as source:
            target = SparseFile(path)
            repack.copy(source, target, is_model=True)
            target.close()
        with path.open("rb") as model:
            yield model


def pack_front(
    recording: Recording, metadata: Sequence[tuple[int, int]], *, front_nbytes: int
) -> Recording:
    """Move metadata to a block at the front, and raw data behind it, both in their order.

    Metadata at `offset` go to the sum of the metadata before it. Raw data go
    to `front_nbytes` and `offset` less that sum.

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
