"""What the bars share: their form, and one wire and one cluster to measure them on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import study
from helpers.measurement import statistics
from helpers.measurement.measure import Budget, Contender, measure_blocks
from helpers.measurement.records import Record
from helpers.paths import ROOT
from helpers.storage import catalogs, clusters, reads, wires
from helpers.storage.formats import READERS
from helpers.storage.network import get_profile
from helpers.storage.stores import StoredArray

Say = Callable[[str], None]

BEST = "zarr-obstore-in-place"
RESULTS = ROOT / "results" / "laptop"


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
            budget=Budget(300),
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
