"""Small programs that people write, each slow for one reason, and some that are not."""

from __future__ import annotations

from dataclasses import dataclass

from wire.bed.networks import FirstByte, Profile

NEAR = Profile("near", FirstByte(0.08, 0.09), stream_mb_per_s=40, aggregate_mb_per_s=400)
SET_UP = Profile(
    "set-up", FirstByte(0.08, 0.09), stream_mb_per_s=40, aggregate_mb_per_s=400, round_trip_s=0.03,
    setup_round_trips=2,
)  # fmt: skip
STRICT = Profile("strict", FirstByte(0.02, 0.03), aggregate_mb_per_s=400, requests_per_s=20)

HEADS = {
    "requests": """
import os, requests
from concurrent.futures import ThreadPoolExecutor
url, session = os.environ["AWS_ENDPOINT_URL"] + "/arrays/trace/", requests.Session()
def part(start, n=20_000, get=session.get, name="large"):
    return get(url + name, headers={"Range": f"bytes={start}-{start + n - 1}"}).content
""",
    "httpx": """
import os, httpx
url = os.environ["AWS_ENDPOINT_URL"] + "/arrays/trace/"
def part(start, n=20_000, get=httpx.get, name="large"):
    return get(url + name, headers={"Range": f"bytes={start}-{start + n - 1}"}).content
""",
    "obstore": """
import os, asyncio, obstore
from obstore.store import S3Store
store = S3Store("arrays", prefix="trace", client_options={"allow_http": True})
async def all_of(names):
    return await asyncio.gather(*(obstore.get_range_async(store, name, start=0, length=30_000) for name in names))
""",
    "s3fs": """
import s3fs
fs = s3fs.S3FileSystem()
root = "arrays/trace/"
""",
    "zarr-obstore": """
import zarr
from obstore.store import S3Store
def group(name):
    store = S3Store("arrays", prefix="trace/" + name, client_options={"allow_http": True})
    return zarr.open_group(zarr.storage.ObjectStore(store, read_only=True), mode="r", zarr_format=3, **more)
more = {"use_consolidated": True}
""",
    "zarr-s3fs": """
import zarr
def group(name, **options):
    return zarr.open_group("s3://arrays/trace/" + name, mode="r", zarr_format=3, use_consolidated=True, storage_options=options)
""",
    "xarray-s3fs": """
import xarray as xr
def open(name, **more):
    return xr.open_zarr("s3://arrays/trace/" + name, zarr_format=3, chunks=None, **more)
""",
    "h5netcdf": """
import s3fs, xarray as xr
def open(name, **more):
    return xr.open_dataset(s3fs.S3FileSystem().open("arrays/trace/" + name, **more), engine="h5netcdf")
""",
    "tensorstore": """
import os, tensorstore as ts
def open(name):
    where = {"driver": "s3", "bucket": "arrays", "endpoint": os.environ["AWS_ENDPOINT_URL"], "path": "trace/" + name + "/", "aws_region": "us-east-1"}
    return ts.open({"driver": "zarr3", "kvstore": where, "recheck_cached_data": False, "recheck_cached_metadata": False}).result()
""",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Program:
    """A program, what is slow in it and the network that it meets."""

    cause: str  # as the findings name it, or nothing
    client: str
    body: str
    network: Profile = NEAR

    @property
    def text(self) -> str:
        """What Python runs."""
        return HEADS[self.client] + self.body


PROGRAMS = [
    Program("failed", "requests", "print([float('nan') if not (got := session.get(url + f'open/a/c/{i}')).ok else len(got.content) for i in range(8)])"),
    Program("failed", "requests", "with ThreadPoolExecutor(4) as pool: print([len(r.content) * r.ok for r in pool.map(session.get, [url + f'open/a/c/{i}' for i in range(8)])])"),
    Program("looks", "zarr-s3fs", "a = group('cube')['a']\nfor t in range(12): a[t]"),
    Program("looks", "xarray-s3fs", "a = open('cube')['a']\nfor t in range(12): a[t].values"),
    Program("repeats", "obstore", "for _ in range(12): asyncio.run(all_of([f'files/{i}' for i in range(6)]))"),
    Program("repeats", "zarr-obstore", "a = group('cube')['a']\nfor _ in range(12): a[0]"),
    Program("overlaps", "s3fs", "f = fs.open(root + 'large')\nfor mb in (30, 24, 18, 12, 6, 0): f.seek(mb * 10**6); f.read(20_000)"),
    Program("overlaps", "h5netcdf", "ds = open('many.nc', block_size=2**20)\nfor name in ds: ds[name][0].values"),
    Program("neighbours", "s3fs", "f = fs.open(root + 'large', cache_type='none')\nfor _ in range(20): f.read(60_000)"),
    Program("neighbours", "obstore", "for i in range(20): obstore.get_range(store, 'large', start=60_000 * i, length=60_000)"),
    Program("in-turn", "requests", "for i in range(20): session.get(url + f'files/{i}')"),
    Program("in-turn", "tensorstore", "a = open('cube/a')\nfor i in range(12):\n  for j in range(2): a[i, 0, 10 * j].read().result()"),
    Program("metadata", "zarr-obstore", "more = {'use_consolidated': False}\ng = group('many')\nfor i in range(25): g[f'v{i}'].shape"),
    Program("metadata", "xarray-s3fs", "print(open('many', consolidated=False))"),
    Program("probes", "requests", "for i in range(20): session.get(url + f'files/{i}.idx')"),
    Program("probes", "obstore", "for i in range(20):\n  try: obstore.head(store, f'files/{i}.idx')\n  except FileNotFoundError: pass"),
    Program("listings", "obstore", "for i in range(12):\n  obstore.list(store, 'files').collect()\n  obstore.get(store, f'files/{i}').bytes()"),
    Program("listings", "s3fs", "fs = s3fs.S3FileSystem(max_concurrency=1)\nfor i in range(12):\n  fs.ls(root + 'files', refresh=True)\n  fs.cat_file(root + f'files/{i}', start=0, end=100)"),
    Program("one-stream", "requests", "for _ in range(1): session.get(url + 'large')"),
    Program("one-stream", "obstore", "obstore.get(store, 'large').bytes()"),
    Program("few", "zarr-obstore", "zarr.config.set({'async.concurrency': 3})\ngroup('cube')['a'][:]"),
    Program("few", "requests", "with ThreadPoolExecutor(4) as pool: [*pool.map(session.get, [url + f'files/{i}' for i in range(40)])]"),
    Program("throttled", "obstore", "asyncio.run(all_of([f'files/{i}' for i in range(30)]))", STRICT),
    Program("throttled", "s3fs", "fs.cat([root + f'files/{i}' for i in range(16)])", STRICT),
    Program("connections", "requests", "for i in range(20): part(1_500_000 * (i * 7 % 20), get=requests.get)", SET_UP),
    Program("connections", "httpx", "for i in range(20): part(1_500_000 * (i * 7 % 20))", SET_UP),
    Program("parts-in-turn", "requests", "for i in range(20): part(1_500_000 * (i * 7 % 20))"),
    Program("parts-in-turn", "obstore", "for i in range(20): obstore.get_range(store, 'large', start=1_500_000 * (i * 7 % 20), length=9000)"),
    Program("processor", "requests", "import time\nfor i in range(8):\n  part(1_500_000 * i)\n  until = time.process_time() + 0.6\n  while time.process_time() < until: pass"),
    Program("processor", "obstore", "import zlib\nfor i in range(6):\n  data = obstore.get_range(store, 'large', start=3_000_000 * i, length=900_000)\n  for _ in range(20): zlib.compress(bytes(data), 9)"),
    Program("", "requests", "session.get(url + 'files/0')"),
    Program("", "obstore", "asyncio.run(all_of([f'files/{i}' for i in range(8)]))"),
    Program("", "zarr-obstore", "group('cube')['a'][0]"),
    Program("", "zarr-s3fs", "group('cube', max_concurrency=1)['a'][1]"),
    Program("", "tensorstore", "open('cube/a')[0].read().result()"),
    Program("", "s3fs", "s3fs.S3FileSystem(max_concurrency=1).cat([root + f'files/{i}' for i in range(6)])"),
]  # fmt: skip

_POOL = "with ThreadPoolExecutor({}) as pool: [*pool.map(session.get, [url + f'files/{{i}}' for i in range({}, 40)])]\n"
SEVERAL = [  # programs with two or three causes, each on a line of its own
    ("requests", {"in-turn", "few"}, "for i in range(20): session.get(url + f'files/{i}')\n" + _POOL.format(4, 0)),
    ("requests", {"parts-in-turn", "in-turn"}, "for i in range(20): part(1_500_000 * (i * 7 % 20))\nfor i in range(20): session.get(url + f'files/{i}')\n"),
    ("obstore", {"neighbours", "in-turn"}, "for i in range(20): obstore.get_range(store, 'large', start=60_000 * i, length=60_000)\nfor i in range(20): obstore.get(store, f'files/{i}').bytes()\n"),
    ("zarr-obstore", {"metadata", "repeats"}, "more = {'use_consolidated': False}\ng = group('many')\nfor i in range(25): g[f'v{i}'].shape\na = group('cube')['a']\nfor _ in range(12): a[0]\n"),
    ("s3fs", {"overlaps", "in-turn"}, "f = fs.open(root + 'large')\nfor mb in (30, 24, 18, 12, 6, 0): f.seek(mb * 10**6); f.read(20_000)\nfor i in range(20): fs.cat_file(root + f'files/{i}')\n"),
    ("requests", {"probes", "in-turn", "few"}, "for i in range(20): session.get(url + f'files/{i}.idx')\nfor i in range(20): session.get(url + f'files/{i}')\n" + _POOL.format(4, 0)),
]  # fmt: skip
