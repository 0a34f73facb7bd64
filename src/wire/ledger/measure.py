"""Measure what a client in an environment requests for an access: a process for each, its requests from the proxy."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import obstore

from wire.bed import emulators
from wire.bed.testbed import Testbed
from wire.errors import UserError, redact
from wire.files import find_checkout
from wire.ledger import clients, process, services
from wire.ledger.clients import CLIENTS
from wire.ledger.counting import count_requests
from wire.ledger.environments import Environment, make_environment
from wire.ledger.layouts import ARRAY_SHAPE, WRITTEN, Stored
from wire.models.transfer import find_dependencies

_DEADLINE_S = 120.0  # for one access
_MOST_STEPS = 1500  # requests whose dependencies are kept
_ENVIRONMENT = {
    "AWS_ALLOW_HTTP": "true",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REGION": "us-east-1",
    "NO_PROXY": "127.0.0.1",
    "OMP_NUM_THREADS": "2",
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One access of one client in one environment."""

    environment: str
    client: str
    layout: str
    access: str


def list_lines(
    environments: Sequence[Environment], names: Collection[str], accesses: Collection[str] = ()
) -> list[LedgerLine]:
    """List all accesses of clients in environments; no accesses named are all of them.

    Examples
    --------
    >>> from wire.ledger.environments import HERE, Environment
    >>> [line.access for line in list_lines([Environment(HERE, ())], ["gdal-zarr"])]
    ['whole array', 'one inner chunk']
    """
    return [
        LedgerLine(environment.name, name, layout, access)
        for environment in environments
        for name in (environment.clients or names)
        if name in names
        for layout, access in CLIENTS[name].accesses
        if not accesses or access in accesses
    ]


