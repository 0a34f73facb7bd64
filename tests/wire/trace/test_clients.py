"""Client paths seen by the gateway with no line of the program changed: values right, signatures verified by the store."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import h5py
import icechunk
import numpy as np
import pytest
import rasterio
import tiledb
import zarr
from rasterio.transform import from_origin

from tests.stores import client_environment, make_location, serve
from tests.wire.trace.stores import Objects, open_hosts
from wire.bed.testbed import Server
from wire.trace import launch

BUCKET = "of-traces"
STORE, FILES, GCS, AZURE = "store.example", "files.example", "storage.googleapis.com", "acc.blob.core.windows.net"  # fmt: skip
BODY = bytes(range(256)) * 400
CUBE = np.arange(4 * 30 * 40, dtype="f4").reshape(4, 30, 40)


def write_files(folder: Path) -> None:
    """Write what the programs read: bytes, a Zarr array, a NetCDF file, a GeoTIFF, a TileDB array and Icechunk."""
    (folder / "data.bin").write_bytes(BODY)
    group = zarr.open_group(folder / "cube.zarr", mode="w", zarr_format=2)
    array = group.create_array("t", shape=CUBE.shape, chunks=(1, 30, 40), dtype="f4")
    array[:], array.attrs["_ARRAY_DIMENSIONS"] = CUBE, ["z", "y", "x"]
    zarr.consolidate_metadata(folder / "cube.zarr")
    with h5py.File(folder / "cube.nc", "w") as file:
        file.create_dataset("t", data=CUBE, chunks=(1, 30, 40))
        for axis, name in enumerate("zyx"):
            file[name] = np.arange(CUBE.shape[axis])
            file[name].make_scale(name)
            file["t"].dims[axis].attach_scale(file[name])
    shape = {"height": 30, "width": 40, "count": 1, "dtype": "float32"}
    tiles = {"driver": "GTiff", "tiled": True, "blockxsize": 16, "blockysize": 16}
    with rasterio.open(
        folder / "image.tif",
        "w",
        transform=from_origin(7, 50, 1, 1),
        crs="EPSG:4326",
        **shape,
        **tiles,
    ) as image:
        image.write(CUBE[0], 1)
    tiledb.from_numpy(os.fspath(folder / "cube.tiledb"), CUBE).close()
    repo = icechunk.Repository.create(
        icechunk.local_filesystem_storage(os.fspath(folder / "cube.icechunk"))
    )
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="t", data=CUBE, chunks=(1, 30, 40))
    session.commit("cube")
    # as stores of others name them
    for place in (BUCKET, f"storage/v1/b/{BUCKET}/o", f"download/storage/v1/b/{BUCKET}/o"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).symlink_to(folder, target_is_directory=True)


@pytest.fixture(scope="module")
def world(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Serve the files by S3, which verifies signatures, and by the web, both behind TLS; yield the variables."""
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    client = make_location(server, BUCKET).botocore()
    for path in folder.rglob("*"):
        key = os.fspath(path.relative_to(folder))
        if path.is_file() and key.startswith(("cube", "data", "image")):
            client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
    with serve(partial(Objects, directory=os.fspath(folder))) as web:
        targets = {STORE: server.endpoint_url} | dict.fromkeys((FILES, GCS, AZURE), web)
        bundle = tmp_path_factory.mktemp("bundle") / "other.pem"
        with open_hosts(bundle, targets) as variables:
            yield {
                **variables,
                **client_environment(server),
                "PLAIN": web,
                "AWS_ENDPOINT_URL": f"https://{STORE}",
                "AWS_S3_ENDPOINT": STORE,
                "AWS_VIRTUAL_HOSTING": "FALSE",
            }


