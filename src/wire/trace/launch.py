"""Run a program as it is, with the gateway before it, and gather what was seen."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import resource
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import psutil

import wire
from wire.bed.certificates import BUNDLE_VARIABLES
from wire.bed.networks import Profile
from wire.bed.relay import listen
from wire.errors import (
    UserError,
    convert_system_error,
    describe_refusal,
    describe_system_error,
    find_command_secrets,
    show,
)
from wire.trace import lines
from wire.trace.closed import ClosedConnections
from wire.trace.gateway import Batch, Settings, find_processes
from wire.trace.request_log import LOG_NAME, identify_request, identify_tunnel, read_log
from wire.trace.rows import METADATA_SERVICES, TOKEN, Bypass, Run, TracedRequest, Tunnel
from wire.trace.sockets import ConnectionLook, End, find_descendants
from wire.trace.trust import FILE_NAMES, mark_of

SAMPLE_S = 0.02
"""Seconds between samples of the program's processor seconds, which the system counts in hundredths."""

LOOK_S = 0.25  # between looks at its processes
GLANCE_S = 0.004  # between looks at their connections
GLANCES_S = 0.05  # of a processor, which these looks may take besides
BUSY = 0.02  # the most of a processor that looking may take
STOP_TIMEOUT_S = 5.0
LEAVE_TIMEOUT_S = 0.5  # for processes that end with the program, such as multiprocessing's tracker
_MOST_PLACES = 3  # that are named
_START = """
import sys
sys.path[:0] = [sys.argv[1]]
sys.path += sys.argv[4:]
from wire.trace.gateway import main
main(sys.argv[2:4])
"""

SHIMS = Path(__file__).with_name("shims")

# Options of fsspec's filesystems, which are JSON and may be the user's own.
_SESSIONS = ("HTTP_CLIENT", "HTTPS_CLIENT", "GCS_SESSION", "GS_SESSION")


def make_environment(
    user_environment: Mapping[str, str], *, port: int, settings: Settings
) -> dict[str, str]:
    """Return the variables of a program whose requests go through the gateway.

    What the program reaches directly now, by `NO_PROXY`, it reaches through the gateway too.
    """
    url = f"http://127.0.0.1:{port}"
    names = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")
    variables = {**user_environment, TOKEN: settings.token, **dict.fromkeys(names, url)}
    variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(METADATA_SERVICES))
    variables[f"{TOKEN}_FOLDER"] = os.fspath(settings.folder)
    for name in BUNDLE_VARIABLES:
        if name in FILE_NAMES:
            variables[name] = os.fspath(settings.name_bundle(name))
            variables[f"{TOKEN}_{name}"] = user_environment.get(name, "")
    for session in _SESSIONS:
        name = f"FSSPEC_{session}_KWARGS"
        try:
            variables[name] = json.dumps(
                {**json.loads(user_environment.get(name, "{}")), "trust_env": True}
            )
        except (ValueError, TypeError):
            continue  # it is for fsspec to say what is wrong with it
    host, number = "127.0.0.1", str(port)
    variables |= {"TILEDB_VFS_S3_PROXY_HOST": host, "TILEDB_VFS_S3_PROXY_PORT": number}
    variables["TILEDB_VFS_S3_PROXY_SCHEME"] = "http"
    places = [os.fspath(SHIMS), user_environment.get("PYTHONPATH", "")]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    return variables


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    profile: Profile | None = None,
    is_silent: bool = False,
    log: Path | None = None,
) -> Run:
    """Run a program with the gateway before it, its input, output, exit code and signals its own.

    It gets variables besides those of this process; `profile` is emulated on all its connections, besides
    the network that is there, and of a silent one the output is digested instead of shown. Requests are appended to `log` as
    they end, so that whoever is killed takes none with it. Before the program runs there may be a
    UserError, and nothing raises afterwards.
    """
    if sys.platform != "linux":
        raise UserError("wire trace", f"on {sys.platform}", "Linux, which tells who connects")
    _fill_standard_streams()
    user_environment = {**os.environ, **(environment or {})}
    for name in ("https_proxy", "http_proxy", "all_proxy"):
        for variable in (name, name.upper()):  # of a user's own, which the gateway has to ask
            url = user_environment.get(variable, "")
            if "://" in url and urlsplit(url).scheme != "http":
                raise UserError(variable, url, "http://HOST:PORT with wire trace")
    try:
        folder = Path(tempfile.mkdtemp(prefix="wire-trace-"))  # of mode 700
        (folder / "samples").mkdir(mode=0o700)
        if log is not None:  # where a trace inside of this one looks for it
            (folder / LOG_NAME).symlink_to(log.absolute())
    except OSError as error:
        raise convert_system_error(error) from error
    settings = Settings(
        folder,
        secrets.token_hex(8),
        os.getpid(),
        profile,
        log=None if log is None else log.absolute(),
        secrets=find_command_secrets(command),
    )
    guard = _Guard(settings, user_environment)
    program_environment = make_environment(user_environment, port=guard.port, settings=settings)
    closed = ClosedConnections()  # before the program's first
    digest = hashlib.sha256() if is_silent else None
    try:
        return _run(command, program_environment, guard, closed, digest)
    finally:
        guard.stop()
        closed.close()


