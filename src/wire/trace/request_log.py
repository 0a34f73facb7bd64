"""The requests of a traced program on a disk as they end: `requests.jsonl`, a JSON object a line.

A line is of one of these kinds, by its `kind`:

- ``{"kind": "begin", "command": "python my.py", "begin_s": ...}``: the first line of `wire trace`.
- ``{"kind": "request", "start_s": ..., "method": "GET", "host": ..., ...}``: the fields of a
  `TracedRequest`, in the order in which requests ended. Of its key, credentials are blacked out.
- ``{"kind": "tunnel", "host": ..., "reason": ..., ...}``: the fields of a `Tunnel`, when it begins, when
  its first bytes have come and once it has ended; the last line of a tunnel counts.
- ``{"kind": "gap", "count": 3}``: so many lines could not be written, such as on a full disk.
- ``{"kind": "end", "exit_code": 0, "wall_s": ..., "missing": [...]}``: the program has ended.

Gateway and `wire trace` append each line with one `write`, so that whoever is killed loses what was
under way at most, and of a last line that a full disk cut short nothing is read. Both hold a lock of the
file while they may still write. `read_log` reads it all back. The file is for its owner alone, and
stays: whoever has written a trace from it removes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

from wire.errors import describe_refusal, redact_paths
from wire.trace.rows import TracedRequest, Tunnel

LOG_NAME = "requests.jsonl"
"""Name of the file in the folder of a trace."""

_REQUEST_NAMES = [field.name for field in fields(TracedRequest)]
_REQUEST_FIELDS = frozenset(_REQUEST_NAMES)
_read_request = attrgetter(*_REQUEST_NAMES)  # `asdict` copies each value, which takes longer
_TUNNEL_FIELDS = frozenset(field.name for field in fields(Tunnel))


@dataclass(frozen=True, slots=True)
class LoggedEnd:
    """Hold what a log says of the end of the program."""

    exit_code: int
    wall_s: float
    missing: list[str]  # what no row has, as `Run.unseen`


@dataclass(slots=True)
class LoggedTrace:
    """Hold what a log says; a log that has no first line has neither command nor beginning."""

    requests: list[TracedRequest] = field(default_factory=list)
    tunnels: list[Tunnel] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    begin_s: float | None = None  # seconds since 1970
    n_lost: int = 0  # lines that could not be written
    end: LoggedEnd | None = None  # None where the trace was ended before the program


def identify_request(row: TracedRequest) -> tuple[object, ...]:
    """Return what no two requests of a run share, and what a log does not black out."""
    return row.connection, row.pid, row.start_s, row.end_s


def identify_tunnel(tunnel: Tunnel) -> tuple[object, ...]:
    """Return what no two tunnels of a run share."""
    return tunnel.host, tunnel.reason, tunnel.begin_s


class RequestLog:
    """Append what happens to a file, and lock it meanwhile; of several threads one at a time may call."""

    def __init__(self, path: Path, secrets: Iterable[str] = ()) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._secrets, self._is_torn, self._n_lost = (*secrets,), False, 0
        self._states = dict[tuple[object, ...], tuple[bool, bool]]()  # of tunnels, as written
        self.problem = ""
        """Why the last line that could not be written was not; empty if all were."""
        self._file: int | None = None
        try:
            self._file = os.open(path, flags, 0o600)
        except OSError as error:  # a folder that is gone costs the log alone
            self.problem = describe_refusal(error)
        with suppress(OSError):  # where a file system has no locks, nobody can see who writes
            if self._file is not None:
                fcntl.flock(self._file, fcntl.LOCK_SH)
        self._redact = lru_cache(maxsize=10_000)(self._redact_key)

    def _redact_key(self, key: str) -> str:
        return redact_paths([key], self._secrets)[0]

    def write_begin(self, words: Sequence[str], begin_s: float) -> None:
        """Append which command begins when, without its credentials."""
        self._write("begin", {"command": shlex.join(words), "begin_s": begin_s})

    def write_end(self, exit_code: int, wall_s: float, missing: Sequence[str]) -> None:
        """Append that the program has ended, and what no row has of it."""
        self._write("end", {"exit_code": exit_code, "wall_s": wall_s, "missing": [*missing]})

    def write_request(self, row: TracedRequest) -> None:
        """Append a request that has ended."""
        values = dict(zip(_REQUEST_NAMES, _read_request(row), strict=True))
        self._write("request", {**values, "key": self._redact(row.key)})

    def write_tunnel(self, tunnel: Tunnel) -> None:
        """Append a tunnel if it is new, has its first bytes or has ended since the last call."""
        identity = identify_tunnel(tunnel)
        state = bool(tunnel.nbytes_down), bool(tunnel.end_s)
        if self._states.get(identity) == state:
            return
        self._states[identity] = state
        self._write("tunnel", asdict(tunnel))
        if tunnel.end_s:
            del self._states[identity]

    def _write(self, kind: str, values: dict[str, object]) -> None:
        if self._file is None:
            return
        line = _format_line(kind, values)
        gap = _format_line("gap", {"count": self._n_lost}) if self._n_lost else b""
        gap = b"\n" * self._is_torn + gap  # what was cut short is a line of its own
        line = gap + line
        try:
            n_written = os.write(self._file, line)
        except OSError as error:  # a full disk is no reason for the program to fail
            self.problem = describe_refusal(error)
            n_written = 0
        is_whole = n_written == len(line)
        self._is_torn = not is_whole and bool(n_written or self._is_torn)
        self._n_lost = 0 if is_whole else 1 + self._n_lost * (n_written < len(gap))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _format_line(kind: str, values: dict[str, object]) -> bytes:
    return json.dumps({"kind": kind, **values}, separators=(",", ":")).encode() + b"\n"


def is_being_written(path: Path) -> bool | None:
    """Return whether somebody holds the lock of a log; None where the system does not say."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(file)  # which unlocks it
    return False


def read_log(path: Path) -> LoggedTrace:
    """Read back what a gateway has written, or has begun to; nothing if there is no file.

    A line that is no whole object is left out: the last one of a process that was killed.
    """
    return parse_log(_read_lines(path))


def parse_log(lines: Iterable[bytes | str]) -> LoggedTrace:
    """Parse the lines of a log; one that is no whole object, or of no known kind, is left out."""
    logged, tunnels = LoggedTrace(), dict[tuple[object, ...], Tunnel]()
    for line in lines:
        with suppress(ValueError, TypeError, KeyError, AttributeError, OverflowError):
            values = json.loads(line)
            kind = values.pop("kind")
            if kind == "request" and values.keys() <= _REQUEST_FIELDS:
                logged.requests.append(TracedRequest(**values))
            elif kind == "tunnel" and values.keys() <= _TUNNEL_FIELDS:
                tunnel = Tunnel(**values)
                tunnels[identify_tunnel(tunnel)] = tunnel
            elif kind == "begin":
                command, begin_s = shlex.split(values["command"]), float(values["begin_s"])
                logged.command, logged.begin_s = command, begin_s
            elif kind == "gap":
                logged.n_lost += int(values["count"])
            elif kind == "end":
                code, phrases = values["exit_code"], [*map(str, values["missing"])]
                logged.end = LoggedEnd(int(code), float(values["wall_s"]), phrases)
    logged.tunnels += tunnels.values()
    return logged


def _read_lines(path: Path) -> Iterator[bytes]:
    with suppress(OSError), path.open("rb") as file:
        yield from file
