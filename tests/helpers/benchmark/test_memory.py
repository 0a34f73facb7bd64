"""The peak memory of a process is its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from helpers.benchmark import memory
from helpers.benchmark.memory import peak_nbytes, watch_memory


def tell(source: str) -> list[int]:
    """Run a program in a process of its own, and return the numbers that it prints."""
    run = subprocess.run([sys.executable, "-c", source], stdout=subprocess.PIPE, check=True)
    return [*map(int, run.stdout.split())]


# Holds 500 MB, and tells what a child that it starts says of itself by the two ways to ask.
_LARGE = """
import subprocess, sys
held = b"x" * 500_000_000
child = ["import resource; print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)",
         "from helpers.benchmark.memory import peak_nbytes; print(peak_nbytes())"]
for source in child:
    subprocess.run([sys.executable, "-c", source], check=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child inherits no peak")
def test_a_child_of_a_large_process_reports_its_own_peak() -> None:
    """What the system's own count inherits over `exec`, this one does not."""
    inherited, own = tell(_LARGE)
    assert own < 250e6
    assert inherited > 500e6, "the trap that this avoids is no longer there"


# When told to, holds 200 MB for as long as it takes to write them; then waits.
_BRIEF = """
import sys
sys.stdin.readline()
held = b"x" * 200_000_000
del held
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no kernel keeps another's peak")
def test_a_peak_between_two_looks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child's memory that came and went before the first look is counted."""
    monkeypatch.setattr(memory, "LOOK_EVERY_S", 3600.0)
    with subprocess.Popen(
        [sys.executable, "-c", _BRIEF], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        with watch_memory() as peak:
            child.stdin.write(b"\n")
            child.stdin.flush()
            child.stdout.readline()
        child.communicate()
    assert peak.nbytes > peak_nbytes() + 200e6
    assert peak.cpu_s > 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a peak cannot begin anew")
def test_what_was_held_before_does_not_count() -> None:
    """Two spans are compared by their peaks, so the first must not lift the second."""
    source = (
        "from helpers.benchmark.memory import peak_nbytes, watch_memory\n"
        "held = b'x' * 300_000_000\n"
        "del held\n"
        "before = peak_nbytes()\n"
        "with watch_memory() as peak: pass\n"
        "print(before, peak.nbytes)"
    )  # in a process without children, since a peak counts those too
    before, after = tell(source)
    assert 0 < after < before - 200e6
