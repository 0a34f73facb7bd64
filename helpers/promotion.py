"""Promote results of a site to the reference that the published book shows."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pandas as pd

from helpers.errors import UserError
from helpers.paths import ROOT
from helpers.redaction import copy_redacted
from helpers.runner import Case, find_cases, is_done, read_parameters


def publish(site: str, root: Path = ROOT) -> list[Path]:
    """Promote the results of a site to the reference that the book shows.

    Raises
    ------
    UserError
        If a case is not done, has fewer than five blocks, or was measured with
        sources that are in no commit; nothing is promoted then.
    """
    cases = find_cases(site, root)
    for case in cases:
        _refuse(case)
    copied = []
    for case in cases:
        for suffix in (".ipynb", ".csv"):
            target = case.result(suffix, "reference")
            target.parent.mkdir(parents=True, exist_ok=True)
            copied.append(copy_redacted(case.result(suffix), target))
    return [*copied, *_publish_bench(site, root), _publish_headline(root)]


def _refuse(case: Case) -> None:
    """Refuse a result that nobody could make again, or that says too little."""
    if not is_done(case, read_parameters(case)):
        raise UserError(f"{case.title}: not done; run it before it becomes the reference")
    rows = pd.read_csv(case.result(".csv"))
    n_blocks = rows.loc[rows["phase"] == "measured", "block"].nunique()
    if n_blocks < 5:
        raise UserError(
            f"{case.title}: {n_blocks} blocks; allowed: at least 5 in a reference record"
        )
    if rows["is_dirty"].any():
        raise UserError(
            f"{case.title}: measured with sources that are in no commit; allowed: a record of a clean checkout"
        )


def _publish_bench(site: str, root: Path) -> list[Path]:
    """Promote the bars that were measured at a site, if they were."""
    target = root / "results" / "reference" / "bench"
    target.mkdir(parents=True, exist_ok=True)
    found = sorted((root / "results" / site).glob("bench*.*"))
    return [copy_redacted(path, target / path.name) for path in found]


def _publish_headline(root: Path) -> Path:
    """Take the figure that the README shows out of its notebook."""
    notebook = root / "results" / "reference" / "cluster-scaling" / "in-region.ipynb"
    target = root / "results" / "reference" / "headline.svg"
    for cell in nbformat.read(notebook, as_version=4).cells:  # type: ignore[no-untyped-call]
        figure = cell.metadata.get("mystnb", {}).get("figure", {}).get("name")
        for output in cell.get("outputs", []):
            if figure == "fig-scaling" and "image/svg+xml" in output.get("data", {}):
                target.write_text(output["data"]["image/svg+xml"], encoding="utf-8")
    return target
