"""The project's own files lie below its folders, whatever a user types."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.book import build, cases
from helpers.errors import UserError
from helpers.paths import check_file, check_name, replace_file

OUT = ["..", "../laptop", "laptop/../laptop", "/tmp", "", ".", "laptop/", ".hidden", "a b", "a\nb", "<b>", "\x1b[31m"]  # fmt: skip


@pytest.mark.parametrize("site", OUT)
def test_a_site_is_a_folder_and_no_way_out(tmp_path: Path, site: str) -> None:
    """No name of a site leads out of the folders of parameters and results; one line says so."""
    for folder in ("parameters/laptop/study", "laptop/study"):
        (tmp_path / folder).mkdir(parents=True)  # the second is what ../laptop would find
        (tmp_path / folder / "one.yaml").write_text("seed: 2\n")
    for act in (
        lambda: cases.find_cases(site, tmp_path),
        lambda: cases.find_case("study/one", site, tmp_path),
        lambda: build.publish(site, tmp_path),
        lambda: build.stage(site, root=tmp_path),
    ):
        with pytest.raises(UserError, match=r"^SITE: .*; allowed: ") as caught:
            act()
        assert str(caught.value).isprintable()
    assert {path.name for path in tmp_path.iterdir()} == {"laptop", "parameters"}


@pytest.mark.parametrize("site", ["laptop", "reference", "my-site_2.b"])
def test_a_plain_name_is_a_site(site: str) -> None:
    """Letters, digits and what usually joins them."""
    assert check_name(site) == site


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """Reading one would never end."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="no file; allowed: a regular file"):
        check_file(tmp_path / "pipe")
    assert check_file(tmp_path / "nothing yet")


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """Nothing is left beside it."""
    path = tmp_path / "a" / "one.csv"
    for text in ("old", "new"):
        replace_file(path, text)
    assert path.read_text() == "new" and [*path.parent.iterdir()] == [path]
