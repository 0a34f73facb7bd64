"""Causes in which parts of an object are asked for in ranges that are too many, too long or in turn."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from wire.errors import format_size
from wire.trace import analysis
from wire.trace.analysis import span_of
from wire.trace.causes.clients import client_of
from wire.trace.causes.registry import (
    FEW,
    Cause,
    Evidence,
    Remedy,
    advise,
    run_in_shell,
    set_variable,
)
from wire.trace.whatif import Edit, EditedRequest, split

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wire.trace.whatif import Trace

JOINED_NBYTES = 8 * 2**20
_GAP_NBYTES = 64 * 1024
_LARGE_NBYTES = 16 * 10**6  # of a body that is worth several streams
_WASTED = 1.3  # times the bytes that were needed
_WAITING = 0.5  # share of its time from which on latency is the cause
_SMALL_NBYTES = 2**20  # of a range that a block would hold
_BLOCKS_NBYTES = (512 * 2**10, 2 * 2**20, 8 * 2**20)
_KEPT_BLOCKS = 32  # by fsspec's block cache
_UNSEEN_NBYTES_PER_S = 50e6
_S3FS_READ_AHEAD_NBYTES = 50 * 2**20
_FILE_OBJECTS = ("s3fs", "aiohttp")  # clients behind fsspec's files
_FILE_PACKAGES = ("h5py", "h5netcdf", "fsspec", "s3fs", "gcsfs", "xarray")


def _find_overlaps(trace: Trace) -> Evidence | None:
    """Find ranges that hold bytes of others: a read-ahead that was thrown away."""
    fresh, part = dict[int, int](), list[int]()
    ranges = [i for i in trace.data if trace.kinds[i] == "range"]
    for group in trace.by_object(ranges):
        spans = [span_of(trace.rows[i]) for i in group]
        fresh |= zip(group, analysis.fresh_nbytes(spans), strict=True)
        earlier = set[tuple[int, int]]()
        for i, span in zip(group, spans, strict=True):
            if span not in earlier and fresh[i] < trace.rows[i].nbytes:
                part.append(i)
            earlier.add(span)
    moved, unique = sum(trace.rows[i].nbytes for i in fresh), sum(fresh.values())
    if not part or moved < _WASTED * unique:
        return None
    asked_for = [
        EditedRequest(item.rows, fresh.get(item.rows[0], item.nbytes))
        for item in trace.keep()
        if fresh.get(item.rows[0], 1)
    ]
    text = (
        f"{format_size(moved)} came for {format_size(unique)} of the files:"
        " a read-ahead is thrown away at each jump"
    )
    return Evidence(sorted(part), text, Edit(asked_for))


def _can_replace_read_ahead(trace: Trace, evidence: Evidence) -> bool:
    """Find whether the ranges are as long as s3fs reads ahead by itself, or reach the end of the file."""
    ends = dict[tuple[str, str], int]()
    for i in trace.data:
        row = trace.rows[i]
        name = row.host, row.key
        ends[name] = max(ends.get(name, 0), span_of(row)[1])
    for i in evidence.rows:
        row = trace.rows[i]
        if row.nbytes >= _S3FS_READ_AHEAD_NBYTES or span_of(row)[1] == ends[row.host, row.key]:
            return True
    return False


def _find_neighbours(trace: Trace) -> Evidence | None:
    """Find ranges that touch, asked for one after the other."""
    joined, touching, n_all = list[list[int]](), list[int](), 0
    ranges = [
        i
        for i, kind in enumerate(trace.kinds)
        if kind in ("range", "chunk") and trace.rows[i].range_start is not None
    ]
    for group in trace.by_object(ranges):
        n_all += len(group) - 1
        joined.append([group[0]])
        for i, j in itertools.pairwise(group):
            (_, before), (start, end) = span_of(trace.rows[i]), span_of(trace.rows[j])
            if 0 <= start - before <= _GAP_NBYTES and trace.rows[j].start_s >= trace.rows[i].end_s:
                touching.append(j)
                if end - span_of(trace.rows[joined[-1][0]])[0] <= JOINED_NBYTES:
                    joined[-1].append(j)
                    continue
            joined.append([j])
    if len(touching) < 0.5 * n_all:
        return None
    asked_for = trace.keep(ranges)
    for places in joined:
        first, last = trace.rows[places[0]], trace.rows[places[-1]]
        asked_for.append(EditedRequest((*places,), span_of(last)[1] - span_of(first)[0]))
    text = (
        f"{len(touching)} of {n_all} neighbours touch;"
        f" joined they are {len(joined)} requests instead of {len(ranges)}"
    )
    return Evidence(sorted(touching), text, Edit(asked_for))


def _is_waiting(trace: Trace, places: Iterable[int]) -> bool:
    """Find whether latency is most of what some requests take."""
    waits_s = total_s = 0.0
    for i in places:
        row = trace.rows[i]
        waits_s += (row.first_byte_s or row.end_s) - row.start_s
        total_s += row.end_s - row.start_s
    return waits_s >= _WAITING * total_s


def _find_parts(trace: Trace) -> Evidence | None:
    """Find ranges of few objects that are read one after the other."""
    ranges = [i for i in trace.data if trace.kinds[i] == "range"]
    objects = [*trace.by_object(ranges)]
    if len(ranges) < max(FEW, 0.5 * len(trace.data)) or len(objects) > 0.5 * len(ranges):
        return None
    if trace.n_data_in_flight != 1 or not _is_waiting(trace, ranges):
        return None
    heads = {group[0] for group in objects}
    free = frozenset(i for i in ranges if i not in heads)
    sizes = [trace.rows[i].nbytes for i in ranges]
    name = "one object" if len(objects) == 1 else f"{len(objects)} objects"
    text = (
        f"{len(ranges)} ranges of {name} were read one after the other,"
        f" {format_size(median(sizes))} each"
    )
    return Evidence(ranges, text, Edit(trace.keep(), free))


def _find_file_object(trace: Trace) -> Evidence | None:
    """Find small ranges all over a file that a file object asks for one by one, and keeps no blocks of."""
    call = trace.code_line.library_call if trace.code_line else ""
    package = call.partition(".")[0]
    ranges = [
        i
        for i in trace.data
        if trace.kinds[i] == "range"
        and trace.rows[i].nbytes <= _SMALL_NBYTES
        and (package in _FILE_PACKAGES or client_of(trace.rows[i].user_agent) in _FILE_OBJECTS)
    ]
    if len(ranges) < FEW or not _is_waiting(trace, ranges):
        return None
    if analysis.most_in_flight([trace.rows[i] for i in ranges]) > 1:
        return None
    rate = min(trace.observed.stream_nbytes_per_s, 1e12)
    rate = rate if rate < 1e12 else _UNSEEN_NBYTES_PER_S
    latency_s = trace.observed.first_byte_median_s
    choices = [(_put_in_blocks(trace, ranges, nbytes), nbytes) for nbytes in _BLOCKS_NBYTES]
    best, block_nbytes = min(
        choices,
        key=lambda choice: sum(latency_s + item.nbytes / rate for item in choice[0]),
    )
    if len(best) >= len(ranges):
        return None
    edit = Edit([*trace.keep(ranges), *best])
    text = (
        f"{len(ranges)} small reads of a scattered file, {format_size(median(trace.rows[i].nbytes for i in ranges))} each;"
        f" in blocks of {format_size(block_nbytes)} they are {len(best)}"
    )
    size = (
        f"{block_nbytes // 2**20} * 2**20"
        if block_nbytes >= 2**20
        else f"{block_nbytes // 2**10} * 2**10"
    )
    return Evidence(ranges, text, edit, values={"block": size})


def _put_in_blocks(trace: Trace, ranges: list[int], block_nbytes: int) -> list[EditedRequest]:
    """Ask for whole blocks of a file, each once while it is one of the latest that are cached."""
    blocks = list[EditedRequest]()
    for group in trace.by_object(ranges):
        spans = [span_of(trace.rows[i]) for i in group]
        size = max(end for _, end in spans)
        cached = OrderedDict[int, None]()
        for i, (start, end) in zip(group, spans, strict=True):
            nbytes = 0
            for block in range(start // block_nbytes, max(start, end - 1) // block_nbytes + 1):
                if block not in cached:
                    nbytes += min(block_nbytes, size - block * block_nbytes)
                cached[block] = None
                cached.move_to_end(block)
                if len(cached) > _KEPT_BLOCKS:
                    cached.popitem(last=False)
            if nbytes:
                blocks.append(EditedRequest((i,), nbytes))
    return blocks


def _find_one_stream(trace: Trace) -> Evidence | None:
    """Find large bodies that come over one connection while nothing else flows."""
    large = [i for i in trace.data if trace.rows[i].nbytes >= _LARGE_NBYTES]
    if not large or analysis.most_in_flight([trace.rows[i] for i in large]) > 1:
        return None
    nbytes = sum(trace.rows[i].nbytes for i in large)
    rate = trace.observed.stream_nbytes_per_s / 1e6
    text = f"{format_size(nbytes)} came one stream at a time, of {rate:.0f} MB/s"
    return Evidence(large, text, Edit(split(trace.keep(), large, JOINED_NBYTES)))


_POOL = (
    "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(10) as pool:\n    "
)
_BLOCKS = Remedy(
    'file = fs.open(path, cache_type="blockcache", block_size={block})', setting="cache=blockcache"
)
_FILE_BLOCKS = Remedy('file = fs.open(path, cache_type="blockcache", block_size={block})')

CAUSES = [
    Cause(
        "overlaps",
        "read-ahead that is thrown away",
        "receiving bytes that are thrown away at the next jump in the file",
        _find_overlaps,
        "symptoms-hdf5.html#opening-a-netcdf-file-moves-gigabytes",
        advise("read in blocks that are kept, or fetch the file whole"),
        {"s3fs": replace(_BLOCKS, text=_BLOCKS.text.replace("{block}", "8 * 2**20"))},
        least=1,
        absorbs=("file-object", "parts-in-turn", "in-turn", "one-stream"),
        can_try=_can_replace_read_ahead,
    ),
    Cause(
        "neighbours",
        "contiguous ranges, one request each",
        "reading a file piece by piece, one small request after the other",
        _find_neighbours,
        "symptoms-zarr.html#how-large-a-gap-should-be-joined",
        advise("join neighbours into one range of 8 MiB, and cut the answer"),
        {
            "zarr": Remedy("values = array[:]  # one selection instead of many"),
            "xarray": Remedy("ds = ds.load()  # one read instead of many"),
            "fsspec": Remedy('file = fs.open(path, cache_type="readahead", block_size=8 * 2**20)'),
            "obstore": Remedy("parts = obstore.get_ranges(store, path, starts=starts, ends=ends)"),
            "boto3": Remedy(
                "data = client.get_object(Bucket=bucket, Key=key, Range=f'bytes={first}-{last}')['Body'].read()"
            ),
            "requests": Remedy(
                "data = session.get(url, headers={'Range': f'bytes={first}-{last}'}).content"
            ),
            "httpx": Remedy(
                "data = client.get(url, headers={'Range': f'bytes={first}-{last}'}).content"
            ),
            "gdal": set_variable(
                "CPL_VSIL_CURL_CHUNK_SIZE=8388608", "CPL_VSIL_CURL_CHUNK_SIZE=8388608"
            ),
        },
        absorbs=("file-object", "parts-in-turn", "in-turn"),
    ),
    Cause(
        "file-object",
        "a file object that keeps no blocks",
        "waiting for small reads all over a file, one after the other",
        _find_file_object,
        "recipes-hdf5.html#keep-blocks-of-a-file-object",
        _FILE_BLOCKS,
        {"fsspec": _FILE_BLOCKS, "aiohttp": _FILE_BLOCKS},
        weight=0.9,
        absorbs=("parts-in-turn", "in-turn"),
    ),
    Cause(
        "parts-in-turn",
        "parts of one object, one after the other",
        "waiting for parts of one file, one after the other",
        _find_parts,
        "symptoms-programs.html#how-many-requests-at-once",
        advise("concurrent requests for parts that do not need one another, ten for example"),
        {
            "requests": Remedy(
                _POOL + "parts = [*pool.map(lambda start: session.get(url, headers="
                "{'Range': f'bytes={start}-{start + nbytes - 1}'}).content, starts)]"
            ),
            "httpx": Remedy(
                _POOL + "parts = [*pool.map(lambda start: client.get(url, headers="
                "{'Range': f'bytes={start}-{start + nbytes - 1}'}).content, starts)]"
            ),
            "boto3": Remedy(
                _POOL + "parts = [*pool.map(lambda start: client.get_object(Bucket=bucket, Key=key,"
                " Range=f'bytes={start}-{start + nbytes - 1}')['Body'].read(), starts)]"
            ),
            "fsspec": Remedy("parts = fs.cat_ranges([path] * len(starts), starts, ends)"),
            "obstore": Remedy(
                "parts = obstore.get_ranges(store, path, starts=starts, ends=ends, coalesce=0)"
            ),
            "tensorstore": Remedy(
                "reads = [array[i].read() for i in range(n)]\nvalues = [read.result() for read in reads]"
            ),
            "gdal": advise("a pool of ten threads, each with rasterio.open of its own"),
            "duckdb": Remedy("SET threads = 32", "sql"),
            "arrow": Remedy(
                "table = pyarrow.parquet.read_table(path, filesystem=filesystem, pre_buffer=True)"
            ),
            "hdf5": advise(
                "fetch the file whole, or read it with h5py over fs.open with a block cache"
            ),
            "go": advise("goroutines, ten at a time: errgroup with SetLimit(10)"),
        },
        {
            "read_parquet": Remedy(
                "table = pyarrow.parquet.read_table(path, filesystem=filesystem, pre_buffer=True).to_pandas()"
            ),
            "rasterio.": advise("a pool of ten threads, each with rasterio.open of its own"),
        },
        is_bound=True,
        weight=0.1,
    ),
    Cause(
        "one-stream",
        "one connection for a large object",
        "receiving a large object over one connection",
        _find_one_stream,
        "recipes-hdf5.html#fetch-the-whole-file-in-parallel-ranges",
        advise("fetch it in concurrent ranges of 8 MiB"),
        {
            "boto3": Remedy("client.download_file(bucket, key, target)"),
            "obstore": Remedy(
                "nbytes = obstore.head(store, path)['size']\n"
                "starts = range(0, nbytes, 8 * 2**20)\n"
                "ends = [min(start + 8 * 2**20, nbytes) for start in starts]\n"
                "parts = obstore.get_ranges(store, path, starts=[*starts], ends=ends, coalesce=0)"
            ),
            "fsspec": Remedy(
                "nbytes = fs.size(path)\n"
                "starts = range(0, nbytes, 8 * 2**20)\n"
                "ends = [min(start + 8 * 2**20, nbytes) for start in starts]\n"
                "parts = fs.cat_ranges([path] * len(starts), [*starts], ends)"
            ),
            "requests": Remedy(
                "nbytes = int(session.head(url).headers['Content-Length'])\n"
                + _POOL
                + "parts = [*pool.map(lambda start: session.get(url, headers="
                "{'Range': f'bytes={start}-{start + 8 * 2**20 - 1}'}).content, range(0, nbytes, 8 * 2**20))]"
            ),
            "httpx": Remedy(
                "nbytes = int(client.head(url).headers['Content-Length'])\n"
                + _POOL
                + "parts = [*pool.map(lambda start: client.get(url, headers="
                "{'Range': f'bytes={start}-{start + 8 * 2**20 - 1}'}).content, range(0, nbytes, 8 * 2**20))]"
            ),
            "curl": run_in_shell("aria2c --split 10 --max-connection-per-server 10 URL"),
            "go": run_in_shell("rclone copy --multi-thread-streams 10 REMOTE:PATH FOLDER"),
        },
        least=1,
    ),
]
