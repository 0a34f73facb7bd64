"""Whether a TLS client of the program trusts the gateway, known before it is answered.

A client that refuses a certificate loses its connection, and a program that does not try again fails.
So the gateway answers only a client that has proved that it trusts us, and passes all others on unread.
There are two proofs, and neither is a guess from a name:

- Python's `ssl`: our shim adds our authority to each context that verifies, and writes down the hello
  that the context sends and the certificates that it would trust alone (`ShimStatements`).
- every other library: it has opened the file with our authority in it (`BundleReaders`). The variables
  name that file, and in Python each process has names of its own for it. A client with
  certificates of its own, with the system's or with none does not open it: curl --cacert, git, GnuTLS.

A library that opens the file only once it has seen a certificate, as Go's does, is read from its
second connection on.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import os
import resource
import select
import ssl
import struct
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import psutil

_IN_OPEN, _NONBLOCK = 0x20, os.O_NONBLOCK | os.O_CLOEXEC
_EVENT = struct.Struct("iIII")  # <sys/inotify.h>
_MOST_UNSEEN = 1000
_START_SLACK_S = 0.05  # the system counts when a process began in hundredths of a second

# Extensions of a hello by their numbers: what differs from one connection of a context to the next.
_SERVER_NAME, _ALPN = 0, 16
_LEFT_OUT = (21, 41, 42)  # padding, a session that is resumed, data sent early
_EMPTIED = (35, 51)  # a ticket, keys

READING_S = 0.5
"""How long a client that has said hello may take to read its certificates."""

_MARK = 1 << 62
"""Above any limit of microseconds that somebody means."""


def mark_of(token: str) -> int:
    """Return the number by which processes of a program are known, a limit that bounds nothing.

    All that a program starts inherits the limit, whatever it does with its environment and its
    parents: it bounds how long a process with real-time priority computes, in microseconds.
    """
    return _MARK + int(token, 16) % (_MARK >> 1)


def has_mark(pid: int, token: str) -> bool:
    """Return whether a process has inherited the mark."""
    with suppress(OSError, ValueError):
        return resource.prlimit(pid, resource.RLIMIT_RTTIME)[0] == mark_of(token)
    return False


@dataclass(frozen=True, slots=True)
class ClientHello:
    """Hold what a TLS client says first, parsed."""

    server_name: str
    protocols: tuple[bytes, ...]  # of ALPN
    fingerprint: str  # the same for each connection that a context makes to a server


def parse_hello(data: bytes) -> ClientHello | None:
    """Parse a ClientHello that lies in one record (RFC 8446, 4.1.2); None if it is none."""
    try:
        if data[0] != 0x16 or data[5] != 1:
            return None
        position = 43 + 1 + data[43]  # past version, random bytes and a session's number
        n_ciphers = int.from_bytes(data[position : position + 2])
        ciphers = data[position : position + 2 + n_ciphers]
        position += 2 + n_ciphers
        position += 1 + data[position]  # past compression
        end = position + 2 + int.from_bytes(data[position : position + 2])
        extensions = list(_split_extensions(data[position + 2 : end]))
    except IndexError:
        return None
    if end > len(data):
        return None
    digest = hashlib.sha256(data[9:11] + ciphers)
    for number, body in extensions:
        if number not in _LEFT_OUT:
            content = b"" if number in _EMPTIED else body
            digest.update(struct.pack("!HI", number, len(content)) + content)
    bodies = dict(extensions)
    name = bodies.get(_SERVER_NAME, b"")[5:].decode("ascii", "replace")
    return ClientHello(name, tuple(_split_names(bodies.get(_ALPN, b"")[2:])), digest.hexdigest())


def _split_extensions(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        number, n = int.from_bytes(data[:2]), int.from_bytes(data[2:4])
        yield number, data[4 : 4 + n]
        data = data[4 + n :]


def _split_names(data: bytes) -> Iterator[bytes]:
    while data:
        yield data[1 : 1 + data[0]]
        data = data[1 + data[0] :]


@dataclass(frozen=True, slots=True)
class Trust:
    """Hold by which certificates a client would verify its server without us."""

    files: tuple[str, ...] | None = None  # None: those of the system, certifi and the variables
    is_verifying: bool = True
    flags: int | None = None  # of the verification, where the files are the client's own
    may_have_certificate: bool = False  # for itself, which we could not show to its server

    def make_context(self, usual: Iterable[Path]) -> ssl.SSLContext:
        """Return what verifies a server as the client would, or more strictly."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["http/1.1"])
        if not self.is_verifying:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return context
        if self.flags is not None:
            context.verify_flags = ssl.VerifyFlags(self.flags)
        if self.files is None:
            context.load_default_certs()
        for path in map(Path, usual if self.files is None else self.files):
            if path.is_dir():
                context.load_verify_locations(capath=path)
            else:
                content = path.read_bytes()
                is_text = b"-----BEGIN" in content
                context.load_verify_locations(cadata=content.decode() if is_text else content)
        return context


