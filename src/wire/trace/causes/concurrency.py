"""Causes in which fewer requests are under way than there could be, or many small ones."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from wire.errors import format_size
from wire.trace import analysis
from wire.trace.analysis import is_data
from wire.trace.causes.clients import find_clients
from wire.trace.causes.registry import FEW, Cause, Evidence, Remedy, advise, run_in_shell
from wire.trace.whatif import RETRIED, Edit, EditedRequest

if TYPE_CHECKING:
    from wire.trace.whatif import Trace

_BUSY = 0.5  # share of the time in which as many as allowed are under way
_FEW_IN_FLIGHT, _MORE_IN_FLIGHT = 16, 64
_DEFAULT_IN_FLIGHT = 10  # of Zarr, of botocore and so of s3fs
_SMALL_CHUNK_NBYTES = 64 * 1024
_MANY_CHUNKS = 100
_GOOD_CHUNK_NBYTES = 2**20
_MOST_JOINED = 64  # small chunks that one larger would hold, at most
_LATE, _LATE_S = 5.0, 0.2  # times the median, and seconds more, from which on an answer is late
_LEAST_OF_TAIL = 20  # requests, below which none is late
_TAIL = 0.1  # of the requests that may be late
_TAIL_SHARE = 0.1  # of the time


def _free_data(trace: Trace) -> frozenset[int]:
    """Find what may be asked for concurrently: data, and the HEADs before them."""
    return frozenset(
        trace.places(lambda row: row.method == "HEAD" or (row.method == "GET" and is_data(row)))
    )


def _find_in_turn(trace: Trace) -> Evidence | None:
    """Find objects, or chunks of a shard, that do not need one another, read one after the other."""
    if trace.is_throttled:  # more at once would be refused, too
        return None
    places = trace.data
    objects = [*trace.by_object(places)]
    # the index of a shard comes before its chunks
    parts = {
        i
        for group in objects
        for i in group[1:]
        if trace.kinds[i] == "chunk" and trace.rows[i].range_nbytes
    }
    if len(objects) + len(parts) < max(FEW, 0.5 * len(places)) or trace.n_data_in_flight != 1:
        return None
    free = _free_data(trace) - {group[0] for group in objects if parts.intersection(group)}
    name = f"{len(parts)} chunks of shards" if parts else f"{len(objects)} objects"
    size = format_size(median(trace.rows[i].nbytes for i in places))
    text = f"{name} were read one after the other, {size} each"
    return Evidence(places, text, Edit(trace.keep(), free))


def _find_few(trace: Trace) -> Evidence | None:
    """Find fewer requests in flight than there were to make."""
    if trace.is_throttled:
        return None
    places, n_in_flight = trace.data, trace.n_data_in_flight
    rows = [trace.rows[i] for i in places]
    if not 1 < n_in_flight <= _FEW_IN_FLIGHT or len(places) < 3 * n_in_flight:
        return None
    # a queue goes on whenever one of its requests has ended; a program that waits for all begins anew
    if analysis.in_flight(rows).count(n_in_flight) < _BUSY * (len(rows) - n_in_flight):
        return None
    span_s = trace.clock.read(max(row.end_s for row in rows)) - trace.clock.read(rows[0].start_s)
    mean = sum(row.end_s - row.start_s for row in rows) / max(span_s, 1e-9)
    if mean < _BUSY * n_in_flight:
        return None
    text = (
        f"{len(places)} requests for data, never more than {n_in_flight} concurrent,"
        f" {mean:.1f} in the mean"
    )
    return Evidence(places, text, Edit(trace.keep(), _free_data(trace), _MORE_IN_FLIGHT))


def _is_default(trace: Trace, _evidence: Evidence) -> bool:
    """Find whether the concurrency is the library's own: a program that sets its own would not take another."""
    return trace.n_data_in_flight == _DEFAULT_IN_FLIGHT


