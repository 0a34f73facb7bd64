"""Folders of traces: whose they are, and what is read of one that has not been finished."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from tests.refusals import refused
from tests.wire.trace.stores import SECRET
from tests.wire.trace.test_findings import chain, run_of
from wire.trace import cli, launch, stored
from wire.trace.request_log import RequestLog
from wire.trace.rows import Run, Tunnel


def _claim_at(moment_s: float, out: Path) -> Path:
    time.sleep(max(0.0, moment_s - time.time()))
    return stored.claim_folder(out)


@pytest.mark.slow  # each process imports the package
def test_of_several_processes_each_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """However close together they claim it."""
    out, moment_s = tmp_path / "trace", time.time() + 3.0
    with multiprocessing.get_context("forkserver").Pool(6) as pool:
        folders = pool.starmap(_claim_at, [(moment_s, out)] * 6)
    assert len({*folders}) == 6 and out in folders


def test_a_folder_that_is_finished_while_it_is_claimed_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that another trace writes between any two looks at the folder are seen."""
    out, open_file = tmp_path / "trace", os.open
    first = stored.claim_folder(out)

    def finish_first(path: Path, flags: int, mode: int) -> int:
        monkeypatch.undo()
        stored.write_trace(out, run_of(chain(2)), ["first"])
        (out / stored.REQUEST_LOG).unlink()
        return open_file(path, flags, mode)

    monkeypatch.setattr(os, "open", finish_first)
    second = stored.claim_folder(out)
    assert (first, second) == (out, tmp_path / "trace-2")
    assert stored.read_trace(out)[1] == ["first"]
    assert not (out / stored.REQUEST_LOG).exists()


def test_a_numbered_folder_of_somebody_else_is_passed_over(tmp_path: Path) -> None:
    """What holds anything but a trace is not ours to write to."""
    (tmp_path / "trace-2").mkdir()
    (tmp_path / "trace-2" / "notes.txt").write_text("mine")
    folders = [stored.claim_folder(tmp_path / "trace") for _ in range(2)]
    assert folders == [tmp_path / "trace", tmp_path / "trace-3"]
    assert os.listdir(tmp_path / "trace-2") == ["notes.txt"]


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_program_runs(
    tmp_path: Path,
) -> None:
    """In a line that names the option; a folder below a file, and one without the permission."""
    (tmp_path / "file").touch()
    (tmp_path / "closed").mkdir(mode=0o500)
    outs = [tmp_path / "file" / "trace"]
    if os.geteuid():  # the superuser may write anywhere
        outs.append(tmp_path / "closed" / "trace")
    for out in outs:
        mark = tmp_path / "has-run"
        result = CliRunner().invoke(cli.trace, ["--out", str(out), "touch", str(mark)])
        assert result.exit_code == 2
        assert result.stderr.startswith("error: --out") and result.stderr.count("\n") == 1
        assert not mark.exists()


@contextmanager
def serve() -> Iterator[str]:
    """Answer each request with a byte."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1")
            self.end_headers()
            self.wfile.write(b"1")

        def log_message(self, format: str, *values: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a"
        server.shutdown()


def show(folder: Path, *options: str) -> str:
    """Show a trace, and return what is printed."""
    result = CliRunner().invoke(cli.trace, ["show", str(folder), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def becomes(folder: Path, phrase: str) -> bool:
    """Wait until a trace is shown with a phrase."""
    for _ in range(100):
        if (folder / stored.REQUEST_LOG).exists():
            result = CliRunner().invoke(cli.trace, ["show", str(folder)])
            if phrase in result.stdout:
                return True
        time.sleep(0.1)
    return False


def test_a_trace_that_is_killed_is_shown_as_what_it_is(tmp_path: Path) -> None:
    """Running for as long as anybody writes it, then ended, with its command and no exit code."""
    out = tmp_path / "trace"
    program = """
