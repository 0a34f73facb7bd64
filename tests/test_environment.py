"""Tests that `pyproject.toml`, `environment.yml` and `requirements.lock` say the same."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import h5py
import pytest
import yaml

from helpers.paths import ROOT

REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)\s*(?P<bound>.*)$")


def split(requirement: str) -> tuple[str, str]:
    """Split a requirement into its name, normalised, and its bound."""
    match = REQUIREMENT.match(requirement)
    assert match is not None, requirement
    return re.sub(r"[-_.]+", "-", match["name"]).lower(), match["bound"].strip()


@pytest.fixture(scope="module")
def declared() -> dict[str, str]:
    """Requirements of `pyproject.toml`, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    # extras may name extras of the project itself
    flat = [one for group in groups for one in group if not one.startswith(project["name"])]
    return dict(split(requirement) for requirement in flat)


@pytest.fixture(scope="module")
def conda() -> dict[str, Any]:
    """What `environment.yml` holds."""
    return dict(yaml.safe_load((ROOT / "environment.yml").read_text()))


@pytest.fixture(scope="module")
def locked() -> dict[str, str]:
    """Versions of `requirements.lock`."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    found = [re.match(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", line) for line in lines]
    return {split(match[1])[0]: match[2] for match in found if match}


def test_hubs_install_what_is_locked(conda: dict[str, Any], locked: dict[str, str]) -> None:
    """conda brings Python, h5py with ROS3 and what builds the store; all has one version everywhere."""
    *tools, pip = conda["dependencies"]
    assert tools == ["python=3.12", "pip", f"h5py={locked['h5py']}", "go", "git", "make"]
    assert pip == {"pip": ["-r requirements.lock"]}
    assert conda["channels"] == ["conda-forge"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.12"


def test_lock_holds_all(declared: dict[str, str], locked: dict[str, str]) -> None:
    """Every declared package is locked, at a version its bound allows."""
    assert set(declared) <= set(locked)
    for name, bound in declared.items():
        for clause in filter(None, bound.split(",")):
            operator, version = re.findall(r"^(==|>=)(.+)$", clause)[0]
            have, want = (
                [int(part) for part in re.findall(r"\d+", text)] for text in (locked[name], version)
            )
            assert have == want if operator == "==" else have >= want, name


def test_lock_is_hashed_and_the_same_everywhere() -> None:
    """Each package stands once, with hashes; no index and no address, so that it works behind any mirror."""
    text = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"\n(?=\S)", text)
    packages = [block for block in blocks if re.match(r"^[A-Za-z0-9]", block)]
    assert [block.splitlines()[0] for block in packages if "--hash=sha256:" not in block] == []
    assert not re.search(r"(?m)https?://|file://|^--(?:extra-)?index-url|^--find-links", text)
    names = re.findall(r"(?m)^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==", text)
    assert len(names) == len(set(names)) > 100


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_two_that_set_up_at_once_are_one(tmp_path: Path) -> None:
    """The second make waits for the first and finds the environment made, in folders with spaces."""
    python, root = tmp_path / "a python", tmp_path / "a project"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    programs = root / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "wire"):
        (programs / name).write_text('#!/bin/sh\nsleep 0.2\necho "$0 $*" >> calls\n')
        (programs / name).chmod(0o755)
    for path in (ROOT / "Makefile", *ROOT.glob("requirements*.lock")):
        shutil.copy(path, root / path.name)
    command = ["make", "env", f"PYTHON={python}"]
    running = [subprocess.Popen(command, cwd=root) for _ in range(3)]
    assert [one.wait(timeout=60) for one in running] == [0, 0, 0]
    calls = (root / "calls").read_text().splitlines()
    assert sum("--editable" in call for call in calls) == 1
    assert sum(call.endswith("wire server") for call in calls) == 1
    assert (root / ".venv" / "ready").exists()


def test_a_python_that_is_new_enough_is_found_or_asked_of_uv(tmp_path: Path) -> None:
    """Behind one that is too old or a shim that is not selected; else uv's; else one line says how."""
    selected = (ROOT / ".python-version").read_text().strip()
    assert tuple(map(int, selected.split("."))) >= (3, 12)

    def fake(folder: str, name: str, text: str) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / folder / name).chmod(0o755)

    def ask(*folders: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(tmp_path / name) for name in (*folders, "tools")])
        told = {"PATH": path, "HOME": str(tmp_path), "PYENV_VERSION": "3.11.7"}
        command = ["/bin/sh", str(ROOT / ".ci" / "python")]
        return subprocess.run(
            command, cwd=tmp_path, env=told, capture_output=True, text=True, check=False
        )

    for tool in ("env", "mkdir", "sh"):
        fake("tools", tool, f'exec {shutil.which(tool)} "$@"')
    fake("old", "python3", "exit 0")  # prints nothing, as one that is too old
    fake("shims", "python3.12", "echo not selected >&2; exit 127")
    fake("shims", "python3.13", '[ "$PYENV_VERSION" = 3.13 ] && echo /pyenv/3.13')
    fake("new", "python3", "echo /new/python3")
    fake("uv", "uv", f'[ "$2" != find ] || [ ! -e "{tmp_path}/fetched" ] || echo "{tmp_path}/new/python3"\n'
         f'[ "$2" != install ] || : > "{tmp_path}/fetched"')  # fmt: skip
    assert ask("old", "new").stdout == "/new/python3\n"
    assert ask("old", "shims").stdout == "/pyenv/3.13\n"
    assert ask("old", "uv").stdout == "/new/python3\n"
    none = ask("old")
    assert (none.returncode, none.stdout) == (1, "")
    assert none.stderr.splitlines()[-1].startswith("error: no Python >= 3.12 found")


