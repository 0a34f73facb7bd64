"""Programs in forks of a process that has imported what most recipes import.

Importing takes most of the time of a recipe, and would be done anew in each process. A fork also ends
without taking the interpreter down, in which HDF5 sometimes crashes where threads have read.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["dask.array", "h5netcdf", "h5py", "obstore", "s3fs", "xarray", "zarr"])  # fmt: skip


def run_program(program: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program in its folder and with this environment alone; what it says is in `stderr`."""
    child = _FORKS.Process(target=_run, args=(program, dict(environment)))
    child.start()
    child.join()
    said = program.with_suffix(".log").read_text()
    return subprocess.CompletedProcess([str(program)], child.exitcode or 0, "", said)


def _run(program: Path, environment: Mapping[str, str]) -> None:
    """Run a program as Python would, in this process."""
    os.chdir(program.parent)
    os.environ.clear()
    os.environ.update(environment)
    said = os.open(program.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(said, stream)
    sys.argv, sys.path[0] = [program.name], str(program.parent)
    runpy.run_path(str(program), run_name="__main__")