def _find_small_chunks(trace: Trace) -> Evidence | None:
    """Find chunks so small that latency is all they cost."""
    chunks = [i for i in trace.data if trace.kinds[i] == "chunk"]
    if len(chunks) < _MANY_CHUNKS:
        return None
    size = median(trace.rows[i].nbytes for i in chunks)
    if not 0 < size <= _SMALL_CHUNK_NBYTES:
        return None
    n_joined = int(min(_MOST_JOINED, _GOOD_CHUNK_NBYTES // size))
    asked_for = trace.keep(chunks)
    for first in range(0, len(chunks), n_joined):
        places = chunks[first : first + n_joined]
        asked_for.append(EditedRequest((*places,), sum(trace.rows[i].nbytes for i in places)))
    text = f"{len(chunks)} chunks of {format_size(size)} each, where a few MB cost hardly more time"
    return Evidence(chunks, text, Edit(asked_for))


def _find_slow_tail(trace: Trace) -> Evidence | None:
    """Find a few answers that take many times as long as the others."""
    waits_s = {
        i: row.first_byte_s - row.start_s
        for i, row in enumerate(trace.rows)
        if row.first_byte_s and row.status < 400 and row.method == "GET"
    }
    if len(waits_s) < _LEAST_OF_TAIL:
        return None
    middle_s = median(waits_s.values())
    late_s = max(_LATE * middle_s, middle_s + _LATE_S)
    late = [i for i, wait_s in waits_s.items() if wait_s > late_s]
    if not late or len(late) > _TAIL * len(waits_s):
        return None
    if sum(waits_s[i] for i in late) < _TAIL_SHARE * trace.span_s:
        return None
    text = (
        f"{len(late)} of {len(waits_s)} answers took more than {late_s:.2g} s,"
        f" where the median is {1000 * middle_s:.0f} ms"
    )
    return Evidence(late, text, Edit(trace.keep(), most_wait_s=middle_s))


def _find_writes(trace: Trace) -> Evidence | None:
    """Find objects, or parts of one, that are written one after the other."""
    writes = [
        i
        for i, kind in enumerate(trace.kinds)
        if kind == "write"
        and trace.rows[i].method in ("PUT", "POST")
        and trace.rows[i].status < 300
    ]
    if len(writes) < FEW or analysis.most_in_flight([trace.rows[i] for i in writes]) > 1:
        return None
    size = format_size(median(trace.rows[i].sent_nbytes for i in writes))
    text = f"{len(writes)} objects were written one after the other, {size} each"
    return Evidence(writes, text, Edit(trace.keep(), frozenset(writes)))


def _find_throttled(trace: Trace) -> Evidence | None:
    """Find refusals for now, after which a client asks again."""
    refused = trace.places(lambda row: row.status in RETRIED)
    if not refused:
        return None
    text = f"{len(refused)} of {len(trace.rows)} requests were refused, and then asked again"
    return Evidence(refused, text, Edit(trace.keep(refused)))


def _can_be_lowered(trace: Trace, evidence: Evidence) -> bool:
    """Find whether Zarr is the client, with more requests concurrent than the setting allows."""
    is_zarr = find_clients([trace.rows[i] for i in evidence.rows])[0] == "zarr"
    return is_zarr and trace.n_data_in_flight > _DEFAULT_IN_FLIGHT // 2


_POOL = (
    "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(10) as pool:\n    "
)
_GATHER = "import asyncio\n"
_COMPUTE = Remedy("import dask\nresults = dask.compute(*lazy)  # one compute for all of the loop")
_MFDATASET = Remedy("ds = xr.open_mfdataset(urls, engine='zarr', parallel=True)")
_CONCURRENCY = Remedy(
    'zarr.config.set({"async.concurrency": 64})  # import zarr first', setting="concurrency=64"
)
_LESS_CONCURRENCY = Remedy(
    'zarr.config.set({"async.concurrency": 5})  # import zarr first', setting="concurrency=5"
)
_PARQUET = Remedy(
    "table = pyarrow.dataset.dataset(paths, filesystem=filesystem).to_table().to_pandas()"
)

CAUSES = [
    Cause(
        "in-turn",
        "independent objects one after the other",
        "waiting for answers, one after the other; the network could do ten at a time",
        _find_in_turn,
        "symptoms-programs.html#how-many-requests-at-once",
        advise("concurrent requests, ten for example"),
        {
            "zarr": Remedy("values = array[:]  # one selection before the loop, instead of many"),
            "xarray": Remedy("ds = ds.load()  # once, before the loop, of all that it reads"),
            "requests": Remedy(_POOL + "parts = [*pool.map(session.get, urls)]"),
            "httpx": Remedy(_POOL + "parts = [*pool.map(client.get, urls)]"),
            "aiohttp": Remedy(
                _GATHER + "async def read(url):\n"
                "    async with session.get(url) as response:\n"
                "        return await response.read()\n"
                "parts = await asyncio.gather(*(read(url) for url in urls))"
            ),
            "fsspec": Remedy("parts = fs.cat(paths)"),
            "boto3": Remedy(
                _POOL + "parts = [*pool.map(lambda key:"
                " client.get_object(Bucket=bucket, Key=key)['Body'].read(), keys)]"
            ),
            "obstore": Remedy(
                _GATHER
                + "answers = await asyncio.gather(*(obstore.get_async(store, path) for path in paths))\n"
                "parts = await asyncio.gather(*(answer.bytes_async() for answer in answers))"
            ),
            "tensorstore": Remedy(
                "reads = [array[i].read() for i in range(n)]\nvalues = [read.result() for read in reads]"
            ),
            "gdal": Remedy(
                _POOL.replace("    ", "") + "    def read(path):\n"
                "        with rasterio.open(path) as source:\n"
                "            return source.read()\n"
                "    images = [*pool.map(read, paths)]"
            ),
            "duckdb": Remedy(
                "SELECT * FROM read_parquet(['a.parquet', 'b.parquet'])  -- all files at once",
                "sql",
            ),
            "arrow": Remedy(
                "table = pyarrow.dataset.dataset(paths, filesystem=filesystem).to_table()"
            ),
            "hdf5": advise("processes instead of threads: HDF5 reads in one thread at a time"),
            "curl": run_in_shell("curl --parallel --parallel-max 10 --remote-name-all URL URL"),
            "go": advise("goroutines, ten at a time: errgroup with SetLimit(10)"),
        },
        {
            "compute": _COMPUTE,
            "open_mfdataset": _MFDATASET,
            "read_parquet": _PARQUET,
        },
    ),
    Cause(
        "few",
        "fewer concurrent requests than there is to read",
        "waiting with only a few requests under way; there was more to read",
        _find_few,
        "symptoms-programs.html#how-many-requests-at-once",
        advise("more concurrent requests, 64 for example"),
        {
            "zarr": _CONCURRENCY,
            "xarray": _CONCURRENCY,
            "s3fs": Remedy(
                'fs = s3fs.S3FileSystem(config_kwargs={"max_pool_connections": 64})',
                setting="pool=64",
            ),
            "boto3": Remedy(
                "from botocore.config import Config\n"
                "client = boto3.client('s3', config=Config(max_pool_connections=64))"
            ),
            "obstore": Remedy(
                _GATHER
                + "answers = await asyncio.gather(*(obstore.get_async(store, path) for path in paths))"
            ),
            "requests": Remedy(
                "from concurrent.futures import ThreadPoolExecutor\n"
                "session.mount('http', requests.adapters.HTTPAdapter(pool_maxsize=64))\n"
                "with ThreadPoolExecutor(64) as pool:\n    parts = [*pool.map(session.get, urls)]"
            ),
            "httpx": Remedy("client = httpx.AsyncClient(limits=httpx.Limits(max_connections=64))"),
            "aiohttp": Remedy(
                "session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64))"
            ),
            "tensorstore": Remedy(
                'context = tensorstore.Context({"s3_request_concurrency": {"limit": 64}})'
            ),
            "gdal": advise("64 threads that each open their own file"),
            "duckdb": Remedy("SET threads = 64", "sql"),
            "arrow": Remedy("pyarrow.set_io_thread_count(64)"),
            "curl": run_in_shell("curl --parallel --parallel-max 64 --remote-name-all URL URL"),
            "go": advise("more goroutines: errgroup with SetLimit(64)"),
        },
        can_try=_is_default,
    ),
    Cause(
        "small-chunks",
        "chunks of a few kB",
        "waiting for very small chunks",
        _find_small_chunks,
        "symptoms-zarr.html#which-chunk-and-which-shard",
        advise("store larger chunks, of a few MB, or many in one shard: wire decide says which"),
        is_bound=True,
        weight=0.25,
    ),
    Cause(
        "slow-tail",
        "a few answers that are very late",
        "waiting for a few answers that are very late",
        _find_slow_tail,
        "symptoms.html",
        advise("give up on a late answer and ask again: a read timeout of a second, and retries"),
        {
            "boto3": Remedy(
                "from botocore.config import Config\n"
                "client = boto3.client('s3', config=Config(read_timeout=2, retries={'max_attempts': 5}))"
            ),
            "s3fs": Remedy("fs = s3fs.S3FileSystem(config_kwargs={'read_timeout': 2}, retries=5)"),
            "requests": Remedy("response = session.get(url, timeout=2)"),
            "httpx": Remedy("response = client.get(url, timeout=2)"),
        },
        least=1,
        is_bound=True,
    ),
    Cause(
        "writes",
        "objects written one after the other",
        "writing objects one after the other; the network could do ten at a time",
        _find_writes,
        "symptoms-programs.html#how-many-requests-at-once",
        advise("concurrent writes, ten for example"),
        {
            "zarr": Remedy("array[:] = values  # one selection instead of many"),
            "xarray": Remedy("ds.to_zarr(target, mode='w')  # once, with all of the data"),
            "fsspec": Remedy("fs.pipe({path: data for path, data in zip(paths, parts)})"),
            "boto3": Remedy(
                _POOL + "[*pool.map(lambda key, body:"
                " client.put_object(Bucket=bucket, Key=key, Body=body), keys, parts)]"
            ),
            "obstore": Remedy(
                _GATHER + "await asyncio.gather(*(obstore.put_async(store, path, data)"
                " for path, data in zip(paths, parts)))"
            ),
            "requests": Remedy(_POOL + "[*pool.map(session.put, urls, parts)]"),
            "httpx": Remedy(
                _POOL + "[*pool.map(lambda url, data: client.put(url, content=data), urls, parts)]"
            ),
            "go": run_in_shell("rclone copy --transfers 10 FOLDER REMOTE:PATH"),
        },
    ),
    Cause(
        "throttled",
        "the store asks to slow down",
        "being refused for asking too often, and asking again",
        _find_throttled,
        "symptoms-programs.html#how-many-requests-at-once",
        advise("fewer concurrent requests, or objects under several prefixes"),
        {
            "zarr": _LESS_CONCURRENCY,
            "xarray": _LESS_CONCURRENCY,
            "fsspec": Remedy("parts = fs.cat(paths, batch_size=5)"),
            "obstore": Remedy(
                _GATHER + "limit = asyncio.Semaphore(5)\n"
                "async def read(path):\n"
                "    async with limit:\n"
                "        return await (await obstore.get_async(store, path)).bytes_async()\n"
                "parts = await asyncio.gather(*(read(path) for path in paths))"
            ),
            "tensorstore": Remedy(
                'context = tensorstore.Context({"s3_request_concurrency": {"limit": 5}})'
            ),
            "curl": run_in_shell("curl --parallel --parallel-max 5 --remote-name-all URL URL"),
        },
        is_bound=True,
        can_try=_can_be_lowered,
    ),
]
