"""Clients that an answer may name: what they ask of a store, where they were measured, their lines of code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from advisors.chunks.problem import Layout
from helpers.arrays.chunks import Shape

BUCKET = "s3://BUCKET"
"""What stands for the reader's own bucket in lines of code."""

_CASES = Path(__file__).with_name("cases.yaml")
_FACTOR = 4.0  # between bytes of a request here and where a client was measured, at most


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """A way to read, with its settings."""

    name: str
    text: str  # how an answer calls it
    request_nbytes: tuple[float, float]  # of the requests that were measured, from least to most
    in_flight: int | None = None  # requests at once; None where that is a setting
    in_turn: float = 1.0  # requests a chunk, one after the other
    is_of_file: bool = False  # whether it reads a file of HDF5
    opens_in: tuple[int, int] = (0, 0)  # requests and waits that opening takes, for each read

    @property
    def cases(self) -> Mapping[str, str]:
        """The case that measured it, by network."""
        return read_cases()[self.name]

    def support(self, profile: str, request_nbytes: float) -> str:
        """Say what a prediction rests on: where the client was measured, and how alike that is."""
        low, high = self.request_nbytes
        is_alike = low / _FACTOR <= request_nbytes <= high * _FACTOR
        if profile in self.cases and is_alike:
            return f"predicted, client measured in {self.cases[profile]}"
        case = self.cases.get(profile) or next(iter(self.cases.values()))
        if profile in self.cases or is_alike:
            return f"extrapolated from {case}"
        return f"unknown: run {case} with profile {profile}"


# s3fs since 2026 asks for the length of each chunk first; opening a dataset of Zarr with it took
# seven requests twice, one with the next, in the ledger of requests of zarr 3.4 and s3fs 2026.9.
DEFAULT_ZARR = Client(
    "zarr-s3fs", "zarr over s3fs, as it comes", (5e5, 2.4e6), 10, 2.0, opens_in=(14, 8)
)
ZARR = Client("zarr-obstore", "zarr over obstore", (9e4, 2.4e7))
DEFAULT_FILE = Client(
    "fsspec-readahead",
    "h5py over s3fs.open, as it comes",
    (2.5e7, 5.2e7),
    1,
    is_of_file=True,
)
WHOLE = Client(
    "obstore-whole", "the file fetched whole, in parallel", (8e6, 8.4e6), is_of_file=True
)
BLOCKS = Client(
    "fsspec-tuned", "h5py over s3fs, 8 MiB blocks kept", (1.7e6, 8.4e6), 1, is_of_file=True
)
REFERENCES = Client(
    "references", "virtual references, zarr over obstore", (4e4, 2.4e6), is_of_file=True
)


@cache
def read_cases() -> Mapping[str, Mapping[str, str]]:
    """Read which case of the book measured each client over each network."""
    found: Mapping[str, Mapping[str, str]] = yaml.safe_load(_CASES.read_text(encoding="utf-8"))
    return found


CLIENTS = (DEFAULT_ZARR, ZARR, DEFAULT_FILE, WHOLE, BLOCKS, REFERENCES)

READAHEAD_NBYTES = 50 * 2**20
"""What ``s3fs.open`` reads ahead by default."""

BLOCK_NBYTES = 8 * 2**20
"""Of a block that is kept, and of a part of a file fetched whole."""


def write_array(shape: Shape, layout: Layout, dtype: str, name: str) -> str:
    """Write the lines that make an array of Zarr in a bucket, without its values."""
    dimensions = json.dumps([f"d{i}" for i in range(len(shape))])
    return f"""\
import zarr
from obstore.store import from_url
from zarr.storage import ObjectStore

store = ObjectStore(from_url("{BUCKET}/{name}.zarr"))
group = zarr.open_group(store, zarr_format=3)
array = group.create_array(
    "field", shape={shape}, dtype="{dtype}",
    chunks={layout.chunk_shape}, shards={layout.shard_shape},
    dimension_names={dimensions},
)"""


