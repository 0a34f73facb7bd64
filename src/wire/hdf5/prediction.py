"""What each way to open and read an HDF5 file takes over a network: the one engine of such answers.

What the library asks for goes through the caches of a way and then over a simulated network. The
caches of fsspec are its own classes, driven with a fetcher that notes what it is asked for and
brings zeros. The page buffer of HDF5 is a model, which tests hold against the library.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Literal

from fsspec.caching import caches

from wire.hdf5.inspection import FileLayout, Read
from wire.models.client_costs import read_client_costs
from wire.models.transfer import Network, Step, replay

MIB = 2**20

ZARR_CONCURRENCY = 10
"""Requests that Zarr keeps in flight where nothing is set."""


def read_through(
    between: Sequence[FileCache | PageBuffer], reads: Sequence[Read], file_nbytes: int
) -> list[list[Read]]:
    """Find the requests that each read becomes behind caches, the first of them nearest to the library."""
    requests = [
        [read._replace(nbytes=max(0, min(read.stop, file_nbytes) - read.offset))] for read in reads
    ]
    for cache in between:
        answers = iter(cache.answer([*chain(*requests)], file_nbytes))
        requests = [[request for _ in part for request in next(answers)] for part in requests]
    return requests


def order_reads(parts: Sequence[Sequence[Read]], *, in_flight: int = 1) -> tuple[Step, ...]:
    """Order reads as a client does that keeps so many of a part in flight, and ends it before the next.

    A read in the background starts with the one that follows it, and nobody waits for it; it is
    there where one request is in flight alone.

    Examples
    --------
    Two in flight, of two parts: each waits until so many have ended.

    >>> [step.after for step in order_reads([[Read(0, 1)] * 3, [Read(0, 1)]], in_flight=2)]
    [0, 0, 1, 3]
    """
    steps, waited = list[Step](), list[int]()
    for part in parts:
        n_before = len(steps)
        for read in part:
            n_ended = max(n_before, len(steps) - in_flight + 1)
            after = n_ended if in_flight > 1 else tuple(waited[-1:])
            steps.append(Step(after, 0.0, read.nbytes, not read.is_ahead))
            if not read.is_ahead:
                waited.append(len(steps) - 1)
    return tuple(steps)


class _AtOnce(Executor):
    """Does in the thread that asks what a cache would do in the background, and says so."""

    is_ahead = False

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Do it now."""
        future: Future[Any] = Future()
        self.is_ahead = True
        future.set_result(function(*arguments, **named))
        self.is_ahead = False
        return future


_zeros = lru_cache(maxsize=4)(bytes)  # blocks of one length are one object


