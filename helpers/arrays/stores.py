"""Stored arrays: made once, named by what made them, with their checksums."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from helpers.arrays import prepared, writers
from helpers.arrays.fields import SampleArray
from helpers.arrays.writers import Block, Codec, Layout
from helpers.errors import UserError
from helpers.objectstore.locations import Location

_GENERATION = 2  # raise it when the same arguments make other bytes

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in a store, in one or more layouts, and what it must read as."""

    location: Location  # folder that holds one folder for each layout
    variable: str  # name of the array in each layout
    shape: tuple[int, ...]  # elements for each dimension, and so are those of a chunk
    chunk_shape: tuple[int, ...]
    codec: str  # compression of the chunks
    checksums: NDArray[np.uint64]  # XXH3 of each chunk's values, one element for each chunk
    stored_nbytes: dict[str, int]  # by layout
    dimensions: tuple[str, ...] = writers.DIMENSIONS
    is_made: bool = True  # whether it was made here; otherwise `location` is the array of others

    def at(self, layout: Layout) -> Location:
        """Return where a layout lies; an array of others is its own only layout."""
        return self.location / layout if self.is_made else self.location

    def seen_from(self, location: Location) -> StoredArray:
        """Return the same array, reached as `location` is."""
        return replace(self, location=self.location.through(location.endpoint_url))

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return 4 * math.prod(self.shape)

    @property
    def n_chunks(self) -> int:
        """Number of stored chunks."""
        return self.checksums.size


def check_chunk_shape(shape: Sequence[int], chunk_shape: Sequence[int]) -> None:
    """Refuse a chunk shape that does not fit an array."""
    if len(shape) != len(chunk_shape):
        raise UserError(
            f"chunk_shape: {list(chunk_shape)}; allowed: {len(shape)} extents, as array_shape has"
        )
    if any(not 1 <= c <= n for c, n in zip(chunk_shape, shape, strict=True)):
        raise UserError(
            f"chunk_shape: {list(chunk_shape)}; allowed: between 1 and array_shape {list(shape)}"
        )


def checksum(values: NDArray[np.float32]) -> int:
    """Compute the 64-bit XXH3 of an array's bytes in C order.

    It runs at the speed of memory, so that it can stay inside the clock.
    """
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(values).data)


def prepare_array(
    sample: SampleArray,
    location: Location,
    *,
    chunk_shape: tuple[int, ...],
    codec: Codec,
    layouts: Sequence[Layout],
    progress: Progress = lambda message: None,
) -> StoredArray:
    """Store a sample array below `location` in each layout, unless it is there already.

    The folder is named by a hash of everything that decides its bytes; a
    layout counts as there once its entry, written last, lies beside it. The
    array is made chunk by chunk, so memory holds a few chunks.
    ``"references"`` brings ``"netcdf"`` with it.
    """
    check_chunk_shape(sample.shape, chunk_shape)
    _check_choice("codec", [codec], writers.CODECS)
    _check_choice("layouts", layouts, writers.LAYOUTS)
    made_by = _made_by(sample, chunk_shape, codec)
    target = location / prepared.name_of(made_by)
    wanted = sorted(
        {"netcdf", *layouts} if "references" in layouts else {*layouts}, key=writers.LAYOUTS.index
    )
    entries: dict[str, prepared.Entry] = {}
    for layout in wanted:
        # references hold places in the file, and go with it
        of = entries["netcdf"].files if layout == "references" else None

        def write(place: Location, layout: Layout = layout) -> dict[str, Any]:
            progress(f"writing {sample.nbytes / 1e6:.0f} MB as {layout}")
            return _write_layout(sample, place, layout, chunk_shape=chunk_shape, codec=codec)

        entries[layout] = prepared.prepare(
            target, [made_by, of], write, name=layout, under=[f"{layout}/"]
        )
    return _describe(sample, target, chunk_shape, codec, entries)


def _check_choice(parameter: str, values: Sequence[str], allowed: Sequence[str]) -> None:
    unknown = [value for value in values if value not in allowed]
    if unknown or not values:
        raise UserError(
            f"{parameter}: {', '.join(unknown) or 'none'}; allowed: {', '.join(allowed)}"
        )


def _made_by(sample: SampleArray, chunk_shape: tuple[int, ...], codec: Codec) -> list[Any]:
    source = hashlib.sha256(sample.source.read_bytes()).hexdigest()
    return [_GENERATION, source, sample.variable, sample.shape, sample.seed, chunk_shape, codec]


def _write_layout(
    sample: SampleArray,
    target: Location,
    layout: Layout,
    *,
    chunk_shape: tuple[int, ...],
    codec: Codec,
) -> dict[str, Any]:
    checksums: list[int] = []

    def blocks() -> Iterator[tuple[Block, NDArray[np.float32]]]:
        for block in writers.iterate_blocks(sample.shape, chunk_shape):
            values = sample.block(tuple(s.start for s in block), tuple(s.stop for s in block))
            checksums.append(checksum(values))
            yield block, values

    if layout == "references":
        writers.write_references(target / layout, target / "netcdf", variable=sample.variable)
    else:
        writers.WRITERS[layout](
            target / layout,
            blocks,
            variable=sample.variable,
            shape=sample.shape,
            chunk_shape=chunk_shape,
            codec=codec,
        )
    return {"checksums": checksums}


def _describe(
    sample: SampleArray,
    target: Location,
    chunk_shape: tuple[int, ...],
    codec: Codec,
    entries: dict[str, prepared.Entry],
) -> StoredArray:
    checksums = next(
        entry.facts["checksums"] for entry in entries.values() if entry.facts["checksums"]
    )
    grid = tuple(-(-n // c) for n, c in zip(sample.shape, chunk_shape, strict=True))
    return StoredArray(
        target,
        sample.variable,
        sample.shape,
        chunk_shape,
        codec,
        np.asarray(checksums, np.uint64).reshape(grid),
        {layout: entry.nbytes for layout, entry in entries.items()},
    )
