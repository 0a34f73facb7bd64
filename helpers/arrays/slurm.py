"""Dask on a cluster with the Slurm workload manager: a job a worker, by dask-jobqueue."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from helpers.arrays.connections import make_certificates
from helpers.errors import UserError, show

OPTIONS = {
    "queue": "partition that jobs go to",
    "account": "what their time is charged to",
    "walltime": "that each may take, HH:MM:SS",
    "memory": "of each, such as 4GB",
    "interface": "network between workers and scheduler, such as ib0",
}
"""What may be asked of Slurm, and what each says."""

_DEFAULTS = {"walltime": "00:30:00", "memory": "4GB"}


def parse_options(
    given: Sequence[str], allowed: Collection[str] | None = tuple(OPTIONS)
) -> dict[str, str]:
    """Read options that are written as NAME=VALUE; any name where `allowed` is None.

    Examples
    --------
    >>> parse_options(["queue=compute", "walltime=01:00:00"])
    {'queue': 'compute', 'walltime': '01:00:00'}
    """
    found = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not (name and sign and value) or (allowed is not None and name not in allowed):
            words = ", ".join(f"{name}=…" for name in allowed or ("NAME",))
            raise UserError(f"cluster_options: {show(one)}; allowed: {words}")
        found[name] = value
    return found


@contextmanager
def start_slurm_cluster(given: Sequence[str], *, threads_per_worker: int) -> Iterator[Any]:
    """Start a scheduler here, whose workers will be jobs of Slurm; all end with the context.

    Scheduler and workers know one another by a certificate, which lies in a folder that only
    its owner reads, below the working folder: all nodes have to see it.
    """
    jobqueue = _import_jobqueue()
    if not shutil.which("sbatch"):
        raise UserError(
            "cluster_kind: slurm; there is no sbatch here; allowed: on a node from which jobs"
            " can be submitted"
        )
    options = {**_DEFAULTS, **parse_options(given)}
    with TemporaryDirectory(prefix=".slurm-", dir=Path.cwd()) as shared:
        try:
            backend = jobqueue.SLURMCluster(
                cores=threads_per_worker,
                processes=1,
                n_workers=0,
                protocol="tls://",
                security=make_certificates(Path(shared)),
                shared_temp_directory=shared,
                log_directory=shared,
                scheduler_options={"dashboard": False},
                **options,
            )
        except (ValueError, RuntimeError, OSError) as error:
            raise UserError(
                f"cluster_options: {', '.join(given) or 'none'}; {str(error).splitlines()[0]};"
                " allowed: what this cluster offers"
            ) from error
        with backend:
            yield backend


def _import_jobqueue() -> Any:
    try:
        import dask_jobqueue  # only high-performance centres need it
    except ImportError as error:
        raise UserError(
            "cluster_kind: slurm; the package dask-jobqueue is not installed;"
            " allowed: after `pip install '.[hpc]'`"
        ) from error
    return dask_jobqueue
