"""Tables: an array as a column of text or of Parquet, and who reads it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import xxhash

from helpers.arrays.stores import StoredArray
from helpers.objectstore.locations import Location
from studies.formats.formats import Box, Read, Values, part_name


def _fold(column: Any, stored: StoredArray, box: Box) -> Values:
    """Give a column of whole steps the shape of the array, and cut out what is asked of each."""
    values = np.asarray(column, np.float32).reshape(-1, *stored.shape[1:])
    return values[(slice(None), *box[1:])]


def open_csv(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read all of one file by pandas over s3fs, whatever is asked."""
    url, options = f"{folder.url}/array.csv", folder.fsspec_options()

    def read(box: Box) -> Values:
        frame = pd.read_csv(url, storage_options=options, dtype=np.float32)
        return _fold(frame[stored.variable], stored, box)[box[0]]

    return read


def open_parquet(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read all of one file by pandas over s3fs, whatever is asked."""
    url, options = f"{folder.url}/array.parquet", folder.fsspec_options()

    def read(box: Box) -> Values:
        frame = pd.read_parquet(url, storage_options=options)
        return _fold(frame[stored.variable], stored, box)[box[0]]

    return read


def open_csv_parts(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read by pandas, a file after the other."""
    options = folder.fsspec_options()

    def read(box: Box) -> Values:
        wanted = range(stored.shape[0])[box[0]]
        urls = [f"{folder.url}/{part_name(step, 'csv')}" for step in wanted]
        parts = [pd.read_csv(url, storage_options=options, dtype=np.float32) for url in urls]
        return _fold(pd.concat(parts)[stored.variable], stored, box)

    return read


def open_groups(folder: Location, stored: StoredArray, n_requests: int) -> Read:
    """Read the row groups of the steps, of one file, by Arrow's own client."""
    file = _open_file(folder, pre_buffer=True)

    def read(box: Box) -> Values:
        wanted = range(stored.shape[0])[box[0]]
        table = file.read_row_groups([*wanted], columns=[stored.variable])
        return _fold(table[stored.variable].to_numpy(), stored, box)

    return read


def digest_groups(folder: Location, stored: StoredArray) -> str:
    """Digest the values a row group after the other, so that no two are in memory at once."""
    file, digest = _open_file(folder), xxhash.xxh3_64()
    for group in range(file.num_row_groups):
        column = file.read_row_group(group, columns=[stored.variable])[stored.variable]
        digest.update(np.ascontiguousarray(column.to_numpy(), np.float32).data)
    return str(digest.hexdigest())


def _open_file(folder: Location, **options: Any) -> Any:
    opened = _arrow_client(folder).open_input_file(f"{folder.path}/array.parquet")
    return pyarrow.parquet.ParquetFile(opened, **options)


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
        paths = [f"{folder.path}/{part_name(step)}" for step in wanted]
        table = pyarrow.dataset.dataset(paths, filesystem=client, format="parquet").to_table()
        return _fold(table[stored.variable].to_numpy(), stored, box)

    return read
