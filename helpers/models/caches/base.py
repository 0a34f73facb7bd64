"""What reads are, and what a simulated cache is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from helpers.errors import UserError


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes that one layer asks of the next.

    Parameters
    ----------
    offset, nbytes : int
        Where they begin in the file, and how many.
    think_s : float
        Seconds between the answer to the read before and this read.
    is_metadata : bool
        Whether HDF5 reads metadata; raw data otherwise.
    is_ahead : bool
        Whether it is read in the background, so that nobody waits for it.
    """

    offset: int
    nbytes: int
    think_s: float = 0.0
    is_metadata: bool = True
    is_ahead: bool = False

    def __post_init__(self) -> None:
        if self.offset < 0 or self.nbytes < 0 or not 0 <= self.think_s < math.inf:
            raise UserError(f"read: {self}; allowed: offset, nbytes and think_s of at least 0")

    @property
    def stop(self) -> int:
        """Offset of the first byte after it."""
        return self.offset + self.nbytes


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads one after the other, and the time after the last.

    Parameters
    ----------
    reads : tuple of Read
        In the order in which they are asked.
    rest_s : float
        Seconds between the last answer and the end.
    """

    reads: tuple[Read, ...]
    rest_s: float = 0.0

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

    Parameters
    ----------
    cache : Cache
        Settings of the cache; it is empty at first.
    reading : Reading
        What is asked of it.
    file_nbytes : int
        Length of the file; what lies beyond is not asked for.

    Returns
    -------
    Reading
        What the cache asks for.

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
    """Ask for bytes, if there are any.

    Parameters
    ----------
    start, stop : int
        Offsets of the first byte, and of the first one after.
    is_ahead : bool
        Whether nobody waits for them.

    Yields
    ------
    Read
        One, or none.
    """
    if start < stop:
        yield Read(start, stop - start, is_ahead=is_ahead)


def check_nbytes(name: str, value: int, *, low: int = 1) -> None:
    """Refuse a number of bytes, or of blocks, that is too small.

    Parameters
    ----------
    name : str
        Name of the setting, for the message.
    value : int
        Its value.
    low : int
        Smallest value allowed.

    Raises
    ------
    UserError
        If it is below `low`.
    """
    if isinstance(value, bool) or value != int(value) or value < low:
        raise UserError(f"{name}: {value!r}; allowed: a whole number of at least {low}")


class Recent:
    """Blocks by number, the least recently used one leaves when a new one finds no room.

    Parameters
    ----------
    max_blocks : int
        Blocks that find room.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks, self._numbers = max_blocks, dict[int, None]()

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
        self._numbers[number] = None
        if len(self._numbers) > self._max_blocks:
            del self._numbers[next(iter(self._numbers))]
