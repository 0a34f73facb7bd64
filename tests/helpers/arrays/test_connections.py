"""Connections under TLS: one that ends does not end the others of its thread."""

from __future__ import annotations

import contextlib
import pickle
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.arrays.connections import Connection, Security, make_certificates


@pytest.fixture(scope="module")
def security() -> Security:
    """Make certificates once: a key takes a while; as a worker's process gets them."""
    found: Security = pickle.loads(pickle.dumps(make_certificates()))
    return found


@contextlib.contextmanager
def connect(security: Security) -> Iterator[list[Any]]:
    """Connect a client with a server that never waits, both in this thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        plain = [socket.create_connection(listening.getsockname()), listening.accept()[0]]
    contexts = [security.get_connection_args("worker"), security.get_listen_args("scheduler")]
    ends = []
    for at_server, (one, told) in enumerate(zip(plain, contexts, strict=True)):
        one.setblocking(False)
        wrap = told["ssl_context"].wrap_socket
        ends.append(wrap(one, server_side=bool(at_server), do_handshake_on_connect=False))
    waiting = list(ends)
    while waiting:
        for one in [*waiting]:
            with contextlib.suppress(ssl.SSLWantReadError):
                one.do_handshake()
                waiting.remove(one)
    with contextlib.ExitStack() as stack:
        for one in ends:
            stack.enter_context(one)
        with contextlib.suppress(ssl.SSLWantReadError):
            ends[0].recv(1)  # what the server sends after the handshake
        yield ends


@pytest.mark.parametrize("act", ["read", "write"])
def test_the_end_of_one_connection_is_not_taken_for_that_of_another(
    security: Security, act: str
) -> None:
    """A peer that is gone, read or written to, leaves other connections of the thread as they are."""
    with connect(security) as (leaving, left), connect(security) as (peer, other):
        leaving.shutdown(socket.SHUT_RDWR)
        leaving.close()
        for _ in range(3):
            with contextlib.suppress(OSError):
                left.recv(10) if act == "read" else left.send(b"something")
        with pytest.raises(ssl.SSLWantReadError):
            other.recv(10)
        peer.send(b"all is well")
        while not (got := receive(other)):
            pass
        assert got == b"all is well"


def receive(connection: Any) -> bytes:
    """Read what is there, nothing if it is still on its way."""
    with contextlib.suppress(ssl.SSLWantReadError):
        return bytes(connection.recv(100))
    return b""


def test_an_error_of_the_system_empties_the_queue(
    security: Security, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new TLS object is made where Python leaves OpenSSL's errors, whichever OpenSSL is there."""
    made: list[bool] = []
    with connect(security) as (_, server):
        assert isinstance(server, Connection)

        def fail(*_: Any) -> bytes:
            raise BrokenPipeError

        wrap = ssl.SSLContext.wrap_bio

        def count(context: ssl.SSLContext, *arguments: Any, server_side: bool) -> ssl.SSLObject:
            made.append(server_side)
            return wrap(context, *arguments, server_side=server_side)

        monkeypatch.setattr(ssl.SSLContext, "wrap_bio", count)
        with pytest.raises(ssl.SSLWantReadError):
            server.recv(10)
        assert made == []
        for name, call in {"read": server.recv, "send": server.send}.items():
            monkeypatch.setattr(ssl.SSLSocket, name, fail)
            with pytest.raises(BrokenPipeError):
                call(1)
    assert made == [True, True]


def test_certificates_in_files_are_their_owners(tmp_path: Path) -> None:
    """Workers of other nodes read them from a folder, and nobody else does."""
    found = make_certificates(tmp_path)
    assert isinstance(found, Security)
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {0o600}
    assert found.get_connection_args("client")["ssl_context"].sslsocket_class is Connection
