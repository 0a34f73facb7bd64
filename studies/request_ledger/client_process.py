"""Clients of the ledger, in whatever interpreter and versions an environment has; it imports nothing of ours.

It reads jobs as lines of JSON, each done in a child of its own that has imported the libraries
and nothing else: no connection, loop or cache of an earlier job. A child says `opened`, waits
for a line, does the operation and says what it read.
"""

# ruff: noqa: UP031, B905
# It runs on Python 3.8 as well.

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import zlib
from dataclasses import dataclass
from functools import partial
from operator import getitem
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Where = Mapping[str, str]  # address, bucket, region and keys of the store
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


def s3_options(where: Where) -> dict[str, Any]:
    """Give the options of s3fs."""
    kwargs = {"endpoint_url": where["endpoint_url"], "region_name": where["region"]}
    return {"key": where["key"], "secret": where["secret"], "client_kwargs": kwargs}


def filesystem(where: Where) -> Any:
    """Make a file system of s3fs."""
    return use("s3fs").S3FileSystem(**s3_options(where))


def url(where: Where, path: str) -> str:
    """Give the address of a path."""
    return "s3://%s/%s" % (where["bucket"], path)


def http_url(where: Where, path: str) -> str:
    """Give the address of an object behind HTTP."""
    return "%s/%s/%s" % (where["endpoint_url"], where["bucket"], path)


def obstore(where: Where, **more: str) -> Any:
    """Make a store of obstore."""
    return use("obstore.store").S3Store(
        where["bucket"],
        endpoint=where["endpoint_url"],
        access_key_id=where["key"],
        secret_access_key=where["secret"],
        region=where["region"],
        client_options={"allow_http": True},
        **more,
    )


# Arrays of zarr, through s3fs, through obstore, and with the codec pipeline of zarrs.


def zarr_s3fs(where: Where, path: str, mode: str = "r") -> Any:
    """Open a group of zarr through s3fs."""
    zarr = use("zarr")
    if not is_zarr_2():
        options = {"use_consolidated": True, "storage_options": s3_options(where)}
        return zarr.open_group(url(where, path), mode=mode, **options)
    store = filesystem(where).get_mapper(url(where, path))
    return zarr.open_consolidated(store, mode="r") if mode == "r" else zarr.open_group(store, mode=mode)  # fmt: skip


def zarr_obstore(where: Where, path: str, mode: str = "r") -> Any:
    """Open a group of zarr through obstore."""
    store = use("zarr.storage").ObjectStore(obstore(where, prefix=path), read_only=mode == "r")
    return use("zarr").open_group(store, mode=mode, use_consolidated=True)


def zarr_zarrs(where: Where, path: str, mode: str = "r") -> Any:
    """Open a group of zarr through obstore, with the codec pipeline of zarrs."""
    use("zarr").config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    return zarr_obstore(where, path, mode)


def list_arrays(group: Any) -> list[str]:
    """List the arrays of a group, with their metadata."""
    return sorted(name for name, _ in group.arrays())


def zeros(array: Any, dtype: Any = None) -> Any:
    """Make a chunk of time for an array."""
    return use("numpy").zeros((STEPS, *array.shape[1:]), dtype or array.dtype)


def append_zarr(_where: Where, _path: str, opened: Any) -> None:
    """Append a chunk of time."""
    opened.append(zeros(opened))


def select_by_name(opened: Any, selection: Selection) -> Any:
    """Read a selection of a variable of xarray."""
    return opened.isel(dict(zip(opened.dims, selection))).values


# xarray.


def xarray_zarr(where: Where, path: str, **options: Any) -> Any:
    """Open a dataset of Zarr through s3fs."""
    if is_zarr_2():
        mapper = filesystem(where).get_mapper(url(where, path))
        return use("xarray").open_zarr(mapper, **options)
    return use("xarray").open_zarr(url(where, path), storage_options=s3_options(where), **options)


def append_xarray(where: Where, path: str, opened: Any) -> None:
    """Append a chunk of time to a variable of a dataset."""
    more = opened.isel(time=slice(0, STEPS)).load().to_dataset(name=ARRAY)
    more = more.drop_vars([name for name in more.coords if name not in more.dims])
    options: dict[str, Any] = {"append_dim": "time", "consolidated": True}
    if is_zarr_2():
        more.to_zarr(filesystem(where).get_mapper(url(where, path)), **options)
    else:
        more.to_zarr(url(where, path), storage_options=s3_options(where), **options)


