"""Every source of the two studies is read right, wrong values are found, and what cannot be read has a reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.arrays.clusters import Cluster, open_cluster
from helpers.arrays.readers import READERS
from helpers.arrays.stores import Entry, StoredArray
from helpers.benchmark.contender import CheckError
from studies.cluster_studies import apart, findings, opendap
from studies.cluster_studies.parameters import Parameters
from studies.cluster_studies.sources import (
    ENTRIES,
    SOURCES,
    TABLES,
    SourceRead,
    limit_link,
    make_layouts,
)
from studies.cluster_studies.sources.long_files import count_tasks
from studies.cluster_studies.workload import ClusterWorkload
from tests.refusals import refused
from tests.stores import make_location, make_stored
from wire.bed.networks import get_profile
from wire.bed.proxy import open_proxy
from wire.bed.testbed import Server, Testbed


@dataclass
class Place:
    """An array in every layout, and who reads it."""

    array: StoredArray
    entries: dict[str, Entry]
    cluster: Cluster
    testbeds: dict[bool, Testbed]  # by whether it is the server's

    def read(self, name: str, **wrong: Any) -> tuple[str, dict[str, float]]:
        """Read a source in the steps of a measurement; `wrong` replaces what it is held to."""
        one = SOURCES[name]
        testbed = self.testbeds[one.layout == "opendap"]
        made = self.entries.get(one.layout)
        way = SourceRead(self.array, one.reader, testbed, self.cluster, one, made)
        way = replace(way, **wrong)
        way.prepare()
        result = way.open().compute()
        counts = way.collect()
        return way.check(result), counts


@pytest.fixture(scope="module")
def place(server: Server) -> Iterator[Place]:
    """Make every layout of a small array, with a worker, a proxy and a server of OPeNDAP."""
    stored = make_stored(make_location(server, "cluster-studies"), layouts=["zarr", "netcdf"])
    array, network = opendap.serve_layout(stored), get_profile("loopback")
    with ExitStack() as stack:
        proxy = stack.enter_context(open_proxy(server.endpoint_url, profile=network))
        far = stored.location.through(proxy.endpoint_url)
        testbeds = {False: Testbed(stored.location, far, proxy)}
        testbeds[True] = stack.enter_context(opendap.open_service(array, network, seed=0))
        cluster = stack.enter_context(open_cluster("local", threads_per_worker=2))
        cluster.scale(1)
        yield Place(array, make_layouts(array, [*TABLES]), cluster, testbeds)


@pytest.mark.parametrize("name", [name for name in SOURCES if not SOURCES[name].link_mb_per_s])
def test_every_source_gives_what_was_written(place: Place, name: str) -> None:
    """Each chunk, or each row, over a network that counts its requests."""
    told, counts = place.read(name)
    table = (3 * 6 * 10 * 80, "sums of bits of 14400 rows")
    assert told.startswith(table[1]) if SOURCES[name].is_table else told == "xxh3 of 12 chunks"
    assert counts["n_requests"] > 0
    assert counts["n_failed_requests"] == 0


def test_each_worker_is_a_machine_of_its_own() -> None:
    """CPUs that count are those of each worker, so this machine has to give as many times more."""
    case = {"contenders": [], "entries": ["cesm"], "n_workers": [1, 3], "threads_per_worker": 2}
    absent: Any = {"cesm": {"reason": "nobody answers"}}
    nothing: Any = None
    workload = ClusterWorkload(
        case | {"dilation_per_worker": 1.0}, nothing, nothing, {}, {}, {}, absent
    )
    planned = workload.make_contenders(None)
    assert [contender.n_machines for contender in planned] == [1, 3, 3]


def test_wrong_values_are_found(place: Place) -> None:
    """A chunk or a sum that differs is an error, and no row."""
    wrong = place.array.checksums.copy()
    wrong[0, 0, 0, 0] += 1
    for name in ("opendap", "tiledb", "zarr-array"):
        with pytest.raises(CheckError, match="1 of 12 chunks differ"):
            place.read(name, stored=replace(place.array, checksums=wrong))
    made = place.entries["csv"]
    sums = [*made.facts["sums"][:-1], made.facts["sums"][-1] + 1]
    with pytest.raises(CheckError, match="csv reads other rows"):
        place.read("csv", entry=replace(made, facts={"sums": sums}))


def test_slices_of_the_server_are_right(place: Place) -> None:
    """Boxes at random, by the netCDF library: what other servers of the kind give wrong."""
    address = place.testbeds[True].far
    dataset = opendap.OPENDAP.open(address, None)
    values = READERS["zarr-obstore"].open(place.array.locate("zarr"), None)["temperature"]
    draw = np.random.default_rng(0)
    for _ in range(20):
        ends = [np.sort(draw.choice(n + 1, 2, replace=False)) for n in place.array.shape]
        box = tuple(slice(int(a), int(b), int(draw.integers(1, 4))) for a, b in ends)
        assert np.array_equal(dataset["temperature"][box], values[box])


def test_one_parquet_file_is_let_under_a_wide_limit(place: Place) -> None:
    """Whole or by groups, both are let; no process is ended here."""
    folder, made = place.array.location / "tables" / "parquet", place.entries["parquet"]
    for how in ("whole", "groups"):
        way = apart.ParquetApart(folder, made, how, held_nbytes=1_000_000)
        assert way.check(way.read(None)) == "sums of bits of 14400 rows"
        with pytest.raises(CheckError, match=f"one Parquet file, {how}"):
            replace(way, entry=replace(made, facts={"sums": []})).check([1])
    assert way.check(apart.ENDED) == apart.ENDED


def test_one_parquet_file_may_end_its_process(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C++ aborts where it cannot allocate, which is a row; an error of another kind is told."""
    folder, made = place.array.location / "tables" / "parquet", place.entries["parquet"]
    way = apart.ParquetApart(folder, made, "whole", held_nbytes=1_000_000)
    python = tmp_path / "python"
    monkeypatch.setattr(apart, "sys", SimpleNamespace(executable=str(python)))
    for does, told in {
        "kill -ABRT $$": apart.ENDED,
        "echo no such file; exit 1": "no such file",
    }.items():
        python.write_text(f"#!/bin/sh\n{does}\n")
        python.chmod(0o755)
        assert way.read(None) == told
    with pytest.raises(CheckError, match="no such file"):
        way.check(told)


