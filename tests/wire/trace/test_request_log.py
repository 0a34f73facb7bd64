"""The file of requests: all that was written is read back, whoever was killed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.wire.trace.stores import SECRET
from wire.trace.request_log import RequestLog, read_log
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
    assert read_log(path) == ([], [])
    for row in ROWS:
        log = RequestLog(path)
        log.write_request(row)
        log.write_tunnel(TUNNEL)
        log.close()
    assert read_log(path) == (ROWS, [TUNNEL, TUNNEL])
    assert path.stat().st_mode & 0o777 == 0o600
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert kinds == ["request", "tunnel", "request", "tunnel"]


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
