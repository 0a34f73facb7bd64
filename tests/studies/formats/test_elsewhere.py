"""Stores of others: those that open are read and held to their first reading, the others have a reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from helpers.benchmark.contender import CheckError
from helpers.book.cases import find_case, read_parameters
from helpers.paths import CATALOG
from studies.formats import elsewhere
from tests import stand_ins
from tests.helpers.arrays.test_catalog import STORES_OF_2020, redirect, serving

NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run an OPeNDAP server in the place of NOAA's; at ESGF's address nobody answers."""
    folder = tmp_path_factory.mktemp("catalog")
    with serving(str(folder)) as address:
        moved = {STORES_OF_2020["noaa-opendap"]: address, STORES_OF_2020["esgf-opendap"]: NOBODY}
        yield redirect(folder / "catalog.yml", moved)


def test_one_that_answers_is_read_and_the_other_has_its_reason(
    catalog: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map of the first is read and checked; the table holds both."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the user")
    known = elsewhere.describe(["noaa-opendap", "esgf-opendap"], catalog)
    assert known.loc["esgf-opendap", "reason"].startswith("ConnectionRefusedError")
    [(name, read)] = elsewhere.list_reads(known, catalog).items()
    assert name == "noaa-opendap"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the embedded store")
    seen: list[str | None] = []
    choose = elsewhere._choose_map
    monkeypatch.setattr(
        elsewhere,
        "_choose_map",
        lambda *place: [seen.append(os.environ.get("AWS_ACCESS_KEY_ID")), choose(*place)][1],
    )
    read.prepare()
    found = read.read(read.open())
    assert seen == ["of the user"] and "of the user" not in repr(read)
    np.testing.assert_array_equal(found, stand_ins.VARIABLES["sst"][0])
    assert read.nbytes()[0] == found.nbytes
    assert read.check(found) == f"xxh3 of {found.size} values"
    with pytest.raises(CheckError, match="noaa-opendap reads other values than at first"):
        read.check(found + 1)
    rows = pd.DataFrame(
        {"phase": "measured", "access": "map", "contender": name, "block": [0, 1, 2]}
    ).assign(open_s=0.5, read_s=2.0, throughput_mb_per_s=4.0)
    table = elsewhere.tabulate(rows, known)
    assert table.loc[name, ["open_s", "read_s", "throughput_mb_per_s"]].tolist() == [0.5, 2.0, 4.0]
    assert table.loc["esgf-opendap", "reason"] and pd.isna(table.loc["esgf-opendap", "read_s"])


def test_a_case_without_entries_asks_nobody() -> None:
    """No entry is not all entries."""
    known = elsewhere.describe([])
    assert known.empty and elsewhere.list_reads(known) == {}
    assert elsewhere.tabulate(pd.DataFrame({"phase": [], "access": []}), known).empty


def test_entries_are_those_of_2020() -> None:
    """Every entry that lies at an address of others can be named, and the case of a hub names all."""
    listed = yaml.safe_load(CATALOG.read_text())["entries"]
    far = {name for name, one in listed.items() if "endpoint" in one["metadata"]}
    assert {*elsewhere.ENTRIES} == far == {*STORES_OF_2020}
    asked = read_parameters(find_case("formats/stores-of-2020", "hub"))
    assert {*asked["entries"]} == far
