"""Who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HELPERS = Path(__file__).parents[1] / "helpers"
LAYERS = ("storage", "measurement", "models")


def imported(path: Path) -> set[str]:
    """Return the modules of this project that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.split(".")[0] == "helpers"}


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_do_not_import_one_another(layer: str) -> None:
    """Storage, measurement and models meet in notebooks, through what stands above them."""
    others = tuple(f"helpers.{other}" for other in LAYERS if other != layer)
    for path in (HELPERS / layer).rglob("*.py"):
        found = sorted(name for name in imported(path) if name.startswith(others))
        assert not found, f"{path.relative_to(HELPERS)} imports {found}"


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_know_nothing_above_them(layer: str) -> None:
    """A layer imports errors, paths, redaction and itself, and nothing else of this project."""
    allowed = (f"helpers.{layer}", "helpers.errors", "helpers.paths", "helpers.redaction")
    for path in (HELPERS / layer).rglob("*.py"):
        found = sorted(n for n in imported(path) if n != "helpers" and not n.startswith(allowed))
        assert not found, f"{path.relative_to(HELPERS)} imports {found}"


def test_storage_knows_no_clock_of_measurement() -> None:
    """Only measurement reads the performance counter, but for pacing and deadlines."""
    timed = {"network", "processes.py", "supervisor.py", "folders.py", "clusters.py", "gateways.py"}
    for path in (HELPERS / "storage").rglob("*.py"):
        if not timed & set(path.relative_to(HELPERS / "storage").parts):
            assert "perf_counter" not in path.read_text(encoding="utf-8"), path.name


def test_models_do_no_input_or_output() -> None:
    """Models are pure arithmetic."""
    for path in (HELPERS / "models").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not any(
            word in text for word in ("open(", "import os", "pathlib", "requests.get")
        ), path.name
