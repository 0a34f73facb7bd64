"""A cluster on a laptop, and one process with many requests: what is read, told and refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

import distributed
import pandas as pd
import pytest

from helpers.arrays.clusters import Cluster
from helpers.benchmark.record import read_published
from helpers.errors import UserError
from helpers.netem.profiles import FirstByte, Profile
from studies.cluster_scaling import growth, laptop, one_process
from studies.cluster_scaling.findings import NETCDF, OF_2020

FAST = Profile("fast", FirstByte(0.002, 0.002), stream_mb_per_s=200.0)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path / "cache"))


@contextmanager
def open_threads(_kind: str, *, threads_per_worker: int) -> Iterator[Cluster]:
    """Open a cluster whose workers are threads of this process, which start at once."""
    with (
        distributed.LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=0,
            processes=False,
            threads_per_worker=threads_per_worker,
            dashboard_address=":0",
            protocol="inproc://",
        ) as backend,
        distributed.Client(backend) as client,  # type: ignore[no-untyped-call]
    ):
        yield Cluster("local", client, threads_per_worker, backend.scale)


def test_a_part_is_measured_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster reads each array over its network, dilated, and what is measured is not measured again."""
    monkeypatch.setattr(growth, "open_cluster", open_threads)
    monkeypatch.setattr(growth, "_N_TASKS", 10)
    tiny = growth.Part(
        1, contenders=("raw", growth.OBSTORE), profile="express", dilation=2.0, waves=(1, 4),
        chunk_shape=(1, 1, 45, 60),
    )  # fmt: skip
    record = tmp_path / "growth.csv"
    rows = growth.measure({"1": tiny}, n_blocks=1, record=record)
    assert sorted(zip(rows["contender"], rows["waves"], rows["n_chunks"], strict=True)) == [
        ("raw", 1, 2), ("raw", 4, 8), ("zarr-obstore", 1, 2), ("zarr-obstore", 4, 8),
    ]  # fmt: skip
    assert (rows["real_read_s"] / rows["read_s"]).round(6).eq(2).all()
    assert rows["predicted_s"].gt(0).all() and rows["task_s"].gt(0).all()
    kept = pd.read_csv(record, dtype={"part": str})
    assert len(kept) == 4 and {*kept.columns} == {*rows.columns}
    other = growth._keep(record, rows.assign(part="2", phase="measured", n_workers=2))
    assert {*other["part"]} == {"1", "2"}, "other parts stay"
    with pytest.raises(UserError, match="made on another machine; move it away first"):
        growth._keep(record, rows.assign(machine="another", phase="measured"))


def test_what_cannot_be_measured_is_refused() -> None:
    """Unknown names, nothing to read and more workers than memory carries: a line each."""
    with pytest.raises(UserError, match="^part: 2; allowed: 1, 5, long, 20, 64$"):
        growth.main(["2"])
    with pytest.raises(UserError, match="^plan: x; allowed: in-flight, effects$"):
        one_process.main(["x"])
    with pytest.raises(UserError, match="^n_workers: 4000; each takes"):
        growth.measure({"x": growth.Part(4000)})
    assert growth.__name__ not in growth.PRELOADED, "runpy warns of it in each worker"
    with pytest.raises(UserError, match="^reads, n_rounds: 0, 1; allowed"):
        one_process.measure([], n_rounds=1)


def _make_growth() -> pd.DataFrame:
    """Make a record whose figures can be told by hand: twice the workers, 1.9 times the rate."""
    lines = []
    for n, name, block in product(
        (1, 5, 20, 64), ("raw", "zarr-obstore", OF_2020, NETCDF), range(3)
    ):
        if (n, name) != (64, NETCDF):
            rate = 100e6 * n * (0.1 if name == NETCDF else 1) * (1 + 0.001 * block)
            lines.append((str(n), name, n, 5, block, "in-region", n, 1e9 / rate, 1e9))
    for waves, nbytes, seconds in ((10, 1e9, 8.0), (40, 4e9, 32.0)):
        lines += [
            (growth.LONG, "zarr-obstore", 8, waves, block, "wide-area", 1, seconds, nbytes)
            for block in range(3)
        ]
    names = ["part", "contender", "n_workers", "waves", "block", "profile", "dilation", "read_s"]
    rows = pd.DataFrame(lines, columns=[*names, "array_nbytes"])
    facts = {"limit": "latency", "processors": 0.25, "task_s": 0.001, "n_cores": 2, "n_chunks": 100}
    facts |= {"n_requests": 100, "machine": "2 cores, X", "measured": "2026-01-02"}
    seen = {"predicted_s": rows["read_s"], "wire_nbytes": rows["array_nbytes"] / 2.1}
    return rows.assign(**facts, **seen)


