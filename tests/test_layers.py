"""Four layers, helpers below advisors below studies below the book: what each may know, and how much it may hold."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from helpers.paths import ROOT

LAYERS = ("helpers", "advisors", "studies", "book")
PATHS = {layer: sorted((ROOT / layer).rglob("*.py")) for layer in LAYERS}

# Most files and lines of Python in each layer; the book counts with the helpers, of which it was a part.
# They only fall: a change that needs room makes it elsewhere, but for what is allowed below.
BOUNDS = {
    "helpers": (49, 10_504),
    "advisors": (35, 7_337),
    "studies": (84, 10_989),
    "_ext": (3, 180),
    "tests": (83, 16_515),
}
# What processors that count, the five studies and the trace of one's own programs took. It is more than was planned for
# them (helpers 48 files and 9,600 lines, advisors 37 and 5,600, studies 70 and 9,100, tests 78 and 14,200), and falls with the bounds.
ALLOWED = {"helpers": (49, 10_504), "advisors": (35, 7_337), "studies": (84, 10_989), "tests": (83, 16_515)}  # fmt: skip
COUNTED_WITH = {"helpers": ["book"]}


def name_of(path: Path) -> str:
    """Name the module of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


NAMES = {name_of(path) for paths in PATHS.values() for path in paths}


@cache
def imported(path: Path) -> frozenset[str]:
    """List the modules of this project that a file imports, wherever in it, or names in a text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found |= {str(node.module)} | {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.Constant) and re.fullmatch(r"[a-z_.]+", str(node.value)):
            found.add(str(node.value))
    return frozenset(found & NAMES)


@pytest.mark.parametrize(("lower", "higher"), itertools.combinations(LAYERS, 2))
def test_imports_go_downwards(lower: str, higher: str) -> None:
    """Helpers know no advisor, no study and no book, and so on; the command line names commands by text."""
    for path in PATHS[lower]:
        found = {name for name in imported(path) if name.split(".")[0] == higher}
        assert not found or name_of(path) == "helpers.cli", f"{name_of(path)}: {sorted(found)}"


def test_no_circle() -> None:
    """Every module can be understood after those that it imports."""
    paths = [path for paths in PATHS.values() for path in paths if name_of(path) != "helpers.cli"]
    graph = {name_of(path): imported(path) - {name_of(path)} for path in paths}
    assert {*TopologicalSorter(graph).static_order()} >= {*graph}


# The ledger's second notebook: it takes what the first one counts to other networks.
SECOND = {
    "other_networks": {"request_ledger"},
    "cluster_studies": {"cluster_scaling"},
    "own_program": {"request_ledger"},
}


def test_studies_stand_alone() -> None:
    """A study enters no other; one that reads all finds them."""
    for path in PATHS["studies"]:
        names = {name.split(".")[1] for name in imported(path) if name.startswith("studies.")}
        assert names <= {path.parent.name} | SECOND.get(path.parent.name, set()), name_of(path)


@pytest.mark.parametrize("layer", BOUNDS)
def test_layers_stay_within_their_bounds(layer: str) -> None:
    """No layer has more modules or lines than it may."""
    folders = [layer, *COUNTED_WITH.get(layer, ())]
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    n_lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    most_files, most_lines = BOUNDS[layer]
    assert len(files) <= most_files
    assert n_lines <= most_lines


_BOUND = re.compile(r'^    "(\w+)": \((\d+), ([\d_]+)\),$', re.MULTILINE)


def test_bounds_only_fall() -> None:
    """No bound is above what it was in any earlier commit that is here, and what is allowed."""
    here = Path(__file__).relative_to(ROOT).as_posix()
    git = ["git", "-C", str(ROOT)]
    log = [*git, "log", "--max-count=30", "--format=%h", "--", here]
    commits = subprocess.run(log, capture_output=True, text=True, check=False).stdout.split()
    for commit in commits:
        shown = [*git, "show", f"{commit}:{here}"]
        before = subprocess.run(shown, capture_output=True, text=True, check=False).stdout
        for layer, files, lines in _BOUND.findall(before):
            most = ALLOWED.get(layer, (0, 0))
            for now, then, allowed in zip(
                BOUNDS.get(layer, most), (files, lines), most, strict=True
            ):
                assert now <= max(int(then), allowed), f"{layer} since {commit}"
