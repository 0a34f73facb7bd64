"""Layouts written, and boxes read from them one by one, verified."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from advisors.chunks.problem import Access
from helpers.arrays.chunks import Hyperslab, draw_hyperslabs
from helpers.arrays.reads import count_requests
from helpers.benchmark.contender import CheckError, Contender
from helpers.models.access import IoCounts
from helpers.objectstore.testbed import Testbed
from helpers.paths import cache_folder
from helpers.plotting.palette import check_looks
from studies.chunk_shape import layouts
from studies.chunk_shape import layouts as chunk_layouts
from studies.chunk_shape.layouts import ChunkLayout, Medium, fits, make_accesses, shard_of
from studies.chunk_shape.loads import count_file_io, count_object_io, read_index

N_CONNECTIONS = 10
"""Requests that zarr has in flight at most, by default."""


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
class HyperslabRead:
    """Boxes of one access read from one layout, each timed."""

    medium: Medium  # what is read
    chunks: ChunkLayout  # the layout
    access: Access  # what is asked
    boxes: Hyperslabs  # where
    loads: list[IoCounts]  # what each box asks of the layout
    opener: Callable[[], Any]  # opens the array anew
    forget: Callable[[], None] = lambda: None  # drops what may be cached, before each box
    testbed: Testbed | None = None  # what traces, if anything does
    turn: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

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
        sums = []
        for i in self.turn:
            self.forget()
            start = time.perf_counter()
            values = layouts.read_hyperslab(array, self.boxes.places[i], axes=self.chunks.axes)
            result = reduce_hyperslab(self.access, values)
            self.seconds.append(time.perf_counter() - start)
            sums.append(checksum(result))
        return sums

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
    """What is read, wherever it lies.

    Parameters
    ----------
    values : ndarray of float32
        The array.
    n_boxes : int
        Positions of each access in each block, at most.
    n_blocks : int
        Blocks, each with positions of its own as far as there are enough.
    seed : int
        Seed of the values, and of the positions unless they have their own.
    max_chunks : int
        Most chunks of a layout in an object store, where each is a request.
    draw_seed : int or None
        Seed of the positions.
    """

    values: NDArray[np.float32]
    n_boxes: int
    n_blocks: int
    seed: int
    max_chunks: int = 200
    draw_seed: int | None = None

    def holds(self, medium: Medium, one: ChunkLayout) -> bool:
        """Tell whether a medium holds a layout of this array."""
        return fits(medium, self.values.shape, one, max_chunks=self.max_chunks)

    def draw(self, one: ChunkLayout, access: Access) -> Hyperslabs:
        """Draw the boxes of an access and compute what they must give."""
        n = 1 if access.name == "whole" else self.n_boxes * self.n_blocks
        chunk = one.chunk_shape or (1, 1, 1)
        places, n_apart = draw_hyperslabs(
            self.values.shape, access.extent, chunk, n_boxes=n, seed=self.draw_seed or self.seed
        )
        sums = [checksum(reduce_hyperslab(access, self.values[box])) for box in places]
        return Hyperslabs(places, n_apart, sums, max(1, len(places) // self.n_blocks))


def make_ways(
    medium: Medium, testbed: Testbed, plan: Plan, layouts: Sequence[ChunkLayout]
) -> list[HyperslabRead]:
    """Write each layout that a medium holds, once a shape, and make its accesses."""
    kept = {(one.chunk_shape, one.axes): one for one in reversed(layouts)}
    ways = []
    for one in reversed(kept.values()):
        if plan.holds(medium, one):
            ways += (_file_ways if medium == "hdf5" else _object_ways)(medium, testbed, plan, one)
    return ways


def _file_ways(
    medium: Medium, _testbed: Testbed, plan: Plan, one: ChunkLayout
) -> list[HyperslabRead]:
    path = prepare_file(plan, one)
    index, ways = read_index(path), []
    for access in make_accesses(plan.values.shape):
        boxes = plan.draw(one, access)
        loads = [count_file_io(box, plan.values.shape, one, index) for box in boxes.places]
        opener, forget = (
            partial(chunk_layouts.open_hdf5, path),
            partial(chunk_layouts.drop_pages, path),
        )
        ways.append(HyperslabRead(medium, one, access, boxes, loads, opener, forget))
    return ways


def prepare_file(plan: Plan, one: ChunkLayout) -> Path:
    """Have the file of a layout: made once, and made anew where it does not hold."""
    return chunk_layouts.prepare_hdf5(cache_folder() / "chunkings", plan.values, one)


def prepare_objects(medium: Medium, testbed: Testbed, plan: Plan, one: ChunkLayout) -> str:
    """Have the objects of a layout, likewise; return where they lie in the store."""
    shard = shard_of(medium, plan.values.shape, one)
    return chunk_layouts.prepare_zarr(testbed.near, plan.values, one, shard_shape=shard)


def _object_ways(
    medium: Medium, testbed: Testbed, plan: Plan, one: ChunkLayout
) -> list[HyperslabRead]:
    shard = shard_of(medium, plan.values.shape, one)
    place = prepare_objects(medium, testbed, plan, one)
    ways = []
    for access in make_accesses(plan.values.shape):
        boxes = plan.draw(one, access)
        loads = [count_object_io(box, one, shard) for box in boxes.places]
        opener = partial(chunk_layouts.open_zarr, testbed.far / place)
        ways.append(HyperslabRead(medium, one, access, boxes, loads, opener, testbed=testbed))
    return ways


def contend(way: HyperslabRead, **more: Any) -> Contender:
    """Make a contender of a layout and an access; `more` may name it otherwise."""
    check_looks([way.access.name], "access")
    check_looks([way.medium], "medium")
    nbytes = 4 * math.prod(way.access.extent) * len(way.boxes.share(0))
    is_file = way.medium == "hdf5"
    settings = {
        "layout": way.medium,
        "codec": "shuffle, deflate" if is_file and way.chunks.chunk_shape else "none",
        "concurrency": 1 if is_file else N_CONNECTIONS,
        "cache_state": "pages dropped" if is_file else "new client, warm server",
        "chunks": "x".join(map(str, way.chunks.chunk_shape or ())),
    }
    return Contender(
        **{"name": way.chunks.name, **more},
        point={"access": way.access.name, "medium": way.medium},
        group=f"{way.medium} {way.access.name}",
        settings=settings,
        open=way.open,
        read=way.read,
        check=way.check,
        enter_block=way.enter_block,
        prepare=way.prepare,
        collect=way.collect,
        array_nbytes=nbytes,
        stored_nbytes=nbytes,
    )
