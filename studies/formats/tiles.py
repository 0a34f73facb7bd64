"""TileDB: a dense array whose tiles are the chunks of the case."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from helpers.arrays.stores import StoredArray
from helpers.arrays.writers import BLOSC_LEVEL, DIMENSIONS, put_folder
from helpers.errors import UserError
from helpers.objectstore.locations import Location
from studies.formats.source import Read, Source

_FILTERS = {"blosc-zstd": "ZstdFilter", "blosc-lz4": "LZ4Filter"}


def write_tiles(folder: Location, source: Source) -> None:
    """Write an array in tiles of a chunk, shuffled and compressed as Blosc's are.

    It is made on this machine and then put: of TileDB's own writes to the embedded store some are
    answered 400, by chance.
    """
    import tiledb  # an extra that not everyone has

    extents = zip(DIMENSIONS, source.values.shape, source.chunk_shape, strict=True)
    domain = [tiledb.Dim(name, domain=(0, n - 1), tile=c, dtype=np.int32) for name, n, c in extents]
    codec = _FILTERS.get(source.codec)
    filters = (
        [tiledb.ByteShuffleFilter(), getattr(tiledb, codec)(level=BLOSC_LEVEL)] if codec else []
    )
    attribute = tiledb.Attr(source.variable, np.float32, filters=tiledb.FilterList(filters))
    with tempfile.TemporaryDirectory() as made:
        place = str(Path(made) / "array")
        tiledb.Array.create(place, tiledb.ArraySchema(tiledb.Domain(*domain), [attribute]))
        with tiledb.open(place, "w") as array:
            array[:] = {source.variable: source.values}
        kept = [repr(one) for one in tiledb.ArraySchema.load(place).attr(0).filters]
        if kept != [repr(one) for one in filters]:  # as published benchmarks had it
            raise UserError(f"format: tiledb is stored with {kept}; allowed: {filters}, as asked")
        put_folder(Path(made), folder)


def open_tiles(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by TileDB's own client, with as many operations in parallel as it is told."""
    import tiledb

    settings: dict[str, Any] = {
        "vfs.s3.region": folder.region,
        "vfs.s3.aws_access_key_id": folder.access_key,
        "vfs.s3.aws_secret_access_key": folder.secret_key,
        "vfs.s3.aws_session_token": folder.session_token,
        "vfs.s3.no_sign_request": "false" if folder.access_key else "true",
        "vfs.s3.max_parallel_ops": n_requests,
        "sm.io_concurrency_level": n_requests,
    }
    if folder.endpoint_url:
        endpoint = urlsplit(folder.endpoint_url)
        settings |= {"vfs.s3.endpoint_override": endpoint.netloc}
        settings |= {"vfs.s3.scheme": endpoint.scheme, "vfs.s3.use_virtual_addressing": "false"}
    context = tiledb.Ctx({name: str(value) for name, value in settings.items() if value})
    array = tiledb.open(f"{folder.url}/array", ctx=context)
    return lambda box: np.asarray(array[box][stored.variable], np.float32)
