"""The wheel alone, in an empty environment: what a reader of the page installs, and how large it is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from helpers.paths import ROOT

MAX_MB = 60  # of everything that `[trace]` installs
PROGRAM = """
import http.server, threading, urllib.request
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
for number in range(9):
    urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/program.py").read()
"""


def run(*words: object, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [*map(str, words)], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


def find_python(version: str) -> str:
    """Find a Python of a version on the path, or among those of pyenv; nothing where there is none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [path / "bin" for path in sorted(root.glob(f"versions/{version}.*"))]
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")])
    python = shutil.which(f"python{version}", path=path)
    # a name on the path may be a shim of a Python that is not there
    return python if python and not run(python, "--version").returncode else ""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution of this checkout and from it the wheel, or take those that are built."""
    folder = Path(os.environ.get("ARRAYS_TEST_DIST", tmp_path_factory.mktemp("wheel"))).resolve()
    if not any(folder.glob("*.whl")):
        options = ["--no-build-isolation", "--offline", "--python", sys.executable]
        completed = run(sys.executable, "-m", "uv", "build", *options, "--out-dir", folder)
        assert completed.returncode == 0, completed.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_source_distribution_holds_the_product_alone(wheel: Path) -> None:
    """Of the book it holds nothing, and what is in the wheel it has all."""
    (source,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "pyproject.toml"} <= names
    folders = {name.partition("/")[0] for name in names if "/" in name}
    assert folders == {"src"}
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.startswith("wire/")]
    assert {f"src/{name}" for name in modules} <= names


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_the_wheel_traces_in_an_empty_environment(
    version: str, wheel: Path, tmp_path: Path
) -> None:
    """It is small, brings one import name, and reports a program's requests as a page and as JSON."""
    uv = [sys.executable, "-m", "uv"]
    interpreter = find_python(version)
    if not interpreter:
        pytest.skip(f"no Python {version} on this machine")
    folder = tmp_path / "environment"
    completed = run(*uv, "venv", "--quiet", "--python", interpreter, folder)
    assert completed.returncode == 0, completed.stderr
    python = folder / "bin" / "python"
    options = ["--quiet", "--python", python]
    completed = run(*uv, "pip", "install", *options, f"{wheel}[trace]")
    if completed.returncode and "error sending request" in completed.stderr:
        pytest.skip("no index of packages answers")
    assert completed.returncode == 0, completed.stderr
    nbytes = sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    assert nbytes < MAX_MB * 1e6
    names = {path.name for path in folder.glob("lib/python*/site-packages/*")}
    assert "wire" in names
    assert names.isdisjoint({"helpers", "studies", "runner", "numpy", "pandas", "scipy"})
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["trace", "--json", "--", python, "program.py"]
    completed = run(folder / "bin" / "wire", *words, folder=tmp_path)
    assert completed.returncode == 0, completed.stderr
    report = json.loads(completed.stdout.splitlines()[-1])
    assert report["n_requests"] == 9
    assert "data-wire-waterfall" in (tmp_path / "trace" / "trace.html").read_text()
    shown = run(folder / "bin" / "wire", "trace", "show", "trace/trace.har", folder=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "9 requests" in shown.stdout
    completed = run(python, "-m", "compileall", "-q", folder / "lib")  # on this Python, too
    assert completed.returncode == 0, completed.stdout
