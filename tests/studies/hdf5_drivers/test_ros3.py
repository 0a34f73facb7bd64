"""The HDF5 with ROS3 is found, or built once, or said to be absent in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from helpers.errors import UserError
from studies.hdf5_drivers import ros3


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leave the user's cache empty, and nothing asked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(ros3.SKIP, raising=False)
    return tmp_path / "arrays-over-the-wire"


def test_absent_is_said(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not built is named, with how to get it."""
    assert ros3.find_ros3() is None
    assert "`make ros3` builds it" in ros3.why_absent()
    monkeypatch.setenv(ros3.SKIP, "1")
    assert ros3.find_ros3() is None
    assert ros3.why_absent() == "HDF5 with ROS3: left out, because ARRAYS_SKIP_ROS3 is set"
    with pytest.raises(UserError, match="left out, because ARRAYS_SKIP_ROS3 is set"):
        ros3.build_ros3(print)


def test_a_half_built_one_is_not_found(empty_cache: Path) -> None:
    """Only what was checked counts; the second call reaches for nothing."""
    folder = ros3._target()
    (folder / "python" / "h5py").mkdir(parents=True)
    assert ros3.find_ros3() is None
    (folder / "built.json").write_text(json.dumps({"h5py": "x"}))
    assert ros3.find_ros3() == ros3.build_ros3(pytest.fail)


@pytest.mark.parametrize("absent", ["cmake", "make", "cc", "c++"])
def test_missing_tools_are_named(
    absent: str, empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what is needed and how to get it, before anything is fetched."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in {"cmake", "make", "cc", "c++"} - {absent}:
        (programs / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr("sys.executable", str(programs / "python"))
    with pytest.raises(UserError) as caught:
        ros3.build_ros3(lambda line: None)
    message = str(caught.value)
    assert f"missing: {absent}" in message or f" {absent});" in message
    assert "build-essential" in message
    assert "\n" not in message


def test_another_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources are checked, wherever they come from."""
    (tmp_path / "other").write_bytes(b"other")
    monkeypatch.setenv("ARRAYS_HDF5_SOURCE", (tmp_path / "other").as_uri())
    with pytest.raises(UserError, match="not the file with sha256 69c8"):
        ros3.fetch_hdf5(tmp_path / "hdf5.tar.gz")
    assert not (tmp_path / "hdf5.tar.gz").exists()


def test_the_environment_has_the_driver() -> None:
    """What was built imports, has ROS3, and is of the pinned versions."""
    if (found := ros3.find_ros3()) is None:
        pytest.skip(ros3.why_absent())
    versions = {"h5py": ros3.H5PY_VERSION, "hdf5": ros3.HDF5_VERSION}
    assert ros3.check_ros3(found) == versions


@pytest.mark.slow
@pytest.mark.skipif("ARRAYS_TEST_BUILD" not in os.environ, reason="takes 10 minutes")
def test_build(empty_cache: Path) -> None:
    """The build makes an h5py with ROS3, and says how long it takes and how to skip it."""
    said: list[str] = []
    built = ros3.build_ros3(said.append)
    assert ros3.check_ros3(built)["hdf5"] == ros3.HDF5_VERSION
    assert "10 minutes" in said[0]
    assert ros3.SKIP in said[0]
    assert ros3.build_ros3(pytest.fail) == built
