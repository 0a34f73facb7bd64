"""The accesses of the ledger as contenders: a client in an environment, a layout, an access."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.benchmark.contender import CheckError, Contender, Steps, Traced
from helpers.session import Session
from wire.bed.testbed import Testbed
from wire.host import Scalar
from wire.ledger.clients import CLIENTS
from wire.ledger.environments import HERE, Environment, read_environments
from wire.ledger.layouts import write_layouts
from wire.ledger.measure import Ledger, LedgerLine, list_lines, open_ledger

PREFIX = "ledger-accesses"


@dataclass(slots=True)
class LedgerAccess(Steps):
    """One access of one client in one environment."""

    ledger: Ledger
    line: LedgerLine
    failure: str = field(default="", init=False)  # why it cannot run
    answer: dict[str, Any] = field(default_factory=dict, init=False)

    @property
    def testbed(self) -> Testbed:
        """The store that it reads."""
        return self.ledger.testbed

    def settings(self) -> Mapping[str, Scalar]:
        """Return that nothing is cached: each access has a process of its own."""
        return {"cache_state": "new process"}

    def nbytes(self) -> tuple[int, int]:
        """Return the stored bytes of the layout."""
        stored_nbytes = max(1, self.ledger.stored.needed_nbytes(self.line.layout))
        return stored_nbytes, stored_nbytes

    def prepare(self) -> None:
        """Start the client's process and forget earlier requests."""
        self.failure = self.ledger.prepare(self.line)

    def read(self, _opened: Any = None, /) -> dict[str, Any]:
        """Run the access."""
        self.answer = {"failed": self.failure} if self.failure else self.ledger.run(self.line)
        return self.answer

    def collect(self) -> Mapping[str, Traced]:
        """Count the requests, with the versions of who made them."""
        counts = self.ledger.count(self.line)
        absent = self.ledger.describe_absence(str(self.answer.get("failed", "")))
        versions = self.ledger.processes.versions
        named = ", ".join(f"{name} {version}" for name, version in versions.items())
        return counts | {"absent": absent, "versions": "" if absent else named}

    def check(self, result: Any, /) -> str:
        """Compare what was read with what was written; an access that a client lacks is no error."""
        if "failed" in result:
            return "absent"
        if wrong := self.ledger.check(self.line, result):
            raise CheckError(f"{self.line.client} in {self.line.environment}: {wrong}")
        return "value equal"


def choose_environments(names: Sequence[str]) -> list[Environment]:
    """Choose environments by name; `all` are all but the one that runs this."""
    listed = {environment.name: environment for environment in read_environments()}
    if "all" in names:
        return [environment for name, environment in listed.items() if name != HERE]
    return [listed[name] for name in names]


@contextmanager
def _write(session: Session, names: Sequence[str]) -> Iterator[Ledger]:
    """Write what clients read, and open what serves it."""
    layouts = {layout for name in names for layout, _ in CLIENTS[name].accesses}
    testbed, seed = session.testbed, session.settings["seed"]
    environments = choose_environments(session.settings["environments"])
    with tempfile.TemporaryDirectory() as folder:
        stored = write_layouts(testbed.near, PREFIX, Path(folder), layouts, seed=seed)
        with open_ledger(
            testbed, stored, environments, names, profile=session.network, seed=seed
        ) as ledger:
            yield ledger


def plan_accesses(
    session: Session, *, read: Callable[[LedgerAccess], dict[str, Any]]
) -> list[Contender]:
    """Plan every access of the clients and environments of the case, each a contender."""
    wanted = session.settings["clients"]
    names = [*CLIENTS] if "all" in wanted else wanted
    ledger = session.open(_write(session, names))
    environments = choose_environments(session.settings["environments"])
    return [plan_access(ledger, line, read) for line in list_lines(environments, names)]


def plan_access(
    ledger: Ledger, line: LedgerLine, read: Callable[[LedgerAccess], dict[str, Any]]
) -> Contender:
    """Plan one access as a contender, timed by what the notebook shows."""
    steps = LedgerAccess(ledger, line)
    place = {"environment": line.environment, "layout": line.layout, "operation": line.access}
    return Contender(
        line.client,
        steps,
        point=place,
        read=lambda _opened: read(steps),
        group=f"{line.environment}, {line.client}",
    )
