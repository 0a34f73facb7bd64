"""Find HDF5's own S3 driver, ROS3, or build it once from sources that are checked.

The h5py that package indexes ship is built without ROS3. So an h5py with it is built
from source into a folder of the user's cache, over an HDF5 that is built there too,
over the AWS libraries for C. The locked environment stays as it is: only an
interpreter that is told to look in that folder first sees the other h5py.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

from helpers.errors import UserError
from helpers.objectstore.processes import start_child
from helpers.objectstore.versitygw import cache_folder

HDF5_VERSION = "2.2.0"
SKIP = "ARRAYS_SKIP_ROS3"

# HDF5's sources as the Rust binding carries them: one archive with one checksum.
_HDF5_URL = "https://static.crates.io/crates/hdf5-metno-src/hdf5-metno-src-0.10.4.crate"
_HDF5_SHA256 = "69c883c565498492954e344c482f8622525e58c7a71100dd9498c4940da82885"
BUILD_NBYTES = 1_500_000_000
_STEP_TIMEOUT_S = 3600.0
_HDF5_OPTIONS = {
    "HDF5_ENABLE_ROS3_VFD": "ON",
    "HDF5_ENABLE_ZLIB_SUPPORT": "ON",
    "HDF5_ENABLE_SZIP_SUPPORT": "OFF",
    "HDF5_BUILD_HL_LIB": "ON",
    "HDF5_BUILD_TOOLS": "OFF",
    "HDF5_BUILD_EXAMPLES": "OFF",
    "HDF5_NO_PACKAGES": "ON",
    "BUILD_SHARED_LIBS": "ON",
    "BUILD_STATIC_LIBS": "OFF",
    "BUILD_TESTING": "OFF",
}


def find_tools() -> dict[str, str]:
    """Find the programs that build, or say which are missing."""
    near = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    names = {"cmake": "cmake", "make": "make", "C compiler cc": "cc", "C++ compiler c++": "c++"}
    found = {tool: shutil.which(program, path=near) for tool, program in names.items()}
    if missing := [tool for tool, path in found.items() if path is None]:
        raise not_built(f"missing: {', '.join(missing)}")
    return {names[tool]: str(path) for tool, path in found.items()}


@dataclass(frozen=True, slots=True)
class Build:
    """The steps of a build in a folder that is thrown away."""

    folder: Path  # what is thrown away
    target: Path  # where HDF5 and h5py go
    cmake: str  # path of CMake

    def fetch(self) -> None:
        """Fetch and unpack the sources."""
        self._pip("install", "--target", "tools", "--only-binary", ":all:", lock="ros3-tools.lock")
        self._pip(
            *("download", "--dest", "archives", "--no-binary", ":all:", "--no-build-isolation"),
            lock="ros3-sources.lock",
        )
        fetch_hdf5(self.folder / "archives" / "hdf5.tar.gz")
        for archive in sorted((self.folder / "archives").iterdir()):
            with tarfile.open(archive) as file:
                file.extractall(self.folder / "sources", filter="data")

    def build_aws(self) -> None:
        """Build the AWS libraries for C."""
        source = next((self.folder / "sources").glob("awscrt-*/crt"))
        self._cmake("aws", source, self.folder / "aws", {})

    def build_hdf5(self) -> None:
        """Build HDF5 with ROS3."""
        source = next((self.folder / "sources").glob("hdf5-*/ext/hdf5"))
        # Our libcrypto, not the system's: CMake would take that one for a shared library.
        crypto = os.fspath(self.folder / "aws" / "lib" / "libcrypto.a")
        ours = {
            "crypto_LIBRARY": crypto,
            "crypto_SHARED_LIBRARY": crypto,
            "crypto_INCLUDE_DIR": os.fspath(self.folder / "aws" / "include"),
        }
        if sys.platform == "linux":  # nor shall Python's own libcrypto be mistaken for it
            ours["CMAKE_SHARED_LINKER_FLAGS"] = "-Wl,--exclude-libs,ALL"
        self._cmake("hdf5", source, self.target, {**_HDF5_OPTIONS, **ours})

    def build_h5py(self) -> None:
        """Build h5py over it."""
        source = next((self.folder / "sources").glob("h5py-*"))
        command = ["install", "--no-deps", "--no-build-isolation", "--target"]
        env = {"HDF5_DIR": os.fspath(self.target), "H5PY_ROS3": "1"}
        self._pip(*command, os.fspath(self.target / "python"), os.fspath(source), **env)

    def _cmake(self, name: str, source: Path, prefix: Path, options: dict[str, str]) -> None:
        """Configure, build and install with CMake."""
        into = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_INSTALL_PREFIX": os.fspath(prefix),
            "CMAKE_INSTALL_LIBDIR": "lib",
            "CMAKE_PREFIX_PATH": os.fspath(self.folder / "aws"),
        }
        given = [f"-D{key}={value}" for key, value in {**into, **options}.items()]
        build = os.fspath(self.folder / f"build-{name}")
        generator = ["-G", "Unix Makefiles"]
        self._run([self.cmake, "-S", os.fspath(source), "-B", build, *generator, *given])
        n_jobs = str(os.environ.get("ARRAYS_BUILD_JOBS") or os.cpu_count() or 1)
        self._run([self.cmake, "--build", build, "--parallel", n_jobs, "--target", "install"])

    def _pip(self, *arguments: str, lock: str | None = None, **env: str) -> None:
        """Run pip in the folder, with what was installed there for building."""
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
        if lock:
            where = os.fspath(Path(__file__).with_name(lock))
            command += ["--no-deps", "--require-hashes", "--requirement", where]
        self._run(command, PYTHONPATH=os.fspath(self.folder / "tools"), **env)

    def _run(self, argv: list[str], **env: str) -> None:
        """Run a step; it ends with this process."""
        log = self.folder / "build.log"
        with (
            contextlib.chdir(self.folder),
            start_child(argv, env={**os.environ, **env}, log=log) as child,
        ):
            if child.wait(timeout_s=_STEP_TIMEOUT_S) != 0:
                raise not_built(f"{child.name}: {_first_error(log) or child.last_log_line()}")


def fetch_hdf5(path: Path) -> None:
    """Fetch HDF5's sources and check them."""
    url = os.environ.get("ARRAYS_HDF5_SOURCE", _HDF5_URL)
    try:
        with urllib.request.urlopen(url, timeout=60) as response:  # noqa: S310  # a mirror may be a file
            content = response.read()
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise not_built(f"{url}: {error}; ARRAYS_HDF5_SOURCE may name another address") from error
    if hashlib.sha256(content).hexdigest() != _HDF5_SHA256:
        raise not_built(f"{url}: not the file with sha256 {_HDF5_SHA256}")
    path.write_bytes(content)


