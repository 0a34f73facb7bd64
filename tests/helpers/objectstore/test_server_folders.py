"""A store folder is ours or refused, in one line."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from helpers.errors import UserError
from helpers.objectstore.testbed import MARKER_NAME, claim_folder, metadata_arguments


def claim(folder: Path, *, needed_nbytes: int = 0) -> None:
    """Claim a folder and let it go."""
    os.close(claim_folder(folder, needed_nbytes=needed_nbytes))


@pytest.mark.parametrize("name", ["new", "deep/er/new", "with space"])
def test_an_absent_folder_is_made(name: str, tmp_path: Path) -> None:
    """Folder, marker and the place of the buckets are there afterwards, and again."""
    for _ in range(2):
        claim(tmp_path / name)
        found = sorted(path.name for path in (tmp_path / name).iterdir())
        assert found == [MARKER_NAME, "buckets"]
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_could_fill_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read from there would be theirs: another user's store, or one that all may write to."""
    claim(tmp_path)
    (tmp_path).chmod(0o777)
    with pytest.raises(UserError, match=r"others may write to it; allowed: a folder of mode 700$"):
        claim(tmp_path)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UserError, match="it is another user's; allowed: one of your own$"):
        claim(tmp_path)


def test_an_empty_folder_becomes_ours(tmp_path: Path) -> None:
    """A folder the user made beforehand is as good."""
    claim(tmp_path)
    assert (tmp_path / MARKER_NAME).read_text().startswith("Store of Arrays over the Wire")


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["thesis.tex"], r"\(thesis\.tex\)"),
        ([".hidden"], r"\(\.hidden\)"),
        (["d", "a", "c", "b"], r"\(a, b, c, \.\.\.\)"),  # three names at most
        (["buckets"], r"\(buckets\)"),  # the name alone does not make it ours
    ],
)
def test_files_of_others_are_refused(names: list[str], shown: str, tmp_path: Path) -> None:
    """A folder with files but no marker is refused and left as it was."""
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=rf"not ours {shown}; allowed: an empty or new folder$"):
        claim(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    """The folder, or one above it, is a file."""
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"^store folder .*/file: cannot be used \(File exists\)"):
        claim(tmp_path / "file")
    with pytest.raises(UserError, match=r"/file/below: cannot be used \(Not a directory\)"):
        claim(tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """Permissions are named as the reason."""
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match=r"cannot be used \(Permission denied\); allowed:"):
        claim(tmp_path)
    tmp_path.chmod(0o700)


def test_lack_of_space_is_refused(tmp_path: Path) -> None:
    """Both figures are given, in MB; what fits exactly is taken."""
    with pytest.raises(UserError, match=r"\d+ MB are free and 1000000000000 MB needed; allowed:"):
        claim(tmp_path / "store", needed_nbytes=10**18)
    claim(tmp_path / "store", needed_nbytes=1)


def test_a_full_file_system_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says about a full disk is passed on."""

    def write(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(UserError, match=r"cannot be used \(No space left on device\)"):
        claim(tmp_path / "store")


def test_a_locked_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one has it no other gets it; a lock let go within the time is waited for."""
    monkeypatch.setattr("helpers.objectstore.testbed._LOCK_TIMEOUT_S", 0.1)
    lock = claim_folder(tmp_path)
    with pytest.raises(UserError, match="in use by another server; allowed: one server"):
        claim(tmp_path)
    os.close(lock)
    claim(tmp_path)


def test_attributes_or_files_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes are used where the file system has them; a choice made stays."""
    keeps = "helpers.objectstore.testbed._keeps_attributes"
    for name in ("with", "without"):
        claim(tmp_path / name)
    monkeypatch.setattr(keeps, lambda _: True)
    assert metadata_arguments(tmp_path / "with") == []
    monkeypatch.setattr(keeps, lambda _: False)
    beside = ["--sidecar", os.fspath(tmp_path / "without" / "sidecar")]
    assert metadata_arguments(tmp_path / "without") == beside
    monkeypatch.setattr(keeps, lambda _: True)  # moved to another file system
    assert metadata_arguments(tmp_path / "without") == beside


def test_lost_attributes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects whose attributes a move has lost would be served without ETags."""
    claim(tmp_path / "store")
    (tmp_path / "store" / "buckets" / "b").mkdir()
    shutil.move(tmp_path / "store", tmp_path / "moved")
    monkeypatch.setattr("helpers.objectstore.testbed._keeps_attributes", lambda _: False)
    with pytest.raises(UserError, match="lost their extended attributes"):
        metadata_arguments(tmp_path / "moved")
