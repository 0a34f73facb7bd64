"""Every format, read back by every client, and what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import obstore
import pytest

from helpers.arrays import readers
from helpers.arrays.services import open_services
from helpers.benchmark.contender import CheckError
from studies.formats import formats, workload
from studies.formats.formats import FORMATS, StoredFormats, make_formats
from studies.formats.readers import FORMAT_READERS, list_formats
from studies.formats.source import ACCESSES, choose
from studies.formats.tiles import encode_raster
from studies.formats.workload import FormatRead
from tests.refusals import refused
from tests.stores import make_location, make_sample, make_stored
from wire.bed import locations
from wire.bed.networks import get_profile
from wire.bed.proxy import open_proxy
from wire.bed.testbed import Server, Testbed

HERE = [
    name
    for name, reader in FORMAT_READERS.items()
    if reader.service == "s3" and not reader.missing()
]


@pytest.fixture(scope="module")
def kept(server: Server) -> StoredFormats:
    """Make every format of a small array."""
    stored = make_stored(make_location(server, "formats"))
    return make_formats(stored, list_formats(HERE))


@pytest.fixture(scope="module")
def testbed(server: Server, kept: StoredFormats) -> Testbed:
    """Reach the formats as they are, with nothing in between."""
    return _NoNetwork(kept)  # type: ignore[return-value]


class _NoNetwork:
    """A testbed whose network is none and whose trace is empty."""

    def __init__(self, kept: StoredFormats) -> None:
        self.far = self.near = kept.stored.location

    def take_trace(self) -> list[object]:
        return []

    def set_tag(self, tag: str) -> None:
        """Nothing is traced."""


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("name", HERE)
def test_every_client_reads_what_was_written(
    kept: StoredFormats, testbed: Testbed, name: str, access: str
) -> None:
    """Value by value: whole with several requests in flight, in part with one."""
    values = make_sample().block((0, 0, 0, 0), make_sample().shape)
    read = FormatRead(FORMAT_READERS[name], kept, testbed, {"whole": 4}.get(access, 1), access)
    with locations.credentials(kept.stored.location):
        read.prepare()
        found = read.read(read.open())
    assert read.check(found) == f"xxh3 of {found.size} values"
    np.testing.assert_array_equal(found, values[choose(access, kept.stored)])


@pytest.mark.parametrize(
    "name", [name for name, reader in FORMAT_READERS.items() if reader.service != "s3"]
)
def test_other_providers_are_read_over_their_own_network(kept: StoredFormats, name: str) -> None:
    """Behind another interface the same objects read the same, and each chunk is one request."""
    if reason := workload.list_missing([name]).get(name):
        pytest.skip(reason)
    reader, loopback = FORMAT_READERS[name], get_profile("loopback")
    with open_services(*workload.list_services([name], kept), loopback) as opened:
        steps = FormatRead(reader, kept, opened[reader.service], 4, "whole")
        steps.prepare()
        found = steps.read(steps.open())
        trace = opened[reader.service].take_trace()
        assert steps.check(found) == f"xxh3 of {found.size} values"
    chunks = [request for request in trace if "/c/" in request.key and request.nbytes]
    assert len(chunks) == kept.stored.n_chunks


def test_what_is_written_again_is_read_back(kept: StoredFormats) -> None:
    """Other values are refused, and nothing stays."""
    names = ["zarr-obstore", "netcdf-s3fs", "references-obstore", "csv-pandas"]
    with locations.credentials(kept.stored.location):
        writes = {one.name: one.steps for one in workload.make_write_contenders(names, kept)}
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


def test_the_code_that_is_shown_is_that_which_opens() -> None:
    """With what is passed to it, and the reader that it calls."""
    code = FORMAT_READERS["zarr-obstore"].show_code()
    assert "reader='zarr-obstore'" in code and code.count("def ") == 2


def test_wrong_values_are_no_row(kept: StoredFormats, testbed: Testbed) -> None:
    """One changed value, and one value too few, are refused."""
    read = FormatRead(FORMAT_READERS["zarr-obstore"], kept, testbed, 4, "whole")
    read.prepare()
    found = read.read(read.open()).copy()
    found[0, 0, 0, 0] = -1
    with pytest.raises(CheckError, match="zarr-obstore reads other values"):
        read.check(found)
    with pytest.raises(CheckError):
        read.check(found[:-1])


def test_formats_are_made_once(kept: StoredFormats) -> None:
    """What is there is found again, byte for byte; all hold something."""
    assert make_formats(kept.stored, list_formats(HERE)).nbytes == kept.nbytes
    assert all(nbytes > 0 for nbytes in kept.nbytes.values())
    assert kept.nbytes["csv"] > kept.stored.nbytes
    compressed = {"zarr", "cog", "tiledb", "parquet", "shards", "icechunk"} & {*kept.nbytes}
    assert all(kept.nbytes[name] < kept.stored.nbytes for name in compressed)


def test_spoilt_values_are_not_made_into_formats(server: Server) -> None:
    """An array that no longer is what was written is refused before it is copied."""
    stored = make_stored(make_location(server, "spoilt-formats"), seed=3)
    with refused("store", "holds other values than were written"):
        make_formats(replace(stored, checksums=stored.checksums + 1), ["csv"])


def test_a_contender_without_its_package_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named with how to get it, and the others go on."""
    lacking = replace(FORMAT_READERS["zarr-obstore"], packages=("no-such-package", "zarr"))
    monkeypatch.setitem(FORMAT_READERS._readers, "lacking", lacking)
    found = workload.list_missing(["zarr-obstore", "lacking"])
    assert found == {"lacking": "pip install no-such-package"}


