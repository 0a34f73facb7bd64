"""Where the files of the book lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""

RENDERED = "ARRAYS_RENDERED"
"""Variable of the environment in which a page is rendered: versions of what measured its rows, as JSON."""

CATALOG = ROOT / "catalog.yml"
