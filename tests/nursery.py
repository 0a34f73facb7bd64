"""A process that has imported what most recipes import, and runs each in a fork of its own.

Importing takes most of the time of a recipe, and would be done anew in each process.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PRELOADED = ("dask.array", "h5netcdf", "h5py", "obstore", "s3fs", "xarray", "zarr")


class Nursery:
    """The process, as tests see it."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def run(self, program: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run a program in its folder and with this environment alone; what it says is in `stderr`."""
        assert self._child.stdin is not None and self._child.stdout is not None
        asked = {"program": str(program), "environment": dict(environment)}
        self._child.stdin.write(json.dumps(asked) + "\n")
        self._child.stdin.flush()
        code = int(self._child.stdout.readline())
        return subprocess.CompletedProcess([str(program)], code, "", _said(program).read_text())


@contextmanager
def open_nursery() -> Iterator[Nursery]:
    """Start the process, and end it."""
    command = [sys.executable, "-m", "tests.nursery"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield Nursery(child)
        assert child.stdin is not None
        child.stdin.close()


def _said(program: Path) -> Path:
    return program.with_suffix(".log")


def _run(program: Path, environment: Mapping[str, str]) -> int:
    """Run a program as Python would, in this process."""
    os.chdir(program.parent)
    os.environ.clear()
    os.environ.update(environment)
    said = os.open(_said(program), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(said, stream)
    sys.argv, sys.path[0] = [program.name], str(program.parent)
    try:
        runpy.run_path(str(program), run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _serve() -> None:
    for name in PRELOADED:
        __import__(name)
    for line in sys.stdin:
        asked = json.loads(line)
        if (child := os.fork()) == 0:
            os._exit(_run(Path(asked["program"]), asked["environment"]))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    _serve()
