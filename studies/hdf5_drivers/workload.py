"""Contenders of the study: a driver with its settings, a layout and a task; reads made once for their traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from helpers.arrays.reads import count_requests, max_in_flight
from helpers.benchmark.contender import CheckError, Contender, Steps
from helpers.benchmark.provenance import Scalar, imported, name_beside
from helpers.errors import UserError
from helpers.netem.proxy import Request
from helpers.objectstore.testbed import Testbed
from studies.hdf5_drivers.drivers import DRIVERS, MIB, Driver
from studies.hdf5_drivers.file_layouts import FILE_LAYOUTS
from studies.hdf5_drivers.files import StoredFile
from studies.hdf5_drivers.session import Session
from studies.hdf5_drivers.tasks import ON_VALUES, Answer, Task, TaskName


def critical_path(trace: Sequence[Request]) -> int:
    """Count the longest chain of requests of which each starts after the one before ended.

    The time is at least so many times the time to first byte, whatever the bandwidth.
    """
    depth, free_s = 0, float("-inf")
    for request in sorted(trace, key=lambda each: each.end_s):
        if request.start_s >= free_s:
            depth, free_s = depth + 1, request.end_s
    return depth


def count_distinct_nbytes(trace: Sequence[Request]) -> int:
    """Count the bytes of an object that were fetched at least once."""
    distinct, last = 0, ("", 0)  # the object, and how far in it
    for each in sorted(trace, key=lambda each: (each.key, each.range_start or 0)):
        start = each.range_start or 0
        reached = last[1] if each.key == last[0] else 0
        stop = max(reached, start + each.nbytes)
        distinct, last = distinct + stop - max(start, reached), (each.key, stop)
    return distinct


def summarise_trace(trace: Sequence[Request], *, needed_nbytes: int) -> dict[str, float]:
    """Summarise the requests of an opening and a read."""
    if not trace:
        return {}
    nbytes = sum(request.nbytes for request in trace)
    found = count_requests(trace, 1) | {
        "all_requests": len(trace),
        "all_nbytes": nbytes,
        "all_max_in_flight": max_in_flight(trace),
        "repeated_nbytes": nbytes - count_distinct_nbytes(trace),
        "dependency_depth": critical_path(trace),
    }
    if needed_nbytes:
        found["over_read"] = round(nbytes / needed_nbytes, 3)
    return found


CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Bench:
    """Where reads are made: the file, the network that it is read over, the drivers' interpreter."""

    stored: StoredFile
    testbed: Testbed
    session: Session


