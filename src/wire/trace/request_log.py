"""The requests of a traced program on a disk as they end: `requests.jsonl`, a JSON object a line.

A line is one of two kinds, told by its `kind`:

- ``{"kind": "request", "start_s": ..., "method": "GET", "host": ..., ...}``: the fields of a
  `TracedRequest`, in the order in which requests ended. Of its key, credentials are blacked out.
- ``{"kind": "tunnel", "host": ..., "reason": ..., ...}``: the fields of a `Tunnel`, once it has ended.

The gateway appends each line with one `write`, so that whoever is killed loses what was under way at
most, and of a last line that a full disk cut short nothing is read. `read_log` gives it all back. The file
is for its owner alone, and stays: whoever has written a trace from it removes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from wire.errors import describe_refusal, redact_paths
from wire.trace.rows import TracedRequest, Tunnel

LOG_NAME = "requests.jsonl"
"""Name of the file in the folder of a trace."""

_REQUEST_FIELDS = frozenset(field.name for field in fields(TracedRequest))
_TUNNEL_FIELDS = frozenset(field.name for field in fields(Tunnel))


class LoggedTrace(NamedTuple):
    """Hold what a log says."""

    requests: list[TracedRequest]
    tunnels: list[Tunnel]


class RequestLog:
    """Append requests and tunnels to a file; the caller holds a lock where several do."""

    def __init__(self, path: Path, secrets: Iterable[str] = ()) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._secrets, self._is_torn = (*secrets,), False
        self.problem = ""
        """Why the last line that could not be written was not; empty if all were."""
        self._file: int | None = None
        try:
            self._file = os.open(path, flags, 0o600)
        except OSError as error:  # a folder that is gone costs the log alone
            self.problem = describe_refusal(error)
        self._redact = lru_cache(maxsize=10_000)(self._redact_key)

    def _redact_key(self, key: str) -> str:
        return redact_paths([key], self._secrets)[0]

    def write_request(self, row: TracedRequest) -> None:
        """Append a request that has ended."""
        self._write("request", asdict(replace(row, key=self._redact(row.key))))

    def write_tunnel(self, tunnel: Tunnel) -> None:
        """Append a tunnel that has ended."""
        self._write("tunnel", asdict(tunnel))

    def _write(self, kind: str, values: dict[str, object]) -> None:
        if self._file is None:
            return
        line = json.dumps({"kind": kind, **values}, separators=(",", ":")).encode() + b"\n"
        line = b"\n" * self._is_torn + line  # what was cut short is a line of its own
        try:
            self._is_torn = os.write(self._file, line) < len(line)
        except OSError as error:  # a full disk is no reason for the program to fail
            self.problem = describe_refusal(error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)


def read_log(path: Path) -> LoggedTrace:
    """Read back what a gateway has written, or has begun to; nothing if there is no file.

    A line that is no whole object is left out: the last one of a process that was killed.
    """
    return parse_log(_read_lines(path))


def parse_log(lines: Iterable[bytes | str]) -> LoggedTrace:
    """Parse the lines of a log; one that is no whole object, or no request or tunnel, is left out."""
    logged = LoggedTrace([], [])
    for line in lines:
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            values = json.loads(line)
            kind = values.pop("kind")
            if kind == "request" and values.keys() <= _REQUEST_FIELDS:
                logged.requests.append(TracedRequest(**values))
            elif kind == "tunnel" and values.keys() <= _TUNNEL_FIELDS:
                logged.tunnels.append(Tunnel(**values))
    return logged


def _read_lines(path: Path) -> Iterator[bytes]:
    with suppress(OSError), path.open("rb") as file:
        yield from file
