"""What drivers with caches do, predicted from the trace of one without any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from advisors.hdf5.copying import MIB
from advisors.hdf5.files import iterate_chunks, open_hdf5, open_source
from advisors.hdf5.inspection import Read, record_reads
from advisors.hdf5.prediction import (
    Cache,
    FileCache,
    PageBuffer,
    Recent,
    iterate_parts,
    order_reads,
    read_through,
)
from helpers.models.transfer import ClientCosts, Network, Replay, fit_costs, replay
from helpers.plotting.tables import trace_of
from studies.hdf5_drivers.drivers import DRIVERS, Driver
from studies.hdf5_drivers.findings import measured
from studies.hdf5_drivers.workload import Bench, FileRead, trace_once

RECORDED = "fsspec-none"
"""The driver whose trace is what the library asks for: nothing lies between."""

CALIBRATED = {"fsspec": "fsspec-none", "ros3": "ros3-none", "obstore": "obstore"}
"""The untuned driver of each client, whose times without a network calibrate the client."""

_READ_AHEAD_NBYTES = 50 * MIB  # of s3fs
_ROS3_PAGE_BUFFER_NBYTES = 64 * MIB  # of HDF5 2.x, where nothing is asked


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the library asks for to open a layout and read the variables."""

    reads: tuple[Read, ...]  # in order
    n_without_bytes: int  # requests that bring no bytes, as for the length of the file
    file_nbytes: int  # lengths of the file and of its pages; 0 where it is not paged
    page_nbytes: int
    n_first_past: int  # reads that come before the library has a page buffer
    chunk_offsets: tuple[int, ...]  # where the chunks of the variables begin


