"""Conversions of an HDF5 file: the same tree as Zarr, as sharded Zarr, and as references."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import obstore
import virtualizarr
import zarr
from virtualizarr.parsers import HDFParser
from zarr.storage import ObjectStore

from helpers.storage.drivers.openers import CONVERTED
from helpers.storage.hdf5.properties import iterate_variables
from helpers.storage.layouts import expected_warning, make_registry
from helpers.storage.locations import Location

CONVERSIONS: tuple[str, ...] = ("zarr", "zarr-sharded", "references")

_CHUNK = 100_000  # elements, as in the rechunked files
_CHUNKS_PER_SHARD = 16
_DEFLATE_LEVEL = 6


def convert(layout: str, source: Path, target: Location) -> str:
    """Convert the photons of a granule.

    Parameters
    ----------
    layout : str
        One of `CONVERSIONS`.
    source : Path
        The file, on local disk.
    target : Location
        Folder of the granule, in which ``original.h5`` lies.

    Returns
    -------
    str
        What made it, with its version.
    """
    if layout == "references":
        return _write_references(target)
    _write_zarr(source, target / layout, is_sharded=layout == "zarr-sharded")
    return f"zarr {zarr.__version__}"


def _write_zarr(source: Path, location: Location, *, is_sharded: bool) -> None:
    store = ObjectStore(location.obstore())
    group = zarr.create_group(store, overwrite=True, zarr_format=3)
    with h5py.File(source) as file:
        for name, variable in _iterate_converted(file):
            array = group.create_array(
                name,
                shape=variable.shape,
                dtype=variable.dtype,
                attributes=_attributes(variable),
                **_cut(variable, is_sharded=is_sharded),
            )
            array[:] = variable[:]
    with expected_warning("Consolidated metadata is currently not part"):
        zarr.consolidate_metadata(store)


def _iterate_converted(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    for name, variable in iterate_variables(file[CONVERTED]):
        yield f"{CONVERTED}/{name}", variable


def _cut(variable: h5py.Dataset, *, is_sharded: bool) -> dict[str, Any]:
    """Choose chunks as in the rechunked files, and deflate with shuffle."""
    extent, *others = variable.shape
    chunk = min(_CHUNK, extent)
    shard = min(_CHUNKS_PER_SHARD, -(-extent // chunk)) * chunk
    return {
        "chunks": (chunk, *others),
        "shards": (shard, *others) if is_sharded else None,
        # deflate after a shuffle, in the form in which Zarr v3 specifies it
        "compressors": zarr.codecs.BloscCodec(
            cname="zlib",
            clevel=_DEFLATE_LEVEL,
            shuffle="shuffle",
            typesize=variable.dtype.itemsize,
        ),
    }


def _attributes(variable: h5py.Dataset) -> dict[str, Any]:
    found = dict(variable.attrs)
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in found.items()}


def _write_references(target: Location) -> str:
    with expected_warning("Numcodecs codecs are not in the Zarr version 3"):
        dataset = virtualizarr.open_virtual_dataset(
            f"{target.url}/original.h5",
            registry=make_registry(target),
            parser=HDFParser(group=CONVERTED),
            loadable_variables=[],
            decode_times=False,
        )
        references = dataset.vz.to_kerchunk(format="dict")
    text = json.dumps(references, default=bytes.decode)
    obstore.put(target.obstore(), "references.json", text.encode())
    return f"virtualizarr {virtualizarr.__version__}"
