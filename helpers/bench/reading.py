"""Bars of the array paths: against the ceiling, the way of 2020, netCDF, and themselves at four times the bytes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import dask.array as da
import obstore
import pandas as pd
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from helpers import study
from helpers.bench.bars import BEST, Bar, Bench
from helpers.measurement import statistics
from helpers.measurement.measure import Contender
from helpers.memory import watch_memory
from helpers.storage import clusters, reads, workloads
from helpers.storage.formats import READERS
from helpers.storage.stores import StoredArray

BATCHED = "zarr-obstore-batched"
WAY_OF_2020 = "zarr-s3fs"
NETCDF = "netcdf-fsspec"


def _share(rows: pd.DataFrame, name: str) -> float:
    return float(rows.loc[rows["contender"] == name, "share_of_ceiling"].median())


def _ratio(rows: pd.DataFrame, slow: str, fast: str) -> float:
    return statistics.paired_ratio(rows, slow, fast).centre


@dataclass(frozen=True, slots=True)
class MemoryRead(reads.ArrayRead):
    """The same array decoded from the memory of this process: no wire at all."""

    def open(self) -> Any:
        """Open the objects, taken into memory before, as the same tasks."""
        location, prototype = self.stored.at("zarr"), default_buffer_prototype()
        paths = [item["path"] for page in obstore.list(location.obstore()) for item in page]
        held = {
            path: prototype.buffer.from_bytes(bytes(obstore.get(location.obstore(), path).bytes()))
            for path in paths
        }
        array = zarr.open_group(MemoryStore(held), mode="r")[self.stored.variable]
        block_shape = workloads.task_block_shape(
            self.stored.shape, self.stored.chunk_shape, self.chunks_per_task
        )
        blocks = da.from_array(array, block_shape)  # type: ignore[no-untyped-call]
        return workloads.read_into_sink(blocks, self.stored.chunk_shape)


def _in_process(way: Any, name: str) -> Contender:
    """Make a contender that reads in this process, a task for each processor."""
    threads = {"scheduler": "threads", "num_workers": study.n_cores()}
    return study.contend(
        name, way, 2, read=lambda sink: sink.compute(**threads), settings={"concurrency": 4}
    )


def check_ceiling(bench: Bench) -> list[Bar]:
    """Compare the best array path with the raw ceiling, imposed and not, and with decoding alone."""
    stored = bench.array((12, 50, 360, 480), (1, 5, 360, 480))
    return [_compare_imposed(bench, stored), *_compare_free(bench, stored)]


_ALONE = "decoding alone"
_SHARE = "stored bytes per second of {} over those of raw reads of the same objects, {} connections each, paired in {} blocks; {}"


def _compare_imposed(bench: Bench, stored: StoredArray) -> Bar:
    """Compare over a network that binds, with as many processes as there are processors.

    More processes than processors cost their own time and gain nothing here:
    what keeps the network busy is requests in flight.
    """
    n_workers = study.n_cores()
    with clusters.open_cluster("local", threads_per_worker=16 // n_workers) as cluster:
        wide = dataclasses.replace(bench, cluster=cluster)
        pair = [wide.contend(stored, name, n_workers, 5) for name in (BEST, "raw")]
        rows = wide.measure("ceiling in-region", pair, "in-region")
    how = _SHARE.format(
        BEST,
        n_workers * (16 // n_workers),
        bench.n_blocks,
        f"{n_workers} workers, one for each processor",
    )
    return Bar("share of the ceiling, in-region", _share(rows, BEST), 0.90, True, how)


def _read_free(bench: Bench, stored: StoredArray) -> pd.DataFrame:
    """Read with four connections and a task for each processor, in this process."""
    here = dataclasses.replace(bench.cluster, threads_per_worker=4)
    ways: dict[str, Any] = {
        name: reads.ArrayRead(stored, READERS[name], bench.wire, here, 10)
        for name in (BEST, BATCHED)
    }
    ways[_ALONE] = MemoryRead(stored, READERS[BEST], bench.wire, here, 10)
    contenders = [_in_process(way, name) for name, way in ways.items()]
    return bench.measure(
        "ceiling loopback", [*contenders, bench.contend(stored, "raw", 2)], "loopback"
    )


def _compare_free(bench: Bench, stored: StoredArray) -> list[Bar]:
    """Compare where nothing is imposed, so that the processors bind."""
    rows = _read_free(bench, stored)
    seconds = rows.groupby("contender")["read_s"].median()
    in_turn = float(seconds[_ALONE] / (seconds[_ALONE] + seconds["raw"]))
    return [
        Bar(
            "share of the ceiling, nothing imposed",
            _share(rows, BEST),
            0.35,
            True,
            _SHARE.format(BEST, 4, bench.n_blocks, "a task for each processor, in one process"),
        ),
        Bar(
            "throughput over that of decoding alone, nothing imposed",
            1 / _ratio(rows, BEST, _ALONE),
            0.85,
            True,
            "the same tasks and threads, over the wire against from memory, which has the processors for itself;"
            f" raw reads and then decoding, one after the other, would reach {in_turn:.2g}",
        ),
        Bar(
            f"{BEST} over {BATCHED}, nothing imposed",
            _ratio(rows, BATCHED, BEST),
            0.0,
            True,
            "what it gains to decode chunks in their place, without a second copy",
        ),
    ]


def check_2020(bench: Bench) -> list[Bar]:
    """Compare the best array path with the way of 2020 at three chunk shapes."""
    bars = []
    for size, chunk_shape, chunks_per_task in (
        ("0.5", (1, 1, 300, 400), 20),
        ("4", (1, 5, 360, 480), 4),
        ("16", (1, 20, 360, 480), 2),
    ):
        stored = bench.array((12, 40, *chunk_shape[2:]), chunk_shape)
        names = (BEST, WAY_OF_2020, "raw")
        pair = [bench.contend(stored, name, 8, chunks_per_task) for name in names]
        rows = bench.measure(f"2020 at {size} MB", pair, "in-region")
        how = (
            f"time of {WAY_OF_2020} over time of {BEST}, 8 workers of 2 threads, in-region,"
            f" {stored.n_chunks} chunks of {stored.nbytes / stored.n_chunks / 1e6:.2g} MB ({bench.n_blocks} blocks);"
            f" {_tell_what_binds(rows)}"
        )
        bars.append(
            Bar(
                f"best path over the way of 2020, chunks of {size} MB",
                _ratio(rows, WAY_OF_2020, BEST),
                1.7 if size == "4" else 0.0,
                True,
                how,
            )
        )
    return bars


def _tell_what_binds(rows: pd.DataFrame) -> str:
    """Say how near the best path is to what raw reads reach, and so what ends its lead."""
    share, other = _share(rows, BEST), _share(rows, WAY_OF_2020)
    binds = (
        "the imposed network, which both share, binds it" if share >= 0.85 else "it binds itself"
    )
    return (
        f"{BEST} reaches {share:.2g} of the ceiling and {WAY_OF_2020} {other:.2g}, so {binds}"
        f" and no path could lead by more than {1 / other:.2g}"
    )


def check_netcdf(bench: Bench) -> list[Bar]:
    """Compare netCDF through a file object with the best Zarr path, with the reason from the trace."""
    stored = bench.array((12, 40, 360, 480), (1, 5, 360, 480), ("zarr", "netcdf"))
    ways = (BEST, NETCDF, f"{NETCDF}-5mib")
    rows = bench.measure(
        "netcdf", [bench.contend(stored, name, 8, 4) for name in ways], "in-region"
    )
    return [_describe_netcdf(rows, name, stored.n_chunks) for name in ways[1:]]


def _describe_netcdf(rows: pd.DataFrame, name: str, n_chunks: int) -> Bar:
    part = rows[rows["contender"] == name]
    over_read = (part["wire_nbytes"] / part["stored_nbytes"]).median()
    in_flight = study.trace_of(part)["mean_in_flight"].median()
    how = (
        f"time of {name} over time of {BEST}, in-region, 16 threads; it read {over_read:.2g} times the bytes,"
        f" in {part['n_requests'].median() / n_chunks:.2g} requests a chunk, {in_flight:.2g} in flight on average"
    )
    return Bar(
        f"best Zarr path over {name} (claimed in 2020: 10)",
        _ratio(rows, name, BEST),
        0.0,
        True,
        how,
    )


def check_growth(bench: Bench) -> list[Bar]:
    """Compare a read of four times the bytes: time and memory."""
    peaks, times = {}, {}
    for n in (2, 8):
        stored = bench.array((n, 50, 360, 480), (1, 5, 360, 480))
        contender = [bench.contend(stored, BEST, 8, 5)]
        with watch_memory() as peak:
            rows = bench.measure(f"growth {n}", contender, "in-region")
        peaks[n], times[n] = peak.nbytes, float(rows["read_s"].median())
    how = f"{BEST} over in-region, {{}}: 8 time steps against 2, medians of {bench.n_blocks} blocks"
    return [
        Bar(
            "time of four times the bytes", times[8] / times[2], 4.4, False, how.format("read time")
        ),
        Bar(
            "peak memory of four times the bytes",
            peaks[8] / peaks[2],
            1.1,
            False,
            how.format("memory of all processes"),
        ),
    ]