@dataclass(frozen=True, slots=True)
class Ros3Cache:
    """The block cache of HDF5's ROS3 driver, from HDF5 2.2 on, whose first block stays.

    The first block is read at the first read. In a file with paged file space nothing else is
    kept, because the page buffer above does it.
    """

    block_nbytes: int = 16 * MIB  # bytes of a block; 0 for no cache
    cache_nbytes: int = 128 * MIB  # bytes of all blocks
    is_paged: bool = False  # whether the file has paged file space

    def answer(self, reads: Sequence[Read], file_nbytes: int) -> list[list[Read]]:
        """Answer each read from blocks, as the driver does."""
        if not self.block_nbytes:
            return [[read] for read in reads]
        n_others = self.cache_nbytes // self.block_nbytes - 1
        recent = Recent(n_others)
        first = Read(0, min(self.block_nbytes, file_nbytes))
        answers = [[first] if number == 0 else [] for number in range(len(reads))]
        for asked, read in zip(answers, reads, strict=True):
            last = max(0, read.stop - 1) // self.block_nbytes
            if self.is_paged or not n_others:  # what lies beyond the first is read as asked
                start = read.offset if self.is_paged else max(read.offset, first.nbytes)
                is_kept = read.stop <= first.nbytes
                asked += [] if is_kept else [Read(start, read.stop - start)]
                continue
            for number in range(max(1, read.offset // self.block_nbytes), last + 1):
                start = number * self.block_nbytes
                if not recent.use(number):
                    asked.append(Read(start, min(self.block_nbytes, file_nbytes - start)))
        return answers


@dataclass(frozen=True, slots=True)
class Parts:
    """The S3 client below ROS3: what is asked goes out in parts that end at multiples of their length."""

    part_nbytes: int = 8 * MIB

    def answer(self, reads: Sequence[Read], file_nbytes: int) -> list[list[Read]]:
        """Cut each read."""
        return [[*self.cut(read)] for read in reads]

    def cut(self, read: Read) -> list[Read]:
        """Cut a read at multiples of the length of a part."""
        edges = range((read.offset // self.part_nbytes + 1) * self.part_nbytes, read.stop, self.part_nbytes)  # fmt: skip
        starts, stops = [read.offset, *edges], [*edges, read.stop]
        parts = zip(starts, stops, strict=True)
        return [replace(read, offset=at, nbytes=stop - at) for at, stop in parts if at < stop]


def calibrated_drivers(drivers: Sequence[Driver]) -> list[Driver]:
    """Choose the untuned driver of each client, whose times without a network calibrate it."""
    families = dict.fromkeys(driver.family for driver in drivers)
    return [DRIVERS[CALIBRATED[name]] for name in families if name in CALIBRATED]


def record_library(layouts: Sequence[str], bench: Bench) -> dict[str, Recorded]:
    """Record what the library asks for on each layout, by a driver without a cache.

    It does not depend on the network; layouts without an HDF5 file are left out.
    """
    return {
        layout: _record_one(FileRead(bench, DRIVERS[RECORDED], layout))
        for layout in layouts
        if layout in bench.stored.properties
    }


def _record_one(way: FileRead) -> Recorded:
    trace = sorted(trace_once(way), key=lambda request: request.start_s)
    found, stored = way.bench.stored.properties[way.layout], way.bench.stored
    names = stored.tasks["variables"].variables
    with open_source(stored.at(way.layout)) as file:
        is_paged = found.page_nbytes > 0
        n_first_past = record_reads(file, way.layout, ()).n_first_past if is_paged else 0
        with open_hdf5(file, way.layout) as opened:
            chunks = {at for name in names for _, at, _ in iterate_chunks(opened[name])}
    asked = [(each.range_start or 0, each.nbytes) for each in trace if each.nbytes]
    reads = tuple(Read(*span, is_metadata=span[0] not in chunks) for span in asked)
    lengths = found.file_nbytes, found.page_nbytes
    return Recorded(reads, len(trace) - len(reads), *lengths, n_first_past, tuple(sorted(chunks)))


def caches_of(driver: Driver, recorded: Recorded) -> list[Cache] | None:
    """Name the caches between the library and the network, from the settings of a driver.

    None where there is no model.
    """
    family, settings = driver.family, driver.settings
    if family not in CALIBRATED or driver.name in ("obstore", "obstore-whole"):
        return None
    is_paged = recorded.page_nbytes > 0
    if "block_cache" in settings:
        nbytes = int(settings["block_cache"])
        return [Ros3Cache(nbytes, nbytes, is_paged), Parts()]
    default = _ROS3_PAGE_BUFFER_NBYTES if family == "ros3" else 0
    buffer_nbytes = int(settings.get("page_buf_size", default)) if is_paged else 0
    pages = PageBuffer(recorded.page_nbytes, buffer_nbytes, recorded.n_first_past)
    above: list[Cache] = [pages] if buffer_nbytes else []
    if family == "ros3":
        return [*above, Ros3Cache(is_paged=is_paged), Parts()]
    block_nbytes = int(settings.get("block_size", _READ_AHEAD_NBYTES))
    return [*above, FileCache(str(settings.get("cache_type", "blockcache")), block_nbytes)]


def fit_all(calibration: pd.DataFrame) -> dict[str, ClientCosts]:
    """Fit what each client takes next to the network, on rows of a network that emulates nothing.

    The rows of the phase ``calibration`` are of untuned drivers; where all of them make as many
    requests, all is start.
    """
    rows = calibration[calibration["phase"] == "calibration"]
    rows = rows.assign(
        total_s=rows["open_s"] + rows["read_s"], n_all=trace_of(rows)["all_requests"]
    )
    costs = {}
    for family, name in CALIBRATED.items():
        part = rows[rows["contender"] == name].groupby("layout")[["n_all", "total_s"]].median()
        if part["n_all"].nunique() > 1:
            costs[family] = fit_costs([(int(n), float(s)) for n, s in part.to_numpy()])
        elif len(part):
            costs[family] = ClientCosts(start_s=float(part["total_s"].median()))
    return costs


def tabulate_costs(costs: Mapping[str, ClientCosts]) -> pd.DataFrame:
    """Tabulate what each client takes for a request, and for all else."""
    lines = {
        name: {"request_ms": 1000 * one.request_s, "start_s": one.start_s}
        for name, one in costs.items()
    }
    return pd.DataFrame(lines).T.rename_axis("client")


def predict_driver(
    driver: Driver, recorded: Recorded, network: Network, costs: Mapping[str, ClientCosts]
) -> Replay | None:
    """Predict opening and reading the variables by a driver; None for what has no model."""
    lengths = [Read(0, 0)] * recorded.n_without_bytes
    if driver.name == "obstore-whole":  # the cost of a request of obstore, but not its seeks
        parts = iterate_parts(recorded.file_nbytes, int(driver.settings["part_nbytes"]))
        steps = order_reads([Read(0, 0), *parts], n_connections=driver.in_flight)
    else:
        between = caches_of(driver, recorded)
        if between is None:
            return None
        _, asked = read_through(between, recorded.reads, recorded.file_nbytes)
        steps = order_reads([*lengths, *asked])
    if (cost := costs.get(driver.family)) is None:
        return None
    return replay(steps, network, request_s=cost.request_s, rest_s=cost.start_s, n_draws=25)


def predict_all(
    pairs: Iterable[tuple[str, str]],
    recorded: Mapping[str, Recorded],
    network: Network,
    costs: Mapping[str, ClientCosts],
) -> pd.DataFrame:
    """Predict drivers on layouts, where there is a model: a row a pair."""
    lines: list[tuple[Any, ...]] = []
    for name, layout in dict.fromkeys(pairs):
        if layout not in recorded:
            continue
        if found := predict_driver(DRIVERS[name], recorded[layout], network, costs):
            lines.append((name, layout, found.seconds, found.n_requests, found.nbytes / 1e6))
    columns = ["driver", "layout", "predicted_s", "requests_predicted", "predicted_mb"]
    return pd.DataFrame(lines, columns=columns)


def compare_predicted(rows: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Put the measured medians next to what `predict_all` has; `error` is that of the time.

    The recorded driver is left out, because nothing of it is predicted.
    """
    part = measured(rows, "variables")
    trace = trace_of(part)
    part = part.assign(
        driver=part["contender"],
        measured_s=part["total_s"],
        requests_measured=trace["all_requests"],
        measured_mb=trace["all_nbytes"] / 1e6,
    )
    names = ["measured_s", "requests_measured", "measured_mb"]
    medians = part.groupby(["driver", "layout"], sort=False)[names].median().reset_index()
    both = predicted[predicted["driver"] != RECORDED].merge(medians, on=["driver", "layout"])
    return both.assign(error=both["predicted_s"] / both["measured_s"] - 1)
