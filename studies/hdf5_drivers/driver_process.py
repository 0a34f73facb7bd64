"""The interpreter in which drivers run: it opens, reads and answers on request.

It lives as long as a study, so that imports are not in the clock. All drivers run in one
such interpreter, which imports the h5py with ROS3 where there is one: they share the
version of HDF5, and none has a notebook's threads beside it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from multiprocessing.connection import Client, Connection
from typing import Any

import fsspec.asyn
import h5py
from s3fs import S3FileSystem

from helpers.errors import UserError
from helpers.objectstore.locations import Location
from studies.hdf5_drivers.drivers import DRIVERS, Settings
from studies.hdf5_drivers.tasks import Answer, Task, Tree, run_task

KEY_VARIABLE = "ARRAYS_SESSION_KEY"
ADDRESS_VARIABLE = "ARRAYS_SESSION_ADDRESS"


class Worker:
    """What the interpreter can be asked; it holds at most one open file."""

    def __init__(self) -> None:
        self.tree: Tree | None = None

    def describe(self) -> dict[str, str]:
        """Return the versions of h5py and HDF5, and whether ROS3 is in."""
        return {
            "h5py": h5py.__version__,
            "hdf5": h5py.version.hdf5_version,
            "ros3": str(bool(h5py.h5.get_config().ros3)),
        }

    def call(self, question: Callable[[], Any]) -> Any:
        """Answer a question that a function of this project puts to a process."""
        return question()

    def forget(self) -> None:
        """Close the open file and forget every client."""
        if self.tree is not None:
            self.tree.close()
        self.tree = None
        S3FileSystem.clear_instance_cache()
        gc.collect()

    def open(self, driver: str, location: Location, settings: Settings) -> None:
        """Open a file by a driver with these settings."""
        self.tree = DRIVERS[driver].open(location, settings)

    def run(self, task: Task) -> Answer:
        """Do what a task asks of the open file."""
        if self.tree is None:
            raise UserError("task: no file is open; allowed: open one before")
        return run_task(self.tree, task)


def serve(connection: Connection[Any, Any]) -> None:
    """Answer requests until the other side hangs up.

    Parameters
    ----------
    connection : Connection
        Brings the name of a method of `Worker` and its arguments; takes whether it
        went well and what it returned, or the error in words.
    """
    worker = Worker()
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
    fsspec.asyn.get_loop()  # started before the clock
    with Client(os.environ[ADDRESS_VARIABLE], authkey=os.environ[KEY_VARIABLE].encode()) as line:
        serve(line)
