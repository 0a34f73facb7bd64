"""Clients of the ledger and the accesses that each makes; it runs in any interpreter and imports nothing of `wire`.

An access is a function of a place in a store: it opens, reads and returns a checksum of what it
read, or how many groups or variables it saw. All requests from its beginning to its end count.
"""

# ruff: noqa: UP031, B905
# It runs on Python 3.8 as well.

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import zlib
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import SimpleNamespace

    Access = Callable[[SimpleNamespace], Any]

THREE_VARIABLES = ("v03", "v06", "v09")
"""The variables of an HDF5 file that an access reads whole, far apart in the file."""
SHARDED = "sharded"
INNER = 32
"""Elements of an inner chunk of a shard, along each of its two axes."""


def use(name: str) -> Any:
    """Import a library of any version, whose types nobody knows."""
    return importlib.import_module(name)


def checksum(*parts: Any) -> int:
    """Compute a checksum of arrays, one after the other."""
    total = 0
    for part in parts:
        values = use("numpy").ascontiguousarray(part, "<f8")
        total = zlib.crc32(values.tobytes(), total)
    return total


# How a client reaches the store.


def s3_options(place: SimpleNamespace, **options: Any) -> dict[str, Any]:
    """Return the options of s3fs."""
    kwargs = {"endpoint_url": place.endpoint_url, "region_name": place.region}
    return dict(options, key=place.key, secret=place.secret, client_kwargs=kwargs)


def open_s3fs(place: SimpleNamespace, name: str, options: Any) -> Any:
    """Open a file by s3fs."""
    fs = use("s3fs").S3FileSystem(**s3_options(place))
    return fs.open("s3://%s/%s/%s" % (place.bucket, place.prefix, name), **options)


def open_gcsfs(place: SimpleNamespace, name: str, options: Any) -> Any:
    """Open a file by the class of gcsfs that speaks the JSON interface."""
    from_core = use("gcsfs.core").GCSFileSystem
    fs = from_core(endpoint_url=place.endpoint_url, token="anon", project="any")  # noqa: S106
    return fs.open("gs://%s/%s/%s" % (place.bucket, place.prefix, name), **options)


def open_gs(place: SimpleNamespace, name: str, options: Any) -> Any:
    """Open a file by the class that fsspec has for `gs://`.

    Since gcsfs 2026 that class asks by gRPC which kind the bucket is. No emulator answers that, so
    the answer for an ordinary bucket is put in its place.
    """
    where = {"endpoint_url": place.endpoint_url, "token": "anon", "project": "any"}
    fs = use("fsspec").filesystem("gs", **where)
    if hasattr(type(fs), "_get_bucket_type"):
        ordinary = use("gcsfs.extended_gcsfs").BucketType.NON_HIERARCHICAL

        async def answer_ordinary(self: Any, bucket: str) -> Any:
            return ordinary

        type(fs)._get_bucket_type = answer_ordinary
    return fs.open("gs://%s/%s/%s" % (place.bucket, place.prefix, name), **options)


def open_adlfs(place: SimpleNamespace, name: str, options: Any) -> Any:
    """Open a file by adlfs."""
    fs = use("adlfs").AzureBlobFileSystem(connection_string=place.connection_string)
    return fs.open("abfs://%s/%s/%s" % (place.bucket, place.prefix, name), **options)


def http_url(place: SimpleNamespace, name: str) -> str:
    """Return the URL of a public object."""
    return "%s/%s/%s/%s" % (place.endpoint_url, place.bucket, place.prefix, name)


def open_https(place: SimpleNamespace, name: str, options: Any) -> Any:
    """Open a public file by fsspec over HTTP, as it opens `https://`."""
    return use("fsspec").filesystem("http").open(http_url(place, name), **options)


def open_earthaccess(place: SimpleNamespace, name: str, options: Any) -> Any:
    """Open a granule by `earthaccess.open`, as it opens one outside AWS's us-west-2.

    It needs a login at NASA, so a store is made without one: what it would request for that is not
    counted, and its session has no token.
    """
    store = use("earthaccess.store").Store.__new__(use("earthaccess.store").Store)
    store.auth, store.in_region = "none", False
    store.get_fsspec_session = lambda: use("fsspec").filesystem("https")
    described = {
        "meta": {"concept-id": name, "provider-id": "any"},
        "umm": {
            "RelatedUrls": [{"Type": "GET DATA", "URL": http_url(place, name)}],
            "DataGranule": {"ArchiveAndDistributionInformation": [{"Size": 61, "SizeUnit": "MB"}]},
        },
    }
    [handle] = store.open([use("earthaccess.results").DataGranule(described)], **options)
    return contextlib.closing(handle)


