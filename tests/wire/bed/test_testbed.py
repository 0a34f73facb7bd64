"""The embedded store is a real S3 server in a folder that is ours or refused; it is opened as asked."""

from __future__ import annotations

import errno
import os
import shutil
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from unittest.mock import Mock
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

import certifi
import icechunk
import obstore
import psutil
import pytest

from tests.refusals import refused
from tests.stores import becomes, client_environment, make_location
from wire.bed import testbed as servers
from wire.bed.networks import Profile, get_profile
from wire.bed.testbed import (
    VERSION,
    Server,
    Testbed,
    claim_folder,
    find_or_build_versitygw,
    is_built_from_source,
    make_room,
    metadata_arguments,
    open_server,
    open_testbed,
)


def test_a_profile_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client could be made with it, so nothing is started."""
    monkeypatch.setenv("AWS_PROFILE", "typo")
    with refused("AWS_PROFILE", "^'typo'"):
        open_testbed("embedded", get_profile("loopback")).__enter__()


def test_no_secret_is_shown_and_no_other_machine_served(tmp_path: Path) -> None:
    """Neither the representation, nor the arguments, nor the log has a credential; it listens on loopback."""
    with open_server(tmp_path / "store") as server:
        arguments = str([p.info["cmdline"] for p in psutil.process_iter(["cmdline"])])
        log, port = (
            (tmp_path / "store" / "versitygw.log").read_text(),
            urlsplit(server.endpoint_url).port,
        )
        for secret in (server.access_key, server.secret_key):
            assert secret not in repr(server) + arguments + log
        heard = [
            c.laddr.ip
            for c in psutil.net_connections("tcp")
            if c.laddr.port == port and c.status == "LISTEN"
        ]
    assert heard == ["127.0.0.1"]


def test_a_server_that_fails_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ends at once is reported with its last words, and unlocks the folder."""
    with monkeypatch.context() as patch:
        patch.setattr(servers, "find_or_build_versitygw", lambda: Path("/bin/false"))
        with refused("false", r"^ended with exit code 1 .*versitygw\.log$"):
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


def claim(folder: Path) -> None:
    """Claim a folder and let it go."""
    with claim_folder(folder):
        pass


def test_a_folder_that_others_could_fill_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read from there would be theirs: another user's store, or one that all may write to."""
    claim(tmp_path)
    (tmp_path).chmod(0o777)
    with refused("folder", "others may write to it", "a folder of mode 700$"):
        claim(tmp_path)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with refused("folder", "it is another user's", "one of your own$"):
        claim(tmp_path)


