"""Lines of code to paste: what writes and reads a choice. Whatever comes from a dataset stands in `repr`."""

from __future__ import annotations

from advisors.decide.choices import Choice
from advisors.decide.layouts import Access
from advisors.decide.question import Question
from helpers.arrays.chunks import Shape

_BLOCK_NBYTES = 8 * 2**20  # of a block that is kept, and of a part of a file fetched whole
BUCKET, ARRAY, FILE = "s3://BUCKET", "array.zarr", "granule.h5"
"""What stands for the reader's own dataset where it lies in no bucket."""


def write_code(question: Question, choice: Choice) -> str:
    """Write the lines for a choice, in the address of the dataset where it lies in a bucket or on the web."""
    scheme, _, place = question.asked.address.rstrip("/").partition("://")
    bucket, name = BUCKET, FILE if choice.client.is_of_file else ARRAY
    if place and scheme in ("s3", "http", "https"):
        folder, _, last = place.rpartition("/")
        bucket, name = (f"{scheme}://{folder}", last) if folder else (f"{scheme}://{place}", "")
    write = _of_file if choice.client.is_of_file else _of_zarr
    return write(question, choice, bucket, name)


def _of_zarr(question: Question, choice: Choice, bucket: str, there: str) -> str:
    """Write the lines that make new copies and read the access that happens most."""
    asked, array = question.asked, question.array
    usual = max(zip(asked.shares, asked.accesses, strict=True), key=lambda pair: pair[0])[1]
    parts, read, variable = list[str](), there, "field"
    if asked.address:  # one that is given by its own address has no name in a group
        is_alone = asked.address.rstrip("/").endswith(f"/{array.variable}")
        variable = "" if is_alone else array.variable
    for i, (layout, names) in enumerate(zip(choice.layouts, choice.serves, strict=True), start=1):
        name = there
        if layout != array.layout and choice.action not in ("default", "set"):
            name = f"copy-{i}.zarr" if len(choice.layouts) > 1 else "new.zarr"
            dimensions = list(array.dimensions) or [f"d{j}" for j in range(len(array.shape))]
            parts.append(f"""\
import zarr
from obstore.store import from_url
from zarr.storage import ObjectStore

store = ObjectStore(from_url({f"{bucket}/{name}"!r}))
array = zarr.open_group(store, zarr_format=3).create_array(
    {variable!r}, shape={array.shape}, dtype={str(array.dtype)!r},
    chunks={layout.chunk_shape}, shards={layout.shard_shape},
    dimension_names={dimensions!r},
)""")
        read = name if usual.name in names else read
    address = f"{bucket}/{read}".rstrip("/")
    settings, store, imports = "", repr(address), ""
    if choice.client.in_turn == 1:
        settings = f'\nzarr.config.set({{"async.concurrency": {choice.in_flight}}})'
        store = f"ObjectStore(from_url({address!r}), read_only=True)"
        imports = "\nfrom obstore.store import from_url\nfrom zarr.storage import ObjectStore\n"
    parts.append(f"""\
import zarr{imports}{settings}
array = zarr.open_array({store}, path={variable!r}, mode="r")
values = array{_select(usual.extent, array.shape)}""")
    if asked.batch:
        parts.append(draw_boxes(usual, asked.batch, asked.workers, asked.prefetch))
    return "\n\n".join(parts)


def _select(extent: Shape, shape: Shape) -> str:
    """Write a selection of that extent, at the beginning of the array.

    Examples
    --------
    >>> _select((10, 1, 4), (10, 20, 20))
    '[:, 0, 0:4]'
    """
    parts = (
        ":" if part == n else "0" if part == 1 else f"0:{part}"
        for part, n in zip(extent, shape, strict=True)
    )
    return f"[{', '.join(parts)}]"


def draw_boxes(access: Access, batch: int, workers: int, prefetch: int) -> str:
    """Write the lines that draw random boxes of an open array for PyTorch, a batch side by side."""
    start = "rng.integers(0, np.subtract(array.shape, self.box) + 1)"
    if access.is_aligned:
        start = "self.box * rng.integers(0, np.floor_divide(array.shape, self.box))"
    return f"""\
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch


class RandomBoxes(torch.utils.data.Dataset):
    def __init__(self, n, box={access.extent}, seed=0):
        self.n, self.box, self.seed = n, box, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        start = {start}
        return array[tuple(slice(a, a + b) for a, b in zip(start, self.box))]

    def __getitems__(self, indices):  # what a loader calls for a batch
        with ThreadPoolExecutor({batch}) as pool:
            return list(pool.map(self.__getitem__, indices))


loader = torch.utils.data.DataLoader(
    RandomBoxes(1_000_000), batch_size={batch}, num_workers={workers},
    prefetch_factor={prefetch}, multiprocessing_context="forkserver",
)"""


def _of_file(question: Question, choice: Choice, bucket: str, name: str) -> str:
    """Write the lines that read a file of HDF5, and that repack it first where the choice does."""
    client, address = choice.client.name, f"{bucket}/{name}"
    if client == "obstore-whole":
        lines = f"""\
import io
from concurrent.futures import ThreadPoolExecutor

import h5py
import obstore
from obstore.store import from_url

store, name, part = from_url({bucket!r}), {name!r}, {_BLOCK_NBYTES}
nbytes = obstore.head(store, name)["size"]
whole = io.BytesIO()


def fetch(start):
    return obstore.get_range(store, name, start=start, end=min(start + part, nbytes))


with ThreadPoolExecutor({choice.in_flight}) as pool:
    for part_of_it in pool.map(fetch, range(0, nbytes, part)):
        whole.write(part_of_it)
granule = h5py.File(whole, "r")"""
    elif client == "references":
        lines = f"""\
import xarray as xr
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import from_url
from virtualizarr.parsers import HDFParser

zarr.config.set({{"async.concurrency": {choice.in_flight}}})
registry = ObjectStoreRegistry({{{bucket!r}: from_url({bucket!r})}})
store = HDFParser()({address!r}, registry)
dataset = xr.open_zarr(store, consolidated=False, zarr_format=3, chunks=None)"""
    else:
        how = f', cache_type="blockcache", block_size={_BLOCK_NBYTES}'
        is_web = bucket.startswith("http")
        files = ("fsspec.open", ").open()") if is_web else ("s3fs.S3FileSystem().open", ")")
        lines = f"""\
import h5py
import {files[0].partition(".")[0]}

file = {files[0]}({address!r}{how if client == "fsspec-tuned" else ""}{files[1]}
granule = h5py.File(file, "r")  # or xarray.open_dataset(file, engine="h5netcdf")"""
    if choice.action != "rechunk":
        return lines
    variable = question.array.variable if question.asked.address else "field"
    return f"""\
import h5py

with h5py.File({name!r}) as old, h5py.File(
    "new.h5", "w", fs_strategy="page", fs_page_size={_BLOCK_NBYTES}
) as new:
    new.create_dataset(
        {variable!r}, data=old[{variable!r}], chunks={choice.layouts[0].chunk_shape},
        shuffle=True, compression="gzip",
    )

{lines}"""
