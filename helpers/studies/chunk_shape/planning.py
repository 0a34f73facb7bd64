"""The array and its positions in a case: layouts written, reads and contenders made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.chunking import Access
from helpers.measurement.looks import check_looks
from helpers.measurement.measure import Contender
from helpers.paths import cache_folder
from helpers.storage import chunkings
from helpers.storage.boxes import draw_boxes
from helpers.storage.chunk_index import read_index
from helpers.storage.chunkings import Chunking, Medium
from helpers.storage.wires import Wire
from helpers.studies.chunk_shape.layouts import fits, make_accesses, shard_of
from helpers.studies.chunk_shape.loads import load_file, load_objects
from helpers.studies.chunk_shape.reading import N_CONNECTIONS, Boxes, BoxRead, checksum, reduce_box


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

    def holds(self, medium: Medium, one: Chunking) -> bool:
        """Tell whether a medium holds a layout of this array."""
        return fits(medium, self.values.shape, one, max_chunks=self.max_chunks)

    def draw(self, one: Chunking, access: Access) -> Boxes:
        """Draw the boxes of an access and compute what they must give."""
        n = 1 if access.name == "whole" else self.n_boxes * self.n_blocks
        chunk = one.chunk_shape or (1, 1, 1)
        places, n_apart = draw_boxes(
            self.values.shape, access.extent, chunk, n_boxes=n, seed=self.draw_seed or self.seed
        )
        sums = [checksum(reduce_box(access, self.values[box])) for box in places]
        return Boxes(places, n_apart, sums, max(1, len(places) // self.n_blocks))


def make_ways(medium: Medium, wire: Wire, plan: Plan, layouts: Sequence[Chunking]) -> list[BoxRead]:
    """Write each layout that a medium holds, once a shape, and make its accesses."""
    kept = {(one.chunk_shape, one.axes): one for one in reversed(layouts)}
    ways = []
    for one in reversed(kept.values()):
        if plan.holds(medium, one):
            ways += (_file_ways if medium == "hdf5" else _object_ways)(medium, wire, plan, one)
    return ways


def _file_ways(medium: Medium, _wire: Wire, plan: Plan, one: Chunking) -> list[BoxRead]:
    path = prepare_file(plan, one)
    index, ways = read_index(path), []
    for access in make_accesses(plan.values.shape):
        boxes = plan.draw(one, access)
        loads = [load_file(box, plan.values.shape, one, index) for box in boxes.places]
        opener, forget = partial(chunkings.open_hdf5, path), partial(chunkings.drop_pages, path)
        ways.append(BoxRead(medium, one, access, boxes, loads, opener, forget))
    return ways


def prepare_file(plan: Plan, one: Chunking) -> Path:
    """Have the file of a layout: made once, and made anew where it does not hold."""
    return chunkings.prepare_hdf5(cache_folder() / "chunkings", plan.values, one)


def prepare_objects(medium: Medium, wire: Wire, plan: Plan, one: Chunking) -> str:
    """Have the objects of a layout, likewise; return where they lie in the store."""
    shard = shard_of(medium, plan.values.shape, one)
    return chunkings.prepare_zarr(wire.near, plan.values, one, shard_shape=shard)


def _object_ways(medium: Medium, wire: Wire, plan: Plan, one: Chunking) -> list[BoxRead]:
    shard = shard_of(medium, plan.values.shape, one)
    place = prepare_objects(medium, wire, plan, one)
    ways = []
    for access in make_accesses(plan.values.shape):
        boxes = plan.draw(one, access)
        loads = [load_objects(box, one, shard) for box in boxes.places]
        opener = partial(chunkings.open_zarr, wire.far / place)
        ways.append(BoxRead(medium, one, access, boxes, loads, opener, wire=wire))
    return ways


def contend(way: BoxRead, **more: Any) -> Contender:
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
