"""The caches of the HDF5 library: its page buffer, and the block cache of its ROS3 driver.

Both follow the sources of HDF5 2.2, `H5PB.c` and `H5FDros3.c`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from helpers.errors import UserError
from helpers.models.caches.base import Ask, Read, Recent, check_nbytes, span

MIB = 2**20


@dataclass(frozen=True, slots=True)
class PageBuffer:
    """HDF5's page buffer, for files with paged file space.

    Whole pages are read and kept, and the least recently used one leaves, but
    for a share of the buffer that metadata or raw data keeps. What is as large
    as a page goes past it.

    Parameters
    ----------
    page_nbytes : int
        Bytes of a page, as the file has it.
    buffer_nbytes : int
        Bytes of the buffer, at least a page; rounded down to whole pages.
    min_metadata_percent, min_raw_percent : int
        Shares of the buffer that are not taken from metadata and from raw
        data by the other, from 0 to 100, together at most 100.
    n_first_past : int
        Reads at the beginning that go past it: the library makes its page
        buffer only after it has read the superblock.
    """

    page_nbytes: int
    buffer_nbytes: int
    min_metadata_percent: int = 0
    min_raw_percent: int = 0
    n_first_past: int = 0

    def __post_init__(self) -> None:
        check_nbytes("page_nbytes", self.page_nbytes)
        if self.buffer_nbytes < self.page_nbytes:
            raise UserError(
                f"page_buffer_nbytes: {self.buffer_nbytes}; allowed: at least a page of the file,"
                f" {self.page_nbytes}"
            )
        shares = self.min_metadata_percent, self.min_raw_percent
        if min(shares) < 0 or sum(shares) > 100:
            raise UserError(
                f"min_metadata_percent, min_raw_percent: {shares}; allowed: at least 0,"
                " together at most 100"
            )

    def start(self, file_nbytes: int) -> Ask:
        """Return an empty page buffer of a file."""
        pages = _Pages(self)
        n_past = 0

        def ask(read: Read) -> Iterator[Read]:
            nonlocal n_past
            if n_past < self.n_first_past or read.nbytes >= self.page_nbytes:
                n_past += 1
                yield from span(read.offset, read.stop)
                return
            for number in self.touched(read):
                if not pages.use(number):
                    if not pages.make_room(is_metadata=read.is_metadata):
                        yield from span(read.offset, read.stop)
                        return
                    pages.add(number, is_metadata=read.is_metadata)
                    start = number * self.page_nbytes
                    yield from span(start, min(start + self.page_nbytes, file_nbytes))

        return ask

    def touched(self, read: Read) -> range:
        """Return the pages that a read looks up; metadata never lies across two."""
        if not read.nbytes:
            return range(0)
        first = read.offset // self.page_nbytes
        last = first if read.is_metadata else (read.stop - 1) // self.page_nbytes
        return range(first, last + 1)


class _Pages:
    """Pages that are kept, and who leaves."""

    def __init__(self, settings: PageBuffer) -> None:
        n_pages = settings.buffer_nbytes // settings.page_nbytes
        nbytes = n_pages * settings.page_nbytes
        self._n_pages = n_pages
        self._kinds = dict[int, bool]()  # from the least to the most recently used one
        self._least = {
            True: nbytes * settings.min_metadata_percent // (settings.page_nbytes * 100),
            False: nbytes * settings.min_raw_percent // (settings.page_nbytes * 100),
        }

    def _count(self, *, is_metadata: bool) -> int:
        return sum(kind is is_metadata for kind in self._kinds.values())

    def use(self, number: int) -> bool:
        if number not in self._kinds:
            return False
        self._kinds[number] = self._kinds.pop(number)
        return True

    def add(self, number: int, *, is_metadata: bool) -> None:
        self._kinds[number] = is_metadata

    def make_room(self, *, is_metadata: bool) -> bool:
        """Let one page leave if there is no room; tell whether there is room then."""
        if len(self._kinds) < self._n_pages:
            return True
        other, n_other = not is_metadata, self._count(is_metadata=not is_metadata)
        if n_other == len(self._kinds) and n_other == self._least[other]:
            return False
        is_kept = n_other <= self._least[other]
        leaving = [n for n, kind in self._kinds.items() if not (is_kept and kind is other)]
        del self._kinds[(leaving or list(self._kinds)[-1:])[0]]
        return True


@dataclass(frozen=True, slots=True)
class Ros3Cache:
    """The block cache of HDF5's ROS3 driver, from HDF5 2.2 on.

    The first block is read at the first read. In a file with paged file space
    nothing else is kept, because the page buffer above does it.

    Parameters
    ----------
    block_nbytes : int
        Bytes of a block; 0 for no cache.
    cache_nbytes : int
        Bytes of all blocks; 0 for no cache.
    is_first_locked : bool
        Whether the first block stays.
    is_paged : bool
        Whether the file has paged file space.
    """

    block_nbytes: int = 16 * MIB
    cache_nbytes: int = 128 * MIB
    is_first_locked: bool = True
    is_paged: bool = False

    def __post_init__(self) -> None:
        check_nbytes("block_nbytes", self.block_nbytes, low=0)
        check_nbytes("cache_nbytes", self.cache_nbytes, low=0)

    def start(self, file_nbytes: int) -> Ask:
        """Return an empty cache of a file."""
        if not self.block_nbytes or not self.cache_nbytes:
            return lambda read: span(read.offset, read.stop)
        nbytes = min(self.block_nbytes, self.cache_nbytes)
        max_blocks = self.cache_nbytes // nbytes
        recent = Recent(max_blocks - self.is_first_locked)
        is_begun = False

        def ask(read: Read) -> Iterator[Read]:
            nonlocal is_begun
            if not is_begun:
                is_begun = True
                if not self.is_first_locked:
                    recent.add(0)
                recent.add(0)
                yield from span(0, min(nbytes, file_nbytes))
            if self.is_paged:
                if read.stop > nbytes:
                    yield from span(read.offset, read.stop)
                return
            for number in range(read.offset // nbytes, -(-read.stop // nbytes) * bool(read.nbytes)):
                start, stop = number * nbytes, min((number + 1) * nbytes, file_nbytes)
                if (number == 0 and self.is_first_locked) or recent.use(number):
                    continue
                if self.is_first_locked and max_blocks == 1:
                    start, stop = max(start, read.offset), min(stop, read.stop)
                recent.add(number)
                yield from span(start, stop)

        return ask


@dataclass(frozen=True, slots=True)
class Parts:
    """The S3 client below ROS3: no cache, but what is asked goes out in parts, one by one.

    Parts end at multiples of their length in the file.

    Parameters
    ----------
    part_nbytes : int
        Bytes of a part.
    """

    part_nbytes: int = 8 * MIB

    def __post_init__(self) -> None:
        check_nbytes("part_nbytes", self.part_nbytes)

    def start(self, file_nbytes: int) -> Ask:
        """Return a client without requests under way."""

        def ask(read: Read) -> Iterator[Read]:
            start = read.offset
            while start < read.stop:
                stop = min(read.stop, (start // self.part_nbytes + 1) * self.part_nbytes)
                yield from span(start, stop)
                start = stop

        return ask
