"""Tables and TileDB arrays in object storage: written once here, for every study that reads them."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from helpers.arrays.readers import DIMENSIONS, put_folder
from wire.bed.locations import Location

TableSuffix = Literal["csv", "parquet"]
"""How a table is written, as its files end."""


def name_part(number: int, suffix: TableSuffix = "parquet") -> str:
    """Name one of several files that make a table."""
    return f"part-{number:05d}.{suffix}"


def write_table(
    sink: Any, parts: Iterable[pa.Table], suffix: TableSuffix, *, compression: str = "snappy"
) -> None:
    """Write tables of the same columns into one file, of Parquet each as a group of rows.

    `sink` is a path or a stream of Arrow; text is never compressed.
    """
    rest = iter(parts)
    first = next(rest)
    writer: Any
    if suffix == "csv":
        writer = pyarrow.csv.CSVWriter(sink, first.schema)
    else:
        writer = pyarrow.parquet.ParquetWriter(sink, first.schema, compression=compression)
    with writer:
        for table in itertools.chain([first], rest):
            writer.write_table(table, table.num_rows)


def write_tiledb_array(
    location: Location,
    values: NDArray[np.float32],
    *,
    attribute: str,
    chunk_shape: Sequence[int],
    filters: Sequence[Any],
) -> list[str]:
    """Write a dense TileDB array, ``array``, in tiles of a chunk; return the filters that it has.

    It is made on this machine and then put: of TileDB's own writes to the embedded store some are
    answered 400, by chance.
    """
    import tiledb  # an extra that not everyone has

    extents = zip(DIMENSIONS, values.shape, chunk_shape, strict=True)
    dimensions = [
        tiledb.Dim(name, domain=(0, n - 1), tile=tile, dtype=np.int32) for name, n, tile in extents
    ]
    stored = tiledb.Attr(attribute, np.float32, filters=tiledb.FilterList([*filters]))
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "array")
        tiledb.Array.create(place, tiledb.ArraySchema(tiledb.Domain(*dimensions), [stored]))
        with tiledb.open(place, "w") as array:
            array[:] = {attribute: values} if attribute else values
        applied = [repr(item) for item in tiledb.ArraySchema.load(place).attr(0).filters]
        put_folder(Path(folder), location)
    return applied


def tiledb_options(location: Location) -> dict[str, str]:
    """Return the settings by which TileDB's own client reaches a store."""
    endpoint = urlsplit(location.endpoint_url or "")
    options: dict[str, Any] = {
        "vfs.s3.region": location.region,
        "vfs.s3.aws_access_key_id": location.access_key,
        "vfs.s3.aws_secret_access_key": location.secret_key,
        "vfs.s3.aws_session_token": location.session_token,
        "vfs.s3.no_sign_request": "false" if location.access_key else "true",
        "vfs.s3.endpoint_override": endpoint.netloc,
        "vfs.s3.scheme": endpoint.scheme,
        "vfs.s3.use_virtual_addressing": "false" if endpoint.netloc else "true",
    }
    return {name: value for name, value in options.items() if value}
