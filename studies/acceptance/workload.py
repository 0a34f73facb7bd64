"""Thresholds of the array paths, and what a chunk costs when its bytes cost next to nothing."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import obstore
import pandas as pd
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from helpers.arrays import catalog, clusters, reads
from helpers.arrays import sink as sinks
from helpers.arrays.readers import READERS
from helpers.arrays.stores import StoredArray
from helpers.benchmark import statistics, study
from helpers.benchmark.contender import Contender, contend
from helpers.benchmark.loop import Budget, measure_blocks
from helpers.benchmark.memory import watch_memory
from helpers.benchmark.record import Record
from helpers.netem.profiles import get_profile
from helpers.objectstore.testbed import Testbed, open_testbed
from helpers.paths import ROOT
from helpers.plotting import palette, tables

Say = Callable[[str], None]

BEST = "zarr-obstore-in-place"
RESULTS = ROOT / "results" / "laptop"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One bar: a measured value, what it is held against, and how it came about."""

    name: str
    value: float
    bound: float
    is_least: bool
    how: str

    @property
    def holds(self) -> bool:
        """Whether the value is on the right side of the bound."""
        return self.value >= self.bound if self.is_least else self.value <= self.bound

    def line(self) -> str:
        """Write the bar in one line."""
        sign, verdict = "≥" if self.is_least else "≤", "holds" if self.holds else "MISSED"
        return f"{verdict:6}  {self.name}: {self.value:.3g} (bar: {sign} {self.bound:g})\n        {self.how}"


@dataclass(frozen=True, slots=True)
class Setup:
    """What the bars share: one wire, one cluster, one seed."""

    testbed: Testbed
    cluster: clusters.Cluster
    folder: Path
    say: Say
    n_blocks: int = 5
    seed: int = 2020

    def array(
        self,
        shape: tuple[int, ...],
        chunk_shape: tuple[int, ...],
        layouts: Sequence[Any] = ("zarr",),
    ) -> StoredArray:
        """Find the sample array of a shape, or make it."""
        return catalog.find_array(
            "enlarged-ocean-temperature",
            self.testbed.near,
            shape=shape,
            chunk_shape=chunk_shape,
            codec="blosc-zstd",
            layouts=layouts,
            seed=self.seed,
            progress=self.say,
        )

    def contend(
        self, stored: StoredArray, name: str, n_workers: int, chunks_per_task: int = 4
    ) -> Contender:
        """Make a contender of a reader, or of the raw ceiling."""
        concurrency = {"concurrency": n_workers * self.cluster.threads_per_worker}
        if name == "raw":
            raw = reads.RawRead(stored, self.testbed, n_connections=concurrency["concurrency"])
            return contend(
                name, raw, n_workers, read=raw.read, settings=concurrency, is_ceiling=True
            )
        way = reads.ArrayRead(stored, READERS[name], self.testbed, self.cluster, chunks_per_task)
        return contend(name, way, n_workers, read=lambda sink: sink.compute(), settings=concurrency)

    def _enter(self, group: str) -> None:
        self.cluster.scale(int(group))

    def measure(self, title: str, contenders: Sequence[Contender], profile: str) -> pd.DataFrame:
        """Measure contenders in interleaved blocks over a network."""
        self.say(f"measuring: {title}")
        self.testbed.emulate(get_profile(profile))
        origin = study.describe_origin({"bar": title, "profile": profile})
        record = Record(self.folder / f"{title}.csv", study="bench", case=title, provenance=origin)
        rows = measure_blocks(
            contenders,
            record,
            seed=self.seed,
            n_blocks=self.n_blocks,
            budget=Budget(300),
            target_width=1e-3,
            enter_group=self._enter,
        )
        return statistics.add_throughputs(statistics.measured(rows))


@contextmanager
def open_setup(say: Say, n_workers: int = 8) -> Iterator[Setup]:
    """Open what the bars share."""
    with (
        open_testbed("embedded", get_profile("loopback"), seed=2020) as testbed,
        clusters.open_cluster("local", threads_per_worker=2) as cluster,
        tempfile.TemporaryDirectory() as folder,
    ):
        cluster.scale(n_workers)
        yield Setup(testbed, cluster, Path(folder), say)


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
        block_shape = sinks.task_block_shape(
            self.stored.shape, self.stored.chunk_shape, self.chunks_per_task
        )
        blocks = da.from_array(array, block_shape)  # type: ignore[no-untyped-call]
        return sinks.read_into_sink(blocks, self.stored.chunk_shape)


