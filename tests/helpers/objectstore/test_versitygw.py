"""The S3 server is found at its pinned version, or built once and checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.errors import UserError
from helpers.objectstore import versitygw
from helpers.objectstore.versitygw import (
    VERSION,
    find_or_build_versitygw,
    is_built_from_source,
)
from tests.stores import becomes

RECORD = f"mod\tgithub.com/versity/versitygw\tv{VERSION}\t{versitygw._SOURCE_SUM}\n"


def write_program(path: Path, text: str) -> Path:
    """Write a shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def write_go(folder: Path, *, version: str = "go1.26.8", install: str = "exit 1") -> Path:
    """Write a Go toolchain whose `install` does what the test wants."""
    return write_program(
        folder / "go",
        f'if [ "$1" = env ]; then echo {version}; exit 0; fi\necho "$@" >> {folder}/calls\n{install}',
    )


INSTALLS = f"""
mkdir -p "$GOBIN" && cat > "$GOBIN/versitygw" <<'END'
#!/bin/sh
echo 'Version  : v{VERSION}'
exit 0
{RECORD}
END
chmod +x "$GOBIN/versitygw"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leave PATH with the system's tools and an empty folder `bin`, and an empty cache."""
    for name in ("sh", "cat", "mkdir", "chmod", "echo", "sleep"):
        (tmp_path / "tools").mkdir(exist_ok=True)
        (tmp_path / "tools" / name).symlink_to(str(shutil.which(name)))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{tmp_path / 'tools'}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ARRAYS_VERSITYGW", raising=False)
    return tmp_path


def test_what_lies_on_path_is_not_believed(place: Path) -> None:
    """A program that only says that it is versitygw is not used, on PATH or in the cache."""
    liar = f"echo 'Version  : {VERSION}'"
    write_program(place / "bin" / "versitygw", liar)
    name = f"versitygw-{VERSION}-{versitygw.sysconfig.get_platform()}"
    cached = write_program(place / "cache" / "arrays-over-the-wire" / name, liar)
    write_go(place / "bin", install=INSTALLS)
    assert find_or_build_versitygw() == cached and is_built_from_source(cached)


@pytest.mark.parametrize(
    ("version", "problem"), [(VERSION, ""), (None, "no such file"), ("1.7.0", "version 1.7.0")]
)
def test_what_the_user_names_is_used_or_refused(
    version: str | None, problem: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release of the pinned version is named in the environment; another is never replaced."""
    named = place / "gateway"
    if version:
        write_program(named, f"echo 'Version  : {version}'")
    monkeypatch.setenv("ARRAYS_VERSITYGW", str(named))
    if not problem:
        assert find_or_build_versitygw() == named
        return
    with pytest.raises(UserError, match=rf"^ARRAYS_VERSITYGW {named}: {problem}; allowed: vers"):
        find_or_build_versitygw()


def test_a_build_is_announced_kept_and_leaves_nothing_else(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It runs once; afterwards the cache holds the program and the lock alone."""
    write_go(place / "bin", install=INSTALLS)
    built = find_or_build_versitygw()
    assert find_or_build_versitygw() == built
    calls = (place / "bin" / "calls").read_text().splitlines()
    assert len(calls) == 1
    assert calls[0].endswith(f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}")
    assert sorted(p.name for p in built.parent.iterdir()) == sorted([built.name, "versitygw.lock"])
    assert "about 2 minutes" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("install", "reason"),
    [
        ("echo 'dial tcp: no such host'; exit 1", r"go: dial tcp: no such host"),
        # a program of other source, such as a proxy's own
        (INSTALLS.replace(versitygw._SOURCE_SUM, "h1:other="), "the result is not versitygw"),
    ],
)
def test_a_failed_build_is_one_line(install: str, reason: str, place: Path) -> None:
    """It says why, and how to provide the program by hand; nothing is kept."""
    write_go(place / "bin", install=install)
    with pytest.raises(UserError, match=rf"cannot be built \({reason}.*allowed:.*ARRAYS_VERSITYGW"):
        find_or_build_versitygw()
    left = [path.name for path in (place / "cache" / "arrays-over-the-wire").iterdir()]
    assert left == ["versitygw.lock"]


def test_builders_at_the_same_time_build_once(place: Path) -> None:
    """The second waits for the first and takes its result; killing one frees the lock."""
    write_go(place / "bin", install=f"sleep 1\n{INSTALLS}")
    code = "from helpers.objectstore.versitygw import *; print(find_or_build_versitygw())"
    root = Path(versitygw.__file__).parents[2]
    killed = subprocess.Popen([sys.executable, "-c", code], cwd=root)
    assert becomes((place / "bin" / "calls").exists)
    killed.kill()
    killed.wait()
    (place / "bin" / "calls").unlink()
    asked = [
        subprocess.Popen([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = {process.communicate(timeout=60)[0] for process in asked}
    assert len(answers) == 1
    assert len((place / "bin" / "calls").read_text().splitlines()) == 1
    left = sorted(path.name for path in (place / "cache" / "arrays-over-the-wire").iterdir())
    assert left[1:] == ["versitygw.lock"], "what the killed build left is gone"


@pytest.mark.slow
@pytest.mark.skipif("ARRAYS_TEST_BUILD" not in os.environ, reason="fetches and builds for minutes")
@pytest.mark.parametrize("has_go", [True, False])
def test_a_real_build(has_go: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From an empty cache, with the Go on PATH and without one."""
    monkeypatch.delenv("ARRAYS_VERSITYGW", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if not has_go:
        monkeypatch.setattr(versitygw, "_go_version", lambda *_: (0, 0))
    built = find_or_build_versitygw()
    assert is_built_from_source(built) and built.stat().st_size < 100e6
