"""What the advisor predicts is what the proxy then counts, on files made by other tools."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import netCDF4
import numpy as np
import obstore
import pytest
from click.testing import CliRunner

from advisors.hdf5.advice import Advised, advise
from advisors.hdf5.prediction import MIB, UNTUNED, Settings, predict_read, read_file
from advisors.hdf5.recording import open_source, record_reads
from advisors.hdf5.repack import Repack, apply_repack
from helpers.cli import main
from helpers.errors import UserError
from helpers.netem.profiles import get_profile, network_of
from helpers.netem.proxy import Proxy, open_proxy
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Server
from tests.stores import make_location

IN_REGION = get_profile("in-region")
SETTINGS = Settings(block_nbytes=MIB, page_buffer_nbytes=16 * MIB)

CDL = """netcdf small {
dimensions: time = UNLIMITED ; x = 40000 ;
variables:
  double time(time) ; time:units = "days since 2000-01-01" ;
  float wind(time, x) ; wind:units = "m s-1" ; wind:_ChunkSizes = 1, 40000 ;
  int count(x) ; count:_ChunkSizes = 5000 ; count:_DeflateLevel = 2 ;
  :title = "made by ncgen" ;
data:
  time = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 ;
  wind = WIND ;
  count = COUNT ;
group: inner {
  variables: float gust(x) ; gust:long_name = "gust" ; gust:_ChunkSizes = 2000 ;
  data: gust = COUNT ;
}
}
"""


def make_with_netcdf4(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Make a file with netCDF4-python: groups, an unlimited dimension, noise that compresses badly."""
    path, rng = folder / "made.nc", np.random.default_rng(1)
    with netCDF4.Dataset(path, "w") as made:
        made.title = "made by netCDF4-python"
        for name, length in (("time", None), ("y", 120), ("x", 160)):
            made.createDimension(name, length)
        for group in ("ocean", "ice"):
            for name in ("a", "b", "c"):
                where = made.createGroup(group)
                new = where.createVariable(
                    name, "f4", ("time", "y", "x"), zlib=True, chunksizes=(2, 60, 80)
                )
                new.units = "K"
                new[:] = rng.normal(size=(10, 120, 160))
    return path, ("ocean/b", "ice/c")


