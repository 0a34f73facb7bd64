"""All contenders of a case: layouts, a copy of one for noise, the raw objects, and the extras."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numcodecs
import numpy as np
import obstore
import xxhash
from numpy.typing import NDArray

from helpers.arrays.chunks import Shape, balanced_chunk_shape
from helpers.arrays.reads import count_requests
from helpers.benchmark.contender import CheckError, Contender
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Testbed
from helpers.plotting.palette import check_looks
from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import PUBLISHED_NBYTES, ChunkLayout, Medium, make_calibrations
from studies.chunk_shape.rewriting import make_rewrites
from studies.chunk_shape.workload import (
    N_CONNECTIONS,
    HyperslabRead,
    Plan,
    checksum,
    contend,
    make_ways,
    prepare_file,
    prepare_objects,
)

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
    """The chunks of one size, in one codec, in memory."""

    codecs: list[Any]  # how they were encoded
    chunks: list[bytes]  # encoded
    expected: int  # checksum of the values, as far as the codec keeps them
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
    """Adjacent slices of a chunked file, read with a cache of chunks."""

    opener: Callable[[], Any]  # open the array; drop its pages
    forget: Callable[[], None]
    first: int  # first time
    expected: list[int]  # checksums of the slices
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
    one = ChunkLayout("balanced", balanced_chunk_shape(plan.values.shape, 4, asked))
    path = prepare_file(plan, one)
    n = min(N_ADJACENT, len(plan.values))
    sums = [checksum(plan.values[i]) for i in range(n)]
    made = []
    for nbytes in _CACHE_NBYTES:
        way = Adjacent(
            partial(layouts.open_hdf5, path, cache_nbytes=nbytes),
            partial(layouts.drop_pages, path), 0, sums,
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


_COPIED = "balanced 1024 KiB"
_N_CALIBRATING = 10  # positions: all predictions rest on them
_EXTRAS = {"rewriting": make_rewrites, "codecs": make_decodings, "chunk-cache": make_adjacents}


def write_calibrations(
    media: Sequence[Medium], testbed: Testbed, plan: Plan
) -> list[HyperslabRead]:
    """Write the layouts that calibrate to each medium; positions are drawn with another seed."""
    chosen, ways = make_calibrations(plan.values.shape), []
    for medium in media:
        apart = replace(plan, n_boxes=_N_CALIBRATING, n_blocks=1, draw_seed=plan.seed + 1)
        ways += make_ways(medium, testbed, apart, chosen)
    return ways


def write_layouts(
    testbed: Testbed, plan: Plan, layouts: Mapping[Medium, Sequence[ChunkLayout]]
) -> list[HyperslabRead]:
    """Write the layouts that are compared to each medium."""
    return [
        way
        for medium, chosen in layouts.items()
        for way in make_ways(medium, testbed, plan, chosen)
    ]


def keep_fitting(
    plan: Plan, layouts: Mapping[Medium, Sequence[ChunkLayout]]
) -> dict[Medium, list[ChunkLayout]]:
    """Keep the layouts that a medium holds."""
    return {
        medium: [one for one in chosen if plan.holds(medium, one)]
        for medium, chosen in layouts.items()
    }


def contend_all(
    ways: Sequence[HyperslabRead], testbed: Testbed, plan: Plan, extras: Sequence[str]
) -> list[Contender]:
    """Make all contenders: of each way, a copy of a layout of each medium, and what is beside."""
    copied = {medium: _copied(medium, ways) for medium in dict.fromkeys(w.medium for w in ways)}
    copies = [
        contend(replace(way), name="control", control_of=way.chunks.name)
        for way in ways
        if way.chunks.name == copied[way.medium]
    ]
    more = [contender for extra in extras for contender in _EXTRAS[extra](plan)]
    return [*map(contend, ways), *copies, *_make_ceilings(ways, testbed, plan), *more]


def _copied(medium: Medium, ways: Sequence[HyperslabRead]) -> str:
    """Choose the layout of which a medium has a second copy."""
    names = [way.chunks.name for way in ways if way.medium == medium]
    return _COPIED if _COPIED in names else names[0]


@dataclass(frozen=True, slots=True)
class RawObjects:
    """The objects of one layout, read as they are, as many at a time as zarr reads."""

    location: Location  # folder of the array, over the network
    sums: Mapping[str, int]  # checksums of the objects, by key
    testbed: Testbed  # what traces

    def prepare(self) -> None:
        """Empty the trace."""
        self.testbed.take_trace()
        self.testbed.set_tag("read")

    def read(self, client: obstore.store.ObjectStore) -> dict[str, int]:
        """Read every object."""

        def read_one(key: str) -> int:
            return xxhash.xxh3_64_intdigest(obstore.get(client, key).bytes())

        with ThreadPoolExecutor(N_CONNECTIONS) as pool:
            return dict(zip(self.sums, pool.map(read_one, self.sums), strict=True))

    def check(self, found: dict[str, int]) -> str:
        """Compare with what is stored."""
        if found != self.sums:
            raise CheckError("other objects were read")
        return f"xxh3 of {len(found)} objects"

    def collect(self) -> dict[str, float]:
        """Count the requests."""
        return count_requests(self.testbed.take_trace(), N_CONNECTIONS)


def _make_ceilings(ways: Sequence[HyperslabRead], testbed: Testbed, plan: Plan) -> list[Contender]:
    """Make the raw ceiling of the whole array, for each medium of objects."""
    found = {w.medium: w for w in ways if w.medium != "hdf5" and w.chunks.name == _COPIED}
    made = []
    for way in found.values():
        if way.testbed is None:
            continue
        place = prepare_objects(way.medium, testbed, plan, way.chunks)
        near = (testbed.near / place).obstore()
        keys = [o["path"] for page in obstore.list(near, prefix="c") for o in page]
        sums = {k: xxhash.xxh3_64_intdigest(obstore.get(near, k).bytes()) for k in sorted(keys)}
        raw = RawObjects(testbed.far / place, sums, way.testbed)
        made.append(
            Contender(
                name="raw objects",
                point={"access": "whole", "medium": way.medium},
                group=f"{way.medium} whole",
                settings={"codec": "none", "concurrency": N_CONNECTIONS,
                          "cache_state": "new client, warm server"},
                open=raw.location.obstore,
                read=raw.read,
                check=raw.check,
                prepare=raw.prepare,
                collect=raw.collect,
                array_nbytes=plan.values.nbytes,
                stored_nbytes=plan.values.nbytes,
                is_ceiling=True,
            )
        )  # fmt: skip
    return made
