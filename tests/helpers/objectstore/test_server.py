"""The embedded store is a real S3 server to real clients, and leaves nothing."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import obstore
import psutil
import pytest
import s3fs
from botocore.config import Config
from botocore.exceptions import ClientError
from obstore.store import S3Store

from helpers.errors import UserError
from helpers.objectstore import testbed as servers
from helpers.objectstore.testbed import Server, open_server
from tests.helpers.objectstore.test_processes import becomes, listens, lives

BODY = bytes(range(256)) * 40  # 10,240 bytes, each known from its place


def make_client(server: Server, *, secret_key: str | None = None) -> Any:
    """Make a botocore client that neither retries nor reads settings."""
    return botocore.session.Session().create_client(
        "s3",
        endpoint_url=server.endpoint_url,
        region_name=server.region,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=secret_key or server.secret_key,
        config=Config(retries={"total_max_attempts": 1}, proxies={}, signature_version="s3v4"),
    )


@pytest.fixture(scope="module")
def client(server: Server) -> Any:
    """Make a client and the bucket of this module."""
    client = make_client(server)
    client.create_bucket(Bucket="server-tests")
    client.put_object(Bucket="server-tests", Key="a/body", Body=BODY)
    return client


def read_with_s3fs(server: Server) -> bytes:
    """Read the object through s3fs."""
    files = s3fs.S3FileSystem(
        key=server.access_key,
        secret=server.secret_key,
        endpoint_url=server.endpoint_url,
        client_kwargs={"region_name": server.region},
        skip_instance_cache=True,
    )
    return bytes(files.cat_file("server-tests/a/body"))


def read_with_obstore(server: Server) -> bytes:
    """Read the object through obstore."""
    store = S3Store(
        "server-tests",
        endpoint=server.endpoint_url,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
        region=server.region,
        client_options={"allow_http": True},
    )
    return bytes(obstore.get(store, "a/body").bytes())


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("read", [read_with_s3fs, read_with_obstore])
def test_every_client_reads_it(read: Callable[[Server], bytes], server: Server) -> None:
    """The clients of the book read what botocore wrote."""
    assert read(server) == BODY


def test_wrong_credentials_are_refused(server: Server) -> None:
    """A wrong secret fails by its signature, an unsigned request at the door."""
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        make_client(server, secret_key="0" * 40).list_buckets()
    with socket.create_connection(("127.0.0.1", port_of(server))) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
        assert connection.recv(64).split()[1] == b"403"


def port_of(server: Server) -> int:
    """Return the port of a server."""
    return int(server.endpoint_url.rsplit(":", 1)[1])


def test_it_listens_on_loopback_alone(server: Server) -> None:
    """No other machine reaches it."""
    heard = {
        c.laddr.ip
        for c in psutil.net_connections("tcp")
        if c.status == psutil.CONN_LISTEN and c.laddr.port == port_of(server)
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
        make_client(server).create_bucket(Bucket="written")


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