def _run(
    command: Sequence[str],
    env: Mapping[str, str],
    guard: _Guard,
    closed: ClosedConnections,
    digest: hashlib._Hash | None,
) -> Run:
    before_s, begin_s, started_s = _reaped_s(), time.time(), time.perf_counter()
    with _signals_for_program() as pass_on:
        try:
            with _marked(env[TOKEN]):
                output = subprocess.PIPE if digest else None
                child = subprocess.Popen(command, env=env, stdout=output)
        except OSError as error:
            problem = f"{show(command[0])}; {describe_system_error(error)}"
            raise UserError("COMMAND", problem, "a program on PATH") from error
        pass_on(child.send_signal)
        watch = _Watch(child.pid, guard.port, closed=closed)
        reader = threading.Thread(target=_digest, args=(child.stdout, digest), daemon=True)
        reader.start()
        code = child.wait()
        wall_s = time.perf_counter() - started_s
        reader.join(STOP_TIMEOUT_S)  # a process that it left may hold its output open
    used = watch.stop()
    used_s = max(used[-1][1] if used else 0.0, _reaped_s() - before_s)
    samples = lines.read_samples(Path(env[f"{TOKEN}_FOLDER"]) / "samples")
    guard.finish()
    bypassed = watch.find_bypassed(samples.values())
    uncertain = closed.find_unattributed(
        own_ends={*guard.own_ends, ("127.0.0.1", guard.port)},
        own_ports=watch.find_served_ports(samples.values()),
        own_places={bypass.address for bypass in bypassed},
    )
    return Run(
        rows=guard.rows,
        sites=lines.locate(guard.rows, samples, watch.parents),
        wall_s=wall_s,
        begin_s=begin_s,
        exit_code=code if code >= 0 else 128 - code,
        processor_s=[(begin_s, 0.0), *used, (begin_s + wall_s, used_s)],
        bypassed=bypassed,
        uncertain=describe_uncertain(uncertain, is_complete=closed.is_complete),
        unread=guard.tunnels,
        gateway_s=guard.processor_s,
        output_digest=digest.hexdigest() if digest else None,
        remarks=guard.remarks,
        missing=guard.missing,
    )


_marking = threading.Lock()


