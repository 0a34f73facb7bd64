"""Workers as jobs of a real Slurm, where one runs; what is refused, everywhere."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from helpers.arrays.clusters import open_cluster
from helpers.arrays.slurm import parse_options
from helpers.errors import UserError


def _has_slurm() -> bool:
    """Tell whether a node here takes jobs."""
    if not shutil.which("sinfo"):
        return False
    asked = subprocess.run(
        ["sinfo", "--noheader", "--states=idle,mixed"],
        capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    return asked.returncode == 0 and bool(asked.stdout.strip())


def count_jobs() -> int:
    """Count the jobs of Slurm that are queued or run."""
    told = subprocess.run(["squeue", "--noheader"], capture_output=True, text=True, check=True)
    return len(told.stdout.splitlines())


@pytest.mark.skipif(not _has_slurm(), reason="no node of Slurm takes jobs here")
def test_workers_are_jobs_and_end_with_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of one thread computes in a job, and no job and no file is left."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    monkeypatch.chdir(tmp_path)
    options = ["memory=1GB", "walltime=00:05:00"]
    with open_cluster("slurm", threads_per_worker=1, options=options, deadline_s=120) as cluster:
        assert cluster.scale(1) == 1
        assert cluster.client.submit(sum, [1, 2, 3]).result() == 6
        assert cluster.describe()["cluster_kind"] == "slurm"
        assert count_jobs() >= 1
    until = time.monotonic() + 60
    while count_jobs() and time.monotonic() < until:
        time.sleep(0.5)
    assert count_jobs() == 0
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("given", ["queue", "queue=", "=x", "cores=4", "memory 4GB"])
def test_other_options_are_refused(given: str) -> None:
    """One line names what may be asked."""
    with pytest.raises(UserError, match="allowed: queue=…, account=…"):
        parse_options([given])


def test_options_belong_to_slurm() -> None:
    """Elsewhere they would be passed over without a word."""
    with pytest.raises(UserError, match="allowed: none but with slurm and gateway"):  # noqa: SIM117
        with open_cluster("local", threads_per_worker=1, options=["queue=a"]):
            pass


def test_without_slurm_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a scheduler is started."""
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="there is no sbatch here"):  # noqa: SIM117
        with open_cluster("slurm", threads_per_worker=1):
            pass
