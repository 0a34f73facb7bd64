"""A new reader is one file: studies, figures and tables find it, and no list names it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.paths import RENDERED, ROOT
from helpers.registry import REGISTRIES, Registry, leave_out, list_missing
from studies.cluster_studies.sources import SOURCES
from studies.formats.readers import FORMAT_READERS
from studies.hdf5_drivers.drivers import DRIVERS, Driver
from tests.refusals import refused
from wire.errors import UserError

NEW = """
from helpers.arrays.readers import READERS, ArrayReader

READERS.register(
    ArrayReader(
        name="zarr-lorem",
        label="lorem",
        color="#4a4a4a",
        marker="8",
        layout="zarr",
        open=READERS["zarr-obstore"].open,
        description="Zarr v3 through lorem",
        packages=("lorem_ipsum",),
    )
)
"""

USED = """
import json, sys
import helpers.arrays.readers
helpers.arrays.readers.__path__.append(sys.argv[1])
import pandas as pd
from helpers.plotting import palette
from helpers.plotting.tables import show
from studies.cluster_scaling.parameters import Parameters as Scaling
from studies.cluster_studies.parameters import Parameters as Clusters
from studies.cluster_studies.sources import SOURCES
from studies.formats import workload
from studies.formats.parameters import Parameters as Formats
from studies.formats.readers import FORMAT_READERS
where = {"n_workers": [1]}
for model in (Scaling, Clusters, Formats):
    model.check({"contenders": ["zarr-lorem"]}, "test")
style = palette.find_style("zarr-lorem", "reader")
table = show(pd.DataFrame({"s": [1]}, ["zarr-lorem"]), kind="reader")
print(json.dumps({
    "style": [style.label, style.color, style.marker],
    "table": [*getattr(table, "data", table).index],
    "labels": [FORMAT_READERS.labels()["zarr-lorem"], SOURCES["zarr-lorem"].label],
    "missing": workload.list_missing(["zarr-lorem", "zarr-obstore"]),
}))
"""


def test_a_new_reader_is_one_file(tmp_path: Path) -> None:
    """Parameters of three studies allow it, figures draw it, tables spell it, and what it lacks is named."""
    (tmp_path / "lorem.py").write_text(NEW)
    command = [sys.executable, "-c", USED, str(tmp_path)]
    used = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not used.returncode, used.stderr
    assert json.loads(used.stdout.splitlines()[-1]) == {
        "style": ["lorem", "#4a4a4a", "8"],
        "table": ["lorem"],
        "labels": ["Zarr, lorem", "Zarr, lorem"],
        "missing": {"zarr-lorem": "pip install lorem_ipsum"},
    }


def test_a_name_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of two readers under one name could not be told apart."""
    monkeypatch.setattr("helpers.registry.REGISTRIES", dict(REGISTRIES))
    registry: Registry[Driver] = Registry("lorem", "studies.hdf5_drivers")
    registry.register(DRIVERS["xarray"])
    with refused("lorem", "^xarray is registered twice$", "."):
        registry.register(DRIVERS["xarray"])


def test_all_registries_hold_readers_by_their_names() -> None:
    """Each has a label, and packages of which all that are here can be imported."""
    for registry in (*REGISTRIES.values(), FORMAT_READERS, SOURCES):
        for name, reader in registry.items():
            assert reader.name == name and reader.label and reader.concurrency >= 0
            assert callable(reader.open) and callable(reader.read)
    assert list_missing(("numpy", "lorem_ipsum")) == ["lorem_ipsum"]


def test_a_page_that_is_rendered_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot run is left out of a measurement, and refused over a record."""
    absent = {"ros3 on original": "make ros3", "ros3 on front": "make ros3"}
    assert leave_out(absent) == absent
    monkeypatch.setenv(RENDERED, "1")
    assert leave_out({}) == {}
    with pytest.raises(UserError) as caught:
        leave_out(absent)
    text = str(caught.value)
    assert text.startswith("contenders: ros3 on original, ros3 on front cannot run here")
    assert text.endswith("allowed: all readers of the record (make ros3)") and "\n" not in text
