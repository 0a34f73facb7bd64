"""An interpreter in which drivers run, as seen by a study."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from helpers.errors import UserError
from helpers.objectstore.locations import Location
from helpers.objectstore.processes import Child, start_child
from studies.hdf5_drivers.driver_process import ADDRESS_VARIABLE, KEY_VARIABLE
from studies.hdf5_drivers.drivers import Driver
from studies.hdf5_drivers.ros3 import Ros3
from studies.hdf5_drivers.tasks import Answer, Task

_START_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 600.0


class Session:
    """An interpreter in which drivers run.

    Made by `open_session`.

    Parameters
    ----------
    connection : Connection
        Line to the interpreter.
    child : Child
        The interpreter.
    """

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

    def open(
        self, driver: Driver, location: Location, settings: dict[str, Any] | None = None
    ) -> None:
        """Open a file by a driver, with its own settings or with others.

        Parameters
        ----------
        driver : Driver
            How to open it.
        location : Location
            The file, or the group of a Zarr store.
        settings : dict, optional
            Instead of the driver's own.
        """
        chosen = dict(driver.settings) if settings is None else settings
        self._ask("open", driver.registered_name, location, chosen)

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
            self._child.raise_if_ended()
            raise UserError(f"driver: its interpreter hung up during {method}") from error
        if not is_done:
            raise UserError(f"driver: {method} failed: {value}")
        return value


@contextlib.contextmanager
def open_session(location: Location, ros3: Ros3 | None) -> Iterator[Session]:
    """Start an interpreter in which drivers run; it ends with the session.

    Parameters
    ----------
    location : Location
        Any place in the store that is to be read: its endpoint, credentials and region
        go into the environment, from which ROS3 and h5coro take them.
    ros3 : Ros3 or None
        The h5py to import; None for that of the locked environment.

    Yields
    ------
    Session
        Ready to open files.
    """
    with tempfile.TemporaryDirectory() as folder:
        key, address = secrets.token_hex(16), str(Path(folder) / "line")
        kept = {name: v for name, v in os.environ.items() if name != "AWS_SESSION_TOKEN"}
        env = {**kept, **_credentials(location), **(ros3.environment() if ros3 else {})}
        env |= {KEY_VARIABLE: key, ADDRESS_VARIABLE: address}
        argv = [sys.executable, "-m", "studies.hdf5_drivers.driver_process"]
        with (
            Listener(address, authkey=key.encode()) as listener,
            start_child(argv, env=env) as child,
            _accept(listener, child) as connection,
        ):
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