@contextmanager
def _marked(token: str) -> Iterator[None]:
    """Have what is started meanwhile inherit the mark of a program."""
    with _marking:
        soft, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        with suppress(ValueError, OSError):  # where less is allowed, the variables have to do
            resource.setrlimit(resource.RLIMIT_RTTIME, (mark_of(token), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_RTTIME, (soft, hard))


def _reaped_s() -> float:
    """Return the processor seconds of children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _digest(output: IO[bytes] | None, digest: hashlib._Hash | None) -> None:
    """Digest what the program prints, if it prints to us."""
    if output is not None and digest is not None:
        with output:
            while data := os.read(output.fileno(), 1 << 16):
                digest.update(data)


def _fill_standard_streams() -> None:
    """Open what stands for a standard stream that was closed: a pipe of ours would get its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _is_at_terminal() -> bool:
    """Tell whether a terminal is at this process, whose Ctrl-C the program gets too."""
    with suppress(OSError), open("/dev/tty", "rb") as terminal:
        return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    return False


@contextmanager
def _signals_for_program() -> Iterator[Callable[[Callable[[int], None]], None]]:
    """Leave signals to the program: those of a terminal reach it anyway, all others are passed on."""
    senders: list[Callable[[int], None]] = []
    of_terminal = (signal.SIGINT, signal.SIGQUIT) if _is_at_terminal() else ()

    def handle(number: int, _frame: object) -> None:
        for send_signal in senders if number not in of_terminal else ():
            send_signal(number)

    # the last two as batch systems send them before a job's time is over
    of_job = (signal.SIGUSR1, signal.SIGUSR2)
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, *of_job)
    is_main = threading.current_thread() is threading.main_thread()
    # one that is ignored stays so, for the program too, which does not inherit a handler
    handled = [n for n in numbers if is_main and signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in handled}
    try:
        yield senders.append
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Guard:
    """Keep a gateway at a port: one that ends before the program is followed by one that reads nothing."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self._settings, self._environment = settings, environment
        self._listener = listen()
        self.port = int(self._listener.getsockname()[1])
        self.rows, self.tunnels = list[TracedRequest](), list[Tunnel]()
        self.own_ends = list[End]()  # of the gateway's connections to servers
        self.remarks, self.missing, self.processor_s = list[str](), list[str](), 0.0
        self._is_over, self._begin_s = False, time.monotonic()
        self._start()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _start(self) -> None:
        """Start a gateway at the port."""
        self._pipe, gateway_pipe = Pipe()
        shared = [gateway_pipe.fileno(), self._listener.fileno()]
        # the folder that the program is in may hold modules with our names, or Python's
        places = [
            os.path.abspath(place) for place in sys.path if place not in ("", ".", os.getcwd())
        ]
        source_folder = str(Path(wire.__file__).parents[1])
        log = self._settings.folder / "gateway.log"  # the program's output is its own
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-c", _START, source_folder, *map(str, shared), *places],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=shared,
                    env=dict(self._environment),
                    start_new_session=True,  # the terminal's signals are for the program
                )
            gateway_pipe.close()
            self._pipe.send(self._settings)
            refusal = self._pipe.recv()
        except EOFError:
            refusal = f"the gateway did not start: {' '.join(log.read_text().split()[-20:])}"
        except OSError as error:
            refusal = describe_refusal(error)
        if refusal:
            self._pipe.close()
            self._listener.close()
            with suppress(AttributeError, subprocess.TimeoutExpired):  # there may be none
                self._process.wait(STOP_TIMEOUT_S)
            shutil.rmtree(self._settings.folder, ignore_errors=True)
            raise UserError("wire trace", refusal)

    @property
    def pid(self) -> int:
        """The gateway's process."""
        return self._process.pid

    def _read(self) -> None:
        """Gather what gateways see, to the end of the program."""
        while not self._is_over:
            with suppress(EOFError, OSError):
                while True:
                    batch: Batch = self._pipe.recv()
                    self.rows += batch.rows
                    self.tunnels += batch.tunnels
                    self.processor_s += batch.processor_s
                    self.own_ends += batch.own_ends
                    unwritten = f"requests could not be written as they ended: {batch.problem}"
                    if batch.problem and unwritten not in self.remarks:
                        self.remarks.append(unwritten)
            if not self._is_over:
                code, after_s = self._process.wait(), time.monotonic() - self._begin_s
                self._fill_from_log()
                self.missing = ["what came after the gateway had ended"]
                self.remarks.append(
                    f"the gateway ended after {after_s:.1f} s (exit code {code}):"
                    " what is encrypted was passed on unread from then on"
                )
                try:
                    self._start()
                except UserError as error:
                    return self.remarks.append(str(error))

    def _fill_from_log(self) -> None:
        """Add what a gateway that ended had written into the log and not yet sent."""
        logged = read_log(self._settings.log_path)
        sent = {*map(identify_request, self.rows)}
        self.rows += [row for row in logged.requests if identify_request(row) not in sent]
        sent = {*map(identify_tunnel, self.tunnels)}
        for tunnel in logged.tunnels:
            if identify_tunnel(tunnel) not in sent:
                tunnel.end_s = tunnel.end_s or time.time()
                self.tunnels.append(tunnel)

    def finish(self) -> None:
        """Take the last rows; a gateway stays for as long as processes that the program left."""
        deadline_s = time.monotonic() + LEAVE_TIMEOUT_S
        while (remaining := find_processes(self._settings)) and time.monotonic() < deadline_s:
            time.sleep(SAMPLE_S)
        if remaining:
            names = ", ".join(f"{process.pid} {_name_of(process)}" for process in remaining)
            self.remarks.append(f"still running, and traced no more: {names}")
        self.stop()

    def stop(self) -> None:
        """Tell the gateway that the program has ended."""
        if self._is_over:
            return
        self._is_over = True
        with suppress(OSError):
            self._pipe.send("end")
        self._reader.join(STOP_TIMEOUT_S)
        self._listener.close()
        self._pipe.close()
        if not find_processes(self._settings):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        self._process.returncode = self._process.returncode or 0  # it may stay: no warning of that


