"""The operations of the ledger as contenders: a client in an environment, a layout, an operation."""

from __future__ import annotations

import itertools
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import obstore

import helpers.session
from helpers.arrays.reads import max_in_flight
from helpers.benchmark.contender import CheckError, Contender, Steps
from helpers.paths import ROOT
from studies.request_ledger import clients, gcs
from studies.request_ledger.clients import CLIENTS, GAPS
from studies.request_ledger.environments import HERE, Environment, read_environments
from studies.request_ledger.written import GROUPS, Stored, small_variables, write_layouts
from wire.bed.locations import Location
from wire.bed.networks import get_profile
from wire.bed.requests import RequestRow
from wire.bed.testbed import Testbed
from wire.errors import redact
from wire.ledger.measure import ClientProcess
from wire.models.transfer import count_waits, find_dependencies

LAYOUTS = {name: client.layouts for name, client in CLIENTS.items()}
"""What each client reads."""
OWN_LAYOUTS = {layout for client in CLIENTS.values() if client.write for layout in client.layouts}
"""Layouts that the library in each environment writes itself."""
SELECTING = ("one chunk", "series", "map", "box", "whole")
METADATA = tuple(f"metadata of {n}" for n in GROUPS)
OPERATIONS = ("open", *METADATA, *SELECTING, "append", *GAPS)
CONTROL = "control"
_STEPS_KEPT = 200  # requests whose dependencies go into the record


class Session(ClientProcess):
    """The process of a client of whole chunks in an environment, one at a time; it ends with the context."""

    def __init__(self, environments: Mapping[str, Environment]) -> None:
        super().__init__(environments, clients.__file__)
        self.written: set[str] = set()  # layouts that libraries wrote themselves


def count(requests: Sequence[RequestRow]) -> dict[str, int]:
    """Count the requests of one operation, by kind, with what they brought and how they waited.

    Other kinds are POST, DELETE and LIST; `n_failed` were answered with a status of 400 or more,
    `n_in_flight` is the most at one moment, `n_waits` the longest chain of requests each of which
    began after the one before had ended, and `n_joined` are ranges that begin inside the one before: bytes asked
    for twice.
    """
    # a GET of a bucket, whose key is its name alone, lists
    kinds = Counter(
        "LIST" if request.method == "GET" and "/" not in request.key.strip("/") else request.method
        for request in requests
    )
    ranges = [
        (request.key, request.range_start, request.range_nbytes)
        for request in requests
        if request.range_start is not None and request.range_nbytes
    ]
    named = {f"n_{kind.lower()}": kinds.pop(kind, 0) for kind in ("GET", "HEAD", "PUT")}
    return named | {
        "n_other": sum(kinds.values()),
        "n_failed": sum(request.status >= 400 for request in requests),
        "wire_nbytes": sum(request.nbytes for request in requests),
        "n_connections": len({request.connection for request in requests}),
        "n_in_flight": max_in_flight(requests),
        "n_waits": count_waits(requests),
        "n_joined": sum(a[0] == b[0] and b[1] < a[1] + a[2] for a, b in pairwise(sorted(ranges))),
    }


