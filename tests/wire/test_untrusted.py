"""What a stranger puts into a folder is read within bounds, or refused in one line."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.refusals import refused
from wire.untrusted import UntrustedFolder


def bind_socket(path: Path) -> None:
    """Leave a socket at a path."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def link_folder(path: Path) -> None:
    """Put a link in place of the folder of a file."""
    path.parent.rmdir()
    path.parent.symlink_to("/etc")


FILES: list[tuple[str, Callable[[Path], object]]] = [
    ("a pipe that nobody fills", os.mkfifo),
    ("a device without an end", lambda path: path.symlink_to("/dev/zero")),
    ("a link out of the folder", lambda path: path.symlink_to("/etc/hostname")),
    ("a link to itself", lambda path: path.symlink_to(path)),
    ("a socket", bind_socket),
    ("a folder", Path.mkdir),
    ("nothing", lambda path: None),
    ("a folder on the way that is a link", link_folder),
    ("no UTF-8", lambda path: path.write_bytes(b'"\xff"')),
    ("more bytes than allowed", lambda path: path.write_bytes(b"[" + b" " * 2000 + b"]")),
    ("terabytes of nothing", lambda path: path.touch() or os.truncate(path, 2**40)),
    ("no JSON", lambda path: path.write_text("{")),
    ("deep JSON", lambda path: path.write_text("[" * 400 + "]" * 400)),
    ("deep JSON that does not end", lambda path: path.write_text("[" * 1000)),
    ("a number without an end", lambda path: path.write_text("9" * 900)),
    ("an infinite number", lambda path: path.write_text("[1e999]")),
    ("infinity by name", lambda path: path.write_text("[Infinity]")),
    ("no number", lambda path: path.write_text("[NaN]")),
    ("half a character", lambda path: path.write_text(r'["\ud800"]')),
]


@pytest.mark.parametrize("make", [make for _, make in FILES], ids=[name for name, _ in FILES])
def test_what_is_no_bounded_file_is_refused(make: Callable[[Path], object], tmp_path: Path) -> None:
    """None of these is waited for, followed or shown as a traceback."""
    (tmp_path / "below").mkdir()
    make(tmp_path / "below" / "x.json")
    with refused("trace of a stranger", ".", "."):
        UntrustedFolder(tmp_path, "trace of a stranger").read_json("below/x.json", max_nbytes=1000)


@pytest.mark.parametrize("name", ["", "/etc/hostname", "../x", "a/../../x", "a\0b"])
def test_a_name_stays_below_the_folder(name: str, tmp_path: Path) -> None:
    """A name may come from a stranger too."""
    with refused("folder .*", "is no name$", "^a path below the folder$"):
        UntrustedFolder(tmp_path).read_bytes(name)


def test_a_regular_file_is_read_as_it_is(tmp_path: Path) -> None:
    """Brackets inside a text are no nesting, ends of lines stay, and a link to the folder is the user's."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.json").write_bytes(b'{"a":\r\n "' + b"[" * 50 + b'\\"", "b": 1.5}')
    (tmp_path / "link").symlink_to("real")
    folder = UntrustedFolder(tmp_path / "link")
    assert folder.read_json("a.json") == {"a": "[" * 50 + '"', "b": 1.5}
    assert "\r\n" in folder.read_text("a.json")
    with refused("folder .*/link", "more than 0 lines$", "^at most 0$"):
        folder.read_text("a.json", max_lines=0)


def test_files_are_listed_and_nothing_else_is(tmp_path: Path) -> None:
    """Names below the folder, in order; what is no file refuses the whole, as do too many."""
    for name in ("b/c.csv", "a.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    folder = UntrustedFolder(tmp_path)
    assert folder.list_files() == ["a.json", "b/c.csv"]
    with refused("folder .*", "^more than 1 files$", "^at most 1$"):
        folder.list_files(max_files=1)
    (tmp_path / "b" / "x").symlink_to("/")
    with refused("folder .*", "^b/x is no regular file$"):
        folder.list_files()
