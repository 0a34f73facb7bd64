"""The command that recommends chunks, from numbers and from stores."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from advisors.chunks.answers import choose_prices
from advisors.chunks.cli import chunks_command
from advisors.costs.prices import find_price
from helpers.errors import UserError
from helpers.netem.profiles import profile_names


def run(*arguments: str) -> str:
    """Run the command and return what it prints."""
    found = CliRunner().invoke(chunks_command, list(arguments), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_the_balanced_rule_prints_the_published_shape() -> None:
    """The shape alone is the first line."""
    shape = ("--shape", "98128,277,349", "--itemsize", "4")
    out = run(*shape, "--chunk-nbytes", "4194304", "--rule", "balanced")
    assert out.splitlines()[0] == "1032,29,35"
    assert "1031.68 x 28.40 x 35.78" in out


def test_accesses_are_weighed() -> None:
    """Who reads series more often gets longer chunks."""
    lengths = []
    for weight in ("0.2", "0.8", "0.99"):
        out = run("--shape", "9000,90,90", "--itemsize", "4", "--json",
                  "--access", f"series:{weight}", "--access", f"slice:{1 - float(weight)}")  # fmt: skip
        answer = json.loads(out)
        assert set(answer["seconds"]) == {"series", "slice"}
        assert answer["pareto_front"] and answer["second_best"]["costs"] >= 1
        lengths.append(answer["chunk_shape"][0])
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]


@pytest.mark.parametrize("sharded", [False, True])
def test_the_snippet_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, sharded: bool
) -> None:
    """What is to be pasted makes an array with the chunks that were recommended."""
    monkeypatch.chdir(tmp_path)
    more = ("--max-objects", "9", "--chunk-nbytes", "4000") if sharded else ()
    answer = json.loads(run("--shape", "600,30,40", "--itemsize", "4", "--json", *more))
    exec(answer["snippet"], space := {})
    assert list(space["array"].chunks) == answer["chunk_shape"]
    assert bool(space["array"].shards) == sharded
    assert list(zarr.open_array("array.zarr").chunks) == answer["chunk_shape"]
    values = np.zeros((600, 30, 40), "float32")
    import xarray as xr

    dataset = xr.Dataset({"array": (("t", "y", "x"), values)})
    dataset.to_netcdf("array.nc", engine="h5netcdf", encoding=space["encoding"])
    with h5py.File("array.nc") as file:
        assert list(file["array"].chunks) == answer["chunk_shape"]


def test_a_chunk_has_a_size_worth_a_request() -> None:
    """Rows of twelve bytes are read many to a chunk, unless another floor is asked for."""
    rows = ("--shape", "1000000,3", "--itemsize", "4", "--access", "slice", "--json")
    assert 4 * np.prod(json.loads(run(*rows))["chunk_shape"]) >= 100_000
    free = json.loads(run(*rows, "--min-chunk-nbytes", "1"))["chunk_shape"]
    assert 4 * np.prod(free) < 100_000
    few = json.loads(run(*rows, "--chunk-nbytes", "999"))["chunk_shape"]  # a ceiling lowers it
    assert 4 * np.prod(few) <= 999


def test_the_answer_names_the_network_that_it_is_predicted_on() -> None:
    """At full scale, rates and delays with the reader's own, in words and in numbers."""
    shape = ("--shape", "600,30,40", "--itemsize", "4")
    assert (
        "over in-region at full scale, not the book's emulation with rates 2.5 times lower:"
        " first byte after 30 ms in the median and 100 ms at the 95th percentile,"
        " 90 MB/s a connection, 500 MB/s together, 5500 requests/s; 7 requests in flight,"
        " decoding at 500 MB/s with 0.5 ms for each chunk, compressed 3 times."
    ) in run(*shape, "--connections", "7", "--compression-ratio", "3")
    answer = json.loads(run(*shape, "--json", "--profile", "wide-area"))
    on = answer["predicted_on"]
    assert (on["profile"], on["stream_mb_per_s"], on["connections"]) == ("wide-area", 16, 10)
    nothing = run(*shape, "--profile", "loopback")
    assert "over loopback at full scale: no delay; 10 requests" in nothing


def test_of_shapes_as_fast_the_squarest_is_taken() -> None:
    """It takes little longer in each access, and the fastest is named beside it."""
    shape = ("--shape", "98128,277,349", "--itemsize", "4")
    answer = json.loads(run(*shape, "--json"))
    pattern = [answer["fastest"]["seconds"], answer["seconds"]]
    for name in ("series", "slice"):
        assert pattern[1][name] <= 1.05 * pattern[0][name]
    square, fastest = (np.log(one["chunk_shape"]) for one in (answer, answer["fastest"]))
    assert square.var() < fastest.var()
    told = ",".join(map(str, answer["fastest"]["chunk_shape"]))
    assert f"{told} is predicted to be the fastest" in run(*shape)


