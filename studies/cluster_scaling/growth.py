"""A cluster on a laptop: as much work for each worker, at the network of 2020 and full scale.

`python -m studies.cluster_scaling.growth [PART...]` measures, one part after the other, and writes
the record that the page shows. Time is dilated as many times as there are workers, so that this
machine's processors are to each worker what its own would be. The part `long` is another thing: a
read and one of four times its bytes, in real time, over a link that decides.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import pandas as pd
from distributed.utils import get_mp_context

from helpers.arrays.clusters import Cluster, open_cluster
from helpers.arrays.readers import READERS
from helpers.arrays.reads import ArrayRead, RawRead
from helpers.arrays.stores import StoredArray, find_array
from helpers.benchmark.contender import Contender, contend
from helpers.benchmark.loop import Budget, measure_blocks, timed
from helpers.benchmark.provenance import describe, machine
from helpers.benchmark.record import Record
from helpers.errors import UserError
from helpers.netem.profiles import get_profile
from helpers.objectstore.testbed import Testbed
from helpers.paths import ROOT, cache_folder, replace_file
from helpers.plotting.tables import trace_of
from studies.cluster_scaling.findings import NETCDF, OF_2020
from studies.cluster_scaling.parameters import check_memory
from studies.cluster_scaling.prediction import predict, read_clients
from studies.cluster_scaling.validity import open_testbeds

RECORD = ROOT / "results" / "reference" / "growth.csv"
"""What was measured for this book."""

OBSTORE = "zarr-obstore"
LONG = "long"
N_THREADS = 2  # of a worker, as in 2020
_N_TASKS = 500  # that do nothing, to time the scheduler
_BUDGET_S = 3600.0
_PATIENCE = "600 s"
_SEED = 2020

PRELOADED = (
    "distributed", "helpers.arrays.reads", "studies.cluster_scaling.prediction",
    "studies.cluster_scaling.validity",
)  # fmt: skip
"""What workers share. Not this module: as the one that is run it would be there twice."""


@dataclass(frozen=True, slots=True)
class Part:
    """A cluster, and what it reads over one network."""

    n_workers: int
    contenders: tuple[str, ...] = ("raw", OBSTORE, OF_2020)
    profile: str = "in-region"
    dilation: float = 1.0
    waves: tuple[int, ...] = (5,)  # chunks that each thread reads, an array each
    chunk_shape: tuple[int, ...] = (1, 10, 360, 480)  # elements; 6.9 MB

    def shapes(self) -> dict[int, tuple[int, ...]]:
        """Tell the shape of the array for each number of waves."""
        n_threads = N_THREADS * self.n_workers
        return {waves: (waves * n_threads, *self.chunk_shape[1:]) for waves in self.waves}


def _dilated(n_workers: int, *more: str) -> Part:
    names = ("raw", OBSTORE, OF_2020, *more)
    return Part(n_workers, contenders=names, dilation=float(n_workers))


PARTS: Mapping[str, Part] = {
    "1": _dilated(1, NETCDF),
    "5": _dilated(5, NETCDF),
    LONG: Part(8, contenders=(OBSTORE,), profile="wide-area", waves=(10, 40)),
    "20": _dilated(20, NETCDF),  # the 40 threads of which the claim of tenfold speaks
    "64": _dilated(64),
}
"""What is measured, the smallest cluster first, because one cluster grows and nobody waits idle."""


def measure(
    parts: Mapping[str, Part] = PARTS, *, n_blocks: int = 3, record: Path = RECORD
) -> pd.DataFrame:
    """Measure parts, each in blocks of random order, and put each into the record when it is done.

    A part that was interrupted goes on where it was.
    """
    for part in parts.values():
        check_memory(part.n_workers, 4 * N_THREADS * math.prod(part.chunk_shape))
    rows = pd.DataFrame()
    with ExitStack() as stack:
        networks = [(get_profile(part.profile), part.dilation) for part in parts.values()]
        shapes = [shape for part in parts.values() for shape in part.shapes().values()]
        needed = 8 * sum(map(math.prod, shapes))
        beds = stack.enter_context(open_testbeds(networks, needed_nbytes=needed))
        stack.enter_context(_many_on_one_machine())
        cluster = stack.enter_context(open_cluster("local", threads_per_worker=N_THREADS))
        for (name, part), bed in zip(parts.items(), beds, strict=True):
            cluster.scale(part.n_workers)
            found = _measure_part(name, part, bed, cluster, n_blocks=n_blocks)
            rows = _keep(record, found.assign(part=name))
    return rows


@contextmanager
def _many_on_one_machine() -> Iterator[None]:
    """Let workers be forks of one process that has imported what they read with.

    An interpreter that starts by itself takes seconds of a processor for its imports and 0.3 GB,
    which 64 would not share. Dask would look at each a hundred times a second, and wake it fifty
    times. Who is slow because all take turns is not gone.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    settings = {"worker.multiprocessing-method": method, "worker.profile.enabled": False}
    settings |= dict.fromkeys(("comm.timeouts.connect", "comm.timeouts.tcp"), _PATIENCE)
    settings |= {"scheduler.worker-ttl": _PATIENCE, "admin.tick.interval": "1 s"}
    settings |= {"admin.system-monitor.interval": "10 s"}
    with dask.config.set({f"distributed.{name}": value for name, value in settings.items()}):
        context = get_mp_context()  # type: ignore[no-untyped-call]  # with Dask's own list, once
        context.set_forkserver_preload([*PRELOADED])
        yield


