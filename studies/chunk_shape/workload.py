"""Layouts written, boxes read from them one by one and verified, and what each asks of its layout."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import xxhash
from numpy.typing import NDArray

from advisors.chunks.problem import Access
from helpers.arrays.chunks import Hyperslab, Shape, chunks_touched, count_chunks, draw_hyperslabs
from helpers.arrays.reads import count_requests
from helpers.benchmark.contender import CheckError, Contender, Steps, contend
from helpers.benchmark.loop import timed
from helpers.benchmark.provenance import measured_with
from helpers.errors import UserError
from helpers.models.access import IoCounts, reads_abreast
from helpers.objectstore.testbed import Testbed
from helpers.plotting.palette import check_looks
from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import ChunkLayout, Medium, make_accesses

N_CONNECTIONS = 10
"""Requests that zarr has in flight at most, by default."""

Read = Callable[[Any, Hyperslab], Any]
"""What is timed: an open array and a box of it give values."""


@dataclass(frozen=True, slots=True)
class Hyperslabs:
    """Where an access is read, and what it must give."""

    places: list[Hyperslab]  # all positions, in the order in which they are read
    n_apart: int  # the first of them, which share no chunk
    sums: list[int]  # what each must give: the checksum of its values, or their mean over time
    n_each: int  # how many of them a block reads, in turn

    def share(self, block: int) -> list[int]:
        """Return the numbers of the positions of a block; a few positions serve several."""
        first = block * self.n_each
        return [i % len(self.places) for i in range(first, first + self.n_each)]


@dataclass(slots=True)
class HyperslabRead(Steps):
    """Boxes of one access read from one layout, each timed."""

    medium: Medium  # what is read
    chunks: ChunkLayout  # the layout
    access: Access  # what is asked
    boxes: Hyperslabs  # where
    loads: list[IoCounts]  # what each box asks of the layout
    opener: Callable[[], Any]  # opens the array anew
    forget: Callable[[], None] = lambda: None  # drops what may be cached, before each box
    testbed: Testbed | None = None  # what traces, if anything does
    select: Read = lambda array, box: np.asarray(array[box])
    turn: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        is_file = self.medium == "hdf5"
        return {
            "layout": self.medium,
            "codec": "shuffle, deflate" if is_file and self.chunks.chunk_shape else "none",
            "concurrency": 1 if is_file else N_CONNECTIONS,
            "cache_state": "pages dropped" if is_file else "new client, warm server",
            "chunks": "x".join(map(str, self.chunks.chunk_shape or ())),
        }

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes that a block asks for."""
        nbytes = 4 * math.prod(self.access.extent) * len(self.boxes.share(0))
        return nbytes, nbytes

    def enter_block(self, block: int) -> None:
        """Take the positions of a block."""
        self.turn = self.boxes.share(block)

    def prepare(self) -> None:
        """Empty the trace."""
        self.seconds = []
        if self.testbed is not None:
            self.testbed.take_trace()
            self.testbed.set_tag("open")

    def open(self) -> Any:
        """Open the array."""
        array = self.opener()
        if self.testbed is not None:
            self.testbed.set_tag("read")
        return array

    def read(self, array: Any) -> list[int]:
        """Read each box, cold, and keep its checksum and its seconds."""
        axes, sums = self.chunks.axes, []
        for i in self.turn:
            self.forget()
            box = tuple(self.boxes.places[i][axis] for axis in axes)
            result, seconds = timed(partial(self._reduce, array, box))
            self.seconds.append(seconds)
            sums.append(checksum(result))
        return sums

    def _reduce(self, array: Any, box: tuple[slice, ...]) -> NDArray[np.float32]:
        values = self.select(array, box).transpose(np.argsort(self.chunks.axes))
        return reduce_hyperslab(self.access, values)

    def check(self, sums: list[int]) -> str:
        """Compare what was read with what was written."""
        if sums != [self.boxes.sums[i] for i in self.turn]:
            raise CheckError(f"{self.chunks.name}: {self.access.name} read other values")
        return f"xxh3 of {len(sums)} boxes"

    def collect(self) -> dict[str, Any]:
        """Count requests, and tell each box and its seconds, the first read after opening first."""
        loads = [self.loads[i] for i in self.turn]
        told = {
            "boxes": self.turn,
            "box_s": [round(seconds, 7) for seconds in self.seconds],
            "n_boxes": len(self.turn),
            "n_apart": self.boxes.n_apart,
            "n_chunks": sum(load.n_chunks for load in loads) / len(loads),
            "decoded_nbytes": sum(load.n_chunks * load.chunk_nbytes for load in loads),
        }
        if self.testbed is None:
            return told
        return {**count_requests(self.testbed.take_trace(), N_CONNECTIONS), **told}


