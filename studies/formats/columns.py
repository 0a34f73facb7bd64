"""Tables: an array as a column of text or of Parquet, and who reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import obstore
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet

from helpers.arrays.stores import StoredArray
from helpers.arrays.tables import TableSuffix, name_part, write_table
from studies.formats.source import Box, Read, SourceArray, Values
from wire.bed.locations import Location


def write_csv(folder: Location, source: SourceArray) -> None:
    """Write one table of text, a line for each value: what a table makes of an array."""
    _put(folder, "array.csv", [_tabulate(source.variable, source.values)], "csv")


def write_parquet(folder: Location, source: SourceArray) -> None:
    """Write one Parquet file, with a row group for each time step."""
    steps = (_tabulate(source.variable, values) for values in source.values)
    _put(folder, "array.parquet", steps, "parquet")


def write_parts(folder: Location, source: SourceArray) -> None:
    """Write a Parquet file for each time step."""
    for step, values in enumerate(source.values):
        _put(folder, name_part(step), [_tabulate(source.variable, values)], "parquet")


def _tabulate(variable: str, values: Values) -> pa.Table:
    """Make one column of values."""
    return pa.table({variable: values.ravel()})


def _put(folder: Location, name: str, parts: Iterable[pa.Table], suffix: TableSuffix) -> None:
    """Write tables into one file in memory, and put it."""
    sink = pa.BufferOutputStream()
    write_table(sink, parts, suffix, compression="zstd")
    obstore.put(folder.obstore(), name, sink.getvalue().to_pybytes())


def _fold(column: Any, stored: StoredArray, box: Box) -> Values:
    """Give a column of whole steps the shape of the array, and cut out what is asked of each."""
    values = np.asarray(column, np.float32).reshape(-1, *stored.shape[1:])
    return values[(slice(None), *box[1:])]


def open_table(
    folder: Location, stored: StoredArray, n_requests: int, *, suffix: str, **options: Any
) -> Read:
    """Read all of one file by pandas over s3fs, whatever is asked."""
    read_table = getattr(pd, f"read_{suffix}")
    url, options = (
        f"{folder.url}/array.{suffix}",
        options | {"storage_options": folder.fsspec_options()},
    )

    def read(box: Box) -> Values:
        return _fold(read_table(url, **options)[stored.variable], stored, box)[box[0]]

    return read


def open_groups(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read the row groups of the steps, of one file, by Arrow's own client."""
    opened = _arrow_client(folder).open_input_file(f"{folder.path}/array.parquet")
    file = pyarrow.parquet.ParquetFile(opened, pre_buffer=True)

    def read(box: Box) -> Values:
        wanted = range(stored.shape[0])[box[0]]
        table = file.read_row_groups([*wanted], columns=[stored.variable])
        return _fold(table[stored.variable].to_numpy(), stored, box)

    return read


def _arrow_client(folder: Location) -> Any:
    endpoint = urlsplit(folder.endpoint_url or "https://s3.amazonaws.com")
    return pyarrow.fs.S3FileSystem(
        access_key=folder.access_key,
        secret_key=folder.secret_key,
        session_token=folder.session_token or None,
        region=folder.region,
        scheme=endpoint.scheme,
        endpoint_override=endpoint.netloc if folder.endpoint_url else None,
    )


def open_parts(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by Arrow's own client, which asks for several files at once."""
    client = _arrow_client(folder)

    def read(box: Box) -> Values:
        wanted = range(stored.shape[0])[box[0]]
        paths = [f"{folder.path}/{name_part(step)}" for step in wanted]
        table = pyarrow.dataset.dataset(paths, filesystem=client, format="parquet").to_table()
        return _fold(table[stored.variable].to_numpy(), stored, box)

    return read
