"""Tests of how a program is run: its standard streams and its signals are its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WIRE = [sys.executable, "-c", "from wire.cli import run; run()", "trace", "--quiet"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_program_runs_whose_streams_are_closed(tmp_path: Path, closed: str) -> None:
    """No pipe of ours takes the number of a stream that is closed."""
    shell = ["sh", "-c", f'"$@" {closed}', "sh", *WIRE, "--out", str(tmp_path / "trace"), "--"]
    program = [
        sys.executable,
        "-c",
        f"open({str(tmp_path / 'ran')!r}, 'w').close(); raise SystemExit(7)",
    ]
    completed = subprocess.run([*shell, *program], capture_output=True, timeout=60, check=False)
    assert completed.returncode == 7 and (tmp_path / "ran").exists()


HANDLES = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))
print("ready", flush=True)
time.sleep(60)
"""


def test_a_signal_of_a_batch_system_is_the_programs(tmp_path: Path) -> None:
    """A program that asked for a warning before its time is over gets it, and its exit code stays."""
    command = [*WIRE, "--out", str(tmp_path / "trace"), "--", sys.executable, "-c", HANDLES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as traced:
        assert traced.stdout is not None and traced.stdout.readline() == "ready\n"
        time.sleep(0.2)
        traced.send_signal(signal.SIGUSR1)
        assert traced.wait(timeout=30) == 5
