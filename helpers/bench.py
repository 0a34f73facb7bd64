"""Bars: ratios measured in one run, each with how it was computed.

Every bar compares two things measured in turn on this machine, because an
absolute time means nothing from one day to the next.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.array as da
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import obstore
import pandas as pd
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from helpers import runner, study
from helpers.errors import UserError
from helpers.measurement import calibration, figures, statistics
from helpers.measurement.measure import Contender, measure_blocks
from helpers.measurement.records import Record
from helpers.memory import watch_memory
from helpers.paths import ROOT
from helpers.storage import catalogs, clusters, reads, wires, workloads
from helpers.storage.formats import READERS
from helpers.storage.network import get_profile
from helpers.storage.stores import StoredArray

Say = Callable[[str], None]

BEST = "zarr-obstore-batched"
WAY_OF_2020 = "zarr-s3fs"
NETCDF = "netcdf-fsspec"


@dataclass(frozen=True, slots=True)
class Bar:
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
class Bench:
    """What the bars share: one wire, one cluster, one seed."""

    wire: wires.Wire
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
        return catalogs.find_array(
            "enlarged-ocean-temperature",
            self.wire.near,
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
            raw = reads.RawRead(stored, self.wire, n_connections=concurrency["concurrency"])
            return study.contend(
                name, raw, n_workers, read=raw.read, settings=concurrency, is_ceiling=True
            )
        way = reads.ArrayRead(stored, READERS[name], self.wire, self.cluster, chunks_per_task)
        return study.contend(
            name, way, n_workers, read=lambda sink: sink.compute(), settings=concurrency
        )

    def _enter(self, group: str) -> None:
        self.cluster.scale(int(group))

    def measure(self, title: str, contenders: Sequence[Contender], profile: str) -> pd.DataFrame:
        """Measure contenders in interleaved blocks over a network."""
        self.say(f"measuring: {title}")
        self.wire.impose(get_profile(profile))
        origin = study.describe_origin({"bar": title, "profile": profile})
        record = Record(self.folder / f"{title}.csv", study="bench", case=title, provenance=origin)
        rows = measure_blocks(
            contenders,
            record,
            seed=self.seed,
            n_blocks=self.n_blocks,
            time_budget_s=300,
            target_width=1e-3,
            enter_group=self._enter,
        )
        return statistics.add_throughputs(statistics.measured(rows))


@contextmanager
def open_bench(say: Say, n_workers: int = 8) -> Iterator[Bench]:
    """Open what the bars share."""
    with (
        wires.open_wire("embedded", get_profile("loopback"), seed=2020) as wire,
        clusters.open_cluster("local", threads_per_worker=2) as cluster,
        tempfile.TemporaryDirectory() as folder,
    ):
        cluster.scale(n_workers)
        yield Bench(wire, cluster, Path(folder), say)


def _share(rows: pd.DataFrame) -> float:
    return float(rows.loc[~rows["is_ceiling"], "share_of_ceiling"].median())


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
    options = stored, READERS[BEST], bench.wire, bench.cluster, 5
    free_ways = {BEST: reads.ArrayRead(*options), "decoding alone": MemoryRead(*options)}
    trio = [_in_process(way, name) for name, way in free_ways.items()]
    free = bench.measure("ceiling loopback", [*trio, bench.contend(stored, "raw", 2)], "loopback")
    how = "stored bytes per second of {} over those of raw reads of the same objects, {} connections each, paired in {} blocks"
    best_free = free[free["contender"] == BEST]
    return [
        Bar(
            "share of the ceiling, in-region",
            _share(imposed),
            0.90,
            True,
            how.format(BEST, 16, bench.n_blocks),
        ),
        Bar(
            "share of the ceiling, nothing imposed",
            float(best_free["share_of_ceiling"].median()),
            0.35,
            True,
            how.format(BEST, 4, bench.n_blocks),
        ),
        Bar(
            "throughput over that of decoding alone, nothing imposed",
            1 / _ratio(free, BEST, "decoding alone"),
            0.85,
            True,
            "the same tasks and threads, over the wire against from memory; where it is less, server, relay and client"
            " share with decoding the processors that decoding alone has for itself",
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


def check_knee(bench: Bench) -> list[Bar]:
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
    how = "slope of read time against the number of chunks, 1,000 to 10,000, same bytes, nothing imposed, 8 workers: {}"
    return [
        Bar(f"milliseconds for each more chunk, {way}", 1000 * s, np.inf, False, how.format(way))
        for way, s in per_chunk.items()
    ]


def overhead_s(part: pd.DataFrame) -> float:
    """Compute the seconds that each more chunk costs, between the two largest numbers."""
    low, high = part.sort_values("chunks").iloc[-2:].to_dict("records")
    return float((high["read_s"] - low["read_s"]) / (high["chunks"] - low["chunks"]))


def draw_knee(knee: pd.DataFrame, path: Path) -> None:
    """Draw seconds for each chunk against their number."""
    plt.style.use(figures.STYLE)
    figure, ax = plt.subplots(figsize=(7.2, 3.8))
    looks = figures.contender_palette()
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


def check_relay(bench: Bench) -> list[Bar]:
    """Measure what the relay costs with nothing imposed."""
    relay = bench.wire.relay
    if relay is None:
        raise UserError("store: has no relay before it; allowed: embedded, for the bars")
    relay.impose(get_profile("loopback"))
    far, near = bench.wire.probe_url(), bench.wire.probe_url(is_near=True)
    found = calibration.measure_overhead([near] * 8, [far] * 8, cpu_s=relay.cpu_s)
    how = "8 connections reading an object of 32 MB over and over, directly and through the relay in turn"
    return [
        Bar("relay: throughput over direct, nothing imposed", found.ratio, 0.6, True, how),
        Bar("relay: CPU-seconds for each GB", found.cpu_s_per_gb, 0.6, False, how),
    ]


def check_predictions() -> list[Bar]:
    """Read the errors of the predictions, and the times, from the notebooks of the laptop's cases."""
    errors, minutes = [], []
    for case in runner.find_cases("laptop"):
        site = "laptop" if case.result(".ipynb").exists() else "reference"
        notebook = nbformat.read(case.result(".ipynb", site), as_version=4)  # type: ignore[no-untyped-call]
        errors.append(float(runner.read_glued(notebook, "median-prediction-error").split()[0]))
        minutes.append(notebook.metadata["papermill"]["duration"] / 60)
    how = "predicted against measured read time, {}; contenders are calibrated with nothing imposed and predicted over the imposed network"
    return [
        Bar(
            "prediction error (%), worst case",
            max(errors),
            20,
            False,
            how.format("median over contenders and workers"),
        ),
        Bar(
            "minutes of all cases",
            sum(minutes),
            12,
            False,
            "sum of the durations of the executed notebooks",
        ),
        Bar("minutes of the longest case", max(minutes), 4, False, "as above"),
        *check_whole_runs(),
    ]


