"""Connections that end before anybody looks: they are the program's, another's, or not known."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from wire.trace import cli, launch
from wire.trace.closed import ClosedConnections
from wire.trace.sockets import find_inodes, list_tcp_sockets

BASH = shutil.which("bash")
SHORT = "exec 3<>/dev/tcp/127.0.0.1/{port}; read -r line <&3"
"""A connection of less than a millisecond, by a program that has no shim and asks no proxy."""


@pytest.fixture(scope="module", autouse=True)
def needs_reports() -> None:
    """Skip where the system does not report what ends."""
    closed = ClosedConnections()
    closed.close()
    if not closed.is_complete:
        pytest.skip("needs a kernel that reports sockets which are destroyed")


@contextmanager
def serve() -> Iterator[int]:
    """Answer each connection with a line, and close it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    sock.sendall(b"hello\n")

        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def read_line(port: int) -> tuple[str, int]:
    """Read a line of a server, and return the near end of the connection."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        end = sock.getsockname()
        while sock.recv(100):
            pass
    return end  # type: ignore[no-any-return]


def find_places(closed: ClosedConnections, **own: object) -> list[str]:
    """Return what is not attributed."""
    options = {"own_ends": set(), "own_ports": set(), "own_places": set(), **own}
    return closed.find_unattributed(**options)  # type: ignore[arg-type]


def test_a_connection_that_no_look_saw_is_reported_once() -> None:
    """With the end that serves, unless it is known whose it was."""
    with serve() as port:
        closed = ClosedConnections()
        closed.look(list_tcp_sockets(), ())
        end, place = read_line(port), f"127.0.0.1:{port}"
        time.sleep(0.05)
        assert find_places(closed).count(place) == 1
        assert place not in find_places(closed, own_ends={end})
        assert place not in find_places(closed, own_ports={port})
        assert place not in find_places(closed, own_places={place})
        closed.close()


def test_a_connection_without_an_answer_is_none() -> None:
    """Nothing was exchanged on it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        closed = ClosedConnections()
        socket.create_connection(("127.0.0.1", port)).close()
        listener.accept()[0].close()
        time.sleep(0.05)
        assert f"127.0.0.1:{port}" not in find_places(closed)
        closed.close()


@pytest.mark.parametrize("is_own", [False, True])
def test_what_lives_through_a_look_and_is_in_no_process_of_the_program_is_not_its_own(
    is_own: bool,
) -> None:
    """Two tables with a list of the program's files between them; one table is not enough."""
    with serve() as port:
        closed = ClosedConnections()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.recv(100)
            inodes = {*find_inodes("self")} if is_own else set()
            for _ in range(2):
                closed.look(list_tcp_sockets(), inodes)
        time.sleep(0.05)
        assert (f"127.0.0.1:{port}" in find_places(closed)) == is_own
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.recv(100)
            closed.look(list_tcp_sockets(), set())
        time.sleep(0.05)
        assert f"127.0.0.1:{port}" in find_places(closed)
        closed.close()


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_a_short_connection_of_a_program_without_the_shim_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace in which it may be missing is not called whole, and a budget says that it is not known."""
    # on a busy machine more than three other programs have connections that end meanwhile
    monkeypatch.setattr(launch, "_MOST_PLACES", sys.maxsize)
    with serve() as port:
        words = ["bash", "-c", SHORT.format(port=port)]
        for _ in range(3):
            run = launch.run(words, is_silent=True)
            assert run.exit_code == 0 and not run.rows
            assert not run.is_whole
            named = [*run.unseen, *run.uncertain]
            assert any(f"127.0.0.1:{port}" in phrase for phrase in named)
        options = ["--out", str(tmp_path / "t"), "--max", "requests=0", "--"]
        result = CliRunner().invoke(cli.trace, [*options, *words])
        assert "not known whether all was seen" in result.stderr or result.exit_code == 1


def test_what_goes_through_the_gateway_is_known() -> None:
    """Neither the program's connections to the gateway nor those of the gateway are in doubt."""
    code = (
        "import urllib.request, sys\nfor _ in range(9): urllib.request.urlopen(sys.argv[1]).read()"
    )
    folder = subprocess.Popen(
        [sys.executable, "-m", "http.server", "0", "--bind", "127.0.0.1"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    with folder:
        assert folder.stdout is not None
        port = folder.stdout.readline().split("port ")[1].split()[0]
        url = f"http://127.0.0.1:{port}/"
        run = launch.run([sys.executable, "-c", code, url], is_silent=True)
        folder.terminate()
    assert len(run.rows) == 9
    assert not any(port in phrase for phrase in (*run.unseen, *run.uncertain))
