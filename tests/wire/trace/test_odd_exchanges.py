"""Exchanges that are no tidy HTTP/1.1 reach both sides as they would without the gateway, and nobody else."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from wire.bed.certificates import Authority
from wire.bed.protocol import ANSWER_PAUSE_S, REQUEST_PAUSE_S
from wire.trace import cli, launch
from wire.trace.rows import Bypass, Run, Tunnel

Talk = Callable[[socket.socket], None]


@contextmanager
def listening(talk: Talk, authority: Authority | None = None) -> Iterator[int]:
    """Talk to each that connects, by TLS if there is an authority; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(sock: socket.socket) -> None:
            with suppress(OSError):
                if authority is not None:
                    sock = authority.server_context("127.0.0.1").wrap_socket(sock, server_side=True)
                talk(sock)
            sock.close()

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(
                        target=serve, args=(listener.accept()[0],), daemon=True
                    ).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def read_head(sock: socket.socket) -> bytes:
    """Read to the end of a head."""
    head = b""
    while not head.endswith(b"\r\n\r\n") and (more := sock.recv(1)):
        head += more
    return head


START = """
import os, socket, ssl, sys, time
gateway = "127.0.0.1", int(os.environ["HTTP_PROXY"].rpartition(":")[2])
port, other, ca = sys.argv[1:]
def plain():
    return socket.create_connection(gateway, 20)
def tls():
    sock = plain()
    sock.sendall(b"CONNECT 127.0.0.1:%s HTTP/1.1\\r\\n\\r\\n" % port.encode())
    head = b""
    while not head.endswith(b"\\r\\n\\r\\n"): head += sock.recv(1)
    return ssl.create_default_context(cafile=ca).wrap_socket(sock, server_hostname="127.0.0.1")
def read(sock):
    data = b""
    while more := sock.recv(9000): data += more
    return data
"""


def trace(program: str, *words: object) -> Run:
    """Trace a few lines of Python."""
    return launch.run([sys.executable, "-c", START + program, *map(str, words)])


SECOND = "GET http://127.0.0.1:{other}/b HTTP/3\\r\\nAuthorization: for-b\\r\\n\\r\\n"


def test_what_is_for_another_host_stays_from_the_first() -> None:
    """A second request that cannot be read is refused, and the server of the first hears nothing of it."""
    heard = list[bytes]()

    def talk(sock: socket.socket) -> None:
        heard.append(read_head(sock))
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")
        heard.append(sock.recv(9000))

    program = f"""
sock = plain()
sock.sendall(f"GET http://127.0.0.1:{{port}}/a HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n".encode())
data = b""
while not data.endswith(b"a"): data += sock.recv(9000)
sock.sendall(f"{SECOND}".encode())
assert read(sock).startswith(b"HTTP/1.1 400 ")
"""
    with listening(talk) as port, listening(talk) as other:
        assert trace(program, port, other, "").exit_code == 0
    assert len(heard) == 2 and heard[1] == b""


def test_each_request_goes_to_the_host_that_it_names() -> None:
    """The host changes on a connection that stays."""
    heard = {"port": b"", "other": b""}

    def talk_as(name: str) -> Talk:
        def talk(sock: socket.socket) -> None:
            while head := read_head(sock):
                heard[name] += head
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")

        return talk

    program = """
sock = plain()
for to in (port, other, port, other):
    sock.sendall(f"GET http://127.0.0.1:{to}/a HTTP/1.1\\r\\nAuthorization: {to}\\r\\n\\r\\n".encode())
    data = b""
    while not data.endswith(b"a"): data += sock.recv(9000)
"""
    with listening(talk_as("port")) as port, listening(talk_as("other")) as other:
        run = trace(program, port, other, "")
    assert run.exit_code == 0 and len(run.rows) == 4
    for name, own, strange in (("port", port, other), ("other", other, port)):
        assert heard[name].count(f"Authorization: {own}\r\n".encode()) == 2
        assert f"Authorization: {strange}".encode() not in heard[name]


def test_an_answer_passes_as_it_is(tmp_path: Path) -> None:
    """Byte for byte, by TLS and plainly; `tests/wire/bed/test_protocol.py` has odd ones of all kinds."""
    authority = Authority("another")
    pieces = [b"HTTP/1.1 200 OK\r\nContent-", b"Length: 9\r\n\r\nab"]
    (tmp_path / "ca.pem").write_bytes(authority.pem)

    def talk(sock: socket.socket) -> None:
        read_head(sock)
        for piece in pieces:
            sock.sendall(piece)
            time.sleep(3 * ANSWER_PAUSE_S)

    program = f"""
sock = plain()
sock.sendall(f"GET http://127.0.0.1:{{other}}/a HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n".encode())
expected = {b"".join(pieces)!r}
assert read(sock) == expected
sock = tls()
sock.sendall(b"GET /a HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
assert read(sock) == expected
"""
    with listening(talk, authority) as port, listening(talk) as other:
        assert trace(program, port, other, tmp_path / "ca.pem").exit_code == 0


