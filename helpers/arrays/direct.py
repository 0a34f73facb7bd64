"""A read path of its own: some threads fetch chunks, others decode them into their place.

zarr fetches a chunk and decodes it in one step of one event loop. Here as many threads as are
asked for keep a request in flight each and receive into a few buffers that are used again. As
many threads as there are processors decode what has arrived straight into the array that is read,
so that neither waits for the other. It reads what most arrays are, chunks of plain Blosc; whatever
else is refused, for zarr reads it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
import xxhash
import zarr
from numcodecs import Blosc
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, BytesCodec
from zarr.storage import ObjectStore

from helpers.arrays.receiving import Receiver
from helpers.benchmark.provenance import n_cores
from helpers.errors import UserError

_SPARE = 4  # chunks that may wait for a decoder, beyond one for each connection


@dataclass(frozen=True, slots=True)
class Place:
    """A chunk that is wanted: its key, and which part of it goes where."""

    key: str
    within: tuple[slice, ...]  # the part of the chunk, in elements
    target: tuple[slice, ...]  # where that part goes in the array that is read
    is_whole: bool


@dataclass(frozen=True, slots=True)
class DirectArray:
    """A Zarr array in an object store, read as NumPy reads one: ``array[10:20, :, 5]``.

    Dask and xarray take it as it is, as in ``dask.array.from_array(array, array.chunks)``.
    """

    receiver: Receiver  # for the folder that holds the array
    path: str  # of the array in that folder
    metadata: Any  # as zarr has parsed it
    n_requests: int  # in flight at once
    n_decoders: int  # threads that decode

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents in elements."""
        return tuple(self.metadata.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Extents of a chunk in elements."""
        return tuple(self.metadata.chunk_grid.chunk_shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        found: np.dtype[Any] = self.metadata.data_type.to_native_dtype()
        return found

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Read a part, chosen by slices without a step and by integers."""
        parts = _complete(key, self.ndim)
        bounds = [_bounds(part, n) for part, n in zip(parts, self.shape, strict=True)]
        found = self.read(bounds)
        return found[
            tuple(0 if isinstance(part, int | np.integer) else slice(None) for part in parts)
        ]

    def read(self, bounds: list[tuple[int, int]], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Read the elements between bounds, into `out` if it is given.

        Parameters
        ----------
        bounds : list of pair of int
            First element and the one after the last, for each dimension.
        out : array
            Where to put them, of that shape and of the array's type. An array that is read
            into again and again spares the system the first touch of its memory.

        Returns
        -------
        array
            `out`, or a new array.

        Raises
        ------
        ValueError
            If a chunk does not hold the bytes that belong there.
        """
        shape = tuple(high - low for low, high in bounds)
        found = np.empty(shape, self.dtype) if out is None else out
        if found.shape != shape or found.dtype != self.dtype:
            raise UserError(
                f"out: {found.dtype} of {list(found.shape)}; allowed: {self.dtype} of {list(shape)}"
            )
        self._run([*self._places(bounds)], lambda place, content: self._put(place, content, found))
        return found

    def receive(self, bounds: list[tuple[int, int]]) -> dict[str, int]:
        """Receive the chunks between bounds, decode none, and return the XXH3 of each by its key."""
        digests: dict[str, int] = {}

        def note(place: Place, content: memoryview | None) -> None:
            if content is not None:
                digests[place.key] = xxhash.xxh3_64_intdigest(content)

        self._run([*self._places(bounds)], note)
        return digests

    def _places(self, bounds: list[tuple[int, int]]) -> Iterator[Place]:
        """List the chunks that hold elements between bounds."""
        grid = [
            range(low // c, -(-high // c)) if high > low else range(0)
            for (low, high), c in zip(bounds, self.chunks, strict=True)
        ]
        for at in itertools.product(*grid):
            first = [i * c for i, c in zip(at, self.chunks, strict=True)]
            ends = [
                (max(low, s), min(high, s + c))
                for (low, high), s, c in zip(bounds, first, self.chunks, strict=True)
            ]
            yield Place(
                f"{self.path}/{self.metadata.encode_chunk_key(at)}".lstrip("/"),
                tuple(slice(a - s, b - s) for (a, b), s in zip(ends, first, strict=True)),
                tuple(
                    slice(a - low, b - low) for (a, b), (low, _) in zip(ends, bounds, strict=True)
                ),
                all(b - a == c for (a, b), c in zip(ends, self.chunks, strict=True)),
            )

    def _run(self, places: list[Place], use: Callable[[Place, memoryview | None], None]) -> None:
        """Fetch on some threads and use what came on others, with few chunks in between."""
        buffers: SimpleQueue[bytearray] = SimpleQueue()
        for _ in range(min(self.n_requests + _SPARE, len(places))):
            buffers.put(bytearray())
        with (
            ThreadPoolExecutor(self.n_decoders) as decoders,
            ThreadPoolExecutor(self.n_requests) as fetchers,
        ):

            def use_one(place: Place, buffer: bytearray, content: memoryview | None) -> None:
                try:
                    use(place, content)
                finally:
                    if content is not None:
                        content.release()  # or the buffer could not grow
                    buffers.put(buffer)

            def fetch(place: Place) -> Future[None]:
                buffer = buffers.get()
                try:
                    content = self.receiver.receive(place.key, buffer)
                except BaseException:
                    buffers.put(buffer)
                    raise
                return decoders.submit(use_one, place, buffer, content)

            for decoded in list(fetchers.map(fetch, places)):
                decoded.result()

    def _put(self, place: Place, content: memoryview | None, out: NDArray[Any]) -> None:
        """Decode a chunk into its place, or beside it where it does not fit as it is."""
        target = out[place.target]
        if content is None:
            target[...] = self.metadata.fill_value
        elif place.is_whole and target.flags.c_contiguous:
            decode_into(target, content)
        else:
            beside = np.empty(self.chunks, self.dtype)
            decode_into(beside, content)
            target[...] = beside[place.within]


def decode_into(target: NDArray[Any], encoded: memoryview) -> None:
    """Decode Blosc, and refuse a chunk that would fill less than its place.

    The length is in bytes 4 to 7 of the header of every Blosc chunk.
    """
    nbytes = int.from_bytes(encoded[4:8], "little")
    if nbytes != target.nbytes:
        raise ValueError(f"a chunk of {nbytes} bytes where {target.nbytes} belong")
    Blosc().decode(encoded, out=target)


def _complete(key: Any, n: int) -> list[Any]:
    """Write an index with one entry for each dimension."""
    parts = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        parts[at : at + 1] = [slice(None)] * (n - len(parts) + 1)
    parts += [slice(None)] * (n - len(parts))
    allowed = (slice, int, np.integer)
    if len(parts) != n or not all(isinstance(part, allowed) for part in parts):
        raise UserError(f"index: {key!r}; allowed: slices and integers, at most {n}")
    return parts


def _bounds(part: Any, n: int) -> tuple[int, int]:
    """Return the first element that a slice or an integer chooses, and the one after its last."""
    if not isinstance(part, slice):
        if not -n <= part < n:
            raise IndexError(f"index {part} of {n} elements")
        return int(part) % n, int(part) % n + 1
    low, high, step = part.indices(n)
    if step != 1:
        raise UserError(f"index: {part!r}; allowed: slices without a step")
    return low, max(low, high)


def open_direct(
    store: Any, path: str = "", *, n_requests: int = 16, n_decoders: int = 0
) -> DirectArray:
    """Open a Zarr array for reading by threads that fetch and threads that decode.

    Parameters
    ----------
    store : obstore store
        Client for the folder that holds the array, such as `obstore.store.S3Store`.
    path : str
        Of the array in that folder.
    n_requests : int
        Requests in flight at once.
    n_decoders : int
        Threads that decode; 0 for as many as there are processors.

    Returns
    -------
    DirectArray
        It reads nothing but metadata until it is indexed.

    Raises
    ------
    UserError
        If its chunks are anything but plain Blosc in this machine's byte order.
    """
    for name, value, least in (("n_requests", n_requests, 1), ("n_decoders", n_decoders, 0)):
        if value < least:
            raise UserError(f"{name}: {value}; allowed: at least {least}")
    metadata = zarr.open_array(ObjectStore(store, read_only=True), path=path, mode="r").metadata
    codecs = tuple(getattr(metadata, "codecs", ()))
    is_plain = len(codecs) == 2 and isinstance(codecs[0], BytesCodec)
    if not is_plain or not isinstance(codecs[1], BloscCodec) or not is_native(codecs[0]):
        names = ", ".join(type(codec).__name__ for codec in codecs) or "those of an older format"
        raise UserError(f"codecs: {names}; allowed: plain Blosc in Zarr v3; zarr reads the others")
    return DirectArray(Receiver(store), path, metadata, n_requests, n_decoders or n_cores())


def is_native(codec: BytesCodec) -> bool:
    """Tell whether a codec leaves bytes in this machine's order."""
    # an enumeration in some versions of zarr, a text in others
    return getattr(codec.endian, "value", codec.endian) in (None, sys.byteorder)