import sys, time, urllib.request
urllib.request.urlopen(sys.argv[1]).read()
time.sleep(600)
"""
    words = [sys.executable, "-c", program]
    with serve() as url:
        wire = [sys.executable, "-c", "from wire.cli import run; run()", "trace"]
        command = [*wire, "--out", str(out), *words, url, f"--password={SECRET}"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
            has_begun = becomes(out, "1 requests to")
            children = psutil.Process(tracer.pid).children(recursive=True)
            is_running = becomes(out, "is still running")
            tracer.kill()
        try:
            assert has_begun and is_running
            assert "is still running" in show(out)  # the gateway goes on for the program
        finally:
            for process in children:
                process.kill()
    assert becomes(out, "was ended before it finished")
    run, shown_words = stored.read_trace(out)
    assert run.exit_code is None and len(run.rows) == 1 and not run.is_whole
    assert shown_words[0] == sys.executable and shown_words[-2] == url
    report = json.loads(show(out, "--json"))
    assert report["exit_code"] is None
    assert any("was ended before it finished" in place for place in report["not_seen"])
    assert SECRET not in (out / stored.REQUEST_LOG).read_text() + show(out)


def write_log(folder: Path, run: Run, *, is_ended: bool = True) -> None:
    """Write the log of a run."""
    log = RequestLog(folder / stored.REQUEST_LOG)
    log.write_begin(["python", "my.py"], 100.0)
    for row in run.rows:
        log.write_request(row)
    for tunnel in run.unread:
        log.write_tunnel(tunnel)
    if is_ended:
        log.write_end(run.exit_code or 0, run.wall_s, run.unseen)
    log.close()


def test_a_program_that_ended_is_shown_by_its_log_alone(tmp_path: Path) -> None:
    """Where the disk had no room for the other files, its exit code and what is missing are known."""
    run = Run(chain(3), 9.0, 0.0, 3, missing=["what was not seen"])
    write_log(tmp_path, run)
    read, words = stored.read_trace(tmp_path)
    assert words == ["python", "my.py"]
    assert (read.exit_code, read.wall_s, read.unseen) == (3, 9.0, ["what was not seen"])
    assert "ended before" not in show(tmp_path)


def test_a_trace_without_a_request_is_shown(tmp_path: Path) -> None:
    """It was ended before the program asked for anything, and says so; an empty file is refused."""
    write_log(tmp_path, run_of([], wall_s=1.0), is_ended=False)
    assert "`" not in show(tmp_path) and "'python my.py', begun 1970-01-01" in show(tmp_path)
    (tmp_path / stored.REQUEST_LOG).write_text("")
    with refused("trace folder .*", "neither a beginning nor a request"):
        stored.read_trace(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "request", "start_s": 1.0, "end_s": 2.0, "key": 5},
        {"kind": "request", "start_s": "x", "end_s": 2.0},
        {"kind": "tunnel", "host": 5, "reason": "", "begin_s": 1.0},
        {"kind": "begin", "command": "x", "begin_s": 1e300},
        {"kind": "begin", "command": "x", "begin_s": -5},
    ],
    ids=["number of a path", "text of a moment", "number of a host", "never", "before all"],
)
def test_a_log_of_a_stranger_is_refused(line: dict[str, object], tmp_path: Path) -> None:
    """Values of other types and moments of no year end in a line."""
    good = {"kind": "request", "start_s": 1.0, "end_s": 2.0}
    text = "".join(json.dumps(each) + "\n" for each in (good, line))
    (tmp_path / stored.REQUEST_LOG).write_text(text)
    with refused("trace folder .*", allowed="."):
        stored.read_trace(tmp_path)


class _DeadGateway:
    """A guard whose gateway had sent some of what it wrote."""

    def __init__(self, log: Path, sent: Run) -> None:
        self.rows, self.tunnels = [*sent.rows], [*sent.unread]
        self._settings = type("Settings", (), {"log_path": log})


def _fill(rows: Sequence[int], logged_rows: Sequence[int], folder: Path) -> tuple[list[str], int]:
    """Fill in what was not sent of six requests, by their places; return paths and the number of tunnels."""
    every = chain(6, key="/b/f{i}")
    tunnels = [Tunnel("h:1", "sent", 1.0, 2.0, 5), Tunnel("h:1", "lasting", 1.0, 0.0, 5)]
    write_log(folder, run_of([every[n] for n in logged_rows], unread=tunnels, wall_s=1.0))
    sent = run_of([every[n] for n in rows], unread=tunnels[:1], wall_s=1.0)
    guard = _DeadGateway(folder / stored.REQUEST_LOG, sent)
    launch._Guard._fill_from_log(guard)  # type: ignore[arg-type]
    assert all(tunnel.end_s for tunnel in guard.tunnels)
    return [row.key for row in guard.rows], len(guard.tunnels)


@pytest.mark.parametrize(
    ("sent", "logged"),
    [
        ((0, 1, 2), (0, 1, 2, 3, 4, 5)),
        ((0, 1, 2), (1, 3, 4, 5)),
        ((), (0, 1, 2, 3, 4, 5)),
        ((0, 1, 2, 3, 4, 5), (0, 2)),
    ],
    ids=["the last ones", "a gap of a full disk", "all", "none"],
)
def test_what_a_killed_gateway_had_not_sent_is_filled_in(
    sent: Sequence[int], logged: Sequence[int], tmp_path: Path
) -> None:
    """Each request and tunnel once, however many lines the log lacks."""
    paths, n_tunnels = _fill(sent, logged, tmp_path)
    assert sorted(paths) == [f"/b/f{n}" for n in range(6)]
    assert n_tunnels == 2