def test_chunks_in_shards_are_read_one_by_one(tmp_path: Path) -> None:
    """What is there now is predicted as chunks in shards, not as objects of a shard's size."""
    how = {"shape": (400, 90, 90), "dtype": "f4", "chunks": (40, 9, 9)}
    for name, shards in (("a.zarr", None), ("b.zarr", (400, 90, 90))):
        zarr.create_array(tmp_path / name, shards=shards, **how)
    plain, sharded = (run(str(tmp_path / name)) for name in ("a.zarr", "b.zarr"))
    line = "The chunks that array has now, 40,9,9,"
    assert line in plain and line in sharded
    assert plain.split(line)[1].splitlines()[0] != sharded.split(line)[1].splitlines()[0]


def test_stores_tell_their_shape_and_chunks(tmp_path: Path) -> None:
    """The largest array of a file or a Zarr group is taken, or the one that is named."""
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file.create_dataset("time", data=np.arange(50.0))
        file.create_dataset("t", (50, 20, 30), "f4", chunks=(1, 20, 30))
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("t", shape=(50, 20, 30), dtype="f4", chunks=(1, 20, 30))
    group.create_array("time", shape=(50,), dtype="f8")
    for name in ("a.nc", "a.zarr"):
        out = run(str(tmp_path / name), "--access", "series")
        assert "The chunks that t has now, 1,20,30, take" in out
        answer = json.loads(
            run(str(tmp_path / name), "--variable", "time", "--json", "--access", "whole")
        )
        assert (answer["shape"], answer["itemsize"]) == ([50], 8)


ARRAY = ("--shape", "2000,50,60", "--itemsize", "4")
SHARED = (*ARRAY, "--access", "series:3", "--access", "slice:1", "--replicas")
# Storage and waiting alone, in round numbers: 36 USD an hour are a cent a second.
ROUND = ("--price", "storage_per_gb_month=0.02", "--price", "get_per_1000=0", "--price", "waiting_per_hour=36")  # fmt: skip


def compare(reads: float, *more: str) -> dict[str, Any]:
    """Compare replicas at a number of reads a month, and return what JSON says of it."""
    answer = json.loads(run(*SHARED, "--reads-per-month", str(reads), "--json", *more))
    found: dict[str, Any] = answer["replicas"]
    return found


def test_a_second_replica_pays_from_the_break_even_on() -> None:
    """What each costs follows from its seconds, each access goes to one replica, and costs cross there."""
    even = compare(0, *ROUND)["breakeven_reads_per_month"]
    storage = 0.02 * 2000 * 50 * 60 * 4 / 1e9
    weights = {"series": 0.75, "slice": 0.25}
    for reads in (0, even / 2, even, 2 * even):
        found = compare(reads, *ROUND)
        assert found["reads_per_month"] == reads
        for n_replicas, each in ((1, found["one"]), (2, found["two"])):
            assert len(each["replicas"]) == n_replicas
            times = [pair for one in each["replicas"] for pair in one["seconds"].items()]
            assert sorted(name for name, _ in times) == ["series", "slice"]
            read = sum(0.01 * weights[name] * seconds for name, seconds in times)
            assert each["usd_per_month"] == pytest.approx(n_replicas * storage + reads * read)
        saved = found["one"]["usd_per_month"] - found["two"]["usd_per_month"]
        assert saved == pytest.approx(storage * (reads / even - 1), abs=1e-9)
    for copy in found["two"]["replicas"]:  # each in the shape of its own access, or nearly
        ((name, _),) = copy["seconds"].items()
        long = copy["chunk_shape"][0]
        assert long > 1000 if name == "series" else long < 20


def test_words_say_what_the_replicas_are_and_when_two_pay() -> None:
    """Shapes, accesses, costs and break-even are those of the JSON; free reads never pay."""
    found = compare(1e6)
    out = run(*SHARED, "--reads-per-month", "1e6")
    shapes = [",".join(map(str, copy["chunk_shape"])) for copy in found["two"]["replicas"]]
    names = [next(iter(copy["seconds"])) for copy in found["two"]["replicas"]]
    usd = found["two"]["usd_per_month"]
    assert f"Two replicas, {shapes[0]} for {names[0]} and {shapes[1]} for {names[1]}: {usd:.4g} USD" in out  # fmt: skip
    assert f"{found['one']['usd_per_month']:.4g} USD a month at 1,000,000 reads" in out
    stated = re.search(r"Two replicas cost less from ([\d,.]+) reads", out)
    even = found["breakeven_reads_per_month"]
    assert stated and float(stated[1].replace(",", "")) == pytest.approx(even, rel=0.005)
    free = ("--price", "get_per_1000=0", "--price", "waiting_per_hour=0")
    assert compare(1e6, *free)["breakeven_reads_per_month"] is None
    assert "Two replicas never cost less" in run(*SHARED, "--reads-per-month", "1e6", *free)


def test_prices_are_those_kept_unless_given() -> None:
    """Each says its date and source or that it was given; bytes that leave the region are paid."""
    prices = compare(1, "--profile", "wide-area", "--price", "get_per_1000=0.5")["prices"]
    kept = {"storage_per_gb_month": "store_gb_month", "egress_per_gb": "data_out_gb"}
    for name, item in kept.items():
        price = find_price(item)
        assert prices[name]["usd"] == price.value
        assert price.date in prices[name]["source"] and price.source in prices[name]["source"]
    assert prices["get_per_1000"] == {"usd": 0.5, "source": "given"}
    assert prices["waiting_per_hour"]["usd"] > 0
    assert compare(1)["prices"]["egress_per_gb"]["usd"] == 0
    assert str(find_price("store_gb_month").source) in run(*SHARED, "--reads-per-month", "1")


