"""Layouts written, boxes read from them one by one, timed and verified, and what each asks of its store."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from helpers.arrays.reads import count_requests
from helpers.arrays.stores import checksum
from helpers.benchmark.contender import CheckError, Contender, Steps
from helpers.benchmark.loop import timed
from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import ChunkLayout, Medium, make_accesses, shard_of
from wire.bed.testbed import Testbed
from wire.decide.layouts import Access
from wire.models.access import Hyperslab, IoCounts, Shape, count_chunks
from wire.models.access import count_object_io as count_io

N_CONNECTIONS = 10
"""Requests that zarr has in flight at most, by default."""

Read = Callable[[Any, Hyperslab], Any]
"""What is timed: an open array and a box of it give values."""


@dataclass(frozen=True, slots=True)
class Hyperslabs:
    """Where an access is read, and what it must give."""

    places: list[Hyperslab]  # all positions, in the order in which they are read
    n_apart: int  # the first of them, which share no chunk
    sums: list[int]  # what each must give: the checksum of its values
    n_each: int  # how many of them a block reads, in turn

    def share(self, block: int) -> list[int]:
        """Return the numbers of the positions of a block; a few positions serve several."""
        first = block * self.n_each
        return [i % len(self.places) for i in range(first, first + self.n_each)]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What is read, wherever it lies, and how."""

    values: NDArray[np.float32]  # the array
    n_boxes: int  # positions of each access in each block, at most
    n_blocks: int  # blocks, each with positions of its own as far as there are enough
    seed: int  # of the positions
    read: Read  # what is timed
    dilation: float = 1.0  # real seconds in one of the network

    def draw(self, layout: ChunkLayout, access: Access) -> Hyperslabs:
        """Draw the boxes of an access and compute what they must give."""
        n, chunk = self.n_boxes * self.n_blocks, layout.chunk_shape or (1, 1, 1)
        places, n_apart = draw_hyperslabs(
            self.values.shape, access.extent, chunk, n_boxes=n, seed=self.seed
        )
        sums = [checksum(self.values[box]) for box in places]
        return Hyperslabs(places, n_apart, sums, max(1, len(places) // self.n_blocks))


@cache
def draw_hyperslabs(
    shape: Shape, extent: Shape, chunk_shape: Shape, *, n_boxes: int, seed: int
) -> tuple[list[Hyperslab], int]:
    """Draw boxes anywhere in an array, once for all layouts that read the same.

    They have no chunk in common as far as there are enough, the first so many that are counted.
    """
    rng = np.random.default_rng([seed, *extent, *chunk_shape])
    size, chunk = np.asarray(extent), np.asarray(chunk_shape)
    last = np.asarray(shape) - size
    drawn = np.unique(rng.integers(0, last + 1, (20 * n_boxes, len(shape))), axis=0)
    starts = rng.permutation(drawn)
    is_free, is_apart = np.ones(len(starts), bool), np.zeros(len(starts), bool)
    while is_free.any() and is_apart.sum() < n_boxes:
        first = int(is_free.argmax())
        is_apart[first] = True
        # boxes of one size have a chunk in common with it: a range in every dimension
        a, b = starts[first], starts
        meet = (a // chunk <= (b + size - 1) // chunk) & (b // chunk <= (a + size - 1) // chunk)
        is_free &= ~meet.all(axis=-1)
    chosen = np.concatenate([starts[is_apart], starts[~is_apart]])[:n_boxes]
    boxes = [
        tuple(slice(int(i), int(i + e)) for i, e in zip(start, extent, strict=True))
        for start in chosen
    ]
    return boxes, int(is_apart.sum())


@dataclass(slots=True)
class HyperslabRead(Steps):
    """Boxes of one access read from one layout, each timed."""

    medium: Medium
    layout: ChunkLayout
    access: Access
    boxes: Hyperslabs
    loads: list[IoCounts]  # what each box asks of the layout
    opener: Callable[[], Any]  # opens the array anew
    select: Read
    forget: Callable[[], None] = lambda: None  # drops what may be cached, before each box
    testbed: Testbed | None = None  # what traces, if anything does
    dilation: float = 1.0
    turn: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def settings(self) -> dict[str, Any]:
        """Declare what a comparison has to hold equal."""
        is_file = self.medium == "hdf5"
        return {
            "layout": self.medium,
            "codec": "shuffle, deflate" if is_file and self.layout.chunk_shape else "none",
            "concurrency": 1 if is_file else N_CONNECTIONS,
            "cache_state": "pages dropped" if is_file else "new client, warm server",
            "chunks": "x".join(map(str, self.layout.chunk_shape or ())),
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
        axes, sums = self.layout.axes, []
        for i in self.turn:
            self.forget()
            box = tuple(self.boxes.places[i][axis] for axis in axes)
            values, seconds = timed(partial(self.select, array, box), dilation=self.dilation)
            self.seconds.append(seconds)
            sums.append(checksum(values.transpose(np.argsort(axes))))
        return sums

    def check(self, sums: list[int]) -> str:
        """Compare what was read with what was written."""
        if sums != [self.boxes.sums[i] for i in self.turn]:
            raise CheckError(f"{self.layout.name}: {self.access.name} read other values")
        return f"xxh3 of {len(sums)} boxes"

    def collect(self) -> dict[str, Any]:
        """Count requests, and give each box its seconds, the first read after opening first."""
        loads = [self.loads[i] for i in self.turn]
        trace = {
            "boxes": self.turn,
            "box_s": [round(seconds, 7) for seconds in self.seconds],
            "n_boxes": len(self.turn),
            "n_apart": self.boxes.n_apart,
            "n_chunks": sum(load.n_chunks for load in loads) / len(loads),
            "decoded_nbytes": sum(load.n_chunks * load.chunk_nbytes for load in loads),
        }
        if self.testbed is None:
            return trace
        return {**count_requests(self.testbed.take_trace(), N_CONNECTIONS), **trace}


def leave_first(items: Any) -> Any:
    """Leave out the first of several: the first read after opening stands apart."""
    return items[1:] if len(items) > 1 else items


def make_reads(
    medium: Medium, testbed: Testbed | None, plan: ReadPlan, chosen: Sequence[ChunkLayout]
) -> list[HyperslabRead]:
    """Write each layout that a medium holds, and make the reads of its accesses.

    Objects have chunks, and more than one of them.
    """
    shape, reads = plan.values.shape, []
    for layout in chosen:
        count: Callable[[Hyperslab], IoCounts]
        options: dict[str, Any]
        chunk = layout.chunk_shape
        if medium == "hdf5":
            path = layouts.prepare_hdf5(plan.values, layout)
            count = partial(count_file_io, chunk_shape=chunk, index=read_index(path))
            opener = partial(layouts.open_hdf5, path)
            options = {"forget": partial(layouts.drop_pages, path)}
        elif testbed is None or chunk is None or count_chunks(shape, chunk) == 1:
            continue
        else:
            shard = shard_of(medium, shape, chunk)
            count = partial(count_object_io, chunk=chunk, shard_shape=shard, shape=shape)
            place = testbed.far / layouts.prepare_zarr(testbed.near, plan.values, chunk, shard)
            opener = partial(layouts.open_zarr, place)
            options = {"testbed": testbed, "dilation": plan.dilation}
        for access in make_accesses(shape):
            boxes = plan.draw(layout, access)
            loads = [count(box) for box in boxes.places]
            reads += [
                HyperslabRead(medium, layout, access, boxes, loads, opener, plan.read, **options)
            ]
    return reads


def make_contender(read: HyperslabRead, name: str = "", control_of: str | None = None) -> Contender:
    """Make a contender of a layout and an access, under the name of the layout or another."""
    return Contender(
        name or read.layout.name,
        read,
        point={"access": read.access.name, "medium": read.medium},
        group=f"{read.medium} {read.access.name}",
        control_of=control_of,
    )


def make_contenders(reads: Sequence[HyperslabRead]) -> list[Contender]:
    """Make a contender of each read, and for noise a second one of what we chose on each medium."""
    chosen_reads = [replace(read) for read in reads if read.layout.name == layouts.OURS]
    copies = [make_contender(read, "control", layouts.OURS) for read in chosen_reads]
    return [*map(make_contender, reads), *copies]


class ChunkIndex(NamedTuple):
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
            position = tuple(i // c for i, c in zip(chunk.chunk_offset, array.chunks, strict=True))
            index.starts[position], index.nbytes[position] = chunk.byte_offset, chunk.size

        array.id.chunk_iter(note)
    return index


_PAGE_NBYTES = 4096  # the unit of the kernel's cache


def count_file_io(box: Hyperslab, chunk_shape: Shape | None, index: ChunkIndex | None) -> IoCounts:
    """Count what a box asks of a file: chunks, their bytes, and seeks, by the file's own index.

    A file without chunks counts as one read of the bytes of the box.
    """
    if chunk_shape is None or index is None:
        return IoCounts(1, 4 * math.prod(s.stop - s.start for s in box))
    touched = tuple(
        slice(s.start // c, (s.stop - 1) // c + 1) for s, c in zip(box, chunk_shape, strict=True)
    )
    starts, nbytes = (values[touched].ravel() for values in index)
    order = np.argsort(starts)
    first, last = starts[order] // _PAGE_NBYTES, (starts + nbytes - 1)[order] // _PAGE_NBYTES
    n_runs = 1 + int((first[1:] - last[:-1] > 1).sum())  # the kernel reads on in the next page
    return IoCounts(len(starts), 4 * math.prod(chunk_shape), n_runs)


def count_object_io(
    box: Hyperslab, chunk: Shape, shard_shape: Shape | None, shape: Shape
) -> IoCounts:
    """Count what a box of float32 asks of an object store, as zarr reads chunks and shards."""
    nbytes = 4 * math.prod(chunk)
    counts = count_io(box, chunk, shard_shape, shape, nbytes=nbytes)
    if shard_shape is None:
        return IoCounts(counts.n_chunks, nbytes, 0, counts.n_requests)
    stored_nbytes = counts.fetched_nbytes / counts.n_chunks
    return IoCounts(counts.n_chunks, nbytes, counts.n_fetches, counts.n_requests, stored_nbytes)
