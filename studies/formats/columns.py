"""Tables: an array as a column of text or of Parquet, and who reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import obstore
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet

from helpers.arrays.stores import StoredArray
from studies.formats.source import Box, Read, Source, Values
from wire.bed.locations import Location


def _name_part(step: int) -> str:
    return f"part-{step:05d}.parquet"


def write_csv(folder: Location, source: Source) -> None:
    """Write one table of text, a line for each value: what a table makes of an array."""
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(pa.table({source.variable: source.values.ravel()}), sink)
    obstore.put(folder.obstore(), "array.csv", sink.getvalue().to_pybytes())


def write_parquet(folder: Location, source: Source, *, name: str = "array.parquet") -> None:
    """Write one Parquet file, with a row group for each time step."""
    sink, n_rows = pa.BufferOutputStream(), int(np.prod(source.values.shape[1:]))
    table = pa.table({source.variable: source.values.ravel()})
    pyarrow.parquet.write_table(table, sink, compression="zstd", row_group_size=n_rows)
    obstore.put(folder.obstore(), name, sink.getvalue().to_pybytes())


def write_parts(folder: Location, source: Source) -> None:
    """Write a Parquet file for each time step."""
    for step, values in enumerate(source.values):
        write_parquet(folder, replace(source, values=values[None]), name=_name_part(step))


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
        paths = [f"{folder.path}/{_name_part(step)}" for step in wanted]
        table = pyarrow.dataset.dataset(paths, filesystem=client, format="parquet").to_table()
        return _fold(table[stored.variable].to_numpy(), stored, box)

    return read
