"""Clients of whole chunks, in whatever interpreter and versions an environment has; it imports nothing of ours.

`wire.ledger.process` runs them: an operation opens, pauses, and does the rest.
"""

# ruff: noqa: UP031, B905
# It runs on Python 3.8 as well.

from __future__ import annotations

import importlib
import zlib
from dataclasses import dataclass, field
from functools import partial
from operator import getitem
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import SimpleNamespace

    At = SimpleNamespace  # a path in the store, its addresses there, and the keys
    Selection = tuple[slice, ...]

ARRAY = "temperature"
STEPS = 8  # of time in a chunk
RANGE_NBYTES = 2**16
GAPS = {"gap %d KiB" % n: n * 1024 for n in (0, 64, 1024, 8192)}
"""Operations that read scattered ranges of a file, each joined over gaps of so many bytes at most."""


def scatter(n: int = 48) -> tuple[list[int], list[int]]:
    """Place ranges in a file: begin and end of each, with gaps from 8 KiB to 2 MiB between them."""
    starts = [0]
    for i in range(n - 1):  # evenly on a log scale, small and large ones mixed
        gap = 2 ** (13 + 8 * (i * 0.6180339887498949 % 1))
        starts.append(starts[-1] + RANGE_NBYTES + int(gap))
    return starts, [start + RANGE_NBYTES for start in starts]


