"""What can happen to a traced program: its outcome stays its own, what was seen is kept, and nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
import pytest

from tests.refusals import refused
from tests.stores import Handler, becomes, lives, serve
from tests.wire.trace.stores import SECRET, open_hosts
from wire.trace import launch, stored
from wire.trace.request_log import read_log
from wire.trace.rows import Run

HOST = "store.example"


class Store(Handler):
    """A store that does what the path says."""

    def do_GET(self) -> None:
        """Answer whole, in part, or with another protocol."""
        what = urlsplit(self.path).path.split("/")[1]
        if what == "upgrade":
            self.answer(101, b"at once\n", Upgrade="echo", Connection="Upgrade")
            self.wfile.write(self.rfile.readline())
            self.close_connection = True
        elif what == "moved":
            place = f"https://user:{SECRET}@other.example:8443/b?sig={SECRET}"
            self.answer(307, Location=place, Content_Length="0")
        elif what in ("stall", "reset"):
            self.answer(200, b"x" * 500, Content_Length="1000")
            if what == "stall":
                time.sleep(5)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            os.close(self.connection.detach())
            self.close_connection = True
        else:
            self.answer(200, b"x" * 1000, Content_Length="1000")

    def handle_expect_100(self) -> bool:
        """Want the body, but of what is refused."""
        if "refused" in self.path:
            self.answer(403, Content_Length="0")
            self.close_connection = True
            return False
        return super().handle_expect_100()

    def do_PUT(self) -> None:
        """Answer with the length of what came."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        while self.headers.get("Transfer-Encoding") and (n := int(self.rfile.readline(), 16)):
            body += self.rfile.read(n) + self.rfile.readline()[2:]
        self.answer(200, b"%d" % len(body), Content_Length=str(len(b"%d" % len(body))))


class Place(NamedTuple):
    """A store behind TLS, which the variables lead to, and without."""

    environment: dict[str, str]
    plain: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Serve the store."""
    bundle = tmp_path_factory.mktemp("bundle") / "other.pem"
    with serve(Store) as url, open_hosts(bundle, {HOST: url}) as variables:
        yield Place(variables, url)


START = """
import http.client, os, signal, socket, ssl, subprocess, sys, time, urllib.request
port = int(os.environ["HTTPS_PROXY"].rpartition(":")[2])
def connect(**options):
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, **options)
    connection.set_tunnel("store.example", 443)
    return connection
def get(path="/whole", **options):
    connection = connect(**options)
    connection.request("GET", path)
    return connection.getresponse().read()
"""


def trace(place: Place, program: str, **options: object) -> Run:
    """Trace a few lines of Python."""
    environment = place.environment | options.pop("environment", {})  # type: ignore[operator]
    command = [sys.executable, "-c", START + program, place.plain]
    return launch.run(command, environment=environment, **options)  # type: ignore[arg-type]


def find_gateways() -> list[psutil.Process]:
    """Find the gateways that this process has started."""
    found = [one for one in psutil.Process().children() if lives(one.pid)]
    return [one for one in found if "wire.trace.gateway" in " ".join(one.cmdline())]


def read_in_time(path: Path) -> str:
    """Wait until a program has written a file, and read it."""
    assert becomes(lambda: path.exists() and bool(path.read_text()))
    return path.read_text()


UPLOADS = """
connection = connect()
def put(path, body, **headers):
    connection.request("PUT", path, body, headers, encode_chunked=True)
    return connection.getresponse().read()
assert put("/a", b"y" * 70000) == b"70000"
assert put("/b", iter([b"y" * 30000, b"z" * 5]), **{"Transfer-Encoding": "chunked"}) == b"30005"
for path, answer in (("/c", b"100 Continue"), ("/refused", b"403 Forbidden")):
    connection.connect()
    connection.sock.sendall(b"PUT %s HTTP/1.1\\r\\nHost: store\\r\\nExpect: 100-continue\\r\\nContent-Length: 3\\r\\n\\r\\n" % path.encode())
    assert connection.sock.recv(1000).startswith(b"HTTP/1.1 " + answer), path
    if path == "/c":
        connection.sock.sendall(b"abc")
        assert connection.sock.recv(1000).startswith(b"HTTP/1.1 200")
    connection.close()
