"""Peak memory of a process."""

from __future__ import annotations

import contextlib
import re
import resource
import sys
from pathlib import Path

import psutil


def peak_nbytes(pid: int | None = None) -> int:
    """Return the most resident memory that a process has held since its program began.

    On Linux the peak that `getrusage` and `wait4` give of a child includes
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
