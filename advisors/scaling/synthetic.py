"""Stores of many chunks whose metadata and index are real and whose data are absent.

What is measured is what a library does before the first byte of data: to open the store, to list
its chunks, to find a thousand of them, and to build a graph of all. Each store is read in a process
of its own, with a bound on its memory and on its time; where it stops, the row says why. Objects
lie in memory and references on the local disk, so no network is in the seconds.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from helpers.errors import UserError
from helpers.paths import ROOT

RECORD = ROOT / "data" / "scale-out" / "stores.csv"
"""What was measured for this book."""

PLANNED = 1000
"""Chunks that are looked up, all at one place of the map: a time series."""

_GRID = (10, 10)  # chunks of each time step
_CHUNK_SHAPE = (1, 100, 100)
_SHARD = (10, 10, 10)  # chunks
_BATCH_SHAPE = (10, 100, 100)  # of a task that reads ten chunks
_RECORD = 100_000  # references of a Parquet file, as kerchunk has it
_NAME = "x"
_SHORTEST_S = 0.05  # of a step whose growth can be told from what else a process does
_TARGET_CHUNKS, _TARGET_SHARE = 10**6, 0.1  # of a graph of batches, over one of a task a chunk

Steps = Generator[tuple[str, Callable[[], Any]], Any, None]
"""What is timed, one step after another, each given what the last one returned."""


def _grid(n_chunks: int) -> tuple[int, int, int]:
    return (n_chunks // math.prod(_GRID), *_GRID)


def _shape(n_chunks: int) -> tuple[int, ...]:
    return tuple(n * extent for n, extent in zip(_grid(n_chunks), _CHUNK_SHAPE, strict=True))


def _planned(n_chunks: int) -> list[tuple[int, int, int]]:
    """List the chunks of a time series, at most `PLANNED`."""
    return [(i, 0, 0) for i in range(min(PLANNED, _grid(n_chunks)[0]))]


def _read_zarr(n_chunks: int, shard: tuple[int, int, int] | None) -> Steps:
    """Open, list and name the chunks of a Zarr array with consolidated metadata."""
    import obstore
    import zarr
    from obstore.store import MemoryStore
    from zarr.storage import ObjectStore

    from helpers.arrays.writers import expected_warning

    memory = MemoryStore()
    store = ObjectStore(memory)
    group = zarr.create_group(store)
    extents = (
        None if shard is None else tuple(a * b for a, b in zip(shard, _CHUNK_SHAPE, strict=True))
    )
    group.create_array(
        _NAME, shape=_shape(n_chunks), chunks=_CHUNK_SHAPE, shards=extents, dtype="f4"
    )
    with expected_warning("Consolidated metadata is currently not part"):
        zarr.consolidate_metadata(store)
    sizes = [math.ceil(n / m) for n, m in zip(_grid(n_chunks), shard or (1, 1, 1), strict=True)]
    for index in itertools.product(*map(range, sizes)):
        obstore.put(memory, f"{_NAME}/c/{'/'.join(map(str, index))}", b"")

    def open_array() -> Any:
        return zarr.open_group(store, mode="r", use_consolidated=True)[_NAME]

    array = yield "open", open_array
    yield "list", lambda: sum(map(len, obstore.list(memory, prefix=f"{_NAME}/c", chunk_size=1000)))
    places = {
        tuple(i // n for i, n in zip(at, shard or (1, 1, 1), strict=True))
        for at in _planned(n_chunks)
    }
    yield "find", lambda: [array.metadata.encode_chunk_key(place) for place in places]


def _describe_references(n_chunks: int) -> dict[str, Any]:
    """Write the metadata of an array of the second version of Zarr, as kerchunk has it."""
    return {
        "zarr_format": 2, "shape": _shape(n_chunks), "chunks": _CHUNK_SHAPE, "dtype": "<f4",
        "compressor": None, "fill_value": None, "filters": None, "order": "C",
    }  # fmt: skip


def _references(n_chunks: int) -> Iterator[tuple[str, list[Any]]]:
    """Make references into one file for each time step, one after another."""
    nbytes = 4 * math.prod(_CHUNK_SHAPE)
    for i, j, k in itertools.product(*map(range, _grid(n_chunks))):
        offset = nbytes * (j * _GRID[1] + k)
        yield f"{_NAME}/{i}.{j}.{k}", [f"s3://bucket/step-{i:07}.nc", offset, nbytes]


def _json_references(n_chunks: int, folder: Path) -> Steps:
    """Read references from one JSON file, through fsspec."""
    from fsspec.implementations.reference import ReferenceFileSystem

    path = folder / "references.json"
    with path.open("w", encoding="utf-8") as file:
        array = json.dumps(json.dumps(_describe_references(n_chunks)))
        file.write(
            f'{{"version": 1, "refs": {{".zgroup": "{{\\"zarr_format\\": 2}}", "{_NAME}/.zarray": {array}'
        )
        for key, reference in _references(n_chunks):
            file.write(f", {json.dumps(key)}: {json.dumps(reference)}")
        file.write("}}")
    found = yield (
        "open",
        lambda: ReferenceFileSystem(fo=str(path), remote_protocol="memory").references,
    )
    yield "list", lambda: sum(1 for _ in found)
    yield "find", lambda: [found[f"{_NAME}/{i}.{j}.{k}"] for i, j, k in _planned(n_chunks)]


def _parquet_references(n_chunks: int, folder: Path) -> Steps:
    """Read references from Parquet files, through fsspec, which loads those that it needs."""
    import pandas as pd
    from fsspec.implementations.reference import LazyReferenceMapper

    (folder / _NAME).mkdir()
    metadata = {".zgroup": {"zarr_format": 2}, f"{_NAME}/.zarray": _describe_references(n_chunks)}
    text = json.dumps({"metadata": metadata, "record_size": _RECORD})
    (folder / ".zmetadata").write_text(text, encoding="utf-8")
    references = _references(n_chunks)
    for number in itertools.count():
        rows = [[*reference, None] for _, reference in itertools.islice(references, _RECORD)]
        if not rows:
            break
        table = pd.DataFrame(rows, columns=["path", "offset", "size", "raw"])
        table.astype({"path": "category"}).to_parquet(
            folder / _NAME / f"refs.{number}.parq",
            engine="pyarrow",
            compression="zstd",
            index=False,
        )

    def open_mapper() -> Any:
        mapper = LazyReferenceMapper(str(folder), engine="pyarrow")
        mapper.setup()  # else the first look does it
        return mapper

    found = yield "open", open_mapper
    yield "list", lambda: sum(1 for _ in found)
    yield "find", lambda: [found[f"{_NAME}/{i}.{j}.{k}"] for i, j, k in _planned(n_chunks)]


def _icechunk(n_chunks: int, folder: Path) -> Steps:
    """Read virtual references from the manifests of Icechunk."""
    import asyncio

    import icechunk
    import zarr

    storage = icechunk.local_filesystem_storage(str(folder / "repository"))
    session = icechunk.Repository.create(storage).writable_session("main")
    group = zarr.group(session.store)
    group.create_array(
        _NAME, shape=_shape(n_chunks), chunks=_CHUNK_SHAPE, dtype="f4", compressors=None
    )
    specs = (
        icechunk.VirtualChunkSpec(
            index=[*map(int, key.split("/")[1].split("."))],
            location=path,
            offset=offset,
            length=nbytes,
        )
        for key, (path, offset, nbytes) in _references(n_chunks)
    )
    while part := [*itertools.islice(specs, _RECORD)]:
        session.store.set_virtual_refs(f"/{_NAME}", part, validate_containers=False)
    session.commit("references")

    def open_array() -> Any:
        opened = icechunk.Repository.open(storage).readonly_session("main")
        return opened, zarr.open_group(opened.store, mode="r")[_NAME]

    opened, _ = yield "open", open_array

    async def count() -> int:
        return sum([1 async for _ in opened.chunk_coordinates(f"/{_NAME}")])

    async def find() -> list[bool]:
        return [
            await opened.store.exists(f"{_NAME}/c/{i}/{j}/{k}") for i, j, k in _planned(n_chunks)
        ]

    # what is found first loads the manifest, which listing would have done
    yield "find", lambda: asyncio.run(find())
    yield "list", lambda: asyncio.run(count())


def _graph(n_chunks: int, chunks: tuple[int, ...]) -> Steps:
    """Build the graph of a read, as it is sent to a scheduler."""
    import dask.array as da

    yield (
        "graph",
        lambda: len(dict((da.zeros(_shape(n_chunks), chunks=chunks) + 1).__dask_graph__())),
    )


KINDS: Mapping[str, Callable[[int, Path], Steps]] = {
    "zarr": lambda n_chunks, _folder: _read_zarr(n_chunks, None),
    "sharded": lambda n_chunks, _folder: _read_zarr(n_chunks, _SHARD),
    "json-references": _json_references,
    "parquet-references": _parquet_references,
    "icechunk": _icechunk,
    "graph-task-a-chunk": lambda n_chunks, _folder: _graph(n_chunks, _CHUNK_SHAPE),
    "graph-ten-chunks-a-task": lambda n_chunks, _folder: _graph(n_chunks, _BATCH_SHAPE),
}
"""How many chunks are kept track of."""

NAMES = {
    "zarr": "Zarr, consolidated",
    "sharded": "Zarr, 1000 chunks a shard",
    "json-references": "references, JSON",
    "parquet-references": "references, Parquet",
    "icechunk": "Icechunk, virtual references",
    "graph-task-a-chunk": "Dask graph, a task a chunk",
    "graph-ten-chunks-a-task": "Dask graph, ten chunks a task",
}


def _run_steps(kind: str, n_chunks: int, folder: Path) -> Iterator[dict[str, object]]:
    """Time the steps of one store in this process; memory is what they add to it at most."""
    import psutil

    from helpers.benchmark.loop import timed
    from helpers.benchmark.memory import peak_nbytes

    steps = KINDS[kind](n_chunks, folder)
    step, do = next(steps)
    before = psutil.Process().memory_info().rss
    clear = Path("/proc/self/clear_refs")
    if clear.exists():  # so that the peak of making the store is forgotten
        clear.write_text("5")
    while True:
        result, seconds = timed(do)
        added = max(0.0, (peak_nbytes() - before) / 1e6)
        yield {"step": step, "seconds": seconds, "memory_mb": added}
        try:
            step, do = steps.send(result)
        except StopIteration:
            return


# What Python and libraries say when there is none left; a killed process says nothing.
_NO_MEMORY = r"memory|can't start new thread|cannot allocate|resource temporarily unavailable"


def measure_stores(
    kinds: Sequence[str], numbers: Sequence[int], *, memory_gb: float = 4.0, limit_s: float = 120.0
) -> Iterator[dict[str, object]]:
    """Read each store of each size in a process of its own; yield a row a step.

    The columns are `kind`, `n_chunks`, `memory_gb`, `limit_s`, `step`, `seconds`, `memory_mb` and
    `ended_by`: empty, or `memory`, `time` or `error` in a last row without numbers. `limit_s`
    bounds the whole process, making the store included. Where a kind ended, it is not tried with
    more chunks.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UserError(f"--kind {unknown[0]}; allowed: {', '.join(KINDS)}")
    if not numbers or any(n < 1000 or n % 1000 for n in numbers):
        raise UserError(f"--chunks {[*numbers]}; allowed: multiples of 1000")
    ended: set[str] = set()
    for kind, n_chunks in itertools.product(kinds, sorted(numbers)):
        place = {"kind": kind, "n_chunks": n_chunks, "memory_gb": memory_gb, "limit_s": limit_s}
        if kind in ended:
            continue  # nor is there room or time for more chunks
        for row in _measure_one(kind, n_chunks, memory_gb, limit_s):
            ended |= {kind} if row["ended_by"] else set()
            yield place | row


