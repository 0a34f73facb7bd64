"""The notebook on a Dask Gateway: the same record as on this machine, by workers of the gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import papermill
import pytest

from helpers.benchmark import record
from helpers.paths import ROOT
from tests.conftest import Gateway

PARAMETERS: dict[str, Any] = {
    "array_shape": [2, 10, 90, 180],
    "chunk_shape": [1, 5, 90, 180],
    "contenders": ["zarr-obstore", "netcdf-fsspec"],
    "profile": "loopback",
    "n_workers": [1, 2],
    "n_blocks": 2,
    "time_budget_s": 3600.0,
}


def run(folder: Path, **parameters: Any) -> pd.DataFrame:
    """Run the notebook in a folder and read its record."""
    folder.mkdir()
    papermill.execute_notebook(
        ROOT / "notebooks" / "cluster-scaling.ipynb",
        folder / "out.ipynb",
        {**PARAMETERS, **parameters, "record": "record.csv"},
        cwd=folder,
        progress_bar=False,
    )
    return record.read_records([folder / "record.csv"])


@pytest.mark.slow
def test_record_is_the_same_on_a_gateway(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns, phases and contenders are those of the published, local run; the workers are really there."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path / "cache"))
    try:
        theirs = run(tmp_path / "there", cluster_kind="gateway", cluster_address=gateway.url)
    except papermill.PapermillExecutionError as error:
        error.add_note(gateway.log.read_text()[-5000:])  # why it may have given the cluster up
        raise
    phases = {"calibration": {"raw"}, "measured": {"raw", "control"}, "warm-up": {"raw"}}
    named = {*PARAMETERS["contenders"]}
    expected = {(phase, one) for phase, more in phases.items() for one in named | more}
    assert measured(theirs) == expected
    assert set(theirs["n_workers"]) == set(PARAMETERS["n_workers"])
    threads = theirs["trace"].map(lambda text: json.loads(text)["n_threads"])  # counted, not asked
    assert list(threads) == list(2 * theirs["n_workers"])
    notebook = nbformat.reads((tmp_path / "there" / "out.ipynb").read_text(), as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output["text"] for output in outputs if output.get("name") == "stderr"]


def measured(rows: pd.DataFrame) -> set[tuple[Any, ...]]:
    """Tell which contenders were measured in which phase."""
    return set(rows[["phase", "contender"]].itertuples(index=False, name=None))
