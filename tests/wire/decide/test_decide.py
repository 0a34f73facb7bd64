"""``wire decide``: datasets, the front and its knee, prices, labels, and lines of code that run."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import obstore
import pytest
import yaml
import zarr
from obstore.store import from_url
from zarr.storage import ObjectStore

from helpers.paths import ROOT
from tests.stores import client_environment, make_location
from tests.wire.decide.test_questions import answer, run
from wire.bed.networks import get_profile, profile_names
from wire.bed.testbed import Server
from wire.costs.prices import PRICE_LABELS, find_price
from wire.decide.choices import CLIENTS, rank
from wire.decide.cli import find_answer
from wire.decide.dataset import read_dataset
from wire.decide.question import ask
from wire.decide.show import BUCKET as PLACEHOLDER
from wire.decide.show import write_code
from wire.hdf5.advice import advise
from wire.models.access import IoCounts, access_seconds

SMALL = ("--shape", "8760,300,300", "--access", "series:0.8,map:0.2")
SHAPE = (600, 30, 40)
VALUES = np.random.default_rng(5).normal(size=SHAPE).astype("float32")
BUCKET = "decide"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An array in chunks of a time step, as models write it."""
    path = tmp_path_factory.mktemp("model") / "model.zarr"
    group = zarr.open_group(path, mode="w")
    array = group.create_array("field", shape=SHAPE, chunks=(1, 30, 40), dtype="float32",
                               dimension_names=["time", "y", "x"])  # fmt: skip
    array[...] = VALUES
    return path


