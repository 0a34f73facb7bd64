"""Reads in a process of their own: one that memory may end, and stores of others, which may never answer.

``python -m studies.cluster_studies.apart WHAT ...`` prints what it found as JSON, in its last line.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pyarrow.parquet
from dask.delayed import delayed

from helpers.arrays import stores
from helpers.arrays.clusters import Cluster
from helpers.benchmark.contender import CheckError, Steps
from helpers.paths import CATALOG
from studies.cluster_studies import tables
from wire.bed.locations import Location, parse_location
from wire.children import start_child
from wire.deadline import deadline
from wire.errors import UserError, redact

ENDED = "ended by its limit of memory"
LIMIT = 8e9 / 5.6e9
"""Memory of a worker of 2022 over the bytes of its table in memory, for which it had none left."""
PATIENCE_S = 60.0
"""For a store of others to bring one chunk, and for each of its reads."""
_STACK_NBYTES = 64_000_000  # of threads that begin after the limit is set


def make_store_environment(place: Location) -> dict[str, str]:
    """Make the environment of a process that reads from a store, with its credentials."""
    variables = {
        "AWS_ENDPOINT_URL": place.endpoint_url,
        "AWS_ACCESS_KEY_ID": place.access_key,
        "AWS_SECRET_ACCESS_KEY": place.secret_key,
        "AWS_SESSION_TOKEN": place.session_token,
        "AWS_REGION": place.region,
    }
    inherited = {name: value for name, value in os.environ.items() if name not in variables}
    return inherited | {name: value for name, value in variables.items() if value}


def _read_parquet(url: str, part: str, limit_nbytes: str) -> object:
    """Read one file as one table, as one partition of Dask is, or its groups of rows in turn."""
    import resource  # not everywhere

    place = parse_location(url)
    file = pyarrow.parquet.ParquetFile(place.fsspec().open(f"{place.path}/part-00000.parquet"))
    held_nbytes = os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text().split()[0])
    most_nbytes = held_nbytes + _STACK_NBYTES + int(float(limit_nbytes))
    resource.setrlimit(resource.RLIMIT_AS, (most_nbytes, most_nbytes))
    sums = np.zeros(4, np.uint64)
    try:
        for group in [None] if part == "whole" else range(file.num_row_groups):
            table = file.read() if group is None else file.read_row_group(group)
            sums += tables.sum_bits(table.to_pandas())
    except MemoryError:
        return ENDED
    return [int(total) for total in sums]


def _read_first(name: str) -> object:
    """Read the first chunk of an entry of the catalogue."""
    array = _open_entry(name)
    first = array.blocks[(0,) * array.ndim].compute()
    return {"nbytes": first.nbytes, "n_chunks": array.npartitions, "sum": stores.checksum(first)}


def _open_entry(name: str) -> Any:
    entry = stores.open_entry(name, CATALOG)
    if any(getattr(argument, "url", "") is None for argument in entry.kwargs.get("args", ())):
        raise UserError(name, f"no address; {entry.metadata['description']}")
    return entry.read()[entry.metadata["variable"]].data


@dataclass(frozen=True, slots=True)
class ParquetApart(Steps):
    """One Parquet file read under a limit of memory, without the network."""

    folder: Location
    entry: stores.Entry
    part: str  # whole, or groups
    held_nbytes: int  # of the table in memory

    def settings(self) -> Mapping[str, Any]:
        """Tell the limit."""
        limit = {"limit_nbytes": int(LIMIT * self.held_nbytes)}
        return {"layout": "parquet", "cache_state": "new process", **limit}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the table, and of the file."""
        return self.held_nbytes, self.entry.nbytes

    def read(self, _opened: object) -> Any:
        """Read in a process of its own, and say what it found or how it ended."""
        arguments = [self.folder.url, self.part, str(LIMIT * self.held_nbytes)]
        command = [sys.executable, "-m", __name__, "parquet", *arguments]
        with start_child(command, env=make_store_environment(self.folder)) as child:
            code = child.wait(timeout_s=5 * PATIENCE_S)
            answer = child.last_log_line() or '""'
        if code == 128 + signal.SIGABRT:  # as C++ ends where it cannot allocate
            return ENDED
        return answer if code else json.loads(answer)

    def check(self, result: Any) -> str:
        """Hold the values to what was written, where the process was let."""
        if result not in (ENDED, self.entry.facts["sums"]):
            raise CheckError(f"one Parquet file, {self.part}: {result!r:.200}")
        return ENDED if result == ENDED else f"sums of bits of {result[0]} rows"


