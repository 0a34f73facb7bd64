"""Files that a stranger made: each is read within bounds, or refused in one line."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from wire.errors import UserError, cut, describe_system_error, format_size, show

MAX_NBYTES = 32_000_000
"""Bytes of a file, unless a caller allows others."""

MAX_LINES = 1_000_000
"""Lines of a text, unless a caller allows others."""

MAX_DEPTH = 20
"""Lists and mappings inside one another in JSON, unless a caller allows others."""

_MAX_DIGITS = 300  # of a number: more are no float
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_REGULAR = "a regular file, of UTF-8 text, in this folder"
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class UntrustedFolder:
    """Read files of a folder that a stranger may have filled.

    Only regular files below the folder are opened: no pipe or device, which may never end, and no
    link, which may lead out of it. Every refusal is a UserError that begins with `label`.

    Parameters
    ----------
    folder : Path
        The folder. A link to it is followed, for the user names it; links inside are not.
    label : str, default ""
        How messages name the folder; its path where that is empty.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     _ = (Path(name) / "a.json").write_text('{"depth": [1]}')
    ...     folder = UntrustedFolder(Path(name))
    ...     folder.list_files(), folder.read_json("a.json")
    (['a.json'], {'depth': [1]})
    """

    def __init__(self, folder: Path, label: str = "") -> None:
        self.folder, self.label = folder, label or f"folder {cut(str(folder))}"

    def read_bytes(self, name: str, *, max_nbytes: int = MAX_NBYTES) -> bytes:
        """Read a file, named by its path below the folder."""
        with self._open(name) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self.refuse(f"{cut(name)} is no regular file", _REGULAR)
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(max_nbytes + 1)
        if len(content) > max_nbytes:
            allowed = f"at most {format_size(max_nbytes)}"
            raise self.refuse(f"{cut(name)} has more than {format_size(max_nbytes)}", allowed)
        return content

    def read_text(
        self, name: str, *, max_nbytes: int = MAX_NBYTES, max_lines: int = MAX_LINES
    ) -> str:
        """Read a file of UTF-8 text; the ends of its lines stay as they are."""
        try:
            text = self.read_bytes(name, max_nbytes=max_nbytes).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.refuse(f"{cut(name)} is not UTF-8", _REGULAR) from error
        if text.count("\n") + text.count("\r") > 2 * max_lines or text.count("\n") > max_lines:
            raise self.refuse(
                f"{cut(name)} has more than {max_lines:,} lines", f"at most {max_lines:,}"
            )
        return text

    def read_json(
        self, name: str, *, max_nbytes: int = MAX_NBYTES, max_depth: int = MAX_DEPTH
    ) -> Any:
        """Read JSON whose numbers are finite and whose lists and mappings are not nested too deep."""
        text = self.read_text(name, max_nbytes=max_nbytes, max_lines=max_nbytes)
        if (depth := _find_depth(text)) > max_depth:
            raise self.refuse(
                f"{cut(name)} is nested {depth:,} deep", f"at most {max_depth} levels"
            )
        try:
            value = json.loads(
                text, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_parse_float
            )
            if _SURROGATE.search(text):  # half a character can be written nowhere
                json.dumps(value, ensure_ascii=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            raise self.refuse(
                f"{cut(name)}: {cut(str(error))}", "JSON, with finite numbers"
            ) from error
        return value

    def list_files(self, *, max_files: int = 1000) -> list[str]:
        """List all files below the folder by their paths; what is neither file nor folder is refused."""
        names, pending = list[str](), [(PurePosixPath(), 0)]
        while pending:
            parent, depth = pending.pop()
            try:
                entries = [*_scan(self.folder / parent, max_files + 1)]
            except OSError as error:
                raise self.refuse(
                    f"{cut(str(parent))}: {describe_system_error(error)}", "a folder to read"
                ) from error
            for entry in entries:
                path = parent / entry.name
                if entry.is_dir(follow_symlinks=False) and depth < MAX_DEPTH:
                    pending.append((path, depth + 1))
                elif not entry.is_file(follow_symlinks=False) or _is_odd(entry.name):
                    raise self.refuse(f"{cut(str(path))} is no regular file", _REGULAR)
                else:
                    names.append(path.as_posix())
            if len(names) + len(pending) > max_files:
                raise self.refuse(f"more than {max_files:,} files", f"at most {max_files:,}")
        return sorted(names)

    def refuse(self, problem: str, allowed: str) -> UserError:
        """Make the error that names this folder."""
        return UserError(self.label, problem, allowed)

    @contextmanager
    def _open(self, name: str) -> Iterator[int]:
        """Open a file from folder to folder, through no link, and without waiting for a writer."""
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or {"..", "\0"} & {*parts, *name}:
            raise self.refuse(f"{show(name)} is no name", "a path below the folder")
        descriptors = list[int]()
        try:
            descriptors.append(os.open(self.folder, _FOLDER_FLAGS))
            for part in parts[:-1]:
                flags = _FOLDER_FLAGS | os.O_NOFOLLOW
                descriptors.append(os.open(part, flags, dir_fd=descriptors[-1]))
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            descriptors.append(os.open(parts[-1], flags, dir_fd=descriptors[-1]))
            yield descriptors[-1]
        except OSError as error:
            is_link = error.errno in (errno.ELOOP, errno.ENOTDIR) and len(descriptors) > 0
            reason = "is a link, or no regular file" if is_link else describe_system_error(error)
            raise self.refuse(f"{cut(name)}: {reason}", _REGULAR) from error
        finally:
            for descriptor in descriptors:
                with suppress(OSError):
                    os.close(descriptor)


def _scan(folder: Path, max_entries: int) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry, _ in zip(entries, range(max_entries), strict=False):
            yield entry


def _is_odd(name: str) -> bool:
    """Tell whether a name is no UTF-8, or would steer a terminal."""
    return not name.isprintable() or any("\ud800" <= character <= "\udfff" for character in name)


def _find_depth(text: str) -> int:
    """Find how deep lists and mappings lie in one another, without building them.

    Examples
    --------
    >>> _find_depth('{"a": [1, "]["], "b": {}}')
    2
    """
    depth = deepest = 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in "]}":
            depth -= 1
    return deepest


def _parse_int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {cut(text)}")
    return value
