"""A store is opened as asked, with the network before it that its kind allows."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import obstore
import pytest

from helpers.errors import UserError
from helpers.netem.profiles import get_profile
from helpers.objectstore.testbed import Server, Testbed, make_room, open_testbed
from tests.stores import client_environment, make_location

LOOPBACK = get_profile("loopback")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep generated stores in a folder of the test."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ARRAYS_CACHE_GB", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def own_store(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set the environment as for a store of one's own."""
    make_location(server, "wires")
    for name, value in client_environment(server).items():
        monkeypatch.setenv(name, value)
    return "s3://wires/folder"


def test_the_embedded_store_is_traced_and_kept(cache: Path) -> None:
    """It serves through the proxy, over any network, and keeps its objects; the probe is made once."""
    with open_testbed("embedded", LOOPBACK) as testbed:
        obstore.put(testbed.near.obstore(), "x", b"1234")
        assert testbed.take_trace() == [], "what is written near is not traced"
        testbed.set_tag("mine")
        assert bytes(obstore.get(testbed.far.obstore(), "x").bytes()) == b"1234"
        [row] = testbed.take_trace()
        assert (row.tag, row.key, row.nbytes) == ("mine", "/arrays/x", 4)
        assert not any(secret in repr(testbed) for secret in testbed.near.secrets)
        assert testbed.make_probe().endpoint_url == testbed.far.endpoint_url
        first = obstore.head(testbed.near.obstore(), "probe")
    assert first["size"] == 32_000_000 and (cache / "store").is_dir()
    with open_testbed("embedded", LOOPBACK) as testbed:
        testbed.make_probe()
        again = obstore.head(testbed.near.obstore(), "probe")
        assert again["last_modified"] == first["last_modified"]
        testbed.emulate(get_profile("wide-area"))
        testbed.take_trace()
        assert bytes(obstore.get(testbed.far.obstore(), "x").bytes()) == b"1234"
        [row] = testbed.take_trace()
        assert row.first_byte_s - row.start_s > 0.02


def test_a_store_of_ones_own_has_its_own_network_and_time(own_store: str) -> None:
    """One that speaks plain HTTP is traced; what would be emulated is refused, not ignored."""
    with open_testbed(own_store, LOOPBACK) as testbed:
        assert testbed.near.endpoint_url == os.environ["AWS_ENDPOINT_URL"]
        assert testbed.near.endpoint_url != testbed.far.endpoint_url
        obstore.put(testbed.far.obstore(), "y", b"12345")
        assert bytes(obstore.get(testbed.near.obstore(), "y").bytes()) == b"12345"
        [row] = testbed.take_trace()
        assert (row.method, row.key) == ("PUT", "/wires/folder/y")
    untraced = Testbed(testbed.near, testbed.near)
    untraced.emulate(LOOPBACK)
    untraced.set_tag("read")
    obstore.list(untraced.far.obstore()).collect()
    assert untraced.take_trace() == []
    far = get_profile("in-region")
    for refused in (lambda: untraced.emulate(far), open_testbed(own_store, far).__enter__):
        with pytest.raises(UserError, match="^profile: 'in-region'; allowed: loopback"):
            refused()  # type: ignore[operator]
    with pytest.raises(UserError, match="^dilation: 10; allowed: 1, because time is real"):
        open_testbed(own_store, LOOPBACK, dilation=10).__enter__()


@pytest.mark.parametrize(
    ("store", "says"),
    [("s3://absent", "no bucket 'absent'"), ("embeded", "allowed: embedded, s3://BUCKET/PREFIX")],
)
def test_refuses_store(own_store: str, store: str, says: str) -> None:
    """A store that is not there is refused before anything starts."""
    with pytest.raises(UserError, match=f"^store: .*{says}"):
        open_testbed(store, LOOPBACK).__enter__()


def fill(folder: Path, sizes: dict[str, int]) -> Path:
    """Make arrays of these many bytes, a second apart, oldest first."""
    bucket = folder / "buckets" / "arrays"
    for age, (name, nbytes) in enumerate(sizes.items()):
        (bucket / name / "zarr").mkdir(parents=True)
        (bucket / name / "zarr" / "x").write_bytes(bytes(nbytes))
        os.utime(bucket / name, (1e9 + age, 1e9 + age))
    return bucket


@pytest.mark.parametrize(
    ("needed_nbytes", "left"),
    [
        (0, {"old", "middle", "new"}),
        (400, {"old", "middle", "new"}),  # exactly full
        (401, {"middle", "new"}),
        (601, {"new"}),
        (1000, set()),
    ],
)
def test_oldest_arrays_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needed_nbytes: int, left: set[str]
) -> None:
    """Arrays made longest ago go first, as many as the cap asks, and no other file."""
    monkeypatch.setenv("ARRAYS_CACHE_GB", "1e-6")
    bucket = fill(tmp_path, {"old": 200, "middle": 300, "new": 100})
    (bucket / "probe").write_bytes(b"")
    make_room(tmp_path, needed_nbytes)
    assert {path.name for path in bucket.iterdir()} == left | {"probe"}


@pytest.mark.parametrize(
    ("cap", "says"),
    [
        ("lots", "^ARRAYS_CACHE_GB: 'lots'; allowed: a number of GB"),
        ("nan", "^ARRAYS_CACHE_GB: 'nan'; allowed: a number of GB"),
        ("-1", "^ARRAYS_CACHE_GB: '-1'; allowed: a number of GB"),
        ("1", "^ARRAYS_CACHE_GB: 1; allowed: at least 2.0 for this array"),
    ],
)
def test_refuses_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: str, says: str) -> None:
    """A cap that is no number, or below what one array needs, is refused; nothing is deleted."""
    monkeypatch.setenv("ARRAYS_CACHE_GB", cap)
    bucket = fill(tmp_path, {"old": 200})
    with pytest.raises(UserError, match=says):
        make_room(tmp_path, 2_000_000_000)
    assert (bucket / "old").is_dir()


def test_room_for_the_probe_is_asked_for_too(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object that networks are measured with lies beside the arrays."""
    free = SimpleNamespace(free=33_000_000)
    monkeypatch.setattr("helpers.objectstore.testbed.shutil.disk_usage", lambda _path: free)
    with pytest.raises(UserError, match="33 MB are free and 34 MB needed"):
        open_testbed("embedded", LOOPBACK, needed_nbytes=2_000_000).__enter__()


def test_arrays_that_another_run_reads_make_no_room(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run is refused before it deletes what the first serves; afterwards it makes room."""
    monkeypatch.setattr("helpers.objectstore.testbed._LOCK_TIMEOUT_S", 0.1)
    monkeypatch.setenv("ARRAYS_CACHE_GB", "1e-6")
    with open_testbed("embedded", LOOPBACK) as testbed:
        obstore.put((testbed.near / "old").obstore(), "x", bytes(600))
        for _ in range(2):
            with pytest.raises(UserError, match="in use by another server"):
                open_testbed("embedded", LOOPBACK, needed_nbytes=900).__enter__()
        assert len(obstore.get((testbed.far / "old").obstore(), "x").bytes()) == 600
    with open_testbed("embedded", LOOPBACK, needed_nbytes=900) as testbed:
        assert obstore.list(testbed.near.obstore()).collect() == []


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """It may be a mistake, and nothing is made."""
    place = tmp_path / "absent"
    with (
        pytest.raises(UserError, match="allowed: a folder that is there and may be written to"),
        open_testbed(f"file://{place}", LOOPBACK),
    ):
        pytest.fail("not reached")
    assert not place.exists()
