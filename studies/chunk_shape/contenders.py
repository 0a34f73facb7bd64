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
from helpers.benchmark.contender import CheckError, Contender, Steps
from helpers.benchmark.loop import timed
from helpers.benchmark.provenance import distributions, installed, name_beside
from helpers.objectstore.processes import peak_nbytes
from helpers.objectstore.testbed import Testbed
from helpers.paths import cache_folder
from studies.chunk_shape import layouts
from studies.chunk_shape.layouts import PUBLISHED_NBYTES, RULES, ChunkLayout, shard_of
from studies.chunk_shape.workload import (
    N_CONNECTIONS,
    HyperslabRead,
    Plan,
    checksum,
    contend_read,
)

_BALANCED_NBYTES = PUBLISHED_NBYTES[1]  # of chunks that are copied, cached and rewritten to


def contend_all(
    reads: Sequence[HyperslabRead], testbed: Testbed, plan: Plan, extras: Sequence[str]
) -> list[Contender]:
    """Make all contenders: of each read, a copy of a layout of each medium, and the extras."""
    makers = {"rewriting": make_rewrites, "codecs": make_decodings, "chunk-cache": make_adjacents}
    copied = {read.medium: read.layout.name for read in reversed(reads)}  # the first
    copied |= {read.medium: RULES[1] for read in reads if read.layout.name == RULES[1]}
    copies = [
        contend_read(replace(read), "control", read.layout.name)
        for read in reads
        if read.layout.name == copied[read.medium]
    ]
    more = [contender for extra in extras for contender in makers[extra](plan)]
    return [*map(contend_read, reads), *copies, *_make_ceilings(reads, testbed, plan), *more]


def _make_ceilings(reads: Sequence[HyperslabRead], testbed: Testbed, plan: Plan) -> list[Contender]:
    """Make the raw ceiling of the whole array, for each medium of objects."""
    media = {
        r.medium: r.layout.chunk_shape for r in reads if r.testbed and r.layout.name == RULES[1]
    }
    made = []
    for medium, chunk in media.items():
        assert chunk is not None  # as objects have it
        shard = shard_of(medium, plan.values.shape, chunk)
        near = testbed.near / layouts.prepare_zarr(testbed.near, plan.values, chunk, shard)
        pages = obstore.list(near.obstore(), prefix="c")
        keys = sorted(each["path"] for page in pages for each in page)
        state: dict[str, Any] = {"codec": "none", "cache_state": "new client, warm server"}
        state["concurrency"] = N_CONNECTIONS
        nbytes = {"array_nbytes": plan.values.nbytes, "stored_nbytes": plan.values.nbytes}
        raw = RawRead(near, keys, testbed, n_connections=N_CONNECTIONS, settings=state, **nbytes)
        at: dict[str, Any] = {
            "point": {"access": "whole", "medium": medium},
            "group": f"{medium} whole",
        }
        made.append(Contender("raw objects", raw, is_ceiling=True, **at))
    return made


@dataclass(slots=True, kw_only=True)
class _Extra(Steps):
    """What is measured besides reading: its work is timed without the checksums."""

    numbers: dict[str, float] = field(default_factory=dict)

    def collect(self) -> dict[str, float]:
        return self.numbers


_SAMPLE_NBYTES = 8_000_000  # the same values at each chunk size
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
    start: Any = np.ascontiguousarray(values)
    return bytes(reduce(lambda data, codec: codec.encode(data), codecs, start))


def decode(codecs: Sequence[Any], data: bytes) -> NDArray[np.float32]:
    """Decode a chunk, copying it where nothing else does, as a reader would."""
    decoded = reduce(lambda data, codec: codec.decode(data), reversed(codecs), data)
    return np.frombuffer(decoded, np.float32).copy()


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
        codecs = CODECS[self.name]
        decoded, work_s = timed(lambda: [decode(codecs, chunk) for chunk in self.chunks])
        self.numbers = {"work_s": work_s}
        return checksum(np.concatenate(decoded))

    def check(self, found: int) -> str:
        if found != self.expected:
            raise CheckError("decoded other values")
        return f"xxh3 of {len(self.chunks)} chunks"


