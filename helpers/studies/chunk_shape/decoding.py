"""Codecs against chunk size, and HDF5's cache of chunks against adjacent slices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numcodecs
import numpy as np
from numpy.typing import NDArray

from helpers.measurement.looks import check_looks
from helpers.measurement.measure import CheckError, Contender
from helpers.storage import chunkings
from helpers.storage.chunkings import Chunking
from helpers.storage.layout import Shape, balanced_chunk_shape
from helpers.studies.chunk_shape.layouts import PUBLISHED_NBYTES
from helpers.studies.chunk_shape.planning import Plan, prepare_file
from helpers.studies.chunk_shape.reading import checksum

_SAMPLE_NBYTES = 8_000_000  # the same values at each chunk size
_KEPT_BITS = 12  # of the 23 of a float32's fraction, in what is rounded
_CACHE_NBYTES = (0, 2**20, 2**23, 2**26)
N_ADJACENT = 16
"""Slices read one after the other."""

_SHUFFLE = numcodecs.Shuffle(elementsize=4)
CODECS: dict[str, list[Any]] = {
    "none": [],
    "zstd": [numcodecs.Zstd(level=1)],
    "blosc-lz4": [numcodecs.Blosc("lz4", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE)],
    "shuffle, deflate": [_SHUFFLE, numcodecs.Zlib(level=1)],
    "rounded, shuffle, zstd": [
        numcodecs.BitRound(keepbits=_KEPT_BITS), _SHUFFLE, numcodecs.Zstd(level=1)
    ],
}  # fmt: skip
"""Codecs by name, in the order in which they encode."""


def encode(codecs: Sequence[Any], values: NDArray[np.float32]) -> bytes:
    """Encode a chunk."""
    data: Any = np.ascontiguousarray(values)
    for codec in codecs:
        data = codec.encode(data)
    return bytes(data)


def decode(codecs: Sequence[Any], data: bytes) -> NDArray[np.float32]:
    """Decode a chunk, copying it where nothing else does, as a reader would."""
    found: Any = data
    for codec in reversed(codecs):
        found = codec.decode(found)
    return np.frombuffer(found, np.float32).copy()


@dataclass(slots=True)
class Decoding:
    """The chunks of one size, in one codec, in memory.

    Parameters
    ----------
    codecs : list
        How they were encoded.
    chunks : list of bytes
        Encoded.
    expected : int
        Checksum of the values, as far as the codec keeps them.
    """

    codecs: list[Any]
    chunks: list[bytes]
    expected: int
    seconds: float = 0.0

    def run(self, _opened: object) -> int:
        """Decode every chunk, timed without the checksums."""
        start = time.perf_counter()
        found = [decode(self.codecs, chunk) for chunk in self.chunks]
        self.seconds = time.perf_counter() - start
        return checksum(np.concatenate(found))

    def check(self, found: int) -> str:
        """Compare with what was encoded."""
        if found != self.expected:
            raise CheckError("decoded other values")
        return f"xxh3 of {len(self.chunks)} chunks"


def make_decodings(plan: Plan) -> list[Contender]:
    """Make a contender of each codec at each published chunk size."""
    made = []
    for nbytes in PUBLISHED_NBYTES:
        shape = balanced_chunk_shape(plan.values.shape, 4, min(nbytes, plan.values.nbytes // 2))
        parts = cut(plan.values, shape)
        for name, codecs in CODECS.items():
            rounded = numcodecs.BitRound(keepbits=_KEPT_BITS) if "rounded" in name else None
            kept = [_round(rounded, part) for part in parts]
            encoded = [encode(codecs, part) for part in parts]
            way = Decoding(codecs, encoded, checksum(np.concatenate([k.ravel() for k in kept])))
            made.append(_contend_decoding(name, nbytes, way, sum(p.nbytes for p in parts)))
    return made


def _round(codec: Any, part: NDArray[np.float32]) -> NDArray[np.float32]:
    return part if codec is None else np.asarray(codec.decode(codec.encode(part)), np.float32)


def cut(values: NDArray[np.float32], shape: Shape) -> list[NDArray[np.float32]]:
    """Cut the first times, the same for every shape, into chunks; those at the borders are clipped.

    Examples
    --------
    >>> [part.shape for part in cut(np.zeros((3, 2, 2), np.float32), (2, 2, 2))]
    [(2, 2, 2), (1, 2, 2)]
    """
    n_times = max(1, _SAMPLE_NBYTES // values[:1].nbytes)
    sample = values[:n_times]
    grid = [-(-n // c) for n, c in zip(sample.shape, shape, strict=True)]
    return [
        np.ascontiguousarray(
            sample[tuple(slice(i * c, (i + 1) * c) for i, c in zip(at, shape, strict=True))]
        )
        for at in np.ndindex(*grid)
    ]


def _contend_decoding(name: str, nbytes: int, way: Decoding, array_nbytes: int) -> Contender:
    check_looks([name], "codec")
    return Contender(
        name=f"codec {name}",
        point={"access": "decode", "medium": "memory", "chunk_kib": nbytes // 1024},
        group="decode",
        settings={"codec": name, "concurrency": 1, "cache_state": "in memory"},
        open=lambda: None,
        read=way.run,
        check=way.check,
        collect=lambda: {"work_s": way.seconds},
        array_nbytes=array_nbytes,
        stored_nbytes=sum(map(len, way.chunks)),
    )


@dataclass(slots=True)
class Adjacent:
    """Adjacent slices of a chunked file, read with a cache of chunks.

    Parameters
    ----------
    opener, forget : callable
        Open the array; drop its pages.
    first : int
        First time.
    expected : list of int
        Checksums of the slices.
    """

    opener: Callable[[], Any]
    forget: Callable[[], None]
    first: int
    expected: list[int]
    seconds: list[float] = field(default_factory=list)

    def run(self, array: Any) -> list[int]:
        """Read the slices one after the other, each timed."""
        self.seconds, found = [], []
        for i in range(self.first, self.first + len(self.expected)):
            start = time.perf_counter()
            values = array[i]
            self.seconds.append(time.perf_counter() - start)
            found.append(checksum(values))
        return found

    def check(self, found: list[int]) -> str:
        """Compare with what was written."""
        if found != self.expected:
            raise CheckError("adjacent slices read other values")
        return f"xxh3 of {len(found)} slices"


def make_adjacents(plan: Plan) -> list[Contender]:
    """Make a contender of each size of the cache, on balanced chunks of the second size."""
    asked = min(PUBLISHED_NBYTES[1], plan.values.nbytes // 2)
    one = Chunking("balanced", balanced_chunk_shape(plan.values.shape, 4, asked))
    path = prepare_file(plan, one)
    n = min(N_ADJACENT, len(plan.values))
    sums = [checksum(plan.values[i]) for i in range(n)]
    made = []
    for nbytes in _CACHE_NBYTES:
        way = Adjacent(
            partial(chunkings.open_hdf5, path, cache_nbytes=nbytes),
            partial(chunkings.drop_pages, path), 0, sums,
        )  # fmt: skip
        made.append(_contend_adjacent(nbytes, way, plan.values[:n].nbytes))
    return made


def _contend_adjacent(nbytes: int, way: Adjacent, array_nbytes: int) -> Contender:
    return Contender(
        name=f"cache of {nbytes / 2**20:g} MiB",
        point={"access": "adjacent slices", "medium": "hdf5"},
        group="adjacent slices",
        settings={
            "codec": "shuffle, deflate",
            "concurrency": 1,
            "cache_state": "pages dropped before the first",
            "rdcc_nbytes": nbytes,
        },
        open=way.opener,
        read=way.run,
        check=way.check,
        prepare=way.forget,
        collect=lambda: {"work_s": sum(way.seconds)},
        array_nbytes=array_nbytes,
        stored_nbytes=array_nbytes,
    )