def test_every_format_has_a_client_and_every_client_a_format() -> None:
    """None is made for nobody."""
    assert {client.format for client in FORMAT_READERS.values()} == {*FORMATS}


def test_requests_are_counted_by_the_proxy(server: Server, kept: StoredFormats) -> None:
    """Over a traced network a step asks for its own chunks, row groups, files and ranges alone."""
    with open_proxy(server.endpoint_url, profile=get_profile("loopback")) as proxy:
        place = kept.seen_from(kept.stored.location.through(proxy.endpoint_url))
        counted: dict[str, dict[str, tuple[int, int]]] = {}
        for name, access in itertools.product(
            ("zarr-obstore", "parquet-groups", "cog-rasterio"),
            ACCESSES,
        ):
            readers.forget_clients({})
            with locations.credentials(place.stored.location):
                opened = FORMAT_READERS[name].open(
                    place.locate(FORMAT_READERS[name].format), place.stored, 4
                )
                proxy.take_trace()
                opened(choose(access, kept.stored))
            trace = proxy.take_trace()
            nbytes = sum(int(one.nbytes) for one in trace)
            counted.setdefault(name, {})[access] = (len(trace), nbytes)
    n_asked = {access: n for access, (n, _) in counted["zarr-obstore"].items()}
    assert n_asked == {"whole": 12, "step": 4, "series": 3}
    for name in ("parquet-groups", "cog-rasterio"):
        assert counted[name]["step"][1] < 0.6 * counted[name]["whole"][1], name
    # a file or row group a step: a series asks for all of them, and of a raster for its tiles alone
    assert counted["parquet-groups"]["series"][1] > 0.9 * counted["parquet-groups"]["whole"][1]


def test_references_follow_their_file(kept: StoredFormats) -> None:
    """Those to a file that was written anew are made anew; those to Zarr know no file."""
    before = formats.identify_netcdf(kept.stored, "netcdf")
    client = kept.stored.locate("netcdf").obstore()
    content = bytes(obstore.get(client, "array.nc").bytes())
    obstore.put(client, "array.nc", content + b" ")
    try:
        assert formats.identify_netcdf(kept.stored, "netcdf") != before
    finally:
        obstore.put(client, "array.nc", content)
    assert formats.identify_netcdf(kept.stored, "") == []


@pytest.mark.parametrize(("is_compressed", "codec"), [(True, "ZSTD"), (False, None)])
def test_a_raster_is_compressed_as_asked(is_compressed: bool, codec: str | None) -> None:
    """Read back from the file: its tiles, its codec and its values."""
    memory = pytest.importorskip("rasterio.io")
    values = np.linspace(0, 30, 3 * 50 * 70, dtype=np.float32).reshape(3, 50, 70)
    content = encode_raster(values, width=32, is_compressed=is_compressed)
    assert (len(content) < values.nbytes) == is_compressed
    with memory.MemoryFile(content) as file, file.open() as raster:
        assert raster.tags(ns="IMAGE_STRUCTURE").get("COMPRESSION") == codec
        assert raster.block_shapes == [(32, 32)] * 3
        np.testing.assert_array_equal(raster.read(), values)