@dataclass(slots=True)
class Operation(Steps):
    """One operation of one client on one layout."""

    session: Session
    testbed: Testbed
    stored: Stored
    environment: str
    client: str
    layout: str
    name: str
    network: str = ""  # to emulate for it, unless it is that of the testbed
    answer: dict[str, Any] = field(default_factory=dict, init=False)  # of the client
    absent: str = field(default="", init=False)  # why there is nothing to count

    @property
    def n_variables(self) -> int:
        """Number of variables whose metadata it reads; 0 for an operation on the array."""
        return int(self.name.rpartition(" ")[2]) if self.name in METADATA else 0

    @property
    def path(self) -> str:
        """Where the operation works in the bucket."""
        folder = self.layout
        if self.n_variables:
            folder = f"group-{self.n_variables}-{folder.removesuffix('-unconsolidated')}"
        elif self.name == "append":
            folder = f"append-{folder}"
        own = f"/{self.environment.replace(' ', '-')}" if self.layout in OWN_LAYOUTS else ""
        return f"{self.stored.prefix}/{folder}{own}"

    def settings(self) -> Mapping[str, Any]:
        """Say that nothing is cached: each operation has a process of its own."""
        return {"cache_state": "new process"}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes that the operation needs, decoded and encoded."""
        if self.name in GAPS:
            return (n := len(clients.scatter()[0]) * clients.RANGE_NBYTES), n
        if self.name not in SELECTING:
            return 1, 1
        n_elements = self.stored.values[self.stored.selection(self.name)].size
        stored = self.stored.nbytes.get(self.layout, self.stored.nbytes["zarr-v2"])
        share = self.stored.n_chunks(self.name) / self.stored.n_chunks("whole")
        return n_elements * self.stored.values.itemsize, max(1, round(stored * share))

    def prepare(self) -> None:
        """Start the client's process, write what it is to write into, and forget the trace."""
        self.session.start(self.environment, self.client)
        failure = self.session.failure
        if not failure and self.layout in OWN_LAYOUTS:
            failure = self.write_own()
        elif not failure and self.name == "append":
            (self.testbed.near / self.path).clear()
            store, source = self.testbed.near.obstore(), f"{self.stored.prefix}/{self.layout}"
            for entry in obstore.list(store, prefix=source).collect():
                obstore.copy(store, entry["path"], entry["path"].replace(source, self.path, 1))
        if self.network:
            self.testbed.emulate(get_profile(self.network))
        self.answer = {"failed": failure} if failure else {}
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def write_own(self) -> str:
        """Let the library write its layout, with no network between; return what went wrong."""
        if self.path in self.session.written and self.name != "append":
            return ""
        values = self.stored.values
        arrays = {clients.ARRAY: values}
        if self.n_variables:
            arrays = small_variables(values, self.n_variables)
        (self.testbed.near / self.path).clear()
        with tempfile.NamedTemporaryFile(suffix=".npz") as file:
            np.savez(file.name, **arrays)  # type: ignore[arg-type]
            answer = self.session.run(self.job(self.testbed.near, "write", arrays=file.name))
        self.session.written.add(self.path)
        return str(answer.get("failed", ""))

    def job(self, location: Location, operation: str, **more: str) -> dict[str, Any]:
        """Describe an operation for the process of the client, which reaches the store there."""
        endpoint_url = str(location.endpoint_url)
        place = {
            "endpoint_url": endpoint_url,
            "host": endpoint_url.partition("//")[2],
            "bucket": location.bucket,
            "path": self.path,
            "url": f"s3://{location.bucket}/{self.path}",
            "http_url": f"{endpoint_url}/{location.bucket}/{self.path}",
            "region": location.region,
            "key": str(location.access_key),
            "secret": str(location.secret_key),
            "shape": self.stored.shape,
            "chunks": self.stored.chunk_shape,
        }
        return {"layout": self.layout, "access": operation, "place": place | more}

    def open(self) -> Operation:
        """Open, or read all metadata."""
        self.answer = self.answer or self.session.run(self.job(self.testbed.far, self.name))
        return self

    def go(self) -> dict[str, Any]:
        """Let the client do the rest of the operation, and return what it says of it."""
        self.testbed.set_tag("read")
        if "opened" in self.answer:
            self.answer = self.session.send("end" if self.name == "open" else "go")
        return self.answer

    def collect(self) -> Mapping[str, Any]:
        """Count the requests, those of opening apart, with the versions of who made them."""
        requests = self.testbed.take_trace()
        parts = {
            tag: [request for request in requests if request.tag == tag] for tag in ("open", "read")
        }
        counted = parts["open"] if self.name == "open" or self.n_variables else parts["read"]
        steps = find_dependencies(counted) if len(counted) <= _STEPS_KEPT else []
        span_s = max((r.end_s for r in counted), default=0) - min(
            (r.start_s for r in counted), default=0
        )
        self.absent = ""
        if "failed" in self.answer:
            reason = redact(self.answer["failed"], self.testbed.far.secrets)
            self.absent = reason.replace(str(ROOT), ".")
        named = (f"{name} {version}" for name, version in self.session.versions.items())
        return {
            **count(counted),
            "n_requests": len(counted),
            "span_s": round(span_s, 4),
            "steps": [v for step in steps for v in (-1 - step.n_ended, step.think_s, step.nbytes)],
            "absent": self.absent,
            "versions": "" if self.absent else ", ".join(named),
        }

    def check(self, answer: dict[str, Any]) -> str:
        """Compare what was read with what was written; an operation that a client lacks is no error."""
        if self.absent:
            return "absent"
        subject = f"{self.client} in {self.environment}"
        is_read = self.name in SELECTING or self.name in GAPS
        if is_read and answer.get("value") != zlib.crc32(self.expected()):
            raise CheckError(f"{subject}: {self.name} of {self.layout} is wrong")
        if self.n_variables and answer.get("value") != self.n_variables:
            raise CheckError(f"{subject}: {answer.get('value')} variables")
        return "crc32 equal" if is_read else "opened or counted"

    def expected(self) -> bytes:
        """Return what it has to read."""
        if self.name in SELECTING:
            return self.stored.values[self.stored.selection(self.name)].tobytes()
        starts, ends = clients.scatter()
        store = self.testbed.near.obstore()
        return b"".join(map(bytes, obstore.get_ranges(store, self.path, starts=starts, ends=ends)))