class ClientProcess:
    """The process of a client in an environment, one of them running; it ends with the context.

    Parameters
    ----------
    environments : mapping of str to Environment
        Environments by name.
    listed : str
        Path of the module that lists the clients, as `wire.ledger.clients` does.
    """

    def __init__(
        self, environments: Mapping[str, Environment], listed: str = clients.__file__
    ) -> None:
        self.environments, self.listed = environments, listed
        self.key: tuple[str, str] | None = None
        self.versions: dict[str, str] = {}
        self.failure = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, environment: str, client: str) -> None:
        """Start the process of a client, unless it is the one that runs."""
        if self.key == (environment, client):
            return
        self.stop()
        self.key, self.versions = (environment, client), {}
        try:
            python = make_environment(self.environments[environment])
        except UserError as error:
            self.failure = str(error)
            return
        # nothing that would change what a client requests
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self._process = subprocess.Popen(
            [python, process.__file__, self.listed, client],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**inherited, **_ENVIRONMENT},
            start_new_session=True,
        )
        answer = self._receive()
        self.versions, self.failure = answer.get("versions", {}), answer.get("failed", "")

    def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run a job in the process and return its answer: its value, or that it has `opened`."""
        return self.send(json.dumps(job))

    def send(self, text: str) -> dict[str, Any]:
        """Send a line to the process, a job or a word to one that has `opened`, and return its answer."""
        if self._process is None:
            return {"failed": self.failure or "its process ended"}
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # there will be no answer
            self._process.stdin.write(f"{text}\n".encode())
        return self._receive()

    def _receive(self) -> dict[str, Any]:
        running = self._process
        assert running is not None and running.stdout is not None
        if not select.select([running.stdout], [], [], _DEADLINE_S)[0]:
            self.stop()
            return {"failed": f"no answer within {_DEADLINE_S:g} s"}
        line = running.stdout.readline()
        return dict(json.loads(line)) if line else {"failed": "its process ended"}

    def stop(self) -> None:
        """End the process, and what it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with self._process:
                pass
        self._process, self.key, self.failure = None, None, ""

    def __enter__(self) -> Self:
        """Return this; nothing is started yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self.stop()


@dataclass(slots=True)
class Ledger:
    """A store with the layouts, the services before it, and the process that reads them."""

    testbed: Testbed
    stored: Stored
    services: Mapping[str, Testbed]
    absent: Mapping[str, str]  # services that could not be opened, and why
    processes: ClientProcess
    last: dict[str, Any] = field(default_factory=dict)  # answer of the last access

    def place(self, line: LedgerLine) -> dict[str, Any]:
        """Describe where the client of a line reads, for its process."""
        location = self.services[CLIENTS[line.client].service].far
        endpoint_url = str(location.endpoint_url)
        environment = self.processes.environments[line.environment]
        return {
            "endpoint_url": endpoint_url,
            "host": endpoint_url.partition("//")[2],
            "connection_string": emulators.write_connection_string(endpoint_url),
            "bucket": location.bucket,
            "prefix": self.stored.prefix,
            "region": location.region,
            "key": str(location.access_key),
            "secret": str(location.secret_key),
            "array_shape": ARRAY_SHAPE,
            "node_modules": str(environment.folder / "venv" / "node_modules"),
        }

    def prepare(self, line: LedgerLine) -> str:
        """Start the client's process and forget the requests before; return why it cannot run."""
        service = CLIENTS[line.client].service
        if service in self.absent:
            return self.absent[service]
        self.processes.start(line.environment, line.client)
        if line.layout in WRITTEN:
            self._lay_out(line.layout)
        self.services[service].take_trace()
        return self.processes.failure

    def _lay_out(self, layout: str) -> None:
        """Clear what an access writes, and copy what it appends to."""
        folder = self.testbed.near / self.stored.prefix / layout
        folder.clear()
        if layout == "appended":
            store, source = self.testbed.near.obstore(), f"{self.stored.prefix}/appendable"
            for entry in obstore.list(store, prefix=source).collect():
                target = entry["path"].replace(source, f"{self.stored.prefix}/{layout}", 1)
                obstore.copy(store, entry["path"], target)

    def count_objects(self, layout: str) -> int:
        """Count the objects of a layout: metadata and chunks."""
        store = self.testbed.near.obstore()
        return len(obstore.list(store, prefix=f"{self.stored.prefix}/{layout}").collect())

    def run(self, line: LedgerLine) -> dict[str, Any]:
        """Run an access; its answer has `value`, or `failed` and why."""
        return self.processes.run(
            {"layout": line.layout, "access": line.access, "place": self.place(line)}
        )

    def count(self, line: LedgerLine) -> dict[str, Any]:
        """Count the requests since the access was prepared; `steps` are what each of them waited for."""
        if CLIENTS[line.client].service in self.absent:
            return count_requests([]) | {"steps": []}
        rows = self.services[CLIENTS[line.client].service].take_trace()
        steps = find_dependencies(rows) if len(rows) <= _MOST_STEPS else []
        numbers = [value for step in steps for value in (-1 - step.n_ended, step.nbytes)]
        return count_requests(rows) | {"steps": numbers}

    def describe_absence(self, reason: str) -> str:
        """Describe why there is nothing to count, without credentials and paths of this machine."""
        text = redact(reason, self.testbed.far.secrets)
        return text.replace(str(find_checkout() or Path.home()), ".")

    def check(self, line: LedgerLine, answer: Mapping[str, Any]) -> str:
        """Compare what an access read with what was written; return what is wrong."""
        expected = self.stored.expected[line.layout, line.access]
        value = answer.get("value")
        if (
            line.layout in WRITTEN
            and (n_objects := self.count_objects(line.layout)) < WRITTEN[line.layout]
        ):
            return f"left {n_objects} objects, not {WRITTEN[line.layout]}"
        return "" if value == expected else f"read {value}, not {expected}"

    def measure(self, line: LedgerLine) -> dict[str, Any]:
        """Run an access and count its requests.

        `absent` says why there is nothing to count, and `wrong` what it read that was not written.
        """
        failure = self.prepare(line)
        answer = {"failed": failure} if failure else self.run(line)
        counts = self.count(line)
        absent = self.describe_absence(str(answer.get("failed", "")))
        wrong = "" if absent else self.check(line, answer)
        versions = "" if absent else ", ".join(
            f"{name} {version}" for name, version in self.processes.versions.items()
        )  # fmt: skip
        return counts | {"absent": absent, "wrong": wrong, "versions": versions}


@contextlib.contextmanager
def open_ledger(
    testbed: Testbed,
    stored: Stored,
    environments: Sequence[Environment],
    names: Collection[str],
    *,
    profile: Any,
    seed: int = 0,
) -> Iterator[Ledger]:
    """Open all that clients need to be measured."""
    needed = {CLIENTS[name].service for name in names}
    with (
        services.open_services(needed, testbed, stored, profile, seed=seed) as (opened, absent),
        ClientProcess({environment.name: environment for environment in environments}) as processes,
    ):
        yield Ledger(testbed, stored, opened, absent, processes)