def _measure_part(
    name: str, part: Part, bed: Testbed, cluster: Cluster, *, n_blocks: int
) -> pd.DataFrame:
    """Read without a network, to predict and to warm up, then over the network."""
    profile, shown = get_profile(part.profile), machine()
    asked = {"dilation": part.dilation, "part": name, "profile": part.profile}
    asked |= {"n_workers": part.n_workers, "waves": part.waves, "chunk_shape": part.chunk_shape}
    path = cache_folder() / "growth" / f"{name}.csv"
    secrets = bed.far.secrets
    file = Record(path, study="cluster-scaling", provenance=describe(asked), secrets=secrets)
    rule = {"seed": _SEED, "budget": Budget(_BUDGET_S), "target_width": 1e-9, "n_warm_ups": 0}
    task_s, frames = _time_task_s(), []
    for waves, shape in part.shapes().items():
        stored, planned = _plan(part, waves, shape, bed, cluster)
        bed.emulate(get_profile("loopback"))
        once = {"n_blocks": 1, "n_warm_ups": 1, "phase": "calibration"}
        calibrated = measure_blocks(planned, file, **(rule | once))  # type: ignore[arg-type]
        calibrated = calibrated[calibrated["waves"] == waves]
        clients = read_clients(calibrated, READERS, n_chunks=stored.n_chunks)
        expected = predict(clients, profile, [part.n_workers], stored).set_index("contender")
        bed.emulate(profile)
        measured = measure_blocks(planned, file, n_blocks=n_blocks, **rule)  # type: ignore[arg-type]
        measured = measured[measured["waves"] == waves]
        free = calibrated[calibrated["phase"] == "calibration"]
        free_s = free.groupby("contender")["real_read_s"].median()
        frames.append(
            measured.assign(
                n_chunks=stored.n_chunks,
                in_flight=trace_of(measured)["mean_in_flight"],
                predicted_s=measured["contender"].map(expected["read_s"]),
                limit=measured["contender"].map(expected["limit"]),
                # of the real time, what the same read takes without a network
                processors=measured["contender"].map(free_s) / measured["real_read_s"],
            )
        )
    facts: dict[str, Any] = {
        "profile": part.profile,
        "task_s": task_s,
        "threads": N_THREADS * part.n_workers,
    }
    facts |= {"machine": f"{shown['n_cores']} cores, {shown['cpu']}", "n_cores": shown["n_cores"]}
    return pd.concat(frames).assign(**facts, measured=datetime.now(UTC).date().isoformat())


def _plan(
    part: Part, waves: int, shape: tuple[int, ...], bed: Testbed, cluster: Cluster
) -> tuple[StoredArray, list[Contender]]:
    """Find the array, or make it, and list the ways to read it."""
    names = [name for name in part.contenders if name != "raw"]
    stored = find_array(
        "enlarged-ocean-temperature",
        bed.near,
        shape=shape,
        chunk_shape=part.chunk_shape,
        codec="blosc-zstd",
        layouts=sorted({READERS[name].layout for name in names} | {"zarr"}),
        seed=_SEED,
    )
    n_threads = N_THREADS * part.n_workers
    facts = {"concurrency": n_threads}
    point = {"n_workers": part.n_workers, "waves": waves}
    planned = [
        contend(name, ArrayRead(stored, READERS[name], bed, cluster), point=point, settings=facts)
        for name in names
    ]
    if "raw" in part.contenders:
        raw = RawRead.of_array(stored, bed, n_connections=n_threads)
        planned.append(contend("raw", raw, point=point, settings=facts, is_ceiling=True))
    return stored, planned


def _time_task_s() -> float:
    """Time a task that does nothing, with all that a scheduler does for it, in real seconds."""
    for _ in range(2):  # the first pays for imports
        nothing = da.zeros(_N_TASKS, chunks=1, dtype="u1")
        _, seconds = timed(nothing.compute)
    return seconds / _N_TASKS


_KEPT = (
    "part", "contender", "n_workers", "threads", "waves", "block", "profile", "dilation", "open_s",
    "read_s", "real_read_s", "predicted_s", "limit", "processors", "in_flight", "array_nbytes",
    "stored_nbytes", "wire_nbytes", "n_requests", "n_chunks", "task_s", "n_cores", "machine",
    "measured",
)  # fmt: skip


def _keep(record: Path, found: pd.DataFrame) -> pd.DataFrame:
    """Put the rows of a part in the place of its older ones."""
    rows = found[found["phase"] == "measured"][[*_KEPT]]
    if record.exists():
        older = pd.read_csv(record, dtype={"part": str})
        if {*older["machine"]} != {*rows["machine"]}:
            raise UserError(f"{record.name}: made on another machine; move it away first")
        rows = pd.concat([older[older["part"] != rows["part"].iloc[0]], rows])
    rows = rows.sort_values(["profile", "n_workers", "waves", "contender", "block"])
    replace_file(record, rows.to_csv(index=False, lineterminator="\n", float_format="%.6g"))
    return rows


def main(names: Sequence[str]) -> None:
    """Measure the parts that are named, or all."""
    if unknown := [name for name in names if name not in PARTS]:
        raise UserError(f"part: {unknown[0]}; allowed: {', '.join(PARTS)}")
    print(measure({name: PARTS[name] for name in PARTS if name in names or not names}).to_string())


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as refused:
        sys.exit(str(refused))
