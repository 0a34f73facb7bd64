"""What the advisor predicts is what the proxy then counts, and nothing is advised that is no gain."""

from __future__ import annotations

import functools
import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import netCDF4
import numpy as np
import obstore
import pytest
from click.testing import CliRunner

from advisors.hdf5 import files
from advisors.hdf5.advice import MOST_GROWTH, advise, list_repacks
from advisors.hdf5.copying import MIB, Repack
from advisors.hdf5.files import open_hdf5, open_source
from advisors.hdf5.inspection import (
    LoggedFile,
    Read,
    Recording,
    inspect_file,
    list_tree,
    record_reads,
)
from advisors.hdf5.prediction import (
    TODAY,
    FileCache,
    Forecaster,
    PageBuffer,
    Settings,
    SparseFile,
    order_reads,
    read_through,
    record_repacked,
)
from advisors.hdf5.repack import apply_repack
from helpers.cli import main
from helpers.errors import UserError
from helpers.models.transfer import TYPICAL_COSTS
from helpers.netem.profiles import get_profile, network_of
from helpers.netem.proxy import Proxy, open_proxy
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Server
from tests.stores import make_location

IN_REGION = get_profile("in-region")
SETTINGS = Settings(block_nbytes=MIB, page_buffer_nbytes=16 * MIB)
VARIABLES = ("ocean/b", "ice/c")


def make_netcdf(path: Path) -> Path:
    """Make a file with netCDF4-python: groups, an unlimited dimension, noise that compresses badly."""
    rng = np.random.default_rng(1)
    with netCDF4.Dataset(path, "w") as made:
        made.title = "made by netCDF4-python"
        for name, length in (("time", None), ("y", 120), ("x", 160)):
            made.createDimension(name, length)
        for group in ("ocean", "ice"):
            for name in ("a", "b", "c"):
                where, how = made.createGroup(group), {"zlib": True, "chunksizes": (2, 60, 80)}
                new = where.createVariable(name, "f4", ("time", "y", "x"), **how)
                new.units = "K"
                new[:] = rng.normal(size=(10, 120, 160))
    return path


class Bed(NamedTuple):
    """A bucket behind the proxy."""

    near: Location
    far: Location
    proxy: Proxy

    def count(self, path: Path, settings: Settings) -> tuple[int, int]:
        """Store a file, read it over the network, and count requests and bytes."""
        obstore.put(self.near.obstore(), path.name, path)
        with open_source(self.near / path.name) as file:
            page_nbytes = record_reads(file, path.name, ()).page_nbytes
        self.proxy.take_trace()
        place, how = self.far / path.name, {"page_buf_size": settings.choose_page_buffer(page_nbytes)}  # fmt: skip
        client = place.fsspec(skip_instance_cache=True)
        with (
            client.open(place.path, **settings.file_options()) as file,
            open_hdf5(file, path.name, **how) as found,
        ):
            list_tree(found)
            for variable in VARIABLES:
                found[variable][...]
        rows = self.proxy.take_trace()
        return len(rows), sum(row.nbytes for row in rows)


@pytest.fixture(scope="module")
def bed(server: Server) -> Iterator[Bed]:
    """Put a proxy before a bucket; what is counted does not depend on the network."""
    near = make_location(server, "advisor")
    with open_proxy(server.endpoint_url, profile=get_profile("loopback")) as proxy:
        yield Bed(near, near.through(proxy.endpoint_url), proxy)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a file once."""
    return make_netcdf(tmp_path_factory.mktemp("made") / "made.nc")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a file of 250 MB of holes, with chunks of four variables between one another."""
    path = tmp_path_factory.mktemp("long") / "long.h5"
    with SparseFile(path) as target, h5py.File(target, "w") as file:
        how = {"shape": (30 * MIB,), "dtype": "u2", "chunks": (MIB,)}
        made = [file.create_dataset(name, **how) for name in "abcd"]
        for at in range(0, 30 * MIB, MIB):
            for dataset in made:
                dataset.id.write_direct_chunk((at,), bytes(2 * MIB))
    return path