def xarray_h5netcdf(where: Where, path: str) -> Any:
    """Open a netCDF file by the engine h5netcdf over a file object of s3fs."""
    file = filesystem(where).open(url(where, path))
    return use("xarray").open_dataset(file, engine="h5netcdf")


def xarray_kerchunk(where: Where, path: str) -> Any:
    """Open references of kerchunk through fsspec."""
    options = s3_options(where)
    fs = use("fsspec").filesystem(
        "reference", fo=url(where, path), remote_protocol="s3", target_protocol="s3", target_options=options,
        remote_options=dict(options, asynchronous=True), skip_instance_cache=True, asynchronous=True,
    )  # fmt: skip
    store = use("zarr.storage").FsspecStore(fs, read_only=True, path="")
    return use("xarray").open_zarr(store, consolidated=False, zarr_format=2, chunks=None)


def xarray_virtualizarr(where: Where, path: str) -> Any:
    """Open a manifest that VirtualiZarr makes of a file."""
    stores = {"s3://%s" % where["bucket"]: obstore(where)}
    registry = use("obspec_utils.registry").ObjectStoreRegistry(stores)
    manifest = use("virtualizarr.parsers").HDFParser()(url(where, path), registry=registry)
    return use("xarray").open_zarr(manifest, consolidated=False, zarr_format=3, chunks=None)


# Files of HDF5 without xarray.


def h5py_s3fs(where: Where, path: str) -> Any:
    """Open a file by h5py over a file object of s3fs."""
    return use("h5py").File(filesystem(where).open(url(where, path)), "r")


def h5py_ros3(where: Where, path: str) -> Any:
    """Open a file by h5py with HDF5's own driver for S3."""
    h5py = use("h5py")
    if "ros3" not in h5py.registered_drivers():
        raise LookupError("the HDF5 of this wheel has no ROS3 driver")
    named = {"aws_region": "region", "secret_id": "key", "secret_key": "secret"}
    options = {name: where[key].encode() for name, key in named.items()}
    return h5py.File(http_url(where, path), "r", driver="ros3", **options)


def netcdf4(where: Where, path: str) -> Any:
    """Open a file by the netCDF C library, by byte ranges."""
    return use("netCDF4").Dataset(http_url(where, path) + "#mode=bytes")


def list_maps(named: Mapping[str, Any]) -> list[str]:
    """List the variables of two dimensions."""
    return sorted(name for name, one in named.items() if one.ndim == 2)


# Scattered ranges of a file.


def ranges_obstore(opened: tuple[Any, str], gap: int) -> bytes:
    """Read them by obstore, which joins them."""
    (store, path), (starts, ends) = opened, scatter()
    parts = use("obstore").get_ranges(store, path, starts=starts, ends=ends, coalesce=gap)
    return b"".join(bytes(one) for one in parts)


def ranges_fsspec(opened: tuple[Any, str], gap: int) -> bytes:
    """Read them by fsspec, joined as its references do it."""
    (fs, where), (starts, ends) = opened, scatter()
    joined = use("fsspec.utils").merge_offset_ranges(
        [where] * len(starts), starts[:], ends, max_gap=gap, sort=False
    )
    found = dict(zip(joined[1], fs.cat_ranges(*joined)))
    parts = [(found[at], n - at) for n in starts for at in [max(a for a in found if a <= n)]]
    return b"".join(block[n : n + RANGE_NBYTES] for block, n in parts)


# Icechunk, TensorStore, GDAL, TileDB.


def icechunk(where: Where, path: str, how: str = "open") -> Any:
    """Open or create a repository."""
    storage = use("icechunk").s3_storage(
        bucket=where["bucket"], prefix=path, region=where["region"], endpoint_url=where["endpoint_url"],
        allow_http=True, force_path_style=True, access_key_id=where["key"], secret_access_key=where["secret"],
    )  # fmt: skip
    return getattr(use("icechunk").Repository, how)(storage)


