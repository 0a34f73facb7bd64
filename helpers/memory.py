"""Peak memory of a process and its children."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


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
