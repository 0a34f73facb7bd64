"""Tasks: what is asked of an open file, and a short answer that proves what was read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from helpers.errors import UserError
from helpers.storage.drivers.trees import Tree

TaskName = Literal["variables", "subset", "tree", "attributes"]
TASKS: dict[TaskName, str] = {
    "variables": "read the variables whole",
    "subset": "read a part of each variable",
    "tree": "list the variables of a group and the groups below",
    "attributes": "read one attribute of every variable of a group and the groups below",
}
"""What each task asks, in one line; opening is timed before each of them."""


@dataclass(frozen=True, slots=True)
class Task:
    """Something to ask of an open file.

    Parameters
    ----------
    name : str
        One of `TASKS`.
    variables : tuple of str
        Paths of the variables to read.
    bounds : tuple of int
        Half-open bounds of the part, along the first dimension.
    group : str
        Group to list; empty for the whole file.
    attribute : str
        Attribute to read.
    """

    name: TaskName
    variables: tuple[str, ...]
    bounds: tuple[int, int]
    group: str = ""
    attribute: str = "long_name"


@dataclass(frozen=True, slots=True)
class Answer:
    """What proves that a task was done: a checksum, and how much was read.

    Parameters
    ----------
    checksum : str
        Of the values, of the names or of the texts.
    n_items : int
        Variables.
    nbytes : int
        Bytes of the values in memory; of text for the other tasks.
    """

    checksum: str
    n_items: int
    nbytes: int


def run_task(tree: Tree, task: Task) -> Answer:
    """Do what a task asks.

    Parameters
    ----------
    tree : Tree
        An open file.
    task : Task
        What to ask.

    Returns
    -------
    Answer
        Equal for any two ways to read the same values.

    Raises
    ------
    UserError
        If a variable or a group is not there.
    """
    try:
        if task.name in ("variables", "subset"):
            bounds = task.bounds if task.name == "subset" else None
            return _prove_values(tree.read(task.variables, bounds))
        if task.name == "tree":
            return _prove_texts(tree.list_variables(task.group))
        found = tree.read_attributes(task.group, task.attribute)
        return _prove_texts([f"{name}={text}" for name, text in sorted(found.items())])
    except KeyError as error:
        raise UserError(
            f"variables: {', '.join(task.variables)} below {task.group or '/'}: {error};"
            " allowed: what is in the file"
        ) from error


def _prove_values(arrays: Sequence[NDArray[Any]]) -> Answer:
    """Compute a checksum of values, in the byte order of the machine, at the speed of memory."""
    whole = xxhash.xxh3_64()
    for values in arrays:
        native = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        whole.update(f"{native.dtype.str}{native.shape}".encode())
        whole.update(native.data if native.size else b"")
    return Answer(whole.hexdigest(), len(arrays), sum(values.nbytes for values in arrays))


def _prove_texts(texts: Sequence[str]) -> Answer:
    joined = "\n".join(sorted(texts)).encode()
    return Answer(xxhash.xxh3_64_hexdigest(joined), len(texts), len(joined))
