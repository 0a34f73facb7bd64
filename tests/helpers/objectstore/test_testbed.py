"""A store is opened as asked, with the network before it that its kind allows."""

from __future__ import annotations

import os
import urllib.request
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


def test_embedded_store_is_traced_and_kept(cache: Path) -> None:
    """The embedded store serves through the proxy, and keeps its objects for the next time."""
    with open_testbed("embedded", LOOPBACK) as testbed:
        obstore.put(testbed.near.obstore(), "x", b"1234")
        assert testbed.take_trace() == [], "what is written near is not traced"
        testbed.set_tag("mine")
        assert bytes(obstore.get(testbed.far.obstore(), "x").bytes()) == b"1234"
        [row] = testbed.take_trace()
        assert (row.tag, row.key, row.nbytes) == ("mine", "/arrays/x", 4)
        assert not any(secret in repr(testbed) for secret in testbed.near.secrets)
    with open_testbed("embedded", LOOPBACK) as testbed:
        assert bytes(obstore.get(testbed.far.obstore(), "x").bytes()) == b"1234"
    assert (cache / "store").is_dir()


def test_probe_is_made_once(cache: Path) -> None:
    """The probe's address leads over the network to 32 MB, and is signed anew each time."""
    with open_testbed("embedded", LOOPBACK) as testbed:
        url = testbed.probe_url()
        assert url.startswith(testbed.far.endpoint_url or "")
        with urllib.request.urlopen(url) as response:
            assert len(response.read()) == 32_000_000
        first = obstore.head(testbed.near.obstore(), "probe")["last_modified"]
        testbed.probe_url()
        assert obstore.head(testbed.near.obstore(), "probe")["last_modified"] == first


def test_profile_can_change(cache: Path) -> None:
    """Another network is emulated on requests from now on."""
    with open_testbed("embedded", LOOPBACK) as testbed:
        obstore.put(testbed.near.obstore(), "x", b"1234")
        testbed.emulate(get_profile("wide-area"))
        obstore.get(testbed.far.obstore(), "x").bytes()
        [row] = testbed.take_trace()
        assert row.first_byte_s - row.start_s > 0.02


def test_own_plain_endpoint_is_traced(own_store: str) -> None:
    """A store of one's own that speaks plain HTTP is reached through a proxy."""
    with open_testbed(own_store, LOOPBACK) as testbed:
        assert (
            testbed.near.endpoint_url == os.environ["AWS_ENDPOINT_URL"] != testbed.far.endpoint_url
        )
        obstore.put(testbed.far.obstore(), "y", b"12345")
        assert bytes(obstore.get(testbed.near.obstore(), "y").bytes()) == b"12345"
        [row] = testbed.take_trace()
        assert (row.method, row.key) == ("PUT", "/wires/folder/y")


@pytest.mark.parametrize("profile", ["in-region", "other-region", "wide-area", "express"])
def test_own_store_has_its_own_network(own_store: str, profile: str) -> None:
    """Nothing is emulated on a store of one's own: another profile is refused, not ignored."""
    says = f"^profile: '{profile}'; allowed: loopback"
    with pytest.raises(UserError, match=says), open_testbed(own_store, get_profile(profile)):
        pytest.fail("not reached")
    with open_testbed(own_store, LOOPBACK) as testbed:
        untraced = Testbed(testbed.near, testbed.near)
        untraced.emulate(LOOPBACK)
        with pytest.raises(UserError, match=says):
            untraced.emulate(get_profile(profile))


def test_own_store_has_its_own_time(own_store: str) -> None:
    """Time is real on a store of one's own: a dilation is refused, not ignored."""
    says = "^dilation: 10; allowed: 1, because time is real"
    with pytest.raises(UserError, match=says), open_testbed(own_store, LOOPBACK, dilation=10):
        pytest.fail("not reached")


def test_without_a_relay_there_is_no_trace(own_store: str) -> None:
    """A wire without a proxy takes tags and gives no rows."""
    with open_testbed(own_store, LOOPBACK) as testbed:
        untraced = Testbed(testbed.near, testbed.near)
        untraced.set_tag("read")
        obstore.list(untraced.far.obstore()).collect()
        assert untraced.take_trace() == []


@pytest.mark.parametrize(
    ("store", "says"),
    [("s3://absent", "no bucket 'absent'"), ("embeded", "allowed: embedded, s3://BUCKET/PREFIX")],
)
def test_refuses_store(own_store: str, store: str, says: str) -> None:
    """A store that is not there is refused before anything starts."""
    with pytest.raises(UserError, match=f"^store: .*{says}"), open_testbed(store, LOOPBACK):
        pytest.fail("not reached")


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


def test_room_in_an_absent_folder(tmp_path: Path) -> None:
    """Nothing is there yet, and nothing is made."""
    make_room(tmp_path / "absent", 1)
    assert not (tmp_path / "absent").exists()


def test_room_for_the_probe_is_asked_for_too(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object that networks are measured with lies beside the arrays."""
    free = SimpleNamespace(free=33_000_000)
    monkeypatch.setattr("helpers.objectstore.testbed.shutil.disk_usage", lambda _path: free)
    with (
        pytest.raises(UserError, match="33 MB are free and 34 MB needed"),
        open_testbed("embedded", LOOPBACK, needed_nbytes=2_000_000),
    ):
        pytest.fail("not reached")


def test_arrays_that_another_run_reads_make_no_room(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run is refused before it deletes what the first serves; afterwards it makes room."""
    monkeypatch.setattr("helpers.objectstore.testbed._LOCK_TIMEOUT_S", 0.1)
    monkeypatch.setenv("ARRAYS_CACHE_GB", "1e-6")
    with open_testbed("embedded", LOOPBACK) as testbed:
        obstore.put((testbed.near / "old").obstore(), "x", bytes(600))
        for _ in range(2):
            with (
                pytest.raises(UserError, match="in use by another server"),
                open_testbed("embedded", LOOPBACK, needed_nbytes=900),
            ):
                pytest.fail("not reached")
        assert len(obstore.get((testbed.far / "old").obstore(), "x").bytes()) == 600
    with open_testbed("embedded", LOOPBACK, needed_nbytes=900) as testbed:
        assert obstore.list(testbed.near.obstore()).collect() == []
