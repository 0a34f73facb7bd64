"""Child processes that end when their owner ends, however it ends.

A server left behind by a killed notebook holds a port and memory until someone
notices. So each child runs under a small supervisor (`supervise`, below)
that waits on a pipe held by the owner: the kernel closes it even after
``kill -9``, and the supervisor then ends the child and all that it started.
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
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from helpers.errors import UserError

_PACKAGE_ROOT = Path(__file__).resolve().parents[2]
# A child that was asked to end (SIGTERM) and has not is killed after this.
GRACE_S = 5.0


class Child:
    """A running command that cannot outlive the process that started it.

    Made by `start_child`; a context manager that stops the command on leaving.
    """

    def __init__(
        self, name: str, pid: int, *, log: Path, supervisor: subprocess.Popen[bytes]
    ) -> None:
        self.name = name  # for messages
        self.pid = pid  # of the command itself, not of its supervisor
        self.log = log  # what the command printed
        self._supervisor = supervisor

    def __enter__(self) -> Self:
        """Return the child itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop the child."""
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether the command has not ended yet."""
        return self._supervisor.poll() is None

    @property
    def supervisor_pid(self) -> int:
        """Process number of the supervisor."""
        return self._supervisor.pid

    def stop(self) -> None:
        """End the command and all that it started; a second call does nothing.

        The command is asked first (SIGTERM) and killed after `GRACE_S` seconds.
        """
        _close_pipes(self._supervisor)
        self._supervisor.terminate()  # a fork of this process may hold the pipe too
        try:
            self._supervisor.wait(timeout=3 * GRACE_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()

    def wait(self, *, timeout_s: float) -> int:
        """Wait for the command to end by itself."""
        try:
            return self._supervisor.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise UserError(f"{self.name}: not done in {timeout_s:g} s; log: {self.log}") from error

    def last_log_line(self) -> str:
        """Return the last line that is not blank of what the command printed."""
        with contextlib.suppress(FileNotFoundError), self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 4000))
            lines = file.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def raise_if_ended(self) -> None:
        """Raise if the command has ended, in one line that says why."""
        if not self.is_running:
            code = self._supervisor.returncode
            said = self.last_log_line() or "it printed nothing"
            raise UserError(f"{self.name}: ended with exit code {code} ({said}); log: {self.log}")

    def wait_until(self, is_ready: Callable[[], bool], *, timeout_s: float = 30.0) -> None:
        """Wait until a check succeeds, as long as the command runs."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            self.raise_if_ended()
            if time.monotonic() > deadline:
                raise UserError(f"{self.name}: not ready in {timeout_s:g} s; log: {self.log}")
            time.sleep(0.02)


def start_child(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    kept_fds: Sequence[int] = (),
) -> Child:
    """Start a command that ends when this process ends.

    The command runs in a session of its own: Ctrl-C in the terminal reaches the
    owner alone, who can then stop its children in order. On Linux the command
    also ends when its supervisor is killed. The owner may be any thread.

    Examples
    --------
    >>> with start_child([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
    ...     child.is_running
    True
    >>> child.is_running
    False
    """
    program = [os.fspath(part) for part in argv]
    if log is None:  # only this user can read it
        descriptor, name = tempfile.mkstemp(prefix=f"{Path(program[0]).name}-", suffix=".log")
        os.close(descriptor)
    path = Path(name) if log is None else log.absolute()
    supervisor = _start_supervisor(path, kept_fds)
    order = {
        "argv": program,
        "env": dict(os.environ if env is None else env),
        "cwd": os.getcwd(),
        "owner_pid": os.getpid(),
        "temporary_log": os.fspath(path) if log is None else None,
    }
    pid = _hand_over(supervisor, order)
    return Child(Path(program[0]).name, pid, log=path, supervisor=supervisor)


def _start_supervisor(log: Path, kept_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a supervisor that waits for its order, in its own session."""
    try:
        output = log.open("wb")
    except OSError as error:
        raise UserError(f"log {log}: cannot be written ({error.strerror})") from error
    with output:
        return subprocess.Popen(
            [sys.executable, "-m", "helpers.objectstore.processes"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=_PACKAGE_ROOT,  # so that `helpers` is found wherever the owner is
            start_new_session=True,
            pass_fds=tuple(kept_fds),
        )


def _hand_over(supervisor: subprocess.Popen[bytes], order: dict[str, Any]) -> int:
    """Send the order through the pipe and return the number of the command."""
    assert supervisor.stdin is not None
    assert supervisor.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # no supervisor: no answer below
            supervisor.stdin.write(json.dumps(order).encode() + b"\n")
        answer = json.loads(supervisor.stdout.readline() or b"{}")
    except BaseException:
        supervisor.kill()
        _close_pipes(supervisor)
        raise
    if "pid" not in answer:
        _close_pipes(supervisor)
        supervisor.wait()
        reason = answer.get("error", f"exit code {supervisor.returncode}")
        raise UserError(f"{order['argv'][0]}: cannot be started ({reason})")
    return int(answer["pid"])


def _close_pipes(supervisor: subprocess.Popen[bytes]) -> None:
    """Close both pipes; the supervisor takes that as the order to end."""
    for pipe in (supervisor.stdin, supervisor.stdout):
        if pipe is not None:
            pipe.close()


# A process forked by the owner keeps the pipe open after the owner's death;
# looking at the parent this often finds that out too.
PARENT_CHECK_S = 0.5
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def supervise() -> int:
    """Start the command ordered on stdin and end it when the owner ends.

    The owner writes one line of JSON (what to start) to stdin and then holds that
    pipe open; the answer is one line (the process number, or an error). This runs in
    a process of one thread: Linux ties a child to the *thread* that started it.
    """
    line = sys.stdin.buffer.readline()
    if not line:  # the owner died before it could say what to start
        return 0
    order = json.loads(line)
    alarm = _catch_signals()
    try:
        child = subprocess.Popen(
            order["argv"],
            env=order["env"],
            cwd=order["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            stderr=sys.stderr.fileno(),
            start_new_session=True,
            preexec_fn=_death_with_parent(),
        )
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
