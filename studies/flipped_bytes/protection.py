"""Formats with and without checksums: how an array is written to a folder of files, and read back.

Each is written with the library that most people use, and read with its defaults but for the
checksum. Zarr's own default compressor is Zstandard without its checksum.
"""

from __future__ import annotations

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


def _zarr(label: str, codecs: Any, checksum: str = "", *, is_sharded: bool = False) -> Format:
    def write(array: Array, chunk: Shape, folder: Path) -> None:
        layout: dict[str, Any] = {"chunks": chunk, "shards": array.shape if is_sharded else None}
        zarr.create_array(folder / "a.zarr", data=array, compressors=codecs, **layout)

    def read(folder: Path) -> Any:
        return zarr.open_array(folder / "a.zarr", mode="r")[...]

    return Format(label, write, read, checksum)


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
    how = {
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
    with rasterio.open(folder / "a.tif", "w", driver="GTiff", **how) as file:
        file.write(planes)


def _read_tiff(folder: Path) -> Any:
    with rasterio.open(folder / "a.tif") as file:
        return file.read()


_BLOSC = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")

FORMATS: Mapping[str, Format] = {
    BASELINE: _zarr("Zarr, Zstandard (default)", "auto"),
    "zarr-zstd-checksum": _zarr(
        "Zarr, Zstandard with its checksum", [ZstdCodec(checksum=True)], "XXH64"
    ),
    "zarr-crc32c": _zarr("Zarr, Zstandard, crc32c", [ZstdCodec(), Crc32cCodec()], "CRC-32C"),
    "zarr-plain": _zarr("Zarr, uncompressed", []),
    "zarr-blosc": _zarr("Zarr, Blosc", [_BLOSC]),
    "zarr-blosc-crc32c": _zarr("Zarr, Blosc, crc32c", [_BLOSC, Crc32cCodec()], "CRC-32C"),
    "zarr-shards": _zarr("Zarr shard, Zstandard", "auto", is_sharded=True),
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
    "hdf5-fletcher32": "hdf5-plain",
    "parquet-checksum": "parquet",
}
"""What has a checksum, and what it is but for that."""
