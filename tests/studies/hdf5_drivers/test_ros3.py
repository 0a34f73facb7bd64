"""An h5py with ROS3 is found, or built, or said to be absent in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.paths import RENDERED
from studies.hdf5_drivers import drivers, ros3
from tests.refusals import refused
from wire.bed.locations import Location
from wire.sealed import seal

SCRIPT = Path(ros3.__file__).with_name("build_ros3.sh")


@pytest.mark.skipif(ros3.h5py.h5.get_config().ros3, reason="this h5py has ROS3")
def test_what_is_absent_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that is not whole does not count; one that is, or one that is named, does."""
    monkeypatch.setenv("ARRAYS_CACHE", str(tmp_path))
    monkeypatch.delenv(ros3.NAMED, raising=False)
    (tmp_path / "ros3" / "bin").mkdir(parents=True)
    reads = ["ros3-none on original", "fsspec-none on original"]
    assert drivers.find_absent(reads) == {reads[0]: ros3.ABSENT}
    with monkeypatch.context() as rendering:  # the page would lose its rows
        rendering.setenv(RENDERED, "1")
        with refused("contenders", f"^{reads[0]} cannot ", "ros3"):
            drivers.find_absent(reads)
        assert drivers.find_absent(reads[1:]) == {}
    assert "`make ros3`" in ros3.ABSENT and "\n" not in ros3.ABSENT
    (tmp_path / "ros3" / "bin" / "python").touch()
    assert drivers.find_absent(reads)  # a build that was killed
    seal(tmp_path / "ros3")
    assert not drivers.find_absent(reads)
    assert ros3.find_python() == str(tmp_path / "ros3" / "bin" / "python")
    ros3._is_as_built.cache_clear()
    (tmp_path / "ros3").chmod(0o777)
    with refused("cache", "^.*by others"):  # nobody knows who put it there
        ros3.find_python()
    monkeypatch.setenv(ros3.NAMED, "/a/python")
    assert ros3.find_python() == "/a/python"


@pytest.mark.parametrize("python", ["/no/such/python", sys.executable])
def test_a_python_without_ros3_is_refused(python: str) -> None:
    """One line names it, why, and what is allowed."""
    if ros3.h5py.h5.get_config().ros3 and python == sys.executable:
        pytest.skip("this h5py has ROS3")
    with refused("ARRAYS_ROS3", f"^{python}: ", "^a Python whose"):
        ros3.Ros3(python)


def test_memory_that_is_shared_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system has no memory without a name, it is a file, which goes with the process."""
    monkeypatch.setattr(ros3.sys, "platform", "darwin")
    monkeypatch.setattr(ros3.tempfile, "tempdir", str(tmp_path))
    with refused("ARRAYS_ROS3", allowed="a Python whose"):
        ros3.Ros3("/no/such/python")
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(shutil.which("sh") is None, reason="no shell")
@pytest.mark.parametrize("absent", ["cargo", "make", "network"])
def test_a_build_that_fails_says_why_and_leaves_nothing(absent: str, tmp_path: Path) -> None:
    """What is missing is one line with what is allowed; no folder stays half built."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("cargo", "cc", "c++", "make"):
        (programs / name).write_text("#!/bin/sh\necho error: no network >&2\nexit 1\n")
        (programs / name).chmod(0o755)
    for name in ("basename", "dirname", "getconf", "grep", "mkdir", "mktemp", "rm", "tail", "touch", "tr"):  # fmt: skip
        (programs / name).symlink_to(str(shutil.which(name)))
    (programs / absent).unlink(missing_ok=True)
    command = [
        str(shutil.which("sh")),
        str(SCRIPT),
        sys.executable,
        str(tmp_path / "a cache" / "ros3"),
    ]
    env = {**os.environ, "PATH": str(programs)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    reason = "cargo: error: no network" if absent == "network" else f"missing: {absent}"
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"error: ROS3 cannot be built ({reason}")
    assert "ARRAYS_ROS3" in done.stderr
    assert {path.name for path in (tmp_path / "a cache").iterdir()} <= {"ros3.lock"}


def test_a_read_without_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, before any process is started."""
    monkeypatch.setattr(drivers, "find_python", lambda: "")
    with refused("ROS3", allowed="make ros3"):
        drivers.open_with_ros3(Location("s3", "bucket"), {})