def _in_process(way: Any, name: str) -> Contender:
    """Make a contender that reads in this process, a task for each processor."""
    threads = {"scheduler": "threads", "num_workers": study.n_cores()}
    return contend(
        name, way, 2, read=lambda sink: sink.compute(**threads), settings={"concurrency": 4}
    )


def check_ceiling(bench: Setup) -> list[Threshold]:
    """Compare the best array path with the raw ceiling, emulated and not, and with decoding alone."""
    stored = bench.array((12, 50, 360, 480), (1, 5, 360, 480))
    return [_compare_emulated(bench, stored), *_compare_free(bench, stored)]


_ALONE = "decoding alone"
_SHARE = "stored bytes per second of {} over those of raw reads of the same objects, {} connections each, paired in {} blocks; {}"


def _compare_emulated(bench: Setup, stored: StoredArray) -> Threshold:
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
    return Threshold("share of the ceiling, in-region", _share(rows, BEST), 0.90, True, how)


def _read_free(bench: Setup, stored: StoredArray) -> pd.DataFrame:
    """Read with four connections and a task for each processor, in this process."""
    here = dataclasses.replace(bench.cluster, threads_per_worker=4)
    ways: dict[str, Any] = {
        name: reads.ArrayRead(stored, READERS[name], bench.testbed, here, 10)
        for name in (BEST, BATCHED)
    }
    ways[_ALONE] = MemoryRead(stored, READERS[BEST], bench.testbed, here, 10)
    contenders = [_in_process(way, name) for name, way in ways.items()]
    return bench.measure(
        "ceiling loopback", [*contenders, bench.contend(stored, "raw", 2)], "loopback"
    )


def _compare_free(bench: Setup, stored: StoredArray) -> list[Threshold]:
    """Compare where nothing is emulated, so that the processors bind."""
    rows = _read_free(bench, stored)
    seconds = rows.groupby("contender")["read_s"].median()
    in_turn = float(seconds[_ALONE] / (seconds[_ALONE] + seconds["raw"]))
    return [
        Threshold(
            "share of the ceiling, no network emulated",
            _share(rows, BEST),
            0.35,
            True,
            _SHARE.format(BEST, 4, bench.n_blocks, "a task for each processor, in one process"),
        ),
        Threshold(
            "throughput over that of decoding alone, no network emulated",
            1 / _ratio(rows, BEST, _ALONE),
            0.85,
            True,
            "the same tasks and threads, over the wire against from memory, which has the processors for itself;"
            f" raw reads and then decoding, one after the other, would reach {in_turn:.2g}",
        ),
        Threshold(
            f"{BEST} over {BATCHED}, no network emulated",
            _ratio(rows, BATCHED, BEST),
            0.0,
            True,
            "what it gains to decode chunks in their place, without a second copy",
        ),
    ]


def check_2020(bench: Setup) -> list[Threshold]:
    """Compare the best array path with the 2020 configuration at three chunk shapes."""
    thresholds = []
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
        thresholds.append(
            Threshold(
                f"best path over the 2020 configuration, chunks of {size} MB",
                _ratio(rows, WAY_OF_2020, BEST),
                1.7 if size == "4" else 0.0,
                True,
                how,
            )
        )
    return thresholds


def _tell_what_binds(rows: pd.DataFrame) -> str:
    """Say how near the best path is to what raw reads reach, and so what ends its lead."""
    share, other = _share(rows, BEST), _share(rows, WAY_OF_2020)
    binds = (
        "the emulated network, which both share, binds it" if share >= 0.85 else "it binds itself"
    )
    return (
        f"{BEST} reaches {share:.2g} of the ceiling and {WAY_OF_2020} {other:.2g}, so {binds}"
        f" and no path could lead by more than {1 / other:.2g}"
    )


def check_netcdf(bench: Setup) -> list[Threshold]:
    """Compare netCDF through a file object with the best Zarr path, with the reason from the trace."""
    stored = bench.array((12, 40, 360, 480), (1, 5, 360, 480), ("zarr", "netcdf"))
    ways = (BEST, NETCDF, f"{NETCDF}-5mib")
    rows = bench.measure(
        "netcdf", [bench.contend(stored, name, 8, 4) for name in ways], "in-region"
    )
    return [_describe_netcdf(rows, name, stored.n_chunks) for name in ways[1:]]


