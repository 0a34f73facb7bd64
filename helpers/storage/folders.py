"""The folder in which the embedded object store keeps its objects.

A store folder holds a marker file, `buckets` and, on a file system without
extended attributes, `sidecar`. The marker tells our folders from those of the
user, which we never write to, and carries the lock of the running server.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from pathlib import Path

from helpers.errors import UserError
from helpers.storage.supervisor import GRACE_S

MARKER_NAME = ".arrays-over-the-wire"
# A server whose owner was killed ends within the grace time; then its lock ends.
_LOCK_TIMEOUT_S = GRACE_S + 1
_MARKER_TEXT = "Store of Arrays over the Wire: made by it, and safe to delete as a whole.\n"


def claim_folder(folder: Path, *, needed_nbytes: int = 0) -> int:
    """Make a folder ours, or refuse it, and lock it.

    Parameters
    ----------
    folder : Path
        Absent, empty, or a store folder already.
    needed_nbytes : int
        Bytes that must be free on its file system, at least 0.

    Returns
    -------
    int
        File descriptor that holds the lock; the lock ends when it and its
        copies in other processes are closed.

    Raises
    ------
    UserError
        If the folder holds files of others, cannot be written, lacks space, or
        is in use by another server. A server that is just ending is waited for.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_files_of_others(folder)
        _refuse_lack_of_space(folder, needed_nbytes)
        lock = _lock(folder)
        (folder / "buckets").mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(
            f"store folder {folder}: cannot be used ({error.strerror});"
            " allowed: a folder that can be written"
        ) from error
    return lock


def metadata_arguments(folder: Path) -> list[str]:
    """Say where versitygw shall keep ETags and the like.

    In extended attributes of the objects; where the file system has none (ramfs,
    some network file systems), in files beside them.

    Parameters
    ----------
    folder : Path
        A claimed folder.

    Returns
    -------
    list of str
        Arguments of ``versitygw posix``: none, or ``--sidecar`` and a folder.

    Raises
    ------
    UserError
        If objects are there already whose attributes were lost.
    """
    sidecar = folder / "sidecar"
    if not sidecar.exists():
        if _keeps_attributes(folder / MARKER_NAME):
            return []
        if any((folder / "buckets").iterdir()):
            raise UserError(
                f"store folder {folder}: its objects lost their extended attributes, which this"
                " file system does not keep; allowed: an empty or new folder"
            )
        sidecar.mkdir()
    return ["--sidecar", os.fspath(sidecar)]


def _refuse_files_of_others(folder: Path) -> None:
    """Refuse a folder that holds anything but has no marker."""
    names = sorted(entry.name for entry in folder.iterdir())
    if names and MARKER_NAME not in names:
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise UserError(
            f"store folder {folder}: holds files that are not ours ({shown});"
            " allowed: an empty or new folder"
        )


def _refuse_lack_of_space(folder: Path, needed_nbytes: int) -> None:
    """Refuse a folder on a file system that is too full."""
    free_nbytes = shutil.disk_usage(folder).free
    if free_nbytes < needed_nbytes:
        raise UserError(
            f"store folder {folder}: {free_nbytes / 1e6:.0f} MB are free and"
            f" {needed_nbytes / 1e6:.0f} MB needed; allowed: a folder with that much space,"
            " or a smaller array"
        )


def _lock(folder: Path) -> int:
    """Open the marker, made where it is absent, and lock it."""
    lock = os.open(folder / MARKER_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _wait_for_lock(lock, folder)
        if os.fstat(lock).st_size == 0:
            os.write(lock, _MARKER_TEXT.encode())
    except BaseException:
        os.close(lock)
        raise
    return lock


def _wait_for_lock(lock: int, folder: Path) -> None:
    """Lock a file; another server has the time to end, not more."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise UserError(
                    f"store folder {folder}: in use by another server;"
                    " allowed: one server at a time, or another folder"
                ) from error
            time.sleep(0.05)
        else:
            return


def _keeps_attributes(path: Path) -> bool:
    """Try whether a file can carry an extended attribute of the user's."""
    if not hasattr(os, "setxattr"):  # macOS, whose own file systems keep them
        return True
    try:
        os.setxattr(path, "user.arrays-over-the-wire", b"1")
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return False
    return True
