"""The interpreter in which drivers run: it opens, reads and answers on request.

It lives as long as a study, so that imports are not in the clock. All drivers run in one
such interpreter, which imports the h5py with ROS3 where the user names one: they share the
version of HDF5, and none has a notebook's threads next to it.

Questions go over a connection of `multiprocessing`, one at a time. Its managers would serve
each caller in a thread of its own, wait without end for an answer, and pickle whatever error
a library raises, which not every one survives.
"""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import fsspec.asyn
import h5netcdf  # noqa: F401  # its engine of xarray would import it in the clock
import h5py
import icechunk  # noqa: F401  # for the same reason
import xarray
from s3fs import S3FileSystem

from helpers.errors import UserError
from helpers.objectstore.locations import Location
from helpers.objectstore.processes import Child, start_child
from studies.hdf5_drivers.drivers import Driver
from studies.hdf5_drivers.tasks import Answer, MappingTree, Task, run_task

ROS3_VARIABLE = "ARRAYS_ROS3"
"""Names a folder with an h5py, and its HDF5, that have the ROS3 driver."""

_KEY_VARIABLE = "ARRAYS_SESSION_KEY"
_ADDRESS_VARIABLE = "ARRAYS_SESSION_ADDRESS"
_START_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 600.0


class Session:
    """An interpreter in which drivers run, as seen by a study; made by `open_session`."""

    def __init__(self, connection: Connection[Any, Any], child: Child) -> None:
        self._connection, self._child = connection, child

    def describe(self) -> dict[str, str]:
        """Return its versions of h5py and HDF5, and whether ROS3 is in."""
        return dict(self._ask("describe"))

    def call(self, question: Callable[[], Any]) -> Any:
        """Put a question to the interpreter: a function of this project that it imports."""
        return self._ask("call", question)

    def forget(self) -> None:
        """Close the open file and forget every client."""
        self._ask("forget")

    def open(self, driver: Driver, location: Location) -> None:
        """Open a file, or the group of a Zarr store, by a driver with its settings."""
        self._ask("open", driver, location)

    def run(self, task: Task) -> Answer:
        """Do what a task asks of the open file."""
        answer: Answer = self._ask("run", task)
        return answer

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Ask and wait; what went wrong there is raised here, in one line."""
        self._connection.send((method, arguments))
        if not self._connection.poll(_ANSWER_TIMEOUT_S):
            raise UserError(f"driver: no answer to {method} in {_ANSWER_TIMEOUT_S:g} s")
        try:
            is_done, value = self._connection.recv()
        except EOFError as error:
            told = (
                f"driver: its interpreter hung up during {method} ({self._child.last_log_line()})"
            )
            raise UserError(told) from error
        if not is_done:
            raise UserError(f"driver: {method} failed: {value}")
        return value


@contextlib.contextmanager
def open_session(location: Location) -> Iterator[Session]:
    """Start an interpreter in which drivers run; it ends with the session.

    Endpoint, credentials and region of a place in the store that is to be read go into its
    environment, from which ROS3 and h5coro take them. It imports the h5py of the folder that
    `ROS3_VARIABLE` names, if there is one.
    """
    with tempfile.TemporaryDirectory() as folder:
        key, address = secrets.token_hex(16), str(Path(folder) / "line")
        kept = {name: v for name, v in os.environ.items() if name != "AWS_SESSION_TOKEN"}
        env = {**kept, **_credentials(location)}
        if folder_of_h5py := os.environ.get(ROS3_VARIABLE):
            env["PYTHONPATH"] = os.pathsep.join([folder_of_h5py, os.environ.get("PYTHONPATH", "")])
        env |= {_KEY_VARIABLE: key, _ADDRESS_VARIABLE: address}
        with (
            Listener(address, authkey=key.encode()) as listener,
            start_child([sys.executable, "-m", __name__], env=env) as child,
            _accept(listener, child) as connection,
        ):
            listener.close()
            Path(folder).rmdir()  # nobody else calls, and what is killed leaves nothing
            yield Session(connection, child)


def _accept(listener: Listener, child: Child) -> Connection[Any, Any]:
    """Wait for the interpreter to call, as long as it runs."""
    found: list[Connection[Any, Any]] = []
    waiting = threading.Thread(target=lambda: found.append(listener.accept()), daemon=True)
    waiting.start()
    child.wait_until(lambda: bool(found), timeout_s=_START_TIMEOUT_S)
    return found[0]


def _credentials(location: Location) -> dict[str, str]:
    """Name a store in the variables that clients without arguments read."""
    values = {
        "AWS_ENDPOINT_URL": location.endpoint_url,
        "AWS_ACCESS_KEY_ID": location.access_key,
        "AWS_SECRET_ACCESS_KEY": location.secret_key,
        "AWS_SESSION_TOKEN": location.session_token,
        "AWS_REGION": location.region,
        "AWS_DEFAULT_REGION": location.region,
        "AWS_EC2_METADATA_DISABLED": "true",
        # a proxy of the user's does not lead to a store of this machine
        "no_proxy": "localhost,127.0.0.1,::1," + os.environ.get("no_proxy", ""),
        "HDF5_ROS3_VFD_FORCE_PATH_STYLE": "true" if location.endpoint_url else None,
    }
    return {name: value for name, value in values.items() if value}


def why_absent(versions: dict[str, str]) -> str:
    """Say why drivers of ROS3 are left out, from what a session describes."""
    return (
        f"left out: h5py {versions['h5py']} with HDF5 {versions['hdf5']} is built without ROS3;"
        f" {ROS3_VARIABLE} may name a folder with one that has it"
    )


class _Worker:
    """What the interpreter can be asked; it holds at most one open file."""

    def __init__(self) -> None:
        self.tree: MappingTree | None = None

    def describe(self) -> dict[str, str]:
        return {
            "h5py": h5py.__version__,
            "hdf5": h5py.version.hdf5_version,
            "ros3": str("ros3" in h5py.registered_drivers()),
        }

    def call(self, question: Callable[[], Any]) -> Any:
        return question()

    def forget(self) -> None:
        if self.tree is not None:
            self.tree.close()
        self.tree = None
        S3FileSystem.clear_instance_cache()
        gc.collect()

    def open(self, driver: Driver, location: Location) -> None:
        self.tree = driver.client.open(location, driver.settings)

    def run(self, task: Task) -> Answer:
        assert self.tree is not None  # it was opened before
        return run_task(self.tree, task)


def _serve(connection: Connection[Any, Any]) -> None:
    """Answer until the other side hangs up: whether it went well, and what it returned or why not."""
    worker = _Worker()
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = (True, getattr(worker, method)(*arguments))
        except Exception as error:  # of any library: told to the owner, who raises it
            answer = (False, f"{type(error).__name__}: {error}")
        connection.send(answer)


if __name__ == "__main__":
    # started before the clock: fsspec's thread, the engines of xarray
    fsspec.asyn.get_loop()
    xarray.backends.list_engines()
    with Client(os.environ[_ADDRESS_VARIABLE], authkey=os.environ[_KEY_VARIABLE].encode()) as line:
        _serve(line)