"""


def test_uploads(place: Place) -> None:
    """Bodies of each framing arrive, and one that waits for consent is sent where the store wants it."""
    run = trace(place, UPLOADS)
    assert run.exit_code == 0
    sent = {row.key: (row.sent_nbytes, row.status) for row in run.rows}
    assert sent == {"/a": (70000, 200), "/b": (30005, 200), "/c": (3, 200), "/refused": (0, 403)}


ANSWERED = f"""
get("/moved?sig={SECRET}")
moved = http.client.HTTPConnection("127.0.0.1", port)
moved.request("GET", sys.argv[1] + "/moved")
assert moved.getresponse().status == 307
sock = socket.create_connection(("127.0.0.1", port))
sock.sendall(b"GET http://store.example:99999/a HTTP/1.1\\r\\n\\r\\n")
assert sock.recv(100).startswith(b"HTTP/1.1 400 ")
"""


def test_redirects_and_refused_requests_are_recorded(place: Place) -> None:
    """A redirect with the host it leads to, a request that names no server, and a tunnel that a proxy refuses."""
    run = trace(place, ANSWERED)
    assert run.exit_code == 0
    rows = [(row.method, row.key, row.status, row.location_host) for row in run.rows]
    leads = "other.example:8443"
    assert rows == [("GET", "/moved", 307, leads), ("GET", "/moved", 307, leads), ("", "", 400, "")]
    assert SECRET not in repr(run)
    wrong = {"HTTPS_PROXY": place.environment["HTTPS_PROXY"].replace(SECRET, "wrong")}
    run = trace(place, "get()", environment=wrong)
    assert run.exit_code == 1
    refusals = [(row.method, row.key, row.status, row.host) for row in run.rows]
    assert refusals == [("CONNECT", "", 407, HOST)]


UNREAD = """
h2 = ssl.create_default_context(cafile=os.environ["OTHER"])
h2.set_alpn_protocols(["h2"])
assert len(get(context=h2)) == 1000
isolated = '''
import http.client, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2])
connection = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), context=context)
connection.set_tunnel("store.example", 443)
connection.request("GET", "/whole")
assert len(connection.getresponse().read()) == 1000
'''
subprocess.run([sys.executable, "-I", "-c", isolated, str(port), os.environ["OTHER"]], check=True)
connection = http.client.HTTPConnection("127.0.0.1", port)
connection.request("GET", sys.argv[1] + "/upgrade", headers={"Upgrade": "echo", "Connection": "Upgrade"})
said = b""
while not said.endswith(b"at once\\n"): said += connection.sock.recv(9000)
connection.sock.sendall(b"hello\\n")
assert connection.sock.recv(9000) == b"hello\\n"
assert len(get()) == 1000
"""


def test_what_cannot_be_read_passes(place: Place) -> None:
    """HTTP/2 alone, a client that has not shown that it trusts us and another protocol pass unread, and are named."""
    run = trace(place, UNREAD)
    assert run.exit_code == 0
    words = ["HTTP/2 only", "does not trust the gateway", "another protocol"]
    assert all(word in one.reason for word, one in zip(words, run.unread, strict=True))
    assert [one.nbytes_down > 1000 for one in run.unread] == [True, True, False]
    assert [(row.status, row.nbytes) for row in run.rows] == [(101, 0), (200, 1000)]


@pytest.mark.parametrize("how", ["stall", "reset"])
def test_a_store_that_fails(place: Place, how: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The program ends as it does without us, and the row says how far the body came."""
    asked = f"urllib.request.urlopen(sys.argv[1] + '/{how}', timeout=1).read()"
    direct = [sys.executable, "-c", START + asked, place.plain]
    variables = {**os.environ, "HTTPS_PROXY": "none:1", "NO_PROXY": "*"}
    alone = subprocess.run(direct, env=variables, capture_output=True, text=True, check=False)
    run = trace(place, asked)
    assert run.exit_code == alone.returncode == 1
    assert capfd.readouterr().err.splitlines()[-1] == alone.stderr.splitlines()[-1]
    assert [(row.status, row.nbytes, row.is_cut) for row in run.rows] == [(200, 500, True)]


def test_a_gateway_that_is_killed(place: Place, tmp_path: Path) -> None:
    """The program goes on, what was seen is kept, and what follows passes unread."""
    program = f"""
get(); open({os.fspath(tmp_path / "asked")!r}, 'w')
while os.path.exists({os.fspath(tmp_path / "asked")!r}): time.sleep(0.01)
assert len(get(context=ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"]))) == 1000
"""

    with ThreadPoolExecutor() as pool:
        running = pool.submit(trace, place, program)
        assert becomes((tmp_path / "asked").exists)
        time.sleep(0.5)
        find_gateways()[0].kill()
        (tmp_path / "asked").unlink()
    run = running.result()
    assert run.exit_code == 0
    assert len(run.rows) == 1 and "the gateway ended" in run.remarks[0]
    assert [one.reason for one in run.unread] == ["the gateway ended"]
    assert not find_gateways()


