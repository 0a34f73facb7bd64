"""What an executed notebook says: findings that it glued, and how long it took."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import nbformat

from helpers.runner.cases import Case, read_metadata

HEADLINES = ("headline", "best-throughput")
"""Keys of the glued finding that the table of cases shows; the first that a notebook has."""


UNSTABLE_ABOVE = 0.1
"""A/A noise above which a case is unstable.

The pages rank contenders that differ by a tenth; where two copies of one
contender differ by more, such an order is the machine's doing.
"""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the table of cases says of an executed notebook.

    Parameters
    ----------
    headline : str
        Its finding; empty if it has none.
    noise : float
        By which part two copies of one contender differ (A/A); NaN if unknown.
    n_blocks : int
        Measured blocks; 0 if unknown.
    """

    headline: str = ""
    noise: float = math.nan
    n_blocks: int = 0

    @property
    def is_unstable(self) -> bool:
        """Whether the noise is above what the project trusts."""
        return self.noise > UNSTABLE_ABOVE


def duration_s(case: Case, site: str = "") -> float:
    """Read how long a case took, here or in the reference; 0 if nobody knows."""
    told = read_metadata(case.result(".ipynb", site))
    return float(told.get("papermill", {}).get("duration") or 0.0)


def findings_of(case: Case) -> Findings:
    """Read what the table says of a case that ran."""
    return read_findings(nbformat.read(case.result(".ipynb"), as_version=4))  # type: ignore[no-untyped-call]


def read_findings(notebook: Any) -> Findings:
    """Read headline, noise and blocks from what a notebook glued."""
    noise = re.match(r"[\d.]+(?= %)", read_glued(notebook, "aa-noise"))
    blocks = re.match(r"\d+", read_glued(notebook, "n-blocks"))
    return Findings(
        read_headline(notebook),
        float(noise[0]) / 100 if noise else math.nan,
        int(blocks[0]) if blocks else 0,
    )


def read_headline(notebook: Any) -> str:
    """Read the finding that the table of cases shows; empty if a notebook has none."""
    return next(filter(None, (read_glued(notebook, key) for key in HEADLINES)), "")


def read_glued(notebook: Any, key: str) -> str:
    """Read a text that a notebook glued under a key; empty if it did not."""
    return list_glued(notebook).get(key, "")


def list_glued(notebook: Any) -> dict[str, str]:
    """List all texts that a notebook glued, by key."""
    found = {}
    for output in (output for cell in notebook["cells"] for output in cell.get("outputs", [])):
        name = output.get("metadata", {}).get("scrapbook", {}).get("name", "")
        if name:
            key = name.removeprefix("application/papermill.record/")
            found[key] = str(next(iter(output["data"].values()))).strip("'\"")
    return found
