"""The caches of fsspec's file objects, as `fsspec.caching` has them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from helpers.models.caches.base import Ask, Read, Recent, check_nbytes, span


@dataclass(frozen=True, slots=True)
class NoCache:
    """The ``none`` of fsspec: each read is a request."""

    def start(self, file_nbytes: int) -> Ask:
        """Return an empty cache of a file."""
        return lambda read: span(read.offset, read.stop)


@dataclass(frozen=True, slots=True)
class ReadAheadCache:
    """The ``readahead`` of fsspec: one buffer, that of the last request and `block_nbytes` more.

    Parameters
    ----------
    block_nbytes : int
        Bytes read beyond what is asked.
    """

    block_nbytes: int

    def __post_init__(self) -> None:
        check_nbytes("block_nbytes", self.block_nbytes, low=0)

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
    """The ``first`` of fsspec: the first block is kept, the rest is read as asked.

    Parameters
    ----------
    block_nbytes : int
        Bytes of the block.
    """

    block_nbytes: int

    def __post_init__(self) -> None:
        check_nbytes("block_nbytes", self.block_nbytes)

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
    """The ``blockcache`` of fsspec: whole blocks, the least recently used one leaves.

    Parameters
    ----------
    block_nbytes : int
        Bytes of a block.
    max_blocks : int
        Blocks that are kept.
    """

    block_nbytes: int
    max_blocks: int = 32

    def __post_init__(self) -> None:
        check_nbytes("block_nbytes", self.block_nbytes)
        check_nbytes("max_blocks", self.max_blocks)

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
            yield from self.look_up(
                range(first, last + 1), recent, file_nbytes
            )  # to copy from them

        return ask