class _Watch:
    """Look at the processes of a program while it runs."""

    def __init__(
        self,
        pid: int,
        port: int,
        ignored_pids: Set[int] = frozenset(),
        closed: ClosedConnections | None = None,
    ) -> None:
        self._ignored_pids = ignored_pids  # such as the gateway's, where it is a child
        self.bypassed = list[Bypass]()
        self.parents = dict[int, int]()  # by process, the one that started it
        self._sockets, self._names = ConnectionLook(port, closed), dict[int, str]()
        self._root = psutil.Process(pid)
        self._used_s = dict[psutil.Process, float]()
        self._samples = list[tuple[float, float]]()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=target, daemon=True)
            for target in (self._watch, self._find_connections)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[tuple[float, float]]:
        """End, and return when how many processor seconds had been used."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        return self._samples

    def find_bypassed(self, samples: Iterable[lines.ProcessSamples]) -> list[Bypass]:
        """Return the connections past the gateway, those that Python wrote down included.

        What goes to a port that the program itself listens at is none.
        """
        bypassed = list(self.bypassed)
        processes = [*samples]
        served = self.find_served_ports(processes)
        for process in processes:
            for _, _, host, port in process.connections:
                if port in served and ipaddress.ip_address(host).is_loopback:
                    continue
                name = self._names.get(process.pid, "python")
                address = f"{host}:{port}"
                if (process.pid, address) not in {
                    (bypass.pid, bypass.address) for bypass in bypassed
                }:
                    bypassed.append(Bypass(process.pid, name, address))
        return bypassed

    def find_served_ports(self, samples: Iterable[lines.ProcessSamples]) -> set[int]:
        """Return the ports at which the program itself listens."""
        return self._sockets.served_ports.union(*(process.served_ports for process in samples))

    def _watch(self) -> None:
        pause_s = look_s = 0.0
        while not self._over.wait(pause_s):
            began_s, used_s = time.perf_counter(), time.thread_time()
            if began_s >= look_s:
                with suppress(psutil.Error):
                    for process in [self._root, *self._root.children(recursive=True)]:
                        if process.pid not in self._ignored_pids:
                            self._used_s.setdefault(process, 0.0)
                look_s = began_s + max(LOOK_S, (time.thread_time() - used_s) / BUSY)
            used_s = time.thread_time()
            for process in self._used_s:
                with suppress(psutil.Error):
                    used = process.cpu_times()
                    self._used_s[process] = used.user + used.system
            self._samples.append((time.time(), sum(self._used_s.values())))
            pause_s = max(SAMPLE_S, (time.thread_time() - used_s) / BUSY)

    def _find_connections(self) -> None:
        """Find connections past the gateway while the program runs, short ones too."""
        began_s, pause_s = time.monotonic(), 0.0
        while not self._over.wait(pause_s):
            before_s = time.thread_time()
            with suppress(OSError, struct.error):
                self._glance()
            used_s, pause_s = time.thread_time(), GLANCE_S
            if used_s > GLANCES_S + BUSY * (time.monotonic() - began_s):
                pause_s = max(GLANCE_S, (used_s - before_s) / BUSY)

    def _glance(self) -> None:
        """Find the connections past the gateway that are new."""
        watched_pids = [process.pid for process in list(self._used_s)]
        pids = {*find_descendants(self._root.pid), *watched_pids} - self._ignored_pids
        for pid in pids:
            if name := read_name(pid):
                self._names[pid] = name
            if pid not in self.parents:
                self.parents[pid] = read_parent(pid)
        for pid, host, port in self._sockets.find_new(pids):
            name, address = self._names.get(pid, ""), f"{host}:{port}"
            if (pid, address) not in {(bypass.pid, bypass.address) for bypass in self.bypassed}:
                self.bypassed.append(Bypass(pid, name, address, find_remedy(pid, name)))


REMEDIES = {
    "arrow": "Arrow's S3 client takes its proxy in code alone: give it"
    " `filesystem=s3fs.S3FileSystem()`, or"
    " `pyarrow.fs.S3FileSystem(proxy_options=os.environ['HTTPS_PROXY'])`",
    "java": "Java reads no variable: run `sh -c 'JAVA_TOOL_OPTIONS=\"-Dhttp.proxyHost=127.0.0.1"
    " -Dhttp.proxyPort=${HTTP_PROXY##*:} -Dhttps.proxyHost=127.0.0.1"
    " -Dhttps.proxyPort=${HTTP_PROXY##*:}\" java …'`, whose trust store has to hold the"
    " certificates of $SSL_CERT_FILE for https to be read",
    "node": "Node.js takes proxies from 22.21 and 24.5 on: set NODE_USE_ENV_PROXY=1 and"
    " NODE_EXTRA_CA_CERTS=$SSL_CERT_FILE for it",
}
"""What has a program's connections go through the gateway, by what opens them."""


