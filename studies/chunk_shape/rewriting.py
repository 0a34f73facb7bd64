"""What rewriting an array in other chunks costs, by tool: time, memory, and what it gives."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr
from numpy.typing import NDArray

from helpers.arrays import prepared
from helpers.arrays.chunks import Shape, balanced_chunk_shape
from helpers.benchmark.contender import CheckError, Contender
from helpers.benchmark.memory import peak_nbytes
from helpers.benchmark.provenance import distributions, name_beside
from helpers.paths import cache_folder
from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import PUBLISHED_NBYTES
from studies.chunk_shape.workload import Plan, checksum

TOOLS = ("nccopy", "h5repack", "Dask", "cubed")
"""Tools that rewrite: two that come with the formats, two of Python."""

_NAMES = ("t", "y", "x")
_SAMPLING_S = 0.005
_IN_PYTHON = {"Dask": "dask", "cubed": "cubed"}


@dataclass(slots=True)
class Rewrite:
    """One tool that rewrites a file of time steps in balanced chunks."""

    tool: str  # one of `TOOLS`
    source: Path  # what is read; what is made anew each time
    target: Path
    chunk_shape: Shape  # elements of a chunk to make
    expected: int  # checksum of the values
    numbers: dict[str, float] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """Remove what was made before, and forget the pages of the source."""
        shutil.rmtree(self.target, ignore_errors=True)
        self.target.unlink(missing_ok=True)
        layouts.drop_pages(self.source)

    def run(self, _opened: object) -> None:
        """Run the tool in a process of its own; keep its work and its most memory."""
        start = time.perf_counter()
        with subprocess.Popen(self._command(), stdout=subprocess.PIPE, text=True) as child:
            most_nbytes = watch_memory(child)
            told = child.communicate()[0]
        if child.returncode:
            raise CheckError(f"{self.tool} ended with {child.returncode}")
        work_s = time.perf_counter() - start
        if self.tool in _IN_PYTHON:  # imports are no rewriting
            answer = json.loads(told.splitlines()[-1])
            work_s = float(answer["seconds"])
            self.found = {**distributions(answer["modules"]), **answer["libraries"]}
        self.numbers = {"work_s": work_s, "most_nbytes": float(most_nbytes)}

    def versions(self) -> dict[str, str]:
        """Say what the tool had imported, or which version it says it is."""
        if self.tool in _IN_PYTHON:
            return name_beside("rewriting", [self.found])
        return {f"tool {self.tool}": _version_of(self.tool)}

    def _command(self) -> list[str]:
        chunks = self.chunk_shape
        if self.tool == "nccopy":
            asked = ",".join(f"{n}/{c}" for n, c in zip(_NAMES, chunks, strict=True))
            # -M: by default it leaves variables below 8 KiB a chunk as they were
            options = ["-d", "1", "-M", "0", "-c", asked]
            return ["nccopy", *options, str(self.source), str(self.target)]
        if self.tool == "h5repack":
            asked = "v:CHUNK=" + "x".join(map(str, chunks))
            return ["h5repack", "-l", asked, "-f", "v:GZIP=1", str(self.source), str(self.target)]
        # By its path, so that the project is not imported: its memory is not the tool's.
        script = str(Path(__file__).with_name("rewrite_process.py"))
        shape = ",".join(map(str, chunks))
        where = [str(self.source), str(self.target), shape]
        return [sys.executable, "-P", script, _IN_PYTHON[self.tool], *where]

    def check(self, _result: object) -> str:
        """Compare chunks and values with what was asked."""
        array: Any
        if self.target.is_dir():
            array = zarr.open_array(self.target, mode="r")
        else:
            array = h5py.File(self.target, "r")["v"]
        if tuple(array.chunks) != self.chunk_shape or checksum(array[...]) != self.expected:
            raise CheckError(f"{self.tool} made other chunks or values")
        return "xxh3 of the array"


@functools.cache
def _version_of(tool: str) -> str:
    """Ask a tool that is no Python for its version: nccopy tells it where it tells its usage."""
    command = [tool, "--version"] if tool == "h5repack" else [tool]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"[Vv]ersion:? (\S+)", told.stdout + told.stderr)
    return found[1] if found else "unknown"


def watch_memory(child: subprocess.Popen[str]) -> int:
    """Ask for the peak memory of a process until it ends, for nothing tells it afterwards."""
    most_nbytes = 0
    while child.poll() is None:
        most_nbytes = max(most_nbytes, peak_nbytes(child.pid))
        time.sleep(_SAMPLING_S)
    return most_nbytes


def make_rewrites(plan: Plan) -> list[Contender]:
    """Make a contender of each tool that is there; all read and write deflate, without shuffle."""
    values = plan.values
    asked = min(PUBLISHED_NBYTES[1], values.nbytes // 2)
    chunk_shape = balanced_chunk_shape(values.shape, 4, asked)
    source = _prepare_steps(values)
    made = source.parent  # what tools make lies beside it: it is made anew each time
    return [
        _contend(Rewrite(tool, source, made.with_name(f"{made.name}-by-{tool}"), chunk_shape,
                         checksum(values)), values.nbytes)
        for tool in TOOLS
        if tool in _IN_PYTHON or shutil.which(tool)
    ]  # fmt: skip


def _prepare_steps(values: NDArray[np.float32]) -> Path:
    """Have a netCDF-4 file with a chunk a time step, as models write."""
    how: dict[str, Any] = {
        "zlib": True,
        "complevel": 1,
        "shuffle": False,
        "chunksizes": (1, *values.shape[1:]),
    }
    versions = prepared.versions_of("netCDF4")
    made_by = {"values": str(checksum(values)), "shape": values.shape, "format": how, **versions}

    def write(draft: Path) -> dict[str, Any]:
        import netCDF4

        with netCDF4.Dataset(draft / "steps.nc", "w") as file:
            for name, n in zip(_NAMES, values.shape, strict=True):
                file.createDimension(name, n)
            file.createVariable("v", "f4", _NAMES, **how)[:] = values
        return {}

    place = cache_folder() / "chunkings" / f"steps-{prepared.name_of(made_by)}"
    prepared.prepare(place, made_by, write)
    return place / "steps.nc"


def _contend(way: Rewrite, nbytes: int) -> Contender:
    return Contender(
        name=way.tool,
        point={"access": "rewrite", "medium": "hdf5"},
        group="rewrite",
        settings={
            "layout": "zarr" if way.tool in _IN_PYTHON else "hdf5",
            "codec": "deflate",
            "concurrency": len(os.sched_getaffinity(0)) if way.tool in _IN_PYTHON else 1,
            "cache_state": "pages dropped",
            "chunks": "x".join(map(str, way.chunk_shape)),
        },
        open=lambda: None,
        read=way.run,
        check=way.check,
        prepare=way.prepare,
        collect=lambda: way.numbers,
        versions=way.versions,
        array_nbytes=nbytes,
        stored_nbytes=nbytes,
    )