def icechunk_group(where: Where, path: str) -> Any:
    """Open the group of a repository."""
    store = icechunk(where, path).readonly_session("main").store
    return use("zarr").open_group(store, mode="r")


def write_icechunk(where: Where, path: str, arrays: Mapping[str, Any], chunks: Any) -> None:
    """Write arrays and commit them."""
    session = icechunk(where, path, "create").writable_session("main")
    group = use("zarr").create_group(session.store, overwrite=True)
    for name, values in arrays.items():
        shape = chunks if values.ndim == 3 else values.shape
        made = group.create_array(name, shape=values.shape, chunks=shape, dtype=values.dtype)
        made[:] = values
    session.commit("written")


def open_icechunk_to_append(where: Where, path: str) -> Any:
    """Open the array in a session that writes."""
    session = icechunk(where, path).writable_session("main")
    return use("zarr").open_group(session.store, mode="r+")[ARRAY], session


def append_icechunk(_where: Where, _path: str, opened: tuple[Any, Any]) -> None:
    """Append a chunk of time and commit it."""
    array, session = opened
    array.append(zeros(array))
    session.commit("appended")


def open_tensorstore(where: Where, path: str) -> Any:
    """Open the array."""
    kvstore = {
        "driver": "s3", "bucket": where["bucket"], "path": "%s/%s/" % (path, ARRAY),
        "endpoint": where["endpoint_url"], "aws_region": where["region"],
    }  # fmt: skip
    spec = {"driver": "zarr3" if "v3" in path else "zarr", "kvstore": kvstore}
    return use("tensorstore").open(spec, open=True).result()


def append_tensorstore(_where: Where, _path: str, opened: Any) -> None:
    """Append a chunk of time."""
    n = opened.shape[0]
    larger = opened.resize(exclusive_max=[n + STEPS, *opened.shape[1:]]).result()
    larger[n:].write(zeros(opened, opened.dtype.numpy_dtype)).result()


def open_gdal(where: Where, path: str) -> Any:
    """Open a GeoTIFF through rasterio, in an environment that lasts as long."""
    env = use("rasterio").Env(
        AWS_S3_ENDPOINT=where["endpoint_url"].split("//")[1], AWS_HTTPS="NO",
        AWS_VIRTUAL_HOSTING="FALSE", GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR",
    )  # fmt: skip
    env.__enter__()
    return use("rasterio").open("/vsis3/%s/%s" % (where["bucket"], path)), env


def read_gdal(opened: tuple[Any, Any], selection: Selection) -> Any:
    """Read bands and a window of each."""
    file, _ = opened
    bounds = [one.indices(n) for one, n in zip(selection, (file.count, *file.shape))]
    (b, b_end, _), (y, y_end, _), (x, x_end, _) = bounds
    window = use("rasterio.windows").Window(x, y, x_end - x, y_end - y)
    return file.read([n + 1 for n in range(b, b_end)], window=window)


def tiledb_context(where: Where) -> Any:
    """Tell TileDB where the store is."""
    return use("tiledb").Ctx({
        "vfs.s3.endpoint_override": where["endpoint_url"].split("//")[1], "vfs.s3.scheme": "http",
        "vfs.s3.use_virtual_addressing": "false", "vfs.s3.region": where["region"],
        "vfs.s3.aws_access_key_id": where["key"], "vfs.s3.aws_secret_access_key": where["secret"],
    })  # fmt: skip


def write_tiledb(where: Where, path: str, arrays: Mapping[str, Any], chunks: Any) -> None:
    """Write the array."""
    values, ctx, tiledb = arrays[ARRAY], tiledb_context(where), use("tiledb")
    dims = [
        tiledb.Dim(name, domain=(0, n - 1), tile=tile, dtype=use("numpy").int32, ctx=ctx)
        for name, n, tile in zip(("time", "y", "x"), values.shape, chunks)
    ]
    zlib_filter = tiledb.FilterList([tiledb.GzipFilter(level=1)])
    attr = tiledb.Attr(dtype=values.dtype, filters=zlib_filter, ctx=ctx)
    schema = tiledb.ArraySchema(tiledb.Domain(*dims, ctx=ctx), attrs=[attr], ctx=ctx)
    tiledb.Array.create(url(where, path), schema, ctx=ctx)
    with tiledb.open(url(where, path), "w", ctx=ctx) as array:
        array[:] = values


