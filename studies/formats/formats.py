"""Formats: what lies in the store, each made from the values of one array."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import obstore
import zarr
from zarr.storage import ObjectStore

from helpers.arrays import readers, stores
from helpers.arrays.readers import Layout
from helpers.arrays.stores import StoredArray
from studies.formats import columns, tiles, virtual
from studies.formats.source import ACCESSES, SourceArray, Values, choose, digest
from wire.bed.locations import Location
from wire.errors import UserError
from wire.host import installed

_GENERATION = 1  # raise it when the same arguments make other bytes

Write = Callable[[Location, SourceArray], None]


@dataclass(frozen=True, slots=True)
class Format:
    """A way to lay an array out in the store."""

    name: str
    description: str
    codec: str  # what compresses it; empty for the codec of the case
    write: Write
    packages: tuple[str, ...] = ()  # whose versions decide its bytes
    of: str = ""  # the format that holds its values, where it holds references alone
    is_shared: bool = False  # whether other studies read the same layout, and `stores` makes it


def _write_layout(folder: Location, source: SourceArray, *, layout: Layout, **more: Any) -> None:
    """Write a layout that other studies share, all values at once."""
    everything = [((slice(None),) * source.values.ndim, source.values)]
    readers.WRITERS[layout](folder, lambda: iter(everything), **source.array(), **more)


def _write_references(folder: Location, source: SourceArray) -> None:
    readers.write_references(folder, source.netcdf, variable=source.variable)


def _write_shards(folder: Location, source: SourceArray) -> None:
    """Write a shard for each time step, or for as many as a chunk spans."""
    n_rest = zip(source.values.shape[1:], source.chunk_shape[1:], strict=True)
    shard_shape = (source.chunk_shape[0], *(-(-n // c) * c for n, c in n_rest))
    _write_layout(folder, source, layout="zarr", shard_shape=shard_shape)


_write_zarr, _write_netcdf = (
    partial(_write_layout, layout=layout) for layout in ("zarr", "netcdf")
)
_ARROW, _ZARR = ("pyarrow",), ("zarr", "numcodecs")
_VIRTUAL = ("virtualizarr", "kerchunk", "fastparquet"), ("virtualizarr", "icechunk")

# A table, a row each.
# fmt: off
FORMATS: Mapping[str, Format] = {form.name: form for form in (
    Format("csv", "one table of text, a line a value", "none", columns.write_csv, _ARROW),
    Format("parquet", "one Parquet file, a row group a time step", "zstd", columns.write_parquet, _ARROW),
    Format("parquet-parts", "a Parquet file a time step", "zstd", columns.write_parts, _ARROW),
    Format("netcdf", "one netCDF-4 file, in the chunks of the case", "", _write_netcdf, is_shared=True),
    Format("references", "kerchunk references to the netCDF-4 file", "", _write_references, of="netcdf", is_shared=True),
    Format("references-parquet", "kerchunk references to the netCDF-4 file, as Parquet", "", virtual.write_references, _VIRTUAL[0], of="netcdf"),
    Format("icechunk-virtual", "an Icechunk repository of references to the netCDF-4 file", "", partial(virtual.write_icechunk, is_virtual=True), _VIRTUAL[1], of="netcdf"),
    Format("tiledb", "a dense TileDB array in tiles of a chunk", "", tiles.write_tiles, ("tiledb",)),
    Format("cog", "a cloud-optimised GeoTIFF a time step, its depths as bands", "zstd", tiles.write_rasters, ("rasterio",)),
    Format("zarr", "a Zarr v3 group, consolidated, a chunk an object", "", _write_zarr, is_shared=True),
    Format("shards", "a Zarr v3 group in shards of a time step", "", _write_shards, _ZARR),
    Format("icechunk", "an Icechunk repository of the same chunks", "", virtual.write_icechunk, ("zarr", "icechunk")),
)}
# fmt: on
"""Every format of the study, by name."""


def find_values(name: str) -> str:
    """Find the format that holds the values of a format: itself, or what its references lead to."""
    return FORMATS[name].of or name


@dataclass(frozen=True, slots=True)
class StoredFormats:
    """The formats that were made, and what each has to read as."""

    stored: StoredArray
    folder: Location  # that holds a folder for each of the others
    nbytes: Mapping[str, int]  # stored, by format
    digests: Mapping[str, str]  # XXH3 of the values, by access

    def locate(self, name: str) -> Location:
        """Return where a format lies."""
        return self.stored.locate(name) if FORMATS[name].is_shared else self.folder / name  # type: ignore[arg-type]

    def seen_from(self, location: Location) -> StoredFormats:
        """Return the same formats, reached as a location is: its server, its interface and its keys."""
        stored = replace(self.stored, location=self.stored.location.reached_as(location))
        return replace(self, stored=stored, folder=self.folder.reached_as(location))


def make_formats(stored: StoredArray, names: Sequence[str]) -> StoredFormats:
    """Make each format from the array that is stored, unless it is there, and digest its values."""
    source = make_source(stored)
    sums = [hex(checksum) for checksum in stored.checksums.ravel()]
    folder = stored.location / "formats"
    nbytes: dict[str, int] = dict(stored.stored_nbytes)
    for form in (FORMATS[name] for name in names if not FORMATS[name].is_shared):
        contents = [stored.shape, stored.chunk_shape, stored.codec, sums, installed(form.packages)]
        made_by = [_GENERATION, form.name, *contents, *identify_netcdf(stored, form.of)]

        def make(place: Location, form: Format = form) -> dict[str, Any]:
            form.write(place / form.name, source)
            return {}

        entry = stores.prepare(folder, made_by, make, name=form.name, prefixes=[f"{form.name}/"])
        nbytes[form.name] = entry.nbytes
    digests = {access: digest(source.values[choose(access, stored)]) for access in ACCESSES}
    return StoredFormats(stored, folder, nbytes, digests)


def identify_netcdf(stored: StoredArray, of: str) -> list[str]:
    """Identify the file that references lead to, if they do: to another, they would lead astray."""
    if not of:
        return []
    head = obstore.head(stored.locate("netcdf").obstore(), "array.nc")
    return [str(head["size"]), str(head["e_tag"]), str(head["last_modified"])]


def make_source(stored: StoredArray) -> SourceArray:
    """Read the values that every format holds, without the network, verified by their checksums."""
    group = zarr.open_group(ObjectStore(stored.locate("zarr").obstore(), read_only=True), mode="r")
    values: Values = np.asarray(group[stored.variable][...], np.float32)  # type: ignore[index]
    blocks = readers.iterate_blocks(stored.shape, stored.chunk_shape)
    for block, expected in zip(blocks, stored.checksums.ravel(), strict=True):
        if stores.checksum(values[block]) != expected:
            raise UserError(
                "store",
                f"{stored.locate('zarr').url} holds other values than were written",
                "what this study has written; remove it",
            )
    codec = cast("readers.Codec", stored.codec)
    return SourceArray(values, stored.variable, stored.chunk_shape, codec, stored.locate("netcdf"))