PROGRAMS = """
# botocore: store.example
import botocore.session
c = botocore.session.get_session().create_client('s3')
assert c.get_object(Bucket='of-traces', Key='data.bin')['Body'].read() == BODY
# botocore uploads: store.example
import botocore.session
c = botocore.session.get_session().create_client('s3')
c.put_object(Bucket='of-traces', Key='new/b', Body=BODY * 9)
assert c.head_object(Bucket='of-traces', Key='new/b')['ContentLength'] == 9 * len(BODY)
# s3fs: store.example
import s3fs
assert s3fs.S3FileSystem().cat('of-traces/data.bin') == BODY
# s3fs uploads: store.example
import s3fs
f = s3fs.S3FileSystem()
f.pipe('of-traces/new/s', BODY * 120)
with f.open('of-traces/new/m', 'wb', block_size=5 * 2**20) as o: o.write(BODY * 120)
assert f.cat('of-traces/new/s') == f.cat('of-traces/new/m') == BODY * 120
# s3fs, endpoint in code: store.example
import s3fs
assert s3fs.S3FileSystem(endpoint_url='https://store.example').cat_file('of-traces/data.bin', start=5, end=9) == BODY[5:9]
# s3fs, anonymous: store.example
import s3fs
try: s3fs.S3FileSystem(anon=True).cat('of-traces/data.bin')
except PermissionError: pass
# zarr over s3fs: store.example
import zarr
assert zarr.open_array('s3://of-traces/cube.zarr/t', mode='r')[2, 3, 4] == 2 * 1200 + 3 * 40 + 4
# xarray over s3fs: store.example
import xarray
assert xarray.open_zarr('s3://of-traces/cube.zarr').t[3, 29, 39] == 4799
# xarray, h5netcdf: store.example
import fsspec, xarray
assert xarray.open_dataset(fsspec.open('s3://of-traces/cube.nc').open(), engine='h5netcdf').t[3, 29, 39] == 4799
# obstore, S3: store.example
import obstore.store as s, os
assert s.S3Store('of-traces', endpoint=ENDPOINT).get('data.bin').bytes() == BODY
# zarr over obstore: store.example
import obstore.store as s, zarr
from zarr.storage import ObjectStore
assert zarr.open_array(ObjectStore(s.S3Store('of-traces', prefix='cube.zarr', endpoint=ENDPOINT)), path='t', mode='r')[3, 29, 39] == 4799
# obstore, GCS: storage.googleapis.com
import obstore.store as s
assert bytes(s.GCSStore('of-traces', skip_signature=True).get('data.bin').bytes()) == BODY
# obstore, Azure: acc.blob.core.windows.net
import obstore.store as s
assert bytes(s.AzureStore('of-traces', account_name='acc', skip_signature=True).get('data.bin').bytes()) == BODY
# obstore, HTTP: files.example
import obstore.store as s
assert bytes(s.HTTPStore('https://files.example').get('data.bin').bytes()) == BODY
# async-geotiff: files.example
import asyncio, obstore.store as s
from async_geotiff import GeoTIFF
async def f():
    g = await GeoTIFF.open('image.tif', store=s.HTTPStore('https://files.example'))
    t = await g.fetch_tile(1, 1)
    return t.array
asyncio.run(f())
# Icechunk, S3: store.example
import icechunk, zarr
r = icechunk.Repository.open(icechunk.s3_storage(bucket='of-traces', prefix='cube.icechunk', endpoint_url=ENDPOINT, force_path_style=True, from_env=True))
s = r.writable_session('main')
a = zarr.open_array(s.store, path='t', mode='r+')
assert a[3, 29, 39] == 4799
a[0] = 1
s.commit('more')
# Icechunk, HTTP: files.example
import icechunk, zarr
r = icechunk.Repository.open(icechunk.http_storage('https://files.example/cube.icechunk'))
assert zarr.open_array(r.readonly_session('main').store, path='t', mode='r')[3, 29, 39] == 4799
# TensorStore, S3: store.example
import tensorstore as ts
assert ts.open({'driver': 'zarr', 'kvstore': {'driver': 's3', 'bucket': 'of-traces', 'path': 'cube.zarr/t/', 'endpoint': ENDPOINT, 'aws_region': os.environ['AWS_REGION']}}).result()[3, 29, 39].read().result() == 4799
# TensorStore, GCS: storage.googleapis.com
import tensorstore as ts
assert ts.KvStore.open('gs://of-traces/').result().read('data.bin').result().value == BODY
# TensorStore, HTTP: files.example
import tensorstore as ts
assert ts.KvStore.open('https://files.example/').result().read('data.bin').result().value == BODY
# rasterio, /vsis3: store.example
import rasterio
assert rasterio.open('s3://of-traces/image.tif').read(1)[29, 39] == 1199
# rasterio, /vsicurl: files.example
import rasterio
assert rasterio.open('https://files.example/image.tif').read(1)[29, 39] == 1199
# TileDB: store.example
import tiledb
c = tiledb.Ctx({'vfs.s3.endpoint_override': 'store.example', 'vfs.s3.use_virtual_addressing': 'false', 'vfs.s3.region': os.environ['AWS_REGION']})
assert tiledb.open('s3://of-traces/cube.tiledb', ctx=c)[3, 29, 39] == 4799
# fsspec, https: files.example
import fsspec
assert fsspec.open('https://files.example/data.bin').open().read() == BODY
# gcsfs: storage.googleapis.com
import gcsfs.core  # its other class asks for the kind of a bucket over HTTP/2, for a minute
assert gcsfs.core.GCSFileSystem(token='anon').cat_file('of-traces/data.bin') == BODY
# requests: files.example
import requests
assert requests.get('https://files.example/data.bin').content == BODY
# urllib: files.example
import urllib.request
assert urllib.request.urlopen('https://files.example/data.bin').read() == BODY
# httpx: files.example
import httpx
assert httpx.get('https://files.example/data.bin').content == BODY
# netCDF4, #mode=bytes: files.example
import netCDF4
assert netCDF4.Dataset('https://files.example/cube.nc#mode=bytes')['t'][3, 29, 39] == 4799
# requests, plain: 127.0.0.1
import requests
assert requests.get(os.environ['PLAIN'] + '/data.bin').content == BODY
# curl: files.example
import subprocess
assert subprocess.check_output(['curl', '-sS', 'https://files.example/data.bin']) == BODY
# aws: store.example
import subprocess, sys
assert subprocess.check_output([os.path.join(os.path.dirname(sys.executable), 'aws'), 's3', 'cp', 's3://of-traces/data.bin', '-']) == BODY
"""
START = (
    "import os, sys; ENDPOINT = os.environ['AWS_ENDPOINT_URL']; BODY = bytes(range(256)) * 400\n"
)
PATHS = dict(re.findall(r"^# (.+?): (\S+\n(?:[^#].*\n)+)", PROGRAMS, re.MULTILINE))


QUICK = {
    "s3fs uploads",
    "obstore, S3",
    "Icechunk, S3",
    "urllib",
    "netCDF4, #mode=bytes",
    "requests, plain",
}


@pytest.mark.parametrize(
    "path", [pytest.param(one, marks=[pytest.mark.slow] * (one not in QUICK)) for one in PATHS]
)
def test_client_is_seen(path: str, world: dict[str, str]) -> None:
    """The program runs to its end, reads what is there, and all that it asks is in the trace."""
    host, _, program = PATHS[path].partition("\n")
    command = [sys.executable, "-c", START + program]
    run = launch.run(command, environment=world)
    assert run.exit_code == 0
    assert {row.host.partition(":")[0] for row in run.rows} == {host}
    assert {row.status // 100 for row in run.rows} <= {2, 3, 4}
    assert not run.unread and not run.bypassed and not run.remarks
