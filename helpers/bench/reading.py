"""Bars of the array paths: against the ceiling, the way of 2020, netCDF, and themselves at four times the bytes."""

from __future__ import annotations

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
from helpers.storage import reads, workloads
from helpers.storage.formats import READERS

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
    """Make a contender that reads with four threads of this process."""
    threads = {"scheduler": "threads", "num_workers": 4}
    return study.contend(
        name, way, 2, read=lambda sink: sink.compute(**threads), settings={"concurrency": 4}
    )


def check_ceiling(bench: Bench) -> list[Bar]:
    """Compare the best array path with the raw ceiling, imposed and not, and with decoding alone."""
    stored = bench.array((12, 50, 360, 480), (1, 5, 360, 480))
    pair = [bench.contend(stored, name, 8, 5) for name in (BEST, "raw")]
    imposed = bench.measure("ceiling in-region", pair, "in-region")
    ways: dict[str, Any] = {
        name: reads.ArrayRead(stored, READERS[name], bench.wire, bench.cluster, 5)
        for name in (BEST, BATCHED)
    }
    ways[_ALONE] = MemoryRead(stored, READERS[BEST], bench.wire, bench.cluster, 5)
    free_contenders = [_in_process(way, name) for name, way in ways.items()]
    free = bench.measure(
        "ceiling loopback", [*free_contenders, bench.contend(stored, "raw", 2)], "loopback"
    )
    return [_share_imposed(imposed, bench), *_compare_free(free, bench)]


_ALONE = "decoding alone"
_SHARE = "stored bytes per second of {} over those of raw reads of the same objects, {} connections each, paired in {} blocks"


def _share_imposed(rows: pd.DataFrame, bench: Bench) -> Bar:
    how = _SHARE.format(BEST, 16, bench.n_blocks)
    return Bar("share of the ceiling, in-region", _share(rows, BEST), 0.90, True, how)


def _compare_free(rows: pd.DataFrame, bench: Bench) -> list[Bar]:
    """Compare where nothing is imposed, so that the processors bind."""
    seconds = rows.groupby("contender")["read_s"].median()
    in_turn = float(seconds[_ALONE] / (seconds[_ALONE] + seconds["raw"]))
    return [
        Bar(
            "share of the ceiling, nothing imposed",
            _share(rows, BEST),
            0.35,
            True,
            _SHARE.format(BEST, 4, bench.n_blocks),
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
    for size, chunk_shape in (
        ("0.5", (1, 1, 300, 400)),
        ("4", (1, 5, 360, 480)),
        ("16", (1, 20, 360, 480)),
    ):
        shape = (4, 40, *chunk_shape[2:])
        stored = bench.array(shape, chunk_shape)
        pair = [bench.contend(stored, name, 8, 4) for name in (BEST, WAY_OF_2020)]
        rows = bench.measure(f"2020 at {size} MB", pair, "in-region")
        how = (
            f"time of {WAY_OF_2020} over time of {BEST}, 8 workers of 2 threads, in-region,"
            f" {stored.n_chunks} chunks of {stored.nbytes / stored.n_chunks / 1e6:.2g} MB ({bench.n_blocks} blocks)"
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


def check_netcdf(bench: Bench) -> list[Bar]:
    """Compare netCDF through a file object with the best Zarr path, with the reason from the trace."""
    stored = bench.array((4, 40, 360, 480), (1, 5, 360, 480), ("zarr", "netcdf"))
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
