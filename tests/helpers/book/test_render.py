"""Pages of the reference are executed anew over their rows, and nothing is measured."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nbformat
import pytest

from helpers.benchmark.provenance import RENDERED
from helpers.book import cli
from helpers.book.cases import Case, digest_rows, find_digest, is_altered, read_metadata
from helpers.book.render import count_blocks, render_case
from helpers.errors import UserError
from tests.helpers.book.test_run import write_notebook

ROWS = "contender,point,phase,block,versions\n" + "".join(
    f'{name},{point},measured,{block},"{{""zarr"": ""3.1.6""}}"\n'
    for name, point, n in (("a", "1", 5), ("b", "1", 5), ("a", "2", 3))
    for block in range(n)
)
SHOW = """
import pathlib
from helpers.benchmark.provenance import measured_with
n_blocks, pathlib.Path(record).read_text().count('measured'), measured_with('zarr')
"""


@pytest.fixture
def case(tmp_path: Path, made_study: None) -> Case:
    """A case in the reference, whose last load was stopped after three blocks of five."""
    case = Case("laptop", "study", "one", tmp_path)
    write_notebook(case.source, code=SHOW)
    case.parameter_file.parent.mkdir(parents=True)
    case.parameter_file.write_text("n_blocks: 5\n")
    page, rows = (case.result(suffix, "reference") for suffix in (".ipynb", ".csv"))
    page.parent.mkdir(parents=True)
    rows.write_text(ROWS)
    told = {"site": "laptop", "fingerprint": "of then", "harness": {}, "rows": digest_rows(rows)}
    page.write_text(json.dumps({"metadata": {"case": told, "papermill": {"duration": 278.9}}}))
    return case


def test_a_page_is_that_of_todays_notebook_over_the_same_rows(case: Case) -> None:
    """Outputs are new, rows and what is said of the run that measured are not; no file is left aside."""
    page, rows = (case.result(suffix, "reference") for suffix in (".ipynb", ".csv"))
    before = read_metadata(page)
    assert render_case(case) == page
    told = nbformat.read(page, as_version=4).cells[-1].outputs[0]["data"]["text/plain"]
    # as many blocks as it has whole, all of its rows, and what they were measured with
    assert told == "(3, 13, '3.1.6')"
    assert RENDERED not in os.environ
    assert rows.read_text() == ROWS
    assert not is_altered(page, rows)
    after = read_metadata(page)
    assert after["papermill"] == before["papermill"]
    assert after["case"]["harness"] == before["case"]["harness"]
    assert after["case"]["fingerprint"] != before["case"]["fingerprint"]
    assert find_digest(page) == before["case"]["rows"]
    assert {path.name for path in page.parents[1].parent.iterdir()} == {"laptop", "reference"}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("open(record, 'a').write('c,1,measured,0,\\n')", "measured what its record lacks"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_would_measure_or_fails_leaves_the_page(case: Case, code: str, told: str) -> None:
    """The reference stays as it was, page and rows."""
    page, rows = (case.result(suffix, "reference") for suffix in (".ipynb", ".csv"))
    before = page.read_text()
    write_notebook(case.source, code=code)
    with pytest.raises(UserError, match=told):
        render_case(case)
    assert (page.read_text(), rows.read_text()) == (before, ROWS)


def test_only_a_reference_is_rendered_and_alone(case: Case, tmp_path: Path) -> None:
    """A case without rows there is refused, and so is an option that measures."""
    assert count_blocks(case.result(".csv", "reference")) == 3
    with pytest.raises(UserError, match="study/two is not in the reference"):
        render_case(Case("laptop", "study", "two", tmp_path))
    with pytest.raises(UserError, match="--render: with an option to measure"):
        cli.run.main(["study/one", "--render", "--more"], standalone_mode=False)