def test_a_request_passes_as_it_is(tmp_path: Path) -> None:
    """Byte for byte, and what comes late is not cut."""
    authority, heard = Authority("another"), list[bytes]()
    pieces = [b"GET /a HTTP/1.1\r\nHo", b"st: a\r\n\r\n"]
    expected = b"".join(pieces)
    (tmp_path / "ca.pem").write_bytes(authority.pem)

    def talk(sock: socket.socket) -> None:
        data = b""
        while len(data) < len(expected) and (more := sock.recv(9000)):
            data += more
        heard.append(data)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")

    pause_s = 1.1 * REQUEST_PAUSE_S
    program = f"""
sock = tls()
for piece in {pieces!r}:
    sock.sendall(piece)
    time.sleep({pause_s})
assert read(sock).endswith(b"a")
"""
    with listening(talk, authority) as port:
        assert trace(program, port, "", tmp_path / "ca.pem").exit_code == 0
    assert heard == [expected]


def test_a_tunnel_ends_on_one_side_and_then_on_the_other(tmp_path: Path) -> None:
    """What a server says after the program has said all arrives."""

    def talk(sock: socket.socket) -> None:
        data = b""
        while more := sock.recv(9000):
            data += more
        sock.sendall(b"you said " + data)

    program = """
sock = plain()
sock.sendall(b"CONNECT 127.0.0.1:%s HTTP/1.1\\r\\n\\r\\n" % port.encode())
while not sock.recv(9000).endswith(b"\\r\\n\\r\\n"): pass
sock.sendall(b"not TLS")
sock.shutdown(socket.SHUT_WR)
assert read(sock) == b"you said not TLS"
"""
    with listening(talk) as port:
        run = trace(program, port, "", "")
    assert run.exit_code == 0 and run.unread[0].reason == "it is not TLS"


def test_a_folder_with_our_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway starts where the program's own modules are named as ours, or as Python's."""
    for name in ("helpers", "advisors", "wire", "ssl", "json", "psutil"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    assert launch.run(["true"]).exit_code == 0


def test_go_is_left_its_own_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS_CA_BUNDLE, at which a client of Go's ends, is what the user has made it."""
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    script = 'test "${AWS_CA_BUNDLE-none}" = none && test -f "$SSL_CERT_FILE"'
    assert launch.run(["sh", "-c", script]).exit_code == 0
    script = 'test "$AWS_CA_BUNDLE" = mine'
    assert launch.run(["sh", "-c", script], environment={"AWS_CA_BUNDLE": "mine"}).exit_code == 0


def test_a_sparse_environment(tmp_path: Path) -> None:
    """Without our variables, or without our folder, Python runs as it does alone."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own = True")
    program = """
import subprocess
script = "import sys, ssl, certifi; assert sys.own; assert 'open' not in certifi.where(); ssl.create_default_context()"
kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH")}
for more in ({}, {"WIRE_TRACE_FOLDER": "/none", "SSL_CERT_FILE": "/none/open/SSL_CERT_FILE.pem"}):
    assert subprocess.run([sys.executable, "-c", script], env={**kept, **more}).returncode == 0
"""
    words = [sys.executable, "-c", START + program, "", "", ""]
    run = launch.run(words, environment={"PYTHONPATH": os.fspath(tmp_path)})
    assert run.exit_code == 0


@pytest.mark.parametrize(
    ("seen", "places"),
    [
        ({}, []),
        ({"unread": [Tunnel("a:443", "it is not TLS", 1.0, 2.0, nbytes_down=5)]}, ["a:443"]),
        ({"unread": [Tunnel("a:443", "it cannot be reached", 1.0, 1.0)]}, []),
        ({"bypassed": [Bypass(1, "x", "10.0.0.1:443")]}, ["10.0.0.1:443"]),
        ({"bypassed": [Bypass(1, "x", "169.254.169.254:80")]}, []),
    ],
)
def test_a_budget_is_not_kept_by_what_is_not_seen(
    seen: dict[str, object],
    places: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The exit code is 1 where a budget was set and something went past it."""
    run = Run([], 1.0, 0.0, 0, **seen)  # type: ignore[arg-type]
    assert cli.find_unseen(run) == places
    monkeypatch.setattr(launch, "run", lambda *_, **__: run)
    words = ["--out", os.fspath(tmp_path / "t"), "--max", "requests=5", "--", "true"]
    result = CliRunner().invoke(cli.trace, words)
    assert result.exit_code == int(bool(places))
    assert ("was not seen" in result.stderr) == bool(places)
