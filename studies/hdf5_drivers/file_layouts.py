"""Layouts of a granule, and what an HDF5 file says of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import obstore
import virtualizarr
import zarr
from virtualizarr.parsers import HDFParser
from zarr.storage import ObjectStore

from advisors.hdf5.copying import MIB, Repack, copy_file
from advisors.hdf5.files import get_page_nbytes, list_datasets, open_hdf5
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

    @property
    def metadata_nbytes(self) -> int:
        """Bytes of the file that are no data: headers, indices, attributes and gaps."""
        return self.file_nbytes - sum(self.stored_nbytes.values())


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


FILE_LAYOUTS: Mapping[str, Repack] = {
    "original": Repack(),  # as the producer writes it: metadata between the data
    "front": Repack(metadata_block_nbytes=8 * MIB),  # all metadata in one block
    "paged-4mib": Repack(4 * MIB),
    "paged-8mib": Repack(8 * MIB),
    "rechunked-4mib": Repack(4 * MIB),
    "rechunked-8mib": Repack(8 * MIB),
}
"""Arrangements of one HDF5 file, by name; in the rechunked ones long variables get longer chunks."""


def arrange(source: Path, target: Path, layout: str) -> None:
    """Write a file anew in another layout."""
    with open_hdf5(source, source.name) as file:
        variables = {name: file[name] for name in list_datasets(file)}
        chunk_shapes = tuple(
            (name, (min(RECHUNKED, each.shape[0]), *each.shape[1:]))
            for name, each in variables.items()
            if layout.startswith("rechunked") and each.chunks and each.shape[0] > _SMALL
        )
        copy_file(file, target, replace(FILE_LAYOUTS[layout], chunk_shapes=chunk_shapes))


CONVERSIONS: tuple[str, ...] = (
    "zarr", "zarr-sharded", "references", "references-rechunked", "icechunk",
)  # fmt: skip
VIRTUAL: Mapping[str, str] = {
    "references": "original",
    "references-rechunked": "rechunked-4mib",
    "icechunk": "rechunked-4mib",
}
"""Conversions that hold places in a file, and which."""

_CHUNKS_PER_SHARD = 16
_DEFLATE_LEVEL = 6


def convert(layout: str, source: Path, target: Location) -> str:
    """Convert the photons of a granule."""
    if layout in VIRTUAL:
        return _write_virtual(layout, target)
    _write_zarr(source, target / layout, is_sharded=layout == "zarr-sharded")
    return f"zarr {zarr.__version__}"


def _write_zarr(source: Path, location: Location, *, is_sharded: bool) -> None:
    store = ObjectStore(location.obstore())
    group = zarr.create_group(store, overwrite=True, zarr_format=3)
    with h5py.File(source) as file:
        for name in list_datasets(file[CONVERTED]):
            variable = file[CONVERTED][name]
            array = group.create_array(
                f"{CONVERTED}/{name}",
                shape=variable.shape,
                dtype=variable.dtype,
                attributes={k: _as_python(v) for k, v in variable.attrs.items()},
                **_cut(variable, is_sharded=is_sharded),
            )
            array[:] = variable[:]
    with expected_warning("Consolidated metadata is currently not part"):
        zarr.consolidate_metadata(store)


def _cut(variable: h5py.Dataset, *, is_sharded: bool) -> dict[str, Any]:
    """Choose chunks as in the rechunked files, and deflate with shuffle."""
    extent, *others = variable.shape
    chunk = min(RECHUNKED, extent)
    shard = min(_CHUNKS_PER_SHARD, -(-extent // chunk)) * chunk
    return {
        "chunks": (chunk, *others),
        "shards": (shard, *others) if is_sharded else None,
        # deflate after a shuffle, in the form in which Zarr v3 specifies it
        "compressors": zarr.codecs.BloscCodec(
            cname="zlib", clevel=_DEFLATE_LEVEL, shuffle="shuffle", typesize=variable.dtype.itemsize
        ),
    }


def _as_python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _write_virtual(layout: str, target: Location) -> str:
    """Write where the chunks of a file are: as JSON, or committed to an Icechunk repository."""
    # the references are read as they are; chunks larger than their array could not be put together
    with expected_warning("Numcodecs codecs are not in|.* have a chunk shape larger than"):
        dataset = virtualizarr.open_virtual_dataset(
            f"{target.url}/{VIRTUAL[layout]}.h5",
            registry=make_registry(target),
            parser=HDFParser(group=CONVERTED),
            loadable_variables=[],
            decode_times=False,
        )
        made_by = f"virtualizarr {virtualizarr.__version__}"
        if layout == "icechunk":
            return f"{made_by}, {_commit(dataset, target / layout)}"
        references = dataset.vz.to_kerchunk(format="dict")
    text = json.dumps(references, default=bytes.decode)
    obstore.put(target.obstore(), f"{layout}.json", text.encode())
    return made_by


def _commit(dataset: Any, folder: Location) -> str:
    import icechunk  # beside zarr it takes long to import

    made = icechunk.Repository.create(folder.icechunk_storage(), **folder.icechunk_virtual_chunks())
    session = made.writable_session("main")
    dataset.vz.to_icechunk(session.store)
    session.commit("where the chunks of the file are")
    return f"icechunk {icechunk.__version__}"
