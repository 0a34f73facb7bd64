"""What opening and reading an HDF5 file takes: recorded reads through caches, over a network."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from advisors.hdf5.caches import (
    MIB,
    Cache,
    FileCache,
    PageBuffer,
    Read,
    iterate_parts,
    order_reads,
    read_through,
)
from advisors.hdf5.copying import SparseFile
from advisors.hdf5.files import open_hdf5
from advisors.hdf5.inspection import FileReport, Variable
from advisors.hdf5.recording import Recording, record_reads
from advisors.hdf5.repack import Repack
from helpers.errors import UserError
from helpers.models.transfer import ClientCosts, Network, replay

_PAGE_BUFFER_NBYTES = 16 * MIB
N_CONNECTIONS = 10
"""Requests that a download in parallel, or a reader of references, keeps in flight."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How h5py reads through a file object of fsspec."""

    cache_type: str = "blockcache"  # cache of the file object, as fsspec names it
    block_nbytes: int = 8 * MIB  # bytes of its blocks, or that it reads ahead
    # HDF5's page buffer, where file space is paged; 0 for none, None for what holds a page
    page_buffer_nbytes: int | None = None

    def file_options(self) -> dict[str, Any]:
        """Give the options with which fsspec opens the file so."""
        return {"cache_type": self.cache_type, "block_size": self.block_nbytes}

    def choose_page_buffer(self, page_nbytes: int) -> int:
        """Choose the page buffer for pages of a file: 16 MiB, or a page, unless it is given.

        Examples
        --------
        >>> [Settings().choose_page_buffer(pages * MIB) // MIB for pages in (0, 4, 32)]
        [0, 16, 32]
        """
        if not page_nbytes:
            return 0
        if self.page_buffer_nbytes is None:
            return max(_PAGE_BUFFER_NBYTES, page_nbytes)
        if 0 < self.page_buffer_nbytes < page_nbytes:
            raise UserError(
                f"page-buffer: {self.page_buffer_nbytes / MIB:g} MiB; allowed: 0, or at least a page"
                f" of the file, {page_nbytes / MIB:g} MiB"
            )
        return self.page_buffer_nbytes

    def caches(self, recording: Recording) -> list[Cache]:
        """Give the caches between the library and the network, for a recorded file."""
        page_nbytes, n_first = recording.page_nbytes, recording.n_first_past
        found: list[Cache] = [FileCache(self.cache_type, self.block_nbytes)]
        if buffer_nbytes := self.choose_page_buffer(page_nbytes):
            found.insert(0, PageBuffer(page_nbytes, buffer_nbytes, n_first_past=n_first))
        return found


TODAY = Settings("readahead", 50 * MIB, 0)
"""What `s3fs.open(path)` returns, with which xarray's engine reads: 50 MiB ahead, no page buffer."""

TODAY_HTTPS = Settings("bytes", 5 * MIB, 0)
"""What `fsspec.open("https://…")` returns."""

TUNED = Settings()
"""Blocks of 8 MiB and a page buffer of 16 MiB, as published advice has them."""

# What the library takes on one processor, whatever the network; nothing of it is measured here.
_OBJECT_S = 1e-4  # to list an object or an attribute
_NBYTE_S = 5e-10  # for a byte of values, next to its filters
_IN_HEAP_S = 1e-6  # for a value of variable length
# Values that a filter decodes in a second, in MB. deflate, shuffle, fletcher32, szip, nbit,
# scaleoffset; LZF, Blosc, LZ4, bitshuffle, Zstd, Blosc2
_MB_PER_S = {1: 250.0, 2: 1500.0, 3: 1500.0, 4: 150.0, 5: 400.0, 6: 300.0, 32000: 400.0,
             32001: 1000.0, 32004: 1500.0, 32008: 1500.0, 32015: 500.0, 32026: 1000.0}  # fmt: skip
_OTHER_MB_PER_S = 200.0