def copy_profile(name: str, folder: Path, *, but: tuple[str, ...] = ()) -> str:
    """Write the figures of a profile that ships into a file whose name says nothing, some left out."""
    path = folder / "outside-other-region.yml"  # or something false
    figures = {
        field: value
        for field, value in asdict(get_profile(name)).items()
        if value is not None and field not in ("name", "measurement", *but)
    }
    path.write_text(yaml.safe_dump(figures), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", profile_names())
def test_a_profile_is_answered_alike_by_name_and_by_file(name: str, tmp_path: Path) -> None:
    """Bills follow from provider and region, whatever a file is called."""
    told = []
    for profile in (name, copy_profile(name, tmp_path)):
        found = answer(*SMALL, "--profile", profile)
        for one in found["choices"]:
            one.pop("support")  # names the profile where nothing like it was measured
        told.append((found["choices"], found["ties"], found["prices"]))
    assert told[0] == told[1]


def test_bills_follow_from_provider_and_region() -> None:
    """Bytes that leave cost more the further they go; what has no price is unknown, and nothing is billed."""
    bills = [answer(*SMALL, "--profile", name)["now"]["usd_month"]["egress"]
             for name in ("in-region", "other-region", "wide-area")]  # fmt: skip
    assert 0 == bills[0] < bills[1] < bills[2]
    for name in ("google-in-region", "azure-in-region", "institute", "express"):
        found, text = answer(*SMALL, "--profile", name), run(*SMALL, "--profile", name)
        assert found["prices"]["items"] is None and "store_gb_month" in found["prices"]["unknown"]
        assert all(one["usd_month"] is one["write_usd"] is None for one in found["choices"])
        assert "Prices are unknown" in text and "USD a month" not in text
    own = [f"--price={item}=1" for item in found["prices"]["unknown"]]
    priced = answer(*SMALL, "--profile", "express", *own)
    assert priced["usd_month_total"] > 0 and priced["prices"]["source"] == "your own"


def test_a_profile_that_says_nothing_is_priced_by_what_is_said_to_be_assumed(
    tmp_path: Path,
) -> None:
    """Provider and region; one that says *unknown* is not priced."""
    path = copy_profile("wide-area", tmp_path, but=("provider", "region"))
    told = answer(*SMALL, "--profile", path)["prices"]
    assert told["assumed"] and (told["provider"], told["region"]) == ("aws", "same")
    assert told["assumed"] in run(*SMALL, "--profile", path)
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("provider: aws\nregion: unknown\n")
    assert answer(*SMALL, "--profile", path)["prices"]["unknown"] == ["data_out_gb"]


def test_writes_are_priced_as_writes() -> None:
    """By what a PUT costs, not a LIST."""
    found = answer(*SMALL)
    n_objects = sum(one["n_objects"] for one in found["layouts"])
    price = find_price("store_puts_1e3")
    assert "PUT" in price.source and "PUT" in PRICE_LABELS[price.item]
    assert found["write_usd"] == pytest.approx(n_objects * (price.value or 0) / 1000)


def test_shapes_are_written_as_reads_are() -> None:
    """With commas or x, chunks and shards too."""
    ways = [("--shape", s.join(("8760", "300", "300")), "--chunks", s.join(("10", "30", "30")),
             "--shards", s.join(("100", "300", "300"))) for s in ",x"]  # fmt: skip
    assert answer(*ways[0])["choices"] == answer(*ways[1])["choices"]


def test_a_dataset_that_is_read_badly_is_rechunked_and_another_is_left(store: Path) -> None:
    """Series through time steps gain by new chunks; maps of them need settings at most, and then nothing."""
    found = answer(str(store), "--access", "series")
    assert found["array"]["chunk_shape"] == [1, 30, 40] and 1 < found["array"]["compression"] < 1.3
    assert (found["answer"]["action"], found["now"]["action"]) == ("rechunk", "stay")
    assert found["gains"]["series"] > 10
    assert {"stay", "set", "rechunk"} <= {one["action"] for one in found["choices"]}
    left = find_answer(str(store), access="map")
    assert left.best.action == "set" and left.gains(left.now) == {"map": 1}
    others = [one for one in left.choices if one.action != "set"]
    assert rank(left.question, others).best.action in ("stay", "rechunk")


def test_a_file_of_hdf5_is_never_answered_by_what_is_slower(tmp_path: Path) -> None:
    """Other settings, references, a repack: all at least as fast as what is there."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("field", data=VALUES, chunks=(10, 10, 10), compression="gzip")
    for keep in ("nothing", "format", "bytes"):
        found = answer(str(tmp_path / "a.h5"), "--access", "series", "--keep", keep)
        assert found["now"]["client"] == "fsspec-readahead" and found["gains"]["series"] >= 1
        assert all(one["gains"]["series"] >= 1 for one in found["choices"])
        assert keep != "bytes" or not found["answer"]["write_usd"]


def test_a_screen_is_twelve_lines_and_why_tells_the_rest(store: Path) -> None:
    for options in (SMALL, (str(store),), ("--shape", "10"), (*SMALL, "--batch", "4")):
        assert len(run(*options).splitlines()) <= 12
        assert len(run(*options, "--why").splitlines()) > 15
    lines = run("--help").splitlines()  # two screens: each option has its default
    assert len(lines) <= 72 and max(map(len, lines)) <= 80


def test_all_adds_up() -> None:
    """Lines of a bill to its total, shares to one, the mean to what accesses take; tails are later; a GB is 2^30 bytes."""
    found = answer("--shape", "4096,256,256", "--access", "series:0.8,map:0.2", "--arrays", "1024", "--wait-usd-hour", "30", "--profile", "wide-area")  # fmt: skip
    for one in found["choices"]:
        gb_months = (2 if one["action"] == "copy" else 1) * 1024
        price = find_price("store_gb_month").value or 0.0
        assert one["usd_month"]["storage"] == pytest.approx(gb_months * price)
        assert one["usd_month_total"] == pytest.approx(sum(one["usd_month"].values()))
        assert sum(read["share"] for read in one["reads"]) == pytest.approx(1)
        mean_s = sum(read["share"] * read["p50_s"] for read in one["reads"])
        assert one["seconds"] == pytest.approx(mean_s)
        assert one["usd_month"]["waiting"] == pytest.approx(10_000 * mean_s / 3600 * 30)
        for read in one["reads"]:
            assert 0.1 < read["p50_s"] <= read["p95_s"] and read["nbytes"] > 0


def test_the_front_is_faster_the_more_it_costs_and_a_budget_never_raises_a_bill() -> None:
    """What is recommended lies on it; a dearer hour, more cores and more requests in flight never slow it."""
    found = find_answer(shape="8760,300,300", access="series:0.8,map:0.2", profile="wide-area")
    front = [one for one in found.choices if one.is_on_front]
    bills, seconds = ([getattr(one, name) for one in front] for name in ("bill", "seconds"))
    assert bills == sorted(bills) and seconds == sorted(seconds, reverse=True)
    assert found.best.is_on_front
    how = {"shape": "87600,721,1440", "access": "series:0.8,map:0.2", "arrays": 55}
    free = find_answer(**how).best
    for budget in (1.0, 400.0, 470.0, 500.0, 900.0, 1e6):
        best = find_answer(**how, budget_usd_month=budget).best
        assert best.bill <= free.bill and best.is_over_budget == (budget < 460)
    for name, values in (("wait_usd_hour", (0.0, 10.0, 1e5)), ("cores", (1, 8, 64)), ("in_flight", (10, 64, 256))):  # fmt: skip
        best = [find_answer(**how, **{name: value}).best for value in values]
        assert all(
            later.seconds <= 1.1 * first.seconds for first, later in itertools.pairwise(best)
        )
        assert name != "cores" or len({round(one.bill, 9) for one in best}) == 1
        assert name != "wait_usd_hour" or best[-1].seconds < best[0].seconds


def test_only_the_same_client_concurrency_and_network_are_measured(tmp_path: Path) -> None:
    """Whatever the network is called; each other label says what differs, and each case has a record."""
    zarr_client, own = CLIENTS["zarr-obstore"], copy_profile("in-region", tmp_path)
    low, high = zarr_client.request_nbytes
    case = "formats/in-region measured this client"
    for profile, nbytes, in_flight, told in (
        ("in-region", low, 10, "measured in formats/in-region"),
        (own, low, 10, "measured in formats/in-region"),
        ("in-region", low, 64, f"predicted: {case} with 10 concurrent requests"),
        ("in-region", 100 * high, 10, f"predicted: {case} with requests of another size"),
        ("other-region", low, 10, f"predicted: {case} over another network"),
        ("other-region", 1.0, 10, "unknown: run formats/in-region with profile other-region"),
    ):
        found = zarr_client.support(get_profile(profile), nbytes, in_flight)
        assert found.startswith(told), (profile, nbytes, in_flight)
    assert "by one process" in zarr_client.support(get_profile(own), low, 10, is_many=True)
    granule = {"format": "hdf5", "shape": "3630000", "chunks": "10000", "arrays": 21, "access": "whole", "keep": "bytes"}  # fmt: skip
    for n, told in ((10, "measured in hdf5-drivers/granule"), (64, "predicted: ")):
        whole = next(one for one in find_answer(**granule, in_flight=n).choices if one.client.name == "obstore-whole")  # fmt: skip
        assert whole.support.startswith(told)
    for client in CLIENTS.values():
        if client.case:
            record = ROOT / "results" / "reference" / f"{client.case}.csv"
            assert client.name in record.read_text(encoding="utf-8")
    https = CLIENTS["fsspec-https"].support(get_profile("in-region"), 5e6, 1)
    assert https.startswith("unknown")


@pytest.mark.parametrize(
    "how",
    [{"access": "series"}, {"access": "series:0.8,map:0.2"}, {"access": "series:0.8,map:0.2", "max_objects": 1}],
)  # fmt: skip
def test_the_lines_of_every_choice_run(
    server: Server, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    """What an answer says to paste makes what is new in a bucket of one's own; what changes nothing needs none."""
    for name, value in {**client_environment(server), "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    make_location(server, BUCKET)
    found = find_answer(shape="600,30,40", **how)
    assert not any(
        write_code(found.question, one) for one in found.choices if one.action == "default"
    )
    for choice in (one for one in found.choices if one.action != "default"):
        for name in ("new", "copy-1", "copy-2"):
            zarr.open_group(ObjectStore(from_url(f"s3://{BUCKET}/{name}.zarr")), mode="w")
        space: dict[str, Any] = {}
        exec(write_code(found.question, choice).replace(PLACEHOLDER, f"s3://{BUCKET}"), space)
        assert space["array"].chunks in {one.chunk_shape for one in choice.layouts}
    check_flipped_bytes(space["array"])


def check_flipped_bytes(array: Any) -> None:
    """Flip one byte in each part of an object, and expect that no value is returned of it."""
    array[...] = VALUES
    store = array.store_path.store.store
    key = f"{array.path}/{array.metadata.encode_chunk_key((0,) * array.ndim)}"
    whole = obstore.get(store, key).bytes().to_bytes()
    for place in range(len(whole) // 7, len(whole), len(whole) // 5):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        obstore.put(store, key, bytes(flipped))
        with pytest.raises(Exception, match=r"(?i)checksum|crc|zstd|corrupt"):
            array[tuple(slice(0, extent) for extent in (array.shards or array.chunks))]


def test_a_repack_to_paste_has_the_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By h5repack, of the file that is there, which the lines say they need; each client's recipe is in the book."""
    pages = (ROOT / "pages").glob("recipes-*.md")
    recipes = "".join(page.read_text(encoding="utf-8") for page in pages)
    titles = {client.recipe for client in CLIENTS.values() if client.recipe}
    assert all(f"\n## {title}\n" in recipes for title in titles)
    monkeypatch.chdir(tmp_path)
    with h5py.File("granule.h5", "w") as file:
        file.create_dataset("field", data=VALUES, chunks=(60, 10, 10), compression="gzip")
    found = find_answer("granule.h5", access="whole", keep="format")
    choice = next(one for one in found.choices if one.action == "rechunk")
    code = write_code(found.question, choice)
    assert "needs h5repack" in code and "hdf5-tools" in code
    if shutil.which("h5repack") is None:
        pytest.skip("h5repack is not installed: apt install hdf5-tools")
    exec(code, {})
    with h5py.File("new.h5") as made:
        assert made["field"].chunks == choice.layouts[0].chunk_shape
        np.testing.assert_array_equal(made["field"][:], VALUES)


@pytest.mark.parametrize(
    "options",
    [
        ("--shape", "100,100", "--type", "S10"),  # a type that Zarr v3 has not specified
        ("--shape", ",".join("7" * 8), "--profile", "loopback"),  # no network, many dimensions
        ("--shape", "100000000000,2", "--access", "1000x2"),  # squares beyond 64 bits
        ("--shape", "1000,1000,1000", "--memory", "1e-4"),  # chunks of a few elements
        ("--shape", "1000,1000,1000", "--in-flight", "100000", "--reads-per-month", "0"),
    ],
)
def test_odd_questions_are_answered(options: tuple[str, ...]) -> None:
    """Without a warning, a traceback or an infinity."""
    assert answer(*options)["answer"]["seconds"] >= 0


RADAR = ("--shape", "525600,3500,7000", "--type", "uint8", "--access", "series:0.5,map:0.5")


def test_what_an_answer_makes_slower_is_named_in_its_first_line() -> None:
    """No sum of seconds hides it, in words, in the table or in JSON; dollars stand beside no default."""
    asked = (*RADAR, "--append", "time:1")
    found, lines = answer(*asked), run(*asked).splitlines()
    assert found["gains"]["series"] < 0.5 and found["gains"]["map"] > 10
    slower = f"{float(f'{1 / found["gains"]["series"]:.2g}'):g}"
    assert f"but series {slower}x slower" in lines[1] and "map " in lines[1]
    assert any("Each append rewrites" in line or "each append rewrites" in line for line in lines)
    assert "a month less" not in lines[1] and "a month more" not in lines[1]
    assert next(line for line in lines if line.startswith("*  ")).split()[-3].startswith("0.")


@pytest.mark.parametrize("steps", [1, 288])
def test_an_array_that_grows_has_no_shard_over_all_of_time(steps: int) -> None:
    """What an append rewrites is stored bytes, below 1 GB in all copies; whole objects cost nothing."""
    found = answer(*RADAR, "--append", f"time:{steps}", "--compression", "2")
    assert found["append_nbytes"] <= 1e9
    for layout in found["layouts"]:
        extent = (layout["shard_shape"] or layout["chunk_shape"])[0]
        assert extent < 525600
    assert found["append_nbytes"] == 0 or steps == 1
    assert found["write_hours_at_least"] > 1  # of terabytes at the bandwidth of a machine
    free = answer(*RADAR)
    assert max((one["shard_shape"] or one["chunk_shape"])[0] for one in free["layouts"]) == 525600


LOADER = ("--shape", "87600,721,1440", "--access", "8x128x128", "--batch", "32", "--workers", "8")


def test_a_loader_is_bounded_by_its_machine_and_sees_all_it_can_do() -> None:
    """Settings, boxes on the grid and a rechunk are all shown; none gives more than link and cores carry."""
    found, text = answer(*LOADER), run(*LOADER)
    assert {"default", "set", "write", "align"} <= {one["action"] for one in found["choices"]}
    assert all(f" {action}: " in text for action in ("default", "set", "write", "align"))
    for one in found["choices"]:
        batches = one["samples_per_s"] / 32
        assert batches * one["reads"][0]["nbytes"] <= 1250e6 * (1 + 1e-9)
    rates = {one["label"]: one["samples_per_s"] for one in found["choices"]}
    assert rates["one copy, boxes drawn on its grid"] > 3 * rates["one copy"]
    assert found["action"] != "align"  # it changes what is seen
    for one in found["choices"]:  # a speed-up is the ratio of the two rates that are shown
        ratio = one["samples_per_s"] / found["now"]["samples_per_s"]
        assert one["gains"]["8x128x128"] == pytest.approx(ratio)
    assert rates["Zarr's own chunks"] == found["now"]["samples_per_s"]  # both fill the link
    assert "Changing only settings does not help here: the link" in text
    slow = answer(*LOADER, "--link-mb-per-s", "100")
    assert slow["samples_bound"] == "link" and slow["samples_per_s"] < found["samples_per_s"]
    assert answer(*LOADER, "--cores", "1")["samples_per_s"] < found["samples_per_s"]


def test_a_tie_is_said() -> None:
    """Another choice that is as good, within 10 %."""
    asked = ("--format", "hdf5", "--shape", "8,40,320,400", "--chunks", "1,4,320,400", "--compression",
             "2.154", "--access", "whole", "--in-flight", "10", "--keep", "bytes")  # fmt: skip
    assert answer(*asked)["ties"] and "A tie: " in run(*asked)
    assert not answer(*SMALL)["ties"] and "A tie: " not in run(*SMALL)


GROWS = ("--shape", "87600,721,1440", "--arrays", "55", "--append", "time:24", "--access", "series:0.8,map:0.2")  # fmt: skip


def test_writing_and_appending_stand_in_the_answer() -> None:
    """Hours, what each append rewrites, and how many appends a buffer collects so that none does."""
    found, text = answer(*GROWS), run(*GROWS)
    assert found["append_nbytes"] > 0 and "which takes at least" in text
    assert "each append rewrites up to" in text
    number = re.search(r"in a buffer and written ([\d,]+) at a time", text)
    assert number is not None
    n_steps = 24 * int(number[1].replace(",", ""))
    for layout in found["layouts"]:
        extents = layout["shard_shape"] or layout["chunk_shape"]
        assert n_steps % extents[0] == 0


def test_a_conflict_with_the_most_frequent_read_is_reported() -> None:
    """What nine in ten read is faster another way: the answer says so, and names it."""
    found, text = answer(*GROWS), run(*GROWS)
    best, *others = [found, *found["choices"]]
    fastest = min(one["reads"][0]["p50_s"] for one in others if one["action"] != "align")
    is_slower = best["reads"][0]["p50_s"] > 1.1 * fastest
    assert ("Your most frequent read, series, is" in text) == is_slower
    assert is_slower
    assert "Your most frequent read" not in run("--shape", "8760,721,1440", "--access", "map")


def test_predicted_intervals_are_around_the_median() -> None:
    """Nine in ten reads lie between two percentiles, as far apart on either side as a factor."""
    for read in answer(*GROWS)["reads"]:
        assert 0 < read["p05_s"] < read["p50_s"] / 1.09 < read["p50_s"] * 1.09 < read["p95_s"]
        assert read["p50_s"] / read["p05_s"] == pytest.approx(read["p95_s"] / read["p50_s"])


def test_connections_to_another_region_are_opened_once() -> None:
    """A program that reads once pays for new connections; a service keeps its own."""
    asked = ("--shape", "64,512,512", "--chunks", "1,512,512", "--access", "whole", "--profile", "other-region")  # fmt: skip
    question = ask(shape="64,512,512", profile="other-region")
    assert question.store.is_cold and not ask(shape="64,512,512", per_second="1").store.is_cold
    (read,) = answer(*asked)["now"]["reads"]
    warm = replace(question.store, is_cold=False)
    counts = IoCounts(64, 2**20)
    cold_s, warm_s = (float(access_seconds(store, counts)) for store in (question.store, warm))
    network = question.store.network
    assert cold_s - warm_s == pytest.approx(network.new_connection_s(2**20))
    assert read["p50_s"] > warm_s


def test_a_file_tells_how_its_variables_lie(tmp_path: Path) -> None:
    """Appended to in turn, or written one after the other."""
    for name, is_scattered in (("scattered", True), ("alone", False)):
        with h5py.File(tmp_path / f"{name}.h5", "w", rdcc_nbytes=0) as file:
            made = [file.create_dataset(one, shape=(4000, 100), chunks=(100, 100), dtype="f4") for one in "abc"]  # fmt: skip
            parts = [(one, i) for i in range(0, 4000, 100) for one in made]
            for one, i in parts if is_scattered else sorted(parts, key=lambda part: part[0].name):
                one[i : i + 100] = 1.0
        assert read_dataset(str(tmp_path / f"{name}.h5"), "b").is_scattered == is_scattered
        assert find_answer(str(tmp_path / f"{name}.h5")).question.options.scattered == is_scattered


def test_a_file_takes_what_the_advice_on_it_says(tmp_path: Path) -> None:
    """One engine: of a whole variable both say the same, and of one chunk far less."""
    with h5py.File(tmp_path / "a.h5", "w", rdcc_nbytes=0) as file:
        made = [file.create_dataset(one, shape=(40_000, 100), chunks=(400, 100), dtype="f8") for one in "abcd"]  # fmt: skip
        for i in range(0, 40_000, 400):
            for one in made:
                one[i : i + 400] = np.random.default_rng(i).normal(size=(400, 100))
    path = str(tmp_path / "a.h5")
    for variables in (["a"], ["a", "b", "c"]):
        advised = advise(path, get_profile("in-region"), variables=variables)
        found = find_answer(path, variable="a", together=len(variables), access="whole", in_flight=10, keep="bytes")  # fmt: skip
        told = {one.client.name: one.reads[0] for one in found.choices}
        said = {one.label: one.prediction for one in advised.advice}
        for client, name in (("fsspec-readahead", "s3fs.open"), ("fsspec-tuned", "blocks of 8 MiB"), ("obstore-whole", "whole file downloaded")):  # fmt: skip
            assert told[client].p50_s == pytest.approx(said[name].seconds, rel=0.02), client
            assert told[client].nbytes == pytest.approx(said[name].nbytes, rel=0.02), client
    part = find_answer(path, variable="a", access="400x100", keep="bytes").now.reads[0]
    assert part.nbytes < 0.8 * told["fsspec-readahead"].nbytes