@pytest.mark.parametrize("profile", profile_names())
def test_a_reader_in_the_region_pays_for_no_bytes(profile: str) -> None:
    """A profile that says where the reader is says whether its bytes leave; that of a file does not."""
    usd, _ = choose_prices({"own": (), "profile": profile})["egress_per_gb"]
    assert (usd > 0) == (profile.startswith("other-region") or profile == "wide-area")


def test_without_replicas_nothing_is_said_of_them() -> None:
    """Who does not ask gets no prices."""
    assert "replicas" not in json.loads(run(*ARRAY, "--json"))


REPLICAS = ("--shape", "3,3", "--itemsize", "4", "--replicas", "--reads-per-month", "5")

REFUSED = [
    ((), "shape: none"),
    (("--shape", "3,x", "--itemsize", "4"), "shape: '3,x'"),
    (("--shape", "", "--itemsize", "4"), "shape: none"),
    (("--shape", "3,0", "--itemsize", "4"), "shape: [3, 0]"),
    (("--shape", "3,3"), "itemsize: None"),
    (("--shape", "3,3", "--dtype", "O"), "dtype: 'O'"),
    (("--shape", "3,3", "--dtype", "U"), "dtype: 'U'"),
    (("--shape", "3,3", "--dtype", "float33"), "dtype: 'float33'"),
    (("--shape", "3,3", "--itemsize", "4", "--access", "series:-1"), "weights: [-1.0]"),
    (("--shape", "3,3", "--itemsize", "4", "--access", "series:0"), "weights: [0.0]"),
    (("--shape", "3,3", "--itemsize", "4", "--chunk-ms", "-1"), "chunk-ms: -1.0"),
    (("--shape", "3,3", "--itemsize", "4", "--chunk-ms", "inf"), "chunk-ms: inf"),
    (("--shape", "3,3", "--itemsize", "4", "--access", "4x1"), "access: [4, 1]"),
    (("--shape", "3,3", "--itemsize", "4", "--access", "line"), "access: 'line'"),
    (("--shape", "3,3", "--itemsize", "4", "--access", "series:much"), "access: 'series:much'"),
    (("--shape", "3,3", "--itemsize", "4", "--chunk-nbytes", "99", "--rule", "balanced"),
     "chunk_nbytes: 99"),
    # Replicas: reads that nobody makes, none stated, and accesses that cannot be shared out.
    ((*REPLICAS[:-1], "-1"), "reads_per_month: -1.0"),
    ((*REPLICAS[:-1], "inf"), "reads_per_month: inf"),
    ((*REPLICAS[:-1], "nan"), "reads_per_month: nan"),
    (REPLICAS[:-2], "reads-per-month: none"),
    ((*REPLICAS, "--access", "series"), "accesses: series;"),
    ((*REPLICAS, "--access", "1x2", "--access", "1x2:3"), "accesses: 1x2, 1x2;"),
    ((*REPLICAS, *(f"--access={i}x{j}" for i in (1, 2, 3) for j in (1, 2, 3))), "accesses: 1x1, "),
    # Replicas: options that contradict, or that mean nothing without the flag.
    ((*REPLICAS, "--rule", "balanced"), "rule: 'balanced'"),
    ((*REPLICAS, "--criterion", "worst"), "criterion: 'worst'"),
    (("--shape", "3,3", "--itemsize", "4", "--reads-per-month", "5"), "reads-per-month: 5.0"),
    # Replicas: prices below zero, unknown, and no number.
    ((*REPLICAS, "--price", "get_per_1000=-1"), "get_per_1000: -1.0"),
    ((*REPLICAS, "--price", "gold=1"), "price gold: no such price"),
    ((*REPLICAS, "--price", "get_per_1000=dear"), "--price get_per_1000=dear"),
    (("/nowhere.nc",), "store: '/nowhere.nc'"),
    (("/nowhere.zarr",), "store: '/nowhere.zarr'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_bad_input_is_named(arguments: tuple[str, ...], words: str) -> None:
    """One line names the parameter, the value and what is allowed."""
    with pytest.raises(UserError) as caught:
        CliRunner().invoke(chunks_command, list(arguments), catch_exceptions=False)
    assert str(caught.value).startswith(words)
    assert "allowed" in str(caught.value) and "\n" not in str(caught.value)


def test_a_type_without_fixed_size_is_named(tmp_path: Path) -> None:
    """Texts of any length have no chunk bytes."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("names", data=["a", "bc"], dtype=h5py.string_dtype())
    with pytest.raises(UserError, match="variable: 'names' is of object; allowed: a type of fixed"):
        CliRunner().invoke(chunks_command, [str(tmp_path / "a.h5")], catch_exceptions=False)