def _first_error(log: Path) -> str:
    """Find the line of a build's log that says what went wrong."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in lines if "error:" in line.lower()), "")


def not_built(reason: str) -> UserError:
    """Say in one line why there is no ROS3 and what to do."""
    return UserError(
        f"ROS3: HDF5 {HDF5_VERSION} cannot be built ({reason}); allowed: CMake (in the locked"
        " environment), make, a C and a C++ compiler, the headers of zlib (Debian: apt install"
        f" build-essential zlib1g-dev) and a network for the first time, or {SKIP}=1"
    )


H5PY_VERSION = "3.16.0"
BUILD_MINUTES = 10  # on 2 free cores
_MARKER = "built.json"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ros3:
    """An h5py whose HDF5 has the ROS3 driver."""

    folder: Path  # where it was built

    def environment(self) -> dict[str, str]:
        """Return what an interpreter of the locked environment needs to import this h5py."""
        return {"PYTHONPATH": os.fspath(self.folder / "python")}


def find_ros3() -> Ros3 | None:
    """Return the h5py with ROS3 that was built for this Python, if it was and is not to be skipped."""
    folder = _target()
    return Ros3(folder) if not _is_skipped() and (folder / _MARKER).exists() else None


def why_absent() -> str:
    """Say in one line why there is no ROS3 and how to get it."""
    if _is_skipped():
        return f"HDF5 with ROS3: left out, because {SKIP} is set"
    return (
        f"HDF5 with ROS3: not built; `make ros3` builds it once, in about {BUILD_MINUTES} minutes"
    )


def build_ros3(say: Say) -> Ros3:
    """Return the h5py with ROS3; a first call builds it.

    Processes that call it at once build it once; a second call reaches for no network.
    """
    if _is_skipped():
        raise UserError(why_absent())
    target = _target()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _acquire(target.parent / "ros3.lock", say):
        if not (target / _MARKER).exists():
            tools = find_tools()
            say(
                f"building HDF5 {HDF5_VERSION} with ROS3 and h5py {H5PY_VERSION}, once: about"
                f" {BUILD_MINUTES} minutes on 2 free cores ({SKIP}=1 leaves it out)"
            )
            _build_in(target, tools, say)
    return Ros3(target)


def _is_skipped() -> bool:
    return os.environ.get(SKIP, "") not in ("", "0")


def _target() -> Path:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    name = f"ros3-h5py{H5PY_VERSION}-hdf5-{HDF5_VERSION}-{python}-{sysconfig.get_platform()}"
    return cache_folder() / name


def _acquire(path: Path, say: Say) -> AcquireReturnProxy[FileLock]:
    """Take a lock between processes; the kernel frees it if this one dies."""
    lock = FileLock(path)
    try:
        return lock.acquire(blocking=False)
    except Timeout:
        say("ROS3 is being built by another process: waiting for it")
        return lock.acquire()


def _build_in(target: Path, tools: dict[str, str], say: Say) -> None:
    """Build into the target; what marks it as whole is written last."""
    shutil.rmtree(target, ignore_errors=True)  # of a build that was killed
    for leftover in target.parent.glob("build-ros3-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if (free_nbytes := shutil.disk_usage(target.parent).free) < BUILD_NBYTES:
        raise not_built(
            f"{free_nbytes / 1e6:.0f} MB are free and {BUILD_NBYTES / 1e6:.0f} MB needed"
        )
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="build-ros3-", dir=target.parent) as name:
        build = Build(Path(name), target, tools["cmake"])
        for step in (build.fetch, build.build_aws, build.build_hdf5, build.build_h5py):
            say(f"  {str(step.__doc__).partition('.')[0].lower()}")
            step()
    found = check_ros3(Ros3(target))
    (target / _MARKER).write_text(json.dumps(found), encoding="utf-8")
    say(f"built HDF5 {found['hdf5']} with ROS3 in {time.monotonic() - start_s:.0f} s: {target}")


def check_ros3(ros3: Ros3) -> dict[str, str]:
    """Ask a built h5py what it is."""
    question = (
        "import h5py, json; assert h5py.h5.get_config().ros3;"
        "print(json.dumps({'h5py': h5py.__version__, 'hdf5': h5py.version.hdf5_version}))"
    )
    asked = subprocess.run(
        [sys.executable, "-c", question],
        env={**os.environ, **ros3.environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        raise not_built(f"the result: {(asked.stderr.strip() or 'no answer').splitlines()[-1]}")
    return dict(json.loads(asked.stdout))
