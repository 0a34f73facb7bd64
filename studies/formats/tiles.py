"""TileDB: a dense array whose tiles are the chunks of the case."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from helpers.arrays.stores import StoredArray
from helpers.arrays.writers import put_folder
from helpers.errors import UserError
from helpers.objectstore.locations import Location

Values = NDArray[np.float32]

_LEVEL = 5  # as in the chunks of the other formats
_NAME = "array"


def write_tiles(
    folder: Location,
    values: Values,
    *,
    variable: str,
    chunk_shape: tuple[int, ...],
    dimensions: tuple[str, ...],
    cname: str,
) -> None:
    """Write an array in tiles of a chunk, and read back from its schema what compresses them.

    It is made on this machine and then put: of TileDB's own writes to the embedded store some are
    answered 400, by chance.
    """
    import tiledb  # an extra that not everyone has

    extents = zip(dimensions, values.shape, chunk_shape, strict=True)
    domain = [tiledb.Dim(name, domain=(0, n - 1), tile=c, dtype=np.int32) for name, n, c in extents]
    filters = _list_filters(cname)
    attribute = tiledb.Attr(variable, dtype=np.float32, filters=filters)
    schema = tiledb.ArraySchema(tiledb.Domain(*domain), [attribute])
    with tempfile.TemporaryDirectory() as made:
        place = str(Path(made) / _NAME)
        tiledb.Array.create(place, schema)
        with tiledb.open(place, "w") as array:
            array[:] = {variable: values}
        put_folder(Path(made), folder)
    found = tiledb.ArraySchema.load(f"{folder.url}/{_NAME}", ctx=tiledb.Ctx(_configure(folder)))
    check_filters([repr(one) for one in found.attr(variable).filters], cname)


_FILTERS = {"zstd": "ZstdFilter", "lz4": "LZ4Filter"}


def _list_filters(cname: str) -> Any:
    """List what an attribute is compressed by: shuffled bytes, as Blosc has them, then the codec."""
    import tiledb

    if not cname:
        return tiledb.FilterList([])
    codec = getattr(tiledb, _FILTERS[cname])
    return tiledb.FilterList([tiledb.ByteShuffleFilter(), codec(level=_LEVEL)])


def check_filters(found: list[str], cname: str) -> None:
    """Refuse an array whose schema holds another compression than was asked for."""
    wanted = ["ByteShuffleFilter()", f"{_FILTERS[cname]}(level={_LEVEL})"] if cname else []
    if found != wanted:
        raise UserError(
            f"format: tiledb is stored with {', '.join(found) or 'no filter'};"
            f" allowed: {', '.join(wanted) or 'no filter'}, as asked"
        )


def _configure(folder: Location, n_requests: int = 0) -> dict[str, str]:
    """Say how TileDB reaches a folder; where no number of requests is given it takes its own."""
    endpoint = urlsplit(folder.endpoint_url or "")
    settings = {
        "vfs.s3.region": folder.region,
        "vfs.s3.aws_access_key_id": folder.access_key or "",
        "vfs.s3.aws_secret_access_key": folder.secret_key or "",
        "vfs.s3.aws_session_token": folder.session_token or "",
        "vfs.s3.no_sign_request": "false" if folder.access_key else "true",
    }
    if folder.endpoint_url:
        settings |= {
            "vfs.s3.endpoint_override": endpoint.netloc,
            "vfs.s3.scheme": endpoint.scheme,
            "vfs.s3.use_virtual_addressing": "false",
        }
    if n_requests:
        settings |= {
            "vfs.s3.max_parallel_ops": str(n_requests),
            "sm.io_concurrency_level": str(n_requests),
        }
    return {name: value for name, value in settings.items() if value}


def open_tiles(
    folder: Location, stored: StoredArray, n_requests: int
) -> Callable[[tuple[slice, ...]], Values]:
    """Read by TileDB's own client, with as many operations in parallel as it is told."""
    import tiledb

    context = tiledb.Ctx(_configure(folder, n_requests))
    array = tiledb.open(f"{folder.url}/{_NAME}", ctx=context)
    return lambda box: np.asarray(array[box][stored.variable], np.float32)
