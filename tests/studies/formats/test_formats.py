"""Every format, read back by every client, and what is refused."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import os
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import obstore
import pytest
import zarr
from zarr.codecs import BloscCodec
from zarr.core import codec_pipeline

from helpers.arrays import readers
from helpers.benchmark.contender import CheckError
from helpers.errors import UserError
from helpers.netem.profiles import get_profile
from helpers.netem.proxy import open_proxy
from helpers.objectstore import locations
from helpers.objectstore.testbed import Server, Testbed
from helpers.paths import ROOT
from studies.formats import findings, formats, memory, snippets, workload
from studies.formats.clients import CLIENTS, list_formats
from studies.formats.formats import ACCESSES, FORMATS, Kept, choose, make_formats
from studies.formats.workload import FormatRead
from tests.stores import make_location, make_sample, make_stored

LOOPBACK = get_profile("loopback")
HERE = [name for name in CLIENTS if not CLIENTS[name].missing()]


@pytest.fixture(scope="module")
def kept(server: Server) -> Iterator[Kept]:
    """Make every format of a small array."""
    stored = make_stored(make_location(server, "formats"))
    made = make_formats(stored, list_formats(HERE))
    with workload.serve(
        made, Testbed(stored.location, stored.location), LOOPBACK, seed=0
    ) as served:
        yield served


@pytest.fixture(scope="module")
def testbed(server: Server, kept: Kept) -> Testbed:
    """Reach the formats as they are, with nothing in between."""
    return _NoNetwork(kept)  # type: ignore[return-value]


class _NoNetwork:
    """A testbed whose network is none and whose trace is empty."""

    def __init__(self, kept: Kept) -> None:
        self.far = self.near = kept.stored.location

    def take_trace(self) -> list[object]:
        return []

    def set_tag(self, tag: str) -> None:
        """Nothing is traced."""


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("name", HERE)
def test_every_client_reads_what_was_written(
    kept: Kept, testbed: Testbed, name: str, access: str
) -> None:
    """Value by value: whole with several requests in flight, in part with one."""
    values = make_sample().block((0, 0, 0, 0), make_sample().shape)
    read = FormatRead(CLIENTS[name], kept, testbed, {"whole": 4}.get(access, 1), access)
    with locations.credentials(kept.stored.location):
        read.prepare()
        found = read.read(read.open())
    assert read.check(found) == f"xxh3 of {found.size} values"
    np.testing.assert_array_equal(found, values[choose(access, kept.stored)])
    assert read.collect()["cpu_s"] > 0


def test_what_is_written_again_is_read_back(kept: Kept) -> None:
    """What a server hands out is not; other values are refused, and nothing stays."""
    names = ["zarr-obstore", "netcdf-s3fs", "references-obstore", "opendap-pydap", "csv-pandas"]
    with locations.credentials(kept.stored.location):
        writes = {way.name: way for way in workload.list_writes(names, kept)}
        assert {*writes} == {*list_formats(names)} - {"opendap"}
        for way in writes.values():
            way.prepare()
            way.read(None)
            assert way.check(None) == f"xxh3 of {way.source.values.size} values"
        wrong = replace(writes["csv"], source=replace(way.source, values=way.source.values + 1))
        wrong.read(None)
        with pytest.raises(CheckError, match="csv holds other values than were written"):
            wrong.check(None)
        wrong.prepare()
    assert not obstore.list(kept.folder.obstore(), "again").collect()


def test_memory_is_that_of_a_process_that_reads(kept: Kept) -> None:
    """It is counted, limited and compared; a process that fails is named."""
    with locations.credentials(kept.stored.location):
        [held] = memory.measure(["zarr-obstore"], kept, n_requests=4).values()
        assert held.added_nbytes > kept.stored.nbytes and not held.is_killed
        assert memory.limit(kept, 0, {}).empty
        seen = {memory.AT_ONCE: memory.Held(123_000_000)}
        generous, strict = memory.limit(kept, 1e5, seen), memory.limit(kept, 1e-3, {})
        with pytest.raises(CheckError, match="zarr-obstore reads other values"):
            changed = replace(kept, digests={"whole": "of others"})
            memory.read_apart("zarr-obstore", changed, n_requests=4)
        with pytest.raises(CheckError, match="nobody: its process ended with exit code 1"):
            memory.read_apart("nobody", kept, n_requests=4)
    assert {*generous.index} == {memory.AT_ONCE, memory.BY_GROUP}
    assert generous.loc[memory.AT_ONCE, "wants MB"] == 123, "as the table before it says"
    assert (generous["under the limit"] == "reads every value").all()
    assert (strict["under the limit"] == "killed").all()
    told = findings.tell_limit(strict)
    assert told["parquet-pandas-under-limit"] == "killed with at most 0.001 MB"


@pytest.mark.parametrize(
    "name",
    ["parquet-groups", "netcdf-dask-unaligned", "cog-rasterio", "icechunk-virtual", "zarr-s3fs"],
)
def test_the_code_that_is_shown_reads(kept: Kept, name: str) -> None:
    """What a page shows of a client, and counts, is whole: it runs, and reads what was written."""
    if CLIENTS[name].missing():
        pytest.skip(f"{name} is not installed")
    code, client = snippets.show_code(name, 4), CLIENTS[name]
    functions = snippets.find_functions(client)
    namespace = {key: value for one in functions[::-1] for key, value in one.__globals__.items()}
    namespace["zarr"] = zarr  # imports are not shown
    exec(code, namespace)
    how = getattr(client.open, "keywords", {})
    with locations.credentials(kept.stored.location), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # silencing is left out of what is shown
        read = namespace[functions[0].__name__](kept.at(client.format), kept.stored, 4, **how)
        values = read(choose("whole", kept.stored))
    zarr.config.reset()
    assert formats.digest(values) == kept.digests["whole"]
    lines = [line for line in code.splitlines() if line.strip()]
    named = [line for line in lines if line.lstrip().startswith(("def ", "#"))]
    assert snippets.count_lines(code) == len(lines) - len(named) > 2
    assert code in snippets.tell([name], 4) and "expected_warning" not in code


def test_wrong_values_are_no_row(kept: Kept, testbed: Testbed) -> None:
    """One changed value, and one value too few, are refused."""
    read = FormatRead(CLIENTS["zarr-obstore"], kept, testbed, 4, "whole")
    read.prepare()
    found = read.read(read.open()).copy()
    found[0, 0, 0, 0] = -1
    with pytest.raises(CheckError, match="zarr-obstore reads other values"):
        read.check(found)
    with pytest.raises(CheckError):
        read.check(found[:-1])


def test_a_server_that_gives_wrong_values_is_left_out(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named before anything is measured; a right one is not, nor what needs no server."""
    asked = [name for name in ("opendap-netcdf4", "opendap-pydap", "zarr-obstore") if name in HERE]
    assert workload.list_wrong(asked, kept) == {}

    def shift(*_given: object) -> Callable[[tuple[slice, ...]], np.ndarray]:
        """Answer a part as a server does that forgets where it begins."""
        return lambda box: values[: box[0].stop - box[0].start]

    values = make_sample().block((0, 0, 0, 0), make_sample().shape)
    broken = replace(CLIENTS["opendap-netcdf4"], open=shift)
    monkeypatch.setattr(workload, "CLIENTS", {**CLIENTS, "opendap-netcdf4": broken})
    [(name, reason)] = workload.list_wrong(["opendap-netcdf4"], kept).items()
    assert (name, reason) == (
        "opendap-netcdf4",
        "its server returns other values than were written (step)",
    )


