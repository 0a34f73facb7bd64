"""Layouts of a granule, references to one, and what an HDF5 file says of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import obstore
import virtualizarr
from virtualizarr.parsers import HDFParser

from advisors.hdf5.files import get_page_nbytes, list_datasets
from advisors.hdf5.prediction import MIB
from helpers.arrays.writers import expected_warning, make_registry
from helpers.objectstore.locations import Location
from studies.hdf5_drivers.drivers import CONVERTED


@dataclass(frozen=True, slots=True)
class FileProperties:
    """The creation properties of a file and of its arrays."""

    page_nbytes: int  # bytes of a page; 0 where the file is not paged
    file_nbytes: int  # bytes of the file
    # elements of a chunk, for each chunked variable by its path
    chunk_shapes: Mapping[str, tuple[int, ...]]
    stored_nbytes: Mapping[str, int]  # bytes that each variable takes in the file, without metadata


def read_properties(file: h5py.File) -> FileProperties:
    """Read the properties of an open file from the file itself, never from its name."""
    variables = {name: file[name] for name in list_datasets(file)}
    return FileProperties(
        get_page_nbytes(file),
        int(file.id.get_filesize()),
        {name: tuple(each.chunks) for name, each in variables.items() if each.chunks},
        {name: int(each.id.get_storage_size()) for name, each in variables.items()},
    )


RECHUNKED = 100_000  # elements of a chunk, as the field's guidance for photon data has it
_SMALL = 50_000  # elements up to which a variable keeps its chunks when rechunked


FILE_LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "original": {},  # as the producer writes it: metadata between the data
    "front": {"meta_block_size": 8 * MIB},  # all metadata in one block
    "paged-8mib": {"fs_strategy": "page", "fs_page_size": 8 * MIB},
    "rechunked-8mib": {"fs_strategy": "page", "fs_page_size": 8 * MIB},
    "paged-4mib": {"fs_strategy": "page", "fs_page_size": 4 * MIB},
    "rechunked-4mib": {"fs_strategy": "page", "fs_page_size": 4 * MIB},
}
"""Arrangements of one HDF5 file, and how h5py makes each; in the rechunked ones long variables get longer chunks."""


def arrange(source: Path, target: Path, layout: str) -> None:
    """Write a file anew in another layout: group by group, variable by variable."""
    with h5py.File(source) as old, h5py.File(target, "w", **FILE_LAYOUTS[layout]) as new:
        new.attrs.update(old.attrs)

        def copy(name: str, found: h5py.Group | h5py.Dataset) -> None:
            is_short = not isinstance(found, h5py.Dataset) or found.size <= _SMALL
            if isinstance(found, h5py.Group):
                new.create_group(name).attrs.update(found.attrs)
            elif is_short or not found.chunks or not layout.startswith("rechunked"):
                old.copy(found, new, name)  # chunks as they are stored
            else:
                chunks = (min(RECHUNKED, found.shape[0]), *found.shape[1:])
                new.create_dataset_like(name, found, chunks=chunks)[...] = found[...]
                new[name].attrs.update(found.attrs)

        old.visititems(copy)


def write_references(target: Location, layout: str) -> None:
    """Write, as JSON next to a file in the store, where its photon chunks are."""
    # the references are read as they are; chunks larger than their array could not be put together
    with expected_warning("Numcodecs codecs are not in|.* have a chunk shape larger than"):
        dataset = virtualizarr.open_virtual_dataset(
            f"{target.url}/{layout}.h5",
            registry=make_registry(target),
            parser=HDFParser(group=CONVERTED),
            loadable_variables=[],
            decode_times=False,
        )
        references = dataset.vz.to_kerchunk(format="dict")
    text = json.dumps(references, default=bytes.decode)
    obstore.put(target.obstore(), f"{layout}.json", text.encode())
