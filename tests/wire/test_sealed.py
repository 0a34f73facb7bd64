"""What is run from a cache is the user's own, and as it was built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.refusals import refused
from wire import files
from wire.files import is_writable_by_others, make_private
from wire.sealed import check_owner, is_sealed, seal

STRANGER = 12_345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program in two folders, built and sealed."""
    path = tmp_path / "outer" / "inner" / "program"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    seal(path)
    return path


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment with a module, a link and what Python compiled."""
    folder = tmp_path / "venv"
    for name in ("bin/activate", "lib/module.py", "lib/__pycache__/module.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / ".lock").touch(0o666)
    (folder / "bin" / "python").symlink_to("/usr/bin/python3")
    (folder / "lib64").symlink_to("lib")
    seal(folder)
    return folder


def test_a_program_that_was_changed_is_not_as_it_was_built(program: Path, venv: Path) -> None:
    """One byte, another file, another link or no record are enough; compiled modules count for nothing."""
    assert is_sealed(program) and is_sealed(venv)
    program.write_text("#!/bin/false\n")
    assert not is_sealed(program) and not is_sealed(program.with_name("absent"))
    (venv / "lib" / "__pycache__" / "other.pyc").touch()
    assert is_sealed(venv)
    (venv / "lib" / "new.py").touch()
    assert not is_sealed(venv)
    (venv / "lib" / "new.py").unlink()
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to("/tmp/python3")
    assert not is_sealed(venv)
    venv.with_name("venv.sha256").unlink()
    assert not is_sealed(venv)


@pytest.mark.parametrize("place", [".", "..", "../..", "program", "program.sha256"])
def test_a_place_that_others_write_to_is_refused(program: Path, place: str) -> None:
    """On the way to a program, the program and its record: each could be replaced."""
    opened = Path(os.path.normpath(program.parent / place))
    opened.chmod(0o777)
    with refused("cache", f"{opened.name}.*by others", "."):
        is_sealed(program)
    opened.chmod(0o755)
    assert is_sealed(program)


def test_a_file_of_an_environment_that_others_write_to_is_refused(venv: Path) -> None:
    """Compiled modules too, for those are what is run."""
    (venv / "lib" / "__pycache__" / "module.pyc").chmod(0o666)
    with refused("cache", "module.pyc.*by others"):
        is_sealed(venv)


def test_a_folder_where_all_may_write_may_lie_on_the_way(program: Path) -> None:
    """In one such as /tmp nobody removes what is another's."""
    (program.parents[1]).chmod(0o1777)
    assert is_sealed(program)
    program.parent.chmod(0o1777)  # a stranger could add files, but not replace the program
    assert is_sealed(program)


@as_root
@pytest.mark.parametrize("name", ["", "program", "program.sha256"])
def test_what_is_a_strangers_is_refused(program: Path, name: str) -> None:
    """A folder, a program or a record."""
    os.chown(program.parent / name, STRANGER, STRANGER)
    with refused("cache", "belongs to another user"):
        is_sealed(program)


@as_root
def test_a_link_of_a_stranger_is_refused(program: Path, tmp_path: Path) -> None:
    """It may lead to a folder of the user, and elsewhere a moment later."""
    link = tmp_path / "link"
    link.symlink_to(program.parent)
    check_owner(link / "program")
    os.lchown(link, STRANGER, STRANGER)
    with refused("cache", "link: belongs to another user"):
        check_owner(link / "program")


def test_folders_on_the_way_to_the_checkout_are_taken_as_they_are(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may write there can change the code of the checkout as well."""
    program.parents[1].chmod(0o777)
    monkeypatch.setattr("wire.sealed._CODE", program.parents[1])
    assert is_sealed(program)


class User:
    """An entry of the users of a system."""

    def __init__(self, pw_name: str, pw_gid: int) -> None:
        self.pw_name, self.pw_gid = pw_name, pw_gid


class Group:
    """An entry of its groups."""

    def __init__(self, gr_name: str, *gr_mem: str) -> None:
        self.gr_name, self.gr_mem = gr_name, [*gr_mem]


@pytest.mark.parametrize(
    ("group", "users", "is_private"),
    [
        (Group("ann"), ["ann"], True),  # a group for each user
        (Group("users"), ["ann"], True),  # of a container
        (Group("users"), ["ann", "bob"], False),  # everybody's first group
        (Group("lab", "ann", "bob"), [], False),
        (Group("ann"), [], True),  # a directory service lists nobody
        (Group("users"), [], False),
    ],
)
def test_a_group_of_one_is_no_other_user(
    group: Group,
    users: list[str],
    is_private: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a group may write to is safe as long as nobody else is in it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o775)
    monkeypatch.setattr(files.pwd, "getpwuid", lambda _uid: User("ann", 100))
    monkeypatch.setattr(
        files.pwd, "getpwall", lambda: [User(name, folder.stat().st_gid) for name in users]
    )
    monkeypatch.setattr(files.grp, "getgrgid", lambda _gid: group)
    assert is_writable_by_others(folder.stat()) != is_private
    if is_private:
        make_private(folder)
    else:
        with refused("folder", "others may write to it"):
            make_private(folder)


def test_a_script_is_told_in_one_line(program: Path) -> None:
    """The build of HDF5 asks so whether there is one already."""

    def run(task: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "wire.sealed", task, str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert run("check") == (0, "yes\n", "")
    program.write_text("changed")
    assert run("check") == (0, "no\n", "")
    assert run("seal") == (0, "", "") and run("check") == (0, "yes\n", "")
    program.parent.chmod(0o777)
    code, printed, error = run("check")
    assert (code, printed, error.count("\n")) == (2, "", 1) and error.startswith("error: cache: ")
