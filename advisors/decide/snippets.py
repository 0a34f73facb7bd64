"""Lines of code to paste: what writes and reads a choice."""

from __future__ import annotations

import json

from advisors.chunks.question import Question
from advisors.decide.choices import BLOCK_NBYTES, Choice
from helpers.arrays.chunks import Shape

BUCKET, ARRAY, FILE = "s3://BUCKET", "array.zarr", "granule.h5"
"""What stands for the reader's own dataset where there is none."""


def write_code(question: Question, choice: Choice) -> str:
    """Write the lines for a choice, in the address of the dataset where it lies in a bucket."""
    code = (_of_file if choice.client.is_of_file else _of_zarr)(question, choice)
    if question.address.startswith("s3://"):
        bucket, _, name = question.address.rstrip("/").rpartition("/")
        code = code.replace(BUCKET, bucket)
        code = code.replace(FILE if choice.client.is_of_file else ARRAY, name)
    return code


def _of_zarr(question: Question, choice: Choice) -> str:
    """Write the lines that make new copies and read the access that happens most."""
    shape, is_copy = question.array.shape, len(choice.layouts) > 1
    usual = max(zip(question.shares, question.accesses, strict=True), key=lambda pair: pair[0])[1]
    parts, read = [], ARRAY
    for i, (layout, names) in enumerate(zip(choice.layouts, choice.serves, strict=True), start=1):
        name = ARRAY
        if layout != question.array.layout and choice.action != "default":
            name = f"copy-{i}.zarr" if is_copy else "new.zarr"
            parts.append(f"""\
import zarr
from obstore.store import from_url
from zarr.storage import ObjectStore

store = ObjectStore(from_url("{BUCKET}/{name}"))
array = zarr.open_group(store, zarr_format=3).create_array(
    "{_name(question)}", shape={shape}, dtype="{question.array.dtype}",
    chunks={layout.chunk_shape}, shards={layout.shard_shape},
    dimension_names={json.dumps(question.array.dimensions or [f"d{j}" for j in range(len(shape))])},
)""")
        read = name if usual.name in names else read
    settings = f'\nzarr.config.set({{"async.concurrency": {choice.in_flight}}})'
    store = f'ObjectStore(from_url("{BUCKET}/{read}"), read_only=True)'
    imports = "\nfrom obstore.store import from_url\nfrom zarr.storage import ObjectStore\n"
    if choice.client.in_turn > 1:
        settings, store, imports = "", f'"{BUCKET}/{read}"', ""
    parts.append(f"""\
import zarr{imports}{settings}
array = zarr.open_array({store}, path="{_name(question)}", mode="r")
values = array{select(usual.extent, shape)}""")
    if question.loader:
        loader = question.loader
        parts.append(draw_boxes(usual.extent, loader.batch, loader.workers, loader.prefetch))
    return "\n\n".join(parts)


def _name(question: Question) -> str:
    """Name the array in its group; one that is given by its own address has no name there."""
    if not question.address:
        return "field"
    is_alone = question.address.rstrip("/").endswith(f"/{question.array.variable}")
    return "" if is_alone else question.array.variable


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


def _of_file(question: Question, choice: Choice) -> str:
    """Write the lines that read a file of HDF5, and that repack it first where the choice does."""
    lines = {
        "fsspec-readahead": _READ.replace("HOW", ""),
        "fsspec-tuned": _READ.replace("HOW", f', cache_type="blockcache", block_size={BLOCK_NBYTES}'),
        "obstore-whole": _FETCH.replace("PART", f"{BLOCK_NBYTES}").replace("N_AT_ONCE", f"{choice.in_flight}"),
        "references": _REFER,
    }[choice.client.name]  # fmt: skip
    if choice.action != "rechunk":
        return lines
    name = question.array.variable if question.address else "field"
    repack = _REPACK.replace("NAME", name).replace("CHUNKS", f"{choice.layouts[0].chunk_shape}")
    return f"{repack}\n\n{lines}"


_READ = f"""\
import h5py
import s3fs

file = s3fs.S3FileSystem().open("{BUCKET}/{FILE}"HOW)
granule = h5py.File(file, "r")  # or xarray.open_dataset(file, engine="h5netcdf")"""

_FETCH = f"""\
import io
from concurrent.futures import ThreadPoolExecutor

import h5py
import obstore
from obstore.store import from_url

store, name, part = from_url("{BUCKET}"), "{FILE}", PART
nbytes = obstore.head(store, name)["size"]


def fetch(start):
    return obstore.get_range(store, name, start=start, end=min(start + part, nbytes))


with ThreadPoolExecutor(N_AT_ONCE) as pool:
    parts = pool.map(fetch, range(0, nbytes, part))
    granule = h5py.File(io.BytesIO(b"".join(parts)), "r")"""

_REFER = f"""\
import xarray as xr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import from_url
from virtualizarr.parsers import HDFParser

registry = ObjectStoreRegistry({{"{BUCKET}": from_url("{BUCKET}")}})
store = HDFParser()("{BUCKET}/{FILE}", registry)
dataset = xr.open_zarr(store, consolidated=False, zarr_format=3, chunks=None)"""

_REPACK = f"""\
import h5py

with h5py.File("{FILE}") as old, h5py.File(
    "new.h5", "w", fs_strategy="page", fs_page_size={BLOCK_NBYTES}
) as new:
    new.create_dataset(
        "NAME", data=old["NAME"], chunks=CHUNKS, shuffle=True, compression="gzip"
    )"""
