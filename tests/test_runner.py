"""Cases are run, resumed, refused and reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from helpers import promotion, runner
from helpers.errors import UserError
from helpers.runner import Case

MakeCase = Callable[..., Case]

SOURCE = """
import pathlib, sys
path = pathlib.Path(record)
path.write_text(path.read_text() + "again" if path.exists() else "once")
"""


def write_notebook(path: Path, *, code: str = SOURCE) -> None:
    """Write a notebook with the parameters of the book and one cell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parameters = nbformat.v4.new_code_cell(
        'seed: int = 1  # seed\nrecord: str = "x.csv"  # file', metadata={"tags": ["parameters"]}
    )
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(
        cells=[parameters, nbformat.v4.new_code_cell(code)], metadata=kernel
    )
    nbformat.write(notebook, path)


@pytest.fixture
def make_case(tmp_path: Path) -> MakeCase:
    """Make a project in a path with a space, with one notebook and cases."""
    root = tmp_path / "a project"

    def make(name: str = "one", text: str = "# why\nseed: 2\n", code: str = SOURCE) -> Case:
        write_notebook(root / "notebooks" / "study.ipynb", code=code)
        case = Case("laptop", "study", name, root)
        case.parameter_file.parent.mkdir(parents=True, exist_ok=True)
        case.parameter_file.write_text(text)
        return case

    return make


def test_a_case_leaves_notebook_and_record(make_case: MakeCase) -> None:
    """The result is what the notebook makes of the parameters."""
    case = make_case()
    assert runner.run_case(case, print).state == "done"
    executed = nbformat.read(case.result(".ipynb"), as_version=4)
    assert any("seed = 2" in cell.source for cell in executed.cells)
    assert case.result(".csv").read_text() == "once"


def test_a_case_that_is_done_is_not_run_again(make_case: MakeCase) -> None:
    """Resuming skips what is done, and runs it when asked to or when a parameter changed."""
    case = make_case()
    runner.run_case(case, print)
    assert runner.run_case(case, print).state == "done before"
    assert runner.run_case(case, print, anew=True).state == "done"
    make_case("one", "# why\nseed: 2\n", code=SOURCE + "# another comment")
    case.parameter_file.write_text("seed: 3\n")
    assert runner.run_case(case, print).state == "done"
    kept = list(case.result(".csv").parent.glob("one.2*.csv"))
    assert len(kept) >= 1  # the record of other parameters is kept


def test_an_interrupted_case_goes_on_with_its_record(make_case: MakeCase) -> None:
    """Rows of the same parameters are not set aside when the notebook did not end."""
    case = make_case(
        code=SOURCE + "assert pathlib.Path(record).read_text() != 'once', 'interrupted'"
    )
    assert runner.run_case(case, print).state == "failed"
    assert runner.run_case(case, print).state == "done"
    assert case.result(".csv").read_text() == "onceagain"


def test_a_failing_case_leaves_its_notebook_and_the_others_run(make_case: MakeCase) -> None:
    """The error is in a notebook of its own, in the last lines, with how to run the case alone."""
    bad = make_case("bad", "seed: 13\n", code=SOURCE + "assert seed != 13, 'unlucky'")
    good = make_case("good", "seed: 2\n", code=SOURCE + "assert seed != 13, 'unlucky'")
    outcomes = runner.run_cases([bad, good], print)
    assert [outcome.state for outcome in outcomes] == ["failed", "done"]
    assert not bad.result(".ipynb").exists()
    assert "unlucky" in bad.result(".failed.ipynb").read_text()
    last = runner.explain_failures(outcomes)
    assert "study/bad" in last[0]
    assert "unlucky" in last[0]
    assert "make run CASE=study/bad" in last[1]


def test_results_hold_no_path_of_the_machine(make_case: MakeCase) -> None:
    """Executed notebooks are published, so they name no folder of the one who ran them."""
    case = make_case(code=SOURCE + f"print({str(Path.home() / 'x')!r})")
    runner.run_case(case, print)
    text = case.result(".ipynb").read_text()
    assert str(Path.home()) + "/" not in text.replace(str(case.root), "")
    assert str(case.root) not in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sed: 2\n", "sed: 2; no such parameter; allowed: seed, record"),  # unknown
        ("seed: two\n", "seed: 'two'; allowed"),  # wrong type
        ("- seed\n", "allowed: NAME: VALUE"),  # no mapping
        ("seed: [\n", "is no YAML"),  # no YAML
    ],
)
def test_bad_parameter_files_are_refused(make_case: MakeCase, text: str, words: str) -> None:
    """Nothing runs, and a record that is there stays."""
    case = make_case("one", text)
    case.result(".csv").parent.mkdir(parents=True)
    case.result(".csv").write_text("measured before")
    outcome = runner.run_case(case, print)
    assert outcome.state == "refused"
    assert words in outcome.text
    assert "\n" not in outcome.text
    assert case.result(".csv").read_text() == "measured before"


def test_unknown_sites_and_cases_name_the_known_ones(make_case: MakeCase) -> None:
    """A typo is answered with what there is."""
    case = make_case()
    with pytest.raises(UserError, match="SITE: 'moon'; allowed: laptop"):
        runner.find_cases("moon", case.root)
    with pytest.raises(UserError, match="CASE: 'study/two'; allowed: study/one"):
        runner.find_case("study/two", "laptop", case.root)


def test_the_table_names_every_case(make_case: MakeCase) -> None:
    """State, duration and path of each case are in the table."""
    case = make_case()
    lines = runner.summarise(runner.run_cases([case], print))
    assert "study/one" in lines[1]
    assert "done" in lines[1]
    assert str(Path("results/laptop/study/one.ipynb")) in lines[1]


def test_time_left_is_read_from_the_reference(make_case: MakeCase) -> None:
    """Before a case ever ran here, the reference says how long it takes."""
    case = make_case()
    said: list[str] = []
    runner.run_case(case, print)
    notebook = json.loads(case.result(".ipynb").read_text())
    notebook["metadata"]["papermill"]["duration"] = 240.0
    reference = case.result(".ipynb", "reference")
    reference.parent.mkdir(parents=True)
    reference.write_text(json.dumps(notebook))
    shutil.rmtree(case.result(".ipynb").parent)
    runner.run_cases([case], said.append)
    assert "1 to run, about 4 minutes" in said[0]


def test_publishing_needs_five_blocks(make_case: MakeCase) -> None:
    """A reference record of fewer blocks is refused."""
    case = make_case(code='open(record, "w").write("phase,block\\nmeasured,0\\n")')
    runner.run_case(case, print)
    with pytest.raises(UserError, match="1 blocks; allowed: at least 5"):
        promotion.publish("laptop", case.root)


def test_publishing_needs_sources_of_a_commit(make_case: MakeCase) -> None:
    """A reference that nobody could make again is refused, and none of it is promoted."""
    rows = "".join(f"measured,{block},True\\n" for block in range(5))
    case = make_case(code=f'open(record, "w").write("phase,block,is_dirty\\n{rows}")')
    runner.run_case(case, print)
    with pytest.raises(UserError, match="in no commit; allowed: a record of a clean checkout"):
        promotion.publish("laptop", case.root)
    assert not case.result(".csv", "reference").exists()
