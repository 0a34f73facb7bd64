"""What opening and reading an HDF5 file takes: recorded reads through caches, over a network.

The caches of fsspec are its own classes, driven with a fetcher that notes what it is asked for and
brings zeros. The page buffer of HDF5 is a model, which tests hold against the library.
"""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from fsspec.caching import caches

from advisors.hdf5.copying import MIB, Repack, copy_file
from advisors.hdf5.files import open_hdf5
from advisors.hdf5.inspection import FileReport, Read, Recording, Variable, record_reads
from helpers.models.transfer import ClientCosts, Network, Step, replay


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


N_CONNECTIONS = 10
"""Requests that a download in parallel, or a reader of references, keeps in flight."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How h5py reads through a file object of fsspec."""

    cache_type: str = "blockcache"  # cache of the file object, as fsspec names it
    block_nbytes: int = 8 * MIB  # bytes of its blocks, or that it reads ahead
    page_buffer_nbytes: int = 16 * MIB  # HDF5's, at least a page, where file space is paged

    def file_options(self) -> dict[str, Any]:
        """Give the options with which fsspec opens the file so."""
        return {"cache_type": self.cache_type, "block_size": self.block_nbytes}

    def choose_page_buffer(self, page_nbytes: int) -> int:
        """Choose the page buffer for pages of a file: it holds one at least."""
        return (
            max(self.page_buffer_nbytes, page_nbytes)
            if self.page_buffer_nbytes * page_nbytes
            else 0
        )

    def caches(self, recording: Recording) -> list[Cache]:
        """Give the caches between the library and the network, for a recorded file."""
        page_nbytes, n_first = recording.page_nbytes, recording.n_first_past
        found: list[Cache] = [FileCache(self.cache_type, self.block_nbytes)]
        if buffer_nbytes := self.choose_page_buffer(page_nbytes):
            found.insert(0, PageBuffer(page_nbytes, buffer_nbytes, n_first_past=n_first))
        return found


TODAY = Settings("readahead", 50 * MIB, 0)
"""What `s3fs.open(path)` returns, with which xarray's engine reads: 50 MiB ahead, no page buffer."""

TODAY_HTTPS = Settings("bytes", 5 * MIB, 0)
"""What `fsspec.open("https://…")` returns."""

TUNED = Settings()
"""Blocks of 8 MiB and a page buffer of 16 MiB, as published advice has them."""

# What the library takes on one processor, whatever the network; nothing of it is measured here.
_OBJECT_S = 1e-4  # to list an object or an attribute
_NBYTE_S = 5e-10  # for a byte of values, next to its filters
_IN_HEAP_S = 1e-6  # for a value of variable length
# Values that a filter decodes in a second, in MB. deflate, shuffle, fletcher32, szip, nbit,
# scaleoffset; LZF, Blosc, LZ4, bitshuffle, Zstd, Blosc2
_MB_PER_S = {1: 250.0, 2: 1500.0, 3: 1500.0, 4: 150.0, 5: 400.0, 6: 300.0, 32000: 400.0,
             32001: 1000.0, 32004: 1500.0, 32008: 1500.0, 32015: 500.0, 32026: 1000.0}  # fmt: skip
_OTHER_MB_PER_S = 200.0


def decode_s(variable: Variable) -> float:
    """Estimate the time of decoding a variable.

    Examples
    --------
    >>> one = Variable("x", (10**6,), "f4", (10**5,), 10, 10**6, 4 * 10**6, (), (), False, (),
    ...     filter_numbers=(2, 1))
    >>> round(1e3 * decode_s(one), 1)
    20.7
    """
    nbytes = min(variable.nbytes, variable.n_chunks * variable.chunk_nbytes)
    rates = (_MB_PER_S.get(number, _OTHER_MB_PER_S) for number in variable.filter_numbers)
    in_heaps = math.prod(variable.shape) if variable.is_variable_length else 0
    return in_heaps * _IN_HEAP_S + nbytes * (_NBYTE_S + sum(1e-6 / rate for rate in rates))