@pytest.mark.skipif("opendap-netcdf4" not in HERE, reason="pydap is not installed")
def test_a_service_has_a_network_and_a_trace(server: Server, kept: Kept) -> None:
    """What an OPeNDAP server sends passes the emulated network as what a store sends does."""
    with open_proxy(server.endpoint_url, profile=LOOPBACK) as proxy:
        far = kept.stored.location.through(proxy.endpoint_url)
        testbed = Testbed(kept.stored.location, far, proxy)
        with workload.serve(kept, testbed, LOOPBACK, seed=0) as served:
            testbed.emulate(LOOPBACK)
            read = FormatRead(CLIENTS["opendap-netcdf4"], served, testbed, 4, "step")
            read.prepare()
            found = read.read(read.open())
            assert read.check(found)
            counts = read.collect()
        assert testbed.others == []
    assert counts["n_open_requests"] >= 2  # structure and attributes
    assert counts["n_requests"] >= 1 and counts["wire_nbytes"] >= found.nbytes


def test_formats_are_made_once(kept: Kept) -> None:
    """What is there is found again, byte for byte; all hold something."""
    assert make_formats(kept.stored, list_formats(HERE)).nbytes == kept.nbytes
    assert all(nbytes > 0 for nbytes in kept.nbytes.values())
    assert kept.nbytes["csv"] > kept.stored.nbytes > kept.nbytes["zarr"]


