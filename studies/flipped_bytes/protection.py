"""Formats with and without checksums: how an array is written to a folder of files, and read back.

Each is written with the library that most people use, and read with its defaults but for the
checksum. Zarr's own default compressor is Zstandard without its checksum.

TensorStore, Icechunk and TileDB are extras that not everyone has, so each is imported where it reads.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import rasterio
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

Array = NDArray[np.float32]
Shape = tuple[int, ...]

BASELINE = "zarr"


@dataclass(frozen=True, slots=True)
class Format:
    """How an array becomes files in a folder, and how it comes back."""

    label: str
    write: Callable[[Array, Shape, Path], Any]
    read: Callable[[Path], Any]
    checksum: str = ""  # what protects the values, empty where nothing is meant to
    packages: tuple[str, ...] = ()  # extras that have to be installed

    def missing(self) -> list[str]:
        """List the packages that it needs and that are not installed."""
        return [name for name in self.packages if importlib.util.find_spec(name) is None]


def _zarr(label: str, codecs: Any, checksum: str = "", *, is_sharded: bool = False) -> Format:
    def write(array: Array, chunk: Shape, folder: Path) -> None:
        layout: dict[str, Any] = {"chunks": chunk, "shards": array.shape if is_sharded else None}
        zarr.create_array(folder / "a.zarr", data=array, compressors=codecs, **layout)

    def read(folder: Path) -> Any:
        return zarr.open_array(folder / "a.zarr", mode="r")[...]

    return Format(label, write, read, checksum)


def _tensorstore(label: str, codecs: Any, checksum: str = "") -> Format:
    """Read what zarr-python wrote by TensorStore."""

    def read(folder: Path) -> Any:
        import tensorstore

        kvstore = {"driver": "file", "path": f"{folder / 'a.zarr'}/"}
        spec = {"driver": "zarr3", "kvstore": kvstore}
        context = tensorstore.Context()  # its own, so that nothing is cached between reads
        opened = tensorstore.open(spec, open=True, read=True, context=context).result()
        return opened.read().result()

    return Format(label, _zarr(label, codecs).write, read, checksum, ("tensorstore",))


def _icechunk(label: str, codecs: Any, checksum: str = "") -> Format:
    def locate(folder: Path) -> Any:
        import icechunk

        icechunk.set_logs_filter("error")  # it warns that a folder is not safe for several writers
        return icechunk.local_filesystem_storage(str(folder / "a.icechunk"))

    def write(array: Array, chunk: Shape, folder: Path) -> None:
        import icechunk

        session = icechunk.Repository.create(locate(folder)).writable_session("main")
        zarr.create_array(session.store, name="a", data=array, chunks=chunk, compressors=codecs)
        session.commit("the array")

    def read(folder: Path) -> Any:
        import icechunk

        session = icechunk.Repository.open(locate(folder)).readonly_session("main")
        return zarr.open_array(session.store, path="a", mode="r")[...]

    return Format(label, write, read, checksum, ("icechunk",))


def _tiledb(label: str, checksum: str = "", checksum_filter: str = "") -> Format:
    """Write a dense TileDB array, shuffled and compressed, and after that filtered by its checksum."""

    def write(array: Array, chunk: Shape, folder: Path) -> None:
        import tiledb

        filters = [tiledb.ByteShuffleFilter(), tiledb.ZstdFilter()]
        filters += [getattr(tiledb, checksum_filter)()] if checksum_filter else []
        dimensions = [
            tiledb.Dim(f"axis-{axis}", domain=(0, size - 1), tile=extent, dtype=np.int32)
            for axis, (size, extent) in enumerate(zip(array.shape, chunk, strict=True))
        ]
        values = tiledb.Attr("", np.float32, filters=tiledb.FilterList(filters))
        schema = tiledb.ArraySchema(tiledb.Domain(*dimensions), attrs=[values])
        tiledb.Array.create(place := str(folder / "a.tiledb"), schema)
        with tiledb.open(place, "w") as file:
            file[:] = array

    def read(folder: Path) -> Any:
        import tiledb

        # a context of its own, so that no metadata are cached between reads
        with tiledb.open(str(folder / "a.tiledb"), ctx=tiledb.Ctx()) as file:
            return file[:]

    return Format(label, write, read, checksum, ("tiledb",))


def _hdf5(label: str, checksum: str = "", **filters: Any) -> Format:
    def write(array: Array, chunk: Shape, folder: Path) -> None:
        with h5py.File(folder / "a.h5", "w") as file:
            file.create_dataset("a", data=array, chunks=chunk, **filters)

    def read(folder: Path) -> Any:
        with h5py.File(folder / "a.h5") as file:
            return file["a"][...]

    return Format(label, write, read, checksum)


def _write_parquet(array: Array, chunk: Shape, folder: Path, **options: Any) -> None:
    table = pa.table({"a": array.ravel()})
    rows = int(np.prod(chunk))
    pq.write_table(table, folder / "a.parquet", compression="zstd", row_group_size=rows, **options)


def _read_parquet(folder: Path, **options: Any) -> Any:
    return pq.read_table(folder / "a.parquet", **options)["a"].to_numpy()


def _write_tiff(array: Array, chunk: Shape, folder: Path) -> None:
    planes = array.reshape(-1, *array.shape[-2:])
    options = {
        **dict(zip(("count", "height", "width"), planes.shape, strict=True)),
        "tiled": True,
        "blockysize": 16 * -(-chunk[-2] // 16),
        "blockxsize": 16 * -(-chunk[-1] // 16),
        "dtype": "float32",
        "compress": "deflate",
        "interleave": "band",
        "crs": "EPSG:4326",
        "transform": rasterio.transform.from_origin(0, 90, 0.1, 0.1),
    }
    with rasterio.open(folder / "a.tif", "w", driver="GTiff", **options) as file:
        file.write(planes)


def _read_tiff(folder: Path) -> Any:
    with rasterio.open(folder / "a.tif") as file:
        return file.read()


_BLOSC = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")
_CRC32C = [ZstdCodec(), Crc32cCodec()]

FORMATS: Mapping[str, Format] = {
    BASELINE: _zarr("Zarr, Zstandard (default)", "auto"),
    "zarr-zstd-checksum": _zarr(
        "Zarr, Zstandard with its checksum", [ZstdCodec(checksum=True)], "XXH64"
    ),
    "zarr-crc32c": _zarr("Zarr, Zstandard, crc32c", _CRC32C, "CRC-32C"),
    "zarr-plain": _zarr("Zarr, uncompressed", []),
    "zarr-blosc": _zarr("Zarr, Blosc", [_BLOSC]),
    "zarr-blosc-crc32c": _zarr("Zarr, Blosc, crc32c", [_BLOSC, Crc32cCodec()], "CRC-32C"),
    "zarr-shards": _zarr("Zarr shard, Zstandard", "auto", is_sharded=True),
    "tensorstore": _tensorstore("Zarr by TensorStore, Zstandard", "auto"),
    "tensorstore-crc32c": _tensorstore("Zarr by TensorStore, crc32c", _CRC32C, "CRC-32C"),
    "icechunk": _icechunk("Icechunk, Zstandard (default)", "auto"),
    "icechunk-crc32c": _icechunk("Icechunk, Zstandard, crc32c", _CRC32C, "CRC-32C"),
    "tiledb": _tiledb("TileDB, Zstandard"),
    "tiledb-md5": _tiledb("TileDB, Zstandard, its MD5", "MD5", "ChecksumMD5Filter"),
    "hdf5": _hdf5("HDF5, gzip", "Adler-32 of zlib", compression="gzip", shuffle=True),
    "hdf5-plain": _hdf5("HDF5, uncompressed"),
    "hdf5-fletcher32": _hdf5("HDF5, uncompressed, fletcher32", "Fletcher-32", fletcher32=True),
    # zlib's checksum is in each tile, but libtiff ends with the last value, before it
    "tiff": Format("GeoTIFF, deflate", _write_tiff, _read_tiff),
    "parquet": Format("Parquet, Zstandard", _write_parquet, _read_parquet),
    "parquet-checksum": Format(
        "Parquet, page checksums",
        partial(_write_parquet, write_page_checksum=True),
        partial(_read_parquet, page_checksum_verification=True),
        "CRC-32",
    ),
}

PAIRS = {
    "zarr-crc32c": BASELINE,
    "zarr-zstd-checksum": BASELINE,
    "zarr-blosc-crc32c": "zarr-blosc",
    "tensorstore-crc32c": "tensorstore",
    "icechunk-crc32c": "icechunk",
    "tiledb-md5": "tiledb",
    "hdf5-fletcher32": "hdf5-plain",
    "parquet-checksum": "parquet",
}
"""What has a checksum, and what it is but for that."""
