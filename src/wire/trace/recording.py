"""Trace a part of a program that runs already: a block of a script, a cell of a notebook, a test.

A gateway is started beside this process with the first block and stays until the process ends, for
clients that were made meanwhile go through it. Clients that were made before do not: their
connections are named in what the block returns.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import secrets
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from wire.errors import UserError, convert_system_error
from wire.trace import launch, lines
from wire.trace.gateway import Settings
from wire.trace.report import Report
from wire.trace.request_log import LOG_NAME, read_log
from wire.trace.rows import TOKEN, CallSite, Run, TracedRequest, Tunnel
from wire.trace.sockets import find_descendants
from wire.trace.trust import mark_of

SETTLE_S = 0.25
"""How long the last rows of a block may take to arrive: a gateway sends them each tenth of a second."""


@dataclass(slots=True, repr=False)
class Recording:
    """Hold what a block asked for; it is filled when the block ends."""

    run: Run | None = None
    words: list[str] = field(default_factory=lambda: ["python"])

    @property
    def _ended_run(self) -> Run:
        if self.run is None:
            raise UserError("wire.trace", "the block has not ended", "its requests after the block")
        return self.run

    @property
    def requests(self) -> Sequence[TracedRequest]:
        """The block's requests, a row each, in the order in which they ended."""
        return self._ended_run.rows

    @property
    def sites(self) -> Sequence[CallSite | None]:
        """The line of the program that each request is for."""
        return self._ended_run.sites

    @property
    def n_requests(self) -> int:
        """Number of requests."""
        return len(self.requests)

    @property
    def nbytes(self) -> int:
        """Bytes of all answers' bodies."""
        return sum(row.nbytes for row in self.requests)

    @property
    def n_waits(self) -> int:
        """Requests in the longest chain, each begun after the one before had ended."""
        return self.report.n_waits

    @property
    def not_seen(self) -> list[str]:
        """Hosts with which the block exchanged what no row has."""
        return self._ended_run.unseen

    @property
    def report(self) -> Report:
        """The report, as of `wire trace`."""
        from wire.trace import findings, stored

        clean, _ = stored.redact_run(self._ended_run, self.words)
        return findings.report(clean)

    def __repr__(self) -> str:
        if self.run is None:
            return "<Recording of a block that has not ended>"
        return f"<Recording of {self.n_requests} requests, {self.nbytes} bytes>"

    def __str__(self) -> str:
        from wire.trace import render

        return "\n".join(render.render(self.report, self.words))

    def _repr_html_(self) -> str:
        from wire.trace import cells, findings, stored

        clean, words = stored.redact_run(self._ended_run, self.words)
        return cells.write_cell(clean, findings.report(clean), words)


class OuterSession:
    """Read the requests of a process that `wire trace` has started, and the kernels below it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owner_pid = os.getpid()
        self.port = int(os.environ.get("HTTP_PROXY", "").rpartition(":")[2].strip("/") or 0)
        self.gateway_pids = set[int]()

    def take_rows(
        self, parents: Mapping[int, int] | None = None
    ) -> tuple[Sequence[TracedRequest], Sequence[Tunnel]]:
        """Return the requests of this process and its children that have ended so far, and what was unread.

        `parents` has the process that started each, also of those that have ended by now.
        """
        logged = read_log(self.folder / LOG_NAME)
        pids = find_family(os.getpid(), parents or {}).union(find_descendants(os.getpid()))
        return [row for row in logged.requests if row.pid in pids], logged.tunnels

    def enter(self) -> None:
        """Do nothing: all clients go through the gateway anyway."""

    def leave(self) -> None:
        """Do nothing."""


class Session:
    """Keep a gateway beside this process, and lead what is opened from now on through it."""

    def __init__(self) -> None:
        self.owner_pid = os.getpid()
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="wire-trace-"))
            (self.folder / "samples").mkdir(mode=0o700)
        except OSError as error:
            raise convert_system_error(error) from error
        self._settings = Settings(self.folder, secrets.token_hex(8), os.getpid(), None)
        self._guard = launch._Guard(self._settings, dict(os.environ))
        self.port = self._guard.port
        self._before = dict[str, str | None]()
        self._has_shim = False
        self._n_entered = 0

    @property
    def gateway_pids(self) -> set[int]:
        """Processes below this one that are ours."""
        return {self._guard.pid}

    def take_rows(
        self, parents: Mapping[int, int] | None = None
    ) -> tuple[Sequence[TracedRequest], Sequence[Tunnel]]:
        """Return the requests that have ended so far, and what was passed on unread.

        All are of this process and its children, so that no `parents` are needed.
        """
        del parents
        return self._guard.rows, self._guard.tunnels

    def enter(self) -> None:
        """Have clients that are made from now on go through the gateway."""
        self._n_entered += 1
        if self._n_entered > 1:
            return
        variables = launch.make_environment(os.environ, port=self.port, settings=self._settings)
        changed = {
            name: value for name, value in variables.items() if os.environ.get(name) != value
        }
        self._before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_RTTIME, (mark_of(self._settings.token), hard))
        self._load_shim()
        _refresh_fsspec()

    def leave(self) -> None:
        """Give the environment back; what was opened meanwhile still goes through the gateway."""
        self._n_entered -= 1
        if self._n_entered:
            return
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _refresh_fsspec()

    def _load_shim(self) -> None:
        if self._has_shim:
            return
        self._has_shim = True
        path = launch.SHIMS / "shim.py"
        spec = importlib.util.spec_from_file_location("_wire_shim", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["_wire_shim"] = module
        with suppress(Exception):  # then lines are not known, and of Python's TLS nothing is read
            spec.loader.exec_module(module)


def find_family(pid: int, parents: Mapping[int, int]) -> set[int]:
    """Find a process and all that it and its children have started, by the process that started each.

    Examples
    --------
    >>> sorted(find_family(7, {8: 7, 9: 8, 5: 1}))
    [7, 8, 9]
    """
    children = defaultdict[int, list[int]](list)
    for child, parent in parents.items():
        children[parent].append(child)
    family, pending = set[int](), [pid]
    while pending:
        member = pending.pop()
        if member not in family:
            family.add(member)
            pending += children[member]
    return family


def _find_parents(samples: Mapping[int, lines.ProcessSamples]) -> dict[int, int]:
    """Find the process that started each, as the program's own processes wrote it down."""
    parents = {process.pid: process.parent_pid for process in samples.values()}
    for process in samples.values():
        parents.update(dict.fromkeys(process.children, process.pid))
    return parents


