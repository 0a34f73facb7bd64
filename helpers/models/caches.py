"""Caches between a library and the network: which requests a sequence of reads becomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from helpers.errors import UserError
from helpers.models.transfer import check_count


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes that one layer asks of the next."""

    offset: int  # where they begin in the file, and how many
    nbytes: int
    think_s: float = 0.0  # seconds between the answer to the read before and this read
    is_metadata: bool = True  # whether HDF5 reads metadata; raw data otherwise
    is_ahead: bool = False  # whether it is read in the background, so that nobody waits for it

    def __post_init__(self) -> None:
        if self.offset < 0 or self.nbytes < 0 or not 0 <= self.think_s < math.inf:
            raise UserError(f"read: {self}; allowed: offset, nbytes and think_s of at least 0")

    @property
    def stop(self) -> int:
        """Offset of the first byte after it."""
        return self.offset + self.nbytes


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads one after the other, and the time after the last."""

    reads: tuple[Read, ...]  # in the order in which they are asked
    rest_s: float = 0.0  # seconds between the last answer and the end

    @property
    def n_requests(self) -> int:
        """Number of reads."""
        return len(self.reads)

    @property
    def nbytes(self) -> int:
        """Bytes of all reads."""
        return sum(read.nbytes for read in self.reads)


Ask = Callable[[Read], Iterable[Read]]
"""What a cache at work does: from a read to what it asks for, think times apart."""


class Cache(Protocol):
    """What a simulated cache is."""

    def start(self, file_nbytes: int) -> Ask:
        """Return an empty cache of a file."""


def read_through(cache: Cache, reading: Reading, *, file_nbytes: int) -> Reading:
    """Simulate which requests a sequence of reads becomes behind a cache.

    Think times are kept: those of reads that the cache answers are added to
    the next request.

    Examples
    --------
    Three reads in two blocks of 100 bytes:

    >>> from helpers.models.caches import BlockCache
    >>> reading = Reading((Read(0, 10), Read(90, 10), Read(100, 10)))
    >>> behind = read_through(BlockCache(100), reading, file_nbytes=150)
    >>> behind.n_requests, behind.nbytes
    (2, 150)
    """
    ask, asked = cache.start(file_nbytes), list[Read]()
    think_s = 0.0
    for read in reading.reads:
        think_s += read.think_s
        for request in ask(replace(read, nbytes=max(0, min(read.stop, file_nbytes) - read.offset))):
            asked.append(replace(request, think_s=think_s, is_metadata=read.is_metadata))
            think_s = 0.0
    return Reading(tuple(asked), think_s + reading.rest_s)


def span(start: int, stop: int, *, is_ahead: bool = False) -> Iterator[Read]:
    """Ask for bytes, if there are any."""
    if start < stop:
        yield Read(start, stop - start, is_ahead=is_ahead)


class Recent:
    """Blocks by number, the least recently used one leaves when a new one finds no room."""

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks = max_blocks
        self._numbers = dict[int, bool]()  # the least recently used first; whether it is metadata

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def use(self, number: int) -> bool:
        """Move a block to the front, and tell whether it was there."""
        if number not in self._numbers:
            return False
        self._numbers[number] = self._numbers.pop(number)
        return True

    def add(self, number: int) -> None:
        """Put a block in front; one that is there keeps its place, as in fsspec."""
        self._numbers[number] = False
        if len(self._numbers) > self._max_blocks:
            del self._numbers[next(iter(self._numbers))]


@dataclass(frozen=True, slots=True)
class NoCache:
    """The ``none`` of fsspec: each read is a request."""

    def start(self, file_nbytes: int) -> Ask:
        """Return an empty cache of a file."""
        return lambda read: span(read.offset, read.stop)


@dataclass(frozen=True, slots=True)
class ReadAheadCache:
    """The ``readahead`` of fsspec: one buffer, that of the last request and `block_nbytes` more."""

    block_nbytes: int  # bytes read beyond what is asked

    def __post_init__(self) -> None:
        check_count("block_nbytes", self.block_nbytes, low=0)

    def start(self, file_nbytes: int) -> Ask:
        """Return an empty cache of a file."""
        held = range(0)

        def ask(read: Read) -> Iterator[Read]:
            nonlocal held
            start = read.offset
            if not read.nbytes or (held.start <= start and read.stop <= held.stop):
                return
            if held.start <= start < held.stop:
                start = held.stop
            held = range(start, min(file_nbytes, read.stop + self.block_nbytes))
            yield from span(held.start, held.stop)

        return ask


@dataclass(frozen=True, slots=True)
class FirstCache:
    """The ``first`` of fsspec: the first block is kept, the rest is read as asked."""

    block_nbytes: int  # bytes of the block

    def __post_init__(self) -> None:
        check_count("block_nbytes", self.block_nbytes)

    def start(self, file_nbytes: int) -> Ask:
        """Return an empty cache of a file."""
        first_nbytes, is_held = min(self.block_nbytes, file_nbytes), False

        def ask(read: Read) -> Iterator[Read]:
            nonlocal is_held
            start = read.offset
            if start < first_nbytes and not is_held:
                is_held = True
                yield from span(0, max(read.stop, first_nbytes))
            elif start < first_nbytes:
                yield from span(first_nbytes, read.stop)
            else:
                yield from span(start, read.stop)

        return ask


@dataclass(frozen=True, slots=True)
class BlockCache:
    """The ``blockcache`` of fsspec: whole blocks, the least recently used one leaves."""

    block_nbytes: int  # bytes of a block
    max_blocks: int = 32  # blocks that are kept

    def __post_init__(self) -> None:
        check_count("block_nbytes", self.block_nbytes)
        check_count("max_blocks", self.max_blocks)

    def start(self, file_nbytes: int) -> Ask:
        """Return an empty cache of a file."""
        recent = Recent(self.max_blocks)

        def ask(read: Read) -> Iterator[Read]:
            if not read.nbytes:
                return
            first, last = read.offset // self.block_nbytes, (read.stop - 1) // self.block_nbytes
            yield from self.look_up(range(first, last + 1), recent, file_nbytes)

        return ask

    def look_up(self, numbers: range, recent: Recent, file_nbytes: int) -> Iterator[Read]:
        """Ask for the blocks that are not kept, and keep them."""
        for number in numbers:
            if not recent.use(number):
                recent.add(number)
                yield from self.block(number, file_nbytes)

    def block(self, number: int, file_nbytes: int, *, is_ahead: bool = False) -> Iterator[Read]:
        """Ask for a block, as far as the file has it."""
        start = number * self.block_nbytes
        return span(start, min(start + self.block_nbytes, file_nbytes), is_ahead=is_ahead)


@dataclass(frozen=True, slots=True)
class BackgroundCache(BlockCache):
    """The ``background`` of fsspec: as `BlockCache`, and the next block is fetched meanwhile.

    How many requests it makes depends on time: here each block fetched in the
    background has arrived before the next read. Its parameters are those of
    `BlockCache`.
    """

    def start(self, file_nbytes: int) -> Ask:
        """Return an empty cache of a file."""
        recent = Recent(self.max_blocks)
        n_blocks = math.ceil(file_nbytes / self.block_nbytes)
        ahead: int | None = None

        def ask(read: Read) -> Iterator[Read]:
            nonlocal ahead
            if not read.nbytes:
                return
            if ahead is not None:
                recent.add(ahead)
            # a read that ends at the end of a block counts as touching the next
            first, last = read.offset // self.block_nbytes, read.stop // self.block_nbytes
            yield from self.look_up(range(first, last + 1), recent, file_nbytes)
            ahead = last + 1 if last + 1 <= n_blocks and last + 1 not in recent else None
            if ahead is not None:
                yield from self.block(ahead, file_nbytes, is_ahead=True)
            # to copy from them
            yield from self.look_up(range(first, last + 1), recent, file_nbytes)

        return ask


MIB = 2**20


@dataclass(frozen=True, slots=True)
class PageBuffer:
    """HDF5's page buffer, for files with paged file space.

    Whole pages are read and kept, and the least recently used one leaves, but
    for a share of the buffer that metadata or raw data keeps. What is as large
    as a page goes past it.
    """

    page_nbytes: int  # bytes of a page, as the file has it
    buffer_nbytes: int  # bytes of the buffer, at least a page; rounded down to whole pages
    # shares of the buffer that are not taken from metadata and from raw data by the other, from 0
    # to 100, together at most 100
    min_metadata_percent: int = 0
    min_raw_percent: int = 0
    # reads at the beginning that go past it: the library makes its page buffer only after it has
    # read the superblock
    n_first_past: int = 0

    def __post_init__(self) -> None:
        check_count("page_nbytes", self.page_nbytes)
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


class _Pages(Recent):
    """Pages that are kept, and who leaves: it may be told by what a page holds."""

    def __init__(self, settings: PageBuffer) -> None:
        super().__init__(settings.buffer_nbytes // settings.page_nbytes)
        nbytes = self._max_blocks * settings.page_nbytes
        self._least = {
            True: nbytes * settings.min_metadata_percent // (settings.page_nbytes * 100),
            False: nbytes * settings.min_raw_percent // (settings.page_nbytes * 100),
        }

    def add(self, number: int, *, is_metadata: bool = False) -> None:
        """Put a page in front, for which there is room."""
        self._numbers[number] = is_metadata

    def make_room(self, *, is_metadata: bool) -> bool:
        """Let one page leave if there is no room; tell whether there is room then."""
        if len(self._numbers) < self._max_blocks:
            return True
        other = not is_metadata
        n_other = [*self._numbers.values()].count(other)
        if n_other == len(self._numbers) and n_other == self._least[other]:
            return False
        is_kept = n_other <= self._least[other]
        leaving = [n for n, kind in self._numbers.items() if not (is_kept and kind is other)]
        del self._numbers[(leaving or list(self._numbers)[-1:])[0]]
        return True


@dataclass(frozen=True, slots=True)
class Ros3Cache:
    """The block cache of HDF5's ROS3 driver, from HDF5 2.2 on.

    The first block is read at the first read. In a file with paged file space
    nothing else is kept, because the page buffer above does it.
    """

    block_nbytes: int = 16 * MIB  # bytes of a block; 0 for no cache
    cache_nbytes: int = 128 * MIB  # bytes of all blocks; 0 for no cache
    is_first_locked: bool = True  # whether the first block stays
    is_paged: bool = False  # whether the file has paged file space

    def __post_init__(self) -> None:
        check_count("block_nbytes", self.block_nbytes, low=0)
        check_count("cache_nbytes", self.cache_nbytes, low=0)

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
    """

    part_nbytes: int = 8 * MIB  # bytes of a part

    def __post_init__(self) -> None:
        check_count("part_nbytes", self.part_nbytes)

    def start(self, file_nbytes: int) -> Ask:
        """Return a client without requests under way."""

        def ask(read: Read) -> Iterator[Read]:
            start = read.offset
            while start < read.stop:
                stop = min(read.stop, (start // self.part_nbytes + 1) * self.part_nbytes)
                yield from span(start, stop)
                start = stop

        return ask
