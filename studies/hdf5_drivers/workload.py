"""Contenders of the study: a driver with its settings, on a layout, and what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from helpers.arrays.readers import forget_clients
from helpers.arrays.reads import count_requests, max_in_flight
from helpers.benchmark.contender import CheckError, Contender, Steps
from studies.hdf5_drivers.drivers import DRIVERS, VARIABLES, Driver, Tree, Values, prove, read_all
from studies.hdf5_drivers.files import TASKS, StoredFile
from wire.bed.locations import Location
from wire.bed.requests import RequestRow
from wire.bed.testbed import Testbed
from wire.host import Scalar
from wire.models.transfer import count_waits

CONTROL = "control"


def summarise_trace(trace: Sequence[RequestRow], *, needed_nbytes: int) -> dict[str, float]:
    """Summarise the requests of an opening and a read."""
    if not trace:
        return {}
    nbytes = sum(request.nbytes for request in trace)
    return count_requests(trace, 1) | {
        "all_requests": len(trace),
        "all_nbytes": nbytes,
        "all_max_in_flight": max_in_flight(trace),
        "dependency_depth": count_waits(trace),
        "over_read": round(nbytes / needed_nbytes, 3),
    }


@dataclass(slots=True)
class FileRead(Steps):
    """Variables read by a driver from a layout, in the steps that a measurement needs."""

    stored: StoredFile
    testbed: Testbed  # the network that it is read over
    driver: Driver
    layout: str  # which arrangement of the file
    task: str = VARIABLES  # what to read
    tree: Tree | None = None  # what is open
    trace: list[RequestRow] = field(default_factory=list)

    def settings(self) -> Mapping[str, Scalar]:
        """Declare what a comparison has to hold equal."""
        named_settings = (f"{key}={value}" for key, value in self.driver.settings.items())
        return {
            "driver_settings": " ".join(named_settings),
            "concurrency": self.driver.concurrency,
            "codec": "deflate with shuffle",
            "cache_state": "cold client, warm server",
        }

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the values, and of the file in the store."""
        return self.stored.answers[self.task].nbytes, self.stored.properties[
            self.layout
        ].file_nbytes

    def prepare(self) -> None:
        """Close what is open, forget every client, and empty the trace."""
        if self.tree is not None:
            self.tree.close()
        self.tree = None
        forget_clients({})
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> Tree:
        """Open the file by the driver, with its settings."""
        location = self.stored.seen_from(self.testbed.far).locate(self.layout)
        self.tree = self.driver.open(location, self.driver.settings)
        self.testbed.set_tag("read")
        return self.tree

    def read(self, tree: Tree) -> Values:
        """Read the variables of the task."""
        return read_all(tree, TASKS[self.task])

    def check(self, values: Values) -> str:
        """Compare what was read with what was written, and let it go."""
        answer, expected = prove(values), self.stored.answers[self.task]
        if self.tree is not None:
            self.tree.close()
        self.tree = None
        if answer != expected:
            raise CheckError(f"{self.driver.name} on {self.layout}: {answer}, not {expected}")
        return f"xxh3 of the values of {answer.n_items} variables"

    def versions(self) -> Mapping[str, str]:
        """Return what another process has imported, where the driver reads there."""
        return self.driver.list_versions()

    def collect(self) -> Mapping[str, float]:
        """Count what passed over the network; the trace is kept until the next read."""
        self.trace = self.testbed.take_trace()
        needed_nbytes = self.stored.needed_nbytes(self.layout, self.task)
        return summarise_trace(self.trace, needed_nbytes=needed_nbytes)


Read = Callable[[Tree, Sequence[str]], Values]
"""What is timed after the opening: it takes the open file and the names of variables."""


def list_services(reads: Iterable[str], stored: StoredFile) -> tuple[set[str], Location, list[str]]:
    """List the services beside S3 that each "driver on layout" reads from, and a place and keys of what they read."""
    pairs = {read.partition(" on ")[::2] for read in reads}
    elsewhere = [(driver, layout) for driver, layout in pairs if DRIVERS[driver].service != "s3"]
    keys = {stored.locate(layout).prefix for _, layout in elsewhere}
    return {DRIVERS[driver].service for driver, _ in elsewhere}, stored.location, sorted(keys)


def make_contenders(
    reads: Mapping[str, Sequence[str]],
    stored: StoredFile,
    testbed: Testbed,
    *,
    read: Read,
    elsewhere: Mapping[str, Testbed] = MappingProxyType({}),
) -> list[Contender]:
    """Make a contender of each "driver on layout", by task, and a second copy of the first task's last.

    `elsewhere` are the services where drivers read that do not speak S3.
    """
    contenders = []
    for task, names in reads.items():
        for driver, _, layout in (name.partition(" on ") for name in names):
            place = {"s3": testbed, **elsewhere}[DRIVERS[driver].service]
            steps = FileRead(stored, place, DRIVERS[driver], layout, task)
            timed = partial(lambda names, tree: read(tree, names), TASKS[task])
            contenders.append(
                Contender(driver, steps, point={"layout": layout, "task": task}, read=timed)
            )
    judged = [contender for contender in contenders if contender.point["task"] == VARIABLES][-1]
    return [*contenders, replace(judged, name=CONTROL, control_of=judged.name)]


def trace_reads(contenders: Sequence[Contender]) -> dict[str, list[RequestRow]]:
    """Read once by each contender, untimed and verified, for its trace by driver and layout.

    Whatever a library does once in a process, such as to import a codec, it does here.
    """
    traces = {}
    for contender in contenders:
        if (
            isinstance(contender.steps, FileRead)
            and contender.point["task"] == VARIABLES
            and not contender.control_of
        ):
            traces[f"{contender.name} on {contender.point['layout']}"] = trace_once(contender.steps)
    return traces


def trace_once(steps: FileRead) -> list[RequestRow]:
    """Read once, untimed and verified, for the trace."""
    steps.prepare()
    values = steps.read(steps.open())
    steps.collect()
    steps.check(values)
    return steps.trace
