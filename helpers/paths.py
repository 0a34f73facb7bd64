"""Where the project's own files lie."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""

CATALOG = ROOT / "catalog.yml"


def cache_folder() -> Path:
    """Return the folder of generated stores: ``ARRAYS_CACHE``, else ``.cache`` in the checkout."""
    return Path(os.environ.get("ARRAYS_CACHE", ROOT / ".cache"))
