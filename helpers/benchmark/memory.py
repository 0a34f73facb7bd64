"""Peak memory of a process and its children, and memory that costs its first touch before anything is timed."""

from __future__ import annotations

import contextlib
import mmap
import re
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil

LOOK_EVERY_S = 2.0
"""Seconds between looks at the processes: ten a second took 15 % of a core from what was measured."""


def peak_nbytes(pid: int | None = None) -> int:
    """Return the most resident memory that a process has held since its program began.

    On Linux the peak that `getrusage` and `wait4` tell of a child includes
    that of the process which started it, for it outlives `exec`. The peak of
    the address space, `VmHWM`, does not. Where there is none, the peak of
    this process is that of `getrusage`, and of another what it holds now.
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


def forget_peak(pid: int | None = None) -> None:
    """Let the peak of a process begin anew, where the kernel can and lets us."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid or 'self'}/clear_refs").write_text("5")


TOUCHED_NBYTES = 4 * 2**30
"""Most memory that is touched beforehand, which a host gives in seconds."""


@cache
def touch_memory() -> int:
    """Have the system give memory once and take it back, so that no read pays for its first touch.

    A virtual machine gets a page from its host when it first touches it, which takes several times
    what a page takes that it has touched before. On a machine that has just started, first reads
    would pay that and later ones not. An eighth of what this process may use is touched, which a
    container has room for, once a process; elsewhere than on Linux none.

    Returns
    -------
    int
        Bytes touched.
    """
    from distributed.system import MEMORY_LIMIT  # of the container, if there is one; slow to import

    if sys.platform != "linux":
        return 0
    nbytes = min(TOUCHED_NBYTES, MEMORY_LIMIT // 8, psutil.virtual_memory().available // 2)
    given = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    with contextlib.suppress(OSError), mmap.mmap(-1, nbytes, flags=given):
        return nbytes
    return 0


class Peak:
    """The memory that this process and its children held at most, and what looking cost.

    `nbytes` is the largest sum, over the processes that ran at a look, of the
    most that each held until then. The kernel keeps each process's own peak, so
    none is missed between looks. Their sum is a bound from above: peaks need
    not fall together, and a page that several processes share counts in each.
    A process that lives for less than `LOOK_EVERY_S` may be missed.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self.cpu_s = 0.0
        self._is_over = threading.Event()

    def watch(self) -> None:
        """Look every few seconds, and once more when told to stop."""
        is_over = False
        while not is_over:
            is_over = self._is_over.wait(LOOK_EVERY_S)
            self.nbytes = max(self.nbytes, sum(peak_nbytes(one.pid) for one in _family()))
            self.cpu_s = time.thread_time()

    def stop(self) -> None:
        """Look a last time, and stop."""
        self._is_over.set()


def _family() -> list[psutil.Process]:
    """List this process and all its descendants."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


@contextmanager
def watch_memory() -> Iterator[Peak]:
    """Watch the memory of this process and its children from now on."""
    peak = Peak()
    for process in _family():
        forget_peak(process.pid)
    thread = threading.Thread(target=peak.watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        peak.stop()
        thread.join()