def s3_url(place: SimpleNamespace, name: str) -> str:
    """Return the URL of an object in S3."""
    return "s3://%s/%s/%s" % (place.bucket, place.prefix, name)


def obstore_store(place: SimpleNamespace, name: str, *, read_only: bool = True) -> Any:
    """Make a zarr store of obstore."""
    store = use("obstore.store").S3Store(
        place.bucket, endpoint=place.endpoint_url, access_key_id=place.key,
        secret_access_key=place.secret, region=place.region, prefix="%s/%s" % (place.prefix, name),
        client_options={"allow_http": True},
    )  # fmt: skip
    return use("zarr.storage").ObjectStore(store, read_only=read_only)


# HDF5 through a file object.

OpenFile = "Callable[[SimpleNamespace, str, Any], Any]"


def read_variables(
    place: SimpleNamespace, name: str, open_file: Any, options: Mapping[str, Any]
) -> int:
    """Open a file by h5py and read three variables whole."""
    with open_file(place, name, options) as handle, use("h5py").File(handle, "r") as file:
        return checksum(*[file[variable][:] for variable in THREE_VARIABLES])


def read_one_chunk(
    place: SimpleNamespace, name: str, open_file: Any, options: Mapping[str, Any]
) -> int:
    """Open a file by h5py and read one chunk of one variable."""
    with open_file(place, name, options) as handle, use("h5py").File(handle, "r") as file:
        variable = file[THREE_VARIABLES[1]]
        return checksum(variable[: variable.chunks[0]])


def read_by_pyfive(
    place: SimpleNamespace, name: str, open_file: Any, options: Mapping[str, Any]
) -> int:
    """Open a file by pyfive and read three variables whole."""
    with open_file(place, name, options) as handle, use("pyfive").File(handle) as file:
        return checksum(*[file[variable][:] for variable in THREE_VARIABLES])


def read_by_h5netcdf(place: SimpleNamespace, name: str, options: Mapping[str, Any]) -> int:
    """Open the URL of a file by xarray and read three variables whole."""
    dataset = use("xarray").open_dataset(
        s3_url(place, name), engine="h5netcdf", storage_options=s3_options(place), **options
    )
    return checksum(*[dataset[variable].values for variable in THREE_VARIABLES])


def read_by_h5coro(place: SimpleNamespace, name: str) -> int:
    """Read three variables by h5coro, over HTTP."""
    driver = use("h5coro.webdriver").HTTPDriver
    h5 = use("h5coro.h5coro").H5Coro(http_url(place, name), driver, errorChecking=True)
    promise = h5.readDatasets(["/%s" % variable for variable in THREE_VARIABLES], block=True)
    return checksum(*[promise["/%s" % variable] for variable in THREE_VARIABLES])


FILES = ("hdf5-scattered", "hdf5-paged")


def of_files(
    open_file: Any, layouts: tuple[str, ...] = FILES, **options: Any
) -> dict[tuple[str, str], Access]:
    """List the accesses to HDF5 files through a file object."""
    settings = {"open_file": open_file, "options": options}
    accesses: dict[tuple[str, str], Access] = {
        (layout, "three variables"): partial(read_variables, name=layout, **settings)
        for layout in layouts
    }
    accesses[layouts[0], "one chunk"] = partial(read_one_chunk, name=layouts[0], **settings)
    return accesses


# Zarr: trees, coordinates, shards, chunks.


def s3fs_target(place: SimpleNamespace, name: str, **options: Any) -> dict[str, Any]:
    """Return what leads xarray and zarr to a group through s3fs."""
    return {"store": s3_url(place, name), "storage_options": s3_options(place, **options)}


def obstore_target(place: SimpleNamespace, name: str, **options: Any) -> dict[str, Any]:
    """Return what leads xarray and zarr to a group through obstore."""
    return {"store": obstore_store(place, name, **options)}


