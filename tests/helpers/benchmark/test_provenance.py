"""Provenance names the machine, never the host, the user or a path."""

from __future__ import annotations

import dataclasses
import getpass
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.benchmark import provenance
from helpers.benchmark.provenance import Provenance, as_json
from helpers.errors import UserError


def test_nothing_names_host_user_or_path() -> None:
    """No fact contains the host name, the home folder or the project folder."""
    found = provenance.describe({"seed": 1})
    text = as_json([found.machine, found.versions, found.parameters, found.commit])
    for private in (socket.gethostname(), str(Path.home()), str(Path.cwd()), getpass.getuser()):
        assert private not in text


def imports(*lines: str) -> dict[str, Any]:
    """Run imports in a process of their own; return its versions and fingerprint."""
    script = [
        "import json, sys",
        "from helpers.benchmark import provenance",
        *lines,
        "found = provenance.describe({'seed': 1})",
        "json.dump({'versions': found.versions, 'fingerprint': found.fingerprint}, sys.stdout)",
    ]
    command = [sys.executable, "-W", "ignore", "-c", "\n".join(script)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def test_packages_that_share_a_name_are_told_apart(tmp_path: Path) -> None:
    """Of distributions that fill one namespace, those whose files were imported are named."""
    for name in ("first", "second"):
        folder, facts = tmp_path / "shared", tmp_path / f"shared_{name}-1.0.dist-info"
        folder.mkdir(exist_ok=True)
        facts.mkdir()
        (folder / f"{name}.py").touch()
        (facts / "METADATA").write_text(f"Name: shared-{name}\nVersion: 1.0\n")
        (facts / "RECORD").write_text(f"shared/{name}.py,,\n")
    found = imports(f"sys.path.append({str(tmp_path)!r})", "import shared.second")["versions"]
    assert found["shared-second"] == "1.0"
    assert "shared-first" not in found


def test_a_module_beside_a_package_of_its_name_is_not_that_package(tmp_path: Path) -> None:
    """What lies elsewhere is not what a distribution installed: an editable project, for one."""
    elsewhere = tmp_path / "redis.py"
    elsewhere.touch()
    assert "redis" not in provenance.distributions({"redis": str(elsewhere)})
    assert "redis" not in provenance.distributions({"redis": ""})  # a namespace has no file


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("'--enable-optimizations' '--with-lto'", "optimised, LTO"),
        ("'--enable-optimizations' '--with-lto=no'", "optimised"),
        ("'--prefix=/opt/python' '--enable-shared'", "not optimised"),
        (None, "unknown"),  # as on Windows
    ],
)
def test_python_says_how_it_was_compiled(
    monkeypatch: pytest.MonkeyPatch, options: str | None, expected: str
) -> None:
    """Half of what a processor does in Python may hang on that, so every row tells it."""
    monkeypatch.setattr(provenance.sysconfig, "get_config_var", lambda _name: options)
    provenance._installed.cache_clear()
    try:
        assert provenance.imported()["build of python"] == expected
        told = provenance.name_beside("workers", [{"build of python": expected}])
        assert told == {"build of python": expected}
    finally:
        provenance._installed.cache_clear()


def test_processes_beside_are_named_where_they_differ() -> None:
    """What is as here has its plain name; another version, or a library, tells whose it is."""
    here = provenance.installed(["zarr", "no-such-package", "python"])
    assert {*here} == {"zarr", "python"}
    library = {"HDF5 of h5py": "2.2.0"}
    found = provenance.name_beside("workers", [here | library, {"zarr": "0.1", "redis-fork": "1"}])
    assert found == here | {
        "HDF5 of h5py in workers": "2.2.0",
        "zarr in workers": "0.1",
        "redis-fork in workers": "1",
    }


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the project."""
    folder = tmp_path / "a project"
    folder.mkdir()
    monkeypatch.setattr(provenance, "_PROJECT", folder.resolve())
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return folder


def test_commit_without_git_is_unknown(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No repository, a repository without commits, and no git: unknown, dirty."""
    assert provenance.commit() == ("unknown", True)
    _git(project, "init")
    assert provenance.commit() == ("unknown", True)
    monkeypatch.setenv("PATH", "")
    assert provenance.commit() == ("unknown", True)


def test_commit_and_what_makes_it_dirty(project: Path) -> None:
    """Changed and new sources make it dirty, results do not."""
    _git(project, "init")
    (project / "source.py").write_text("1\n")
    _git(project, "add", ".")
    _git(project, "commit", "-m", "one")
    name, is_dirty = provenance.commit()
    assert len(name) == 40 and not is_dirty
    (project / "results").mkdir()
    (project / "results" / "case.csv").write_text("a\n")
    assert provenance.commit() == (name, False)
    (project / "new.py").write_text("2\n")
    assert provenance.commit() == (name, True)


def test_what_the_fingerprint_covers() -> None:
    """Machine and parameters count, the commit and what is imported by then do not."""
    base = Provenance({"n_cores": 2}, {"zarr": "3.1.6"}, {"seed": 1}, commit="a" * 40)
    for same in ({"commit": "b" * 40}, {"is_dirty": False}, {"versions": {"zarr": "3.4.2"}}):
        assert dataclasses.replace(base, **same).fingerprint == base.fingerprint
    for other in ({"machine": {"n_cores": 4}}, {"parameters": {"seed": 2}}):
        assert dataclasses.replace(base, **other).fingerprint != base.fingerprint


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()], ids=type)
def test_json_refuses_what_it_cannot_hold(value: object) -> None:
    """NaN, sets and objects are refused in one line that does not show the value."""
    with pytest.raises(UserError, match="does not fit into a record") as caught:
        as_json({"key": value, "other": "hidden-value"})
    assert "\n" not in str(caught.value) and "hidden-value" not in str(caught.value)