def select(extent: Shape, shape: Shape) -> str:
    """Write a selection of that extent, at the beginning of the array.

    Examples
    --------
    >>> select((10, 1, 4), (10, 20, 20))
    '[:, 0, 0:4]'
    """
    parts = (
        ":" if part == n else "0" if part == 1 else f"0:{part}"
        for part, n in zip(extent, shape, strict=True)
    )
    return f"[{', '.join(parts)}]"


def read_array(client: Client, in_flight: int, selection: str, address: str) -> str:
    """Write the lines that open an array of Zarr and read a part of it."""
    if client is DEFAULT_ZARR:
        return f"""\
import zarr

array = zarr.open_group("{address}", mode="r")["field"]
values = array{selection}"""
    return f"""\
import zarr
from obstore.store import from_url
from zarr.storage import ObjectStore

zarr.config.set({{"async.concurrency": {in_flight}}})
store = ObjectStore(from_url("{address}"), read_only=True)
array = zarr.open_group(store, mode="r")["field"]
values = array{selection}"""


def draw_boxes(extent: Shape, batch: int, workers: int, prefetch: int) -> str:
    """Write the lines that draw random boxes of an open array for PyTorch, a batch side by side."""
    return f"""\
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch


class RandomBoxes(torch.utils.data.Dataset):
    def __init__(self, n, box={extent}, seed=0):
        self.n, self.box, self.seed = n, box, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        start = rng.integers(0, np.subtract(array.shape, self.box) + 1)
        return array[tuple(slice(a, a + b) for a, b in zip(start, self.box))]

    def __getitems__(self, indices):  # what a loader calls for a batch
        with ThreadPoolExecutor({batch}) as pool:
            return list(pool.map(self.__getitem__, indices))


loader = torch.utils.data.DataLoader(
    RandomBoxes(1_000_000), batch_size={batch}, num_workers={workers},
    prefetch_factor={prefetch}, multiprocessing_context="forkserver",
)"""


def read_blocks() -> str:
    """Write the lines that open an HDF5 file over blocks that are kept."""
    return f"""\
import h5py
import s3fs

file = s3fs.S3FileSystem().open(
    "{BUCKET}/granule.h5", cache_type="blockcache", block_size={BLOCK_NBYTES}
)
granule = h5py.File(file, "r")  # or xarray.open_dataset(file, engine="h5netcdf")"""


def read_default() -> str:
    """Write the lines that people have who set nothing."""
    return f"""\
import h5py
import s3fs

granule = h5py.File(s3fs.S3FileSystem().open("{BUCKET}/granule.h5"), "r")"""


def read_whole(in_flight: int) -> str:
    """Write the lines that fetch an HDF5 file in parts, several at once, and open it in memory."""
    return f"""\
import io
from concurrent.futures import ThreadPoolExecutor

import h5py
import obstore
from obstore.store import from_url

store, name, part = from_url("{BUCKET}"), "granule.h5", {BLOCK_NBYTES}
nbytes = obstore.head(store, name)["size"]


def fetch(start):
    return obstore.get_range(store, name, start=start, end=min(start + part, nbytes))


with ThreadPoolExecutor({in_flight}) as pool:
    parts = pool.map(fetch, range(0, nbytes, part))
    granule = h5py.File(io.BytesIO(b"".join(parts)), "r")"""


def read_references() -> str:
    """Write the lines that read the chunks of an HDF5 file as Zarr."""
    return f"""\
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import from_url
from virtualizarr.parsers import HDFParser

registry = ObjectStoreRegistry({{"{BUCKET}": from_url("{BUCKET}")}})
store = HDFParser()("{BUCKET}/granule.h5", registry)
dataset = xr.open_zarr(store, consolidated=False, zarr_format=3, chunks=None)"""


def rewrite_file(chunk: Shape) -> str:
    """Write the lines that copy an HDF5 file into other chunks, its file space in pages."""
    return f"""\
import h5py

with h5py.File("granule.h5") as old, h5py.File(
    "new.h5", "w", fs_strategy="page", fs_page_size={BLOCK_NBYTES}
) as new:
    values = old["field"]
    new.create_dataset(
        "field", data=values, chunks={chunk}, shuffle=True, compression="gzip"
    )"""