def as_filename(target: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the argument, for functions of xarray that open any format."""
    return {{"store": "filename_or_obj"}.get(key, key): value for key, value in target.items()}


def open_tree(place: SimpleNamespace, name: str, target: Any) -> int:
    """Open a tree of groups and count its nodes."""
    tree = use("xarray").open_datatree(
        **as_filename(target(place, name)), engine="zarr", chunks=None
    )
    return len(list(tree.subtree))


def write_tree(place: SimpleNamespace, name: str, target: Any) -> int:
    """Write a tree of groups and count its nodes."""
    np, xarray = use("numpy"), use("xarray")
    leaf = xarray.Dataset({"a": ("x", np.arange(8.0)), "b": ("x", np.arange(8.0))})
    groups = {"/g%02d" % number: leaf for number in range(4)}
    tree = xarray.DataTree.from_dict(groups)
    tree.to_zarr(**target(place, name), mode="w", zarr_format=3, consolidated=False)
    return len(list(tree.subtree))


def append_steps(place: SimpleNamespace, name: str, target: Any) -> int:
    """Append four steps of time to a dataset and count them."""
    np, xarray = use("numpy"), use("xarray")
    steps = xarray.Dataset(
        {"a": (("time", "x"), np.zeros((4, 16)))}, {"time": np.arange(4.0) + 8, "x": np.arange(16)}
    )
    steps.to_zarr(**target(place, name), append_dim="time", consolidated=False)
    return int(steps.sizes["time"])


def open_coordinates(place: SimpleNamespace, name: str, target: Any) -> int:
    """Open a dataset with many coordinates, whose values xarray loads."""
    dataset = use("xarray").open_zarr(**target(place, name), chunks=None)
    return len(dataset.coords)


def open_group(place: SimpleNamespace, name: str, target: Any) -> Any:
    """Open a group of zarr to read it."""
    return use("zarr").open_group(**target(place, name), mode="r")


def read_part(place: SimpleNamespace, name: str, target: Any, part: Any) -> int:
    """Open a group and read a part of its array."""
    return checksum(open_group(place, name, target)["values"][part])


WHOLE = (slice(None), slice(None))
PARTS = {
    "one inner chunk": (slice(0, INNER), slice(0, INNER)),
    "inner chunks": (slice(0, 4 * INNER), slice(0, 2 * INNER)),
    "whole shards": WHOLE,
}


def of_arrays(target: Any) -> dict[tuple[str, str], Access]:
    """List the accesses to arrays: parts of shards, and all chunks of a plain array."""
    accesses: dict[tuple[str, str], Access] = {
        (SHARDED, access): partial(read_part, name=SHARDED, target=target, part=part)
        for access, part in PARTS.items()
    }
    accesses["chunks", "whole array"] = partial(read_part, name="chunks", target=target, part=WHOLE)
    return accesses


def of_trees(target: Any, writes: Any) -> dict[tuple[str, str], Access]:
    """List the accesses to trees and to a dataset with many coordinates."""
    accesses: dict[tuple[str, str], Access] = {
        (layout, "open tree"): partial(open_tree, name=layout, target=target)
        for layout in ("tree", "tree-unconsolidated")
    }
    accesses["coordinates", "open"] = partial(open_coordinates, name="coordinates", target=target)
    accesses["appended", "append"] = partial(append_steps, name="appended", target=writes)
    accesses["written-tree", "write tree"] = partial(write_tree, name="written-tree", target=writes)
    return accesses


def gcsfs_target(place: SimpleNamespace, name: str) -> dict[str, Any]:
    """Return what leads zarr to a group through gcsfs."""
    options = {"endpoint_url": place.endpoint_url, "token": "anon", "project": "any"}
    url = "gs://%s/%s/%s" % (place.bucket, place.prefix, name)
    return {"store": url, "storage_options": options}


def read_by_gdal(place: SimpleNamespace, name: str, window: Any) -> int:
    """Read a window of an array by the Zarr driver of GDAL."""
    rasterio = use("rasterio")
    settings = {
        "AWS_S3_ENDPOINT": place.host, "AWS_HTTPS": "NO", "AWS_VIRTUAL_HOSTING": "FALSE",
        "AWS_REGION": place.region,
    }  # fmt: skip
    url = 'ZARR:"/vsis3/%s/%s/%s":/values' % (place.bucket, place.prefix, name)
    with rasterio.Env(**settings), rasterio.open(url) as file:
        rows, columns = [part.indices(n)[:2] for part, n in zip(window, file.shape)]
        return checksum(
            file.read(1, window=use("rasterio.windows").Window.from_slices(rows, columns))
        )


# Tables.


def read_by_duckdb(place: SimpleNamespace, name: str) -> int:
    """Sum one column of a Parquet file by DuckDB over S3; the extension comes with a package."""
    duckdb = use("duckdb")
    folder = Path(use("duckdb_extension_httpfs").__file__).parent
    [extension] = folder.rglob("httpfs.duckdb_extension")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("INSTALL '%s'; LOAD httpfs" % extension)
    connection.execute(
        "CREATE SECRET (TYPE s3, KEY_ID '%s', SECRET '%s', ENDPOINT '%s', REGION '%s', URL_STYLE 'path', USE_SSL false)"
        % (place.key, place.secret, place.host, place.region)
    )
    query = "SELECT sum(c3) FROM read_parquet('%s')" % s3_url(place, name)  # noqa: S608
    return int(connection.execute(query).fetchone()[0])


def read_by_pyarrow(place: SimpleNamespace, name: str) -> int:
    """Sum one column of a Parquet file by pyarrow over S3."""
    store = use("pyarrow.fs").S3FileSystem(
        access_key=place.key, secret_key=place.secret, endpoint_override=place.host,
        scheme="http", region=place.region,
    )  # fmt: skip
    path = "%s/%s/%s" % (place.bucket, place.prefix, name)
    table = use("pyarrow.parquet").read_table(path, columns=["c3"], filesystem=store)
    return int(use("pyarrow.compute").sum(table["c3"]).as_py())


# Node.


def read_by_zarrita(place: SimpleNamespace, name: str, part: Any) -> int:
    """Read a part of an array by zarrita on node, as browsers read it over HTTP."""
    program = Path(__file__).with_name("zarrita.mjs")
    ends = [selection.indices(n)[:2] for selection, n in zip(part, place.array_shape)]
    job = json.dumps({"url": http_url(place, name) + "/values", "ends": ends})
    completed = subprocess.run(
        ["node", str(program), place.node_modules, job],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if completed.returncode:
        raise RuntimeError(" ".join(completed.stderr.split())[:200])
    return int(completed.stdout)


@dataclass(frozen=True)
class LedgerClient:
    """A client, the accesses that it makes, and how it is written in a program."""

    modules: str  # imported before the first job
    accesses: Mapping[tuple[str, str], Access]  # by layout and access
    line: str  # of a user's program
    service: str = "s3"  # who serves it: s3, gcs, azure, or http for public objects
    environment: Mapping[str, str] = field(default_factory=dict)  # variables set before imports
    forks: bool = True  # whether a child of a process that has imported it can use it


BLOCKS = {"cache_type": "blockcache", "block_size": 8 * 2**20}
"""A block cache of 8 MiB, in place of what a file object does by default."""
BLOCKS_LINE = 'cache_type="blockcache", block_size=8 * 2**20'
FLAT = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
"""No look-up by gRPC of what kind a bucket is, which no emulator answers."""


def of_open(modules: str, open_file: Any, line: str, **more: Any) -> LedgerClient:
    """Describe a client that reads HDF5 files through file objects, by default."""
    return LedgerClient(modules, of_files(open_file), line, **more)


def in_blocks(client: LedgerClient, open_file: Any, line: str) -> LedgerClient:
    """Describe the same client with a block cache."""
    return replace(client, accesses=of_files(open_file, FILES[:1], **BLOCKS), line=line)


_S3FS = of_open("h5py s3fs", open_s3fs, "s3fs.S3FileSystem().open(path)")
_GCSFS = of_open(
    "h5py gcsfs", open_gcsfs, "gcsfs.GCSFileSystem().open(path)",
    service="gcs", environment=FLAT,
)  # fmt: skip
_GS = of_open(
    "h5py gcsfs fsspec", open_gs, 'fsspec.open("gs://...")', service="gcs",
)  # fmt: skip
_ADLFS = of_open(
    "h5py adlfs", open_adlfs, "adlfs.AzureBlobFileSystem().open(path)", service="azure"
)
_HTTPS = of_open(
    "h5py fsspec.implementations.http aiohttp", open_https, 'fsspec.open("https://...")',
    service="http",
)  # fmt: skip
_EARTHACCESS = of_open(
    "h5py earthaccess fsspec.implementations.http aiohttp", open_earthaccess,
    "earthaccess.open(granules)", service="http",
)  # fmt: skip

CLIENTS = {
    "s3fs-file": _S3FS,
    "s3fs-file-blocks": in_blocks(_S3FS, open_s3fs, "fs.open(path, %s)" % BLOCKS_LINE),
    "gcsfs-file": _GCSFS,
    "gcsfs-file-blocks": in_blocks(_GCSFS, open_gcsfs, "fs.open(path, %s)" % BLOCKS_LINE),
    "gs-file": _GS,
    "adlfs-file": _ADLFS,
    "adlfs-file-blocks": in_blocks(_ADLFS, open_adlfs, "fs.open(path, %s)" % BLOCKS_LINE),
    "https-file": _HTTPS,
    "https-file-blocks": in_blocks(
        _HTTPS, open_https, 'fsspec.open("https://...", %s)' % BLOCKS_LINE
    ),
    "earthaccess": _EARTHACCESS,
    "earthaccess-blocks": replace(
        _EARTHACCESS,
        accesses=of_files(open_earthaccess, FILES[:1], open_kwargs=BLOCKS),
        line="earthaccess.open(granules, open_kwargs={...})",
    ),
    "xarray-url": LedgerClient(
        "xarray h5netcdf s3fs",
        {
            (layout, "three variables"): partial(read_by_h5netcdf, name=layout, options={})
            for layout in FILES
        },
        'xr.open_dataset("s3://...", engine="h5netcdf")',
    ),
    "xarray-url-blocks": LedgerClient(
        "xarray h5netcdf s3fs",
        {
            ("hdf5-scattered", "three variables"): partial(
                read_by_h5netcdf, name="hdf5-scattered", options={"open_kwargs": BLOCKS}
            )
        },
        'xr.open_dataset("s3://...", engine="h5netcdf", open_kwargs={...})',
    ),
    "pyfive-s3fs": LedgerClient(
        "pyfive s3fs",
        {
            (layout, "three variables"): partial(
                read_by_pyfive, name=layout, open_file=open_s3fs, options={}
            )
            for layout in FILES
        },
        "pyfive.File(s3fs.S3FileSystem().open(path))",
    ),
    "h5coro": LedgerClient(
        "h5coro.h5coro h5coro.webdriver",
        {("hdf5-scattered", "three variables"): partial(read_by_h5coro, name="hdf5-scattered")},
        "h5coro.H5Coro(url, HTTPDriver)", service="http",
    ),
    "xarray-tree-s3fs": LedgerClient(
        "xarray zarr s3fs", of_trees(s3fs_target, s3fs_target),
        'xr.open_datatree("s3://...", engine="zarr")',
    ),
    "xarray-tree-obstore": LedgerClient(
        "xarray zarr obstore.store",
        of_trees(obstore_target, partial(obstore_target, read_only=False)),
        'xr.open_datatree(ObjectStore(...), engine="zarr")',
    ),
    "zarr-array-s3fs": LedgerClient(
        "zarr s3fs", of_arrays(s3fs_target), 'zarr.open_group("s3://...")'
    ),
    "zarr-array-s3fs-one-request": LedgerClient(
        "zarr s3fs", of_arrays(partial(s3fs_target, max_concurrency=1)),
        'zarr.open_group("s3://...", storage_options={"max_concurrency": 1})',
    ),
    "zarr-array-obstore": LedgerClient(
        "zarr obstore.store", of_arrays(obstore_target), "zarr.open_group(ObjectStore(...))"
    ),
    "zarr-array-gcsfs": LedgerClient(
        "zarr gcsfs", of_arrays(gcsfs_target), 'zarr.open_group("gs://...")',
        service="gcs", environment=FLAT,
    ),
    "gdal-zarr": LedgerClient(
        "rasterio rasterio.windows",
        {
            ("chunks", "whole array"): partial(read_by_gdal, name="chunks", window=WHOLE),
            (SHARDED, "one inner chunk"): partial(
                read_by_gdal, name=SHARDED, window=PARTS["one inner chunk"]
            ),
        },
        "rasterio.open('ZARR:\"/vsis3/...\"')",
    ),
    "duckdb": LedgerClient(
        "duckdb duckdb_extension_httpfs",
        {("parquet", "one column"): partial(read_by_duckdb, name="table.parquet")},
        "duckdb.sql(\"SELECT sum(x) FROM 's3://...'\")", forks=False,
    ),
    "pyarrow": LedgerClient(
        "pyarrow.fs pyarrow.parquet pyarrow.compute",
        {("parquet", "one column"): partial(read_by_pyarrow, name="table.parquet")},
        "pyarrow.parquet.read_table(path, columns=[...])", forks=False,
    ),
    "zarrita": LedgerClient(
        "json",
        {
            ("chunks", "whole array"): partial(read_by_zarrita, name="chunks", part=WHOLE),
            (SHARDED, "one inner chunk"): partial(
                read_by_zarrita, name=SHARDED, part=PARTS["one inner chunk"]
            ),
        },
        "zarr.open(new zarr.FetchStore(url))", service="http",
    ),
}  # fmt: skip
"""Each client of the ledger; another is one more entry, wherever this runs."""
