"""Clients that an answer may name, and the lines of code that read with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisors.decide.question import Format, Reader
from helpers.arrays.chunks import Shape

BUCKET = "s3://BUCKET"
"""What stands for the reader's own bucket in every snippet."""


@dataclass(frozen=True, slots=True)
class Client:
    """A way to read that was measured and that anybody can install."""

    name: str  # of the contender in the records
    text: str  # how an answer calls it
    format: Format
    readers: tuple[Reader, ...]  # the libraries that read by it
    in_flight: int | None = None  # requests that it keeps in flight; None where that is a setting
    requests_per_chunk: int = 1  # one after the other; 2 where the length is asked for first


_ZARR: tuple[Reader, ...] = ("any", "xarray", "zarr")

CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client("zarr-obstore", "zarr through obstore", "zarr", _ZARR),
        Client("zarr-zarrs", "zarr through obstore, decoded by zarrs", "zarr", _ZARR, None, 2),
        Client("zarr-s3fs", "zarr through s3fs", "zarr", _ZARR, None, 2),
        Client(
            "fsspec-tuned",
            "h5py over s3fs, in blocks of 8 MiB that are kept",
            "hdf5",
            ("any", "xarray", "h5py"),
            1,
        ),
        Client(
            "obstore-whole",
            "h5py in memory, the file fetched at once by obstore",
            "hdf5",
            ("any", "xarray", "h5py"),
            10,
        ),
        Client(
            "references", "virtual references, read by zarr through obstore", "references", _ZARR
        ),
        Client("gdal", "GDAL", "zarr", ("gdal",)),
        Client("gdal-hdf5", "GDAL", "hdf5", ("gdal",), 1),
    )
}
"""Clients by the name of their contender."""

DEFAULT_HDF5 = "fsspec-readahead"
"""What people have who set nothing: the file object that ``s3fs.open`` returns."""


def clients_for(form: Format, reader: Reader) -> list[str]:
    """List the clients of a format that a library reads by."""
    return [c.name for c in CLIENTS.values() if c.format == form and reader in c.readers]


def write_array(shape: Shape, chunk: Shape, shard: Shape | None, dtype: str, *, copy: str) -> str:
    """Write the lines that make an array of Zarr in a bucket, without its values."""
    dimensions = json.dumps([f"d{i}" for i in range(len(shape))])
    return f"""\
import zarr
from obstore.store import from_url
from zarr.storage import ObjectStore

store = ObjectStore(from_url("{BUCKET}/{copy}.zarr"))
group = zarr.open_group(store, zarr_format=3)
array = group.create_array(
    "field", shape={shape}, dtype="{dtype}",
    chunks={chunk}, shards={shard},
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


def read_array(client: str, n_in_flight: int, n_workers: int, selection: str, *, copy: str) -> str:
    """Write the lines that open such an array with xarray and read a part of it."""
    settings = {"async.concurrency": n_in_flight}
    more = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"} if client == "zarr-zarrs" else {}
    lines = ["import xarray as xr", "import zarr"]
    store = f'"{BUCKET}/{copy}.zarr"'
    if client != "zarr-s3fs":
        lines += ["from obstore.store import from_url", "from zarr.storage import ObjectStore"]
        store = f"ObjectStore(from_url({store}), read_only=True)"
    each = f"  # in each of {n_workers} processes" if n_workers > 1 else ""
    lines += [
        "",
        f"zarr.config.set({settings | more}){each}".replace("'", '"'),
        f"store = {store}",
        "dataset = xr.open_zarr(store, consolidated=False, chunks=None)",
        f'values = dataset["field"]{selection}.values',
    ]
    return "\n".join(["import zarrs  # noqa: F401", *lines] if more else lines)


def read_blocks(block_nbytes: int, reader: Reader) -> str:
    """Write the lines that open an HDF5 file over blocks that are kept."""
    opened = 'h5py.File(file, "r")'
    if reader == "xarray":
        opened = 'xr.open_dataset(file, engine="h5netcdf")'
    return f"""\
import {"xarray as xr" if reader == "xarray" else "h5py"}
import s3fs

file = s3fs.S3FileSystem().open(
    "{BUCKET}/granule.h5", cache_type="blockcache", block_size={block_nbytes}
)
granule = {opened}"""


def read_whole(part_nbytes: int, n_in_flight: int, reader: Reader) -> str:
    """Write the lines that fetch an HDF5 file in parts, several at once, and open it in memory."""
    content = 'io.BytesIO(b"".join(parts))'
    opened = f'h5py.File({content}, "r")'
    if reader == "xarray":
        opened = f'xr.open_dataset({content}, engine="h5netcdf")'
    return f"""\
import io
from concurrent.futures import ThreadPoolExecutor

import {"xarray as xr" if reader == "xarray" else "h5py"}
import obstore
from obstore.store import from_url

store, name, part = from_url("{BUCKET}"), "granule.h5", {part_nbytes}
nbytes = obstore.head(store, name)["size"]


def fetch(start):
    stop = min(start + part, nbytes)
    return obstore.get_range(store, name, start=start, end=stop)


with ThreadPoolExecutor({n_in_flight}) as pool:
    parts = pool.map(fetch, range(0, nbytes, part))
    granule = {opened}"""


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


def rewrite_file(chunk: Shape, page_nbytes: int) -> str:
    """Write the lines that copy an HDF5 file into other chunks, its file space in pages."""
    return f"""\
import h5py

with h5py.File("granule.h5") as old, h5py.File(
    "new.h5", "w", fs_strategy="page", fs_page_size={page_nbytes}
) as new:
    values = old["field"]
    new.create_dataset(
        "field", data=values, chunks={chunk}, shuffle=True, compression="gzip"
    )"""


def keep_open(cache: str, ttl_s: float, n_datasets: int) -> str:
    """Write the lines that keep what a tile service has opened, where there is a cache of it."""
    how: Mapping[str, Sequence[str]] = {
        "disk": (
            "import diskcache",
            "",
            'cache = diskcache.Cache("datasets")',
            "",
            "",
            f"@cache.memoize(expire={ttl_s:g})",
        ),
        "none": (
            "from cachetools import TTLCache, cached",
            "",
            "",
            f"@cached(TTLCache({n_datasets}, {ttl_s:g}))  # in memory, for a process that lives on",
        ),
    }
    reading = [
        "def open_dataset(address):",
        "    store = ObjectStore(from_url(address), read_only=True)",
        "    return xr.open_zarr(store, consolidated=False, chunks=None)",
    ]
    imports = ["import xarray as xr", "from obstore.store import from_url"]
    imports += ["from zarr.storage import ObjectStore"]
    told = f'headers = {{"Cache-Control": "public, max-age={ttl_s:.0f}"}}  # of each tile'
    extra = ["", "", told] if cache.startswith("cdn") else []
    return "\n".join([*imports, *how.get(cache, how["none"]), *reading, *extra])
