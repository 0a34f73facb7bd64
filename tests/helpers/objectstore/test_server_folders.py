"""A store folder is ours or refused, in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.errors import UserError
from helpers.objectstore.testbed import MARKER_NAME, claim_folder, metadata_arguments


def claim(folder: Path, *, needed_nbytes: int = 0) -> None:
    """Claim a folder and let it go."""
    with claim_folder(folder, needed_nbytes=needed_nbytes):
        pass


def test_an_absent_folder_is_made(tmp_path: Path) -> None:
    """Folder, marker and the place of the buckets are there afterwards, and again."""
    folder = tmp_path / "with space" / "new"
    for _ in range(2):
        claim(folder)
        assert {MARKER_NAME, "buckets"} <= {path.name for path in folder.iterdir()}
    assert folder.stat().st_mode & 0o777 == 0o700


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


@pytest.mark.parametrize("name", ["thesis.tex", ".hidden", "buckets"])
def test_files_of_others_are_refused(name: str, tmp_path: Path) -> None:
    """A folder with files but no marker is refused and left as it was."""
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=rf"not ours \({name}\); allowed: an empty or new folder$"):
        claim(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_cannot_be_used_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the way, and a file system that is or becomes full."""
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"^store folder .*/file: cannot be used \(File exists\)"):
        claim(tmp_path / "file")
    with pytest.raises(UserError, match=r"\d+ MB are free and 1000000000000 MB needed; allowed:"):
        claim(tmp_path / "store", needed_nbytes=10**18)

    def write(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write)
    with pytest.raises(UserError, match=r"cannot be used \(No space left on device\)"):
        claim(tmp_path / "store")


def test_a_folder_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one has it no other gets it."""
    monkeypatch.setattr("helpers.objectstore.testbed._LOCK_TIMEOUT_S", 0.1)
    with (
        claim_folder(tmp_path),
        pytest.raises(UserError, match="in use by another server; allowed: one server"),
    ):
        claim(tmp_path)
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