def try_entries(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read a chunk of each entry, all at once, each in a process that ends at its deadline.

    Returns
    -------
    dict
        By entry: `nbytes` of a chunk, `n_chunks` and the `sum` of the first one, or the `reason`
        why it cannot be read from here.
    """
    answers: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(start_child([sys.executable, "-m", __name__, "entry", name]))
            for name in names
        }
        until_s = time.monotonic() + PATIENCE_S
        for name, child in started.items():
            left_s = max(0.0, until_s - time.monotonic())
            try:
                code, answer = child.wait(timeout_s=left_s), child.last_log_line()
                answers[name] = {"reason": answer} if code else json.loads(answer)
            except UserError as error:
                answers[name] = {"reason": f"nothing in {PATIENCE_S:g} s: {error}"}
    return {
        name: answer | {"reason": _shorten_reason(answer.get("reason", ""))}
        for name, answer in answers.items()
    }


def _shorten_reason(reason: object) -> str:
    return redact(" ".join(str(reason).split()))[:300]


@dataclass(slots=True)
class EntryRead(Steps):
    """Chunks of an array of others, as many as its cluster asks for, or the reason why not."""

    name: str
    first: Mapping[str, Any]  # what `try_entries` says of it
    cluster: Cluster
    n_chunks: int
    absent: str = field(default="", init=False)

    def __post_init__(self) -> None:
        """Read no more chunks than there are."""
        self.n_chunks = min(self.n_chunks, self.first.get("n_chunks", 0))

    def settings(self) -> Mapping[str, Any]:
        """Tell that every entry is another array."""
        return {"layout": "of others", "cache_state": "nothing cached here"}

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of the chunks; how many are stored for them, nobody tells."""
        nbytes = self.n_chunks * self.first.get("nbytes", 0)
        return nbytes, nbytes

    def prepare(self) -> None:
        """Start from what was found at first."""
        self.absent = self.first["reason"]

    def open(self) -> Any:
        """Open the entry, and describe the read of its chunks."""
        if self.absent:
            return None
        try:
            with deadline(PATIENCE_S):
                array = _open_entry(self.name)
        except Exception as error:  # whatever a store or its client says
            self.absent = _shorten_reason(error)
            return None
        places = islice(np.ndindex(*array.numblocks), self.n_chunks)
        parts = [array.blocks[place] for place in places]
        return [delayed(stores.checksum)(part) for part in parts]

    def read(self, opened: Any) -> Any:
        """Let the workers read, no longer than until the deadline."""
        if self.absent:
            return None
        futures = self.cluster.client.compute(opened)  # type: ignore[no-untyped-call]
        try:
            distributed.wait(futures, timeout=PATIENCE_S * math.ceil(self.n_chunks / 8))  # type: ignore[no-untyped-call]
            return self.cluster.client.gather(futures)  # type: ignore[no-untyped-call]
        except Exception as error:  # of a task, or that it is late
            self.absent = _shorten_reason(f"{type(error).__name__}: {error}")
            self.cluster.client.cancel(futures)  # type: ignore[no-untyped-call]
            return None

    def collect(self) -> Mapping[str, Any]:
        """Say why there is nothing, if so."""
        return {"absent": self.absent}

    def check(self, result: Any) -> str:
        """Hold the first chunk to what it was at first."""
        if self.absent:
            return "absent"
        if result[0] != self.first["sum"]:
            raise CheckError(f"{self.name} reads other values than at first")
        return f"xxh3 of the first of {len(result)} chunks"


if __name__ == "__main__":
    functions: Mapping[str, Callable[..., object]] = {
        "parquet": _read_parquet,
        "entry": _read_first,
    }
    code = 0
    try:
        answer = json.dumps(functions[sys.argv[1]](*sys.argv[2:]))
    except Exception as error:  # whatever a store, its client or an absent package says
        code, answer = 1, " ".join(f"{type(error).__name__}: {error}".split())[:500]
    print(f"\n{answer}", flush=True)
    os._exit(code)  # nothing that a library says at its end comes after that