def _measure_one(
    kind: str, n_chunks: int, memory_gb: float, limit_s: float
) -> Iterator[dict[str, object]]:
    """Run one process, and say what ended it."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __name__, kind, str(n_chunks), folder, str(memory_gb)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, timeout=limit_s, check=False
            )
            out, code, told = done.stdout, done.returncode, done.stderr.decode(errors="replace")
        except subprocess.TimeoutExpired as error:
            out, code, told = error.stdout or b"", None, ""
    for line in out.decode().splitlines():
        if line.startswith('{"step"'):  # libraries print too
            yield json.loads(line) | {"ended_by": ""}
    if code != 0:
        is_memory = (code or 0) < 0 or re.search(_NO_MEMORY, told[-2000:], re.IGNORECASE)
        ended_by = "time" if code is None else "memory" if is_memory else "error"
        yield {"step": "", "seconds": "", "memory_mb": "", "ended_by": ended_by}


def read_rows(path: Path = RECORD) -> list[dict[str, Any]]:
    """Read a record of `measure_stores`, with its numbers as numbers."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows: list[dict[str, Any]] = [*csv.DictReader(file)]
        for row in rows:
            row["n_chunks"] = int(row["n_chunks"])
            for name in ("memory_gb", "limit_s", "seconds", "memory_mb"):
                row[name] = float(row[name]) if row[name] else math.nan
    except (OSError, KeyError, ValueError) as error:
        told = f"{path.name}: not read ({type(error).__name__}); allowed: what `wire stores --out` writes"
        raise UserError(told) from error
    return rows