def selections(shape: Sequence[int], chunks: Sequence[int]) -> dict[str, Selection]:
    """Map each operation on the array to what it selects."""
    t, y, x = chunks
    return {
        "one chunk": (slice(0, t), slice(0, y), slice(0, x)),
        "series": (slice(None), slice(3, 4), slice(5, 6)),
        "map": (slice(1, 2), slice(None), slice(None)),
        "box": (slice(t // 2, t + t // 2), slice(y // 2, y + y // 2), slice(x // 2, x + x // 2)),
        "whole": (slice(None),) * len(shape),
    }


def use(name: str) -> Any:
    """Import a library, of which no type is known: it is of many years."""
    return importlib.import_module(name)


def is_zarr_2() -> bool:
    """Tell whether the zarr of this environment is older than version 3."""
    return int(use("zarr").__version__.split(".")[0]) < 3


# How a client reaches the store.


def s3_options(place: At) -> dict[str, Any]:
    """Give the options of s3fs."""
    kwargs = {"endpoint_url": place.endpoint_url, "region_name": place.region}
    return {"key": place.key, "secret": place.secret, "client_kwargs": kwargs}


def filesystem(place: At) -> Any:
    """Make a file system of s3fs."""
    return use("s3fs").S3FileSystem(**s3_options(place))


def group_at(place: At) -> dict[str, Any]:
    """Give what leads zarr and xarray to a group through s3fs."""
    if is_zarr_2():
        return {"store": filesystem(place).get_mapper(place.url)}
    return {"store": place.url, "storage_options": s3_options(place)}


def obstore(place: At, **more: str) -> Any:
    """Make a store of obstore."""
    return use("obstore.store").S3Store(
        place.bucket, endpoint=place.endpoint_url, access_key_id=place.key, secret_access_key=place.secret,
        region=place.region, client_options={"allow_http": True}, **more,
    )  # fmt: skip


# Groups of zarr, datasets of xarray and files of HDF5.


def zarr_s3fs(place: At, mode: str = "r") -> Any:
    """Open a group of zarr through s3fs."""
    if not is_zarr_2():
        return use("zarr").open_group(**group_at(place), mode=mode, use_consolidated=True)
    opener = use("zarr").open_consolidated if mode == "r" else use("zarr").open_group
    return opener(**group_at(place), mode=mode)


def zarr_gcsfs(place: At) -> Any:
    """Open a group of zarr through gcsfs, in a store that asks for no credentials."""
    options = {"endpoint_url": place.endpoint_url, "token": "anon", "project": "any"}
    where = {"store": "gs://%s/%s" % (place.bucket, place.path), "storage_options": options}
    return use("zarr").open_group(**where, mode="r", use_consolidated=True)


def zarr_obstore(place: At, mode: str = "r", pipeline: str = "") -> Any:
    """Open a group of zarr through obstore, with another pipeline of codecs if one is named."""
    store = use("zarr.storage").ObjectStore(
        obstore(place, prefix=place.path), read_only=mode == "r"
    )
    if pipeline:
        use("zarr").config.set({"codec_pipeline.path": pipeline})
    return use("zarr").open_group(store, mode=mode, use_consolidated=True)


def zeros(array: Any, dtype: Any = None) -> Any:
    """Make a chunk of time for an array."""
    return use("numpy").zeros((STEPS, *array.shape[1:]), dtype or array.dtype)


def xarray_zarr(place: At, **options: Any) -> Any:
    """Open a dataset of Zarr through s3fs."""
    return use("xarray").open_zarr(**group_at(place), **options)


def append_xarray(place: At, opened: Any) -> None:
    """Append a chunk of time to a variable of a dataset."""
    more = opened.isel(time=slice(0, STEPS)).load().to_dataset(name=ARRAY)
    more = more.drop_vars([name for name in more.coords if name not in more.dims])
    more.to_zarr(**group_at(place), append_dim="time", consolidated=True)


def xarray_kerchunk(place: At) -> Any:
    """Open references of kerchunk through fsspec."""
    options = s3_options(place)
    fs = use("fsspec").filesystem(
        "reference", fo=place.url, remote_protocol="s3", target_protocol="s3", target_options=options,
        remote_options=dict(options, asynchronous=True), skip_instance_cache=True, asynchronous=True,
    )  # fmt: skip
    store = use("zarr.storage").FsspecStore(fs, read_only=True, path="")
    return use("xarray").open_zarr(store, consolidated=False, zarr_format=2, chunks=None)


def xarray_virtualizarr(place: At) -> Any:
    """Open a manifest that VirtualiZarr makes of a file."""
    stores = {"s3://%s" % place.bucket: obstore(place)}
    registry = use("obspec_utils.registry").ObjectStoreRegistry(stores)
    manifest = use("virtualizarr.parsers").HDFParser()(place.url, registry=registry)
    return use("xarray").open_zarr(manifest, consolidated=False, zarr_format=3, chunks=None)


def open_ros3(place: At) -> Any:
    """Open the array of a file by h5py with HDF5's own driver for S3."""
    h5py = use("h5py")
    if "ros3" not in h5py.registered_drivers():
        raise LookupError("the HDF5 of this wheel has no ROS3 driver")
    keys = {"aws_region": place.region, "secret_id": place.key, "secret_key": place.secret}
    keys = {name: value.encode() for name, value in keys.items()}
    return h5py.File(place.http_url, "r", driver="ros3", **keys)[ARRAY]


def count_maps(named: Mapping[str, Any]) -> int:
    """Count the variables of two dimensions."""
    return sum(variable.ndim == 2 for variable in named.values())


# Scattered ranges of a file.


def ranges_obstore(opened: tuple[Any, str], gap: int) -> bytes:
    """Read them by obstore, which joins them."""
    (store, path), (starts, ends) = opened, scatter()
    parts = use("obstore").get_ranges(store, path, starts=starts, ends=ends, coalesce=gap)
    return b"".join(bytes(part) for part in parts)


def ranges_fsspec(opened: tuple[Any, str], gap: int) -> bytes:
    """Read them by fsspec, joined as its references do it."""
    (fs, where), (starts, ends) = opened, scatter()
    joined = use("fsspec.utils").merge_offset_ranges(
        [where] * len(starts), starts[:], ends, max_gap=gap, sort=False
    )
    blocks = dict(zip(joined[1], fs.cat_ranges(*joined)))
    parts = [
        (blocks[block_start], n - block_start)
        for n in starts
        for block_start in [max(a for a in blocks if a <= n)]
    ]
    return b"".join(block[n : n + RANGE_NBYTES] for block, n in parts)


# Icechunk, TensorStore, GDAL, TileDB.


def icechunk(place: At, action: str = "open") -> Any:
    """Open or create a repository."""
    storage = use("icechunk").s3_storage(
        bucket=place.bucket, prefix=place.path, region=place.region, endpoint_url=place.endpoint_url,
        allow_http=True, force_path_style=True, access_key_id=place.key, secret_access_key=place.secret,
    )  # fmt: skip
    return getattr(use("icechunk").Repository, action)(storage)


def write_icechunk(place: At, arrays: Mapping[str, Any], chunks: Any) -> None:
    """Write arrays and commit them."""
    session = icechunk(place, "create").writable_session("main")
    group = use("zarr").create_group(session.store, overwrite=True)
    for name, values in arrays.items():
        shape = chunks if values.ndim == 3 else values.shape
        created = group.create_array(name, shape=values.shape, chunks=shape, dtype=values.dtype)
        created[:] = values
    session.commit("written")


def open_icechunk_to_append(place: At) -> Any:
    """Open the array in a session that writes."""
    session = icechunk(place).writable_session("main")
    return use("zarr").open_group(session.store, mode="r+")[ARRAY], session


def append_icechunk(_place: At, opened: tuple[Any, Any]) -> None:
    """Append a chunk of time and commit it."""
    array, session = opened
    array.append(zeros(array))
    session.commit("appended")


def open_tensorstore(place: At) -> Any:
    """Open the array."""
    kvstore = {
        "driver": "s3", "bucket": place.bucket, "path": "%s/%s/" % (place.path, ARRAY),
        "endpoint": place.endpoint_url, "aws_region": place.region,
    }  # fmt: skip
    spec = {"driver": "zarr3" if "v3" in place.path else "zarr", "kvstore": kvstore}
    return use("tensorstore").open(spec, open=True).result()


def append_tensorstore(_place: At, opened: Any) -> None:
    """Append a chunk of time."""
    n = opened.shape[0]
    larger = opened.resize(exclusive_max=[n + STEPS, *opened.shape[1:]]).result()
    larger[n:].write(zeros(opened, opened.dtype.numpy_dtype)).result()


def open_gdal(place: At) -> Any:
    """Open a GeoTIFF through rasterio, in an environment that lasts as long."""
    env = use("rasterio").Env(
        AWS_S3_ENDPOINT=place.host, AWS_HTTPS="NO", AWS_VIRTUAL_HOSTING="FALSE",
        GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR",
    )  # fmt: skip
    env.__enter__()
    return use("rasterio").open("/vsis3/%s/%s" % (place.bucket, place.path)), env


def read_gdal(opened: tuple[Any, Any], selection: Selection) -> Any:
    """Read bands and a window of each."""
    file, _ = opened
    bands, *window = [part.indices(n)[:2] for part, n in zip(selection, (file.count, *file.shape))]
    indexes = [n + 1 for n in range(*bands)]
    return file.read(indexes, window=use("rasterio.windows").Window.from_slices(*window))


def tiledb_context(place: At) -> Any:
    """Tell TileDB where the store is."""
    settings = {
        "endpoint_override": place.host, "scheme": "http", "use_virtual_addressing": "false",
        "region": place.region, "aws_access_key_id": place.key, "aws_secret_access_key": place.secret,
    }  # fmt: skip
    return use("tiledb").Ctx({"vfs.s3.%s" % name: value for name, value in settings.items()})


def write_tiledb(place: At, arrays: Mapping[str, Any], chunks: Any) -> None:
    """Write the array."""
    values, ctx, tiledb = arrays[ARRAY], tiledb_context(place), use("tiledb")
    dims = [
        tiledb.Dim(name, domain=(0, n - 1), tile=tile, dtype=use("numpy").int32, ctx=ctx)
        for name, n, tile in zip(("time", "y", "x"), values.shape, chunks)
    ]
    zlib_filter = tiledb.FilterList([tiledb.GzipFilter(level=1)])
    attr = tiledb.Attr(dtype=values.dtype, filters=zlib_filter, ctx=ctx)
    schema = tiledb.ArraySchema(tiledb.Domain(*dims, ctx=ctx), attrs=[attr], ctx=ctx)
    tiledb.Array.create(place.url, schema, ctx=ctx)
    with tiledb.open(place.url, "w", ctx=ctx) as array:
        array[:] = values


@dataclass(frozen=True)
class LedgerClient:
    """What a client reads, and does for each operation; what it lacks is None."""

    modules: str  # imported before the first job
    layouts: tuple[str, ...]  # that it is asked for
    open: Callable[[At], Any]  # the array, or the group that holds it
    read: Callable[[Any, Any], Any] = getitem
    count: Callable[[Any], int] | None = None  # the arrays of a group, with their metadata
    open_to_append: Callable[[At], Any] | None = None  # else as to read
    append: Callable[[At, Any], None] | None = None
    write: Callable[[At, Mapping[str, Any], Any], None] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # variables set before imports
    forks: bool = True  # whether a child of a process that has imported it can use it

    @property
    def accesses(self) -> Operations:
        """What it does, by layout and operation."""
        return Operations(self)


of_zarr = partial(LedgerClient, count=lambda group: len(list(group.arrays())))
"""Reads groups of zarr."""
of_xarray = partial(
    LedgerClient,
    read=lambda array, selection: array.isel(dict(zip(array.dims, selection))).values,
    count=lambda dataset: len(dataset.data_vars),
)
"""Reads datasets of xarray."""
NETCDF = ("netcdf", "netcdf-large")
ALL_ZARR = ("zarr-v2", "zarr-v3", "zarr-v3-sharded")
PLAIN = ("zarr-v2-unconsolidated",)
XARRAY_ZARR = "xarray zarr s3fs dask.array numcodecs"
# fmt: off
CLIENTS = {
    "zarr-s3fs": of_zarr(
        "zarr s3fs numcodecs", ALL_ZARR, zarr_s3fs,
        open_to_append=lambda place: zarr_s3fs(place, "r+")[ARRAY],
        append=lambda _place, array: array.append(zeros(array)),
    ),
    "zarr-obstore": of_zarr(
        "zarr obstore.store numcodecs", ALL_ZARR, zarr_obstore,
        open_to_append=lambda place: zarr_obstore(place, "r+")[ARRAY],
        append=lambda _place, array: array.append(zeros(array)),
    ),
    "zarr-gcsfs": of_zarr(
        "zarr gcsfs numcodecs", ALL_ZARR, zarr_gcsfs,
        environment={"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"},  # no emulator answers gRPC
    ),
    "zarr-zarrs": of_zarr(
        "zarr zarrs obstore.store", ALL_ZARR[1:],
        partial(zarr_obstore, pipeline="zarrs.ZarrsCodecPipeline"),
    ),
    "xarray-zarr": of_xarray(
        XARRAY_ZARR, ("zarr-v2",), partial(xarray_zarr, consolidated=True, chunks=None),
        append=append_xarray,
    ),
    "xarray-zarr-dask": of_xarray(
        XARRAY_ZARR, ("zarr-v2",), partial(xarray_zarr, consolidated=True, chunks={})
    ),
    "xarray-zarr-unconsolidated": of_xarray(
        XARRAY_ZARR, PLAIN, partial(xarray_zarr, consolidated=False, chunks=None)
    ),
    "h5netcdf": of_xarray(
        "xarray h5netcdf s3fs", NETCDF,
        lambda place: use("xarray").open_dataset(filesystem(place).open(place.url), engine="h5netcdf"),
    ),
    "h5py-s3fs": LedgerClient(
        "h5py s3fs", NETCDF, lambda place: use("h5py").File(filesystem(place).open(place.url), "r"),
        count=count_maps,
    ),
    "ros3": LedgerClient("h5py", NETCDF, open_ros3),
    "netcdf4-bytes": LedgerClient(
        "netCDF4", ("netcdf",), lambda place: use("netCDF4").Dataset(place.http_url + "#mode=bytes"),
        count=lambda file: count_maps(file.variables),
    ),
    "kerchunk": of_xarray(
        "xarray zarr s3fs fsspec.implementations.reference numcodecs", ("references",),
        xarray_kerchunk,
    ),
    "virtualizarr": of_xarray(
        "xarray virtualizarr zarr obstore.store", ("netcdf",), xarray_virtualizarr
    ),
    "ranges-obstore": LedgerClient(
        "obstore.store", NETCDF[1:], lambda place: (obstore(place), place.path), ranges_obstore
    ),
    "ranges-fsspec": LedgerClient(
        "s3fs fsspec.utils", NETCDF[1:], lambda place: (filesystem(place), place.url), ranges_fsspec
    ),
    "icechunk": of_zarr(
        "icechunk zarr numcodecs", ("icechunk",),
        lambda place: use("zarr").open_group(icechunk(place).readonly_session("main").store, mode="r"),
        open_to_append=open_icechunk_to_append, append=append_icechunk, write=write_icechunk,
        forks=False,  # its threads start when it is imported
    ),
    "tensorstore": LedgerClient(
        "tensorstore", ALL_ZARR, open_tensorstore,
        lambda array, selection: array[selection].read().result(), append=append_tensorstore,
    ),
    "gdal": LedgerClient("rasterio", ("geotiff",), open_gdal, read_gdal),
    "tiledb": LedgerClient(
        "tiledb", ("tiledb",), lambda place: use("tiledb").open(place.url, ctx=tiledb_context(place)),
        write=write_tiledb,
    ),
}
# fmt: on
"""Each client of the ledger; another one is one more line."""


def digest(values: Any) -> int:
    """Compute a checksum of what was read, whatever holds it."""
    if isinstance(values, bytes):
        return zlib.crc32(values)
    np = use("numpy")
    values = np.squeeze(np.ascontiguousarray(np.asarray(values, "<f4")))
    return zlib.crc32(np.ascontiguousarray(values).tobytes())


def run_operation(place: At, client: LedgerClient, operation: str) -> Any:
    """Run an operation; return the checksum of what it read, or the number of variables that it saw."""
    if operation == "write" and client.write:
        client.write(place, dict(use("numpy").load(place.arrays)), tuple(place.chunks))
        return None
    if operation.startswith("metadata") and client.count:
        return client.count(client.open(place))
    if operation == "append" and client.open_to_append:
        opened = client.open_to_append(place)
    else:
        opened = client.open(place)[ARRAY] if client.count else client.open(place)
    if place.pause() == "end":
        return None
    if operation == "append" and client.append:
        client.append(place, opened)
        return None
    selection = {**selections(place.shape, place.chunks), **GAPS}[operation]
    return digest(client.read(opened, selection))


class Operations:
    """The operations of a client by layout and name, each a function of a place."""

    def __init__(self, client: LedgerClient) -> None:
        self.client = client

    def __getitem__(self, key: tuple[str, str]) -> Callable[[At], Any]:
        """Return an operation; its layout is where the place is."""
        return partial(run_operation, client=self.client, operation=key[1])
