"""The embedded store is a real S3 server in a folder that is ours or refused; it is opened as asked."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import urlsplit

import obstore
import psutil
import pytest

from helpers.errors import UserError
from helpers.netem.profiles import get_profile
from helpers.objectstore import testbed as servers
from helpers.objectstore.testbed import (
    Server,
    Testbed,
    claim_folder,
    make_room,
    metadata_arguments,
    open_server,
    open_testbed,
)
from tests.stores import client_environment, make_location


def test_it_listens_on_loopback_alone(server: Server) -> None:
    """No other machine reaches it."""
    heard = {
        c.laddr.ip
        for c in psutil.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN and c.laddr.port == urlsplit(server.endpoint_url).port
    }
    assert heard == {"127.0.0.1"}


def test_a_profile_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client could be made with it, so nothing is started."""
    monkeypatch.setenv("AWS_PROFILE", "typo")
    with pytest.raises(UserError, match="^AWS_PROFILE: 'typo'; allowed: "):
        open_testbed("embedded", get_profile("loopback")).__enter__()


def test_secrets_are_not_shown(server: Server, tmp_path: Path) -> None:
    """Neither the representation, nor the arguments, nor the log has a credential."""
    with open_server(tmp_path / "store") as other:
        arguments = str([p.info["cmdline"] for p in psutil.process_iter(["cmdline"])])
        log = (tmp_path / "store" / "versitygw.log").read_text()
        for secret in (other.access_key, other.secret_key):
            assert secret not in repr(other) + arguments + log
        assert other.secret_key != server.secret_key


def test_a_server_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ends at once is reported with its last words, and unlocks the folder."""
    with monkeypatch.context() as patch:
        patch.setattr(servers, "find_or_build_versitygw", lambda: Path("/bin/false"))
        with pytest.raises(UserError, match=r"^false: ended with exit code 1 .*versitygw\.log$"):
            open_server(tmp_path / "store").__enter__()
    with open_server(tmp_path / "store"):
        pass


def test_settings_of_the_user_do_not_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables meant for other programs, or another versitygw, change nothing."""
    for name, value in {
        "VGW_READ_ONLY": "true",
        "VGW_PORT": "0.0.0.0:1",
        "ROOT_ACCESS_KEY_ID": "other",
        "http_proxy": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    with open_server(tmp_path / "store") as server:
        make_location(server, "written").check()


def claim(folder: Path, needed_nbytes: int = 0) -> None:
    """Claim a folder and let it go."""
    with claim_folder(folder, needed_nbytes=needed_nbytes):
        pass


def test_a_folder_that_others_could_fill_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read from there would be theirs: another user's store, or one that all may write to."""
    claim(tmp_path)
    (tmp_path).chmod(0o777)
    with pytest.raises(UserError, match=r"others may write to it; allowed: a folder of mode 700$"):
        claim(tmp_path)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UserError, match="it is another user's; allowed: one of your own$"):
        claim(tmp_path)


def test_what_cannot_be_used_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of others, a file in the way, and a file system that is or becomes full."""
    for name in ("thesis.tex", ".hidden", "buckets"):
        (folder := tmp_path / f"with {name}").mkdir()
        (folder / name).touch()
        with pytest.raises(UserError, match=rf"not ours \({name}\); allowed: an empty or new fold"):
            claim(folder)
        assert [path.name for path in folder.iterdir()] == [name]
    with pytest.raises(
        UserError, match=r"^store folder .*/buckets: cannot be used \(File exists\)"
    ):
        claim(folder / "buckets")
    with pytest.raises(UserError, match=r"\d+ MB are free and 1000000000000 MB needed; allowed:"):
        claim(tmp_path / "store", needed_nbytes=10**18)
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=OSError(28, "No space left")))
    with pytest.raises(UserError, match=r"cannot be used \(No space left\)"):
        claim(tmp_path / "store")


def test_attributes_or_files_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes are used where the file system has them; a choice made stays."""
    for name in ("with", "without"):
        claim(tmp_path / name)
    monkeypatch.setattr(os, "setxattr", lambda *_: None)
    assert metadata_arguments(tmp_path / "with") == []
    monkeypatch.setattr(os, "setxattr", Mock(side_effect=OSError(errno.ENOTSUP, "no attributes")))
    beside = ["--sidecar", os.fspath(tmp_path / "without" / "sidecar")]
    assert metadata_arguments(tmp_path / "without") == beside
    monkeypatch.setattr(os, "setxattr", lambda *_: None)  # moved to another file system
    assert metadata_arguments(tmp_path / "without") == beside


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
    [
        ("s3://absent", "no bucket 'absent'"),
        ("embeded", "allowed: embedded, s3://BUCKET/PREFIX"),
        # it may be a mistake, and nothing is made
        ("file:///absent", "allowed: a folder that is there and may be written to"),
    ],
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