def decode_s(variable: Variable) -> float:
    """Estimate the time of decoding a variable.

    Examples
    --------
    >>> one = Variable("x", (10**6,), "f4", (10**5,), 10, 10**6, 4 * 10**6, (), (), False, (),
    ...     filter_numbers=(2, 1))
    >>> round(1e3 * decode_s(one), 1)
    20.7
    """
    nbytes = min(variable.nbytes, variable.n_chunks * variable.chunk_nbytes)
    rates = (_MB_PER_S.get(number, _OTHER_MB_PER_S) for number in variable.filter_numbers)
    in_heaps = math.prod(variable.shape) if variable.is_variable_length else 0
    return in_heaps * _IN_HEAP_S + nbytes * (_NBYTE_S + sum(1e-6 / rate for rate in rates))


@dataclass(frozen=True, slots=True)
class ReadPrediction:
    """What to expect of opening a file, with the listing of its tree, and of reading variables."""

    open_s: float
    read_s: float
    n_open_requests: int  # of those to open
    n_requests: int  # of both, and their bytes
    nbytes: int

    @property
    def seconds(self) -> float:
        """Time of both."""
        return self.open_s + self.read_s


@dataclass(frozen=True, slots=True)
class Forecaster:
    """What is the same for all ways to read variables of a file."""

    report: FileReport
    variables: Sequence[str]
    network: Network
    costs: ClientCosts  # what the client takes next to the network

    def read(self, recording: Recording, settings: Settings) -> ReadPrediction:
        """Predict opening and reading through a file object."""
        reads, n_first = (*recording.opened, *recording.read), len(recording.opened)
        between = settings.caches(recording)
        opened, read = read_through(between, reads, recording.file_nbytes, n_first=n_first)
        return self._replay([Read(0, 0), *opened], read, recording.n_listed)

    def download(self, recording: Recording) -> ReadPrediction:
        """Predict fetching the file whole, in parts at once, and reading it from memory."""
        parts = iterate_parts(self.report.file_nbytes, TUNED.block_nbytes)
        fetched = [Read(0, 0), *parts]
        return self._replay(fetched, [], recording.n_listed, n_connections=N_CONNECTIONS)

    def references(self, recording: Recording, nbytes: int) -> ReadPrediction:
        """Predict a reader that has the places of all chunks in one object of so many bytes."""
        chunks = [read for read in recording.read if not read.is_metadata]
        return self._replay([Read(0, nbytes)], chunks, 0, n_connections=N_CONNECTIONS)

    def _replay(
        self, opened: Sequence[Read], read: Sequence[Read], n_listed: int, n_connections: int = 1
    ) -> ReadPrediction:
        parts = [order_reads(part, n_connections=n_connections) for part in (opened, read)]
        # more simulations where few requests leave the median to chance
        n_draws = [max(9, min(201, 2_000 // max(1, len(steps)))) for steps in parts]
        opening, reading = (
            replay(steps, self.network, request_s=self.costs.request_s, n_draws=n)
            for steps, n in zip(parts, n_draws, strict=True)
        )
        decoding_s = sum(decode_s(self.report.variable(name)) for name in self.variables)
        return ReadPrediction(
            opening.seconds + self.costs.start_s + _OBJECT_S * n_listed,
            reading.seconds + decoding_s,
            opening.n_requests,
            opening.n_requests + reading.n_requests,
            opening.nbytes + reading.nbytes,
        )


def record_repacked(
    file: BinaryIO,
    name: str,
    repack: Repack,
    variables: Sequence[str],
    *,
    groups: Collection[str] | None = None,
) -> Recording:
    """Note what the library will ask for to open a repacked file, list it, and read variables.

    It is asked of a model of the repacked file: its layout by the library, without its values.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.h5"
        with open_hdf5(file, name) as source, SparseFile(path) as target:
            repack.copy(source, target, is_model=True)
        with path.open("rb") as model:
            return record_reads(model, name, variables, groups=groups)
