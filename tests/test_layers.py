"""Three layers, helpers below advisors below studies, and what each may know and hold."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from book.studies import find_studies
from helpers.paths import ROOT

LAYERS = ("helpers", "advisors", "studies", "book")
PATHS = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]

# Modules that every study or advisor may have, each under the same name.
COMMON = {"__init__", "parameters", "workload", "prediction", "findings", "figures", "cli"}

# Modules of fewer than 40 lines, and why each stands alone.
SMALL: dict[str, str] = {}

# Most files and lines of Python in each layer. They only fall: a change that needs room makes it elsewhere.
BOUNDS = {
    "helpers": (51, 10_640),
    "advisors": (37, 6_930),
    "studies": (68, 8_715),
    "_ext": (5, 235),
    "tests": (80, 16_400),
}

# Where the performance counter is read, beside the loop, and what for.
CLOCKS: dict[str, str] = {
    "helpers.benchmark.loop": "the timing loop",
    "helpers.netem": "pacing, times of the trace, calibration of both",
    "advisors.calibrate.measure": "times of a reader's own store, asked by a client that counts",
    "studies.caching_costs.service": "times of parts, which the service tells with each answer",
    "studies.caching_costs.swarm": "times of requests within one load",
}

# What one advisor may take from another: the prices, and what a deployment is assumed to be.
BETWEEN_ADVISORS = {
    "chunks": {"advisors.costs.assumptions"},
}

# The advisor that gives one answer out of those of the others, and adds no formula: it may ask all.
ASKS_ALL = {"decide"}

# What only the edge of the project touches.
OUTSIDE = {
    "os",
    "io",
    "sys",
    "pathlib",
    "socket",
    "subprocess",
    "shutil",
    "tempfile",
    "urllib",
    "h5py",
}


def name_of(path: Path) -> str:
    """Name the module of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


NAMES = {name_of(path): path for path in PATHS}


@cache
def parse(path: Path) -> ast.Module:
    """Read a file as a tree."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported(path: Path) -> frozenset[str]:
    """List the modules of this project that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            names |= {str(node.module)} | {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
    return frozenset(name for name in names if name in NAMES)


@cache
def texts(path: Path) -> tuple[str, ...]:
    """List the texts of a file that are no docstrings."""
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(parse(path))
        if isinstance(node, described) and node.body and isinstance(node.body[0], ast.Expr)
    }
    return tuple(
        node.value
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    )


def below(layer: str) -> list[Path]:
    """List the files of a layer."""
    return [path for path in PATHS if path.is_relative_to(ROOT / layer)]


# Who may import whom.


@pytest.mark.parametrize(("lower", "higher"), itertools.combinations(LAYERS, 2))
def test_imports_go_downwards(lower: str, higher: str) -> None:
    """Helpers know no advisor and no study, advisors know no study, not even by a text."""
    named = re.compile(rf"\b{higher}\.[a-z]")
    for path in below(lower):
        if name_of(path) == "helpers.cli":  # the command line names where each command is
            continue
        found = {name for name in imported(path) if name.split(".")[0] == higher}
        found |= {text for text in texts(path) if named.search(text)}
        assert not found, f"{name_of(path)}: {sorted(found)}"


def test_one_module_knows_where_studies_are() -> None:
    """The package of the studies is named in the module that finds them, and nowhere else."""
    naming = {name_of(path) for path in PATHS if "studies" in texts(path)}
    assert naming == {"helpers.parameters"}


def test_advisors_stand_alone() -> None:
    """An advisor enters no other, but for the prices that its own answers need."""
    for path in below("advisors"):
        others = {name for name in imported(path) if name.startswith("advisors.")}
        others = {name for name in others if name.split(".")[1] != path.parent.name}
        if path.parent.name in ASKS_ALL:
            continue
        allowed = BETWEEN_ADVISORS.get(path.parent.name, set())
        assert others <= allowed, f"{name_of(path)} imports {sorted(others)}"


def test_studies_stand_alone() -> None:
    """A study enters no other, not even by a text; one that reads all finds them."""
    named = re.compile(r"\bstudies\.(\w+)")
    for path in below("studies"):
        mine = path.parent.name
        found = {name for name in imported(path) if name.startswith("studies.")}
        found = {name for name in found if name.split(".")[1] != mine}
        for text in texts(path):
            found |= {one for one in named.findall(text) if one != mine and is_study(one)}
        assert not found, f"{name_of(path)}: {sorted(found)}"


def is_study(folder: str) -> bool:
    """Tell whether a folder of studies has this name."""
    return (ROOT / "studies" / folder / "__init__.py").exists()


def test_no_circle() -> None:
    """Every module can be understood after those that it imports."""
    graph = {name: imported(path) - {name} for name, path in NAMES.items()}
    assert {*TopologicalSorter(graph).static_order()} == {*NAMES}