def test_first_come_the_default_and_a_download(long: Path) -> None:
    """What people have today is the measure of all; nothing follows that is slower, or twice as long."""
    advised = advise(str(long), IN_REGION, variables=["b", "c"])
    today, whole, *others = advised.advice
    assert (today.label, today.gain) == ("today's default", 1)
    assert whole.label == "download it whole"
    assert today.prediction.nbytes > whole.prediction.nbytes == long.stat().st_size
    gains = [one.gain for one in others]
    assert others and min(gains) > 1 and gains == sorted(gains, reverse=True)
    for one in advised.advice:
        assert one.gain == pytest.approx(today.prediction.seconds / one.prediction.seconds)
        assert one.command and one.cost
    assert advised.find_repack() in {one.repack for one in others}


def test_some_variables_open_their_groups_alone(path: Path) -> None:
    """Whoever asks for a variable of a group does not wait for the headers of the others."""
    one, every = (advise(str(path), IN_REGION, variables=v) for v in (["ice/c"], []))
    with open_source(str(path)) as file:
        some, whole = (record_reads(file, "x", ["ice/c"], groups=g) for g in (["ice"], None))
    assert 4 <= some.n_listed < whole.n_listed and len(some.opened) < len(whole.opened)
    assert one.advice[0].prediction.open_s < every.advice[0].prediction.open_s


def test_a_repack_that_is_too_long_is_not_advised(tmp_path: Path) -> None:
    """A file of some kB would be pages of many MiB."""
    with h5py.File(tmp_path / "small.h5", "w") as file:
        file.create_dataset("x", data=np.arange(900.0), chunks=(30,), compression=1)
    found = advise(str(tmp_path / "small.h5"), IN_REGION)
    assert not any(one.repack for one in found.advice) and MOST_GROWTH == 2
    with pytest.raises(UserError, match="^repack: none would be faster; allowed: paged, 4 MiB"):
        found.find_repack()
    assert found.find_repack("paged, 4 MiB pages") == Repack(4 * MIB)


def forecast(path: Path, recording: Recording, settings: Settings) -> tuple[int, int]:
    """Predict requests and bytes of reading the variables."""
    with open_source(str(path)) as file:
        report, _ = inspect_file(file, path.name)
    forecaster = Forecaster(report, VARIABLES, network_of(IN_REGION), TYPICAL_COSTS)
    found = forecaster.read(recording, settings)
    return found.n_requests, found.nbytes


@pytest.mark.parametrize(
    "settings", [Settings("none", page_buffer_nbytes=0), TODAY, SETTINGS], ids=str
)
def test_reads_of_the_present_file_are_foretold_exactly(
    bed: Bed, path: Path, settings: Settings
) -> None:
    """Requests and bytes are those that the proxy counts."""
    with open_source(str(path)) as file:
        recording = record_reads(file, path.name, VARIABLES)
    assert forecast(path, recording, settings) == bed.count(path, settings)


@pytest.mark.parametrize("number", range(4))
def test_every_repack_is_foretold(bed: Bed, path: Path, tmp_path: Path, number: int) -> None:
    """A repack is predicted from a model; done, it makes as many requests as predicted."""
    with open_source(str(path)) as file:
        report, _ = inspect_file(file, path.name)
        repack = list_repacks(report)[number]
        predicted = forecast(path, record_repacked(file, path.name, repack, VARIABLES), SETTINGS)
    apply_repack(str(path), repack, out := tmp_path / f"{number}.nc")
    counted = bed.count(out, SETTINGS)
    assert (predicted[0], pytest.approx(predicted[1], rel=0.06)) == counted, repack.label


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    """Run the command line."""
    done = CliRunner().invoke(main, ["hdf5", "advise", *arguments])
    return done.exit_code, done.output, done.exception