def test_rows_outlive_who_traces(place: Place, tmp_path: Path) -> None:
    """Of a tracer and a gateway that are killed, each request that had ended is on the disk."""
    asked = tmp_path / "asked"
    program = f"""
for number in range(3):
    get()
    open({os.fspath(asked)!r} + str(number), "w").write(os.environ["WIRE_TRACE_FOLDER"])
    while os.path.exists({os.fspath(asked)!r} + str(number)): time.sleep(0.01)
"""
    tracer = f"""
from wire.trace import launch
launch.run([{sys.executable!r}, "-c", {START + program!r}, {place.plain!r}], environment={place.environment!r})
"""
    with subprocess.Popen([sys.executable, "-c", tracer]) as running:
        log = Path(read_in_time(tmp_path / "asked0")) / "requests.jsonl"
        children = psutil.Process(running.pid).children()
        assert len(read_log(log).requests) == 1
        running.kill()
    (tmp_path / "asked0").unlink()
    read_in_time(tmp_path / "asked1")
    assert [row.status for row in read_log(log).requests] == [200, 200]
    for process in children:
        process.kill()
    assert len(read_log(log).requests) == 2


def test_a_killed_wire_trace_leaves_what_was_seen(place: Place, tmp_path: Path) -> None:
    """The program goes on to its end; what had ended by then is a trace that can be shown, in its own folder."""
    asked = tmp_path / "asked"
    program = f"""
for number in range(2):
    get()
    open({os.fspath(asked)!r} + str(number), "w").write("asked")
    while os.path.exists({os.fspath(asked)!r} + str(number)): time.sleep(0.01)
open({os.fspath(tmp_path / "done")!r}, "w").write("done")
"""
    (tmp_path / "program.py").write_text(START + program)
    command = f"""
import sys
from wire.cli import main
sys.argv = ["wire", "trace", "--out", "t", sys.executable, "program.py", {place.plain!r}]
main()
"""
    environment = {**os.environ, **place.environment}
    for n_before in range(2):  # the second begins beside what the first has left
        with subprocess.Popen(
            [sys.executable, "-c", command], cwd=tmp_path, env=environment
        ) as running:
            read_in_time(tmp_path / "asked0")
            running.kill()
        (tmp_path / "asked0").unlink()
        read_in_time(tmp_path / "asked1")
        (tmp_path / "asked1").unlink()
        read_in_time(tmp_path / "done")
        (tmp_path / "done").unlink()
        folder = tmp_path / ("t" if not n_before else "t-2")
        run, _ = stored.read_trace(folder)
        assert [row.status for row in run.rows] == [200, 200]
        assert "program.py" in run.missing[0] and run.exit_code is None