class ShimStatements:
    """Read what the shims in the program's Python processes have written down."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets, self._fingerprints = dict[int, int](), dict[int, dict[str, set[Trust]]]()
        # when a process began, in ticks, and the one that it was forked from
        self._began = dict[int, tuple[int, int]]()
        self._unverified = set[int]()  # processes with another library that verifies nobody

    def find(self, pid: int) -> dict[str, set[Trust]] | None:
        """Return what is trusted by which hello in a process; None if it has no shim."""
        self._read(pid)
        if pid not in self._began or self._began[pid][0] != start_ticks_of(pid):
            return None
        return self._fingerprints[pid]

    def is_unverified(self, pid: int) -> bool:
        """Return whether a process has a library, besides Python's `ssl`, that trusts everybody."""
        return pid in self._unverified

    def find_parent(self, pid: int) -> int:
        """Return the process of which one is a fork; 0 if it is none."""
        return self._began.get(pid, (0, 0))[1]

    def _read(self, pid: int) -> None:
        with suppress(OSError), (self._folder / str(pid)).open("rb") as file:
            if os.fstat(file.fileno()).st_size < self._offsets.get(pid, 0):
                self._offsets[pid] = 0  # of another process with the same number
            file.seek(self._offsets.get(pid, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offsets[pid] = self._offsets.get(pid, 0) + len(line)
                with suppress(ValueError, SyntaxError, TypeError):
                    self._take(pid, *ast.literal_eval(line.decode()))

    def _take(self, pid: int, word: str, *values: Any) -> None:
        if word == "begin":
            start, parent = values
            self._began[pid], self._fingerprints[pid] = (int(start), int(parent)), {}
            self._unverified.discard(pid)
        elif word == "unverified":
            self._unverified.add(pid)
        elif word == "hello":
            raw, is_verifying, flags, files = values
            if (hello := parse_hello(bytes.fromhex(raw))) is None:
                return
            if None in files or not is_verifying:
                trust = Trust(is_verifying=bool(is_verifying))
            else:
                trust = Trust(tuple(files), flags=int(flags))
            self._fingerprints[pid].setdefault(hello.fingerprint, set()).add(trust)


class BundleReaders:
    """Find which processes have opened the file with our authority in it."""

    def __init__(self, folder: Path, token: str) -> None:
        self._folder, self._token = folder, token
        # by the file's name, when a process (its number, when it began) opened it first
        self._openings = defaultdict[str, dict[tuple[int, int], float]](dict)
        # when somebody did who was not seen
        self._unseen = defaultdict[str, deque[float]](lambda: deque(maxlen=_MOST_UNSEEN))
        self._lock, self._libc = threading.Lock(), ctypes.CDLL(None, use_errno=True)
        self._inotify = self._libc.inotify_init1(_NONBLOCK)
        watch = self._libc.inotify_add_watch(self._inotify, os.fsencode(folder), _IN_OPEN)
        if self._inotify < 0 or watch < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), os.fspath(folder))
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        """Look at once who has the file open: most are known by that."""
        poller = select.poll()
        poller.register(self._inotify, select.POLLIN)
        while True:
            poller.poll()
            with self._lock:
                self._take()

    def _take(self) -> None:
        """Take what has happened since the last call."""
        data = b""
        with suppress(BlockingIOError):
            data = os.read(self._inotify, 1 << 16)
        counts = Counter(_read_names(data))
        holders = self._find_holders(counts.keys()) if counts else {}
        moment_s = time.time()
        for name, n in counts.items():
            pids = holders.get(name, set())
            for pid in pids:
                self._openings[name].setdefault((pid, start_ticks_of(pid)), moment_s)
            if not pids:
                self._unseen[name] += [moment_s] * min(n, _MOST_UNSEEN)

    def _find_holders(self, names: Set[str]) -> dict[str, set[int]]:
        holders = defaultdict[str, set[int]](set)
        paths = {os.fspath(self._folder / name): name for name in names}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            for path in _open_files(pid) if has_mark(pid, self._token) else ():
                if path in paths:
                    holders[paths[path]].add(pid)
        return holders

    def has_opened(self, pid: int, names: Set[str], until_s: float = inf) -> bool:
        """Return whether a process has opened the file by one of these names.

        An opening at which nobody was seen is that of the first client that has lived since then, has
        that name of the file and has read as many bytes as the file has.
        """
        try:
            start_s = psutil.Process(pid).create_time() - _START_SLACK_S
        except psutil.Error:
            return False
        process = pid, start_ticks_of(pid)
        with self._lock:
            self._take()
            for name in names:
                opened_s = self._openings[name].get(process)
                if opened_s is not None and opened_s <= until_s:
                    return True
            n_read = _count_read(pid)
            for name in names:
                for moment_s in self._unseen[name]:
                    if start_s <= moment_s <= until_s and n_read >= self._size_of(name):
                        self._unseen[name].remove(moment_s)
                        self._openings[name][process] = moment_s
                        return True
        return False

    def _size_of(self, name: str) -> float:
        """Return the bytes of a file; infinite if it is not there, so that nobody has read it."""
        with suppress(OSError):
            return (self._folder / name).stat().st_size
        return inf

    def find_names(self, pid: int) -> set[str]:
        """Return the names that the variables of a process have for the file."""
        with suppress(psutil.Error):
            values = map(Path, psutil.Process(pid).environ().values())
            return {value.name for value in values if value.parent == self._folder}
        return set()


