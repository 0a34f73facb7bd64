"""Files: which names and files are taken, read within bounds, and written whole."""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from wire.errors import UserError, cut, describe_system_error, show
from wire.interrupts import check_interrupt


def find_checkout() -> Path | None:
    """Find the checkout that this package is imported from; None for an installed wheel."""
    sources = Path(__file__).resolve().parents[1]
    return sources.parent if sources.name == "src" else None


def cache_folder() -> Path:
    """Return the folder of generated stores: ``ARRAYS_CACHE``, else ``.cache`` in a checkout, else the user's own."""
    if named := os.environ.get("ARRAYS_CACHE"):
        return Path(named)
    if checkout := find_checkout():
        return checkout / ".cache"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "arrays-over-the-wire"


def make_private(folder: Path) -> None:
    """Make a folder for this user alone, or refuse one that others may write to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise UserError(
            "folder", f"{folder}: {describe_system_error(error)}", "a folder that can be made"
        ) from error
    if os.geteuid() not in (0, status.st_uid):
        raise UserError("folder", f"{folder}: it is another user's", "one of your own")
    if is_writable_by_others(status):
        raise UserError("folder", f"{folder}: others may write to it", "a folder of mode 700")


def is_writable_by_others(status: os.stat_result) -> bool:
    """Tell whether users other than the owner and root may write to a file or a folder.

    A group counts for nothing that nobody else is in: many systems make one for each user, with a
    umask of 002, and volumes of hubs are writable by a group of the container.
    """
    if stat.S_ISLNK(status.st_mode):  # its mode means nothing
        return False
    by_group = status.st_mode & stat.S_IWGRP and not _is_alone_in(status.st_gid)
    return bool(status.st_mode & stat.S_IWOTH or by_group)


def _is_alone_in(gid: int) -> bool:
    """Tell whether a group has no member but this user and root.

    Where a directory service lists no users, the group that has the name of the user is the one.
    """
    try:
        user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(gid)
    except KeyError:
        return gid == 0
    users = pwd.getpwall()
    members = {*group.gr_mem, *(entry.pw_name for entry in users if entry.pw_gid == gid)}
    is_listed = user in {entry.pw_name for entry in users}
    return members <= {user, "root"} and (is_listed or group.gr_name == user)


def check_name(name: str, where: str = "SITE") -> str:
    """Return a name that becomes a folder, a file and an address: no path, and no mark-up."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{,99}", name, re.ASCII):
        raise UserError(where, f"'{cut(name)}'", "a name of letters, digits, '-', '_' and '.'")
    return name


def check_file(path: Path) -> Path:
    """Return a path that leads to a file: of a pipe nobody would see the end."""
    if os.path.exists(path) and not path.is_file():
        raise UserError(cut(str(path)), "no file", "a regular file")
    return path


_MOST_NBYTES, _MOST_DEEP = 200_000, 20  # of a YAML file that a person writes
_NO_NUMBER = re.compile(r"[-+]?(0\d[\d_]*|\d[\d_]*(:[0-5]?\d)+)(\.\d*)?")


def read_yaml(path: Path, where: str) -> dict[str, Any]:
    """Read a YAML file of names and values that may come from a stranger; refuse it in one line.

    Refused are a file without an end, aliases, which can hold more than memory does, a name that
    stands twice, and 010 and 1:30, which are 8 and 90 in YAML. Messages begin with `where`.
    """
    if check_file(path).stat().st_size > _MOST_NBYTES:
        raise UserError(where, f"{path.stat().st_size} bytes", f"at most {_MOST_NBYTES}")
    try:
        text = path.read_bytes()
        _check_yaml(text)
        content = yaml.safe_load(text)
    except OSError as error:
        raise UserError(where, describe_system_error(error), "a file that can be read") from error
    except Exception as error:  # a tag fails with whatever its text makes Python say
        problem = f"is no YAML: {_explain_yaml(error)}"
        raise UserError(where, problem, "NAME: VALUE on each line") from error
    if content is None:  # an empty document; a list, a number or a text that is empty is none
        return {}
    if not isinstance(content, dict):
        raise UserError(where, show(content), "NAME: VALUE on each line")
    return content


class _RefusedError(yaml.YAMLError):
    """What is valid YAML, and is refused in our own words."""


def _explain_yaml(error: Exception) -> str:
    """Say in our words what a file of YAML fails by, and where."""
    if isinstance(error, _RefusedError):
        return cut(str(error))
    if isinstance(error, yaml.reader.ReaderError | UnicodeError):
        return "it is no text in UTF-8"
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        return f"line {mark.line + 1} makes no sense"
    return "a value is no date, number or other thing that it says it is"


def _check_yaml(text: bytes) -> None:
    """Refuse what is valid and nobody means, before anything is built of it."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise _RefusedError("an alias")
        if isinstance(event, yaml.CollectionStartEvent | yaml.CollectionEndEvent):
            depth += 1 if isinstance(event, yaml.CollectionStartEvent) else -1
        if depth > _MOST_DEEP:
            raise _RefusedError(f"nested more than {_MOST_DEEP} deep")
        plain = event.value if isinstance(event, yaml.ScalarEvent) and event.implicit[0] else ""
        if _NO_NUMBER.fullmatch(plain):
            raise _RefusedError(f"{plain}: YAML reads another number")
    root = yaml.compose(text, yaml.SafeLoader)
    names = [key.value for key, _ in root.value] if isinstance(root, yaml.MappingNode) else []
    if twice := [name for name, n in Counter(map(str, names)).items() if n > 1]:
        raise _RefusedError(f"{twice[0]} stands twice")


def replace_file(path: Path, text: str) -> None:
    """Write a file so that at every instant it is whole, old or new; not after an interrupt that was lost."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    check_interrupt()
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
