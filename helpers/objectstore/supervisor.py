"""The supervisor of one child process: ends it when the owner is gone.

Run as ``python -m helpers.objectstore.supervisor`` by `helpers.objectstore.processes`. The
owner writes one line of JSON (what to start) to its stdin and then holds that
pipe open; the supervisor answers with one line (the process number, or an error).
It has one thread: Linux ties a child to the *thread* that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

# A child that was asked to end (SIGTERM) and has not is killed after this.
GRACE_S = 5.0
# A process forked by the owner keeps the pipe open after the owner's death;
# looking at the parent this often finds that out too.
PARENT_CHECK_S = 0.5
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def supervise() -> int:
    """Start the command ordered on stdin and end it when the owner ends."""
    line = sys.stdin.buffer.readline()
    if not line:  # the owner died before it could say what to start
        return 0
    order = json.loads(line)
    alarm = _catch_signals()
    try:
        child = _start(order)
    except OSError as error:
        os.write(1, json.dumps({"error": error.strerror}).encode() + b"\n")
        _delete_log(order)
        return 1
    try:
        with contextlib.suppress(BrokenPipeError):  # owner gone: seen below
            os.write(1, json.dumps({"pid": child.pid}).encode() + b"\n")
        _wait_for_end(child, owner_pid=order["owner_pid"], alarm=alarm)
        has_ended_itself = child.returncode is not None
    finally:
        _end_all(child)
    if not has_ended_itself:
        _delete_log(order)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _delete_log(order: dict[str, Any]) -> None:
    """Delete the log if nobody asked for it."""
    if order["temporary_log"] is not None:
        Path(order["temporary_log"]).unlink(missing_ok=True)


def _catch_signals() -> int:
    """Turn signals into bytes on a pipe and return the end to read from."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reader


def _start(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the command in a session of its own."""
    return subprocess.Popen(
        order["argv"],
        env=order["env"],
        cwd=order["cwd"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        stderr=sys.stderr.fileno(),
        start_new_session=True,
        preexec_fn=_death_with_parent(),
    )


def _death_with_parent() -> Callable[[], None] | None:
    """Return what ties a new process to this one, where the system can do it."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()
    prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of the command become ours to end

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)

    return tie


def _wait_for_end(child: subprocess.Popen[bytes], *, owner_pid: int, alarm: int) -> None:
    """Return when the owner is gone, a signal asks for it or the child ended."""
    owner = sys.stdin.fileno()
    while child.returncode is None and os.getppid() == owner_pid:
        ready, _, _ = select.select([owner, alarm], [], [], PARENT_CHECK_S)
        if owner in ready:  # nothing is ever sent: the pipe was closed
            return
        if alarm in ready and set(os.read(alarm, 512)) - {signal.SIGCHLD}:
            return
        _reap(child)


def _reap(child: subprocess.Popen[bytes]) -> None:
    """Collect every ended descendant, so that none stays as a zombie."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            if ended[0] == child.pid:
                child.returncode = os.waitstatus_to_exitcode(ended[1])


def _end_all(child: subprocess.Popen[bytes]) -> None:
    """Ask the child to end, then kill what is left of all it started."""
    started = psutil.Process().children(recursive=True)
    deadline = time.monotonic() + GRACE_S
    _reap(child)
    if child.returncode is None:
        os.kill(child.pid, signal.SIGTERM)
    while child.returncode is None and time.monotonic() < deadline:
        time.sleep(0.01)
        _reap(child)
    while left := [p for p in {*started, *psutil.Process().children(recursive=True)} if _lives(p)]:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.01)
        _reap(child)


def _lives(process: psutil.Process) -> bool:
    """Tell whether a process still runs; a zombie does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


if __name__ == "__main__":
    sys.exit(supervise())
