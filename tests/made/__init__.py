"""A study made for the tests of the runner."""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = Path(__file__).parent

# The first lines of a script that finds the study too.
IN_SCRIPT = f"import studies; studies.__path__.append({str(FOLDER)!r})\n"


def copy_study(root: Path) -> None:
    """Put the study into the folder of studies of a copy of the project."""
    shutil.copytree(FOLDER / "study", root / "studies" / "study")
