"""All contenders of a case: layouts, a copy of one for noise, the raw objects, and the extras."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import obstore
import zarr
from numpy.typing import NDArray

from helpers.arrays import prepared
from helpers.arrays.chunks import Shape, balanced_chunk_shape
from helpers.arrays.reads import RawRead
from helpers.arrays.writers import iterate_blocks
from helpers.benchmark.contender import CheckError, Contender, Steps, contend
from helpers.benchmark.loop import timed
from helpers.benchmark.memory import peak_nbytes
from helpers.benchmark.provenance import distributions, name_beside
from helpers.objectstore.testbed import Testbed
from helpers.paths import cache_folder
from helpers.plotting.palette import check_looks
from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import PUBLISHED_NBYTES, ChunkLayout, Medium
from studies.chunk_shape.workload import (
    N_CONNECTIONS,
    HyperslabRead,
    Plan,
    checksum,
    contend_way,
    prepare_objects,
)

_COPIED = "balanced 1024 KiB"


def contend_all(
    ways: Sequence[HyperslabRead], testbed: Testbed, plan: Plan, extras: Sequence[str]
) -> list[Contender]:
    """Make all contenders: of each way, a copy of a layout of each medium, and what is beside."""
    makers = {"rewriting": make_rewrites, "codecs": make_decodings, "chunk-cache": make_adjacents}
    copied = {medium: _copied(medium, ways) for medium in dict.fromkeys(w.medium for w in ways)}
    copies = [
        contend_way(replace(way), "control", way.chunks.name)
        for way in ways
        if way.chunks.name == copied[way.medium]
    ]
    more = [contender for extra in extras for contender in makers[extra](plan)]
    return [*map(contend_way, ways), *copies, *_make_ceilings(ways, testbed, plan), *more]


def _copied(medium: Medium, ways: Sequence[HyperslabRead]) -> str:
    """Choose the layout of which a medium has a second copy."""
    names = [way.chunks.name for way in ways if way.medium == medium]
    return _COPIED if _COPIED in names else names[0]


def _make_ceilings(ways: Sequence[HyperslabRead], testbed: Testbed, plan: Plan) -> list[Contender]:
    """Make the raw ceiling of the whole array, for each medium of objects."""
    media = {w.medium: w.chunks for w in ways if w.testbed and w.chunks.name == _COPIED}
    made = []
    for medium, one in media.items():
        near = testbed.near / prepare_objects(medium, testbed, plan, one)
        pages = obstore.list(near.obstore(), prefix="c")
        raw = RawRead(
            near,
            sorted(each["path"] for page in pages for each in page),
            testbed,
            n_connections=N_CONNECTIONS,
            array_nbytes=plan.values.nbytes,
            stored_nbytes=plan.values.nbytes,
            settings={"codec": "none", "concurrency": N_CONNECTIONS,
                      "cache_state": "new client, warm server"},
        )  # fmt: skip
        point = {"access": "whole", "medium": medium}
        made.append(
            contend("raw objects", raw, point=point, group=f"{medium} whole", is_ceiling=True)
        )
    return made


_SAMPLE_NBYTES = 8_000_000  # the same values at each chunk size
_CACHE_NBYTES = (0, 2**20, 2**23, 2**26)
_N_ADJACENT = 16  # slices read one after the other

_SHUFFLE = numcodecs.Shuffle(elementsize=4)
_ROUND = numcodecs.BitRound(keepbits=12)  # of the 23 bits of a float32's fraction
CODECS: dict[str, list[Any]] = {
    "none": [],
    "zstd": [numcodecs.Zstd(level=1)],
    "blosc-lz4": [numcodecs.Blosc("lz4", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE)],
    "shuffle, deflate": [_SHUFFLE, numcodecs.Zlib(level=1)],
    "rounded, shuffle, zstd": [_ROUND, _SHUFFLE, numcodecs.Zstd(level=1)],
}
"""Codecs by name, in the order in which they encode."""


def encode(codecs: Sequence[Any], values: NDArray[np.float32]) -> bytes:
    """Encode a chunk."""
    return bytes(
        reduce(lambda data, codec: codec.encode(data), codecs, np.ascontiguousarray(values))
    )


def decode(codecs: Sequence[Any], data: bytes) -> NDArray[np.float32]:
    """Decode a chunk, copying it where nothing else does, as a reader would."""
    found = reduce(lambda data, codec: codec.decode(data), reversed(codecs), data)
    return np.frombuffer(found, np.float32).copy()


@dataclass(slots=True, kw_only=True)
class _Extra(Steps):
    """What is measured beside reading: its work is timed without the checksums."""

    numbers: dict[str, float] = field(default_factory=dict)

    def collect(self) -> dict[str, float]:
        return self.numbers


@dataclass(slots=True)
class _Decoding(_Extra):
    """The chunks of one size, in one codec, in memory."""

    name: str  # of the codec
    chunks: list[bytes]  # encoded
    expected: int  # checksum of the values, as far as the codec keeps them
    array_nbytes: int

    def settings(self) -> dict[str, Any]:
        return {"codec": self.name, "concurrency": 1, "cache_state": "in memory"}

    def nbytes(self) -> tuple[int, int]:
        return self.array_nbytes, sum(map(len, self.chunks))

    def read(self, _opened: object) -> int:
        """Decode every chunk."""
        codecs = CODECS[self.name]
        found, work_s = timed(lambda: [decode(codecs, chunk) for chunk in self.chunks])
        self.numbers = {"work_s": work_s}
        return checksum(np.concatenate(found))

    def check(self, found: int) -> str:
        if found != self.expected:
            raise CheckError("decoded other values")
        return f"xxh3 of {len(self.chunks)} chunks"


def make_decodings(plan: Plan) -> list[Contender]:
    """Make a contender of each codec at each published chunk size."""
    check_looks(CODECS, "codec")
    made = []
    for nbytes in PUBLISHED_NBYTES:
        shape = balanced_chunk_shape(plan.values.shape, 4, min(nbytes, plan.values.nbytes // 2))
        parts = cut(plan.values, shape)
        place = {"access": "decode", "medium": "memory"}
        for name, codecs in CODECS.items():
            rounding = [_ROUND] if "rounded" in name else []
            kept = np.concatenate([decode(rounding, encode(rounding, part)) for part in parts])
            encoded = [encode(codecs, part) for part in parts]
            way = _Decoding(name, encoded, checksum(kept), kept.nbytes)
            made.append(
                contend(
                    f"codec {name}",
                    way,
                    point={**place, "chunk_kib": nbytes // 1024},
                    group="decode",
                )
            )
    return made


def cut(values: NDArray[np.float32], shape: Shape) -> list[NDArray[np.float32]]:
    """Cut the first times, the same for every shape, into chunks; those at the borders are clipped.

    Examples
    --------
    >>> [part.shape for part in cut(np.zeros((3, 2, 2), np.float32), (2, 2, 2))]
    [(2, 2, 2), (1, 2, 2)]
    """
    sample = values[: max(1, _SAMPLE_NBYTES // values[:1].nbytes)]
    return [np.ascontiguousarray(sample[block]) for block in iterate_blocks(sample.shape, shape)]


@dataclass(slots=True)
class _Adjacent(_Extra):
    """Adjacent slices of a chunked file, read with a cache of chunks."""

    path: Path
    cache_nbytes: int
    values: NDArray[np.float32]  # what the slices must give

    def settings(self) -> dict[str, Any]:
        return {
            "codec": "shuffle, deflate",
            "concurrency": 1,
            "cache_state": "pages dropped before the first",
            "rdcc_nbytes": self.cache_nbytes,
        }

    def nbytes(self) -> tuple[int, int]:
        return self.values.nbytes, self.values.nbytes

    def prepare(self) -> None:
        layouts.drop_pages(self.path)

    def open(self) -> Any:
        return layouts.open_hdf5(self.path, cache_nbytes=self.cache_nbytes)

    def read(self, array: Any) -> list[int]:
        """Read the slices one after the other."""
        found, seconds = [], []
        for i in range(len(self.values)):
            values, work_s = timed(partial(array.__getitem__, i))
            found.append(checksum(values))
            seconds.append(work_s)
        self.numbers = {"work_s": sum(seconds)}
        return found

    def check(self, found: list[int]) -> str:
        if found != [*map(checksum, self.values)]:
            raise CheckError("adjacent slices read other values")
        return f"xxh3 of {len(found)} slices"


def _balance(plan: Plan) -> Shape:
    """Balance chunks of the second published size."""
    asked = min(PUBLISHED_NBYTES[1], plan.values.nbytes // 2)
    return balanced_chunk_shape(plan.values.shape, 4, asked)


def make_adjacents(plan: Plan) -> list[Contender]:
    """Make a contender of each size of the cache, on balanced chunks of the second size."""
    one = ChunkLayout("balanced", _balance(plan))
    path, point = layouts.prepare_hdf5(plan.values, one), {"access": "adjacent slices"}
    ways = [_Adjacent(path, nbytes, plan.values[:_N_ADJACENT]) for nbytes in _CACHE_NBYTES]
    return [
        contend(
            f"cache of {way.cache_nbytes / 2**20:g} MiB",
            way,
            point={**point, "medium": "hdf5"},
            group="adjacent slices",
        )
        for way in ways
    ]


_TOOLS = ("nccopy", "h5repack", "Dask", "cubed")  # two that come with the formats, two of Python
_NAMES = ("t", "y", "x")
_SAMPLING_S = 0.005
_IN_PYTHON = {"Dask": "dask", "cubed": "cubed"}


@dataclass(slots=True)
class _Rewrite(_Extra):
    """One tool that rewrites a file of time steps in balanced chunks."""

    tool: str  # one of `_TOOLS`
    source: Path  # what is read; what is made anew each time
    target: Path
    chunk_shape: Shape  # elements of a chunk to make
    values: NDArray[np.float32]  # what it must hold
    found: dict[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        is_python = self.tool in _IN_PYTHON
        return {
            "layout": "zarr" if is_python else "hdf5",
            "codec": "deflate",
            "concurrency": len(os.sched_getaffinity(0)) if is_python else 1,
            "cache_state": "pages dropped",
            "chunks": "x".join(map(str, self.chunk_shape)),
        }

    def nbytes(self) -> tuple[int, int]:
        return self.values.nbytes, self.values.nbytes

    def prepare(self) -> None:
        """Remove what was made before, and forget the pages of the source."""
        shutil.rmtree(self.target, ignore_errors=True)
        self.target.unlink(missing_ok=True)
        layouts.drop_pages(self.source)

    def _run(self) -> tuple[str, int]:
        """Return what the tool says, and its most memory: asked until it ends, for nothing tells it then."""
        most_nbytes = 0
        with subprocess.Popen(self._command(), stdout=subprocess.PIPE, text=True) as child:
            while child.poll() is None:
                most_nbytes = max(most_nbytes, peak_nbytes(child.pid))
                time.sleep(_SAMPLING_S)
            told = child.communicate()[0]
        if child.returncode:
            raise CheckError(f"{self.tool} ended with {child.returncode}")
        return told, most_nbytes

    def read(self, _opened: object) -> None:
        """Run the tool in a process of its own; keep its work and its most memory."""
        (told, most_nbytes), work_s = timed(self._run)
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
        array: Any
        if self.target.is_dir():
            array = zarr.open_array(self.target, mode="r")
        else:
            array = h5py.File(self.target, "r")["v"]
        if tuple(array.chunks) != self.chunk_shape or checksum(array[...]) != checksum(self.values):
            raise CheckError(f"{self.tool} made other chunks or values")
        return "xxh3 of the array"


@cache
def _version_of(tool: str) -> str:
    """Ask a tool that is no Python for its version: nccopy tells it where it tells its usage."""
    command = [tool, "--version"] if tool == "h5repack" else [tool]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"[Vv]ersion:? (\S+)", told.stdout + told.stderr)
    return found[1] if found else "unknown"


def make_rewrites(plan: Plan) -> list[Contender]:
    """Make a contender of each tool that is there; all read and write deflate, without shuffle."""
    values = plan.values
    chunk_shape = _balance(plan)
    source = _prepare_steps(values)
    made = source.parent  # what tools make lies beside it: it is made anew each time
    point = {"access": "rewrite", "medium": "hdf5"}
    ways = [
        _Rewrite(tool, source, made.with_name(f"{made.name}-by-{tool}"), chunk_shape, values)
        for tool in _TOOLS
        if tool in _IN_PYTHON or shutil.which(tool)
    ]
    return [contend(way.tool, way, point=point, group="rewrite") for way in ways]


def _prepare_steps(values: NDArray[np.float32]) -> Path:
    """Have a netCDF-4 file with a chunk a time step, as models write."""
    how: dict[str, Any] = {"zlib": True, "complevel": 1, "shuffle": False}
    how["chunksizes"] = (1, *values.shape[1:])
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
