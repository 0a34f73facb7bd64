"""A study made for the tests of the runner: what every study takes, a seed, and an address that may hold a password."""

from __future__ import annotations

import tempfile
from pathlib import Path

STUDY = 'from helpers.parameters import Study\nSTUDY = Study(name="study", headline="headline")\n'
PARAMETERS = """
from typing import Annotated
from pydantic import Field
from helpers import parameters

class Parameters(parameters.Parameters):
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(1, description="of nothing")
    redis_url: str = Field("", description="of nothing either")
"""


def write_study(studies: Path) -> Path:
    """Write the study into a folder of studies, and return that."""
    (studies / "study").mkdir(parents=True, exist_ok=True)
    (studies / "study" / "__init__.py").write_text(STUDY)
    (studies / "study" / "parameters.py").write_text(PARAMETERS)
    return studies


_kept = tempfile.TemporaryDirectory(prefix="made-")  # as long as this process lives
FOLDER = write_study(Path(_kept.name))
# The first lines of a script that finds the study too.
IN_SCRIPT = f"import studies; studies.__path__.append({str(FOLDER)!r})\n"
