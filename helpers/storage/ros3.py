"""Find HDF5's own S3 driver, ROS3, or build it once.

The h5py that package indexes ship is built without ROS3. So an h5py with it is built
from source into a folder of the user's cache, over an HDF5 that is built there too,
over the AWS libraries for C. The locked environment stays as it is: only an
interpreter that is told to look in that folder first sees the other h5py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from helpers.errors import UserError
from helpers.storage.ros3_building import (
    BUILD_NBYTES,
    HDF5_VERSION,
    SKIP,
    Build,
    find_tools,
    not_built,
)
from helpers.storage.versitygw import cache_folder

__all__ = [
    "BUILD_MINUTES",
    "H5PY_VERSION",
    "HDF5_VERSION",
    "SKIP",
    "Ros3",
    "build_ros3",
    "check_ros3",
    "find_ros3",
    "why_absent",
]

H5PY_VERSION = "3.16.0"
BUILD_MINUTES = 10  # on 2 free cores
_MARKER = "built.json"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ros3:
    """An h5py whose HDF5 has the ROS3 driver.

    Parameters
    ----------
    folder : Path
        Where it was built.
    """

    folder: Path

    def environment(self) -> dict[str, str]:
        """Return what an interpreter of the locked environment needs to import this h5py."""
        return {"PYTHONPATH": os.fspath(self.folder / "python")}


def find_ros3() -> Ros3 | None:
    """Return the h5py with ROS3 that was built for this Python, if it was.

    Returns
    -------
    Ros3 or None
        None too where ``ARRAYS_SKIP_ROS3`` is set.
    """
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

    Parameters
    ----------
    say : callable
        Told in one line what takes so long.

    Returns
    -------
    Ros3
        Checked: its h5py says that it has the driver.

    Raises
    ------
    UserError
        If it is left out on request, or tools, space or sources are missing.
    """
    if _is_skipped():
        raise UserError(why_absent())
    target = _target()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / "ros3.lock", say):
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


@contextlib.contextmanager
def _locked(path: Path, say: Say) -> Iterator[None]:
    """Hold a lock between processes; the kernel frees it if this one dies."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("ROS3 is being built by another process: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_in(target: Path, tools: dict[str, str], say: Say) -> None:
    """Build into the target; what marks it as whole is written last."""
    shutil.rmtree(target, ignore_errors=True)  # of a build that was killed
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
    """Ask a built h5py what it is.

    Parameters
    ----------
    ros3 : Ros3
        What was built.

    Returns
    -------
    dict of str to str
        Versions of ``h5py`` and ``hdf5``.

    Raises
    ------
    UserError
        If it cannot be imported, or is not the one with ROS3.
    """
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