def test_command_reports_and_applies(path: Path, tmp_path: Path) -> None:
    """The command prints JSON that is whole, and writes a copy whose content is equal."""
    before, out, other = path.read_bytes(), tmp_path / "out.nc", tmp_path / "other.nc"
    code, output, _ = run(str(path), "--variables", ",".join(VARIABLES), "--json")
    found = json.loads(output)
    assert code == 0 and found["variables"] == [*VARIABLES]
    assert found["report"]["page_nbytes"] == 0 and found["costs"]["is_assumed"] is True
    assert found["advice"][0]["label"] == "today's default"
    label = "paged, 4 MiB pages"
    code, output, _ = run(str(path), "--apply", str(out), "--repack", label)
    assert code == 0 and output.splitlines()[-1].startswith(f"{label}: ")
    assert "attributes are equal" in output and "are assumed, not measured" in output
    assert path.read_bytes() == before
    with open_source(str(out)) as file:
        assert record_reads(file, out.name, ()).page_nbytes == 4 * MIB
    assert run(str(path), "--apply", str(other), "--repack", label, "--json")[0] == 0


def test_command_refuses_in_one_line(path: Path, tmp_path: Path) -> None:
    """What cannot be advised on is named in one line, before anything is written."""
    text, short = (tmp_path / name for name in ("text.txt", "short.nc"))
    os.mkfifo(tmp_path / "pipe")
    text.write_text("no HDF5 at all" * 200)
    short.write_bytes(path.read_bytes()[:-100_000])
    cases = [
        ((str(tmp_path / "absent.nc"),), "is not there"),
        ((str(text),), "is not HDF5"),
        ((str(short),), "is truncated"),
        ((str(tmp_path),), "is a folder"),
        ((str(tmp_path / "pipe"),), "no regular file but a pipe"),  # which would be waited for
        ((str(path), "--variables", "salt"), "'salt' is not in"),
        ((str(path), "--profile", "moon"), "profile: 'moon'"),
        ((str(path), "--apply", str(path)), "is the input"),
        ((str(path), "--apply", str(short)), "is there already"),
        ((str(path), "--apply", str(tmp_path / "no" / "out.nc")), "no folder"),
        ((str(path), "--repack", "magic"), "repack: 'magic'; allowed: "),
        (("http://127.0.0.1:9/a.h5?X-Amz-Signature=abcdef12",), "file: http://127.0.0.1:9/a.h5"),
        (("ftp://host/a.h5",), "allowed: "),
    ]
    if Path("/proc").is_dir():  # where nobody may write, the superuser neither
        cases += [((str(path), "--apply", "/proc/out.nc"), "/proc cannot be written to")]
    for arguments, said in cases:
        code, _, error = run(*arguments)
        assert code and isinstance(error, UserError), (arguments, error)
        assert said in str(error) and "\n" not in str(error) and "abcdef12" not in str(error)


