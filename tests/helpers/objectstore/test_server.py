"""The embedded store is a real S3 server in a folder that is ours or refused, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from helpers.errors import UserError
from helpers.objectstore import testbed as servers
from helpers.objectstore.testbed import (
    MARKER_NAME,
    Server,
    claim_folder,
    metadata_arguments,
    open_server,
)
from tests.helpers.objectstore.test_processes import becomes, listens, lives
from tests.stores import make_location


def test_it_listens_on_loopback_alone(server: Server) -> None:
    """No other machine reaches it."""
    heard = {
        c.laddr.ip
        for c in psutil.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN and c.laddr.port == urlsplit(server.endpoint_url).port
    }
    assert heard == {"127.0.0.1"}


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
        "AWS_PROFILE": "none such",
        "http_proxy": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    with open_server(tmp_path / "store") as server:
        monkeypatch.delenv("AWS_PROFILE")
        make_location(server, "written").check()


# A test run in the background ignores Ctrl-C, and what it starts inherits that.
OWNER = """
import json, psutil, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from helpers.objectstore.testbed import open_server
with open_server(Path(sys.argv[1])) as server:
    family = [p.pid for p in psutil.Process().children(recursive=True)]
    print(json.dumps([server.endpoint_url, family]), flush=True)
    time.sleep(120)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_it(number: int, tmp_path: Path) -> None:
    """However the owner ends, process, port and lock are gone, and all can begin again."""
    folder = tmp_path / "store"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert owner.stdout is not None
    with owner.stdout:
        url, family = json.loads(owner.stdout.readline())
    assert len(family) == 2
    assert listens(port := int(url.rsplit(":", 1)[1]))
    owner.send_signal(number)
    owner.wait(timeout=60)
    with open_server(folder):
        assert becomes(lambda: not any(lives(pid) for pid in family))
        assert becomes(lambda: not listens(port))


def claim(folder: Path, needed_nbytes: int = 0) -> None:
    """Claim a folder and let it go."""
    with claim_folder(folder, needed_nbytes=needed_nbytes):
        pass


def test_an_absent_folder_is_made(tmp_path: Path) -> None:
    """Folder, marker and the place of the buckets are there afterwards, and again."""
    folder = tmp_path / "with space" / "new"
    for _ in range(2):
        claim(folder)
        assert {MARKER_NAME, "buckets"} <= {path.name for path in folder.iterdir()}
    assert folder.stat().st_mode & 0o777 == 0o700


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


@pytest.mark.parametrize("name", ["thesis.tex", ".hidden", "buckets"])
def test_files_of_others_are_refused(name: str, tmp_path: Path) -> None:
    """A folder with files but no marker is refused and left as it was."""
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=rf"not ours \({name}\); allowed: an empty or new folder$"):
        claim(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_cannot_be_used_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the way, and a file system that is or becomes full."""
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"^store folder .*/file: cannot be used \(File exists\)"):
        claim(tmp_path / "file")
    with pytest.raises(UserError, match=r"\d+ MB are free and 1000000000000 MB needed; allowed:"):
        claim(tmp_path / "store", needed_nbytes=10**18)

    def write(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write)
    with pytest.raises(UserError, match=r"cannot be used \(No space left on device\)"):
        claim(tmp_path / "store")


def test_a_folder_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one has it no other gets it."""
    monkeypatch.setattr("helpers.objectstore.testbed._LOCK_TIMEOUT_S", 0.1)
    with (
        claim_folder(tmp_path),
        pytest.raises(UserError, match="in use by another server; allowed: one server"),
    ):
        claim(tmp_path)
    claim(tmp_path)


def test_attributes_or_files_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes are used where the file system has them; a choice made stays."""
    keeps = "helpers.objectstore.testbed._keeps_attributes"
    for name in ("with", "without"):
        claim(tmp_path / name)
    monkeypatch.setattr(keeps, lambda _: True)
    assert metadata_arguments(tmp_path / "with") == []
    monkeypatch.setattr(keeps, lambda _: False)
    beside = ["--sidecar", os.fspath(tmp_path / "without" / "sidecar")]
    assert metadata_arguments(tmp_path / "without") == beside
    monkeypatch.setattr(keeps, lambda _: True)  # moved to another file system
    assert metadata_arguments(tmp_path / "without") == beside