def find_exponent(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    """Find the exponent with which a step grows, from its two largest sizes; NaN of short steps.

    Examples
    --------
    >>> rows = [{"n_chunks": n, "seconds": 1e-5 * n} for n in (1000, 10_000, 100_000)]
    >>> round(find_exponent(rows, "seconds"), 3)
    1.0
    """
    ordered = sorted(rows, key=lambda row: float(row["n_chunks"]))[-2:]
    if len(ordered) < 2 or not all(row[name] > _SHORTEST_S for row in ordered):
        return math.nan
    (few, less), (many, more) = ((row["n_chunks"], row[name]) for row in ordered)
    return math.log(more / less) / math.log(many / few)


def render_stores() -> str:
    """Write what was measured as a table: seconds and memory by chunks, and how they grow."""
    rows = read_rows()
    numbers = sorted({row["n_chunks"] for row in rows})
    heads = " | ".join(f"{n:,} chunks" for n in numbers)
    lines = [
        f"| what | step | {heads} | grows as |",
        f"| --- | --- |{' ---: |' * len(numbers)} --- |",
    ]
    for kind in KINDS:
        of_kind = [row for row in rows if row["kind"] == kind]
        for step in dict.fromkeys(row["step"] for row in of_kind if row["step"]):
            same = {row["n_chunks"]: row for row in of_kind if row["step"] == step}
            cells = [_cell(same.get(n), of_kind, n) for n in numbers]
            power = find_exponent([*same.values()], "seconds")
            grows = f"n{{sup}}`{power:.1f}`" if math.isfinite(power) else "too short to tell"
            lines.append(f"| {NAMES[kind]} | {step} | {' | '.join(cells)} | {grows} |")
    gb, shortest, longest = (
        rows[0]["memory_gb"],
        *(f(row["limit_s"] for row in rows) for f in (min, max)),
    )
    most = f"{shortest:g}" if shortest == longest else f"{shortest:g} to {longest:g}"
    bounds = (
        f"A process may take {gb:g} GB and {most} s, making the store included. Each step was timed once, in a process"
        f" that had just made its store; an exponent is that of the two largest sizes. Below {1e3 * _SHORTEST_S:g} ms what"
        " else a process does is no less than what grows: such times may even fall from one size to the next."
    )
    return "\n".join([*lines, "", bounds, _tell_graphs(rows), ""])


def _tell_graphs(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say what a graph of batches takes of the time of one with a task a chunk, and hold it to the target."""
    single, batched = (
        {row["n_chunks"]: row["seconds"] for row in rows if row["kind"] == kind and row["step"]}
        for kind in ("graph-task-a-chunk", "graph-ten-chunks-a-task")
    )
    n = max({*single} & {*batched})
    share = batched[n] / single[n]
    told = f"With {n:,} chunks, the graph of ten chunks a task takes {100 * share:.1f} % of the time of a task a chunk."
    if n < _TARGET_CHUNKS:
        return f"{told} Our target of {100 * _TARGET_SHARE:.0f} % is for {_TARGET_CHUNKS:,}, which not both of them reached."
    return f"{told} Our target is at most {100 * _TARGET_SHARE:.0f} %: {'kept' if share <= _TARGET_SHARE else 'missed'}."


def _cell(row: Mapping[str, Any] | None, of_kind: Sequence[Mapping[str, Any]], n: int) -> str:
    """Write seconds and memory, or what ended the process before."""
    if row is not None:
        value, unit = (
            (row["seconds"], "s") if row["seconds"] >= 0.1 else (1e3 * row["seconds"], "ms")
        )
        return f"{value:,.{0 if value >= 10 else 1 if value >= 1 else 2}f} {unit}, {_tell_mb(row['memory_mb'])}"
    ended = [each for each in of_kind if each["n_chunks"] <= n and each["ended_by"]]
    if ended and ended[0]["n_chunks"] < n:
        return "not tried"
    if ended and ended[0]["ended_by"] == "time":
        return f"not done in {ended[0]['limit_s']:g} s"
    return f"ended: {ended[0]['ended_by']}" if ended else "not measured"


def _tell_mb(mb: float) -> str:
    return f"{mb:.0f} MB" if mb >= 1 else "below 1 MB"


def _main(kind: str, n_chunks: str, folder: str, memory_gb: str) -> None:
    """Read one store in this process, which may not have more memory."""
    most = int(float(memory_gb) * 1e9)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    for row in _run_steps(kind, int(n_chunks), Path(folder)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