class _Ranges(http.server.SimpleHTTPRequestHandler):
    """Serves files by ranges, as web servers do."""

    def do_GET(self) -> None:
        """Send the bytes that are asked for."""
        content, asked = Path(self.translate_path(self.path)).read_bytes(), self.headers["Range"]
        first, _, last = asked.removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def end_headers(self) -> None:
        """Say that ranges are served."""
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_addresses_of_web_servers_and_buckets_are_read(
    path: Path, bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file is advised on over https (here without TLS) and from a bucket."""
    handler = functools.partial(_Ranges, directory=str(path.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{served.server_port}/{path.name}"
        web = json.loads(run(address, "--json")[1])
        served.shutdown()
    obstore.put(bed.near.obstore(), path.name, path)
    given = {"AWS_ENDPOINT_URL": bed.near.endpoint_url, "AWS_ACCESS_KEY_ID": bed.near.access_key}
    for name, value in (given | {"AWS_SECRET_ACCESS_KEY": bed.near.secret_key}).items():
        monkeypatch.setenv(name, str(value))
    store = json.loads(run((bed.near / path.name).url, "--json")[1])
    for found in (web, store):
        assert found["report"]["file_nbytes"] == path.stat().st_size
        assert {*VARIABLES} < {*found["variables"]}
    assert "fsspec.open(url)" in web["advice"][0]["command"]


def test_a_walk_over_links_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with more links than anyone would walk is named, and not walked."""
    monkeypatch.setattr(files, "MAX_LINKS", 100)
    with h5py.File(tmp_path / "many.h5", "w") as file:
        for number in range(101):
            file[f"g/{number}"] = h5py.SoftLink("/g")
    for command in ("advise", "check"):
        done = CliRunner().invoke(main, ["hdf5", command, str(tmp_path / "many.h5")])
        assert done.exit_code
        assert "has more than 100 links" in f"{done.output}{done.exception}"


def ask(name: str, reads: list[tuple[int, int]], file_nbytes: int = 950) -> list[tuple[int, int]]:
    """Give offsets and lengths of what a cache of blocks of 100 bytes asks for."""
    given = [Read(*span) for span in reads]
    _, asked = read_through([FileCache(name, 100)], given, file_nbytes)
    return [(one.offset, one.nbytes) for one in asked]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("none", [(0, 10), (150, 60), (20, 10), (940, 10)]),  # clipped to the file
        ("readahead", [(0, 110), (150, 160), (20, 110), (940, 10)]),
        ("first", [(0, 100), (150, 60), (940, 10)]),
        ("blockcache", [(0, 100), (100, 100), (200, 100), (900, 50)]),
        # the next block comes too, and is there
        ("background", [(0, 100), (100, 100), (200, 100), (300, 100), (900, 50)]),
    ],
)
def test_fsspec_is_asked_as_it_is(name: str, asked: list[tuple[int, int]]) -> None:
    """The requests are those of the class of that name in fsspec."""
    assert ask(name, [(0, 10), (150, 60), (20, 10), (940, 30)]) == asked


def test_what_is_read_ahead_is_not_waited_for() -> None:
    """A block fetched in the background is marked, and starts with the read after it."""
    _, asked = read_through([FileCache("background", 100)], [Read(0, 10), Read(150, 10)], 1000)
    assert [one.is_ahead for one in asked] == [False, True, True]
    assert [step.after for step in order_reads(asked)] == [(), (0,), (0,)]
    assert [step.is_waited for step in order_reads(asked)] == [True, False, False]


def test_the_default_reads_ahead_as_far_as_s3fs_does() -> None:
    """What is called today's default is what s3fs has."""
    from s3fs import S3FileSystem

    files = S3FileSystem(anon=True, skip_instance_cache=True)
    assert (TODAY.cache_type, TODAY.block_nbytes) == (files.default_cache_type, files.default_block_size)  # fmt: skip


@pytest.mark.parametrize("n_pages", [1, 2, 3, 5, 200])
def test_page_buffer_asks_for_what_hdf5_asks_for(n_pages: int, tmp_path: Path) -> None:
    """Every read of the library behind its page buffer is simulated from those without one."""
    path, rng = tmp_path / "paged.h5", np.random.default_rng(0)
    with h5py.File(path, "w", fs_strategy="page", fs_page_size=16384) as file:
        for number in range(24):
            made = file.create_dataset(
                f"g{number % 3}/v{number}", data=rng.normal(size=2500), chunks=(700,), shuffle=True
            )
            made.attrs["long_name"] = "x" * 300
    variables = ["g1/v4", "g2/v5", "g1/v7", "g1/v4"]
    buffer_nbytes = n_pages * 16384 + 100  # HDF5 rounds down
    with open_source(str(path)) as file:
        recording = record_reads(file, "paged", variables)
        log = LoggedFile(file)
        with open_hdf5(log, "paged", page_buf_size=buffer_nbytes) as opened:
            list_tree(opened)
            for variable in variables:
                opened[variable][...]
    reads = [*recording.opened, *recording.read]
    buffer = PageBuffer(16384, buffer_nbytes, recording.n_first_past)
    n_first = len(recording.opened)
    opening, reading = read_through([buffer], reads, recording.file_nbytes, n_first=n_first)
    assert [(read.offset, read.nbytes) for read in (*opening, *reading)] == log.spans
