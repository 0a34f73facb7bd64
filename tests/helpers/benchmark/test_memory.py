"""The peak memory of a process is its own."""

from __future__ import annotations

import subprocess
import sys

import pytest


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
