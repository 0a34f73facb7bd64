"""A page of the reference executed anew over the rows that it has, by the notebook of today."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.benchmark.provenance import RENDERED
from helpers.benchmark.record import read_records
from helpers.book.cases import Case, digest_rows, fingerprint, lock_case, read_parameters
from helpers.book.findings import SUFFIX
from helpers.book.run import execute
from helpers.errors import UserError

_MEASURED_BY = ("papermill", "kernelspec", "language_info")  # of the run that made the rows


def render_case(case: Case) -> Path:
    """Execute the notebook of a case over the rows of the reference, and put its page in their place.

    The rows stay as they are, also those of a record that its time budget ended: as many blocks
    are asked for as it has whole. What the page says of its run is of the run that measured,
    which may have had another machine and other versions.
    A notebook that measures something nevertheless leaves the page as it was.

    Returns
    -------
    Path
        The executed notebook, in the reference.

    Raises
    ------
    UserError
        If the reference has no rows of the case, if its parameters are refused, if the notebook
        fails, or if it measures.
    """
    page, rows = (case.result(suffix, "reference") for suffix in (".ipynb", ".csv"))
    if not (page.exists() and rows.exists()):
        raise UserError(
            f"--render: {case.title} is not in the reference; allowed: a case with page and rows there"
        )
    values = read_parameters(case) | _measured_over(rows)
    with lock_case(case), tempfile.TemporaryDirectory(dir=case.root / "results", prefix=".") as at:
        aside = Case(case.site, case.notebook, case.name, Path(at))
        for name in ("notebooks", "parameters"):
            (aside.root / name).symlink_to(case.root / name)
        aside.result(".csv").parent.mkdir(parents=True)
        for suffix in (".csv", ".runs.json"):
            shutil.copyfile(case.result(suffix, "reference"), aside.result(suffix))
        with _of_versions(rows):
            problem = execute(aside, values | {"n_blocks": count_blocks(rows)})
        if problem:
            raise UserError(f"--render: {case.title}: {problem}")
        if digest_rows(aside.result(".csv")) != digest_rows(rows):
            raise UserError(
                f"--render: {case.title} measured what its record lacks; allowed: a record with all"
                " contenders of the case (without --render it is measured)"
            )
        if (findings := aside.result(SUFFIX)).exists():
            shutil.copyfile(findings, rows.with_suffix(SUFFIX))
        page.write_text(_carry_over(page, aside.result(".ipynb"), case, values), encoding="utf-8")
    return page


def _measured_over(rows: Path) -> dict[str, Any]:
    """Find the network and the dilation that rows were measured over: those of the case may be others now."""
    asked = json.loads(pd.read_csv(rows).get("parameters", pd.Series(["{}"])).iloc[-1])
    return {name: asked[name] for name in ("profile", "dilation") if name in asked}


@contextmanager
def _of_versions(rows: Path) -> Iterator[None]:
    """Tell kernels which versions measured what they render: they may be others than are here."""
    found = read_records([rows])["versions"].unique()
    versions = {name: version for text in found for name, version in json.loads(text).items()}
    os.environ[RENDERED] = json.dumps(versions)
    try:
        yield
    finally:
        del os.environ[RENDERED]


def count_blocks(rows: Path) -> int:
    """Count the blocks that a record has whole, of whatever it measured least; at least 1.

    Contenders and loads that are measured apart may have been stopped apart.
    """
    measured = pd.read_csv(rows).query("phase == 'measured'")
    blocks = measured.groupby(["contender", "point"])["block"].nunique()
    return max(1, int(blocks.min())) if len(blocks) else 1


def _carry_over(page: Path, anew: Path, case: Case, values: dict[str, Any]) -> str:
    """Write the new page, with what the old one says of the run that measured."""
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (page, anew))
    before = old["metadata"]
    new["metadata"] |= {name: before[name] for name in _MEASURED_BY if name in before}
    told = {"fingerprint": fingerprint(case, values), "rows": digest_rows(anew.with_suffix(".csv"))}
    new["metadata"]["case"] = {**before.get("case", {}), **told}
    return json.dumps(new, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