def test_what_cannot_be_reached_is_a_row_with_its_reason(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that is not set, a package that is not there, a host that is none; never an end."""
    monkeypatch.setattr(apart, "PATIENCE_S", 40.0)
    for variable in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    names = ["wasabi-temperature", "ecco-temperature", "osn-precipitation"]
    tried = apart.try_entries(names)
    assert "ARRAYS_WASABI_URL" in tried["wasabi-temperature"]["reason"]
    assert "xmitgcm" in tried["ecco-temperature"]["reason"]
    for name in names:
        assert tried[name]["reason"]
        way = apart.EntryRead(name, tried[name], place.cluster, 6)
        way.prepare()
        assert way.check(way.read(way.open())) == "absent"
        assert way.collect() == {"absent": tried[name]["reason"]}
        assert way.nbytes() == (0, 0)


def test_entries_are_those_of_the_catalogue() -> None:
    """The case of a hub names all eight, which the parameters find."""
    assert len(ENTRIES) == 8
    Parameters.check({"contenders": [], "entries": [*ENTRIES]}, "a case")
    with refused("a case: dataset", "^'nothing'$"):
        Parameters.check({"entries": ["nothing"]}, "a case")


@pytest.mark.parametrize(
    ("given", "where", "allowed"),
    [
        ({"contenders": []}, "contenders", "^at least one"),
        ({"store": "s3://bucket/a", "profile": "loopback"}, "contenders", "^none but entries"),
        ({"contenders": ["csv"], "steps_per_worker": 1, "array_shape": [2, 1, 180, 360]},
         "steps_per_worker", "as a table"),
        ({"contenders": ["zarr-2020"], "steps_per_worker": 2}, "steps_per_worker", "^together at most 1"),
    ],
)  # fmt: skip
def test_parameters_that_do_not_fit_are_refused(
    given: dict[str, Any], where: str, allowed: str
) -> None:
    """One line says what is allowed."""
    with refused(f"a case: {where}", allowed=allowed):
        Parameters.check(given, "a case")


def test_a_link_carries_array_bytes(place: Place) -> None:
    """A store that gave 2 GB/s of array sent fewer over the wire, by what Zarr compresses."""
    network, array = get_profile("google-in-region"), place.array
    assert limit_link(network, array, 0) is network
    share = array.stored_nbytes["zarr"] / array.nbytes
    assert limit_link(network, array, 2000).aggregate_mb_per_s == pytest.approx(2000 * share)


def make_rows(seconds: dict[tuple[str, int], float]) -> pd.DataFrame:
    """Make rows of five blocks that spread a little, with a control of the first."""
    lines = []
    for block, off in enumerate((1.0, 1.02, 0.98, 1.01, 0.99)):
        for (name, n), one in seconds.items():
            line = {"contender": name, "n_workers": n, "block": block, "control_of": ""}
            lines.append(line | {"phase": "measured", "s_per_gb": one * off})
        first, n = [*seconds][-1]
        again = {"contender": "control", "n_workers": n, "block": block, "control_of": first}
        lines.append(again | {"phase": "measured", "s_per_gb": seconds[first, n] * off * off})
    return pd.DataFrame(lines)


def test_sides_are_compared_next_to_what_was_published() -> None:
    """Ratios of sources and of sizes, with the published ones of the nearest threads."""
    rows = make_rows({("zarr-2020", 1): 2.0, ("netcdf-2020", 2): 9.0, ("zarr-2020", 2): 1.0})
    asked = {
        "ratio": (("netcdf-2020", 2), ("zarr-2020", 2)),
        "growth": (("zarr-2020", 1), ("zarr-2020", 2)),
        "not measured": (("opendap", 2), ("zarr-2020", 2)),
    }
    found = findings.compare_sides(rows, asked)
    assert {*found} == {"ratio", "growth"}
    assert found["ratio"].ratio.centre == pytest.approx(9)
    assert found["ratio"].quantity == "netcdf-2020 at 2 over zarr-2020 at 2, s_per_gb"
    assert found["growth"].verdict == "slower"
    table = findings.tabulate_answers(found)
    assert table["published"].isna().tolist() == [True, True]  # nobody published four threads
    assert next(iter(table.index)) == "netCDF, client of 2020 at 2 over Zarr, client of 2020 at 2"
    forty = make_rows({("netcdf-2020", 20): 9.0, ("zarr-2020", 20): 1.0})
    found |= findings.compare_sides(forty, {"forty": (("netcdf-2020", 20), ("zarr-2020", 20))})
    assert 4 <= findings.tabulate_answers(found)["published"].iloc[-1] <= 10
    today = {"today": (("zarr-today", 2), ("zarr-2020", 2))}
    other = make_rows({("zarr-today", 2): 2.0, ("zarr-2020", 2): 1.0})
    assert findings.tabulate_answers(findings.compare_sides(other, today))["published"].isna().all()
    bounds = {"tenfold": ("ratio", 5.0, 20.0), "grows": ("growth", 2.5, 3.0), "none": ("x", 0, 1)}
    claims = findings.judge_claims(found, bounds)
    assert {name: bool(one.holds) for name, one in claims.items()} == {
        "tenfold": True,
        "grows": False,
    }


def test_a_file_a_task_makes_fewer_tasks(place: Place) -> None:
    """Stored chunks as tasks are more, counted without opening anything on the cluster."""
    settings = {"contenders": ["long-recipe", "long-stored-chunks", "long-tasks"]}
    nothing: Any = None
    workload = ClusterWorkload(settings, nothing, place.array, {}, {}, {}, {})
    counts = count_tasks(workload)["n_tasks"]
    assert counts["long-recipe"] < counts["long-stored-chunks"]
    assert len(counts) == 3