def list_operations(
    environments: Sequence[Environment], clients: Sequence[str], operations: Sequence[str]
) -> list[tuple[str, str, str, str]]:
    """List environment, client, layout and operation of all that a ledger asks for.

    Examples
    --------
    >>> from studies.request_ledger.environments import HERE, Environment
    >>> list_operations([Environment(HERE, ())], ["gdal"], ["open", "append", "metadata of 1"])
    [('here', 'gdal', 'geotiff', 'open')]
    """
    return [
        (environment.name, client, layout, operation)
        for environment in environments
        for client in (clients if environment.name == HERE else environment.clients)
        if client in clients
        for layout in LAYOUTS[client]
        for operation in operations
        if _has(environment, client, layout, operation)
    ]


def _has(environment: Environment, client: str, layout: str, operation: str) -> bool:
    """Tell whether a client is asked for an operation on a layout."""
    if environment.layouts and layout not in environment.layouts:
        return False
    if operation in GAPS or client.startswith("ranges-"):
        return operation in GAPS and client.startswith("ranges-")
    if operation in METADATA:  # few variables only in the stacks of a day
        is_asked = operation == METADATA[-1] or environment.is_stack
        has_groups = CLIENTS[client].count is not None
        return is_asked and has_groups and layout in (LAYOUTS[client][0], "zarr-v3")
    if layout == "netcdf-large" and operation != "open":
        return False  # each would open the large file once more
    is_append = operation == "append"
    return not is_append or (CLIENTS[client].append is not None and "sharded" not in layout)


def write_store(session: helpers.session.Session) -> Stored:
    """Write what the clients of a case read."""
    shapes = (tuple(session.settings[name]) for name in ("array_shape", "chunk_shape"))
    return write_layouts(session.testbed.near, *shapes, seed=session.settings["seed"])


def plan_operations(
    session: helpers.session.Session,
    stored: Stored,
    *,
    read: Callable[[Operation], dict[str, Any]],
) -> list[Contender]:
    """Plan every operation of the clients and environments of a case, each a contender."""
    names, settings = session.settings["clients"], session.settings
    near, network = session.testbed.near, session.network
    services = session.open(
        gcs.open_service(names, near, stored.prefix, network, seed=settings["seed"])
    )
    by_name = {environment.name: environment for environment in read_environments()}
    wanted = settings["environments"]
    chosen = [*by_name] if wanted == ["all"] else wanted
    listed = list_operations([by_name[name] for name in chosen], names, settings["operations"])
    processes = session.open(Session(by_name))
    return contend_all(listed, processes, session.testbed, stored, read=read, services=services)


def contend_all(
    listed: Sequence[tuple[str, str, str, str]],
    session: Session,
    testbed: Testbed,
    stored: Stored,
    *,
    read: Callable[[Operation], dict[str, Any]],
    networks: Sequence[str] = (),
    services: Mapping[str, Testbed] = MappingProxyType({}),
) -> list[Contender]:
    """Make a contender of each operation, over each of several networks; the first gap has a copy.

    `services` are where clients read that do not ask by the API of S3.
    """
    contenders = []
    for network, place in itertools.product(networks or [""], listed):
        environment, client, layout, name = place
        point = {"environment": environment, "layout": layout, "operation": name}
        contend = partial(
            Contender,
            steps=Operation(session, services.get(client, testbed), stored, *place, network),
            read=read,
            point=point | ({"network": network} if network else {}),
            group=f"{environment}, {client}",
        )
        contenders.append(contend(client))
        if network and name == next(iter(GAPS)) and client == "ranges-obstore":
            contenders.append(contend(CONTROL, control_of=client))
    return contenders
