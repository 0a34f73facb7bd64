"""Boxes of one access read from one layout: written once, timed one by one, verified."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from helpers.chunking import Access
from helpers.measurement.measure import CheckError
from helpers.models.accesses import Load
from helpers.storage import chunkings
from helpers.storage.boxes import Box
from helpers.storage.chunkings import Chunking, Medium
from helpers.storage.reads import count_requests
from helpers.storage.wires import Wire

N_CONNECTIONS = 10
"""Requests that zarr has in flight at most, by default."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """Where an access is read, and what it must give.

    Parameters
    ----------
    places : list of tuple of slice
        All positions, in the order in which they are read.
    n_apart : int
        The first of them, which share no chunk.
    sums : list of int
        What each must give: the checksum of its values, or their mean over time.
    n_each : int
        How many of them a block reads, in turn.
    """

    places: list[Box]
    n_apart: int
    sums: list[int]
    n_each: int

    def share(self, block: int) -> list[int]:
        """Return the numbers of the positions of a block; a few positions serve several."""
        first = block * self.n_each
        return [i % len(self.places) for i in range(first, first + self.n_each)]


@dataclass(slots=True)
class BoxRead:
    """Boxes of one access read from one layout, each timed.

    Parameters
    ----------
    medium : {"hdf5", "zarr", "sharded"}
        What is read.
    chunks : Chunking
        The layout.
    access : Access
        What is asked.
    boxes : Boxes
        Where.
    loads : list of Load
        What each box asks of the layout.
    opener : callable
        Opens the array anew.
    forget : callable
        Drops what may be cached, before each box.
    wire : Wire or None
        What traces, if anything does.
    """

    medium: Medium
    chunks: Chunking
    access: Access
    boxes: Boxes
    loads: list[Load]
    opener: Callable[[], Any]
    forget: Callable[[], None] = lambda: None
    wire: Wire | None = None
    turn: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def enter_block(self, block: int) -> None:
        """Take the positions of a block."""
        self.turn = self.boxes.share(block)

    def prepare(self) -> None:
        """Empty the trace."""
        self.seconds = []
        if self.wire is not None:
            self.wire.take_trace()
            self.wire.set_tag("open")

    def open(self) -> Any:
        """Open the array."""
        array = self.opener()
        if self.wire is not None:
            self.wire.set_tag("read")
        return array

    def read(self, array: Any) -> list[int]:
        """Read each box, cold, and keep its checksum and its seconds."""
        sums = []
        for i in self.turn:
            self.forget()
            start = time.perf_counter()
            values = chunkings.read_box(array, self.boxes.places[i], axes=self.chunks.axes)
            result = reduce_box(self.access, values)
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
        if self.wire is None:
            return told
        return {**count_requests(self.wire.take_trace(), N_CONNECTIONS), **told}


def leave_first(items: Any) -> Any:
    """Leave out the first of several: the first read after opening is told apart."""
    return items[1:] if len(items) > 1 else items


def reduce_box(access: Access, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute what an access wants: the mean over time, of a region, else the values."""
    if access.name == "region mean":
        return np.asarray(np.ascontiguousarray(values).mean(axis=0, dtype=np.float64), np.float32)
    return values


def checksum(values: NDArray[Any]) -> int:
    """Compute the checksum of values in C order."""
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(values).data)
