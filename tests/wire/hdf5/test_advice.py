"""What is wrong with a file, what each way would take, and what is refused in one line."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import obstore
import pytest
from click.testing import CliRunner

from tests.refusals import refused
from tests.stores import Handler, Ranges, client_environment, make_location, serve
from tests.wire.hdf5.test_apply import needs_tools
from wire.bed.networks import get_profile
from wire.bed.testbed import Server
from wire.cli import main
from wire.errors import UserError
from wire.hdf5 import advice, files, inspection
from wire.hdf5.advice import MOST_GROWTH, advise
from wire.hdf5.files import open_source
from wire.hdf5.inspection import Variable, record_reads
from wire.hdf5.prediction import BLOCKS, MIB, PredictedRead, ReadMethod, predict_read
from wire.hdf5.repacked import Repack, choose_chunk_shape, lay_out, list_repacks
from wire.models.transfer import network_of

IN_REGION = get_profile("in-region")
VARIABLES = ("ocean/b", "ice/c")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a file of two groups once."""
    made = tmp_path_factory.mktemp("made") / "made.nc"
    with h5py.File(made, "w") as file:
        for name in (*VARIABLES, "ocean/a", "ice/a"):
            values = np.random.default_rng(1).normal(size=(10, 120, 160))
            new = file.create_dataset(name, data=values, chunks=(2, 60, 80), compression=1)
            new.attrs["units"] = "K"
    return made


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    """Run the command line."""
    done = CliRunner().invoke(main, ["hdf5", "advise", *arguments])
    return done.exit_code, done.output, done.exception


# what each way would take


