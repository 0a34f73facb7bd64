"""A process that reads in one way and reports the memory and the open files that the read took: `python -m studies.peak_memory.reader`.

It takes a line of JSON on standard input, the way and the location, and writes one on standard output.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import xxhash

from studies.peak_memory.ways import WAYS, Values
from wire.bed.locations import Location

_PROCESS = Path("/proc/self")
_SAMPLE_S = 0.002


def read_status(name: str) -> int:
    """Read a size of this process, in bytes, such as `VmRSS`, what it holds, or `VmHWM`, its peak.

    As the kernel of Linux writes it in `/proc/self/status` (proc_pid_status(5)), in KiB.
    """
    lines = (_PROCESS / "status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


@contextmanager
def count_open_files() -> Iterator[list[int]]:
    """Count the files and connections that this process holds open, every two milliseconds, in a list."""
    counts = [len(os.listdir(_PROCESS / "fd"))]
    is_over = threading.Event()

    def sample() -> None:
        while not is_over.wait(_SAMPLE_S):
            counts.append(len(os.listdir(_PROCESS / "fd")))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield counts
    finally:
        is_over.set()
        thread.join()


def measure_peak(read: Callable[[], Values]) -> tuple[int, int, Values]:
    """Measure by how many bytes, and by how many open files, the peak of a read is above what was held before.

    The peak is set back before: writing 5 to `clear_refs` does that (proc_pid_clear_refs(5)).
    """
    gc.collect()
    (_PROCESS / "clear_refs").write_text("5")
    before = read_status("VmRSS")
    with count_open_files() as counts:
        values = read()
    return read_status("VmHWM") - before, max(counts) - counts[0], values


def main() -> None:
    """Read as standard input says, and report the peak, the bytes of the values and their XXH3 hash."""
    asked = json.loads(sys.stdin.readline())
    place = Location(**asked["location"])
    way = WAYS[asked["way"]]
    peak_nbytes, n_files, values = measure_peak(lambda: way.read(place))
    answer = {
        "peak_nbytes": peak_nbytes,
        "n_files": n_files,
        "values_nbytes": values.nbytes,
        "digest": xxhash.xxh3_64_intdigest(values),
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