@dataclass(frozen=True, slots=True)
class FileCache:
    """A cache of fsspec, by its name there, with blocks of so many bytes.

    What is fetched in the background is waited for where the very next request would have been for it,
    as of a file that is read from one end to the other; else it has arrived by then.
    """

    name: str  # as in `cache_type`
    block_nbytes: int
    n_blocks: int = 32  # that a cache of blocks keeps, by default as many as fsspec's
    part_nbytes: int = 0  # of the requests in which a block is fetched, in turn; 0: one request

    def answer(self, reads: Sequence[Read], file_nbytes: int) -> list[list[Read]]:
        """Let the cache answer each read, and note what it fetches."""
        requests, background = list[Read](), _AtOnce()

        def fetch(start: int, stop: int) -> bytes:
            stop = min(stop, file_nbytes)
            part = self.part_nbytes or max(stop - start, 1)
            for offset in range(start, stop, part):
                nbytes = min(part, stop - offset)
                requests.append(Read(offset, nbytes, is_ahead=background.is_ahead))
            return _zeros(max(0, stop - start))

        kept = {"maxblocks": self.n_blocks} if self.name == "blockcache" else {}
        cache: Any = caches[self.name](self.block_nbytes, fetch, file_nbytes, **kept)
        if hasattr(cache, "_thread_executor"):
            cache._thread_executor.shutdown()
            cache._thread_executor = background
        answers, latest = (
            list[list[Read]](),
            list[Read](),
        )  # requests of the latest read that had some
        for read in reads:
            requests.clear()
            for start, stop in self._split(read):
                cache._fetch(start, stop)
            for k, request in enumerate(latest):
                if request.is_ahead and request.offset < read.stop and read.offset < request.stop:
                    latest[k] = request._replace(is_ahead=False)
            answers.append([request._replace(is_metadata=read.is_metadata) for request in requests])
            latest = answers[-1] or latest
        return answers

    def _split(self, read: Read) -> Iterator[tuple[int, int]]:
        """Split a read at the borders of blocks, which a cache of blocks takes one after the other.

        It would put the whole together else, which takes long for a page of hundreds of megabytes.
        """
        step = self.block_nbytes if self.name == "blockcache" else max(1, read.stop)
        for start in range(read.offset // step * step, read.stop, step):
            yield max(start, read.offset), min(start + step, read.stop)


@dataclass(frozen=True, slots=True)
class PageBuffer:
    """HDF5's page buffer, for files with paged file space.

    Whole pages are read and kept, and the least recently used one leaves. What is as large as a
    page goes past it.
    """

    page_nbytes: int  # bytes of a page, as the file has it
    buffer_nbytes: int  # bytes of the buffer, at least a page; rounded down to whole pages

    def answer(self, reads: Sequence[Read], file_nbytes: int) -> list[list[Read]]:
        """Answer each read from pages, as the library does."""
        page, n_most = self.page_nbytes, self.buffer_nbytes // self.page_nbytes
        pages, answers = OrderedDict[int, None](), list[list[Read]]()
        for n, read in enumerate(reads):
            if n < _N_FIRST_PAST or read.nbytes >= page:
                answers.append([read])
                continue
            answers.append([])
            first = read.offset // page  # metadata never lies across two
            last = first if read.is_metadata else max(read.stop - 1, read.offset) // page
            for number in range(first, last + 1) if read.nbytes else ():
                if number not in pages:
                    nbytes = min(page, file_nbytes - number * page)
                    answers[-1].append(read._replace(offset=number * page, nbytes=nbytes))
                pages[number] = None
                pages.move_to_end(number)
                if len(pages) > n_most:
                    pages.popitem(last=False)
        return answers


_N_FIRST_PAST = 3
"""Reads of a superblock, which the library makes before it has its page buffer."""


@dataclass(frozen=True, slots=True)
class ReadMethod:
    """A way to open a file and to read variables of it."""

    name: str  # as people call it
    # through a file object of fsspec, the whole file at once, or by references to its chunks
    kind: Literal["file object", "whole", "references"] = "file object"
    cache_type: str = "blockcache"  # cache of the file object, as fsspec names it
    block_nbytes: int = 8 * MIB  # bytes of its blocks, or that it reads ahead; of a range, if whole
    n_blocks: int = 32  # that a cache of blocks keeps
    part_nbytes: int = 0  # of the requests in which a block is fetched, in turn; 0: one request
    page_buffer_nbytes: int = 0  # HDF5's, at least a page, where file space is paged
    in_flight: int = 1  # requests that it keeps in flight
    program: Literal["h5py", "xarray"] = "h5py"  # what opens the file object

    def caches(self, layout: FileLayout) -> list[FileCache | PageBuffer]:
        """Give the caches between the library and the network, for a file."""
        blocks = FileCache(self.cache_type, self.block_nbytes, self.n_blocks, self.part_nbytes)
        caches: list[FileCache | PageBuffer] = [blocks]
        if (page := layout.page_nbytes) and self.page_buffer_nbytes:  # it holds a page at least
            caches.insert(0, PageBuffer(page, max(self.page_buffer_nbytes, page)))
        return caches


DEFAULT = ReadMethod("s3fs.open", cache_type="readahead", block_nbytes=50 * MIB)
"""What `s3fs.open(path)` returns since s3fs 2024.10: it reads 50 MiB ahead (s3fs #901)."""

DEFAULT_HTTPS = ReadMethod("fsspec.open", cache_type="bytes", block_nbytes=5 * MIB)
"""What `fsspec.open("https://…")` returns."""

XARRAY = ReadMethod("xarray by URL", block_nbytes=4 * MIB, program="xarray")
"""What h5netcdf's engine of xarray makes of a URL: 32 blocks of 4 MiB (xarray #11216)."""

XARRAY_DEFAULT = replace(DEFAULT, name="xarray over s3fs.open", program="xarray")
"""``xarray.open_dataset(s3fs.open(path), engine="h5netcdf")``."""

ROS3 = ReadMethod(
    "ROS3",
    block_nbytes=16 * MIB,
    n_blocks=8,
    part_nbytes=8 * MIB,
    page_buffer_nbytes=64 * MIB,
)
"""HDF5's own S3 driver, nothing set: eight blocks of 16 MiB, and of paged files 64 MiB of pages.

As `HDF5_ROS3_VFD_DEFAULT_BLOCK_SIZE` and `_BLOCK_CACHE_SIZE` of HDF5 2.2 say; its client, aws-c-s3,
fetches a block in parts of 8 MiB.
"""

BLOCKS = ReadMethod("blocks of 8 MiB", page_buffer_nbytes=16 * MIB)
"""Blocks and a page buffer, as published advice has them."""


def choose_earthaccess(file_nbytes: int) -> ReadMethod:
    """Give what `earthaccess.open` returns for a file of so many bytes, as of earthaccess 0.19.

    Blocks of 4, 8 or 16 MiB, of which the next is fetched in the background:
    `cache_type="background"` in `earthaccess/store.py`, where the documentation of `open` has
    `blockcache`.
    """
    large = 8 if file_nbytes < 1024 * MIB else 16
    n_mib = 4 if file_nbytes < 100 * MIB else large
    return ReadMethod("earthaccess.open", cache_type="background", block_nbytes=n_mib * MIB)


def list_read_methods(layout: FileLayout, *, is_web: bool = False) -> list[ReadMethod]:
    """List the ways to read a file as it is, at a web server or in a bucket, the default first."""
    return [
        DEFAULT_HTTPS if is_web else DEFAULT,
        *([] if is_web else [XARRAY_DEFAULT]),
        XARRAY,
        choose_earthaccess(layout.file_nbytes),
        BLOCKS,
        ROS3,
        ReadMethod("whole", "whole", in_flight=10),
        ReadMethod("references", "references", in_flight=ZARR_CONCURRENCY),
        ReadMethod("references, 64 in flight", "references", in_flight=64),
    ]


REQUEST_S, START_S = 0.004, 0.05
"""What client and server take for a request next to the network, and a new client to start.

With these the seconds of the committed records are met within 15 %, as a test holds.
"""

# What the library takes on one processor next to decoding, whatever the network.
_OBJECT_S = 1e-4  # to list an object or an attribute
_COPY_S = 2.5e-10  # for a byte of a file that is put together in memory


@dataclass(frozen=True, slots=True)
class PredictedRead:
    """What to expect of opening a file, with the listing of its tree, and of reading variables."""

    method: ReadMethod
    open_s: float
    read_s: float
    n_open_requests: int  # of those to open
    n_requests: int  # of both, and their bytes
    nbytes: int

    @property
    def seconds(self) -> float:
        """Time of both."""
        return self.open_s + self.read_s


def predict_read(
    method: ReadMethod, layout: FileLayout, network: Network, *, dilation: float = 1.0
) -> PredictedRead:
    """Predict one way; `dilation` is that of the network, so processors count for as much less."""
    n, step, parts = layout.file_nbytes, method.block_nbytes, list[list[Read]]()
    processor_s = START_S + _OBJECT_S * layout.n_listed
    # the file's length is asked for before anything of it is, but not that of references
    opened = [[Read(0, 0)], list[Read]()]
    if method.kind == "whole":
        opened[1] += [Read(start, min(step, n - start)) for start in range(0, n, step)]
        processor_s += _COPY_S * n
    elif method.kind == "references":
        opened, parts, processor_s = [[Read(0, layout.references_nbytes)]], layout.chunks, START_S
    else:
        answered = read_through(method.caches(layout), [*layout.opened, *chain(*layout.read)], n)
        opened[1] += chain(*answered[: len(layout.opened)])
        parts = [[*chain(*answered[len(layout.opened) :])]]
    request_s, decode_s, chunk_s = REQUEST_S / dilation, layout.decode_s / dilation, 0.0
    if n_chunks := sum(map(len, parts)) if method.kind == "references" else 0:
        # zarr decodes chunks while others come, one at a time
        client_s = read_client_costs()["zarr-obstore"].chunk_ms / 1000
        chunk_s, decode_s = client_s / dilation + decode_s / n_chunks, 0.0
    open_s = _simulate_s(opened, method.in_flight, network, request_s)
    read_s = _simulate_s(parts, method.in_flight, network, request_s, chunk_s)
    requests = [*chain(*opened, *parts)]
    return PredictedRead(
        method,
        open_s + processor_s / dilation,
        read_s + decode_s,
        sum(map(len, opened)),
        len(requests),
        sum(request.nbytes for request in requests),
    )


def predict_sessions(
    method: ReadMethod, layouts: Sequence[FileLayout], network: Network, *, dilation: float = 1.0
) -> PredictedRead:
    """Predict one way that opens a file more than once, such as xarray a group at a time.

    The client starts once; each session has a file object, so a cache, of its own.
    """
    sessions = [predict_read(method, layout, network, dilation=dilation) for layout in layouts]
    n_later = len(sessions) - 1
    return PredictedRead(
        method,
        sum(session.open_s for session in sessions) - n_later * START_S / dilation,
        sum(session.read_s for session in sessions),
        sum(session.n_open_requests for session in sessions),
        sum(session.n_requests for session in sessions),
        sum(session.nbytes for session in sessions),
    )


MAX_SIMULATED = 10_000
"""Requests that are simulated; where there are more, the time goes on as they went."""


def _simulate_s(
    parts: Sequence[Sequence[Read]],
    in_flight: int,
    network: Network,
    request_s: float,
    chunk_s: float = 0.0,
) -> float:
    """Simulate requests, so many in flight: the median of their times; more draws for few of them."""
    steps = order_reads(parts, in_flight=in_flight)
    if not steps:
        return 0.0
    simulated = steps[:MAX_SIMULATED]
    n_draws = max(3, min(51, 5_000 // len(simulated)))
    found_s = replay(simulated, network, request_s=request_s, cpu_s=chunk_s, n_draws=n_draws)
    return found_s * len(steps) / len(simulated)