def make_long(path: Path, names: Sequence[str] = "abcd") -> Path:
    """Make a file of 120 MB whose chunks are of four variables between one another."""
    with h5py.File(path, "w") as file:
        how: dict[str, Any] = {"shape": (60 * MIB,), "dtype": "u1", "chunks": (MIB // 2,)}
        made = [file.create_dataset(name, **how) for name in names]
        for at in range(0, 30 * MIB, MIB // 2):
            for dataset in made:
                dataset.id.write_direct_chunk((at,), bytes(MIB // 2))
    return path


def test_every_way_is_held_against_the_default(tmp_path: Path) -> None:
    """It comes first; ways that need no rewrite are all there, repacks where they are faster."""
    advised = advise(
        str(make_long(tmp_path / "long.h5")), IN_REGION, variables=["b", "/c"], seconds=60
    )
    assert advised.variables == ("b", "c")
    today, *others = advised.advice
    assert (today.label, today.gain) == ("s3fs.open", 1)
    kept = {one.label for one in others if one.repack is None}
    assert kept == {
        "xarray over s3fs.open", "xarray by URL", "earthaccess.open", "blocks of 8 MiB", "ROS3",
        "whole file downloaded", "virtual Zarr, 10 concurrent requests",
        "virtual Zarr, 64 concurrent requests",
    }  # fmt: skip
    gains = [one.gain for one in others]
    assert gains == sorted(gains, reverse=True)
    assert all(one.gain > 1 for one in others if one.repack is not None)
    for one in advised.advice:
        assert one.gain == pytest.approx(today.prediction.seconds / one.prediction.seconds)
    assert advised.find_repack() in {one.repack for one in others}


def test_blocks_of_earthaccess_have_code_for_any_file(tmp_path: Path) -> None:
    """earthaccess opens files of NASA alone, and this way may be the one that is recommended."""
    advised = advise(str(make_long(tmp_path / "long.h5")), IN_REGION, variables=["b"], seconds=60)
    (command,) = (one.command for one in advised.advice if one.label == "earthaccess.open")
    assert 'cache_type="background", block_size=8388608' in command


def test_the_answer_comes_first(tmp_path: Path) -> None:
    """The first line says what to do, how much faster it is, and whether to rewrite; its row is marked."""
    path = str(make_long(tmp_path / "long.h5"))
    _, text, _ = run(path, "--variables", "b,c", "--profile", "in-region")
    found = json.loads(run(path, "--variables", "b,c", "--json")[1])
    first, *lines = text.splitlines()
    assert first == found["answer"]
    (best,) = (advice for advice in found["advice"] if advice["label"] == found["best"])
    assert f"{best['gain']:.1f}x faster than s3fs.open" in first
    assert [line.split("  ")[0] for line in lines if "→" in line] == [f"→ {best['label']}"]
    fastest = max(advice["gain"] for advice in found["advice"] if not advice["repack"])
    assert best["gain"] * 1.1 >= fastest


def make_advice(gains: dict[str, float]) -> list[advice.Advice]:
    """Make advice of ways by the kinds of their methods, or of a rewritten copy."""
    made = []
    for label, gain in gains.items():
        kind: Any = label if label in ("whole", "references") else "file object"
        predicted = PredictedRead(ReadMethod(label, kind), 0.0, 1 / gain, 1, 2, 3)
        repack = Repack(MIB) if label == "paged" else None
        made.append(advice.Advice(label, predicted, "", "", repack, gain))
    return made


@pytest.mark.parametrize(
    ("gains", "best", "answer"),
    [
        ({"today": 1, "whole": 2.0, "references": 2.1, "paged": 2.0}, "whole",
         "Download it whole: 2.0x faster than today, predicted. Nothing needs rewriting."),
        ({"today": 1, "blocks": 1.05, "references": 0.5}, "today",
         "Read it as it is, by today: no other way is clearly faster, predicted. Nothing needs rewriting."),
        ({"today": 1, "blocks": 1.5, "paged": 3.0}, "blocks",
         "Open it by blocks: 1.5x faster than today, predicted. A rewritten copy (paged) would be 2.0x faster again."),
        ({"today": 1, "whole": 0.5, "paged": 3.0}, "paged",
         "Rewrite it (paged): 3.0x faster than today, predicted."),
    ],
)  # fmt: skip
def test_of_ways_about_as_fast_the_simplest_is_recommended(
    gains: dict[str, float], best: str, answer: str
) -> None:
    """What is within 10 % of the fastest is as good; a rewrite is asked for where nothing else helps."""
    made = make_advice(gains)
    chosen = advice.choose_best(made)
    assert chosen.label == best
    assert advice.write_answer(made, chosen) == answer


def test_a_program_of_h5py_lists_nothing(path: Path) -> None:
    """If you read a variable by its name, the library reads no header of the others."""
    one, every = (advise(str(path), IN_REGION, variables=v) for v in (["ice/c"], []))
    with open_source(str(path)) as file:
        some, whole = (record_reads(file, "x", ["ice/c"], groups=g) for g in ((), None))
    assert some.n_listed == 0 < whole.n_listed and len(some.opened) < len(whole.opened)
    assert one.advice[0].prediction.open_s < every.advice[0].prediction.open_s


def test_a_repack_that_is_too_long_is_not_advised(tmp_path: Path) -> None:
    """A file of some kB would be pages of many MiB."""
    with h5py.File(tmp_path / "small.h5", "w") as file:
        file.create_dataset("x", data=np.arange(900.0), chunks=(30,), compression=1)
    found = advise(str(tmp_path / "small.h5"), IN_REGION)
    assert not any(one.repack for one in found.advice) and MOST_GROWTH == 2
    with refused("repack", "^none would be faster", "paged, 4 MiB"):
        found.find_repack()
    assert found.find_repack("paged, 4 MiB pages") == Repack(4 * MIB)


@needs_tools
@pytest.mark.parametrize("number", range(4))
def test_every_repack_is_foretold(tmp_path: Path, number: int) -> None:
    """By formula; made by h5repack, it needs as many requests, and about as many bytes."""
    path, out = tmp_path / "made.h5", tmp_path / "out.h5"
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        how: dict[str, Any] = {"chunks": (10, 200), "compression": "gzip"}
        for n in range(6):
            made = file.create_dataset(f"g{n % 2}/v{n}", data=rng.normal(size=(2000, 300)), **how)
            made.attrs["units"] = "m"
    names, network = ["g1/v3", "g0/v0"], network_of(IN_REGION)
    with open_source(str(path)) as file:
        whole = record_reads(file, "x")
        layout = record_reads(file, "x", names, groups=["g0", "g1"])
    repack = list_repacks(whole, whole.variables)[number]
    subprocess.run(["h5repack", *repack.list_arguments(), path, out], check=True)
    with open_source(str(out)) as file:
        real = record_reads(file, "x", names, groups=["g0", "g1"])
    found, counted = (
        predict_read(BLOCKS, one, network) for one in (lay_out(whole, layout, repack), real)
    )
    assert found.n_requests == pytest.approx(counted.n_requests, abs=1), repack.name
    page_nbytes = max(repack.page_nbytes, 8 * MIB)  # of small files a page more or less
    assert found.nbytes == pytest.approx(counted.nbytes, abs=page_nbytes), repack.name


def test_only_what_h5repack_can_name_gets_other_chunks() -> None:
    """Its options have commas between names and a colon after them; a code of a terminal is not copied."""
    how = ((10**6,), "f4", (1000,), 1000, 4 * 10**6, 4 * 10**6)
    names = [Variable(name, *how) for name in ("a,b", "a:b", "\x1b[31m", "a b")]
    assert [choose_chunk_shape(one) != (1000,) for one in names] == [False, False, False, True]


# what is wrong


def make_sound(file: h5py.File) -> None:
    """Make chunks of a good size."""
    values = np.random.default_rng(0).normal(size=(4, 200, 200))
    file.create_dataset("x", data=values, chunks=(1, 200, 200), compression="gzip")


def make_wrong(file: h5py.File) -> None:
    """Make datasets of which each has its own fault."""
    file.create_dataset("tiny", data=np.ones((40, 40)), chunks=(10, 10))
    file.create_dataset("huge", (3000, 1000), "f8", chunks=(3000, 1000), compression=1)[0, 0] = 1
    file["names"] = ["a", "bb"]
    file.create_dataset("rare", data=np.ones(40_000), chunks=(20_000,), **hdf5plugin.Blosc())


def make_scattered(file: h5py.File) -> None:
    """Put objects, their metadata and small datasets between data of some MB."""
    values = np.random.default_rng(0).normal(size=700_000)
    for number in range(4):
        file[f"small{number}"], file[f"large{number}"] = values[:900], values


FAULTS: dict[str, tuple[Callable[[h5py.File], None], dict[str, Any], dict[str, str]]] = {
    "sound": (make_sound, {"fs_strategy": "page", "fs_page_size": MIB}, {}),
    "small pages": (
        lambda file: file.update({f"v{n}": n for n in range(300)}),
        {"fs_strategy": "page", "fs_page_size": 4096},
        {"page-size": "more than a page of 4.1 kB; make pages larger"},
    ),
    "wrong": (
        make_wrong,
        {"userblock_size": 512},
        {
            "paged-file-space": "the file has no pages",
            "user-block": "a user block of 512 bytes",
            "chunk-bytes": "below 100 kB: tiny; 1 dataset has chunks above 16 MB: huge",
            "chunk-cache": "chunks of huge have 24 MB",
            "variable-length": "1 dataset has values of variable length",
            "filters": "filters that need a plugin (blosc): rare",
        },
    ),
    "scattered": (
        make_scattered,
        {},
        {
            "paged-file-space": "the file has no pages",
            "consolidated-metadata": "metadata are scattered over",
            "small-datasets": "small datasets are scattered over",
        },
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_said(fault: str, tmp_path: Path) -> None:
    """What is wrong with a file comes before what can be gained, a line each."""
    make, how, failed = FAULTS[fault]
    with h5py.File(path := tmp_path / "made.h5", "w", **how) as file:
        make(file)
    found = json.loads(run(str(path), "--json")[1])
    assert {one["name"] for one in found["problems"]} == {*failed}
    _, text, _ = run(str(path))
    assert all(told in text for told in failed.values() or ["nothing is wrong"])
    assert text.count("wrong: ") == len(failed)
    assert text.index("speed-up") > text.index("by https://guide.cloudnativegeo.org")


# what ends, and is safe to print


def test_deep_nesting_is_no_recursion(tmp_path: Path) -> None:
    """Half as many groups again within one another as calls may be are all listed."""
    n_groups = 1500  # each is found by its whole path, so time grows as the square
    assert n_groups > sys.getrecursionlimit()
    with h5py.File(tmp_path / "made.h5", "w") as file:
        group = file
        for _ in range(n_groups):
            group = group.create_group("g")
        group["x"] = 1
    found = json.loads(run(str(tmp_path / "made.h5"), "--seconds", "60", "--json")[1])
    assert found["report"]["n_listed"] >= n_groups
    assert found["variables"][0].count("g/") == n_groups


def make_many(path: Path, n: int) -> str:
    """Make a file of many small datasets in some chunks each."""
    with h5py.File(path, "w") as file:
        for number in range(n):
            file.create_dataset(f"g{number % 40}/v{number}", data=np.zeros(20), chunks=(5,))
    return str(path)


@pytest.mark.parametrize("n", [6000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_the_whole_command_ends(n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time that is allowed there is an answer, which says what was left out."""
    path, seconds = make_many(tmp_path / "made.h5", n), n // 4000
    for variables in ((), ("--variables", "g0/v0")):
        began_s = time.process_time()
        code, text, _ = run(path, "--seconds", str(seconds), *variables)
        assert time.process_time() - began_s < seconds + 4  # without a bound: 5 and 50
        assert not code and text.count("s3fs.open") and "left out, for it would take long" in text
    monkeypatch.setattr(advice, "_LOOKING", 1.0)  # which leaves no time for anything but one
    assert "not predicted: xarray by URL (it would take long)" in run(path, "--seconds", "1")[1]


def test_chunks_beyond_a_bound_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file with more chunks than are looked at, the answer says how many it does not have."""
    monkeypatch.setattr(inspection, "MAX_CHUNKS", 100)
    make_long(tmp_path / "long.h5")
    for variables in ([], ["a"], ["a", "d"]):
        found = advise(str(tmp_path / "long.h5"), IN_REGION, variables=variables)
        n_there = 60 * (len(variables) or 4)
        n_seen = found.advice[-1].prediction.n_requests
        n_left_out = max(0, n_there - 100)  # an index has a few reads too
        assert found.report.n_left_out == pytest.approx(n_left_out, abs=5) and n_seen <= 105


def test_a_group_of_too_many_links_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library lists all at once; the answer says how many it does not have, and a name still leads there."""
    for module in (files, inspection):
        monkeypatch.setattr(module, "MAX_LINKS", 10)
    with h5py.File(tmp_path / "links.h5", "w") as file:
        made = file.create_dataset("x", data=np.zeros((100, 100)), chunks=(10, 100))
        for i in range(11):
            file[f"g/{i}"] = made
    for variables in ([], ["g/3"]):
        found = advise(str(tmp_path / "links.h5"), IN_REGION, variables=variables)
        assert found.report.n_left_out >= 11 and found.variables == (*(variables or ["x"]),)


def test_names_are_neither_run_nor_drawn(tmp_path: Path) -> None:
    """A dataset's name in a line to copy is quoted, and no code of a terminal is printed raw."""
    names = ['q"); __import__("os").system("id")#', "red\x1b[31m", "$(id)", "new\nline"]
    path = str(make_long(tmp_path / "a$(id).h5", names))
    code, text, _ = run(path, *(one for name in names[:3] for one in ("--variables", name)))
    assert not code and "\x1b" not in text
    commands = [line for line in text.splitlines() if "h5repack" in line]
    assert len(commands) == 4
    for line in commands:
        stand_in = "h5repack() { printf '%s\\0' \"$@\"; }; h5diff() { :; }; "
        shell = ["bash", "-c", stand_in + line[line.index("h5repack") :]]
        said = subprocess.run(shell, capture_output=True, check=True).stdout.decode().split("\0")
        assert said[-3] == path
        layouts = [one for one in said if ":CHUNK" in one]
        assert not layouts or layouts[0].startswith(f"{names[0]},{names[2]}:CHUNK=")


# what is refused


def test_command_refuses_in_one_line(path: Path, tmp_path: Path) -> None:
    """What cannot be advised on is named in one line."""
    text, short, empty = (tmp_path / name for name in ("text.txt", "short.nc", "empty.nc"))
    os.mkfifo(tmp_path / "pipe")
    text.write_text("no HDF5 at all" * 200)
    short.write_bytes(path.read_bytes()[:-100_000])
    empty.touch()
    cases = [
        ((str(tmp_path / "absent.nc"),), "is not there"),
        ((str(text),), "is not HDF5"),
        ((str(short),), "is truncated"),
        ((str(empty),), "is empty"),
        ((str(tmp_path),), "is a folder"),
        ((str(tmp_path / "pipe"),), "no regular file but a pipe"),  # which would be waited for
        (("/dev/zero",), "no regular file but a pipe or a device"),  # which never ends
        ((str(path), "--variables", "salt"), "'salt' is not in"),
        ((str(path), "--variables", "sea/salt"), "'sea/salt' is not in"),
        ((str(path), "--profile", "moon"), "profile: 'moon'"),
        ((str(path), "--repack", "magic"), "repack: 'magic'; allowed: "),
        (("http://127.0.0.1:9/a.h5?X-Amz-Signature=abcdef12",), "file: http://127.0.0.1:9/a.h5"),
        (("ftp://host/a.h5",), "allowed: "),
        *(((str(path), "--seconds", text), "seconds: ") for text in ("0.5", "nan", "inf", "1e308")),
    ]
    for arguments, said in cases:
        code, _, error = run(*arguments)
        assert code and isinstance(error, UserError), (arguments, error)
        assert said in str(error) and "\n" not in str(error) and "abcdef12" not in str(error)


def test_what_the_library_says_is_said_in_our_words(tmp_path: Path) -> None:
    """A header that is damaged has no class or call of a library in its message."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros(100))
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(content[:96] + b"\xff" * 1500 + content[1596:])
    _, _, error = run(str(tmp_path / "a.h5"))
    assert isinstance(error, UserError) and "its metadata make no sense" in str(error)
    assert "synchronously" not in str(error) and "Unable" not in str(error)


def test_a_store_that_is_away_is_soon_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """s3fs asks again itself; that its client did so as well made it 25 times."""
    given = {"ENDPOINT_URL": "http://127.0.0.1:9", "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s"}
    for variable, value in given.items():
        monkeypatch.setenv(f"AWS_{variable}", value)
    start_s = time.monotonic()
    with refused("file", "its server does not answer"):
        advise("s3://b/../x.h5", get_profile("in-region"))
    assert time.monotonic() - start_s < 8


class _Drip(Handler):
    """Says that an object is there, without its length, or sends it a byte at a time."""

    def do_HEAD(self) -> None:
        """Tell a length of some."""
        self.answer(200, **({"Content-Length": "9999999"} if "drip" in self.path else {"Connection": "close"}))  # fmt: skip

    def do_GET(self) -> None:
        """Never end."""
        self.answer(206, Content_Length="9999999", Content_Range="bytes 0-9999998/9999999")
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b"H")
                time.sleep(0.05)


@pytest.mark.parametrize(
    ("name", "seconds", "told"),
    [("drip", 0.2, "not read in 0.6 s"), ("none", 20, "cannot be read")],
)
def test_a_store_that_never_ends_is_one_line(
    name: str, seconds: float, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that sends a byte now and then, nor one that leaves out what its clients need."""
    with serve(_Drip) as url:
        given = {"ENDPOINT_URL": url, "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s"}
        for variable, value in given.items():
            monkeypatch.setenv(f"AWS_{variable}", value)
        with refused("file", f"^s3://b/{name}.h5:? .*{told}"):
            advise(f"s3://b/{name}.h5", get_profile("in-region"), seconds=seconds)


def test_addresses_of_web_servers_and_buckets_are_read(
    path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file is advised on over https (here without TLS) and from a bucket."""
    near = make_location(server, "advice")
    obstore.put(near.obstore(), path.name, path)
    for name, value in client_environment(near).items():
        monkeypatch.setenv(name, value)
    bucket = json.loads(run((near / path.name).url, "--json")[1])
    with serve(partial(Ranges, directory=str(path.parent))) as address:
        web = f"{address}/{path.name}"
        served = json.loads(run(web, "--json")[1])
    for found in (served, bucket):
        assert found["report"]["file_nbytes"] == path.stat().st_size
        assert {*VARIABLES} < {*found["variables"]}
    assert f"fsspec.open({web!r})" in served["advice"][0]["command"]
