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
from markdown_it import MarkdownIt

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
    (root / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "place", root / ".ci" / "place")
    command = ["make", "env", f"PYTHON={python}"]
    running = [subprocess.Popen(command, cwd=root) for _ in range(3)]
    assert [one.wait(timeout=60) for one in running] == [0, 0, 0]
    calls = (root / "calls").read_text().splitlines()
    assert sum("--editable" in call for call in calls) == 1
    assert sum(call.endswith("wire server") for call in calls) == 1
    assert (root / ".venv" / "ready").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("name", ["a\nb", "a:b", "{x}", "[x]", "$x", 'a"b', "a`b", "a\\b"])
def test_a_folder_where_nothing_can_be_set_up_is_refused(tmp_path: Path, name: str) -> None:
    """One line says which, and what is not allowed in its path; nothing is set up there."""
    root = tmp_path / name
    (root / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "place", root / ".ci" / "place")
    for path in (ROOT / "Makefile", *ROOT.glob("requirements*.lock")):
        shutil.copy(path, root / path.name)
    command = ["make", "env", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and not (root / ".venv").exists()
    [line] = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert line.startswith("error: the folder ") and "; allowed: " in line


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


def report(*packages: dict[str, Any]) -> str:
    """Write a report of packages where the tool is told to, as pip-audit does."""
    listed = [{"name": "a", "version": "1", **package} for package in packages]
    return f"echo '{json.dumps({'dependencies': listed})}' > \"$last\"; exit 1"


HOLE = {"id": "X-1", "fix_versions": ["2"]}
SKIPPED = {"skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("tool", "problems", "summary"),
    [
        (report({"vulns": []}), [], "0 known"),
        (report({"vulns": [HOLE]}), ["a 1: X-1, mended in 2"], "1 known"),
        (report({"vulns": []}, SKIPPED), [], "0 known, not known for 1 of 2 packages"),
        (report(SKIPPED, SKIPPED), [], "not known for 2 of 2 packages"),
        (report({"vulns": [HOLE]}, SKIPPED), ["a 1: X-1, mended in 2"], "1 known, not known for"),
        ("echo ConnectionError: Max retries >&2; exit 1", [], "not known, as no index answered"),
        ("echo usage >&2; exit 2", ["pip-audit failed: usage"], "not known, as pip-audit failed"),
    ],
    ids=[
        "none",
        "a hole",
        "one skipped",
        "all skipped",
        "a hole, one skipped",
        "offline",
        "broken",
    ],
)
def test_the_audit_fails_for_holes_and_says_what_it_did_not_learn(
    audit: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tool: str,
    problems: list[str],
    summary: str,
) -> None:
    """A hole or a broken tool exits with 1; an index without an answer is no clean bill, and no failure."""
    write_tool(tmp_path / "pip-audit", tool)
    write_tool(tmp_path / "pip-licenses", "echo '[]'")
    with pytest.raises(SystemExit) as ended:
        audit.main()
    *printed, last_line = capsys.readouterr().out.splitlines()
    assert (printed, ended.value.code) == (problems, bool(problems))
    assert last_line.startswith(f"holes: {summary}")


@pytest.mark.parametrize(("licence", "is_found"), [("GNU Lesser General Public License v3 (LGPLv3)", False), ("AGPL-3.0-only", True)])  # fmt: skip
def test_the_audit_names_licences_that_would_bind_all(audit: Any, tmp_path: Path, licence: str, is_found: bool) -> None:  # fmt: skip
    """A package under such a licence is named."""
    told = json.dumps([{"Name": "a", "Version": "1", "License": licence}])
    write_tool(tmp_path / "pip-licenses", f"echo '{told}'")
    assert bool(audit.find_licences()) == is_found


@pytest.mark.slow
def test_a_wheel_answers_in_an_empty_environment(tmp_path: Path) -> None:
    """Who installs the wheel alone asks each advisor without the book, its data or a clone."""
    shutil.copytree(ROOT / "src", tmp_path / "source" / "src")
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


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_clean_removes_what_git_ignores_alone(tmp_path: Path) -> None:
    """Records that were sent stay, committed or not; a name of a folder is no command."""
    root = tmp_path / "a clone"
    kept = ["results/reference/a/b.csv", "results/submitted/me/b.csv", "results/traced/t.csv"]
    uncommitted = ["results/submitted/build/b.csv", "results/published/new.csv"]
    own = ["results/laptop/a/b.csv", "results/$(touch run)/b.csv", "results/a b/b.csv"]
    for name in [*kept, *uncommitted, *own, ".cache/x", "_build/x", ".venv/x"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    for name in ("Makefile", ".gitignore"):
        shutil.copy(ROOT / name, root / name)
    env = {**os.environ, "HOME": str(tmp_path), "GIT_CONFIG_GLOBAL": str(tmp_path / "config")}
    (tmp_path / "ignored").write_text("*.csv\n")
    (tmp_path / "config").write_text(f"[core]\nexcludesFile = {tmp_path / 'ignored'}\n")
    for command in (
        ["git", "init", "-q"],
        ["git", "add", "-f", "Makefile", *kept],
        ["make", "clean"],
    ):
        subprocess.run(command, cwd=root, env=env, check=True, capture_output=True)
    left = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    assert left == {"Makefile", ".gitignore", *kept, *uncommitted}


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("kind", ["copy", "no repository", "worktree"])
def test_make_clean_removes_nothing_by_the_rules_of_another_repository(
    tmp_path: Path, kind: str
) -> None:
    """A copy without its .git is refused, above all inside a repository that ignores it; a worktree is none."""
    root, env = tmp_path / "other" / "down" / "copy", {**os.environ, "HOME": str(tmp_path)}

    def call(*command: str | Path, folder: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False
        )

    (tmp_path / "other").mkdir()
    if kind == "copy":
        call("git", "init", "-q", "other")
        (tmp_path / "other" / ".gitignore").write_text("down/\n")
    if kind == "worktree":
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        call("git", "init", "-q", "main")
        main = tmp_path / "main"
        call("git", *identity, "commit", "-q", "--allow-empty", "-m", "first", folder=main)
        assert call("git", "worktree", "add", "-q", root, folder=main).returncode == 0
    for name in (".venv/x", ".cache/x", "results/mine/x", "code/x"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    for name in ("Makefile", ".gitignore"):
        shutil.copy(ROOT / name, root / name)
    done = call("make", "-C", root, "clean")
    left = {path.relative_to(root).as_posix() for path in root.rglob("x")}
    if kind == "worktree":
        assert (done.returncode, left) == (0, {"code/x"}), done.stderr
    else:
        assert done.returncode and len(left) == 4
        assert "is not the top of a git checkout" in done.stderr.splitlines()[0]


def run_test_script(root: Path, pytest_text: str) -> subprocess.CompletedProcess[str]:
    """Run `.ci/test` over a stand-in for Python, which lists its calls."""
    for name in (".ci", ".venv/bin", "tests"):
        (root / name).mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "test", root / ".ci" / "test")
    write_tool(root / ".venv" / "bin" / "python", f'echo "$@" >> calls\n{pytest_text}')
    (root / "tests" / "test_a.py").write_text("pytestmark = pytest.mark.quiet\n")
    command = [root / ".ci" / "test", "and not slow"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("pytest_text", "failed", "n_calls"),
    [
        ("exit 0", "", 2),
        ('case "$*" in *"-n 3"*) exit 1 ;; esac', "", 3),  # it passes alone
        ('case "$*" in *"not quiet"*) exit 1 ;; esac', "tests side by side", 3),
        (
            'case "$*" in *"not quiet"*) exit 2 ;; esac',
            "tests side by side",
            2,
        ),  # no failure of tests
        ("exit 1", "tests side by side; tests that run alone (quiet)", 4),
    ],
    ids=["all pass", "fails beside others", "first half", "cannot be collected", "both"],
)
def test_both_halves_of_the_tests_are_run(
    tmp_path: Path, pytest_text: str, failed: str, n_calls: int
) -> None:
    """Each has its failures run once more, and the last line names a half that failed for good."""
    done = run_test_script(tmp_path / "a clone", pytest_text)
    calls = (tmp_path / "a clone" / "calls").read_text().splitlines()
    assert len(calls) == n_calls
    assert calls[-1].startswith("-m pytest -q -m quiet and not slow ")
    assert (done.returncode, done.stderr) == ((1, f"failed: {failed}\n") if failed else (0, ""))


@pytest.mark.parametrize(
    "text", ["plain\n", "```\n@all\n~~~\n", 30 * "`", 40_000 * "`", "é" * 40_000]
)
def test_no_text_ends_its_fence_in_an_issue(tmp_path: Path, text: str) -> None:
    """What a client prints is one block of code, and within what a body may hold."""
    (tmp_path / "text").write_text(text)
    write_tool(tmp_path / "gh", f'[ "$2" = list ] || printf %s "$last" > "{tmp_path}/body"')
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [ROOT / ".ci" / "report", "A title", tmp_path / "text"]
    subprocess.run(command, env=env, check=True, capture_output=True)
    body = (tmp_path / "body").read_text(errors="replace")
    (fence,) = MarkdownIt().parse(body)
    assert fence.type == "fence" and text.strip().endswith(
        fence.content.strip("\n\N{REPLACEMENT CHARACTER}")
    )
    assert len(body) < 65_536


def test_a_report_is_of_a_file(tmp_path: Path) -> None:
    """A link could lead to what the job knows and nobody else may: it is no report."""
    (tmp_path / "secret").write_text("token")
    (tmp_path / "text").symlink_to(tmp_path / "secret")
    write_tool(tmp_path / "gh", "exit 0")
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [ROOT / ".ci" / "report", "A title", tmp_path / "text"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "nothing to report" in done.stderr


def test_workflows_pin_actions_and_keep_no_token() -> None:
    """Each action is a commit; no clone has the token in it; what may write runs no package of the day."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            actions = {step["uses"]: step for step in job["steps"] if "uses" in step}
            for action, step in actions.items():
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action), action
                if action.startswith("actions/checkout@"):
                    assert step["with"]["persist-credentials"] is False, path.name
            if "write" in job.get("permissions", {}).values():
                assert not any("make" in step.get("run", "") for step in job["steps"]), path.name


def test_one_version() -> None:
    """What is installed and what is cited have one version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == project["version"]