@dataclass(slots=True)
class FileRead(Steps):
    """A task done by a driver on a layout, in the steps that a measurement needs."""

    palette = "driver"
    bench: Bench
    driver: Driver  # how to read
    layout: str  # which arrangement of the file
    task: TaskName = "variables"  # what to ask
    trace: list[Request] = field(default_factory=list)

    def settings(self) -> Mapping[str, Scalar]:
        """Tell what a comparison has to hold equal, or declare."""
        given = (f"{key}={value}" for key, value in self.driver.settings.items())
        return {
            "driver_settings": " ".join(given),
            "concurrency": self.driver.in_flight,
            "codec": "deflate with shuffle",
            "cache_state": "cold client, warm server",
        }

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the answer, and of the layout in the store."""
        stored = self.bench.stored
        return stored.answers[self.task].nbytes, stored.stored_nbytes[self.layout]

    def prepare(self) -> None:
        """Close what is open, forget every client, and empty the trace."""
        self.bench.session.forget()
        self.bench.testbed.take_trace()
        self.bench.testbed.set_tag("open")

    def open(self) -> Task:
        """Open the file by the driver, with its settings; what is to be read comes next."""
        location = self.bench.stored.seen_from(self.bench.testbed.far).at(self.layout)
        self.bench.session.open(self.driver, location)
        self.bench.testbed.set_tag("read")
        return self.bench.stored.tasks[self.task]

    def read(self, task: Task) -> Answer:
        """Do the task."""
        return self.bench.session.run(task)

    def check(self, answer: Answer) -> str:
        """Compare what was read with what was written."""
        if answer != (expected := self.bench.stored.answers[self.task]):
            raise CheckError(f"{self.driver.name} on {self.layout}: {answer}, not {expected}")
        kind = "values" if self.task in ON_VALUES else "texts"
        return f"xxh3 of the {kind} of {answer.n_items} variables"

    def versions(self) -> Mapping[str, str]:
        """Ask the interpreter what it has imported; its HDF5 may be another."""
        return name_beside("drivers", [self.bench.session.call(imported)])

    def collect(self) -> Mapping[str, float]:
        """Count what passed over the network; the trace is kept until the next read."""
        self.trace = self.bench.testbed.take_trace()
        is_whole = self.task == "variables"
        needed = self.bench.stored.needed_nbytes(self.layout) if is_whole else 0
        return summarise_trace(self.trace, needed_nbytes=needed)


Pair = tuple[Driver, str]
"""A driver and a layout that it reads."""


def pair_up(drivers: Sequence[Driver], layouts: Sequence[str], stored: StoredFile) -> list[Pair]:
    """Pair each driver with each layout that it reads; refuse a page buffer below a page."""
    pairs = [
        (driver, layout)
        for driver in drivers
        for layout in layouts
        if (layout in FILE_LAYOUTS if driver.client.reads_files else layout == driver.name)
    ]
    for driver, layout in pairs:
        if layout in stored.properties:
            buffer_nbytes = int(driver.settings.get("page_buf_size", 0))
            page_nbytes = stored.properties[layout].page_nbytes
            if 0 < buffer_nbytes < page_nbytes:  # which HDF5 would refuse when it opens the file
                raise UserError(
                    f"page_buf_size: {buffer_nbytes} for {driver.name} on {layout};"
                    f" allowed: 0, or at least a page of that file, {page_nbytes}"
                )
    return pairs


Read = Callable[[Task], Answer]
"""What is timed beside the opening."""


def make_contenders(
    drivers: Sequence[Driver],
    layouts: Sequence[str],
    tasks: Sequence[TaskName],
    bench: Bench,
    *,
    read: Read,
) -> list[Contender]:
    """Make a contender of each driver, each layout that it reads, and each task.

    What is timed after the opening, `read`, takes the task and returns its answer.
    """
    return [
        Contender(
            driver.name,
            FileRead(bench, driver, layout, task),
            point={"layout": layout, "task": task},
            read=read,
            group=task,
        )
        for driver, layout in pair_up(drivers, layouts, bench.stored)
        for task in tasks
    ]


def make_control(contenders: Sequence[Contender]) -> Contender:
    """Make a second copy of the last contender that reads what is judged: variables of a file."""
    judged = [
        each
        for each in contenders
        if each.point["task"] == "variables" and each.point["layout"] in FILE_LAYOUTS
    ]
    if not judged:
        given = ", ".join(dict.fromkeys(each.name for each in contenders)) or "none"
        raise UserError(f"drivers: {given}; allowed: also one that reads variables of HDF5 files")
    return replace(judged[-1], name=CONTROL, control_of=judged[-1].name)


def trace_once(way: FileRead) -> list[Request]:
    """Read once, untimed and verified, to look at the trace."""
    way.prepare()
    answer = way.read(way.open())
    way.collect()
    way.check(answer)
    return way.trace


def trace_reads(
    drivers: Sequence[Driver], layouts: Sequence[str], bench: Bench
) -> dict[str, dict[str, list[Request]]]:
    """Read the variables once by each driver on each layout, for their traces by both names."""
    return {
        layout: {driver.name: trace_once(FileRead(bench, driver, layout)) for driver in drivers}
        for layout in layouts
    }


def vary(
    block_mib: Sequence[int],
    page_buffer_mib: Sequence[int],
    layouts: Sequence[str],
    stored: StoredFile,
) -> list[Driver]:
    """Vary the block of the tuned file object and the page buffer of the library, each with each.

    The drivers are named by their settings; each page buffer must hold a page of the layouts.
    """
    tuned = DRIVERS["fsspec-tuned"]
    varied = [
        replace(
            tuned,
            name=f"{tuned.name}, block {block} MiB, page buffer {page} MiB",
            settings={**tuned.settings, "block_size": block * MIB, "page_buf_size": page * MIB},
        )
        for block in block_mib
        for page in page_buffer_mib
    ]
    pair_up(varied, layouts, stored)
    return varied


def tabulate_settings(drivers: Sequence[Driver], layout: str, bench: Bench) -> pd.DataFrame:
    """Tabulate requests and bytes of reading the variables, a row a setting; none for one alone."""
    lines = {}
    for driver, _ in pair_up(drivers if len(drivers) > 1 else [], [layout], bench.stored):
        trace = trace_once(FileRead(bench, driver, layout))
        told = summarise_trace(trace, needed_nbytes=bench.stored.needed_nbytes(layout))
        lines[driver.name] = {
            "requests": told["all_requests"],
            "MB": told["all_nbytes"] / 1e6,
            "over-read": told["over_read"],
            "critical path": told["dependency_depth"],
        }
    return pd.DataFrame(lines).T.round(2).rename_axis("setting")