def _describe_netcdf(rows: pd.DataFrame, name: str, n_chunks: int) -> Threshold:
    part = rows[rows["contender"] == name]
    over_read = (part["wire_nbytes"] / part["stored_nbytes"]).median()
    in_flight = tables.trace_of(part)["mean_in_flight"].median()
    how = (
        f"time of {name} over time of {BEST}, in-region, 16 threads; it read {over_read:.2g} times the bytes,"
        f" in {part['n_requests'].median() / n_chunks:.2g} requests a chunk, {in_flight:.2g} in flight on average"
    )
    return Threshold(
        f"best Zarr path over {name} (claimed in 2020: 10)",
        _ratio(rows, name, BEST),
        0.0,
        True,
        how,
    )


def check_growth(bench: Setup) -> list[Threshold]:
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
        Threshold(
            "time of four times the bytes", times[8] / times[2], 4.4, False, how.format("read time")
        ),
        Threshold(
            "peak memory of four times the bytes",
            peaks[8] / peaks[2],
            1.1,
            False,
            how.format("memory of all processes"),
        ),
    ]


def check_knee(bench: Setup) -> list[Threshold]:
    """Read the same bytes in 100, 1,000 and 10,000 chunks: a task a chunk, and in batches."""
    lines = []
    for n_chunks, chunk_shape in (
        (100, (1, 10, 200, 250)),
        (1000, (1, 1, 200, 250)),
        (10000, (1, 1, 20, 250)),
    ):
        stored = bench.array((20, 50, 200, 250), chunk_shape)
        ways = [("a task a chunk", "zarr-obstore", 1), ("batches", BEST, max(4, n_chunks // 100))]
        contenders = [bench.contend(stored, name, 8, batch) for _, name, batch in ways]
        small = dataclasses.replace(bench, n_blocks=3)
        rows = small.measure(f"knee {n_chunks}", contenders, "loopback")
        times = rows.groupby("contender")["read_s"].median()
        lines += [
            (n_chunks, label, times[name], times[name] / stored.n_chunks) for label, name, _ in ways
        ]
    knee = pd.DataFrame(lines, columns=["chunks", "way", "read_s", "s_per_chunk"])
    bench.say(knee.to_string(index=False, float_format="{:.4g}".format))
    knee.to_csv(RESULTS / "bench-knee.csv", index=False)
    draw_knee(knee, RESULTS / "bench-knee.svg")
    per_chunk = {str(way): overhead_s(part) for way, part in knee.groupby("way")}
    how = "slope of read time against the number of chunks, 1,000 to 10,000, same bytes, no network emulated, 8 workers: {}"
    return [
        Threshold(
            f"milliseconds for each more chunk, {way}", 1000 * s, np.inf, False, how.format(way)
        )
        for way, s in per_chunk.items()
    ]


def overhead_s(part: pd.DataFrame) -> float:
    """Compute the seconds that each more chunk costs, between the two largest numbers."""
    low, high = part.sort_values("chunks").iloc[-2:].to_dict("records")
    return float((high["read_s"] - low["read_s"]) / (high["chunks"] - low["chunks"]))


def draw_knee(knee: pd.DataFrame, path: Path) -> None:
    """Draw seconds for each chunk against their number."""
    plt.style.use(palette.STYLE)
    figure, ax = plt.subplots(figsize=(7.2, 3.8))
    looks = palette.contender_palette()
    for (way, part), name in zip(knee.groupby("way"), ("zarr-obstore", BEST), strict=True):
        ax.plot(
            part["chunks"],
            1000 * part["s_per_chunk"],
            marker=looks[name].marker,
            color=looks[name].color,
        )
        last = part.iloc[-1]
        at = (last["chunks"], 1000 * last["s_per_chunk"])
        ax.annotate(
            str(way),
            at,
            xytext=(8, 0),
            textcoords="offset points",
            color=looks[name].color,
            va="center",
        )
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="chunks, of the same bytes in all",
        ylabel="time for each chunk (ms)",
    )
    ax.margins(x=0.25)
    figure.savefig(path)
    plt.close(figure)
