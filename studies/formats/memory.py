"""Memory of a read: in a process of its own, whose peak the system keeps, and under a limit that kills.

A process that has read before holds memory that the next read finds again, so each read has a
process. What counts is what it adds to what the process held before, with all libraries imported.
"""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

import pandas as pd

from helpers.arrays import readers
from helpers.benchmark.contender import CheckError
from helpers.benchmark.memory import forget_peak, peak_nbytes
from helpers.errors import UserError
from helpers.objectstore.locations import credentials
from studies.formats import columns
from studies.formats.clients import CLIENTS
from studies.formats.formats import Kept, choose, digest

AT_ONCE, BY_GROUP = "parquet-pandas", "parquet-by-group"
"""The Parquet file in one piece, as a table is read, and a row group after the other."""

_LOOK_EVERY_S = 0.002  # between looks at a process that has a limit
_PATIENCE_S = 300.0
_AT_A_TIME = 2  # processes: each may hold several times the array


@dataclass(frozen=True, slots=True)
class Held:
    """What a process that read the whole array added to its memory, and whether it was let."""

    added_nbytes: int  # at most, above what it held before
    is_killed: bool = False  # for having added more than its limit


def _digest_whole(name: str, kept: Kept, n_requests: int) -> str:
    """Read the whole array, and digest its values: by group, no two groups are there at once."""
    whole, place = choose("whole", kept.stored), kept.at("parquet")
    if name == BY_GROUP:
        return columns.digest_groups(place, kept.stored)
    client = CLIENTS[name]
    return digest(client.open(kept.at(client.format), kept.stored, n_requests)(whole))


def _read_in_child(answers: Connection, name: str, kept: Kept, n_requests: int) -> None:
    """Say what is held before the read; read; say what was held at most; wait to be dismissed."""
    if client := CLIENTS.get(name):
        for package in client.packages:
            importlib.import_module(package)
        readers.forget_clients(client.config(n_requests))
    with credentials(kept.stored.location):  # the server of processes has those of its start
        forget_peak()
        answers.send(peak_nbytes())
        found = _digest_whole(name, kept, n_requests)
        answers.send((peak_nbytes(), found))
    answers.recv()


def read_apart(name: str, kept: Kept, *, n_requests: int, limit_nbytes: float = 0) -> Held:
    """Read the whole array in a process of its own, and kill it if it adds more than a limit.

    The limit is on resident memory, as that of a container or of a Dask worker. The system keeps
    the peak of the process, so what is held between two looks counts too; a process that is done
    stays until it was looked at.

    Raises
    ------
    CheckError
        If the process ends by itself, or reads other values than were written.
    UserError
        If it is not done in five minutes.
    """
    server = multiprocessing.get_context("forkserver")  # which imports once what each child needs
    server.set_forkserver_preload([__name__])
    here, there = server.Pipe()
    given = (there, name, kept, n_requests)
    child = server.Process(target=_read_in_child, args=given, daemon=True)
    child.start()
    there.close()
    deadline = time.monotonic() + _PATIENCE_S
    try:
        before = here.recv()
        while not here.poll(_LOOK_EVERY_S if limit_nbytes else _PATIENCE_S):
            if time.monotonic() > deadline:
                raise UserError(
                    f"{name}: not done in {_PATIENCE_S:g} s; allowed: a store that answers"
                )
            if peak_nbytes(child.pid) - before > limit_nbytes:
                return Held(peak_nbytes(child.pid) - before, is_killed=True)
        most, found = here.recv()
        here.send("dismissed")
        child.join()
    except EOFError:
        child.join()
        raise CheckError(f"{name}: its process ended with exit code {child.exitcode}") from None
    finally:
        child.kill()
        child.join()
        here.close()
    if found != kept.digests["whole"]:
        raise CheckError(f"{name} reads other values than were written")
    return Held(most - before, is_killed=0 < limit_nbytes < most - before)


def measure(names: Sequence[str], kept: Kept, *, n_requests: int) -> dict[str, Held]:
    """Read the whole array by each client once, without the network, each in a process of its own."""
    read: Callable[[str], Held] = partial(read_apart, kept=kept, n_requests=n_requests)
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return dict(zip(names, pool.map(read, names), strict=True))


def limit(kept: Kept, limit_mb: float, seen: Mapping[str, Held]) -> pd.DataFrame:
    """Read the single Parquet file at once and by row groups, both free and under a limit.

    What a client was `seen` to add without a limit is not measured once more.

    Returns
    -------
    DataFrame
        By way: what it adds without a limit (MB), that over the bytes of the array, the limit
        (MB), and what happened under it. Without a limit it is empty.
    """
    lines = []
    for name in (AT_ONCE, BY_GROUP) if limit_mb else ():
        free = (seen.get(name) or read_apart(name, kept, n_requests=1)).added_nbytes
        held = read_apart(name, kept, n_requests=1, limit_nbytes=1e6 * limit_mb)
        told = "killed" if held.is_killed else "reads every value"
        lines.append((name, free / 1e6, free / kept.stored.nbytes, limit_mb, told))
    names = ["read", "wants MB", "over the array's bytes", "limit MB", "under the limit"]
    return pd.DataFrame(lines, columns=names).set_index("read")
