"""Clients of the ledger, in whatever interpreter and versions an environment has; it imports nothing of ours.

It reads jobs as lines of JSON, each done in a child of its own that has imported the libraries
and nothing else: no connection, loop or cache of an earlier job. A child says `opened`, waits
for a line, does the operation and says what it read.
"""

# ruff: noqa: D102, UP031, B905, RUF012
# It runs on Python 3.8 as well.

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback
import zlib

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


def selections(shape, chunks):
    """Map each operation on the array to what it selects."""
    t, y, x = chunks
    return {
        "one chunk": (slice(0, t), slice(0, y), slice(0, x)),
        "series": (slice(None), slice(3, 4), slice(5, 6)),
        "map": (slice(1, 2), slice(None), slice(None)),
        "box": (slice(t // 2, t + t // 2), slice(y // 2, y + y // 2), slice(x // 2, x + x // 2)),
        "whole": (slice(None),) * 3,
    }


class Client:
    """What a client of the ledger does; `module` is imported before the first job."""

    modules: tuple[str, ...] = ()
    forks = True  # whether a child of a process that has imported it can use it

    def __init__(self, where):
        self.where = where

    def open(self, path):
        """Open the array, or all variables of a group."""
        raise NotImplementedError

    def read(self, opened, selection):
        """Read a selection of the array."""
        return opened[selection]

    def append(self, opened, path):
        """Append a chunk of time."""
        raise NotImplementedError

    def s3(self):
        import s3fs

        where = self.where
        kwargs = {"endpoint_url": where["endpoint_url"], "region_name": where["region"]}
        return {"key": where["key"], "secret": where["secret"], "client_kwargs": kwargs}, s3fs

    def filesystem(self):
        options, s3fs = self.s3()
        return s3fs.S3FileSystem(**options)

    def url(self, path):
        return "s3://%s/%s" % (self.where["bucket"], path)

    def obstore(self):
        from obstore.store import S3Store

        where = self.where
        return S3Store, {
            "endpoint": where["endpoint_url"],
            "access_key_id": where["key"],
            "secret_access_key": where["secret"],
            "region": where["region"],
            "client_options": {"allow_http": True},
        }


class Zarr(Client):
    """Read by zarr through s3fs."""

    modules = ("zarr", "s3fs", "numcodecs")
    is_consolidated = True

    def group(self, path, mode="r"):
        import zarr

        if int(zarr.__version__.split(".")[0]) < 3:
            store = self.filesystem().get_mapper(self.url(path))
            if self.is_consolidated and mode == "r":
                return zarr.open_consolidated(store, mode="r")
            return zarr.open_group(store, mode=mode)
        return zarr.open_group(
            self.url(path),
            mode=mode,
            use_consolidated=self.is_consolidated,
            storage_options=self.s3()[0],
        )

    def open(self, path):
        return self.group(path)[ARRAY]

    def list(self, path):
        return sorted(name for name, _ in self.group(path).arrays())

    def open_to_append(self, path):
        return self.group(path, mode="r+")[ARRAY]

    def append(self, opened, path):
        import numpy as np

        opened.append(np.zeros((STEPS, *opened.shape[1:]), opened.dtype))


class ZarrObstore(Zarr):
    """Read by zarr through obstore."""

    modules = ("zarr", "obstore.store", "numcodecs")

    def group(self, path, mode="r"):
        import zarr
        from zarr.storage import ObjectStore

        store, options = self.obstore()
        opened = ObjectStore(
            store(self.where["bucket"], prefix=path, **options), read_only=mode == "r"
        )
        return zarr.open_group(opened, mode=mode, use_consolidated=self.is_consolidated)


class Zarrs(ZarrObstore):
    """Read by zarr through obstore, with the codec pipeline of zarrs."""

    modules = ("zarr", "zarrs", "obstore.store")

    def group(self, path, mode="r"):
        import zarr

        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
        return super().group(path, mode)


class Xarray(Client):
    """Read by xarray's engine for Zarr, through s3fs."""

    modules = ("xarray", "zarr", "s3fs", "dask.array", "numcodecs")
    chunks = None
    is_consolidated = True

    def dataset(self, path):
        import xarray
        import zarr

        options = {"consolidated": self.is_consolidated, "chunks": self.chunks}
        if int(zarr.__version__.split(".")[0]) < 3:
            return xarray.open_zarr(self.filesystem().get_mapper(self.url(path)), **options)
        return xarray.open_zarr(self.url(path), storage_options=self.s3()[0], **options)

    def open(self, path):
        return self.dataset(path)[ARRAY]

    def list(self, path):
        return sorted(self.dataset(path).data_vars)

    def read(self, opened, selection):
        return opened.isel(dict(zip(opened.dims, selection))).values

    def append(self, opened, path):
        import zarr

        more = opened.isel(time=slice(0, STEPS)).load().to_dataset(name=ARRAY)
        more = more.drop_vars([name for name in more.coords if name not in more.dims])
        if int(zarr.__version__.split(".")[0]) < 3:
            store, more_options = self.filesystem().get_mapper(self.url(path)), {}
        else:
            store, more_options = self.url(path), {"storage_options": self.s3()[0]}
        more.to_zarr(store, append_dim="time", consolidated=self.is_consolidated, **more_options)


class XarrayDask(Xarray):
    """The same with chunks={}."""

    chunks = {}


class XarrayPlain(Xarray):
    """The same without consolidated metadata."""

    is_consolidated = False


class H5netcdf(Client):
    """Read by xarray's engine h5netcdf over a file object of s3fs."""

    modules = ("xarray", "h5netcdf", "s3fs")

    def dataset(self, path):
        import xarray

        return xarray.open_dataset(self.filesystem().open(self.url(path)), engine="h5netcdf")

    open, read, list = Xarray.open, Xarray.read, Xarray.list


class H5py(Client):
    """Read by h5py over a file object of s3fs."""

    modules = ("h5py", "s3fs")

    def open(self, path):
        import h5py

        return h5py.File(self.filesystem().open(self.url(path)), "r")[ARRAY]

    def list(self, path):
        import h5py

        with h5py.File(self.filesystem().open(self.url(path)), "r") as file:
            return sorted(name for name, one in file.items() if one.ndim == 2)


class Ros3(Client):
    """Read by h5py with HDF5's own driver for S3."""

    modules = ("h5py",)

    def open(self, path):
        import h5py

        if "ros3" not in h5py.registered_drivers():
            raise LookupError("the HDF5 of this wheel has no ROS3 driver")
        where = self.where
        named = {
            "aws_region": where["region"],
            "secret_id": where["key"],
            "secret_key": where["secret"],
        }
        url = "%s/%s/%s" % (where["endpoint_url"], where["bucket"], path)
        return h5py.File(url, "r", driver="ros3", **{k: v.encode() for k, v in named.items()})[
            ARRAY
        ]


class NetCDF4(Client):
    """The netCDF C library, by byte ranges."""

    modules = ("netCDF4",)

    def open(self, path):
        import netCDF4

        where = self.where
        url = "%s/%s/%s#mode=bytes" % (where["endpoint_url"], where["bucket"], path)
        return netCDF4.Dataset(url)[ARRAY]

    def list(self, path):
        import netCDF4

        where = self.where
        url = "%s/%s/%s#mode=bytes" % (where["endpoint_url"], where["bucket"], path)
        return sorted(name for name, one in netCDF4.Dataset(url).variables.items() if one.ndim == 2)


class Kerchunk(Client):
    """Read by xarray over references of kerchunk, through fsspec."""

    modules = ("xarray", "zarr", "s3fs", "fsspec.implementations.reference", "numcodecs")

    def dataset(self, path):
        import fsspec
        import xarray
        import zarr

        options = self.s3()[0]
        new = int(zarr.__version__.split(".")[0]) >= 3
        fs = fsspec.filesystem(
            "reference", fo=self.url(path), remote_protocol="s3", remote_options=dict(options, asynchronous=new),
            target_options=options, target_protocol="s3", skip_instance_cache=True, **({"asynchronous": True} if new else {})
        )  # fmt: skip
        if not new:
            return xarray.open_zarr(fs.get_mapper(""), consolidated=False, chunks=None)
        store = zarr.storage.FsspecStore(fs, read_only=True, path="")
        return xarray.open_zarr(store, consolidated=False, zarr_format=2, chunks=None)

    open, read, list = Xarray.open, Xarray.read, Xarray.list


class VirtualiZarr(Client):
    """Read by xarray over a manifest that VirtualiZarr makes of a file when it opens it."""

    modules = ("virtualizarr", "xarray", "zarr", "obstore.store")

    def dataset(self, path):
        import xarray
        from virtualizarr.parsers import HDFParser

        try:
            from obspec_utils.registry import ObjectStoreRegistry
        except ImportError:
            from virtualizarr.registry import ObjectStoreRegistry
        store, options = self.obstore()
        bucket = "s3://%s" % self.where["bucket"]
        registry = ObjectStoreRegistry({bucket: store(self.where["bucket"], **options)})
        manifest = HDFParser()(self.url(path), registry=registry)
        return xarray.open_zarr(manifest, consolidated=False, zarr_format=3, chunks=None)

    open, read, list = Xarray.open, Xarray.read, Xarray.list


class RangesObstore(Client):
    """Scattered ranges of a file by obstore, which joins them."""

    modules = ("obstore.store",)

    def open(self, path):
        store, options = self.obstore()
        return store(self.where["bucket"], **options), path

    def read(self, opened, gap):
        import obstore

        starts, ends = scatter()
        parts = obstore.get_ranges(*opened, starts=starts, ends=ends, coalesce=gap)
        return b"".join(bytes(one) for one in parts)


class RangesFsspec(Client):
    """The same by fsspec, joined as its references do it."""

    modules = ("s3fs", "fsspec.utils")

    def open(self, path):
        return self.filesystem(), self.url(path)

    def read(self, opened, gap):
        from fsspec.utils import merge_offset_ranges

        (fs, url), (starts, ends) = opened, scatter()
        joined = merge_offset_ranges([url] * len(starts), starts[:], ends, max_gap=gap, sort=False)
        found = dict(zip(joined[1], fs.cat_ranges(*joined)))
        parts = [(found[at], n - at) for n in starts for at in [max(a for a in found if a <= n)]]
        return b"".join(block[n : n + RANGE_NBYTES] for block, n in parts)


class Icechunk(Client):
    """Read by zarr over a repository of Icechunk."""

    modules = ("icechunk", "zarr", "numcodecs")
    forks = False  # its threads start when it is imported

    def repository(self, path, how="open"):
        import icechunk

        where = self.where
        storage = icechunk.s3_storage(
            bucket=where["bucket"], prefix=path, region=where["region"], endpoint_url=where["endpoint_url"],
            allow_http=True, force_path_style=True, access_key_id=where["key"], secret_access_key=where["secret"],
        )  # fmt: skip
        return getattr(icechunk.Repository, how)(storage)

    def group(self, path):
        import zarr

        store = self.repository(path).readonly_session("main").store
        return zarr.open_group(store, mode="r")

    def open(self, path):
        return self.group(path)[ARRAY]

    def list(self, path):
        return sorted(name for name, _ in self.group(path).arrays())

    def write(self, path, arrays, chunks):
        import zarr

        session = self.repository(path, "create").writable_session("main")
        group = zarr.create_group(session.store, overwrite=True)
        for name, values in arrays.items():
            shape = chunks if values.ndim == 3 else values.shape
            group.create_array(name, shape=values.shape, chunks=shape, dtype=values.dtype)[:] = (
                values
            )
        session.commit("written")

    def open_to_append(self, path):
        import zarr

        self.session = self.repository(path).writable_session("main")
        return zarr.open_group(self.session.store, mode="r+")[ARRAY]

    def append(self, opened, path):
        import numpy as np

        opened.append(np.zeros((STEPS, *opened.shape[1:]), opened.dtype))
        self.session.commit("appended")


class TensorStore(Client):
    """TensorStore."""

    modules = ("tensorstore",)

    def open(self, path):
        import tensorstore

        where, driver = self.where, "zarr3" if "v3" in path else "zarr"
        kvstore = {
            "driver": "s3", "bucket": where["bucket"], "path": "%s/%s/" % (path, ARRAY),
            "endpoint": where["endpoint_url"], "aws_region": where["region"],
        }  # fmt: skip
        return tensorstore.open({"driver": driver, "kvstore": kvstore}, open=True).result()

    open_to_append = open

    def read(self, opened, selection):
        return opened[selection].read().result()

    def append(self, opened, path):
        import numpy as np

        n = opened.shape[0]
        larger = opened.resize(exclusive_max=[n + STEPS, *opened.shape[1:]]).result()
        larger[n:].write(np.zeros((STEPS, *opened.shape[1:]), opened.dtype.numpy_dtype)).result()


class Gdal(Client):
    """GDAL, through rasterio, on a tiled GeoTIFF."""

    modules = ("rasterio",)

    def open(self, path):
        import rasterio

        self.env = rasterio.Env(
            AWS_S3_ENDPOINT=self.where["endpoint_url"].split("//")[1], AWS_HTTPS="NO",
            AWS_VIRTUAL_HOSTING="FALSE", GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR",
        )  # fmt: skip
        self.env.__enter__()
        return rasterio.open("/vsis3/%s/%s" % (self.where["bucket"], path))

    def read(self, opened, selection):
        from rasterio.windows import Window

        counts = [one.indices(n) for one, n in zip(selection, (opened.count, *opened.shape))]
        (b, b_end, _), (y, y_end, _), (x, x_end, _) = counts
        window = Window(x, y, x_end - x, y_end - y)
        return opened.read([n + 1 for n in range(b, b_end)], window=window)


class TileDB(Client):
    """TileDB."""

    modules = ("tiledb",)

    def context(self):
        import tiledb

        where = self.where
        return tiledb.Ctx({
            "vfs.s3.endpoint_override": where["endpoint_url"].split("//")[1], "vfs.s3.scheme": "http",
            "vfs.s3.use_virtual_addressing": "false", "vfs.s3.region": where["region"],
            "vfs.s3.aws_access_key_id": where["key"], "vfs.s3.aws_secret_access_key": where["secret"],
        })  # fmt: skip

    def open(self, path):
        import tiledb

        return tiledb.open(self.url(path), ctx=self.context())

    def write(self, path, arrays, chunks):
        import numpy as np
        import tiledb

        values, ctx = arrays[ARRAY], self.context()
        dims = [
            tiledb.Dim(name, domain=(0, n - 1), tile=tile, dtype=np.int32, ctx=ctx)
            for name, n, tile in zip(("time", "y", "x"), values.shape, chunks)
        ]
        zlib_filter = tiledb.FilterList([tiledb.GzipFilter(level=1)])
        attr = tiledb.Attr(dtype=values.dtype, filters=zlib_filter, ctx=ctx)
        schema = tiledb.ArraySchema(tiledb.Domain(*dims, ctx=ctx), attrs=[attr], ctx=ctx)
        tiledb.Array.create(self.url(path), schema, ctx=ctx)
        with tiledb.open(self.url(path), "w", ctx=ctx) as array:
            array[:] = values


CLIENTS = {
    "zarr-s3fs": Zarr,
    "zarr-obstore": ZarrObstore,
    "zarr-zarrs": Zarrs,
    "xarray-zarr": Xarray,
    "xarray-zarr-dask": XarrayDask,
    "xarray-zarr-unconsolidated": XarrayPlain,
    "h5netcdf": H5netcdf,
    "h5py-s3fs": H5py,
    "ros3": Ros3,
    "netcdf4-bytes": NetCDF4,
    "kerchunk": Kerchunk,
    "virtualizarr": VirtualiZarr,
    "ranges-obstore": RangesObstore,
    "ranges-fsspec": RangesFsspec,
    "icechunk": Icechunk,
    "tensorstore": TensorStore,
    "gdal": Gdal,
    "tiledb": TileDB,
}


def digest(values):
    """Compute a checksum of what was read, whatever holds it."""
    import numpy as np

    if isinstance(values, bytes):
        return zlib.crc32(values)
    values = np.squeeze(np.ascontiguousarray(np.asarray(values, "<f4")))
    return zlib.crc32(np.ascontiguousarray(values).tobytes())


def work(job):
    """Do a job, in a child."""
    client = CLIENTS[job["client"]](job["where"])
    operation, path, where = job["operation"], job["path"], job["where"]
    os.environ.update(AWS_ACCESS_KEY_ID=where["key"], AWS_SECRET_ACCESS_KEY=where["secret"])
    if operation == "write":
        import numpy as np

        arrays = dict(np.load(job["arrays"]))
        client.write(path, arrays, tuple(job["chunks"]))
        return {"done": True}
    if operation.startswith("metadata"):
        return {"done": True, "names": len(client.list(path))}
    opener = (
        getattr(client, "open_to_append", client.open) if operation == "append" else client.open
    )
    opened = opener(path)
    say({"opened": True})
    if read_line() == "end":
        return {"done": True}
    if operation == "append":
        client.append(opened, path)
        return {"done": True}
    selection = {**selections(job["shape"], job["chunks"]), **GAPS}[operation]
    return {"done": True, "crc": digest(client.read(opened, selection))}


def answer(line):
    """Do a job, say what came of it, and end."""
    try:
        say(work(json.loads(line)))
    except NotImplementedError:
        say({"failed": ""})
    except BaseException as error:
        if os.environ.get("LEDGER_TRACEBACK"):
            traceback.print_exc()
        say({"failed": explain(error)})
    os._exit(0)


def say(message):
    """Write a line of JSON."""
    os.write(ANSWERS, (json.dumps(message) + "\n").encode())


def read_line():
    """Read a line, one byte after the other, so that none is taken from who reads next."""
    line = b""
    while True:
        byte = os.read(0, 1)
        if byte in (b"\n", b""):
            return line.decode()
        line += byte


def explain(error):
    """Say in a line what went wrong."""
    text = " ".join(str(error).split())[:200]
    return "%s: %s" % (type(error).__name__, text)


def main():
    """Import what a client needs, then do jobs, each in a child."""
    first = json.loads(read_line())
    versions, name = {}, ""
    try:
        for name in CLIENTS[first["client"]].modules:
            importlib.import_module(name)
        for name in first["versions"]:
            with contextlib.suppress(Exception):
                versions[name] = version_of(name)
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
            if CLIENTS[first["client"]].forks:
                answer(line)
            os.dup2(ANSWERS, 1)
            os.execv(sys.executable, [sys.executable, __file__, line])  # noqa: S606
        _, status = os.waitpid(child, 0)
        if status:
            say({"failed": "ended by signal or exit status %d" % status})


def version_of(name):
    """Return the version of an installed distribution."""
    from importlib.metadata import version

    return version(name)


if __name__ == "__main__":
    ANSWERS = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    if len(sys.argv) > 1:
        answer(sys.argv[1])
    main()
