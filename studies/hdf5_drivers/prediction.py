"""What drivers with caches do, predicted from the trace of one without any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from advisors.hdf5.recording import iterate_chunks, open_hdf5, open_source, record_reads
from helpers.models import caches
from helpers.models.replay import Replay, order_reads, replay
from helpers.models.transfer import ClientCosts, Network, fit_costs
from helpers.plotting.tables import trace_of
from studies.hdf5_drivers.drivers import DRIVERS, MIB, Driver
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

    reading: caches.Reading  # its reads, in order; think times are left to the calibration
    n_without_bytes: int  # requests that bring no bytes, as for the length of the file
    file_nbytes: int  # lengths of the file and of its pages; 0 where it is not paged
    page_nbytes: int
    n_first_past: int  # reads that come before the library has a page buffer
    chunk_offsets: tuple[int, ...]  # where the chunks of the variables begin


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
    found = way.bench.stored.properties[way.layout]
    chunks, n_first_past = _find_chunks(way, is_paged=found.page_nbytes > 0)
    asked = [(each.range_start or 0, each.nbytes) for each in trace if each.nbytes]
    reads = tuple(caches.Read(*span, is_metadata=span[0] not in chunks) for span in asked)
    n_without_bytes = len(trace) - len(reads)
    return Recorded(
        caches.Reading(reads),
        n_without_bytes,
        found.file_nbytes,
        found.page_nbytes,
        n_first_past,
        tuple(sorted(chunks)),
    )


def _find_chunks(way: FileRead, *, is_paged: bool) -> tuple[set[int], int]:
    """Find where the chunks of the variables lie, and which reads go past a page buffer."""
    stored = way.bench.stored
    location, names = stored.at(way.layout), stored.tasks["variables"].variables
    with open_source(location) as file:
        n_first_past = record_reads(file, way.layout, ()).n_first_past if is_paged else 0
        with open_hdf5(file, way.layout) as opened:
            places = {at for name in names for _, at, _ in iterate_chunks(opened[name])}
    return places, n_first_past


def caches_of(driver: Driver, recorded: Recorded) -> list[caches.Cache] | None:
    """Name the caches between the library and the network, from the settings of a driver."""
    family, settings = driver.family, driver.settings
    if family not in CALIBRATED or driver.name in ("obstore", "obstore-whole"):
        return None
    is_paged = recorded.page_nbytes > 0
    if "block_cache" in settings:
        nbytes = int(settings["block_cache"])
        return [caches.Ros3Cache(nbytes, nbytes, is_paged=is_paged), caches.Parts()]
    default = _ROS3_PAGE_BUFFER_NBYTES if family == "ros3" else 0
    buffer_nbytes = int(settings.get("page_buf_size", default)) if is_paged else 0
    pages = caches.PageBuffer(
        max(1, recorded.page_nbytes),
        max(1, recorded.page_nbytes, buffer_nbytes),
        n_first_past=recorded.n_first_past,
    )
    above: list[caches.Cache] = [pages] if buffer_nbytes else []
    if family == "ros3":
        return [*above, caches.Ros3Cache(is_paged=is_paged), caches.Parts()]
    return [*above, _file_cache(settings)]


def _file_cache(settings: Mapping[str, Any]) -> caches.Cache:
    block_nbytes = int(settings.get("block_size", _READ_AHEAD_NBYTES))
    made: dict[str, caches.Cache] = {
        "none": caches.NoCache(),
        "readahead": caches.ReadAheadCache(block_nbytes),
        "first": caches.FirstCache(block_nbytes),
        "background": caches.BackgroundCache(block_nbytes),
        "blockcache": caches.BlockCache(block_nbytes),
    }
    return made[str(settings.get("cache_type", "blockcache"))]


_TARGET_TIME, _TARGET_REQUESTS = 15, 2  # percent


def fit_all(calibration: pd.DataFrame) -> dict[str, ClientCosts]:
    """Fit what each client takes beside the network, on rows of a network that emulates nothing.

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
        name: {"a request (ms)": 1000 * one.request_s, "the rest (s)": one.start_s}
        for name, one in costs.items()
    }
    return pd.DataFrame(lines).T.round(2).rename_axis("client")


