"""Four layers, helpers below advisors below studies below the book: what each may know."""

from __future__ import annotations

import ast
import itertools
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from helpers.paths import ROOT

LAYERS = ("helpers", "advisors", "studies", "book")
PATHS = {layer: sorted((ROOT / layer).rglob("*.py")) for layer in LAYERS}


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
        assert not found or name_of(path) == "wire.cli", f"{name_of(path)}: {sorted(found)}"


def test_no_circle() -> None:
    """Every module can be understood after those that it imports."""
    paths = [path for paths in PATHS.values() for path in paths if name_of(path) != "wire.cli"]
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