def test_spoilt_values_are_not_made_into_formats(server: Server) -> None:
    """An array that no longer is what was written is refused before it is copied."""
    stored = make_stored(make_location(server, "spoilt-formats"), seed=3)
    with pytest.raises(UserError, match="holds other values than were written"):
        make_formats(replace(stored, checksums=stored.checksums + 1), ["csv"])


def test_a_contender_without_its_package_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named with how to get it, and the others go on."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *more: None if name == "tensorstore" else find(name, *more),
    )
    missing = workload.list_missing(["zarr-obstore", "zarr-tensorstore"])
    assert missing == {"zarr-tensorstore": "pip install tensorstore"}


def test_credentials_are_there_and_gone(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the store take the place of the user's, whose session token does not stay."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of another")
    with locations.credentials(kept.stored.location):
        assert os.environ["AWS_ACCESS_KEY_ID"] == kept.stored.location.access_key
        assert "AWS_SESSION_TOKEN" not in os.environ
    assert os.environ["AWS_SESSION_TOKEN"] == "of another"


def test_every_format_has_a_client_and_every_client_a_format() -> None:
    """None is made for nobody."""
    assert {client.format for client in CLIENTS.values()} == {*FORMATS}


def test_requests_are_counted_by_the_proxy(server: Server, kept: Kept) -> None:
    """Over a traced network a step asks for its own chunks, row groups, files and ranges alone."""
    with open_proxy(server.endpoint_url, profile=get_profile("loopback")) as proxy:
        place = kept.seen_from(kept.stored.location.through(proxy.endpoint_url))
        counted: dict[str, dict[str, tuple[int, int]]] = {}
        for name, access in itertools.product(
            ("zarr-direct", "parquet-groups", "cog-rasterio", "csv-parts-pandas", "netcdf-http"),
            ACCESSES,
        ):
            readers.forget_clients({})
            with locations.credentials(place.stored.location):
                opened = CLIENTS[name].open(place.at(CLIENTS[name].format), place.stored, 4)
                proxy.take_trace()
                opened(choose(access, kept.stored))
            trace = proxy.take_trace()
            nbytes = sum(int(one.nbytes) for one in trace)
            counted.setdefault(name, {})[access] = (len(trace), nbytes)
    n_asked = {access: n for access, (n, _) in counted["zarr-direct"].items()}
    assert n_asked == {"whole": 12, "step": 4, "series": 3}
    for name in ("parquet-groups", "cog-rasterio", "csv-parts-pandas"):
        assert counted[name]["step"][1] < 0.6 * counted[name]["whole"][1], name
    # a file or row group a step: a series asks for all of them, and of a raster for its tiles alone
    assert counted["parquet-groups"]["series"][1] > 0.9 * counted["parquet-groups"]["whole"][1]
    assert counted["netcdf-http"]["step"][0] > 0, "it passes by the network"


def test_references_follow_their_file(kept: Kept) -> None:
    """Those to a file that was written anew are made anew; those to Zarr know no file."""
    before = formats._identify(kept.stored, "netcdf")
    client = kept.stored.at("netcdf").obstore()
    content = bytes(obstore.get(client, "array.nc").bytes())
    obstore.put(client, "array.nc", content + b" ")
    try:
        assert formats._identify(kept.stored, "netcdf") != before
    finally:
        obstore.put(client, "array.nc", content)
    assert formats._identify(kept.stored, "") == []


def test_the_statements_of_zarr_that_the_page_names_are_there() -> None:
    """What stands in the way of decoding in place is what the installed zarr does."""
    text = (ROOT / "formats.md").read_text(encoding="utf-8")
    [named] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    pipeline = codec_pipeline.BatchedCodecPipeline
    functions = BloscCodec._decode_sync, codec_pipeline.scatter_chunk, pipeline.read
    for line, function in zip(named.splitlines(), functions, strict=True):
        assert line in [one.strip(" ,") for one in inspect.getsource(function).splitlines()]
