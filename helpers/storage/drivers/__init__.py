"""Drivers: the ways to open an HDF5 file in object storage, and the reads that compare them."""

from helpers.storage.drivers.registry import DRIVERS, Driver, get_drivers
from helpers.storage.drivers.session import Session, open_session
from helpers.storage.drivers.tasks import TASKS, Answer, Task, TaskName, run_task
from helpers.storage.drivers.trees import Tree

__all__ = [
    "DRIVERS",
    "TASKS",
    "Answer",
    "Driver",
    "Session",
    "Task",
    "TaskName",
    "Tree",
    "get_drivers",
    "open_session",
    "run_task",
]
