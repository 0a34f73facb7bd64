"""Arrays in tiles: cloud-optimised GeoTIFF, a file a time step whose bands are depths, and TileDB."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import obstore

from helpers.arrays.readers import BLOSC_LEVEL
from helpers.arrays.stores import StoredArray
from helpers.arrays.tables import tiledb_options, write_tiledb_array
from studies.formats.source import Box, Read, SourceArray, Values
from wire.bed.locations import Location
from wire.errors import UserError

_WHOLE_WORLD = (-180.0, -90.0, 180.0, 90.0)


def name_step(step: int) -> str:
    """Name the raster of a time step."""
    return f"step-{step:05d}.tif"


def choose_width(chunk_shape: Sequence[int], n_bands: int) -> int:
    """Choose the pixels along square tiles that hold, in all bands, as many values as a chunk.

    GDAL takes multiples of 16.

    Examples
    --------
    >>> choose_width((1, 5, 320, 400), n_bands=40)
    128
    """
    return 16 * max(1, round(math.sqrt(math.prod(chunk_shape) / n_bands) / 16))


def write_rasters(folder: Location, source: SourceArray) -> None:
    """Write a raster for each time step."""
    width = choose_width(source.chunk_shape, source.values.shape[1])
    for step, values in enumerate(source.values):
        raster = encode_raster(values, width=width, is_compressed=source.codec != "none")
        obstore.put(folder.obstore(), name_step(step), raster)


def encode_raster(values: Values, *, width: int, is_compressed: bool) -> bytes:
    """Encode bands as a cloud-optimised GeoTIFF, and read back that it is one, compressed as asked.

    `values` have bands, y and x. A driver that does not know a codec may write without it.
    """
    from rasterio.io import MemoryFile  # not where the extra of the book is not installed
    from rasterio.transform import from_bounds

    n_bands, ny, nx = values.shape
    codec = "ZSTD" if is_compressed else "NONE"
    options: dict[str, Any] = {"BLOCKSIZE": width, "OVERVIEWS": "NONE", "COMPRESS": codec}
    options |= {"LEVEL": BLOSC_LEVEL, "PREDICTOR": "YES"} if is_compressed else {}
    shape = {"count": n_bands, "height": ny, "width": nx, "dtype": "float32"}
    place = {"crs": "EPSG:4326", "transform": from_bounds(*_WHOLE_WORLD, nx, ny)}
    with MemoryFile() as file:
        with file.open(driver="COG", **shape, **place, **options) as raster:
            raster.write(values)
        with file.open() as raster:
            tags = raster.tags(ns="IMAGE_STRUCTURE")
        if (tags.get("LAYOUT"), tags.get("COMPRESSION", "NONE")) != ("COG", codec):
            raise UserError("format", f"cog is stored as {tags}", f"COG with {codec}, as asked")
        return bytes(file.read())


def _configure(folder: Location) -> tuple[str, dict[str, Any]]:
    """Return what GDAL calls a folder, and its settings; credentials it takes from the environment."""
    endpoint = urlsplit(folder.endpoint_url or "https://s3.amazonaws.com")
    root = f"/vsis3/{folder.path}"
    return root, {
        "AWS_S3_ENDPOINT": endpoint.netloc,
        "AWS_HTTPS": "YES" if endpoint.scheme == "https" else "NO",
        "AWS_VIRTUAL_HOSTING": "FALSE" if folder.endpoint_url else "TRUE",
        "AWS_REGION": folder.region,
        "AWS_NO_SIGN_REQUEST": "NO" if folder.access_key else "YES",
        "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",  # as every guide has it
        "CPL_VSIL_CURL_NON_CACHED": root,  # each read is a first one
    }


def open_rasters_async(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by async-geotiff over obstore: all tiles of a file at once, and several files."""
    from async_geotiff import GeoTIFF, Window  # an extra that not everyone has

    client = folder.obstore()

    async def fetch(step: int, box: Box, limit: asyncio.Semaphore) -> Values:
        _, bands, y, x = box
        window = Window(x.start, y.start, x.stop - x.start, y.stop - y.start)
        async with limit:
            raster = await GeoTIFF.open(name_step(step), store=client)
            return np.asarray((await raster.read(window=window)).data[bands], np.float32)

    async def fetch_all(box: Box) -> list[Values]:
        limit, wanted = asyncio.Semaphore(n_requests), range(stored.shape[0])[box[0]]
        return await asyncio.gather(*(fetch(step, box, limit) for step in wanted))

    def read(box: Box) -> Values:
        with ThreadPoolExecutor(1) as pool:  # a notebook has a loop of its own already
            return np.stack(pool.submit(asyncio.run, fetch_all(box)).result())

    return read


def open_rasters(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by rasterio, a thread a request, which with one is file after file."""
    import rasterio  # an extra that not everyone has
    from rasterio.windows import Window

    root, settings = _configure(folder)

    def read(box: Box) -> Values:
        steps, bands = range(stored.shape[0])[box[0]], [*range(1, stored.shape[1] + 1)][box[1]]
        window = Window.from_slices(*box[2:])
        out = np.empty([extent.stop - extent.start for extent in box], np.float32)

        def fill(step: int, values: Values) -> None:
            # settings are those of a thread
            with rasterio.Env(**settings), rasterio.open(f"{root}/{name_step(step)}") as raster:
                raster.read(bands, window=window, out=values)

        with ThreadPoolExecutor(n_requests) as pool:
            list(pool.map(fill, steps, out))
        return out

    return read


_FILTERS = {"blosc-zstd": "ZstdFilter", "blosc-lz4": "LZ4Filter"}


def write_tiles(folder: Location, source: SourceArray) -> None:
    """Write an array in tiles of a chunk, shuffled and compressed as Blosc's are."""
    import tiledb  # an extra that not everyone has

    codec = _FILTERS.get(source.codec)
    filters = (
        [tiledb.ByteShuffleFilter(), getattr(tiledb, codec)(level=BLOSC_LEVEL)] if codec else []
    )
    applied = write_tiledb_array(
        folder,
        source.values,
        attribute=source.variable,
        chunk_shape=source.chunk_shape,
        filters=filters,
    )
    if applied != [repr(filter_) for filter_ in filters]:  # as published benchmarks had it
        raise UserError("format", f"tiledb is stored with {applied}", f"{filters}, as asked")


def open_tiles(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by TileDB's own client, with as many operations in parallel as it is told."""
    import tiledb

    settings = tiledb_options(folder) | {
        "vfs.s3.max_parallel_ops": str(n_requests),
        "sm.io_concurrency_level": str(n_requests),
    }
    context = tiledb.Ctx(settings)
    array = tiledb.open(f"{folder.url}/array", ctx=context)
    return lambda box: np.asarray(array[box][stored.variable], np.float32)