def make_decodings(plan: Plan) -> list[Contender]:
    """Make a contender of each codec at each published chunk size."""
    made = []
    for nbytes in PUBLISHED_NBYTES:
        shape = balanced_chunk_shape(plan.values.shape, 4, min(nbytes, plan.values.nbytes // 2))
        parts = cut(plan.values, shape)
        point: dict[str, Any] = {"access": "decode", "medium": "memory"}
        point["chunk_kib"] = nbytes // 1024
        for name, codecs in CODECS.items():
            rounding = [_ROUND] if "rounded" in name else []
            kept = np.concatenate([decode(rounding, encode(rounding, part)) for part in parts])
            encoded = [encode(codecs, part) for part in parts]
            steps = _Decoding(name, encoded, checksum(kept), kept.nbytes)
            made.append(Contender(f"codec {name}", steps, point=point, group="decode"))
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


_CACHE_NBYTES = (0, 2**20, 2**23, 2**26)
NO_CACHE = "cache of 0 MiB"
"""Adjacent slices without HDF5's cache of chunks."""
_N_ADJACENT = 16  # slices read one after the other


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
        sums, work_s = [], 0.0
        for i in range(len(self.values)):
            values, seconds = timed(partial(array.__getitem__, i))
            sums.append(checksum(values))
            work_s += seconds
        self.numbers = {"work_s": work_s}
        return sums

    def check(self, sums: list[int]) -> str:
        if sums != [*map(checksum, self.values)]:
            raise CheckError("adjacent slices read other values")
        return f"xxh3 of {len(sums)} slices"


def _balance(plan: Plan) -> Shape:
    asked = min(_BALANCED_NBYTES, plan.values.nbytes // 2)
    return balanced_chunk_shape(plan.values.shape, 4, asked)


def make_adjacents(plan: Plan) -> list[Contender]:
    """Make a contender of each size of the cache, on balanced chunks of the second size."""
    path = layouts.prepare_hdf5(plan.values, ChunkLayout("balanced", _balance(plan)))
    point, group = {"access": "adjacent slices", "medium": "hdf5"}, "adjacent slices"
    made = {n: _Adjacent(path, n, plan.values[:_N_ADJACENT]) for n in _CACHE_NBYTES}
    return [
        Contender(f"cache of {n / 2**20:g} MiB", steps, point=point, group=group)
        for n, steps in made.items()
    ]


TOOLS = ("nccopy", "h5repack", "Dask")
"""What rewrites a file: two programs that come with the formats, and Dask's threads."""
_NAMES = ("t", "y", "x")
_SAMPLING_S = 0.005


@dataclass(slots=True)
class _Rewrite(_Extra):
    """One tool that rewrites a file of time steps in balanced chunks."""

    tool: str  # one of `TOOLS`
    source: Path
    target: Path  # made anew each time
    chunk_shape: Shape  # elements of a chunk to make
    values: NDArray[np.float32]  # what it must hold
    imported: dict[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        is_python = self.tool == "Dask"
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
        shutil.rmtree(self.target, ignore_errors=True)
        self.target.unlink(missing_ok=True)
        layouts.drop_pages(self.source)

    def _run(self) -> tuple[str, int]:
        """Run the tool; return what it prints, and its most memory, looked at until it ends."""
        most_nbytes = 0
        with subprocess.Popen(self._command(), stdout=subprocess.PIPE, text=True) as child:
            while child.poll() is None:
                most_nbytes = max(most_nbytes, peak_nbytes(child.pid))
                time.sleep(_SAMPLING_S)
            printed = child.communicate()[0]
        if child.returncode:
            raise CheckError(f"{self.tool} ended with {child.returncode}")
        return printed, most_nbytes

    def read(self, _opened: object) -> None:
        (printed, most_nbytes), work_s = timed(self._run)
        if self.tool == "Dask":  # imports are no rewriting
            answer = json.loads(printed.splitlines()[-1])
            work_s = float(answer["seconds"])
            self.imported = {**distributions(answer["modules"]), **answer["libraries"]}
        self.numbers = {"work_s": work_s, "most_nbytes": float(most_nbytes)}

    def versions(self) -> dict[str, str]:
        if self.tool == "Dask":
            return name_beside("rewriting", [self.imported])
        return {f"tool {self.tool}": _version_of(self.tool)}

    def _command(self) -> list[str]:
        source, target, chunks = str(self.source), str(self.target), [*map(str, self.chunk_shape)]
        if self.tool == "nccopy":
            asked = ",".join(f"{n}/{c}" for n, c in zip(_NAMES, chunks, strict=True))
            # -M: by default it leaves variables below 8 KiB a chunk as they were
            return ["nccopy", "-d", "1", "-M", "0", "-c", asked, source, target]
        if self.tool == "h5repack":
            options = ["-l", f"v:CHUNK={'x'.join(chunks)}", "-f", "v:GZIP=1"]
            return ["h5repack", *options, source, target]
        # By its path, so that the project is not imported: its memory is not the tool's.
        script = str(Path(__file__).with_name("rewrite_process.py"))
        return [sys.executable, "-P", script, source, target, *chunks]

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
    """Ask a program for its version: nccopy prints it with its usage."""
    command = [tool, "--version"] if tool == "h5repack" else [tool]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    version = re.search(r"[Vv]ersion:? (\S+)", printed.stdout + printed.stderr)
    return version[1] if version else "unknown"


def make_rewrites(plan: Plan) -> list[Contender]:
    """Make a contender of each tool that is installed; all read and write deflate, without shuffle."""
    source = _prepare_steps(plan.values)
    made = source.parent  # what tools make lies next to it: it is made anew each time
    point, group, chunks = {"access": "rewrite", "medium": "hdf5"}, "rewrite", _balance(plan)
    there = [tool for tool in TOOLS if tool == "Dask" or shutil.which(tool)]
    targets = {tool: made.with_name(f"{made.name}-by-{tool}") for tool in there}
    return [
        Contender(tool, _Rewrite(tool, source, to, chunks, plan.values), point=point, group=group)
        for tool, to in targets.items()
    ]


def _prepare_steps(values: NDArray[np.float32]) -> Path:
    """Have a netCDF-4 file with a chunk a time step, as models write."""
    how: dict[str, Any] = {"zlib": True, "complevel": 1, "shuffle": False}
    how["chunksizes"] = (1, *values.shape[1:])
    versions = installed(["netCDF4"])
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
