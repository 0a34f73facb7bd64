"""HDF5's own S3 driver, ROS3, which wheels of h5py lack: a Python that has it, and files that it opens."""

from __future__ import annotations

import atexit
import json
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from wire.bed.locations import Location
from wire.errors import UserError
from wire.files import cache_folder
from wire.sealed import is_sealed, read_seal

NAMED = "ARRAYS_ROS3"
ABSENT = (
    "no h5py with ROS3 is here: `make ros3` builds one in some 20 minutes, once, or"
    f" {NAMED} names a Python that has it, such as one of conda-forge"
)
_MOST_NBYTES = 2**34  # of the values of one file; what nobody writes takes no memory


def find_python() -> str:
    """Find a Python whose h5py has ROS3: the one named, this one, or the one built; else nothing."""
    if (named := os.environ.get(NAMED)) or h5py.h5.get_config().ros3:
        return named or sys.executable
    built = cache_folder().absolute() / "ros3"
    record = read_seal(built)
    return str(built / "bin" / "python") if record and _is_as_built(built, record) else ""


@cache
def _is_as_built(folder: Path, _record: str) -> bool:
    """Tell whether the build is as it was sealed, which is not looked at again within a measurement."""
    return is_sealed(folder)


class Ros3:
    """A file at a time, opened by ROS3 in a process whose values lie in memory that is shared with it."""

    def __init__(self, python: str) -> None:
        with tempfile.TemporaryFile() as file:  # elsewhere than on Linux; it has no name
            descriptor = (
                os.memfd_create("ros3") if sys.platform == "linux" else os.dup(file.fileno())
            )
        os.truncate(descriptor, _MOST_NBYTES)
        self._memory = mmap.mmap(descriptor, _MOST_NBYTES)
        argv = [python, os.fspath(Path(__file__).with_name("ros3_process.py")), str(descriptor)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        try:
            self._process = subprocess.Popen(
                argv, pass_fds=[descriptor], stderr=subprocess.DEVNULL, **pipes
            )
            os.close(descriptor)
            atexit.register(self._process.kill)
            self.versions: dict[str, str] = self._ask()
        except (OSError, UserError) as error:
            raise UserError(NAMED, f"{python}: {error}", "a Python whose h5py has ROS3") from error

    def _ask(self, **job: Any) -> dict[str, Any]:
        """Put a question, if there is one, and wait for the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        if job:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        answer = json.loads(
            self._process.stdout.readline() or '{"failed": "its process has ended"}'
        )
        if "failed" in answer:
            raise UserError("ROS3", answer["failed"])
        return dict(answer)

    def open(self, location: Location, settings: Mapping[str, Any]) -> None:
        """Open a file with these settings, and HDF5's own for all others."""
        env = {"AWS_EC2_METADATA_DISABLED": "true"}
        if address := location.endpoint_url:
            env |= {"AWS_ENDPOINT_URL": address, "HDF5_ROS3_VFD_FORCE_PATH_STYLE": "true"}
        keys = [location.access_key, location.secret_key, location.session_token]
        where = {"url": location.url, "region": location.region, "env": env}
        self._ask(**where, keys=[key or "" for key in keys], settings=dict(settings))

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Read a variable whole."""
        answer = self._ask(name=name)
        values = np.frombuffer(self._memory, answer["dtype"], answer["size"], answer["at"])
        return values.reshape(answer["shape"])

    def close(self) -> None:
        """Close the file; the process stays."""
        self._ask(close=True)


@cache
def start_ros3(python: str) -> Ros3:
    """Start the process, once for all files, so that imports are not in the clock."""
    return Ros3(python)
