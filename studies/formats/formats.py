"""Formats: what lies in the store, each made from the values of one array."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import xarray as xr
import xxhash
import zarr
from numcodecs import Blosc
from numpy.typing import NDArray
from zarr.storage import ObjectStore

from helpers.arrays import prepared, stores, writers
from helpers.arrays.fields import FILL
from helpers.arrays.stores import StoredArray
from helpers.arrays.writers import Codec
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from studies.formats import rasters, tiles, virtual

_GENERATION = 1  # raise it when the same arguments make other bytes
_BLOSC_LEVEL = 5


@dataclass(frozen=True, slots=True)
class Source:
    """An array whose values every format holds."""

    values: NDArray[np.float32]
    variable: str
    chunk_shape: tuple[int, ...]
    codec: Codec
    netcdf: Location  # of the netCDF-4 file, for formats that hold references to it

    @property
    def cname(self) -> str:
        """Codec within Blosc, empty for none."""
        return self.codec.removeprefix("blosc-") if self.codec != "none" else ""


Write = Callable[[Location, Source], None]
Box = tuple[slice, ...]
"""Bounds of what is read, a slice for each dimension."""
Values = NDArray[np.float32]
Read = Callable[[Box], Values]
"""Reads the values within bounds."""


@dataclass(frozen=True, slots=True)
class Format:
    """A way to lay an array out in the store."""

    name: str
    description: str
    codec: str  # what compresses it; empty for the codec of the case
    write: Write | None  # none where the layout is one of `writers`
    packages: tuple[str, ...] = ()  # whose versions decide its bytes
    of: str = ""  # the format that holds its values, where it holds references alone


def _put(folder: Location, name: str, content: Any) -> None:
    obstore.put(folder.obstore(), name, content)


def _write_csv(folder: Location, source: Source) -> None:
    """Write a line for each value: what a table makes of an array."""
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(pa.table({source.variable: source.values.ravel()}), sink)
    _put(folder, "array.csv", sink.getvalue().to_pybytes())


def _encode_parquet(values: NDArray[np.float32], source: Source) -> bytes:
    """Encode values in order, with a row group for each time step."""
    sink = pa.BufferOutputStream()
    table = pa.table({source.variable: values.ravel()})
    n_rows = int(np.prod(source.values.shape[1:]))
    pyarrow.parquet.write_table(table, sink, compression="zstd", row_group_size=n_rows)
    return bytes(sink.getvalue().to_pybytes())


def _write_csv_parts(folder: Location, source: Source) -> None:
    """Write a table of text for each time step."""
    for step, values in enumerate(source.values):
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(pa.table({source.variable: values.ravel()}), sink)
        _put(folder, part_name(step, "csv"), sink.getvalue().to_pybytes())


def _write_parquet(folder: Location, source: Source) -> None:
    _put(folder, "array.parquet", _encode_parquet(source.values, source))


def _write_parquet_parts(folder: Location, source: Source) -> None:
    for step, values in enumerate(source.values):
        _put(folder, part_name(step), _encode_parquet(values, source))


def part_name(step: int, suffix: str = "parquet") -> str:
    """Name the file of a time step.

    Examples
    --------
    >>> part_name(7)
    'part-00007.parquet'
    """
    return f"part-{step:05d}.{suffix}"


def _write_netcdf3(folder: Location, source: Source) -> None:
    dataset = xr.Dataset({source.variable: (writers.DIMENSIONS, source.values)})
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "array.nc"
        dataset.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT")
        _put(folder, "array.nc", path)


def _write_zarr2(folder: Location, source: Source, *, is_consolidated: bool = True) -> None:
    """Write a group of the older format."""
    store = ObjectStore(folder.obstore())
    group = zarr.create_group(store, overwrite=True, zarr_format=2)
    array = group.create_array(
        source.variable,
        shape=source.values.shape,
        chunks=source.chunk_shape,
        dtype="float32",
        compressors=_old_blosc(source),
        fill_value=float(FILL),
        attributes={"_ARRAY_DIMENSIONS": [*writers.DIMENSIONS]},
        config={"write_empty_chunks": True},
    )
    array[...] = source.values
    if is_consolidated:
        zarr.consolidate_metadata(store)


def _write_zarr2_plain(folder: Location, source: Source) -> None:
    _write_zarr2(folder, source, is_consolidated=False)


def _old_blosc(source: Source) -> Blosc | None:
    shuffle = Blosc.SHUFFLE
    return Blosc(source.cname, clevel=_BLOSC_LEVEL, shuffle=shuffle) if source.cname else None


def _create(store: Any, source: Source, **more: Any) -> None:
    """Write a group of Zarr v3, in whatever keeps its objects."""
    cname: Any = source.cname or "zstd"
    blosc = zarr.codecs.BloscCodec(cname=cname, clevel=_BLOSC_LEVEL, shuffle="shuffle", typesize=4)
    array = zarr.create_group(store, overwrite=True, zarr_format=3).create_array(
        source.variable,
        shape=source.values.shape,
        chunks=source.chunk_shape,
        dtype="float32",
        compressors=blosc if source.cname else None,
        fill_value=float(FILL),
        dimension_names=writers.DIMENSIONS,
        config={"write_empty_chunks": True},
        **more,
    )
    array[...] = source.values


def _write_shards(folder: Location, source: Source) -> None:
    """Write a shard for each time step, or for as many as a chunk spans."""
    n_rest = zip(source.values.shape[1:], source.chunk_shape[1:], strict=True)
    shard_shape = (source.chunk_shape[0], *(-(-n // c) * c for n, c in n_rest))
    _write_zarr(folder, source, shards=shard_shape)


def _write_icechunk(folder: Location, source: Source) -> None:
    import icechunk  # an extra that not everyone has

    storage = folder.icechunk_storage()
    session = icechunk.Repository.create(storage).writable_session("main")
    _create(session.store, source)
    session.commit("the array")


def _write_zarr(folder: Location, source: Source, **more: Any) -> None:
    store = ObjectStore(folder.obstore())
    _create(store, source, **more)
    with writers.expected_warning("Consolidated metadata is currently not part"):
        zarr.consolidate_metadata(store)


def _write_netcdf(folder: Location, source: Source) -> None:
    """Write the file of the shared layout, all values at once."""
    everything = tuple(slice(0, n) for n in source.values.shape)
    writers.write_netcdf(
        folder,
        lambda: iter([(everything, source.values)]),
        variable=source.variable,
        shape=source.values.shape,
        chunk_shape=source.chunk_shape,
        codec=source.codec,
    )


def _write_references(folder: Location, source: Source) -> None:
    writers.write_references(folder, source.netcdf, variable=source.variable)


def _write_rasters(folder: Location, source: Source) -> None:
    width = rasters.choose_width(source.chunk_shape, source.values.shape[1])
    for step, values in enumerate(source.values):
        raster = rasters.encode_raster(values, width=width, is_compressed=bool(source.cname))
        _put(folder, rasters.name_step(step), raster)


def _write_tiles(folder: Location, source: Source) -> None:
    tiles.write_tiles(
        folder,
        source.values,
        variable=source.variable,
        chunk_shape=source.chunk_shape,
        dimensions=writers.DIMENSIONS,
        cname=source.cname,
    )


def _write_npy(folder: Location, source: Source) -> None:
    """Write the values alone, for a server that has them in memory."""
    content = BytesIO()
    np.save(content, source.values)
    _put(folder, "array.npy", content.getvalue())


def _write_references_parquet(folder: Location, source: Source) -> None:
    virtual.write_parquet(folder, source.netcdf, source.variable)


def _write_icechunk_virtual(folder: Location, source: Source) -> None:
    virtual.write_icechunk(folder, source.netcdf, source.variable)


FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        Format("csv", "one table of text, a line a value", "none", _write_csv, ("pyarrow",)),
        Format("csv-parts", "a table of text a time step", "none", _write_csv_parts, ("pyarrow",)),
        Format(
            "parquet",
            "one Parquet file, a row group a time step",
            "zstd",
            _write_parquet,
            ("pyarrow",),
        ),
        Format(
            "parquet-parts",
            "a Parquet file a time step",
            "zstd",
            _write_parquet_parts,
            ("pyarrow",),
        ),
        Format(
            "netcdf3",
            "one netCDF file of the classic format",
            "none",
            _write_netcdf3,
            ("xarray", "scipy"),
        ),
        Format("netcdf", "one netCDF-4 file, in the chunks of the case", "", None),
        Format("references", "kerchunk references to the netCDF-4 file", "", None, of="netcdf"),
        Format(
            "references-parquet",
            "kerchunk references to the netCDF-4 file, as Parquet",
            "",
            _write_references_parquet,
            ("virtualizarr", "kerchunk", "fastparquet"),
            of="netcdf",
        ),
        Format(
            "icechunk-virtual",
            "an Icechunk repository of references to the netCDF-4 file",
            "",
            _write_icechunk_virtual,
            ("virtualizarr", "icechunk"),
            of="netcdf",
        ),
        Format("tiledb", "a dense TileDB array in tiles of a chunk", "", _write_tiles, ("tiledb",)),
        Format(
            "opendap",
            "an OPeNDAP server with the array in its memory",
            "none",
            _write_npy,
            ("numpy",),
        ),
        Format(
            "cog",
            "a cloud-optimised GeoTIFF a time step, its depths as bands",
            "zstd",
            _write_rasters,
            ("rasterio",),
        ),
        Format("zarr2", "a Zarr v2 group, consolidated", "", _write_zarr2, ("zarr", "numcodecs")),
        Format(
            "zarr2-plain",
            "a Zarr v2 group, not consolidated",
            "",
            _write_zarr2_plain,
            ("zarr", "numcodecs"),
        ),
        Format("zarr", "a Zarr v3 group, consolidated, a chunk an object", "", None),
        Format(
            "shards",
            "a Zarr v3 group in shards of a time step",
            "",
            _write_shards,
            ("zarr", "numcodecs"),
        ),
        Format(
            "icechunk",
            "an Icechunk repository of the same chunks",
            "",
            _write_icechunk,
            ("zarr", "icechunk"),
        ),
    )
}
"""Every format of the study, by name."""


def find_values(name: str) -> str:
    """Find the format that holds the values of a format: itself, or what its references lead to.

    Examples
    --------
    >>> find_values("references"), find_values("zarr")
    ('netcdf', 'zarr')
    """
    return FORMATS[name].of or name


def list_layouts(names: Sequence[str]) -> list[str]:
    """List the layouts that formats need: their own, those of their values, and Zarr to make them from."""
    needed = {"zarr", *names, *(find_values(name) for name in names)}
    return sorted(name for name in needed if is_shared(name))


def is_shared(name: str) -> bool:
    """Tell whether a format is a layout that other studies read too."""
    return FORMATS[name].write is None


@dataclass(frozen=True, slots=True)
class Kept:
    """The formats that were made, and what each has to read as."""

    stored: StoredArray
    folder: Location  # that holds a folder for each of the others
    nbytes: Mapping[str, int]  # stored, by format
    digests: Mapping[str, str]  # XXH3 of the values, by access
    # addresses of formats that a server hands out, near and over the network; empty for none
    services: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    is_far: bool = False  # whether it is seen over the network

    def at(self, name: str) -> Location:
        """Return where a format lies."""
        place = self.stored.at(name) if is_shared(name) else self.folder / name  # type: ignore[arg-type]
        known = self.services.get(name)
        return place if known is None else replace(place, endpoint_url=known[self.is_far])

    def seen_from(self, location: Location) -> Kept:
        """Return the same formats, reached as a location is."""
        folder = self.folder.through(location.endpoint_url)
        return replace(self, stored=self.stored.seen_from(location), folder=folder, is_far=True)


ACCESSES = ("whole", "step", "series")
"""What is read: the whole array, one step of its first dimension, or all steps at one place."""


def choose(access: str, stored: StoredArray) -> Box:
    """Choose the bounds of an access, which is in the middle of what it does not span."""
    spanned = {"whole": stored.dimensions, "step": stored.dimensions[1:]}
    return tuple(
        slice(0, n)
        if name in spanned.get(access, stored.dimensions[:1])
        else slice(n // 2, n // 2 + 1)
        for name, n in zip(stored.dimensions, stored.shape, strict=True)
    )


def make_formats(
    stored: StoredArray,
    names: Sequence[str],
    progress: Callable[[str], None] = lambda message: None,
) -> Kept:
    """Make each format from the array that is stored, unless it is there, and digest its values."""
    source = make_source(stored)
    sums = [hex(one) for one in stored.checksums.ravel()]
    folder = stored.location / "formats"
    nbytes: dict[str, int] = dict(stored.stored_nbytes)
    for name in names:
        write = FORMATS[name].write
        if write is None:
            continue
        versions = prepared.versions_of(*FORMATS[name].packages)
        what = [stored.shape, stored.chunk_shape, stored.codec, sums]
        made_by = [_GENERATION, name, *what, versions, *_identify(stored, FORMATS[name].of)]

        def make(place: Location, write: Write = write, name: str = name) -> dict[str, Any]:
            progress(f"writing {stored.nbytes / 1e6:.0f} MB as {name}")
            write(place / name, source)
            return {}

        entry = prepared.prepare(folder, made_by, make, name=name, under=[f"{name}/"])
        nbytes[name] = entry.nbytes
    digests = {access: digest(source.values[choose(access, stored)]) for access in ACCESSES}
    return Kept(stored, folder, nbytes, digests)


def make_source(stored: StoredArray) -> Source:
    """Read the values that every format holds, verified."""
    values, codec = _read_verified(stored), cast("Codec", stored.codec)
    return Source(values, stored.variable, stored.chunk_shape, codec, stored.at("netcdf"))


def find_writer(name: str) -> Write:
    """Find what writes a format from values in memory, a layout of other studies too."""
    shared = {"zarr": _write_zarr, "netcdf": _write_netcdf, "references": _write_references}
    return FORMATS[name].write or shared[name]


def _identify(stored: StoredArray, of: str) -> list[str]:
    """Identify the file that references lead to: to another, they would lead astray."""
    if not of:
        return []
    found = obstore.head(stored.at("netcdf").obstore(), "array.nc")
    return [str(found["size"]), str(found["e_tag"]), str(found["last_modified"])]


def digest(values: NDArray[np.float32]) -> str:
    """Digest values in C order."""
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(values).data)


def _read_verified(stored: StoredArray) -> NDArray[np.float32]:
    """Read the stored array without the network, and compare it with the checksums of its making."""
    group = zarr.open_group(ObjectStore(stored.at("zarr").obstore(), read_only=True), mode="r")
    values = np.asarray(group[stored.variable][...], np.float32)  # type: ignore[index]
    blocks = writers.iterate_blocks(stored.shape, stored.chunk_shape)
    for block, expected in zip(blocks, stored.checksums.ravel(), strict=True):
        if stores.checksum(values[block]) != expected:
            raise UserError(
                f"store: {stored.at('zarr').url} holds other values than were written;"
                " allowed: what this study has written; remove it"
            )
    return values
