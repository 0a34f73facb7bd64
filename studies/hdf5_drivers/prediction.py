"""What drivers do, predicted from the trace of one without a cache: for this file, and larger ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pandas as pd

from advisors.hdf5.copying import MIB
from advisors.hdf5.files import iterate_chunks, open_hdf5, open_source
from advisors.hdf5.inspection import Read, record_reads
from advisors.hdf5.prediction import (
    Cache,
    FileCache,
    PageBuffer,
    iterate_parts,
    order_reads,
    read_through,
)
from helpers.models.requests import Request
from helpers.models.transfer import TYPICAL_COSTS, Replay, replay
from helpers.netem.profiles import Profile, network_of
from helpers.plotting.tables import trace_of
from studies.hdf5_drivers.drivers import DRIVERS, Driver
from studies.hdf5_drivers.files import THREE_VARIABLES
from studies.hdf5_drivers.findings import measured
from studies.hdf5_drivers.tasks import VARIABLES
from studies.hdf5_drivers.workload import FileRead, trace_once

RECORDED = "fsspec-none"
"""The driver whose trace is what the library asks for: nothing lies between."""

# What stands between it and the network where nothing is set.
_DEFAULTS = {"fsspec-readahead": ("readahead", 50 * MIB), "xarray": ("blockcache", 4 * MIB)}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the library asks for to open a layout and read the variables, one after the other."""

    reads: tuple[tuple[Read, ...], ...]  # of each variable, in order; opening is part of the first
    n_without_bytes: int  # requests that bring no bytes, as for the length of the file
    file_nbytes: int  # lengths of the file, of its pages, and of references to it
    page_nbytes: int  # 0 where it is not paged
    references_nbytes: int
    n_first_past: int  # reads that come before the library has a page buffer

    @property
    def chunk_offsets(self) -> list[int]:
        """Where the chunks of the variables begin."""
        return sorted(one.offset for one in chain(*self.reads) if not one.is_metadata)


def record_library(way: FileRead) -> Recorded:
    """Record, by a driver without a cache, what the library asks for of a layout."""
    way = replace(way, driver=DRIVERS[RECORDED], task=VARIABLES, trace=[])
    trace, found = trace_once(way), way.stored.properties[way.layout]
    with open_source(way.stored.at(way.layout)) as file:
        n_first_past = record_reads(file, way.layout, ()).n_first_past if found.page_nbytes else 0
        with open_hdf5(file, way.layout) as opened:
            of = {
                at: n
                for n, one in enumerate(THREE_VARIABLES)
                for _, at, _ in iterate_chunks(opened[one])
            }
    lengths = found.file_nbytes, found.page_nbytes, way.stored.references_nbytes[way.layout]
    n_without = sum(not each.nbytes for each in trace)
    return Recorded(_split(trace, of), n_without, *lengths, n_first_past)


def _split(trace: Sequence[Request], of: Mapping[int, int]) -> tuple[tuple[Read, ...], ...]:
    """Split requests by the variable whose chunk comes next, from where chunks begin."""
    parts: dict[int, list[Read]] = {}
    waiting = list[Read]()
    for each in sorted(trace, key=lambda request: request.start_s):
        if not each.nbytes:
            continue
        at = each.range_start or 0
        waiting.append(Read(at, each.nbytes, is_metadata=at not in of))
        if at in of:
            parts.setdefault(of[at], []).extend(waiting)
            waiting = []
    return tuple(tuple(reads) for reads in parts.values())


def enlarge(recorded: Recorded, n: int) -> Recorded:
    """Lengthen a file to `n` times: its chunks, with what lies between them, come again and again.

    What the library reads before the first chunk of a variable it reads once.

    Examples
    --------
    >>> reads = (Read(0, 8), Read(100, 50, is_metadata=False)),
    >>> longer = enlarge(Recorded(reads, 1, 200, 0, 30, 0), 3)
    >>> longer.chunk_offsets, len(longer.reads[0]), longer.references_nbytes
    ([100, 300, 500], 4, 90)
    """
    shifts = [copy * recorded.file_nbytes for copy in range(n)]
    lengthened = list[tuple[Read, ...]]()
    for reads in recorded.reads:
        first = next(place for place, read in enumerate(reads) if not read.is_metadata)
        again = (
            replace(read, offset=read.offset + shift) for shift in shifts for read in reads[first:]
        )
        lengthened.append((*reads[:first], *again))
    return replace(
        recorded,
        reads=tuple(lengthened),
        file_nbytes=n * recorded.file_nbytes,
        references_nbytes=n * recorded.references_nbytes,
    )


