"""The file of requests: all that was written is read back, whoever was killed."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.wire.trace.stores import SECRET
from wire.trace.request_log import (
    LoggedEnd,
    LoggedTrace,
    RequestLog,
    is_being_written,
    read_log,
)
from wire.trace.rows import TracedRequest, Tunnel

ROWS = [
    TracedRequest(
        1764440000.123456, 1764440000.2, 1764440000.3, method="GET", key="/b/é", status=206, nbytes=9,
        range_start=3, range_nbytes=9, host="h", is_first=True, location_host="other.example",
    ),
    TracedRequest(1764440001.5, method="PUT", key="/b/a\nb", sent_nbytes=70_000, is_cut=True),
]  # fmt: skip
TUNNEL = Tunnel("h:443", "it is not TLS", 1764440000.0, 1764440002.0, nbytes_down=5)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    """Each field, from several gateways one after the other; the file is for its owner alone."""
    path = tmp_path / "requests.jsonl"
    assert read_log(path) == LoggedTrace()
    for row in ROWS:
        log = RequestLog(path)
        log.write_request(row)
        log.write_tunnel(TUNNEL)
        log.close()
    assert read_log(path) == LoggedTrace(ROWS, [TUNNEL])
    assert path.stat().st_mode & 0o777 == 0o600
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert kinds == ["request", "tunnel", "request", "tunnel"]


def test_a_log_says_what_it_is_of_and_how_it_ended(tmp_path: Path) -> None:
    """The command and its beginning; how it ended and what is missing, unless it has no end."""
    path = tmp_path / "requests.jsonl"
    log = RequestLog(path)
    log.write_begin(["python", "my program.py"], 12.5)
    assert (read_log(path).command, read_log(path).begin_s) == (["python", "my program.py"], 12.5)
    assert read_log(path).end is None
    log.write_end(3, 2.5, ["h:443"])
    assert read_log(path).end == LoggedEnd(3, 2.5, ["h:443"])


def test_a_tunnel_that_lasts_is_in_the_log(tmp_path: Path) -> None:
    """When it begins and when something has come through it, not only once it has ended."""
    path = tmp_path / "requests.jsonl"
    log, tunnel = RequestLog(path), replace(TUNNEL, end_s=0.0, nbytes_down=0)
    for nbytes in (0, 0, 7, 8, 9):
        tunnel.nbytes_down = nbytes
        log.write_tunnel(tunnel)
    assert read_log(path).tunnels == [replace(tunnel, nbytes_down=7)]
    assert len(path.read_text().splitlines()) == 2
    tunnel.end_s = 5.0
    log.write_tunnel(tunnel)
    assert read_log(path).tunnels == [tunnel]


@pytest.mark.parametrize("n_written", [0, 40])
def test_lines_that_could_not_be_written_are_counted(
    n_written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full for a while, whether it takes nothing or the beginning of a line."""
    path, write = tmp_path / "requests.jsonl", os.write
    log = RequestLog(path)
    log.write_request(ROWS[0])

    def fill(file: int, data: bytes) -> int:
        if not n_written:
            raise OSError(errno.ENOSPC, "no space")
        return write(file, data[:n_written])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fill)
        log.write_request(ROWS[1])
        log.write_request(ROWS[1])
    log.write_request(replace(ROWS[1], key="/last"))
    logged = read_log(path)
    assert [row.key for row in logged.requests] == [ROWS[0].key, "/last"]
    assert logged.n_lost == 2


def test_a_log_is_locked_for_as_long_as_somebody_writes(tmp_path: Path) -> None:
    """By one of several, and no longer than until the last one is gone."""
    path = tmp_path / "requests.jsonl"
    assert is_being_written(path) is None
    logs = [RequestLog(path) for _ in range(2)]
    for log in logs:
        assert is_being_written(path)
        log.close()
    assert is_being_written(path) is False


def test_a_line_that_is_cut_short_hides_no_other(tmp_path: Path) -> None:
    """Wherever a process was killed, or a disk was full, whole lines before it are read."""
    path = tmp_path / "requests.jsonl"
    log = RequestLog(path)
    for row in ROWS:
        log.write_request(row)
    content = path.read_bytes()
    end = content.index(b"\n") + 1
    for n in range(end, len(content) - 1, 17):
        path.write_bytes(content[:n] + b'\n[]\n{"kind": "request", "unknown": 1}\n')
        assert read_log(path).requests == ROWS[:1]


def test_a_full_disk_is_reported_and_fails_nothing() -> None:
    """The log says why it lacks rows."""
    log = RequestLog(Path("/dev/full"))
    assert not log.problem
    log.write_request(ROWS[0])
    assert "no space is left" in log.problem


def test_no_credential_of_a_path_is_written(tmp_path: Path) -> None:
    """Neither what looks like one, nor what the command line has as one."""
    path = tmp_path / "requests.jsonl"
    log = RequestLog(path, [SECRET])
    for key in (f"/b/{SECRET}/c", "/b/token=abcdef0123456789/c", "/b/c"):
        log.write_request(TracedRequest(1.0, key=key))
    text = path.read_text()
    assert SECRET not in text and "abcdef0123456789" not in text
    assert read_log(path).requests[-1].key == "/b/c"


def test_a_folder_that_is_gone_costs_the_log_alone(tmp_path: Path) -> None:
    """Whoever writes goes on, and says why there is no log; nothing is read of it."""
    log = RequestLog(tmp_path / "gone" / "log")
    log.write_request(TracedRequest(0.0))
    log.close()
    assert log.problem
    assert not read_log(tmp_path / "gone" / "log").requests