def test_the_page_says_how_clusters_grow(tmp_path: Path) -> None:
    """Tables, verdicts and prices follow from the rows, and nothing is lost where there are none."""
    path, absent = tmp_path / "growth.csv", tmp_path / "absent.csv"
    for render in (laptop.render_growth, laptop.render_long):
        assert render(absent).startswith("Not measured yet; `python -m")
    assert laptop.find_answers(absent) == {}
    _make_growth().to_csv(path, index=False)
    told = laptop.render_growth(path)
    assert "| 20 | 2000 (2000 to 2000) |" in told.replace("2002", "2000").replace("2004", "2000")
    assert "| 64 | 128 cores | 2 (2 to 2) | the time to the first byte | 25 | 1 | 10000 |" in told
    assert "3 blocks or more at each size; each thread reads 5 chunks" in told
    assert "covers 75 %, not 95 %." in told and "dilated time allows" not in told
    _make_growth().assign(task_s=0.002).to_csv(path, index=False)
    assert "With 64 workers `zarr-obstore` reads more than the last column" in laptop.render_growth(
        path
    )
    _make_growth().to_csv(path, index=False)
    assert "4 (4 to 4) times as long (target 3.8 to 4.2: met)" in laptop.render_long(path)
    assert "of the link (target 0.95: met)" in laptop.render_long(path)
    answers = laptop.find_answers(path)
    assert round(answers["near-linear"]["at full scale, 20 to 64 workers"].centre, 6) == 2
    assert round(answers["zarr-over-netcdf"]["at full scale, 40 threads"].centre, 6) == 10
    price = laptop.render_terabyte(path, absent)
    assert "| 1 | `zarr-obstore` | 2.78 h |" in price and "| raw |" not in price
    assert laptop.draw_growth(path) != laptop.draw_growth(absent)


def test_one_process_reads_and_is_told(tmp_path: Path) -> None:
    """Both clients return what was written; leads and effects stand beside what was published or predicted."""
    read = one_process.Read("obstore x4", "obstore", FAST, 80_000, 4, n_requests=2, dilation=2.0)
    others = [
        replace(read, name=f"{client} x4", client=client) for client in ("icechunk", "tensorstore")
    ]
    plan = [read, replace(read, name="s3fs x1", client="s3fs", dilation=1.0), *others]
    rows = one_process.measure(plan, n_rounds=2)
    names = [one.name for one in plan]
    assert rows["name"].tolist() == [*names, *names[1:], names[0]]
    assert rows["n_requests"].ge(4).all() and rows["n_refused"].eq(0).all()
    assert read.predict_s() == pytest.approx(2 * (0.002 + 0.0004), rel=0.01)
    path = tmp_path / "in-flight.csv"
    assert "Not measured yet" in one_process.render_in_flight(path)
    assert one_process.find_answers(path) == {}
    theirs = read_published("earthmover_tensor_storage_s3").query("operation == 'read'")
    rate = theirs.groupby(["method", "chunk_bytes"])["throughput_mb_per_s"].median()
    clients = [(f"zarr-{name}", k) for name, k in (("obstore", 4), ("s3fs", 1), ("s3fs", 4))]
    clients += [("zarr-icechunk", 4), ("tensorstore", 4)]
    lines = [
        {"round": i, "name": f"{client.removeprefix('zarr-')} x{k}", "chunk_nbytes": nbytes, "nbytes": 1e9,
         "read_s": 1e3 / rate[client, nbytes], "in_flight": 9.0}
        for i, (client, k), nbytes in product(range(2), clients, sorted({*rate["zarr-s3fs"].index}))
    ]  # fmt: skip
    told = pd.DataFrame(lines).assign(machine="2 cores, X", measured="2026-01-02")
    told.to_csv(path, index=False)
    text = one_process.render_in_flight(path)
    assert "a factor of 1.3 lie 5 of 5 sizes (target 4: met), and 5 (met)" in text
    assert " pairs have the published order, 0 the opposite one, 0 cannot" in text
    other = {"tensorstore x4": "s3fs x1", "s3fs x1": "tensorstore x4"}
    told.assign(name=told["name"].replace(other)).to_csv(path, index=False)
    assert "| 0.781 | tensorstore | s3fs | 3.04 |" in one_process.render_in_flight(path)
    told.to_csv(path, index=False)
    assert 17 < one_process.find_answers(path)["obstore-over-s3fs-small"][
        "one process, 128 in flight"
    ].centre < 17.3  # fmt: skip
    path = tmp_path / "effects.csv"
    assert "Not measured yet" in one_process.render_effects(path)
    rows = rows[rows["name"].isin(["obstore x4", "s3fs x1"])]
    late = rows.assign(name=rows["name"].replace({"obstore x4": "without", "s3fs x1": "late"}))
    late.assign(read_s=late["name"].map({"without": 1.0, "late": 2.5})).to_csv(path, index=False)
    assert "| late | 2.5 | 0 | 2.5 (2.5 to 2.5) | 1 |" in one_process.render_effects(path)
