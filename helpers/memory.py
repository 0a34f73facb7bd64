"""Peak memory of a process and its children."""

from __future__ import annotations

import contextlib
import re
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


def peak_nbytes(pid: int | None = None) -> int:
    """Return the most resident memory that a process has held since its program began.

    On Linux the peak that `getrusage` and `wait4` tell of a child includes
    that of the process which started it, for it outlives `exec`. The peak of
    the address space, `VmHWM`, does not. Where there is none, the peak of
    this process is that of `getrusage`, and of another what it holds now.

    Parameters
    ----------
    pid : int, optional
        Number of a process; by default this one.

    Returns
    -------
    int
        Bytes; 0 for a process that has ended.
    """
    status = Path(f"/proc/{pid or 'self'}/status")
    with contextlib.suppress(OSError):
        if found := re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(), re.MULTILINE):
            return 1024 * int(found[1])
    if pid is None:
        unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


class Peak:
    """The largest memory that this process and its children held, in bytes."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._is_over = threading.Event()

    def watch(self) -> None:
        """Look ten times a second until told to stop."""
        while not self._is_over.wait(0.1):
            self.nbytes = max(self.nbytes, memory_nbytes())

    def stop(self) -> None:
        """Stop looking."""
        self._is_over.set()


def memory_nbytes() -> int:
    """Sum the unique memory of this process and all its children."""
    total = 0
    for process in [me := psutil.Process(), *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            total += process.memory_full_info().uss
    return total


@contextmanager
def watch_memory() -> Iterator[Peak]:
    """Watch the memory of this process and its children."""
    peak = Peak()
    thread = threading.Thread(target=peak.watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        peak.stop()
        thread.join()
