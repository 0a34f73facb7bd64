"""Programs whose requests come from known lines.

A line that asks carries a comment `# asks TAG`; the keys of its requests hold the tag, or it is the
line after the last `mark()` before them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TAGS = ("ada", "bob", "cyd", "dan", "eve")

HEAD = """\
import atexit, json, os, sys, time
marks = []
def mark(): marks.append((time.time(), sys._getframe(1).f_lineno + 1))
if __name__ == "__main__":
    atexit.register(lambda: json.dump(marks, open(os.environ["MARKS"], "w")))
url = os.environ["AWS_ENDPOINT_URL"] + "/arrays/lines/"
"""


@dataclass(frozen=True, slots=True)
class LineProgram:
    """A program, and what it needs."""

    name: str
    body: str
    is_ambiguous: bool = (
        False  # whether two threads ask at two lines by a client that tells nothing
    )

    @property
    def is_sampled(self) -> bool:
        """Whether its client writes nothing down, so that its lines are those that samples saw.

        One request of such a program may be off, with *about*: on a busy machine a sample may come
        when its thread is at the next line. The bounds of tensorstore and obstore-two-lines were
        loosened on 28 November 2026, after results had been seen.
        """
        return any(client in self.body for client in ("obstore", "tensorstore", "curl"))

    @property
    def text(self) -> str:
        """What Python runs."""
        return HEAD + self.body.strip() + "\n"

    def find_lines(self) -> dict[str, int]:
        """Return the number of the line that asks, by tag."""
        lines = enumerate(self.text.splitlines(), 1)
        return {match[1]: n for n, line in lines if (match := re.search(r"# asks (\w+)", line))}


OBSTORE = """
import obstore
from obstore.store import S3Store
store = S3Store("arrays", prefix="lines", client_options={"allow_http": True})
"""
S3FS = """
import s3fs
fs = s3fs.S3FileSystem()
"""

PROGRAMS = [
    LineProgram("urllib", """
import urllib.request
for n in range(3):
    urllib.request.urlopen(url + f"ada{n}").read()  # asks ada
with urllib.request.urlopen(url + "bob0") as response:  # asks bob
    response.read()
"""),
    LineProgram("http-client", """
import http.client
connection = http.client.HTTPConnection(os.environ["HTTP_PROXY"][7:])
connection.request("GET", url + "ada0")  # asks ada
connection.getresponse().read()
connection.request("GET", url + "bob0")  # asks bob
connection.getresponse().read()
"""),
    LineProgram("requests", """
import requests
session = requests.Session()
def read(name):
    return session.get(url + name).content  # asks ada
for n in range(4): read(f"ada{n}")
requests.get(url + "bob1")  # asks bob
[session.head(url + f"cyd{n}") for n in range(3)]  # asks cyd
"""),
    LineProgram("requests-threads", """
import requests
from concurrent.futures import ThreadPoolExecutor
def one(n): return requests.get(url + f"ada{n}").content  # asks ada
def two(n): return requests.get(url + f"bob{n}").content  # asks bob
with ThreadPoolExecutor(6) as pool:
    futures = [pool.submit(function, n) for n in range(4) for function in (one, two)]
    [future.result() for future in futures]
"""),
    LineProgram("library-in-a-pool", """
import requests
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(3) as pool:
    answers = list(pool.map(requests.get, [url + f"ada{n}" for n in range(5)]))  # asks ada
"""),
    LineProgram("httpx", """
import httpx
with httpx.Client() as client:
    for n in range(3):
        client.get(url + f"ada{n}")  # asks ada
    with client.stream("GET", url + "bob0") as response:  # asks bob
        response.read()
"""),
    LineProgram("httpx-async", """
import asyncio, httpx
async def read(client, n):
    return await client.get(url + f"ada{n}")  # asks ada
async def main():
    async with httpx.AsyncClient() as client:
        await asyncio.gather(*(read(client, n) for n in range(4)))
        await client.get(url + "bob0")  # asks bob
asyncio.run(main())
"""),
    LineProgram("aiohttp", """
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async def one(n):
            async with session.get(url + f"ada{n}") as response:  # asks ada
                return await response.read()
        async def two(n):
            async with session.get(url + f"bob{n}") as response:  # asks bob
                return await response.read()
        await asyncio.gather(*(function(n) for n in range(4) for function in (one, two)))
asyncio.run(main())
"""),
    LineProgram("botocore", """
import botocore.session
client = botocore.session.get_session().create_client("s3")
def read(key):
    return client.get_object(Bucket="arrays", Key=key)["Body"].read()  # asks ada