@dataclass(frozen=True)
class Client:
    """What a client reads, and does for each operation; what it lacks is None."""

    modules: tuple[str, ...]  # imported before the first job
    layouts: tuple[str, ...]  # that it is asked for
    open: Callable[[Where, str], Any]
    is_group: bool = True  # whether the array is one of those in what is opened
    read: Callable[[Any, Any], Any] = getitem
    list: Callable[[Any], Sequence[str]] | None = None  # of a group, with its metadata
    open_to_append: Callable[[Where, str], Any] | None = None  # else as to read
    append: Callable[[Where, str, Any], None] | None = None
    write: Callable[[Where, str, Mapping[str, Any], Any], None] | None = None
    forks: bool = True  # whether a child of a process that has imported it can use it


def of_zarr(
    layouts: tuple[str, ...], group: Callable[..., Any], *modules: str, append: Any = None
) -> Client:
    """Make a client that reads groups of zarr."""
    return Client(
        ("zarr", *modules),
        layouts,
        group,
        list=list_arrays,
        open_to_append=lambda where, path: group(where, path, mode="r+")[ARRAY],
        append=append,
    )


def of_xarray(
    layouts: tuple[str, ...], dataset: Callable[..., Any], *modules: str, append: Any = None
) -> Client:
    """Make a client that reads datasets of xarray."""
    return Client(
        ("xarray", *modules),
        layouts,
        dataset,
        read=select_by_name,
        list=lambda opened: sorted(opened.data_vars),
        append=append,
    )


NETCDF = ("netcdf", "netcdf-large")
ALL_ZARR = ("zarr-v2", "zarr-v3", "zarr-v3-sharded")
XARRAY_ZARR = ("zarr", "s3fs", "dask.array", "numcodecs")
CLIENTS = {
    "zarr-s3fs": of_zarr(ALL_ZARR, zarr_s3fs, "s3fs", "numcodecs", append=append_zarr),
    "zarr-obstore": of_zarr(
        ALL_ZARR, zarr_obstore, "obstore.store", "numcodecs", append=append_zarr
    ),
    "zarr-zarrs": of_zarr(ALL_ZARR[1:], zarr_zarrs, "zarrs", "obstore.store"),
    "xarray-zarr": of_xarray(
        ("zarr-v2",),
        partial(xarray_zarr, consolidated=True, chunks=None),
        *XARRAY_ZARR,
        append=append_xarray,
    ),
    "xarray-zarr-dask": of_xarray(
        ("zarr-v2",), partial(xarray_zarr, consolidated=True, chunks={}), *XARRAY_ZARR
    ),
    "xarray-zarr-unconsolidated": of_xarray(
        ("zarr-v2-unconsolidated",),
        partial(xarray_zarr, consolidated=False, chunks=None),
        *XARRAY_ZARR,
    ),
    "h5netcdf": of_xarray(NETCDF, xarray_h5netcdf, "h5netcdf", "s3fs"),
    "h5py-s3fs": Client(("h5py", "s3fs"), NETCDF, h5py_s3fs, list=list_maps),
    "ros3": Client(("h5py",), NETCDF, h5py_ros3),
    "netcdf4-bytes": Client(
        ("netCDF4",), ("netcdf",), netcdf4, list=lambda file: list_maps(file.variables)
    ),
    "kerchunk": of_xarray(
        ("references",),
        xarray_kerchunk,
        "zarr",
        "s3fs",
        "fsspec.implementations.reference",
        "numcodecs",
    ),
    "virtualizarr": of_xarray(
        ("netcdf",), xarray_virtualizarr, "virtualizarr", "zarr", "obstore.store"
    ),
    "ranges-obstore": Client(
        ("obstore.store",),
        ("netcdf-large",),
        lambda where, path: (obstore(where), path),
        is_group=False,
        read=ranges_obstore,
    ),
    "ranges-fsspec": Client(
        ("s3fs", "fsspec.utils"),
        ("netcdf-large",),
        lambda where, path: (filesystem(where), url(where, path)),
        is_group=False,
        read=ranges_fsspec,
    ),
    "icechunk": Client(
        ("icechunk", "zarr", "numcodecs"),
        ("icechunk",),
        icechunk_group,
        list=list_arrays,
        open_to_append=open_icechunk_to_append,
        append=append_icechunk,
        write=write_icechunk,
        forks=False,  # its threads start when it is imported
    ),
    "tensorstore": Client(
        ("tensorstore",),
        ALL_ZARR,
        open_tensorstore,
        is_group=False,
        read=lambda opened, selection: opened[selection].read().result(),
        append=append_tensorstore,
    ),
    "gdal": Client(("rasterio",), ("geotiff",), open_gdal, is_group=False, read=read_gdal),
    "tiledb": Client(
        ("tiledb",),
        ("tiledb",),
        lambda where, path: use("tiledb").open(url(where, path), ctx=tiledb_context(where)),
        is_group=False,
        write=write_tiledb,
    ),
}
"""Each client of the ledger; another one is one more line."""