def test_models_do_no_input_or_output() -> None:
    """Models are arithmetic: they import no module of files, processes or networks, and open nothing."""
    for path in below("helpers/models"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Import):
                assert not OUTSIDE & {each.name.split(".")[0] for each in node.names}, path
            elif isinstance(node, ast.ImportFrom):
                assert str(node.module).split(".")[0] not in OUTSIDE, path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("open", "print", "input"), path


# Names.


@pytest.mark.parametrize("layer", LAYERS)
def test_no_name_twice_in_a_layer(layer: str) -> None:
    """A module is found by its name, but for the modules that all studies have."""
    counts = Counter(path.stem for path in below(layer) if path.stem not in COMMON)
    assert [name for name, n in counts.items() if n > 1] == []


def test_studies_have_the_same_modules() -> None:
    """Modules with the same purpose have the same name in every study."""
    for name, study in find_studies().items():
        folder = ROOT / "studies" / name.replace("-", "_")
        stems = {path.stem for path in folder.glob("*.py")}
        assert {"__init__", "parameters", "findings"} <= stems, name
        assert (ROOT / "notebooks" / f"{name}.ipynb").exists()
        assert [*(ROOT / "parameters").glob(f"*/{name}/*.yaml")], f"{name} has no case"
        assert study.headline
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == {*find_studies()}


@pytest.mark.parametrize("layer", ["helpers", "advisors"])
def test_no_list_knows_the_name_of_a_study(layer: str) -> None:
    """A study registers itself: its name stands in its folder, its notebook and its cases alone."""
    for path in below(layer):
        for name in find_studies():
            named = re.compile(rf"(?<![\w-]){name}(?![\w-])")
            found = [text for text in texts(path) if named.search(text)]
            assert not found, f"{name_of(path)}: {found}"


# What a module holds.


def test_every_module_has_something_of_its_own() -> None:
    """None does nothing but hand on; a package is its docstring, or a study's declaration."""
    own = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.If)
    for path in PATHS:
        body = parse(path).body[1:]  # after the docstring
        assert ast.get_docstring(parse(path)), f"{name_of(path)} has no docstring"
        assert not body or any(isinstance(node, own) for node in body), name_of(path)
        if path.stem == "__init__" and body:
            assigned = [node.targets[0] for node in body if isinstance(node, ast.Assign)]
            names = [node.id for node in assigned if isinstance(node, ast.Name)]
            assert "STUDY" in names, f"{name_of(path)} declares no study"


def test_small_modules_have_a_reason() -> None:
    """A module of a few lines that only one other imports is part of that one."""
    lengths = {name_of(path): count_lines(path) for path in PATHS if path.stem not in COMMON}
    assert {name for name, n in lengths.items() if n < 40} == {*SMALL}


def count_lines(path: Path) -> int:
    """Count the lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("layer", BOUNDS)
def test_layers_stay_within_their_bounds(layer: str) -> None:
    """No layer has more modules or lines than it may."""
    files = sorted((ROOT / layer).rglob("*.py"))
    most_files, most_lines = BOUNDS[layer]
    assert len(files) <= most_files
    assert sum(map(count_lines, files)) <= most_lines


def test_bounds_only_fall() -> None:
    """No bound is above what it was in any earlier commit that is here."""
    here = Path(__file__).relative_to(ROOT).as_posix()
    git = ["git", "-C", str(ROOT)]
    log = [*git, "log", "--max-count=30", "--format=%h", "--", here]
    commits = subprocess.run(log, capture_output=True, text=True, check=False).stdout.split()
    for commit in commits:
        shown = [*git, "show", f"{commit}:{here}"]
        before = subprocess.run(shown, capture_output=True, text=True, check=False).stdout
        for layer, files, lines in _BOUND.findall(before):
            bounds = BOUNDS.get(layer, (0, 0))
            assert bounds[0] <= int(files) and bounds[1] <= int(lines), f"{layer} since {commit}"


_BOUND = re.compile(r'^    "(\w+)": \((\d+), ([\d_]+)\),$', re.MULTILINE)


def test_one_clock() -> None:
    """The performance counter is read by the loop, and elsewhere only for what is named above."""
    for path in PATHS:
        reads = any(
            getattr(node, "attr", getattr(node, "id", "")).startswith("perf_counter")
            for node in ast.walk(parse(path))
            if isinstance(node, ast.Attribute | ast.Name)
        )
        allowed = any(f"{name_of(path)}.".startswith(f"{name}.") for name in CLOCKS)
        assert allowed or not reads, f"{name_of(path)} has a clock of its own"


def test_every_colour_is_in_the_palette() -> None:
    """No module and no notebook but the palette writes a colour."""
    colour = re.compile(r"""["'](#[0-9a-fA-F]{3,8}|C\d|tab:\w+)["']""")
    sources = [*PATHS, *(ROOT / "notebooks").glob("*.ipynb")]
    for path in sources:
        if path.name != "palette.py":
            found = colour.findall(path.read_text(encoding="utf-8").replace('\\"', '"'))
            assert not found, f"{path.relative_to(ROOT)}: {found}"