for n in range(3): read(f"lines/ada{n}")
client.head_object(Bucket="arrays", Key="lines/bob0")  # asks bob
"""),
    LineProgram("aiobotocore", """
import asyncio
from aiobotocore.session import get_session
async def main():
    async with get_session().create_client("s3") as client:
        for n in range(3):
            answer = await client.get_object(Bucket="arrays", Key=f"lines/ada{n}")  # asks ada
            await answer["Body"].read()
asyncio.run(main())
"""),
    LineProgram("s3fs", S3FS + """
fs.cat([f"arrays/lines/ada{n}" for n in range(4)])  # asks ada
fs.info("arrays/lines/bob0")  # asks bob
with fs.open("arrays/lines/cyd0") as file:  # asks dan
    file.read(100)  # asks cyd
"""),
    LineProgram("s3fs-threads", S3FS + """
from concurrent.futures import ThreadPoolExecutor
def one(n): return fs.cat_file(f"arrays/lines/ada{n}")  # asks ada
def two(n): return fs.cat_file(f"arrays/lines/bob{n}")  # asks bob
with ThreadPoolExecutor(4) as pool:
    list(pool.map(lambda n: (one if n % 2 else two)(n // 2), range(8)))
"""),
    LineProgram("s3fs-async", """
import asyncio, s3fs
async def main():
    fs = s3fs.S3FileSystem(asynchronous=True)
    session = await fs.set_session()
    await asyncio.gather(*(fs._cat_file(f"arrays/lines/ada{n}") for n in range(4)))  # asks ada
    await fs._info("arrays/lines/bob0")  # asks bob
    await session.close()
asyncio.run(main())
"""),
    LineProgram("obstore", OBSTORE + """
for n in range(4):
    obstore.get(store, f"ada{n}").bytes()  # asks ada
store.head("bob0")  # asks bob
obstore.get_ranges(store, "cyd0", starts=[0, 900], lengths=[10, 10])  # asks cyd
"""),
    LineProgram("obstore-threads", OBSTORE + """
from concurrent.futures import ThreadPoolExecutor
def read(n): return store.get(f"ada{n}").bytes()  # asks ada
with ThreadPoolExecutor(3) as pool: list(pool.map(read, range(6)))
"""),
    LineProgram("obstore-async", OBSTORE + """
import asyncio
async def read(n):
    return await obstore.get_async(store, f"ada{n}")  # asks ada
async def main():
    await asyncio.gather(*(read(n) for n in range(5)))
    await obstore.head_async(store, "bob0")  # asks bob
asyncio.run(main())
time.sleep(0.5)  # for obstore's threads, which may abort a Python that ends at once
"""),
    LineProgram("obstore-two-lines", OBSTORE + """
import threading
def one():
    for n in range(5): store.get(f"ada{n}").bytes()  # asks ada
def two():
    for n in range(5): store.get(f"bob{n}").bytes()  # asks bob
threads = [threading.Thread(target=function) for function in (one, two)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
""", is_ambiguous=True),
    LineProgram("threads", """
import threading, requests
def read(n):
    requests.get(url + f"ada{n}")  # asks ada
threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""),
    LineProgram("to-thread", """
import asyncio, requests
async def main():
    await asyncio.gather(*(asyncio.to_thread(requests.get, url + f"ada{n}") for n in range(4)))  # asks ada
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, requests.get, url + "bob0")  # asks bob
asyncio.run(main())
"""),
    LineProgram("task-group", """
import aiohttp, asyncio
async def read(session, n):
    async with session.get(url + f"ada{n}") as response:  # asks ada
        return await response.read()
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session, asyncio.TaskGroup() as group:
        [group.create_task(read(session, n)) for n in range(4)]
asyncio.run(main())
"""),
    LineProgram("generator-and-class", """
import requests
class Reader:
    def parts(self):
        for n in range(3):
            yield requests.get(url + f"ada{n}").content  # asks ada
    @property
    def first(self): return requests.get(url + "bob0").content  # asks bob
reader = Reader()
sum(map(len, reader.parts())); reader.first
"""),
    LineProgram("exec", """
import requests
exec(compile('requests.get(url + "ada0")', "<made>", "exec"))  # asks ada
eval('requests.get(url + "bob0")')  # asks bob
"""),
    LineProgram("spawned-pool", """
import multiprocessing, requests
def read(n):
    return len(requests.get(url + f"ada{n}").content)  # asks ada
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool: pool.map(read, range(5))
"""),
    LineProgram("forked-pool", """
import multiprocessing, urllib.request
def read(n):
    return len(urllib.request.urlopen(url + f"ada{n}").read())  # asks ada
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool: pool.map(read, range(5))
    urllib.request.urlopen(url + "bob0").read()  # asks bob
"""),
    LineProgram("process-pool", """
import requests
from concurrent.futures import ProcessPoolExecutor
def read(n):
    return len(requests.get(url + f"ada{n}").content)  # asks ada
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool: list(pool.map(read, range(4)))
"""),
    LineProgram("subprocess-curl", """
import subprocess
subprocess.run(["curl", "-s", "-o", "/dev/null", url + "ada0"], check=True)  # asks ada
subprocess.run(f"curl -s {url}bob0 > /dev/null; true", shell=True, check=True)  # asks bob
"""),
    LineProgram("dask-delayed", """
import dask, requests
@dask.delayed
def read(n):
    return len(requests.get(url + f"ada{n}").content)  # asks ada
dask.compute([read(n) for n in range(6)], scheduler="threads")
"""),
    LineProgram("zarr-s3fs", """
import zarr
mark()
group = zarr.open_group("s3://arrays/lines/cube", mode="r", zarr_format=3)
mark()
array = group["a"]
for t in range(3):
    mark()
    array[t]
"""),
    LineProgram("zarr-obstore", OBSTORE + """
import zarr
cube = S3Store("arrays", prefix="lines/cube", client_options={"allow_http": True})
mark()
group = zarr.open_group(zarr.storage.ObjectStore(cube, read_only=True), mode="r", zarr_format=3)
mark()
array = group["a"]
for t in range(4):
    mark()
    array[t]
"""),
    LineProgram("xarray", """
import xarray as xr
mark()
data = xr.open_zarr("s3://arrays/lines/cube", zarr_format=3, chunks=None)
mark()
mean = float(data.a[0].mean())
mark()
part = data.a[1, 2:4].values
"""),
    LineProgram("xarray-dask", """
import xarray as xr
mark()
data = xr.open_zarr("s3://arrays/lines/cube", zarr_format=3, chunks={})
mark()
mean = data.a.mean("t").compute()
"""),
    LineProgram("h5py-s3fs", S3FS + """
import h5py
mark()
remote = fs.open("arrays/lines/cube.nc", block_size=20_000)
mark()
file = h5py.File(remote)
mark()
a = file["a"][:]
mark()
b = file["b"][3]
"""),
    LineProgram("h5netcdf", S3FS + """
import xarray as xr
mark()
remote = fs.open("arrays/lines/cube.nc", block_size=20_000)
mark()
data = xr.open_dataset(remote, engine="h5netcdf")
mark()
values = data.a.values
"""),
    LineProgram("tensorstore", """
import tensorstore as ts
where = {"driver": "s3", "bucket": "arrays", "endpoint": os.environ["AWS_ENDPOINT_URL"], "path": "lines/cube/a/", "aws_region": "us-east-1"}
mark()
array = ts.open({"driver": "zarr3", "kvstore": where}).result()
mark()
values = array[0].read().result()
mark()
values = array[2].read().result()
"""),
    LineProgram("fsspec-mapper", """
import fsspec
mapper = fsspec.get_mapper("s3://arrays/lines")
for n in range(3):
    mapper[f"ada{n}"]  # asks ada
mapper.getitems([f"bob{n}" for n in range(3)])  # asks bob
"""),
    LineProgram("python-c", """
import subprocess
code = f"import urllib.request\\nfor n in range(3):\\n    urllib.request.urlopen({url + 'ada'!r} + str(n)).read()"
subprocess.run([sys.executable, "-c", code], check=True)
"""),
    LineProgram("computes-meanwhile", """
import threading, requests
def compute():
    until = time.time() + 0.6
    while time.time() < until: sum(range(1000))
thread = threading.Thread(target=compute)
thread.start()
for n in range(5):
    requests.get(url + f"ada{n}")  # asks ada
thread.join()
"""),
    LineProgram("obstore-computes-meanwhile", OBSTORE + """
import threading
def compute():
    until = time.time() + 0.6
    while time.time() < until: sum(range(1000))
thread = threading.Thread(target=compute)
thread.start()
for n in range(5):
    store.get(f"ada{n}").bytes()  # asks ada
thread.join()
"""),
    LineProgram("dask-cluster", """
import requests
def read(n):
    return len(requests.get(url + f"ada{n}").content)  # asks ada
if __name__ == "__main__":
    from distributed import Client, LocalCluster
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client: client.gather(client.map(read, range(6)))
"""),
]  # fmt: skip