def check_whole_runs() -> list[Bar]:
    """Read what the last whole `make run-all` and the set-up took, if they ran here."""
    bars = []
    for path, name, key, scale, bound, how in (
        (
            RESULTS / "run-all.json",
            "minutes of run-all",
            "seconds",
            60,
            12,
            "wall time of the last run of every case, book included",
        ),
        (
            RESULTS / "run-all.json",
            "peak memory of run-all (GB)",
            "peak_nbytes",
            1e9,
            6,
            "unique memory of all its processes, largest of ten looks a second",
        ),
        (
            ROOT / ".venv" / "setup.json",
            "minutes of the first set-up",
            "seconds",
            60,
            6,
            "environment and S3 server, as the last `make env` took",
        ),
    ):
        if path.exists():
            bars.append(Bar(name, json.loads(path.read_text())[key] / scale, bound, False, how))
    return bars


RESULTS = ROOT / "results" / "laptop"


def run_bench(say: Say) -> list[Bar]:
    """Compute every bar, print it, and write them as CSV.

    Parameters
    ----------
    say : callable
        Takes lines to print.

    Returns
    -------
    list of Bar
        In the order printed.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    bars = check_predictions()
    with watch_memory() as peak, open_bench(say) as bench:
        for check in (
            check_relay,
            check_ceiling,
            check_2020,
            check_netcdf,
            check_growth,
            check_knee,
        ):
            bars += check(bench)
    bars.append(
        Bar(
            "peak memory of all processes (GB)",
            peak.nbytes / 1e9,
            6,
            False,
            "unique memory of this process and its children, largest of ten looks a second",
        )
    )
    table = pd.DataFrame([{**dataclasses.asdict(bar), "holds": bar.holds} for bar in bars])
    table.to_csv(RESULTS / "bench.csv", index=False)
    say("\n".join(bar.line() for bar in bars))
    return bars
