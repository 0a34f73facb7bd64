"""Programs that are run from a cache: nobody else could have put them there, and they are as they were built.

A cache may lie where others write, such as a scratch folder that a group shares. What is run from
it runs as this user. So each folder on the way to a program, and each file of an environment,
belongs to this user or to root, and nobody else may write to it. The digest, recorded beside the
program when it was built, finds what was damaged or changed since.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from wire.errors import UserError, say
from wire.files import is_writable_by_others, replace_file

_COMPILED = "__pycache__"
_CODE = Path(__file__).resolve().parents[1]  # where this package lies


def check_owner(path: Path) -> None:
    """Refuse a place that another user could write to or replace, for programs in it are run.

    Folders on the way to this checkout are taken as they are: whoever writes there can change this
    code as well. A folder such as `/tmp`, where only owners remove what is theirs, may lie on the way.

    Raises
    ------
    UserError
        If a folder on the way is another user's, or others may write to it.
    """
    start = Path(os.path.abspath(path))
    for end in {start, start.resolve()}:
        for place in (end, *end.parents):
            if _CODE.is_relative_to(place):
                break
            _check_status(place, is_on_the_way=place != end)


def _check_status(place: Path | str, *, is_on_the_way: bool = False) -> os.stat_result:
    status = os.lstat(place)
    problem = ""
    if status.st_uid not in _list_owners():
        problem = "belongs to another user"
    elif not (is_on_the_way and status.st_mode & stat.S_ISVTX) and is_writable_by_others(status):
        problem = "may be written to by others"
    if problem:
        raise UserError(
            "cache",
            f"{place}: {problem}, and programs in it would be run",
            "a folder that you alone may write to (ARRAYS_CACHE and XDG_CACHE_HOME name another)",
        )
    return status


@cache
def _list_owners() -> set[int]:
    return {0, os.geteuid(), _CODE.stat().st_uid}


def compute_digest(path: Path) -> str:
    """Return the SHA-256 of a program, or of a list of the files of a folder.

    Of an environment, which may have gigabytes, the list has names, sizes and when each file was
    written, and leaves out what Python compiles.

    Raises
    ------
    UserError
        If something in the folder is another user's, or others may write to it.
    """
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for name, status in _list_contents(path):
        if _COMPILED not in name and not stat.S_ISDIR(status.st_mode):
            link = os.readlink(path / name) if stat.S_ISLNK(status.st_mode) else ""
            line = f"{name}\0{link}\0{status.st_size}\0{status.st_mtime_ns}\0"
            digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


def _list_contents(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """List all that lies in a folder, always in the same order."""
    _check_status(path)
    for folder, folders, files in os.walk(path):
        folders.sort()
        for name in sorted((*folders, *files)):
            place = os.path.join(folder, name)
            yield place.removeprefix(f"{path}/"), _check_status(place)


def read_seal(path: Path) -> str:
    """Return the digest recorded when a program was built, or nothing."""
    record = _name_record(path)
    return record.read_text().strip() if record.is_file() else ""


def seal(path: Path) -> None:
    """Record the digest of a program that was just built, and let nobody else write to it from now on."""
    for place in (path, *path.rglob("*")):  # uv makes a lock file that all may write to
        if not place.is_symlink() and (mode := place.stat().st_mode) & 0o022:
            place.chmod(stat.S_IMODE(mode) & ~0o022)
    replace_file(_name_record(path), f"{compute_digest(path)}\n")


def is_sealed(path: Path) -> bool:
    """Tell whether a program is there as it was built; refuse one that another user could change."""
    recorded = read_seal(path)
    if not recorded or not os.path.lexists(path):
        return False
    check_owner(path)
    check_owner(_name_record(path))
    return compute_digest(path) == recorded


def _name_record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def main(task: str, name: str) -> None:
    """Seal a folder, or print whether it is sealed, for a build that is a script."""
    try:
        if task == "seal":
            seal(Path(name))
        else:
            say("yes" if is_sealed(Path(name)) else "no")
    except UserError as error:
        say(f"error: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main(*sys.argv[1:])
