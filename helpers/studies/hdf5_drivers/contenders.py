"""Contenders of the study: a driver with its settings, a layout and a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.errors import UserError
from helpers.measurement.looks import check_looks
from helpers.measurement.measure import CheckError, Contender
from helpers.measurement.provenance import imported, name_beside
from helpers.storage.drivers import Answer, Driver, Session, TaskName
from helpers.storage.drivers.traces import summarise_trace
from helpers.storage.hdf5.files import StoredFile
from helpers.storage.hdf5.layouts import FILE_LAYOUTS
from helpers.storage.hdf5.properties import check_page_buffer
from helpers.storage.network import Request
from helpers.storage.wires import Wire

CONTROL = "control"
_ON_VALUES: tuple[TaskName, ...] = ("variables", "subset")


@dataclass(slots=True)
class FileRead:
    """A task done by a driver on a layout, in the steps that a measurement needs.

    Parameters
    ----------
    stored : StoredFile
        The file.
    layout : str
        Which arrangement of it.
    task : str
        What to ask.
    driver : Driver
        How to read.
    wire : Wire
        The network that it is read over.
    session : Session
        The interpreter in which it is read.
    """

    stored: StoredFile
    layout: str
    task: TaskName
    driver: Driver
    wire: Wire
    session: Session
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
        self.wire.take_trace()
        self.wire.set_tag("open")

    def open(self) -> None:
        """Open the file; the driver gives its settings."""
        location = self.stored.seen_from(self.wire.far).at(self.layout)
        self.session.open(self.driver, location, dict(self.driver.settings))
        self.wire.set_tag("read")

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
        self.trace = self.wire.take_trace()
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
    wire: Wire,
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
    wire : Wire
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
        contend(FileRead(stored, layout, task, driver, wire, session))
        for driver, layout in pairs
        for task in tasks
        if driver.kind == "hdf5" or task in _ON_VALUES
    ]


def make_control(
    pairs: Sequence[tuple[Driver, str]],
    task: TaskName,
    stored: StoredFile,
    wire: Wire,
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
    wire : Wire
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
    twin = FileRead(stored, layout, task, driver, wire, session)
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