def predict_drivers(
    driver: Driver, recorded: Recorded, network: Network, costs: Mapping[str, ClientCosts]
) -> Replay | None:
    """Predict opening and reading the variables by a driver; None for what has no model."""
    between, cost = caches_of(driver, recorded), costs.get(driver.family)
    if between is None or cost is None:
        return None
    reading = recorded.reading
    for cache in between:
        reading = caches.read_through(cache, reading, file_nbytes=recorded.file_nbytes)
    lengths = (caches.Read(0, 0),) * recorded.n_without_bytes
    steps = order_reads(caches.Reading((*lengths, *reading.reads)))
    return replay(steps, network, request_s=cost.request_s, rest_s=cost.start_s, n_draws=25)


def compare_predicted(
    rows: pd.DataFrame,
    drivers: Sequence[Driver],
    recorded: Mapping[str, Recorded],
    network: Network,
    costs: Mapping[str, ClientCosts],
) -> pd.DataFrame:
    """Put predicted time, requests and bytes beside the measured ones.

    A row a driver and layout, each layout by its recording; errors are predicted over measured,
    less 1. The recorded driver is left out, because nothing of it is predicted.
    """
    part = measured(rows, "variables")
    trace = trace_of(part)
    part = part.assign(s=part["total_s"], requests=trace["all_requests"])
    part = part.assign(MB=trace["all_nbytes"] / 1e6)
    medians = part.groupby(["contender", "layout"], sort=False)[["s", "requests", "MB"]].median()
    by_name, lines = {driver.name: driver for driver in drivers}, {}
    for key, line in medians.iterrows():
        name, layout = map(str, cast(tuple[Any, Any], key))
        if name == RECORDED or layout not in recorded:
            continue
        found = predict_drivers(by_name[name], recorded[layout], network, costs)
        if found:
            told = (found.seconds, found.n_requests, found.nbytes / 1e6)
            lines[name, layout] = [*told, *line, *(np.array(told) / line.to_numpy() - 1)]
    names = ("s", "requests", "MB")
    columns = [f"{name} {kind}" for kind in ("predicted", "measured", "error") for name in names]
    table = pd.DataFrame.from_dict(lines, orient="index", columns=columns)
    table.index = pd.MultiIndex.from_tuples(lines, names=["driver", "layout"])
    return table


def what_if(
    drivers: Sequence[Driver],
    recorded: Mapping[str, Recorded],
    networks: Mapping[str, Network],
    costs: Mapping[str, ClientCosts],
) -> pd.DataFrame:
    """Predict the reads over networks (s): a row a driver and layout, a column a network."""
    lines = {}
    for driver in drivers:
        for layout, each in recorded.items():
            told = [predict_drivers(driver, each, network, costs) for network in networks.values()]
            if all(told):
                lines[driver.name, layout] = [float(f"{one.seconds:.3g}") for one in told if one]
    table = pd.DataFrame.from_dict(lines, orient="index", columns=list(networks))
    table.index = pd.MultiIndex.from_tuples(lines, names=["driver", "layout"])
    return table


def find_errors(table: pd.DataFrame) -> dict[str, str]:
    """Put the errors of the predictions into words, by the key under which pages quote them."""
    fixed = table[[not str(name).startswith("fsspec-background") for name, _ in table.index]]
    time = 100 * table["s error"].abs().median()
    requests, nbytes = (100 * fixed[f"{name} error"].abs().median() for name in ("requests", "MB"))

    def judge(value: float, target: float) -> str:
        return "met" if value <= target else "missed"

    return {
        "replay-hoped-time": f"at most {_TARGET_TIME} %",
        "replay-hoped-requests": f"at most {_TARGET_REQUESTS} %",
        "n-predicted": str(len(table)),
        "replay-error-time": f"{time:.1f} %",
        "replay-error-requests": f"{requests:.1f} %",
        "replay-error-bytes": f"{nbytes:.1f} %",
        "replay-target-time": judge(time, _TARGET_TIME),
        "replay-target-requests": judge(max(requests, nbytes), _TARGET_REQUESTS),
    }
