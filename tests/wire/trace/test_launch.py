"""Tests of how a program is run: its standard streams and its signals are its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.stores import Ranges, serve
from wire.trace import launch

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


def find_pythons() -> list[str]:
    """Find the other versions of Python that pyenv has here."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return sorted(map(str, root.glob("versions/*/bin/python")))


READS = """
from __future__ import print_function
import os, sys, time
try:
    from urllib.request import urlopen
except ImportError:
    from urllib2 import urlopen
print(len(urlopen(os.environ["STORE"] + "/x").read()))
if hasattr(os, "fork"):
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
time.sleep(0.05)
"""


@pytest.mark.slow
def test_the_shim_is_silent_in_every_python(tmp_path: Path) -> None:
    """Warnings are errors in the program: neither a thread of ours nor a file of ours shows in its output."""
    pythons = find_pythons()
    if not pythons:
        pytest.skip("needs pyenv, with other versions of Python")
    (tmp_path / "x").write_bytes(b"y" * 100)
    script = tmp_path / "program.py"
    script.write_text(READS)
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    (tmp_path / "wire.py").write_text("raise SystemExit('the wrong wire')")
    (tmp_path / "helpers.py").write_text("raise SystemExit('the wrong helpers')")
    with serve(partial(Ranges, directory=tmp_path)) as url:
        for number, python in enumerate(pythons):
            strict = ["-W", "error::DeprecationWarning"] if "/3." in python else []
            wire = [str(Path(sys.executable).with_name("wire")), "trace", "--quiet"]
            words = [
                *wire,
                "--out",
                str(tmp_path / f"trace-{number}"),
                "--",
                python,
                *strict,
                str(script),
            ]
            completed = subprocess.run(
                words,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                cwd=tmp_path,
                env={**os.environ, "STORE": url},
            )
            assert (completed.returncode, completed.stdout, completed.stderr) == (0, "100\n", ""), (
                python
            )


def test_short_connections_past_the_gateway_are_named(tmp_path: Path) -> None:
    """A budget is not judged where a program's connection went past, however short it was."""
    (tmp_path / "x").write_bytes(b"y" * 100)
    code = "import http.client as h, sys; c = h.HTTPConnection(sys.argv[1]); c.request('GET', '/x'); c.getresponse().read()"
    with serve(partial(Ranges, directory=tmp_path)) as url:
        host = url.removeprefix("http://")
        run = launch.run([sys.executable, "-c", code, host], is_silent=True)
    assert run.exit_code == 0
    assert not run.is_whole and run.unseen == [host] and not run.rows