@pytest.mark.parametrize(
    ("how", "code"), [("ctrl-c", 3), (signal.SIGINT, 3), (signal.SIGTERM, 4), (signal.SIGKILL, 137)]
)
def test_signals_are_the_programs(place: Place, how: int | str, code: int, tmp_path: Path) -> None:
    """Ctrl-C and an end that is asked for reach the program once, which ends in its way; the trace so far is kept."""
    program = f"""
signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
try:
    urllib.request.urlopen(sys.argv[1] + "/whole").read()
    open({os.fspath(tmp_path / "asked")!r}, "w").write(str(os.getpid()))
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.3)
    sys.exit(3)
"""
    tracer = f"""
import sys
from wire.trace import launch, stored
run = launch.run([sys.executable, "-c", {START + program!r}, {place.plain!r}])
print(run.exit_code, len(run.rows))
"""
    asked, (ours, theirs) = tmp_path / "asked", os.openpty()
    # where there is a terminal, it is a session's own, and the keys go to the session
    script = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)" * (how == "ctrl-c")
    with subprocess.Popen(
        [sys.executable, "-c", script + tracer],
        stdin=theirs,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        pid = int(read_in_time(asked))
        if how == "ctrl-c":
            os.write(ours, b"\3")
        else:
            os.kill(pid if how == signal.SIGKILL else running.pid, int(how))
        said = running.communicate(timeout=30)[0]
    for end in (ours, theirs):
        os.close(end)
    assert said == f"{code} 1\n"


def test_a_child_that_outlives_the_program(place: Place, tmp_path: Path) -> None:
    """It is served until it ends, and then nothing is left."""
    late = f"""
time.sleep(1); get(); open({os.fspath(tmp_path / "done")!r}, "w").write(os.environ["SSL_CERT_FILE"])
"""
    run = trace(
        place, f"subprocess.Popen([sys.executable, '-c', {START + late!r}], start_new_session=True)"
    )
    assert run.exit_code == 0 and run.wall_s < 30
    assert "still running" in run.remarks[0]
    folder = Path(read_in_time(tmp_path / "done")).parent
    assert becomes(lambda: not folder.exists() and not find_gateways())


def test_two_at_once(place: Place) -> None:
    """Each has its own requests."""
    programs = [f"for _ in range({n}): get()" for n in (2, 5)]
    with ThreadPoolExecutor() as pool:
        runs = pool.map(lambda program: trace(place, program), programs)
    assert [len(run.rows) for run in runs] == [2, 5]


def test_only_the_program_is_served_and_what_goes_past_is_found(
    place: Place, tmp_path: Path
) -> None:
    """A connection of another process ends at once; one of the program past the gateway is named."""
    told, host = tmp_path / "told", urlsplit(place.plain)
    program = f"""
past = socket.create_connection(("127.0.0.1", {host.port}))
open({os.fspath(told)!r}, "w").write(os.environ["HTTPS_PROXY"])
while os.path.exists({os.fspath(told)!r}): time.sleep(0.02)
"""
    answers = []
    with ThreadPoolExecutor() as pool:
        running = pool.submit(trace, place, program)
        port = urlsplit(read_in_time(told)).port or 0
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(f"GET {place.plain}/whole HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            with suppress(ConnectionResetError):
                answers.append(stranger.recv(100))
        time.sleep(2 * launch.LOOK_S)
        told.unlink()
    run = running.result()
    assert not any(answers) and not run.rows
    assert [one.address for one in run.bypassed] == [f"127.0.0.1:{host.port}"]


def test_no_secret_is_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a query, a field, an address with a password or a login is in what is handed on or on a disk."""
    folders = list[str]()
    make = tempfile.mkdtemp
    monkeypatch.setattr(
        tempfile, "mkdtemp", lambda **named: folders.append(make(**named)) or folders[-1]
    )
    program = f"""
headers = {{"Authorization": "{SECRET}", "User-Agent": "tool/1.0 {SECRET}", "X-{SECRET}": "1"}}
for url in ("https://store.example/a?X-Amz-Signature={SECRET}", sys.argv[1].replace("//", "//u:{SECRET}@") + "/b"):
    request = urllib.request.Request(url, headers=headers)
    request.host = request.host.rpartition("@")[2]
    assert len(urllib.request.urlopen(request).read()) == 1000
    folder = os.path.dirname(os.environ["SSL_CERT_FILE"])
    assert os.stat(folder).st_mode & 0o777 == 0o700
    for name in os.listdir(folder): assert b"{SECRET}" not in open(os.path.join(folder, name), "rb").read()
    assert "PRIVATE KEY" not in open(os.environ["SSL_CERT_FILE"]).read()
"""
    run = trace(place, program)
    assert run.exit_code == 0
    assert [(row.host.partition(":")[0], row.key, row.user_agent) for row in run.rows] == [
        (HOST, "/a", "tool/1.0"),
        ("127.0.0.1", "/b", "tool/1.0"),
    ]
    assert SECRET not in repr(run)
    assert not os.path.exists(folders[0])


def test_what_a_program_has_in_its_environment_stays(place: Place, tmp_path: Path) -> None:
    """A sitecustomize of the user's own runs, its folder is on the path, and options of fsspec are kept."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own = True")
    options = {"PYTHONPATH": os.fspath(tmp_path), "FSSPEC_HTTPS_CLIENT_KWARGS": '{"x": 1}'}
    program = """
import json
assert sys.own and "shims" not in "".join(sys.path)
assert json.loads(os.environ["FSSPEC_HTTPS_CLIENT_KWARGS"]) == {"x": 1, "trust_env": True}
"""
    run = trace(place, program + "print('said')", environment=options, is_silent=True)
    assert run.exit_code == 0 and len(run.output_digest or "") == 64


def test_refusals(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What cannot begin is one line, before the program runs."""
    with refused("COMMAND", "'no-such-program'", "PATH"):
        launch.run(["no-such-program"])
    with refused("https_proxy", "socks5://h:1", "http://HOST"):
        trace(place, "", environment={"https_proxy": "socks5://h:1"})
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path / "none"))
    with refused(".*/none/wire-trace-.*", "^nothing is there$"):
        trace(place, "")
    (tmp_path / "bundle.pem").symlink_to("/dev/full")
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: os.fspath(tmp_path))
    with refused("wire trace", "no space is left"):
        trace(place, "")
