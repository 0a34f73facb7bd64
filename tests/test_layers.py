"""Three storeys, helpers below advisors below studies, and what each may know and hold."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from helpers.book.studies import find_studies
from helpers.paths import ROOT

STOREYS = ("helpers", "advisors", "studies")
PATHS = [path for storey in STOREYS for path in sorted((ROOT / storey).rglob("*.py"))]

# Rooms that every study or advisor may have, each under the same name.
ROOMS = {"__init__", "parameters", "workload", "prediction", "findings", "figures", "cli"}

# Modules of fewer than 40 lines, and why each stands alone.
SMALL: dict[str, str] = {}

# Upper bounds on the whole house; a change that breaks one of them says why.
# Of these some 24,500 lines and 130 modules are the first four studies and what carries them. The
# rest came with a question of its own each: one answer (`decide` 2,000), a store of one's own
# (`calibrate` 1,100), clusters that are simulated (`scaling` 2,000), checks of HDF5 files (800),
# shapes beside those of others (600), formats (2,050, of which rasters, references, TileDB and
# OPeNDAP 650), published claims (400), pages that begin with what was found (500), faults,
# deadlines and digests (800), the comparison of records (300), time dilation with advisors that
# survive hostile files (2,100), a service under every load, with caches that keep chunks or know
# versions (700), every row and budget told, all pages printed (440), simulations that are kept (100),
# claims on caches with verdicts, and loads predicted on shared processors (200, 1 module),
# what new connections and tails cost, with dilations that are checked by measurement and chosen
# from a calibration (500), and what a format costs beside its time: to write, in memory, in code,
# in blocks that cut chunks (600), budgets of a run that fit into an hour (60), formulas that
# become JavaScript, which took as many lines of JavaScript away (360, 1 module), pages that
# are rendered from their rows (90, 1 module), what a page on scaling out says of its own
# misses: graphs to a million tasks, targets at three times a calibration, curves that are off (180),
# and clusters of up to 64 workers, one process with many requests, and what parts of a network
# cost, with errors beside null models (900, 3 modules), networks drawn at random that a
# calibration recovers (130, 1 module), and clusters that grow, simulated event by event (35),
# lengths of files that are replayed without their values, with chunk shapes that are checked by
# measurement (680, 2 modules), shards as both readers of zarr ask for them (50), rows of other
# versions rendered (40), and how many requests a process should have in flight (500, 6 modules),
# with a relief and zarrs' own store as what formats may name (40), and trials that count each
# box where it was read (65), and references and Icechunk over a rechunked file (40),
# first looks planned by what the reference took, with targets beside records (175), and granules
# read at once (160, 1 module), and connections of a cluster that outlive each other's end (65,
# 1 module),
# and a case of caches that the page quotes once it is measured (25), and what cmip7repack plans,
# with files in pages by their length (85),
# and a dilation that is chosen while measuring, with workers that are forks (90),
# and faults and published prices told in words (15),
# and four clients of one process in their published order (75),
# and ticks of a logarithmic axis by their room, conditions in words (20),
# and HDF5 thresholds of the pairs that they name (70), and a page that judges its own thresholds (25),
# and a verdict before the record, names for what is published, and refusals that were feared in vain (110),
# and what pages of clusters say first and of null models (90),
# and amounts that say how they are billed, loads in panels (60),
# and findings of chunk shape named in words, with a table of positions (70),
# and formats read by time series and by mixes, with connections that ask again (60),
# and objects received into memory that is used again, held against what processors carry (230,
# 1 module),
# and clients chosen by what they ask, in trials that tell ties and their own noise (310, 1 module),
# and imports that wait for who needs them (12),
# and loads predicted tile by tile, in ranges, beside what their blocks agree on (245, 1 module),
# and copies whose attributes keep their order, with starts fitted beside each file scored (74),
# and chunks ranked for boxes, and points read where delays scatter (235, 1 module),
# and what busy processors, and requests of one interpreter, cost one another (250),
# and what a chunk costs, measured for the advisor and for its ready checks (62),
# and runs planned by what their first blocks take (6),
# and reads predicted as queues (41),
# and memory touched before anything is timed (33).
MOST_LINES = 46_486
MOST_MODULES = 209

# Where the performance counter is read, beside the loop, and what for.
CLOCKS: dict[str, str] = {
    "helpers.benchmark.loop": "the timing loop",
    "helpers.netem": "pacing, times of the trace, calibration of both",
    "advisors.calibrate.measure": "times of a reader's own store, asked by a client that counts",
    "studies.caching_costs.service": "times of parts, which the service tells with each answer",
    "studies.caching_costs.swarm": "times of requests within one load",
    "studies.chunk_shape.rewrite_process": "time of a rewriting without its interpreter's start",
}

# What one advisor may take from another: the prices, and what a deployment is assumed to be.
BETWEEN_ADVISORS = {
    "calibrate": {"advisors.costs.prices"},
    "chunks": {"advisors.costs.prices", "advisors.costs.assumptions"},
    "scaling": {"advisors.costs.prices"},
}

# The advisor that gives one answer out of those of the others, and adds no formula: it may ask all.
ASKS_ALL = {"decide"}

# What only the edge of the house touches.
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


def below(storey: str) -> list[Path]:
    """List the files of a storey."""
    return [path for path in PATHS if path.is_relative_to(ROOT / storey)]


# Who may import whom.


@pytest.mark.parametrize(("lower", "higher"), itertools.combinations(STOREYS, 2))
def test_imports_go_downwards(lower: str, higher: str) -> None:
    """Helpers know no advisor and no study, advisors know no study, not even by a text."""
    named = re.compile(rf"\b{higher}\.[a-z]")
    for path in below(lower):
        found = {name for name in imported(path) if name.split(".")[0] == higher}
        found |= {text for text in texts(path) if named.search(text)}
        assert not found, f"{name_of(path)}: {sorted(found)}"


def test_one_room_knows_where_studies_are() -> None:
    """The package of the studies is named in the room that finds them, and nowhere else."""
    naming = {name_of(path) for path in PATHS if "studies" in texts(path)}
    assert naming == {"helpers.book.studies"}


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


@pytest.mark.parametrize("storey", STOREYS)
def test_no_name_twice_in_a_storey(storey: str) -> None:
    """A module is found by its name, but for the rooms that all studies have."""
    counts = Counter(path.stem for path in below(storey) if path.stem not in ROOMS)
    assert [name for name, n in counts.items() if n > 1] == []


def test_studies_have_the_same_rooms() -> None:
    """Whoever knows one study finds the parameters and the findings of another."""
    for name, study in find_studies().items():
        folder = ROOT / "studies" / name.replace("-", "_")
        stems = {path.stem for path in folder.glob("*.py")}
        assert {"__init__", "parameters", "findings"} <= stems, name
        assert (ROOT / "notebooks" / f"{name}.ipynb").exists()
        assert [*(ROOT / "parameters").glob(f"*/{name}/*.yaml")], f"{name} has no case"
        assert study.headline
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} == {*find_studies()}


@pytest.mark.parametrize("storey", ["helpers", "advisors"])
def test_no_list_knows_the_name_of_a_study(storey: str) -> None:
    """A study registers itself: its name stands in its folder, its notebook and its cases alone."""
    for path in below(storey):
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
    """A room of a few lines that only one neighbour enters is part of that neighbour."""
    lengths = {name_of(path): count_lines(path) for path in PATHS if path.stem != "__init__"}
    assert {name for name, n in lengths.items() if n < 40} == {*SMALL}


def count_lines(path: Path) -> int:
    """Count the lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def test_the_house_stays_within_its_bounds() -> None:
    """The book grows by studies; what all share does not grow with it."""
    assert sum(map(count_lines, PATHS)) <= MOST_LINES
    assert len(PATHS) <= MOST_MODULES


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


def test_every_clock_is_there() -> None:
    """The list of clocks names nothing that is gone."""
    for name in CLOCKS:
        paths = [path for path in PATHS if f"{name_of(path)}.".startswith(f"{name}.")]
        assert any("perf_counter" in path.read_text() for path in paths), name


def test_every_colour_is_in_the_palette() -> None:
    """No module and no notebook but the palette writes a colour."""
    colour = re.compile(r"""["'](#[0-9a-fA-F]{3,8}|C\d|tab:\w+)["']""")
    sources = [*PATHS, *(ROOT / "notebooks").glob("*.ipynb")]
    for path in sources:
        if path.name != "palette.py":
            found = colour.findall(path.read_text(encoding="utf-8").replace('\\"', '"'))
            assert not found, f"{path.relative_to(ROOT)}: {found}"