def test_what_cannot_be_used_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of others, a file in the way, and a file system that is full."""
    for name in ("thesis.tex", ".hidden", "buckets"):
        (folder := tmp_path / f"with {name}").mkdir()
        (folder / name).touch()
        with refused(
            f"store folder {folder}", rf"not ours \({name}\)$", "^an empty or new folder$"
        ):
            claim(folder)
        assert [path.name for path in folder.iterdir()] == [name]
    with refused("store folder .*/buckets", r"^cannot be used \(it is there already\)$"):
        claim(folder / "buckets")
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=OSError(28, "No space left")))
    with refused("store folder .*/store", r"^cannot be used \(no space is left\)$"):
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
    """It serves through the proxy, over any network, and keeps its objects."""
    with open_testbed("embedded", LOOPBACK) as testbed:
        obstore.put(testbed.near.obstore(), "x", b"1234")
        assert testbed.take_trace() == [], "what is written near is not traced"
        testbed.set_tag("mine")
        assert bytes(obstore.get(testbed.far.obstore(), "x").bytes()) == b"1234"
        [row] = testbed.take_trace()
        assert (row.tag, row.key, row.nbytes) == ("mine", "/arrays/x", 4)
        assert not any(secret in repr(testbed) for secret in testbed.near.secrets)
    assert (cache / "store").is_dir()
    with open_testbed("embedded", LOOPBACK) as testbed:
        testbed.emulate(get_profile("wide-area"))
        testbed.take_trace()
        assert bytes(obstore.get(testbed.far.obstore(), "x").bytes()) == b"1234"
        [row] = testbed.take_trace()
        assert row.first_byte_s - row.start_s > 0.02


@pytest.mark.usefixtures("cache")
def test_by_tls_each_client_reads_what_is_there_and_others_do_not_trust_it() -> None:
    """What is read by TLS is traced as without; nobody trusts the store but while it is open."""
    data, before = os.urandom(3_000_000), dict(os.environ)
    with open_testbed("embedded", Profile("cloud", tls=True)) as testbed:
        near, far = testbed.near / "made", testbed.far / "made"
        assert far.endpoint_url.startswith("https://127.0.0.1:")
        obstore.put(near.obstore(), "a", data)
        made = icechunk.Repository.create((near / "ice").icechunk_storage())
        reads = {
            "obstore": lambda: bytes(obstore.get(far.obstore(), "a").bytes()),
            "s3fs": lambda: far.fsspec().cat_file(f"{far.path}/a"),
            "botocore": lambda: (
                far.botocore().get_object(Bucket=far.bucket, Key="made/a")["Body"].read()
            ),
        }
        for name, read in reads.items():
            testbed.take_trace()
            assert read() == data, name
            rows = testbed.take_trace()
            assert sum(row.nbytes for row in rows) == len(data) and not rows[-1].is_cut
            assert rows[-1].start_s <= rows[-1].first_byte_s < rows[-1].end_s
        there = icechunk.Repository.open((far / "ice").icechunk_storage())
        assert [*there.list_branches()] == [*made.list_branches()]
        with pytest.raises(HTTPError):  # by plain HTTP too, and there is an answer
            urllib.request.urlopen(testbed.proxy.endpoint_url)
        strangers = ssl.create_default_context(cafile=certifi.where())
        with pytest.raises(URLError, match="certificate verify failed"):
            urllib.request.urlopen(str(far.endpoint_url), context=strangers)
    assert dict(os.environ) == before


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
    for act in (lambda: untraced.emulate(far), open_testbed(own_store, far).__enter__):
        with refused("profile", "^'in-region'", "loopback"):
            act()  # type: ignore[operator]
    with refused("dilation", "^10", "1, because time is real"):
        open_testbed(own_store, LOOPBACK, dilation=10).__enter__()


@pytest.mark.parametrize(
    ("store", "allowed"),
    [
        ("s3://absent", "^a bucket that exists$"),
        ("embeded", "^embedded, s3://BUCKET/PREFIX"),
        # it may be a mistake, and nothing is made
        ("file:///absent", "^a folder that is there and may be written to$"),
    ],
)
def test_refuses_store(own_store: str, store: str, allowed: str) -> None:
    """A store that is not there is refused before anything starts."""
    with refused("store", store, allowed):
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
    ("cap", "allowed"),
    [
        ("lots", "^a number of GB"),
        ("nan", "^a number of GB"),
        ("-1", "^a number of GB"),
        ("1", "^at least 2.0 for this array$"),
    ],
)
def test_refuses_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: str, allowed: str
) -> None:
    """A cap that is no number, or below what one array needs, is refused; nothing is deleted."""
    monkeypatch.setenv("ARRAYS_CACHE_GB", cap)
    bucket = fill(tmp_path, {"old": 200})
    with refused("ARRAYS_CACHE_GB", f"^'?{cap}'?$", allowed):
        make_room(tmp_path, 2_000_000_000)
    assert (bucket / "old").is_dir()


def test_arrays_that_another_run_reads_make_no_room(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run is refused before it deletes what the first serves; afterwards it makes room."""
    monkeypatch.setattr("wire.bed.testbed._LOCK_TIMEOUT_S", 0.1)
    monkeypatch.setenv("ARRAYS_CACHE_GB", "1e-6")
    with open_testbed("embedded", LOOPBACK) as testbed:
        obstore.put((testbed.near / "old").obstore(), "x", bytes(600))
        for _ in range(2):
            with refused("store folder .*", "^in use by another server$"):
                open_testbed("embedded", LOOPBACK, needed_nbytes=900).__enter__()
        assert len(obstore.get((testbed.far / "old").obstore(), "x").bytes()) == 600
    with open_testbed("embedded", LOOPBACK, needed_nbytes=900) as testbed:
        assert obstore.list(testbed.near.obstore()).collect() == []


# The server is built once.

RECORD = f"mod\tgithub.com/versity/versitygw\tv{VERSION}\t{servers._SOURCE_SUM}\n"


