"""Caches between the HDF5 library and the network: which requests a sequence of reads becomes.

Those of fsspec are its own classes, driven with a fetcher that notes what it is asked for and
brings zeros. The page buffer of HDF5 is a model, which tests hold against the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

from fsspec.caching import caches

from helpers.models.transfer import Step

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes that one layer asks of the next."""

    offset: int  # where they begin in the file, and how many
    nbytes: int
    is_metadata: bool = True  # whether HDF5 reads metadata; raw data otherwise
    is_ahead: bool = False  # whether it is read in the background, so that nobody waits for it

    @property
    def stop(self) -> int:
        """Offset of the first byte after it."""
        return self.offset + self.nbytes


class Cache(Protocol):
    """What stands between the library and the network."""

    def answer(self, reads: Sequence[Read], file_nbytes: int) -> list[list[Read]]:
        """Return, of an empty cache, the requests that each read of a file leads to."""


def read_through(
    between: Sequence[Cache], reads: Sequence[Read], file_nbytes: int, *, n_first: int = 0
) -> tuple[list[Read], list[Read]]:
    """Find the requests that reads become behind caches, the first of them nearest to the library.

    Returns
    -------
    tuple of list of Read
        Requests of the first `n_first` reads, and of the others, which find the caches as the
        first left them.

    Examples
    --------
    Three reads in two blocks of 100 bytes:

    >>> reads = [Read(0, 10), Read(90, 10), Read(100, 10)]
    >>> first, others = read_through([FileCache("blockcache", 100)], reads, 150, n_first=1)
    >>> [one.nbytes for one in first], [one.nbytes for one in others]
    ([100], [50])
    """
    asked = [
        [replace(one, nbytes=max(0, min(one.stop, file_nbytes) - one.offset))] for one in reads
    ]
    for cache in between:
        found = iter(cache.answer([one for part in asked for one in part], file_nbytes))
        asked = [[request for _ in part for request in next(found)] for part in asked]
    parts = asked[:n_first], asked[n_first:]
    first, others = ([request for part in side for request in part] for side in parts)
    return first, others


def order_reads(reads: Sequence[Read], *, n_connections: int = 1) -> tuple[Step, ...]:
    """Order reads as a client does that keeps so many requests in flight.

    A read in the background starts with the one that follows it, and nobody waits for it.

    Examples
    --------
    >>> [step.after for step in order_reads([Read(0, 1), Read(1, 1), Read(2, 1)])]
    [(), (0,), (1,)]
    """
    steps, waited = list[Step](), list[int]()
    for number, read in enumerate(reads):
        after = tuple(waited[-n_connections:][:1]) if len(waited) >= n_connections else ()
        steps.append(Step(after, 0.0, read.nbytes, not read.is_ahead))
        if not read.is_ahead:
            waited.append(number)
    return tuple(steps)


class _AtOnce(Executor):
    """Does in the thread that asks what a cache would do in the background, and says so."""

    is_ahead = False

    def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Do it now."""
        future: Future[Any] = Future()
        self.is_ahead = True
        future.set_result(function(*given, **named))
        self.is_ahead = False
        return future


_zeros = lru_cache(maxsize=4)(bytes)  # blocks of one length are one object


@dataclass(frozen=True, slots=True)
class FileCache:
    """A cache of fsspec, by its name there, with blocks of so many bytes.

    What is fetched in the background has arrived before the next read.
    """

    name: str  # as in `cache_type`
    block_nbytes: int = 8 * MIB

    def answer(self, reads: Sequence[Read], file_nbytes: int) -> list[list[Read]]:
        """Let the cache answer each read, and note what it fetches."""
        asked, background = list[Read](), _AtOnce()

        def fetch(start: int, stop: int) -> bytes:
            stop = min(stop, file_nbytes)
            if start < stop:
                asked.append(Read(start, stop - start, is_ahead=background.is_ahead))
            return _zeros(max(0, stop - start))

        cache: Any = caches[self.name](self.block_nbytes, fetch, file_nbytes)
        if hasattr(cache, "_thread_executor"):
            cache._thread_executor.shutdown()
            cache._thread_executor = background
        answers = []
        for read in reads:
            asked.clear()
            if read.nbytes:
                cache._fetch(read.offset, read.stop)
            answers.append([replace(one, is_metadata=read.is_metadata) for one in asked])
        return answers


@dataclass(frozen=True, slots=True)
class PageBuffer:
    """HDF5's page buffer, for files with paged file space.

    Whole pages are read and kept, and the least recently used one leaves. What is as large as a
    page goes past it.
    """

    page_nbytes: int  # bytes of a page, as the file has it
    buffer_nbytes: int  # bytes of the buffer, at least a page; rounded down to whole pages
    # reads at the beginning that go past it: the library makes its page buffer only after it has
    # read the superblock
    n_first_past: int = 0

    def answer(self, reads: Sequence[Read], file_nbytes: int) -> list[list[Read]]:
        """Answer each read from pages, as the library does."""
        pages = Recent(self.buffer_nbytes // self.page_nbytes)
        n_past, answers = 0, []
        for read in reads:
            if n_past < self.n_first_past or read.nbytes >= self.page_nbytes:
                n_past += 1
                answers.append([read])
                continue
            missing = [number for number in self.touched(read) if not pages.use(number)]
            answers.append([self.page(n, read, file_nbytes) for n in missing])
        return answers

    def touched(self, read: Read) -> range:
        """Return the pages that a read looks up; metadata never lies across two."""
        if not read.nbytes:
            return range(0)
        first = read.offset // self.page_nbytes
        last = first if read.is_metadata else (read.stop - 1) // self.page_nbytes
        return range(first, last + 1)

    def page(self, number: int, read: Read, file_nbytes: int) -> Read:
        """Ask for a page, as far as the file has it."""
        start = number * self.page_nbytes
        return replace(read, offset=start, nbytes=min(self.page_nbytes, file_nbytes - start))


class Recent:
    """Numbers of blocks that are kept; the least recently used one leaves where there is no room."""

    def __init__(self, n_most: int) -> None:
        self._n_most, self._numbers = n_most, dict[int, None]()

    def use(self, number: int) -> bool:
        """Put a block in front, and tell whether it was there."""
        was_there = number in self._numbers
        self._numbers.pop(number, None)
        self._numbers[number] = None
        if len(self._numbers) > self._n_most:
            del self._numbers[next(iter(self._numbers))]
        return was_there


def iterate_parts(nbytes: int, part_nbytes: int) -> Iterator[Read]:
    """Give the ranges in which a file is fetched whole."""
    for start in range(0, nbytes, part_nbytes):
        yield Read(start, min(part_nbytes, nbytes - start))
