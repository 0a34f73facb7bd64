"""Where the project's own files lie, and which names and files are taken."""

from __future__ import annotations

import os
import re
from pathlib import Path

from helpers.errors import UserError, cut

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""

RENDERED = "ARRAYS_RENDERED"
"""Variable of the environment in which a page is rendered: versions of what measured its rows, as JSON."""

CATALOG = ROOT / "catalog.yml"


def cache_folder() -> Path:
    """Return the folder of generated stores: ``ARRAYS_CACHE``, else ``.cache`` in the checkout."""
    return Path(os.environ.get("ARRAYS_CACHE", ROOT / ".cache"))


def make_private(folder: Path) -> None:
    """Make a folder for this user alone, or refuse one that others may write to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise UserError(
            f"folder: {folder}: {error.strerror}; allowed: a folder that can be made"
        ) from error
    if os.geteuid() not in (0, found.st_uid):
        raise UserError(f"folder: {folder}: it is another user's; allowed: one of your own")
    if found.st_mode & 0o022:
        raise UserError(f"folder: {folder}: others may write to it; allowed: a folder of mode 700")


def check_name(name: str, what: str = "SITE") -> str:
    """Return a name that becomes a folder, a file and an address: no path, and no mark-up."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise UserError(
            f"{what}: '{cut(name)}'; allowed: a name of letters, digits, '-', '_' and '.'"
        )
    return name


def check_file(path: Path) -> Path:
    """Return a path that leads to a file: of a pipe nobody would see the end."""
    if path.exists() and not path.is_file():
        raise UserError(f"{cut(str(path))}: no file; allowed: a regular file")
    return path


def replace_file(path: Path, text: str) -> None:
    """Write a file so that at every instant it is whole, old or new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