def write_program(path: Path, text: str) -> Path:
    """Write a shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def write_go(folder: Path, *, version: str = "go1.26.8", install: str = "exit 1") -> Path:
    """Write a Go toolchain whose `install` does what the test wants."""
    return write_program(
        folder / "go",
        f'if [ "$1" = env ]; then echo {version}; exit 0; fi\necho "$@" >> {folder}/calls\n{install}',
    )


INSTALLS = f"""
mkdir -p "$GOBIN" && cat > "$GOBIN/versitygw" <<'END'
#!/bin/sh
echo 'Version  : v{VERSION}'
exit 0
{RECORD}
END
chmod +x "$GOBIN/versitygw"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leave PATH with the system's tools and an empty folder `bin`, and an empty cache."""
    for name in ("sh", "cat", "mkdir", "chmod", "echo", "sleep"):
        (tmp_path / "tools").mkdir(exist_ok=True)
        (tmp_path / "tools" / name).symlink_to(str(shutil.which(name)))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{tmp_path / 'tools'}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ARRAYS_VERSITYGW", raising=False)
    return tmp_path


NAME = f"versitygw-{VERSION}-{servers.sysconfig.get_platform()}"


@pytest.mark.parametrize("record", ["", RECORD], ids=["says it", "holds the record"])
def test_what_lies_on_path_is_not_believed(record: str, place: Path) -> None:
    """A program that says that it is versitygw, or holds Go's record of it, is not used, on PATH or in the cache."""
    liar = f"echo 'Version  : {VERSION}'\nexit 0\n{record}"
    write_program(place / "bin" / "versitygw", liar)
    cached = write_program(place / "cache" / "arrays-over-the-wire" / NAME, liar)
    write_go(place / "bin", install=INSTALLS)
    assert find_or_build_versitygw() == cached and is_built_from_source(cached)
    assert len((place / "bin" / "calls").read_text().splitlines()) == 1
    assert find_or_build_versitygw() == cached
    assert len((place / "bin" / "calls").read_text().splitlines()) == 1


def test_a_cache_that_others_write_to_is_refused(place: Path) -> None:
    """What lies there may be anybody's, and is not run; nor is anything built there."""
    write_go(place / "bin", install=INSTALLS)
    cached = find_or_build_versitygw()
    cached.parent.chmod(0o777)
    with refused("cache", f"^{cached.parent}: may be written to by others"):
        find_or_build_versitygw()
    assert len((place / "bin" / "calls").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("version", "problem"), [(VERSION, ""), (None, "no such file"), ("1.7.0", "version 1.7.0")]
)
def test_what_the_user_names_is_used_or_refused(
    version: str | None, problem: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release of the pinned version is named in the environment; another is never replaced."""
    named = place / "gateway"
    if version:
        write_program(named, f"echo 'Version  : {version}'")
    monkeypatch.setenv("ARRAYS_VERSITYGW", str(named))
    if not problem:
        assert find_or_build_versitygw() == named
        return
    with refused(f"ARRAYS_VERSITYGW {named}", f"^{problem}$", "^versitygw "):
        find_or_build_versitygw()


@pytest.mark.parametrize(
    ("install", "reason"),
    [
        ("echo 'dial tcp: no such host'; exit 1", r"go: dial tcp: no such host"),
        # a program of other source, such as a proxy's own
        (INSTALLS.replace(servers._SOURCE_SUM, "h1:other="), "the result is not versitygw"),
    ],
)
def test_a_failed_build_is_one_line(install: str, reason: str, place: Path) -> None:
    """It says why, and how to provide the program by hand; nothing is kept."""
    write_go(place / "bin", install=install)
    with refused("versitygw .*", rf"cannot be built \({reason}", "ARRAYS_VERSITYGW"):
        find_or_build_versitygw()
    left = [path.name for path in (place / "cache" / "arrays-over-the-wire").iterdir()]
    assert left == ["versitygw.lock"]


def test_builders_at_the_same_time_build_once(place: Path) -> None:
    """The second waits for the first and takes its result; killing one frees the lock, and nothing else is left."""
    write_go(place / "bin", install=f"sleep 1\n{INSTALLS}")
    code = "from wire.bed.testbed import *; print(find_or_build_versitygw())"
    command, root = [sys.executable, "-c", code], Path(servers.__file__).parents[2]
    killed = subprocess.Popen(command, cwd=root)
    calls = place / "bin" / "calls"
    assert becomes(calls.exists)
    killed.kill()
    killed.wait()
    calls.unlink()
    asked = [
        subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    [answer] = {process.communicate(timeout=60)[0].strip() for process in asked}
    [call] = calls.read_text().splitlines()
    assert call.endswith(f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}")
    left = {path.name for path in (place / "cache" / "arrays-over-the-wire").iterdir()}
    assert left == {NAME, f"{NAME}.sha256", "versitygw.lock"} and Path(answer).name == NAME