def _refresh_fsspec() -> None:
    """Have fsspec read its variables again, and make file systems anew that are asked for again."""
    fsspec = sys.modules.get("fsspec")
    if fsspec is None:
        return
    from fsspec.asyn import AsyncFileSystem
    from fsspec.config import conf, set_conf_env

    for session in launch._SESSIONS:
        conf.get(session.partition("_")[0].lower(), {}).pop(
            session.partition("_")[2].lower() + "_kwargs", None
        )
    set_conf_env(conf)
    pending = [AsyncFileSystem]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        with suppress(AttributeError):
            kind.clear_instance_cache()


_session: Session | OuterSession | None = None
_lock = threading.Lock()


def open_session() -> Session | OuterSession:
    """Return this process's session, which is begun with the first call."""
    global _session
    if sys.platform != "linux":
        raise UserError("wire trace", f"on {sys.platform}", "Linux, which tells who connects")
    with _lock:
        if _session is None or _session.owner_pid != os.getpid():
            outer = Path(os.environ.get(f"{TOKEN}_FOLDER", "/nowhere"))
            is_traced = (outer / LOG_NAME).is_file() and "_wire_shim" in sys.modules
            _session = OuterSession(outer) if is_traced else Session()
        return _session


@contextmanager
def record() -> Iterator[Recording]:
    """Trace a block of a program: what it asks a store for, and what it waits for.

    Clients that are made inside the block are traced, and so are those of an earlier block.
    Connections that were opened before the first block are named in `Recording.not_seen`.

    Yields
    ------
    Recording
        What the block asked for, once it has ended.
    """
    session = open_session()
    recording = Recording()
    session.enter()
    watch = launch._Watch(os.getpid(), session.port, ignored_pids=session.gateway_pids)
    begin_s, started_s, used_s = time.time(), time.perf_counter(), time.process_time()
    try:
        yield recording
    finally:
        wall_s, used_s = time.perf_counter() - started_s, time.process_time() - used_s
        processor_s = watch.stop()
        end_s = begin_s + wall_s
        session.leave()
        time.sleep(SETTLE_S)
        samples = lines.read_samples(session.folder / "samples")
        for process in samples.values():
            process.connections = [
                connection for connection in process.connections if connection[0] >= begin_s
            ]
        parents = {**watch.parents, **_find_parents(samples)}
        rows, tunnels = session.take_rows(parents)
        # all of them, for each note is that of one request
        sites = lines.locate(rows := [*rows], samples, watch.parents)
        places = [n for n, row in enumerate(rows) if begin_s <= row.start_s <= end_s]
        first_s = processor_s[0][1] if processor_s else 0.0
        recording.run = Run(
            rows=[rows[n] for n in places],
            wall_s=wall_s,
            begin_s=begin_s,
            exit_code=0,
            processor_s=[
                (begin_s, 0.0),
                *((moment_s, used - first_s) for moment_s, used in processor_s if used),
                (end_s, used_s),
            ],
            bypassed=watch.find_bypassed(samples.values()),
            unread=[
                tunnel
                for tunnel in tunnels
                if tunnel.begin_s <= end_s and (tunnel.end_s or end_s) >= begin_s
            ],
            sites=[sites[n] for n in places],
        )


__all__ = ["TOKEN", "Recording", "open_session", "record"]