def digest(values: Any) -> int:
    """Compute a checksum of what was read, whatever holds it."""
    if isinstance(values, bytes):
        return zlib.crc32(values)
    np = use("numpy")
    values = np.squeeze(np.ascontiguousarray(np.asarray(values, "<f4")))
    return zlib.crc32(np.ascontiguousarray(values).tobytes())


def work(job: Mapping[str, Any]) -> dict[str, Any]:
    """Do a job, in a child."""
    client, operation = CLIENTS[job["client"]], job["operation"]
    path, where = job["path"], job["where"]
    os.environ.update(AWS_ACCESS_KEY_ID=where["key"], AWS_SECRET_ACCESS_KEY=where["secret"])
    if operation == "write" and client.write:
        client.write(where, path, dict(use("numpy").load(job["arrays"])), tuple(job["chunks"]))
        return {"done": True}
    if operation.startswith("metadata") and client.list:
        return {"done": True, "names": len(client.list(client.open(where, path)))}
    if operation == "append" and client.open_to_append:
        opened = client.open_to_append(where, path)
    else:
        opened = client.open(where, path)
        opened = opened[ARRAY] if client.is_group else opened
    say({"opened": True})
    if read_line() == "end":
        return {"done": True}
    if operation == "append" and client.append:
        client.append(where, path, opened)
        return {"done": True}
    selection = {**selections(job["shape"], job["chunks"]), **GAPS}[operation]
    return {"done": True, "crc": digest(client.read(opened, selection))}


def answer(line: str) -> None:
    """Do a job, say what came of it, and end."""
    try:
        say(work(json.loads(line)))
    except BaseException as error:
        say({"failed": explain(error)})
    os._exit(0)


def say(message: Mapping[str, Any]) -> None:
    """Write a line of JSON."""
    os.write(ANSWERS, (json.dumps(message) + "\n").encode())


def read_line() -> str:
    """Read a line, one byte after the other, so that none is taken from who reads next."""
    line = b""
    while True:
        byte = os.read(0, 1)
        if byte in (b"\n", b""):
            return line.decode()
        line += byte


def explain(error: BaseException) -> str:
    """Say in a line what went wrong."""
    return "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:200])


def main() -> None:
    """Import what a client needs, then do jobs, each in a child."""
    from importlib.metadata import version

    client, versions, name = CLIENTS[read_line()], {}, ""
    try:
        for name in client.modules:
            use(name)
            package = name.partition(".")[0]
            with contextlib.suppress(Exception):
                versions[package] = version(package)
    except Exception as error:
        say({"failed": "%s cannot be imported: %s" % (name, explain(error))})
        return
    say({"ready": True, "versions": versions})
    while True:
        line = read_line()
        if not line:
            return
        child = os.fork()
        if not child:
            if client.forks:
                answer(line)
            os.dup2(ANSWERS, 1)
            os.execv(sys.executable, [sys.executable, __file__, line])  # noqa: S606
        _, status = os.waitpid(child, 0)
        if status:
            say({"failed": "ended by signal or exit status %d" % status})


if __name__ == "__main__":
    ANSWERS = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    if len(sys.argv) > 1:
        answer(sys.argv[1])
    main()