@pytest.fixture
def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the audit with tools of the test's own."""
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TOOLS", tmp_path)
    monkeypatch.setattr(module, "REPORT", tmp_path / "report" / "audit.json")
    return module


def write_tool(path: Path, text: str) -> None:
    """Write a tool as a script of the shell."""
    path.write_text(f"#!/bin/sh\nfor last; do :; done\n{text}\n")
    path.chmod(0o755)


def report(holes: str) -> str:
    """Write a report of a package with these holes where the tool is told to."""
    told = f'{{"dependencies": [{{"name": "a", "version": "1", "vulns": [{holes}]}}]}}'
    return f"echo '{told}' > \"$last\"; exit 1"


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        (report(""), []),
        (report('{"id": "X-1", "fix_versions": ["2"]}'), ["a 1: X-1, mended in 2"]),
        ("echo ConnectionError: Max retries exceeded >&2; exit 1", []),  # no network
        ("echo usage >&2; exit 2", ["pip-audit failed: usage"]),
    ],
)
def test_the_audit_is_loud_about_holes_alone(audit: Any, tmp_path: Path, tool: str, found: list[str]) -> None:  # fmt: skip
    """What is found ends it, and so does a tool that fails; a network that is not there does not."""
    write_tool(tmp_path / "pip-audit", tool)
    assert audit.find_holes() == found


@pytest.mark.parametrize(("licence", "is_found"), [("GNU Lesser General Public License v3 (LGPLv3)", False), ("AGPL-3.0-only", True)])  # fmt: skip
def test_the_audit_names_licences_that_would_bind_all(audit: Any, tmp_path: Path, licence: str, is_found: bool) -> None:  # fmt: skip
    """A package under such a licence is named."""
    told = json.dumps([{"Name": "a", "Version": "1", "License": licence}])
    write_tool(tmp_path / "pip-licenses", f"echo '{told}'")
    assert bool(audit.find_licences()) == is_found


@pytest.mark.slow
def test_a_wheel_answers_in_an_empty_environment(tmp_path: Path) -> None:
    """Who installs the wheel alone asks each advisor without the book, its data or a clone."""
    for name in ("advisors", "book", "helpers", "studies"):
        shutil.copytree(ROOT / name, tmp_path / "source" / name)
    for path in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-CC-BY"):
        shutil.copy(ROOT / path, tmp_path / "source" / path)

    def call(*command: object) -> str:
        done = subprocess.run([*map(str, command)], cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    uv = (sys.executable, "-m", "uv", "--quiet")
    call(*uv, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", ".", "source")  # fmt: skip
    call(*uv, "venv", "--python", sys.executable, "empty")
    (wheel,) = tmp_path.glob("*.whl")
    call(*uv, "pip", "install", "--python", "empty", "--constraints", ROOT / "requirements.lock", f"{wheel}[costs,decide,hdf5,scaling,trace]")  # fmt: skip
    wire = tmp_path / "empty" / "bin" / "wire"
    with h5py.File(tmp_path / "some.h5", "w") as file:
        file.create_dataset("x", shape=(400, 400), dtype="f4", chunks=(20, 20))
    (tmp_path / "runs.csv").write_text("n_workers,seconds\n1,10\n2,5.2\n4,2.9\n8,1.9\n")
    shape = ("--shape", "8760,721,1440")
    assert json.loads(call(wire, "decide", *shape, "--access", "series:50,map:50", "--json"))
    assert json.loads(call(wire, "fit", "runs.csv", "--workers", "16", "--json"))
    assert "the file has no pages" in call(wire, "hdf5", "advise", "some.h5")
    assert "USD" in call(wire, "costs")
    traced = call(wire, "trace", "--out", "traced", "--", sys.executable, "-c", "print(1)")
    assert traced == "1\n" and (tmp_path / "traced" / "trace.html").exists()


def test_one_version() -> None:
    """What is installed and what is cited have one version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == project["version"]