def caches_of(driver: Driver, recorded: Recorded) -> list[Cache]:
    """Name the caches between the library and the network, from the settings of a driver."""
    settings = driver.settings
    name, block_nbytes = _DEFAULTS.get(driver.name, ("", 0))
    name = str(settings.get("cache_type", name))
    found: list[Cache] = [FileCache(name, int(settings.get("block_size", block_nbytes)))]
    buffer_nbytes = int(settings.get("page_buf_size", 0)) if recorded.page_nbytes else 0
    if buffer_nbytes:
        pages = PageBuffer(recorded.page_nbytes, buffer_nbytes, recorded.n_first_past)
        found.insert(0, pages)
    return found


def predict_driver(
    driver: Driver, recorded: Recorded, profile: Profile, *, decode_s: float, dilation: float = 1.0
) -> Replay:
    """Predict opening and reading the variables by a driver.

    `decode_s` is the time of reading them from memory, `dilation` that of the network: processors
    count for as many times less.
    """
    reads = list(chain(*recorded.reads))
    if driver.name == "obstore-whole":
        parts = iterate_parts(recorded.file_nbytes, int(driver.settings["part_nbytes"]))
        asked = [Read(0, 0), *parts]
    elif driver.name == "references":
        chunks = (one for one in reads if not one.is_metadata)
        asked = [Read(0, recorded.references_nbytes), *chunks]
    else:
        _, behind = read_through(caches_of(driver, recorded), reads, recorded.file_nbytes)
        asked = [*[Read(0, 0)] * recorded.n_without_bytes, *behind]
    return replay(
        order_reads(asked, n_connections=driver.in_flight),
        network_of(profile, streams_per_worker=driver.in_flight),
        request_s=TYPICAL_COSTS.request_s / dilation,
        rest_s=(TYPICAL_COSTS.start_s + decode_s) / dilation,
        n_draws=max(3, min(25, 50_000 // len(asked))),
    )


def predict_all(
    reads: Iterable[str],
    recorded: Mapping[str, Recorded],
    profile: Profile,
    *,
    decode_s: float,
    dilation: float = 1.0,
) -> pd.DataFrame:
    """Predict each "driver on layout": a row each."""
    lines = []
    for driver, _, layout in (name.partition(" on ") for name in reads):
        how = {"decode_s": decode_s, "dilation": dilation}
        found = predict_driver(DRIVERS[driver], recorded[layout], profile, **how)
        file_gb, moved_mb = recorded[layout].file_nbytes / 1e9, found.nbytes / 1e6
        lines.append((driver, layout, file_gb, found.seconds, found.n_requests, moved_mb))
    columns = ["driver", "layout", "file_gb", "predicted_s", "requests_predicted", "predicted_mb"]
    return pd.DataFrame(lines, columns=columns)


def predict_larger(
    reads: Sequence[str],
    recorded: Mapping[str, Recorded],
    profile: Profile,
    n_times: Iterable[int],
    *,
    decode_s: float,
) -> pd.DataFrame:
    """Predict files so many times as long, of which as large a share is asked for."""
    found = []
    for n in n_times:
        longer = {at: enlarge(one, n) for at, one in recorded.items()}
        predicted = predict_all(reads, longer, profile, decode_s=n * decode_s)
        # a repack is a little shorter: all are told apart by the file as it was written
        gb = longer["original"].file_nbytes / 1e9
        found.append(predicted.assign(times=n, file_gb=gb))
    return pd.concat(found, ignore_index=True)


def compare_predicted(rows: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """Put the measured medians next to what `predict_all` has; `error` is that of the time.

    The recorded driver is left out, because its requests are where the others come from.
    """
    part = measured(rows)
    part = part[part["task"] == VARIABLES]
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
