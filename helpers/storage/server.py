"""The embedded object store: a real S3 server on loopback over a folder.

The server is versitygw, a child of this process: it ends when this process ends,
also after ``kill -9``. Port and credentials are new each time and die with it;
the objects stay in the folder.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from helpers.errors import UserError
from helpers.storage.folders import claim_folder, metadata_arguments
from helpers.storage.processes import Child, start_child
from helpers.storage.versitygw import find_or_build_versitygw

__all__ = ["Server", "find_or_build_versitygw", "open_server"]

_HOST = "127.0.0.1"
_REGION = "us-east-1"
_START_TIMEOUT_S = 30.0
_PORT_TRIES = 5


@dataclass(frozen=True, slots=True)
class Server:
    """How to reach an S3 server that runs.

    Attributes
    ----------
    endpoint_url : str
        Address, such as ``http://127.0.0.1:40000``.
    access_key, secret_key : str
        Credentials; not part of the representation.
    region : str
        Region that signatures name.
    folder : Path
        Store folder.
    """

    endpoint_url: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    region: str
    folder: Path

    def client_environment(self) -> dict[str, str]:
        """Return the variables that lead S3 clients to this server.

        Returns
        -------
        dict
            Endpoint, region and credentials, and the order not to ask the
            metadata service of a cloud for others.
        """
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextlib.contextmanager
def open_server(
    folder: Path, *, port: int | None = None, needed_nbytes: int = 0
) -> Iterator[Server]:
    """Serve a folder over S3 as long as the context lasts.

    One server at a time serves a folder: the cache of generated stores counts on
    being the only writer.

    Parameters
    ----------
    folder : Path
        Store folder; made if absent, refused if it holds files of others.
    port : int, optional
        TCP port on loopback, 1 to 65535; by default a free one.
    needed_nbytes : int
        Bytes that must be free in the folder, at least 0.

    Yields
    ------
    Server
        The running server, which has answered a signed request.

    Raises
    ------
    UserError
        If the folder, the port or the program cannot be used; in one line.
    """
    if port is not None:
        _refuse_port(port)
    program = find_or_build_versitygw()
    root = folder.absolute()
    lock = claim_folder(root, needed_nbytes=needed_nbytes)
    try:
        command: list[str | Path] = [
            "posix",
            *metadata_arguments(root),
            root / "buckets",
        ]
        server, child = _start(program, command, folder=root, port=port, lock=lock)
    finally:
        os.close(lock)  # the supervisor of the server holds it from here on
    with child:
        yield server


def _start(
    program: Path,
    command: list[str | Path],
    *,
    folder: Path,
    port: int | None,
    lock: int,
) -> tuple[Server, Child]:
    """Start the server; again on another port if a free one was taken meanwhile."""
    for tries_left in reversed(range(_PORT_TRIES)):
        address = f"{_HOST}:{port or _free_port()}"
        keys = secrets.token_hex(10), secrets.token_hex(20)
        server = Server(f"http://{address}", *keys, region=_REGION, folder=folder)
        child = start_child(
            [program, "--keep-alive", "--quiet", "--port", address, *command],
            env=_server_environment(server),
            log=folder / "versitygw.log",
            kept_fds=[lock],
        )
        try:
            child.wait_until(lambda: _answers(server), timeout_s=_START_TIMEOUT_S)  # noqa: B023
        except BaseException:
            child.stop()
            was_taken = "address already in use" in child.last_log_line()
            if port is None and was_taken and tries_left:
                continue
            raise
        return server, child
    raise AssertionError("the last try returns or raises")


def _server_environment(server: Server) -> dict[str, str]:
    """Return all that versitygw shall see: its own variables could change it."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "ROOT_ACCESS_KEY": server.access_key,
        "ROOT_SECRET_KEY": server.secret_key,
        "VGW_REGION": server.region,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _answers(server: Server) -> bool:
    """Tell whether the server lists its buckets to its own credentials.

    That it takes the signature shows that it is ours and not another server that
    has the port. Proxies and settings of the user have no part in this.
    """
    request = AWSRequest("GET", f"{server.endpoint_url}/")
    keys = Credentials(server.access_key, server.secret_key)
    S3SigV4Auth(keys, "s3", server.region).add_auth(request)
    address = server.endpoint_url.removeprefix("http://")
    with contextlib.closing(http.client.HTTPConnection(address, timeout=1)) as connection:
        try:
            connection.request("GET", "/", headers=dict(request.headers.items()))
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):  # not listening yet
            return False


def _free_port() -> int:
    """Return a TCP port on loopback that nobody uses now."""
    with socket.create_server((_HOST, 0)) as probe:
        return int(probe.getsockname()[1])


def _refuse_port(port: int) -> None:
    """Refuse a port that does not exist or cannot be bound now."""
    allowed = "allowed: a free port from 1 to 65535, or none to have one chosen"
    if not 1 <= port <= 65535:
        raise UserError(f"port {port}: no such port; {allowed}")
    try:
        socket.create_server((_HOST, port)).close()
    except OSError as error:
        raise UserError(f"port {port}: cannot be used ({error.strerror}); {allowed}") from error