def leave_first(items: Any) -> Any:
    """Leave out the first of several: the first read after opening is told apart."""
    return items[1:] if len(items) > 1 else items


def reduce_hyperslab(access: Access, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute what an access wants: the mean over time, of a region, else the values."""
    if access.name == "region mean":
        return np.asarray(np.ascontiguousarray(values).mean(axis=0, dtype=np.float64), np.float32)
    return values


def checksum(values: NDArray[Any]) -> int:
    """Compute the checksum of values in C order."""
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(values).data)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is read, wherever it lies, and how."""

    values: NDArray[np.float32]  # the array
    n_boxes: int  # positions of each access in each block, at most
    n_blocks: int  # blocks, each with positions of its own as far as there are enough
    seed: int  # of the values, and of the positions unless they have their own
    max_chunks: int = 200  # of a layout in an object store, where each is a request
    draw_seed: int | None = None  # of the positions
    read: Read = lambda array, box: np.asarray(array[box])  # what is timed

    def holds(self, medium: Medium, one: ChunkLayout) -> bool:
        """Tell whether a medium holds a layout: objects have chunks, several, and not too many."""
        if medium == "hdf5" or one.chunk_shape is None:
            return medium == "hdf5"
        return 1 < count_chunks(self.values.shape, one.chunk_shape) <= self.max_chunks

    def draw(self, one: ChunkLayout, access: Access) -> Hyperslabs:
        """Draw the boxes of an access and compute what they must give."""
        n = _count_places(access, self.n_boxes, self.n_blocks)
        chunk = one.chunk_shape or (1, 1, 1)
        seed = self.draw_seed or self.seed
        places, n_apart = _draw(self.values.shape, access.extent, chunk, n, seed)
        sums = [checksum(reduce_hyperslab(access, self.values[box])) for box in places]
        return Hyperslabs(places, n_apart, sums, max(1, len(places) // self.n_blocks))


def _count_places(access: Access, n_boxes: int, n_blocks: int) -> int:
    return 1 if access.name == "whole" else n_boxes * n_blocks


@cache
def _draw(
    shape: Shape, extent: Shape, chunk: Shape, n: int, seed: int
) -> tuple[list[Hyperslab], int]:
    """Draw positions, once for all cases that read the same."""
    return draw_hyperslabs(shape, extent, chunk, n_boxes=n, seed=seed)


def count_asked(values: Mapping[str, Any], rows: pd.DataFrame) -> list[IoCounts]:
    """Count what each box asked of objects, in rows of one layout and access, by its place.

    `values` are the parameters of the case. The first box of each block is left out,
    as its time is; none where the medium is a file.
    """
    point, settings = (json.loads(rows[name].iloc[0]) for name in ("point", "settings"))
    if point["medium"] not in ("zarr", "sharded"):
        return []
    shape = layouts.scale_shape(values["scale_factor"])
    access = {one.name: one for one in make_accesses(shape)}[point["access"]]
    one = ChunkLayout("", tuple(map(int, settings["chunks"].split("x"))))
    shard = layouts.shard_of(point["medium"], shape, one)
    in_turn = not reads_abreast(json.loads(rows["versions"].iloc[-1])["zarr"])
    n = _count_places(access, values["n_boxes"], values["n_blocks"])
    places, _ = _draw(shape, access.extent, one.chunk_shape or (), n, values["seed"])
    loads = [count_object_io(box, one, shard, shape, in_turn=in_turn) for box in places]
    found: list[IoCounts] = []
    for asked, trace in zip(rows["n_requests"], map(json.loads, rows["trace"]), strict=True):
        of_block = [loads[i] for i in trace["boxes"]]
        if sum(load.n_requests for load in of_block) != asked:
            raise UserError(
                f"{point}: {asked:g} requests; allowed: as counted where they were read"
            )
        found += leave_first(of_block)
    return found


def make_ways(
    medium: Medium, testbed: Testbed, plan: Plan, layouts: Sequence[ChunkLayout]
) -> list[HyperslabRead]:
    """Write each layout that a medium holds, once a shape, and make its accesses."""
    kept = {(one.chunk_shape, one.axes): one for one in reversed(layouts)}
    fitting = [one for one in reversed(kept.values()) if plan.holds(medium, one)]
    return [way for one in fitting for way in _ways_of(medium, testbed, plan, one)]


def _ways_of(
    medium: Medium, testbed: Testbed, plan: Plan, one: ChunkLayout
) -> Iterator[HyperslabRead]:
    """Write a layout to a medium, and make its accesses."""
    count: Callable[[Hyperslab], IoCounts]
    how: dict[str, Any]
    if medium == "hdf5":
        path = layouts.prepare_hdf5(plan.values, one)
        index = read_index(path)
        count = partial(count_file_io, shape=plan.values.shape, one=one, index=index)
        opener, forget = (partial(do, path) for do in (layouts.open_hdf5, layouts.drop_pages))
        how = {"opener": opener, "forget": forget}
    else:
        shard_shape = layouts.shard_of(medium, plan.values.shape, one)
        count = partial(count_object_io, one=one, shard_shape=shard_shape, shape=plan.values.shape)
        place = testbed.far / prepare_objects(medium, testbed, plan, one)
        how = {"opener": partial(layouts.open_zarr, place), "testbed": testbed}
    for access in make_accesses(plan.values.shape):
        boxes = plan.draw(one, access)
        loads = [count(box) for box in boxes.places]
        yield HyperslabRead(medium, one, access, boxes, loads, **how, select=plan.read)


def prepare_objects(medium: Medium, testbed: Testbed, plan: Plan, one: ChunkLayout) -> str:
    """Have the objects of a layout, made once; return where they lie in the store."""
    shard_shape = layouts.shard_of(medium, plan.values.shape, one)
    return layouts.prepare_zarr(testbed.near, plan.values, one, shard_shape=shard_shape)


def contend_way(way: HyperslabRead, name: str = "", control_of: str | None = None) -> Contender:
    """Make a contender of a layout and an access, under the name of the layout or another."""
    check_looks([way.access.name], "access")
    check_looks([way.medium], "medium")
    return contend(
        name or way.chunks.name,
        way,
        point={"access": way.access.name, "medium": way.medium},
        group=f"{way.medium} {way.access.name}",
        control_of=control_of,
    )


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """Where the chunks of a file lie, and how many bytes each has there."""

    starts: NDArray[np.int64]  # address and stored bytes, of the shape of the grid of chunks
    nbytes: NDArray[np.int64]


def read_index(path: Path) -> ChunkIndex | None:
    """Read the index of the chunks of a file."""
    with h5py.File(path, "r") as file:
        array = file["t"]
        if array.chunks is None:
            return None
        grid = tuple(-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True))
        index = ChunkIndex(np.zeros(grid, np.int64), np.zeros(grid, np.int64))

        def note(chunk: Any) -> None:
            at = tuple(i // c for i, c in zip(chunk.chunk_offset, array.chunks, strict=True))
            index.starts[at], index.nbytes[at] = chunk.byte_offset, chunk.size

        array.id.chunk_iter(note)
    return index


_PAGE_NBYTES = 4096  # the unit of the kernel's cache
_SIEVE_NBYTES = 65536  # HDF5 reads contiguous data by so much (H5Pset_sieve_buf_size)


def count_file_io(
    box: Hyperslab, shape: Shape, one: ChunkLayout, index: ChunkIndex | None
) -> IoCounts:
    """Count what a box asks of a file: chunks, their bytes, and seeks, by the file's own index.

    Examples
    --------
    A series through a file of time steps is one seek and one chunk a step:

    >>> box, starts = (slice(0, 10), slice(0, 1), slice(0, 1)), 50 * np.arange(10).reshape(10, 1, 1)
    >>> index = ChunkIndex(starts, np.full_like(starts, 50))
    >>> count_file_io(box, (10, 4, 4), ChunkLayout("a time step", (1, 4, 4)), index)
    IoCounts(n_chunks=10, chunk_nbytes=64, n_shards=1, n_requests=0.0, stored_nbytes=50.0, n_longest=0.0)
    """
    if one.chunk_shape is None or index is None:
        stored = [box[i] for i in one.axes]
        starts, reads = sieve_reads(stored, [shape[i] for i in one.axes])
        return IoCounts(len(reads), sum(reads) / len(reads), count_seeks(starts, np.asarray(reads)))
    touched = tuple(
        slice(s.start // c, (s.stop - 1) // c + 1)
        for s, c in zip(box, one.chunk_shape, strict=True)
    )
    starts, nbytes = index.starts[touched].ravel(), index.nbytes[touched].ravel()
    n_seeks = count_seeks(starts, nbytes)
    chunk_nbytes = 4 * math.prod(one.chunk_shape)
    return IoCounts(len(starts), chunk_nbytes, n_seeks, stored_nbytes=float(nbytes.mean()))


def count_seeks(starts: NDArray[np.int64], nbytes: NDArray[np.int64]) -> int:
    """Count the runs of pages that follow one another, of pieces of a file.

    The kernel reads ahead where a read goes on in the same page or in the next.

    Examples
    --------
    >>> count_seeks(np.asarray([0, 100, 9000]), np.asarray([100, 100, 100]))
    2
    """
    order = np.argsort(starts)
    first = starts[order] // _PAGE_NBYTES
    last = (starts + nbytes - 1)[order] // _PAGE_NBYTES
    return 1 + int((first[1:] - last[:-1] > 1).sum())


def stack(loads: Sequence[IoCounts]) -> IoCounts:
    """Put counts together, an array an argument.

    Examples
    --------
    >>> stack([IoCounts(1, 8), IoCounts(3, 8)]).n_chunks.tolist()
    [1.0, 3.0]
    """
    return IoCounts(*np.asarray([astuple(load) for load in loads], np.float64).T)


READS_IN_TURN = not reads_abreast(measured_with("zarr"))
"""Whether zarr reads the chunks of a shard one after the other; from 3.3 on, near ones together."""

_MOST_APART_NBYTES, _MOST_TOGETHER_NBYTES = 2**20, 2**24
"""Chunks of a shard come in one request up to so far apart, and up to so many bytes, by zarr's defaults."""


def count_object_io(
    box: Hyperslab,
    one: ChunkLayout,
    shard_shape: Shape | None,
    shape: Shape,
    *,
    in_turn: bool = READS_IN_TURN,
) -> IoCounts:
    """Count what a box asks of an object store, as zarr reads chunks and shards.

    A shard of which every chunk is touched comes whole; of any other comes its
    index, and then its chunks: one at a time before zarr 3.3; since then in runs, with
    what lies between them, all at once. At the edge of the array, of extents `shape`, a
    shard holds fewer chunks, which lie side by side.

    Examples
    --------
    >>> pairs = ChunkLayout("pairs", (2,))
    >>> count_object_io((slice(0, 6),), pairs, (4,), (12,), in_turn=True)
    IoCounts(n_chunks=3, chunk_nbytes=8, n_shards=2, n_requests=3, stored_nbytes=0.0, n_longest=1)
    >>> count_object_io((slice(2, 12),), pairs, (8,), (16,), in_turn=False)
    IoCounts(n_chunks=5, chunk_nbytes=8, n_shards=2, n_requests=4, stored_nbytes=8.0, n_longest=0.0)
    """
    chunk = one.chunk_shape
    if chunk is None:
        raise ValueError(f"{one.name} has no chunks")
    n_chunks, nbytes = chunks_touched(box, chunk), 4 * math.prod(chunk)
    if shard_shape is None:
        return IoCounts(n_chunks, nbytes, 0, n_chunks)
    by = tuple(s // c for s, c in zip(shard_shape, chunk, strict=True))
    pairs = [*itertools.product(*map(_chunks_by_shard, box, chunk, by, shape))]
    shards = [[touched for touched, _ in each] for each in pairs]
    counts = [math.prod(map(len, touched)) for touched in shards]
    in_parts = [n for n in counts if n < math.prod(by)]
    if in_turn:
        n_requests = len(shards) + sum(in_parts)
        return IoCounts(
            n_chunks, nbytes, len(shards), n_requests, n_longest=max(in_parts, default=0)
        )
    fetched = [
        each
        for pair, touched, n in zip(pairs, shards, counts, strict=True)
        for each in (
            [n * nbytes]
            if n == math.prod(by)
            else _fetches(touched, _number(by, tuple(held for _, held in pair)), nbytes)
        )
    ]
    n_requests = len(fetched) + len(in_parts)
    return IoCounts(n_chunks, nbytes, len(fetched), n_requests, sum(fetched) / n_chunks)


def _chunks_by_shard(part: slice, chunk: int, by: int, extent: int) -> list[tuple[range, int]]:
    """List the chunks, in one dimension, that a range touches in each shard, by place, and how many it holds."""
    first, last, n = part.start // chunk, (part.stop - 1) // chunk, -(-extent // chunk)
    return [
        (
            range(max(first - shard * by, 0), min(last - shard * by, by - 1) + 1),
            min(by, n - shard * by),
        )
        for shard in range(first // by, last // by + 1)
    ]


def _fetches(touched: Sequence[range], places: NDArray[np.int64], nbytes: int) -> list[int]:
    """List the bytes of each request for some chunks of a shard, of so many bytes each."""
    starts = nbytes * np.sort(places[np.ix_(*touched)].ravel())
    spans = [[int(starts[0])] * 2]  # start and end
    for start in map(int, starts):
        is_near = start - spans[-1][1] <= _MOST_APART_NBYTES
        if is_near and start + nbytes - spans[-1][0] <= _MOST_TOGETHER_NBYTES:
            spans[-1][1] = start + nbytes
        else:
            spans.append([start, start + nbytes])
    return [end - start for start, end in spans if end > start]


@cache
def _number(by: Shape, held: Shape) -> NDArray[np.int64]:
    """Give the place of each chunk that a shard holds: Morton order, the first dimension fastest."""
    at, n = np.indices(held), len(by)
    bits = range(max(by).bit_length())
    keys = sum(((at[d] >> b) & 1) << (b * n + d) for b in bits for d in range(n))
    return np.argsort(np.argsort(np.ravel(keys))).reshape(held)


def sieve_reads(box: Sequence[slice], shape: Sequence[int]) -> tuple[NDArray[np.int64], list[int]]:
    """List start and bytes of each read that HDF5 makes of data without chunks.

    A run of neighbouring elements longer than the sieve buffer is read as it
    is; a shorter one that the buffer does not hold yet fills the buffer anew.

    Examples
    --------
    Every second kB of 128 kB is two buffers full; far apart, each has its own.

    >>> sieve_reads((slice(0, 64), slice(0, 256)), (64, 512))[1]
    [65536, 65536]
    >>> sieve_reads((slice(0, 3), slice(0, 1)), (3, 20000))[1]
    [65536, 65536, 65536]
    """
    starts, run_nbytes = _runs(box, shape)
    if run_nbytes > _SIEVE_NBYTES:
        return starts, [run_nbytes] * len(starts)
    end, places, reads, i = 4 * math.prod(shape), [], [], 0
    while i < len(starts):
        places.append(starts[i])
        reads.append(int(min(_SIEVE_NBYTES, end - starts[i])))
        i = int(np.searchsorted(starts, starts[i] + reads[-1] - run_nbytes, side="right"))
    return np.asarray(places, np.int64), reads


def _runs(box: Sequence[slice], shape: Sequence[int]) -> tuple[NDArray[np.int64], int]:
    """Find where runs of neighbouring elements start, in bytes, and how long they are."""
    starts, inner = np.zeros(1, np.int64), 4
    is_whole, run = True, 4
    for part, n in zip(reversed(box), reversed(shape), strict=True):
        extent = part.stop - part.start
        if is_whole:
            run, starts = inner * extent, np.asarray([part.start * inner]) + starts
        else:
            places = inner * np.arange(part.start, part.stop)
            starts = np.add.outer(places, starts).ravel()
        is_whole &= extent == n
        inner *= n
    return starts, run