def _read_names(events: bytes) -> Iterator[str]:
    """Read which files were opened; that of the folder itself has no name."""
    while events:
        end = _EVENT.size + _EVENT.unpack_from(events)[3]
        if name := events[_EVENT.size : end].rstrip(b"\0"):
            yield os.fsdecode(name)
        events = events[end:]


def _open_files(pid: int) -> Iterator[str]:
    """Yield the paths of the files that a process has open."""
    with suppress(OSError):
        for file in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{file}")


def _count_read(pid: int) -> int:
    """Return how many bytes a process has read, of whatever; none if the system does not say."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("rchar:"):
                return int(line.split()[1])
    return 0


def start_ticks_of(pid: int) -> int:
    """Return when a process began, in ticks since the system did; 0 if there is none."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


class TrustingClients:
    """Find which clients trust the gateway, and whom they would trust without it."""

    def __init__(self, folder: Path, token: str) -> None:
        self._statements, self._lock = ShimStatements(folder / "said"), threading.Lock()
        self._readers = BundleReaders(folder / "open", token)
        self._waited = set[tuple[str, str]]()  # kinds of clients: a program and its hello

    def find_trust(self, pid: int, hello: ClientHello) -> Trust | str:
        """Return whom a client would trust without us, or why it is not known to trust us."""
        with self._lock:
            fingerprints = self._statements.find(pid)
            if fingerprints is not None and (trusts := fingerprints.get(hello.fingerprint)):
                ways = set(trusts)
                return ways.pop() if len(ways) == 1 else "the program trusts it in several ways"
        if not self._wait_for_reader(pid, hello, has_shim=fingerprints is not None):
            return (
                "its client does not trust the gateway, as far as is known;"
                " where it can be told to trust the file that SSL_CERT_FILE names, it is read"
            )
        if pins_certificate(pid):
            return "its client takes one certificate alone"
        return Trust(may_have_certificate=True)

    def _wait_for_reader(self, pid: int, hello: ClientHello, *, has_shim: bool) -> bool:
        """Return whether a process has read our file, or does so while it waits for an answer to its hello.

        libcurl says hello and reads its certificates then. Who has not is waited for once.
        """
        until_s = time.monotonic()
        with suppress(OSError):
            kind = os.readlink(f"/proc/{pid}/exe"), hello.fingerprint
            if kind not in self._waited:
                self._waited.add(kind)
                until_s += READING_S
        while not (is_reader := self._is_reader(pid, has_shim=has_shim)):
            if time.monotonic() >= until_s:
                break
            time.sleep(0.005)
        return is_reader

    def _is_reader(self, pid: int, *, has_shim: bool) -> bool:
        if not has_shim:
            return self._readers.has_opened(pid, self._readers.find_names(pid))
        if self._statements.is_unverified(pid) or self._readers.has_opened(pid, set(names_in(pid))):
            return True
        parent = self._statements.find_parent(pid)
        with suppress(psutil.Error):  # what was loaded before a fork is in both
            forked_s = psutil.Process(pid).create_time() + _START_SLACK_S
            return bool(parent) and self._readers.has_opened(
                parent, set(names_in(parent)), forked_s
            )
        return False


def names_in(pid: int) -> Iterator[str]:
    """Yield the names that our shim makes for the file in a process of Python."""
    return (f"{pid}.{name}.pem" for name in FILE_NAMES)


def pins_certificate(pid: int) -> bool:
    """Return whether the words of a command pin the key of its server, as those of curl and wget can."""
    with suppress(OSError):
        return b"-pinnedpubkey" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


FILE_NAMES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GDAL_CURL_CA_BUNDLE",
    "TILEDB_SSL_CA_FILE",
    "TILEDB_VFS_S3_CA_FILE",
    "certifi",
)
"""Variables that name the file, and the module that does: all that clients ask but AWS_CA_BUNDLE.

Go's SDK ends at once where it finds that one and the program has a transport of its own. Python's
botocore needs none, for the shim adds our authority to whatever it loads.
"""
