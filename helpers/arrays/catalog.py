"""The Intake catalogue: from the name of a dataset to an array that can be read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import intake
import numpy as np
import xarray as xr
from intake.readers import datatypes

from helpers.arrays import readers, writers
from helpers.arrays.fields import SampleArray
from helpers.arrays.stores import Progress, StoredArray, check_chunk_shape, checksum, prepare_array
from helpers.arrays.writers import Codec, Layout
from helpers.errors import UserError
from helpers.objectstore.locations import Location, parse_location
from helpers.paths import CATALOG


def open_entry(name: str, path: Path = CATALOG) -> Any:
    """Open an entry of the catalogue as an Intake reader."""
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

    Returns
    -------
    StoredArray
        Where it lies, and the checksums that a read must give.

    Raises
    ------
    UserError
        If there is no such entry, or shapes and layouts do not fit it.
    """
    entry = open_entry(dataset, path)
    if "made_from" not in entry.metadata:
        found = _locate(dataset, entry, layouts)
        _check_same_store(dataset, found, location)
        return _describe_existing(dataset, entry, found, shape=shape, chunk_shape=chunk_shape)
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
    location: Location,
    *,
    shape: tuple[int, ...],
    chunk_shape: tuple[int, ...],
) -> StoredArray:
    """Describe an array of others; a first read by Intake's own way gives its checksums."""
    # undecoded, as the readers of the book read it: a mask would put other numbers in
    variable = entry.read(mask_and_scale=False, decode_times=False)[entry.metadata["variable"]]
    _check_existing(dataset, variable, shape, chunk_shape)
    blocks = writers.iterate_blocks(shape, chunk_shape)
    sums = [checksum(variable[block].to_numpy()) for block in blocks]
    grid = tuple(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))
    return StoredArray(
        location,
        str(variable.name),
        shape,
        chunk_shape,
        str(variable.encoding.get("compressors", "as stored")),
        np.asarray(sums, np.uint64).reshape(grid),
        {"zarr": 4 * math.prod(shape)},
        tuple(str(name) for name in variable.dims),
        is_made=False,
    )


def _locate(dataset: str, entry: Any, layouts: Sequence[Layout]) -> Location:
    """Find where an entry's Zarr group lies, by its URL, its options and the environment."""
    data = entry.kwargs["args"][0]
    if not isinstance(data, datatypes.Zarr):
        raise UserError(
            f"dataset: {dataset!r} is no Zarr group; allowed: one that is, or is made from another"
        )
    if set(layouts) != {"zarr"}:
        raise UserError(
            f"contenders: dataset {dataset!r} has only Zarr; allowed: {', '.join(_zarr_readers())}"
        )
    location, options = parse_location(data.url), data.storage_options or {}
    if location.scheme == "s3" and options.get("anon"):
        location = replace(location, access_key=None, secret_key=None, session_token=None)
    return location.through(options.get("endpoint_url", location.endpoint_url))


def _check_same_store(dataset: str, found: Location, location: Location) -> None:
    """Refuse a store that is not the array's: reads over its network would go astray."""
    if (found.scheme, found.endpoint_url) != (location.scheme, location.endpoint_url):
        raise UserError(
            f"store: {location.url}; allowed: {found.scheme}://{found.bucket},"
            f" where dataset {dataset!r} is, with its endpoint"
        )


def _check_existing(
    dataset: str, variable: xr.DataArray, shape: tuple[int, ...], chunk_shape: tuple[int, ...]
) -> None:
    """Refuse to read an array of others as what it is not."""
    own_shape = tuple(variable.shape)
    own_chunk_shape = tuple(extents[0] for extents in variable.chunks or ())
    if variable.dtype != np.float32:
        raise UserError(f"dataset: {dataset!r} holds {variable.dtype}; allowed: float32")
    if len(shape) != len(own_shape) or any(n > m for n, m in zip(shape, own_shape, strict=True)):
        raise UserError(
            f"array_shape: {list(shape)}; allowed: at most {list(own_shape)}, that of {dataset!r}"
        )
    if chunk_shape != own_chunk_shape:
        raise UserError(
            f"chunk_shape: {list(chunk_shape)}; allowed: {list(own_chunk_shape)},"
            f" that of {dataset!r}"
        )
    check_chunk_shape(shape, chunk_shape)


def _zarr_readers() -> list[str]:
    return [name for name, reader in readers.READERS.items() if reader.layout == "zarr"]
