"""The notebook on a Dask Gateway: the same record as on this machine, by workers of the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import papermill
import pytest

from helpers.paths import ROOT
from tests.conftest import Gateway

PARAMETERS: dict[str, Any] = {
    "array_shape": [2, 10, 90, 180],
    "chunk_shape": [1, 5, 90, 180],
    "contenders": ["zarr-obstore", "netcdf-fsspec"],
    "profile": "loopback",
    "n_workers": [1, 2],
    "n_blocks": 2,
    "time_budget_s": 120.0,
}


def run(folder: Path, **parameters: Any) -> pd.DataFrame:
    """Run the notebook in a folder and read its record."""
    papermill.execute_notebook(
        ROOT / "notebooks" / "cluster-scaling.ipynb",
        folder / "out.ipynb",
        {**PARAMETERS, **parameters, "record": "record.csv"},
        cwd=folder,
        progress_bar=False,
    )
    return pd.read_csv(folder / "record.csv", comment="#")


def test_record_is_the_same_on_a_gateway(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, columns and contenders do not depend on the cluster; its kind does."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path / "cache"))
    records = {}
    for kind, address in (("local", ""), ("gateway", gateway.url)):
        folder = tmp_path / kind
        folder.mkdir()
        records[kind] = run(folder, cluster_kind=kind, cluster_address=address)
    ours, theirs = records["local"], records["gateway"]
    assert list(theirs.columns) == list(ours.columns)
    keys = ["phase", "contender", "n_workers", "concurrency"]
    assert set(theirs[keys].itertuples(index=False)) == set(ours[keys].itertuples(index=False))
    assert set(theirs["contender"]) >= set(PARAMETERS["contenders"])
    text = nbformat.reads((tmp_path / "gateway" / "out.ipynb").read_text(), as_version=4)
    assert not [output for cell in text.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
