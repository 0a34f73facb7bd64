"""Child processes that end with their owner, however it ends.

A server left behind by a killed notebook holds a port and memory until someone
notices. So each child runs under a small supervisor (`supervise`, below)
that waits on a pipe held by the owner: the kernel closes it even after
``kill -9``, and the supervisor then ends the child and all that it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import psutil

from wire.errors import UserError, describe_system_error

_PACKAGE_ROOT = Path(__file__).resolve().parents[1]

# A child that was asked to end (SIGTERM) and has not is killed after this.
GRACE_S = 5.0


@contextmanager
def open_python(
    module: str, *arguments: object
) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
    """Run a module of this very `wire`, wherever the owner is; it takes one end of a pipe, then the rest.

    At the end of the other end it ends too, or is killed after `GRACE_S`.
    """
    places = [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    own_end, child_end = Pipe()
    with own_end:
        with child_end:
            command = [sys.executable, "-m", module, *map(str, (child_end.fileno(), *arguments))]
            inherited: Any = {"stdin": subprocess.DEVNULL, "pass_fds": [child_end.fileno()]}
            process = subprocess.Popen(command, env=env, **inherited)
        try:
            yield process, own_end
        finally:
            own_end.close()
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables, take those away that are None, and put back afterwards what was there."""
    before = {name: os.environ.pop(name, None) for name in changes}
    os.environ.update({name: value for name, value in changes.items() if value is not None})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})


def peak_nbytes(pid: int) -> int:
    """Return the most resident memory that a process has held since its program began.

    On Linux the peak that `getrusage` and `wait4` give of a child includes that of the process
    which started it, for it outlives `exec`. The peak of the address space, `VmHWM`, does not.
    Where there is none, it is what the process holds now, and 0 once it has ended.
    """
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        if match := re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE):
            return 1024 * int(match[1])
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


def remove_left(folder: Path, prefix: str) -> None:
    """Remove what processes of this machine that were killed have left, by names of `prefix` and their number."""
    for left in folder.glob(f"{glob.escape(prefix)}*"):
        pid = re.match(r"\d+", left.name.removeprefix(prefix))
        if pid and not psutil.pid_exists(int(pid[0])):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()


class Child(AbstractContextManager["Child"]):
    """A running command that cannot outlive the process that started it.

    Made by `start_child`; a context manager that stops the command on leaving.
    """

    def __init__(
        self, name: str, pid: int, *, output: IO[bytes], supervisor: subprocess.Popen[bytes]
    ) -> None:
        self.name = name  # for messages
        self.pid, self.supervisor_pid = pid, supervisor.pid
        self._output, self._supervisor = output, supervisor
        self._last_line = ""  # once it is stopped

    def __exit__(self, *_error: object) -> None:
        """Stop the child."""
        self.stop()

    @property
    def is_running(self) -> bool:
        """Whether the command has not ended yet."""
        return self._supervisor.poll() is None

    def stop(self) -> None:
        """Ask the command to end (SIGTERM), after `GRACE_S` seconds kill it and all that it started."""
        _end_supervisor(self._supervisor)
        self._last_line = self.last_log_line()
        self._output.close()

    def wait(self, *, timeout_s: float) -> int:
        """Wait for the command to end by itself, and return its exit code."""
        try:
            return self._supervisor.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise UserError(
                self.name, f"not done in {timeout_s:g} s{self._quote_output()}"
            ) from error

    def last_log_line(self) -> str:
        """Return the last line that is not blank of what the command printed."""
        if self._output.closed:
            return self._last_line
        descriptor = self._output.fileno()  # whose position is that of the command
        start = max(0, os.fstat(descriptor).st_size - 4000)
        lines = os.pread(descriptor, 4000, start).decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _quote_output(self) -> str:
        """Quote what the command printed last, and name its log where it has one."""
        line, log = self.last_log_line() or "it printed nothing", self._output.name
        return f" ({line})" + (f"; log: {log}" if isinstance(log, str) else "")

    def wait_until(self, is_ready: Callable[[], bool], *, timeout_s: float = 30.0) -> None:
        """Wait until a check succeeds, as long as the command runs."""
        deadline_s = time.monotonic() + timeout_s
        while not is_ready():
            if not self.is_running:
                code = self._supervisor.returncode
                raise UserError(self.name, f"ended with exit code {code}{self._quote_output()}")
            if time.monotonic() > deadline_s:
                raise UserError(self.name, f"not ready in {timeout_s:g} s{self._quote_output()}")
            time.sleep(0.02)


