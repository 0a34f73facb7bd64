"""Parameters that no study can run with are refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.book.parameters import GLOSSARY, check_parameters, complete_parameters, read_defaults
from helpers.errors import UserError
from helpers.paths import ROOT

NOTEBOOK = ROOT / "notebooks" / "cluster-scaling.ipynb"

REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"n_worker": [1]}, ["n_worker", "[1]", "n_workers"]),  # a name that does not exist
    ({"n_workers": "4"}, ["n_workers", "'4'", "list"]),  # wrong type
    ({"n_workers": [1, "2"]}, ["n_workers", "'2'", "integer"]),  # wrong type inside a list
    ({"n_workers": [0]}, ["n_workers", "0", "greater than or equal to 1"]),  # zero
    ({"n_workers": []}, ["n_workers", "[]", "at least 1"]),  # nothing to measure
    ({"threads_per_worker": -2}, ["threads_per_worker", "-2"]),  # negative
    ({"n_blocks": 2.5}, ["n_blocks", "2.5", "integer"]),  # a fraction of a block
    ({"time_budget_s": 0}, ["time_budget_s", "0", "greater than 0"]),
    ({"seed": -1}, ["seed", "-1"]),
    ({"contenders": ["zarr"]}, ["contenders", "'zarr'", "zarr-obstore, "]),  # unknown format
    ({"codec": "gzip"}, ["codec", "'gzip'", "none, blosc-lz4, blosc-zstd"]),
    ({"profile": "moon"}, ["profile", "'moon'", "in-region"]),
    ({"cluster_kind": "slurm"}, ["cluster_kind", "'slurm'", "local, gateway, address"]),
    ({"dataset": "nothing"}, ["dataset", "'nothing'", "enlarged-ocean-temperature"]),
    ({"array_shape": [4, 4, 4]}, ["array_shape", "[4, 4, 4]", "at least 4"]),
    ({"chunk_shape": [1, 5, 999, 240]}, ["chunk_shape", "[1, 5, 999, 240]", "array_shape"]),
    ({"chunk_shape": [1, 0, 10, 10]}, ["chunk_shape", "0"]),
    (  # workers that cannot reach the store
        {"cluster_kind": "gateway", "cluster_address": "https://hub.example.org/gateway"},
        ["store", "'embedded'", "hub.example.org", "s3://BUCKET/PREFIX"],
    ),
    ({"cluster_kind": "address", "cluster_address": "tcp://10.0.0.7:8786"}, ["store", "10.0.0.7"]),
    ({"store": "s3://mine/x", "profile": "in-region"}, ["profile", "'in-region'", "loopback"]),
    ({"record": "../away.csv"}, ["record", "'../away.csv'", "NAME.csv"]),
]


@pytest.mark.parametrize(("overrides", "words"), REFUSED, ids=lambda value: str(value)[:40])
def test_bad_values_are_named(overrides: dict[str, Any], words: list[str]) -> None:
    """The message is one line with parameter, value and what is allowed."""
    with pytest.raises(UserError) as caught:
        complete_parameters(NOTEBOOK, overrides, "parameters/laptop/cluster-scaling/mine.yaml")
    message = str(caught.value)
    assert "\n" not in message
    assert "allowed" in message
    assert all(word in message for word in words), message


def test_defaults_are_accepted() -> None:
    """A notebook's own defaults pass its checks."""
    check_parameters(read_defaults(NOTEBOOK))


def test_every_notebook_declares_known_parameters() -> None:
    """No notebook has a parameter that the glossary does not explain."""
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert set(read_defaults(notebook)) <= set(GLOSSARY)


def test_a_notebook_without_parameters_is_refused(tmp_path: Path) -> None:
    """A notebook must say what it can be asked."""
    path = tmp_path / "empty.ipynb"
    path.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    with pytest.raises(UserError, match="tagged parameters"):
        read_defaults(path)
