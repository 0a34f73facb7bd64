"""Contenders of the study: a driver with its settings, a layout and a task; reads made once for their traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from helpers.arrays.reads import count_requests, max_in_flight
from helpers.benchmark.contender import CheckError, Contender
from helpers.benchmark.provenance import imported, name_beside
from helpers.errors import UserError
from helpers.netem.trace import Request
from helpers.objectstore.testbed import Testbed
from helpers.plotting.palette import check_looks
from studies.hdf5_drivers.drivers import MIB, Driver
from studies.hdf5_drivers.file_layouts import FILE_LAYOUTS, check_page_buffer
from studies.hdf5_drivers.files import StoredFile
from studies.hdf5_drivers.session import Session
from studies.hdf5_drivers.tasks import Answer, TaskName


def critical_path(trace: Sequence[Request]) -> int:
    """Count the longest chain of requests of which each starts after the one before ended.

    It bounds the time from below: so many times the time to first byte, whatever the
    bandwidth.
    """
    depth, free_s = 0, float("-inf")
    for request in sorted(trace, key=lambda each: each.end_s):
        if request.start_s >= free_s:
            depth, free_s = depth + 1, request.end_s
    return depth


def count_distinct_nbytes(trace: Sequence[Request]) -> int:
    """Count the bytes of an object that were fetched at least once."""
    ranges = sorted(
        (each.key, each.range_start or 0, (each.range_start or 0) + each.nbytes)
        for each in trace
        if each.nbytes
    )
    distinct, last_key, reached = 0, "", 0
    for key, start, stop in ranges:
        start = start if key != last_key else max(start, reached)
        reached = max(stop, reached) if key == last_key else stop
        distinct, last_key = distinct + max(0, stop - start), key
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
        "critical_path": critical_path(trace),
    }
    if needed_nbytes:
        found["over_read"] = round(nbytes / needed_nbytes, 3)
    return found


CONTROL = "control"
_ON_VALUES: tuple[TaskName, ...] = ("variables", "subset")


@dataclass(slots=True)
class FileRead:
    """A task done by a driver on a layout, in the steps that a measurement needs."""

    stored: StoredFile  # the file
    layout: str  # which arrangement of it
    task: TaskName  # what to ask
    driver: Driver  # how to read
    testbed: Testbed  # the network that it is read over
    session: Session  # the interpreter in which it is read
    trace: list[Request] = field(default_factory=list)

    def settings(self) -> dict[str, Any]:
        """Tell what a comparison has to hold equal, or declare."""
        return {
            "driver_settings": " ".join(
                f"{key}={value}" for key, value in self.driver.settings.items()
            ),
            "concurrency": 1,
            "codec": "deflate with shuffle",
            "cache_state": "cold client, warm server",
        }

    def prepare(self) -> None:
        """Close what is open, forget every client, and empty the trace."""
        self.session.forget()
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> None:
        """Open the file; the driver gives its settings."""
        location = self.stored.seen_from(self.testbed.far).at(self.layout)
        self.session.open(self.driver, location, dict(self.driver.settings))
        self.testbed.set_tag("read")

    def read(self, opened: None) -> Answer:
        """Do the task."""
        return self.session.run(self.stored.tasks[self.task])

    def check(self, answer: Answer) -> str:
        """Compare what was read with what was written."""
        if answer != (expected := self.stored.answers[self.task]):
            raise CheckError(f"{self.driver.name} on {self.layout}: {answer}, not {expected}")
        kind = "values" if self.task in _ON_VALUES else "texts"
        return f"xxh3 of the {kind} of {answer.n_items} variables"

    def versions(self) -> dict[str, str]:
        """Ask the interpreter what it has imported; its HDF5 may be another."""
        return name_beside("drivers", [self.session.call(imported)])

    def collect(self) -> Mapping[str, float]:
        """Count what passed over the wire; the trace is kept until the next read."""
        self.trace = self.testbed.take_trace()
        is_whole = self.task == "variables"
        needed = self.stored.needed_nbytes(self.layout) if is_whole else 0
        return summarise_trace(self.trace, needed_nbytes=needed)


def pair_up(
    drivers: Sequence[Driver], layouts: Sequence[str], stored: StoredFile
) -> list[tuple[Driver, str]]:
    """Pair each driver with each layout that it reads.

    Parameters
    ----------
    drivers : sequence of Driver
        Those that can run.
    layouts : sequence of str
        Those that are stored.
    stored : StoredFile
        The file, which knows the pages of its layouts.

    Returns
    -------
    list of tuple of Driver and str
        All pairs that make sense.

    Raises
    ------
    UserError
        If a page buffer does not hold a page of a layout.
    """
    pairs = [
        (driver, layout)
        for driver in drivers
        for layout in layouts
        if (layout in FILE_LAYOUTS if driver.kind == "hdf5" else layout == driver.kind)
    ]
    for driver, layout in pairs:
        if layout in stored.properties:
            page_nbytes = stored.properties[layout].page_nbytes
            check_page_buffer(page_nbytes, driver.page_buffer_nbytes, f"{driver.name} on {layout}")
    return pairs


def make_contenders(
    pairs: Sequence[tuple[Driver, str]],
    tasks: Sequence[TaskName],
    stored: StoredFile,
    testbed: Testbed,
    session: Session,
) -> list[Contender]:
    """Make a contender of each pair and task.

    Conversions hold the arrays that are read and nothing else, so that they are not asked
    about the tree.

    Parameters
    ----------
    pairs : sequence of tuple of Driver and str
        Driver and layout.
    tasks : sequence of str
        Of `helpers.storage.drivers.TASKS`.
    stored : StoredFile
        The file.
    testbed : Wire
        The network.
    session : Session
        The interpreter.

    Returns
    -------
    list of Contender
        At most as many as pairs times tasks.

    Raises
    ------
    UserError
        If a driver has no colour.
    """
    check_looks([driver.name for driver, _ in pairs], "driver")
    return [
        contend(FileRead(stored, layout, task, driver, testbed, session))
        for driver, layout in pairs
        for task in tasks
        if driver.kind == "hdf5" or task in _ON_VALUES
    ]


def make_control(
    pairs: Sequence[tuple[Driver, str]],
    task: TaskName,
    stored: StoredFile,
    testbed: Testbed,
    session: Session,
) -> Contender:
    """Make a second copy of the last pair that reads an HDF5 file.

    Parameters
    ----------
    pairs : sequence of tuple of Driver and str
        Driver and layout.
    task : str
        What it is asked.
    stored : StoredFile
        The file.
    testbed : Wire
        The network.
    session : Session
        The interpreter.

    Returns
    -------
    Contender
        The control.

    Raises
    ------
    UserError
        If no driver reads HDF5 files.
    """
    of_files = [pair for pair in pairs if pair[0].kind == "hdf5"]
    if not of_files:
        given = ", ".join(dict.fromkeys(driver.name for driver, _ in pairs)) or "none"
        raise UserError(f"drivers: {given}; allowed: also one that reads HDF5 files as they are")
    driver, layout = of_files[-1]
    twin = FileRead(stored, layout, task, driver, testbed, session)
    return contend(twin, name=CONTROL, control_of=driver.name)


def contend(way: FileRead, *, name: str = "", control_of: str | None = None) -> Contender:
    """Make a contender of a way to read.

    Parameters
    ----------
    way : FileRead
        Driver, layout and task.
    name : str
        Instead of the driver's.
    control_of : str or None
        Name of the contender of which this is a second copy.

    Returns
    -------
    Contender
        For `measure_blocks`.
    """
    return Contender(
        name=name or way.driver.name,
        point={"layout": way.layout, "task": way.task},
        group=way.task,
        settings=way.settings(),
        open=way.open,
        read=way.read,
        check=way.check,
        prepare=way.prepare,
        collect=way.collect,
        versions=way.versions,
        array_nbytes=way.stored.answers[way.task].nbytes,
        stored_nbytes=way.stored.stored_nbytes[way.layout],
        control_of=control_of,
    )


def trace_once(way: FileRead) -> list[Request]:
    """Read once, untimed and verified, to look at the trace."""
    way.prepare()
    way.open()
    answer = way.read(None)
    way.collect()
    way.check(answer)
    return way.trace


def trace_reads(
    drivers: Sequence[Driver],
    layouts: Sequence[str],
    stored: StoredFile,
    testbed: Testbed,
    session: Session,
) -> dict[str, dict[str, list[Request]]]:
    """Read the variables once by each driver on each layout, for their traces by both names."""
    return {
        layout: {
            driver.name: trace_once(FileRead(stored, layout, "variables", driver, testbed, session))
            for driver in drivers
        }
        for layout in layouts
    }


def sweep(
    driver: Driver, *, block_mib: Sequence[int], page_buffer_mib: Sequence[int]
) -> list[Driver]:
    """Vary the block of the file object and the page buffer of the library.

    Parameters
    ----------
    driver : Driver
        With both settings.
    block_mib, page_buffer_mib : sequence of int
        Sizes in MiB; every one of the first meets every one of the second.

    Returns
    -------
    list of Driver
        Named by their settings.
    """
    return [
        Driver(
            f"block {block} MiB, page buffer {page} MiB",
            driver.open,
            driver.description,
            {**driver.settings, "block_size": block * MIB, "page_buf_size": page * MIB},
            registered=driver.name,
        )
        for block in block_mib
        for page in page_buffer_mib
    ]


def tabulate_sweep(
    drivers: Sequence[Driver], layout: str, stored: StoredFile, testbed: Testbed, session: Session
) -> pd.DataFrame:
    """Tabulate requests and bytes of reading the variables, for each setting of a driver.

    Parameters
    ----------
    drivers : sequence of Driver
        Made by `sweep`.
    layout : str
        An arrangement of the file; others are refused where a page does not fit.
    stored : StoredFile
        The file.
    testbed : Wire
        The network.
    session : Session
        The interpreter.

    Returns
    -------
    DataFrame
        A row a driver: requests, MB, over-read and depth.
    """
    lines = {}
    for driver, _ in pair_up(drivers, [layout], stored):
        trace = trace_once(FileRead(stored, layout, "variables", driver, testbed, session))
        told = summarise_trace(trace, needed_nbytes=stored.needed_nbytes(layout))
        lines[driver.name] = {
            "requests": told["all_requests"],
            "MB": told["all_nbytes"] / 1e6,
            "over-read": told["over_read"],
            "depth": told["critical_path"],
        }
    return pd.DataFrame(lines).T.round(2).rename_axis("setting")