def start_child(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    folder: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Start a command that ends when this process ends.

    The command runs in a session of its own: Ctrl-C in the terminal reaches the
    owner alone, who can then stop its children in order. On Linux the command
    also ends when its supervisor is killed. The owner may be any thread. Where no log is named,
    what it prints goes to a file without a name, which nobody has to remove. It runs in `folder`, or
    where the owner is. Its supervisor holds `pass_fds` open, so that a lock on one of them ends
    after all that the command started, however the owner ends.
    """
    program = [os.fspath(part) for part in argv]
    try:
        output: IO[bytes] = tempfile.TemporaryFile() if log is None else log.open("w+b")  # noqa: SIM115
    except OSError as error:
        raise UserError(
            f"log {log}", f"cannot be written ({describe_system_error(error)})"
        ) from error
    supervisor = subprocess.Popen(
        [sys.executable, "-m", __name__, str(os.getpid()), str(folder or os.getcwd()), *program],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        env=None if env is None else dict(env),
        cwd=_PACKAGE_ROOT,  # so that `wire` is found wherever the owner is
        start_new_session=True,
        pass_fds=pass_fds,
    )
    try:
        assert supervisor.stdout is not None
        answer = supervisor.stdout.readline().decode().strip()
        if not answer.isdigit():
            reason = answer or f"exit code {supervisor.wait()}"
            raise UserError(program[0], f"cannot be started ({reason})")
    except BaseException:
        _end_supervisor(supervisor)
        output.close()
        raise
    return Child(Path(program[0]).name, int(answer), output=output, supervisor=supervisor)


def _end_supervisor(supervisor: subprocess.Popen[bytes]) -> None:
    """Close the pipe, which the supervisor takes as the order to end, and wait for that."""
    for pipe in (supervisor.stdin, supervisor.stdout):
        if pipe is not None:
            pipe.close()
    supervisor.terminate()  # a fork of this process may hold the pipe too
    try:
        supervisor.wait(timeout=3 * GRACE_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


# How often the supervisor looks whether the child has ended, or the owner: a process forked by the
# owner keeps the pipe open after the owner's death.
CHECK_S = 0.1
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def supervise(owner_pid: int, folder: str, command: Sequence[str]) -> int:
    """Run a command in a folder until it ends, its owner does or a signal asks for it.

    The owner holds standard input open; the answer is a line with the number of the command's
    process, or why there is none. This runs in a process of one thread: Linux ties a child to the
    *thread* that started it.
    """
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.append(number))
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            start_new_session=True,
            preexec_fn=_death_with_parent(),
        )
    except OSError as error:
        os.write(1, f"{describe_system_error(error)}\n".encode())
        return 1
    try:
        with contextlib.suppress(BrokenPipeError):  # owner gone: seen below
            os.write(1, f"{child.pid}\n".encode())
        # nothing is ever sent: the pipe is readable once it is closed
        while not (signals or select.select([0], [], [], CHECK_S)[0] or os.getppid() != owner_pid):
            if child.poll() is not None:
                break
    finally:
        _end_all(child)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


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


def _end_all(child: subprocess.Popen[bytes]) -> None:
    """Ask the child to end, then kill what is left of all it started."""
    started = psutil.Process().children(recursive=True)
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    left = {*started, *psutil.Process().children(recursive=True)}
    while left:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=GRACE_S)
        left = {*psutil.Process().children(recursive=True)}
    child.wait()


if __name__ == "__main__":
    sys.exit(supervise(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