def describe_uncertain(places: Sequence[str], *, is_complete: bool) -> list[str]:
    """Describe connections of which nobody knows whose they were, in a phrase."""
    if places:
        counts = Counter(places).most_common()
        hosts = ", ".join(place for place, _ in counts[:_MOST_PLACES])
        more = f" and {len(counts) - _MOST_PLACES} more" * (len(counts) > _MOST_PLACES)
        n, s = len(places), "s" * (len(places) > 1)
        return [f"{n:,} short connection{s} to {hosts}{more}: the program's or another program's"]
    if is_complete:
        return []
    return ["connections of a few milliseconds, which this system did not report"]


def read_name(pid: int) -> str:
    """Read the name of a process; nothing where it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def read_parent(pid: int) -> int:
    """Read which process started one; 0 where it has ended."""
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def find_remedy(pid: int, name: str) -> str:
    """Find what would have the connections of a process go through the gateway; "" if not known."""
    for program in ("java", "node"):
        with suppress(OSError):
            if Path(os.readlink(f"/proc/{pid}/exe")).name.startswith(program):
                return REMEDIES[program]
    with suppress(OSError):
        if "libarrow.so" in Path(f"/proc/{pid}/maps").read_text():
            return REMEDIES["arrow"]
    return REMEDIES.get(name, "")


def _name_of(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.name()
    return ""