@dataclass(frozen=True, slots=True)
class ReadPrediction:
    """What to expect of opening a file, with the listing of its tree, and of reading variables."""

    open_s: float
    read_s: float
    n_open_requests: int  # of those to open
    n_requests: int  # of both, and their bytes
    nbytes: int

    @property
    def seconds(self) -> float:
        """Time of both."""
        return self.open_s + self.read_s


@dataclass(frozen=True, slots=True)
class Forecaster:
    """What is the same for all ways to read variables of a file."""

    report: FileReport
    variables: Sequence[str]
    network: Network
    costs: ClientCosts  # what the client takes next to the network

    def read(self, recording: Recording, settings: Settings) -> ReadPrediction:
        """Predict opening and reading through a file object."""
        reads, n_first = (*recording.opened, *recording.read), len(recording.opened)
        between = settings.caches(recording)
        opened, read = read_through(between, reads, recording.file_nbytes, n_first=n_first)
        return self._replay([Read(0, 0), *opened], read, recording.n_listed)

    def download(self, recording: Recording) -> ReadPrediction:
        """Predict fetching the file whole, in parts at once, and reading it from memory."""
        parts = iterate_parts(self.report.file_nbytes, TUNED.block_nbytes)
        fetched = [Read(0, 0), *parts]
        return self._replay(fetched, [], recording.n_listed, n_connections=N_CONNECTIONS)

    def references(self, recording: Recording, nbytes: int) -> ReadPrediction:
        """Predict a reader that has the places of all chunks in one object of so many bytes."""
        chunks = [read for read in recording.read if not read.is_metadata]
        return self._replay([Read(0, nbytes)], chunks, 0, n_connections=N_CONNECTIONS)

    def _replay(
        self, opened: Sequence[Read], read: Sequence[Read], n_listed: int, n_connections: int = 1
    ) -> ReadPrediction:
        parts = [order_reads(part, n_connections=n_connections) for part in (opened, read)]
        # more simulations where few requests leave the median to chance
        n_draws = [max(9, min(201, 2_000 // max(1, len(steps)))) for steps in parts]
        opening, reading = (
            replay(steps, self.network, request_s=self.costs.request_s, n_draws=n)
            for steps, n in zip(parts, n_draws, strict=True)
        )
        decoding_s = sum(decode_s(self.report.variable(name)) for name in self.variables)
        return ReadPrediction(
            opening.seconds + self.costs.start_s + _OBJECT_S * n_listed,
            reading.seconds + decoding_s,
            opening.n_requests,
            opening.n_requests + reading.n_requests,
            opening.nbytes + reading.nbytes,
        )


_HOLE_NBYTES = 4096


class SparseFile(io.FileIO):
    """A new file that leaves holes where zeros are written at its end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self._nbytes = 0

    def write(self, data: Any) -> int:
        """Write bytes, or a hole."""
        values, at = np.frombuffer(data, np.uint8), self.tell()
        if values.size < _HOLE_NBYTES or at < self._nbytes or values.any():
            super().write(data)
        else:
            super().truncate(at + values.size)
            self.seek(at + values.size)
        self._nbytes = max(self._nbytes, at + values.size)
        return int(values.size)

    def truncate(self, nbytes: int | None = None) -> int:
        """Cut or lengthen the file."""
        self._nbytes = super().truncate(nbytes)
        return self._nbytes


def record_repacked(
    file: BinaryIO,
    name: str,
    repack: Repack,
    variables: Sequence[str],
    *,
    groups: Collection[str] | None = None,
) -> Recording:
    """Note what the library will ask for to open a repacked file, list it, and read variables.

    It is asked of a model of the repacked file: its layout by the library, without its values.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.h5"
        with open_hdf5(file, name) as source, SparseFile(path) as target:
            copy_file(source, target, repack, is_model=True)
        with path.open("rb") as model:
            return record_reads(model, name, variables, groups=groups)