def make_with_ncgen(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Make a file with ncgen: chunks that are not compressed, others that are."""
    if not shutil.which("ncgen"):
        pytest.skip("ncgen is not on PATH")
    path, text = folder / "generated.nc", folder / "generated.cdl"
    values = ", ".join(map(str, range(40_000)))
    text.write_text(CDL.replace("COUNT", values).replace("WIND", ", ".join([values] * 10)))
    subprocess.run(["ncgen", "-4", "-o", str(path), str(text)], check=True)
    return path, ("wind", "inner/gust")


def make_with_h5repack(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Make a file with h5repack: pages of 64 KiB, as small as some producers leave them."""
    if not shutil.which("h5repack"):
        pytest.skip("h5repack is not on PATH")
    made, variables = make_with_netcdf4(folder)
    path = folder / "repacked.nc"
    subprocess.run(["h5repack", "-S", "PAGE", "-G", "65536", str(made), str(path)], check=True)
    return path, variables


MAKERS = (make_with_netcdf4, make_with_ncgen, make_with_h5repack)


class Testbed(NamedTuple):
    """A bucket behind the proxy."""

    near: Location
    far: Location
    proxy: Proxy

    def put(self, path: Path) -> None:
        """Upload a file under its name."""
        obstore.put(self.near.obstore(), path.name, path)

    def count(self, name: str, settings: Settings, variables: tuple[str, ...]) -> tuple[int, int]:
        """Read a file over the network, and count requests and bytes."""
        with open_source(self.near / name) as file:
            page_nbytes = record_reads(file, name, ()).page_nbytes
        self.proxy.take_trace()
        read_file(self.far / name, settings, variables, page_nbytes=page_nbytes)
        rows = self.proxy.take_trace()
        return len(rows), sum(row.nbytes for row in rows)


@pytest.fixture(scope="module")
def testbed(server: Server) -> Iterator[Testbed]:
    """Put the network of a region before a bucket."""
    near = make_location(server, "advisor")
    with open_proxy(server.endpoint_url, profile=IN_REGION, seed=3) as proxy:
        yield Testbed(near, near.through(proxy.endpoint_url), proxy)


class Made(NamedTuple):
    """A file, and what is said of it."""

    path: Path
    variables: tuple[str, ...]
    advised: Advised


@pytest.fixture(scope="module", params=MAKERS, ids=lambda maker: maker.__name__[10:])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Make a file with another tool, and advise on it."""
    path, variables = request.param(tmp_path_factory.mktemp("made"))
    advised = advise(str(path), IN_REGION, variables=variables, settings=SETTINGS)
    return Made(path, variables, advised)


@pytest.mark.parametrize("settings", [UNTUNED, SETTINGS], ids=["untuned", "tuned"])
def test_present_file_is_foretold_exactly(made: Made, testbed: Testbed, settings: Settings) -> None:
    """Requests and bytes of the file as it is are those that the proxy counts."""
    testbed.proxy.emulate(IN_REGION)
    testbed.put(made.path)
    with open_source(str(made.path)) as file:
        recording = record_reads(file, made.path.name, made.variables)
    found = predict_read(recording, settings, network_of(IN_REGION))
    assert (found.n_requests, found.nbytes) == testbed.count(
        made.path.name, settings, made.variables
    )


def test_every_repair_is_foretold(made: Made, testbed: Testbed, tmp_path: Path) -> None:
    """A repack is predicted from a model; done, it makes as many requests as predicted."""
    testbed.proxy.emulate(get_profile("loopback"))  # what is counted does not depend on time
    for number, advice in enumerate(made.advised.advice):
        if advice.repack is None:
            continue
        out = tmp_path / f"{number}-{made.path.name}"
        apply_repack(str(made.path), advice.repack, out)
        testbed.put(out)
        n_requests, nbytes = testbed.count(out.name, SETTINGS, made.variables)
        assert n_requests == advice.prediction.n_requests, advice.label
        # whole blocks but for the last of the file, whose length h5repack decides to a few kB
        assert nbytes == pytest.approx(advice.prediction.nbytes, rel=0.06), advice.label


def test_repaired_file_opens_in_five_requests(made: Made) -> None:
    """With blocks as large as pages, opening and listing a paged file is a handful of requests."""
    advised = advise(str(made.path), IN_REGION, variables=made.variables)
    paged = [one for one in advised.advice if one.repack and one.repack.page_nbytes]
    assert len(paged) >= 2
    assert all(one.prediction.open.n_requests <= 5 for one in paged)
    assert all(one.gain > 1 for one in paged), "one request for each read is slower"


def test_advice_is_sorted_and_told(made: Made) -> None:
    """The best comes first, its gain is against the file as it is, and each says how."""
    seconds = [one.prediction.seconds for one in made.advised.advice]
    assert seconds == sorted(seconds)
    for one in made.advised.advice:
        assert one.gain == pytest.approx(made.advised.present.seconds / one.prediction.seconds)
        assert one.command and one.cost


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    """Run the command line."""
    done = CliRunner().invoke(main, ["hdf5", "advise", *arguments])
    return done.exit_code, done.output, done.exception


def test_command_reports_and_applies(tmp_path: Path) -> None:
    """The command prints JSON that is whole, and a copy whose content is equal."""
    path, variables = make_with_netcdf4(tmp_path)
    before = path.read_bytes()
    out = tmp_path / "out.nc"
    code, output, _ = run(str(path), "--variable", variables[0], "--json")
    found = json.loads(output)
    assert code == 0 and found["variables"] == [variables[0]]
    assert found["report"]["page_nbytes"] == 0
    assert found["costs"]["is_assumed"] is True
    code, output, _ = run(str(path), "--apply", str(out))
    assert code == 0 and "attributes are equal" in output
    assert "are assumed, not measured" in output
    assert out.exists() and path.read_bytes() == before
    other = tmp_path / "other.out.nc"
    code, output, _ = run(str(path), "--apply", str(other), "--repack", "paged, 4 MiB pages")
    assert code == 0 and output.splitlines()[-1].startswith("paged, 4 MiB pages: ")
    with open_source(str(other)) as file:
        assert record_reads(file, other.name, ()).page_nbytes == 4 * MIB


def test_command_refuses_in_one_line(tmp_path: Path) -> None:
    """What cannot be advised on is named in one line, before anything is written."""
    path, _ = make_with_netcdf4(tmp_path)
    text, short = tmp_path / "text.txt", tmp_path / "short.nc"
    text.write_text("no HDF5 at all" * 200)
    short.write_bytes(path.read_bytes()[:-100_000])
    paged = tmp_path / "paged.nc"
    apply_repack(str(path), Repack(8 * MIB), paged)
    cases = (
        ((str(tmp_path / "absent.nc"),), "is not there"),
        ((str(text),), "is not HDF5"),
        ((str(short),), "is truncated"),
        ((str(tmp_path),), "is a folder"),
        ((str(path), "--variable", "salt"), "'salt' is not in"),
        ((str(path), "--profile", "moon"), "profile is 'moon'"),
        ((str(path), "--apply", str(path)), "is the input"),
        ((str(path), "--apply", str(short)), "is there already"),
        ((str(path), "--apply", str(tmp_path / "no" / "out.nc")), "no folder"),
        ((str(path), "--repack", "magic"), "repack: 'magic'; allowed: "),
        (
            (str(paged), "--page-buffer", "4"),
            "page-buffer: 4 MiB; allowed: 0, or at least a page of the file, 8 MiB",
        ),
    )
    if Path("/proc").is_dir():  # where nobody may write, the superuser neither
        cases += (((str(path), "--apply", "/proc/out.nc"), "/proc cannot be written to"),)
    for arguments, said in cases:
        code, _, error = run(*arguments)
        assert code and isinstance(error, UserError), arguments
        assert said in str(error) and "\n" not in str(error), str(error)
