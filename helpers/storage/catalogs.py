"""The Intake catalogue: from the name of a dataset to an array that can be read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import intake
import numpy as np

from helpers.errors import UserError
from helpers.paths import CATALOG
from helpers.storage.data import SampleArray
from helpers.storage.formats import Codec, Layout
from helpers.storage.locations import Location, parse_location
from helpers.storage.stores import Progress, StoredArray, checksum, check_chunk_shape, prepare_array
from helpers.storage import formats


def open_entry(name: str, path: Path = CATALOG) -> Any:
    """Open an entry of the catalogue as an Intake reader.

    Raises
    ------
    UserError
        If there is no such entry.
    """
    catalog = intake.open_catalog(str(path))
    if name not in catalog.entries:
        raise UserError(f"dataset: {name!r}; allowed: {', '.join(catalog.entries)}")
    return catalog[name]


def find_array(
    dataset: str,
    location: Location,
    *,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    codec: Codec,
    layouts: Sequence[Layout],
    seed: int = 0,
    path: Path = CATALOG,
    progress: Progress = lambda message: None,
) -> StoredArray:
    """Find the array of a dataset, and make it first if the catalogue says of what.

    Parameters
    ----------
    dataset : str
        Entry of the catalogue.
    location : Location
        Where arrays that are made here are kept.
    shape, chunk_shape : tuple of int
        Elements for each dimension. Of an array of others, `shape` is the
        corner that is read, and `chunk_shape` must be its own.
    codec : str
        Codec of an array that is made.
    layouts : sequence of str
        Layouts that the readers need.
    seed : int
        Seed of an array that is made.
    path : Path
        The catalogue.
    progress : callable
        Told in one line what takes time.

    Raises
    ------
    UserError
        If there is no such entry, or shapes and layouts do not fit it.
    """
    entry = open_entry(dataset, path)
    if "made_from" not in entry.metadata:
        return _describe_existing(dataset, entry, shape, chunk_shape, layouts)
    source = open_entry(entry.metadata["made_from"], path)
    sample = SampleArray(
        Path(url2pathname(urlsplit(source.kwargs["args"][0].url).path)),
        source.metadata["variable"],
        shape,
        seed,
    )
    return prepare_array(
        sample, location, chunk_shape=chunk_shape, codec=codec, layouts=layouts, progress=progress
    )


def _describe_existing(
    dataset: str,
    entry: Any,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
    layouts: Sequence[Layout],
) -> StoredArray:
    """Describe an array of others; a first read by Intake's own way gives its checksums."""
    if set(layouts) != {"zarr"}:
        raise UserError(
            f"contenders: dataset {dataset!r} has only Zarr; allowed: {', '.join(_zarr_readers())}"
        )
    variable = entry.read()[entry.metadata["variable"]]
    own_chunk_shape = tuple(chunks[0] for chunks in variable.chunks)
    if chunk_shape != own_chunk_shape:
        raise UserError(f"chunk_shape: {list(chunk_shape)}; allowed: {list(own_chunk_shape)}, that of {dataset!r}")
    if len(shape) != variable.ndim or any(n > m for n, m in zip(shape, variable.shape, strict=True)):
        raise UserError(f"array_shape: {list(shape)}; allowed: at most {list(variable.shape)}, that of {dataset!r}")
    check_chunk_shape(shape, chunk_shape)
    location = parse_location(entry.kwargs["args"][0].url)
    blocks = formats.iterate_blocks(shape, chunk_shape)
    sums = [checksum(variable[block].to_numpy()) for block in blocks]
    grid = tuple(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))
    return StoredArray(
        location, variable.name, shape, chunk_shape, str(variable.encoding.get("compressors", "as stored")),
        np.asarray(sums, np.uint64).reshape(grid),
        {"zarr": 4 * math.prod(shape)},
        tuple(str(name) for name in variable.dims),
        is_made=False,
    )


def _zarr_readers() -> list[str]:
    return [name for name, reader in formats.READERS.items() if reader.layout == "zarr"]
