"""What an executed notebook says: findings that it glued, and how long it took."""

from __future__ import annotations

from typing import Any

import nbformat

from helpers.runner.cases import Case

HEADLINES = ("headline", "best-throughput")
"""Keys of the glued finding that the table of cases shows; the first that a notebook has."""


def duration_s(case: Case, site: str = "") -> float:
    """Read how long a case took, here or in the reference; 0 if nobody knows."""
    path = case.result(".ipynb", site)
    if not path.exists():
        return 0.0
    metadata = nbformat.read(path, as_version=4).metadata  # type: ignore[no-untyped-call]
    return float(metadata.get("papermill", {}).get("duration") or 0.0)


def headline_of(case: Case) -> str:
    """Read the finding of a case that ran."""
    notebook = nbformat.read(case.result(".ipynb"), as_version=4)  # type: ignore[no-untyped-call]
    return read_headline(notebook)


def read_headline(notebook: Any) -> str:
    """Read the finding that the table of cases shows; empty if a notebook has none."""
    return next(filter(None, (read_glued(notebook, key) for key in HEADLINES)), "")


def read_glued(notebook: Any, key: str) -> str:
    """Read a text that a notebook glued under a key; empty if it did not."""
    return list_glued(notebook).get(key, "")


def list_glued(notebook: Any) -> dict[str, str]:
    """List all texts that a notebook glued, by key."""
    found = {}
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        name = output.get("metadata", {}).get("scrapbook", {}).get("name", "")
        if name:
            key = name.removeprefix("application/papermill.record/")
            found[key] = str(next(iter(output["data"].values()))).strip("'\"")
    return found
