"""A first look: one block a case, of which nothing is published and which spoils nothing."""

from __future__ import annotations

import nbformat
import pytest
from click.testing import CliRunner

from helpers.book import build, cli, expected, run
from helpers.errors import UserError
from tests.helpers.book.test_run import MakeCase, make_case  # noqa: F401  # a fixture

ROWS = """
import pathlib
lines = "".join(f"measured,{block},False\\n" for block in range(n_blocks))
pathlib.Path(record).write_text("phase,block,is_dirty\\n" + lines)
"""


def test_a_first_look_has_one_block_and_is_told(make_case: MakeCase) -> None:  # noqa: F811
    """The table marks it, it is not published, and a whole run measures from the first block."""
    case = make_case(text="# why\nn_blocks: 5\n", code=ROWS)
    outcomes = run.run_cases([case], print, quick=True)
    assert case.result(".csv").read_text().count("measured") == 1
    lines = run.summarise(outcomes)
    assert "done, first look" in lines[1]
    assert any(line.startswith("first look: one block") for line in lines)
    with pytest.raises(UserError, match="study/one: not done; run it before"):
        build.publish("laptop", case.root)
    assert run.run_case(case, print, quick=True).verdict == "done before, first look"

    whole = run.run_cases([case], print)
    assert whole[0].verdict == "done"
    assert not any("first look" in line for line in run.summarise(whole))
    assert case.result(".csv").read_text().count("measured") == 5
    assert len([*case.result("").parent.glob("one.2*.csv")]) == 1, "the look is kept apart"
    assert run.run_case(case, print, quick=True).verdict == "done before", "and never comes back"
    assert build.publish("laptop", case.root)


def test_a_first_look_spoils_no_run_that_was_interrupted(make_case: MakeCase) -> None:  # noqa: F811
    """Rows of a whole run that did not end are neither mixed with a look nor set aside."""
    case = make_case(text="# why\nn_blocks: 5\n", code=ROWS + "raise KeyError('interrupted')")
    assert run.run_case(case, print).state == "failed"
    before = case.result(".csv").read_text()
    outcome = run.run_case(case, print, quick=True)
    assert outcome.state == "refused" and "--quick: study/one was begun whole" in outcome.text
    assert case.result(".csv").read_text() == before


def test_every_question_comes_first_and_time_is_bounded(
    make_case: MakeCase,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shortest case of each study comes before all others; what would end too late is named."""
    one, two = make_case("one"), make_case("two")
    other = run.Case(one.site, "another", "one", one.root)
    times = {one: 300.0, two: 200.0, other: 400.0}
    started: list[str] = []

    def note(case: run.Case, *_say: object, **_how: bool) -> run.Outcome:
        started.append(case.title)
        return run.Outcome(case, "done before", is_quick=True)

    monkeypatch.setattr(run, "run_case", note)
    monkeypatch.setattr(run, "expect_look_s", lambda case, *_: times[case])
    run.run_cases([one, two, other], print, quick=True)
    assert started == ["study/two", "another/one", "study/one"]
    monkeypatch.setattr(run, "QUICK_S", 350.0)
    outcomes = run.run_cases([one, two, other], print, quick=True)
    assert [outcome.state for outcome in outcomes] == [
        "done before",
        "left for later",
        "done before",
    ]
    monkeypatch.setattr(run, "QUICK_S", 1.0)
    outcomes = run.run_cases([one, two], print, quick=True)
    assert outcomes[0].state == "done before", "one case always starts"
    assert "left for later: 1 that would not have ended" in "\n".join(run.summarise(outcomes))
    assert run.explain_failures(outcomes) == []


def test_a_look_takes_what_the_first_block_of_the_reference_took(
    make_case: MakeCase,  # noqa: F811
) -> None:
    """Until it was over, what a page took beside its reads included; without one a part of the budget."""
    case = make_case(text="# why\nn_blocks: 5\n")
    assert expected.expect_look_s(case, print) == expected.AROUND_S
    at = "2026-01-01T00:{:02}:{:02}+00:00".format
    record = case.result(".csv", "reference")
    record.parent.mkdir(parents=True)
    lines = [
        f"calibration,0,{at(0, 0)},1,1,1",  # 3 s to the next
        f"measured,0,{at(0, 3)},,2,2",  # 4 s of network time, and an hour until it was continued
        f"measured,1,{at(58, 0)},,50,1",
        f"warm-up,1,{at(58, 50)},,1,1",
        f"measured,0,{at(58, 51)},,3,1",  # and what the page measures after that
    ]
    record.write_text("\n".join(["phase,block,started_utc,open_s,read_s,dilation", *lines]))
    for window, seconds in (((at(0, 0), at(0, 20), 20), 23), ((at(30, 0), at(30, 9), 9), 19)):
        page = dict(zip(("start_time", "end_time", "duration"), window, strict=True))
        notebook = nbformat.v4.new_notebook(metadata={"papermill": page})
        nbformat.write(notebook, case.result(".ipynb", "reference"))
        assert expected.expect_look_s(case, print) == seconds
    run.run_cases([case], print, quick=True)
    assert expected.expect_look_s(case, print) == 0, "what is done takes no time"


def test_minutes_stand_beside_their_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the shortest case of each study, and by all of them: 2 of 3 looks of seven minutes fit."""
    cases = [run.Case("laptop", *each) for each in (("a", "1"), ("a", "2"), ("b", "1"))]
    monkeypatch.setattr(expected, "find_cases", lambda _site: cases)
    monkeypatch.setattr(expected, "read_parameters", lambda _case: {"time_budget_s": 285})
    monkeypatch.setattr(expected, "read_look_s", lambda _case: 420.0)
    rows = [line.strip("| ").split(" | ") for line in expected.render_minutes().splitlines()[2:]]
    assert [row[1:] for row in rows] == [
        ["7", "4", "missed"],
        ["21", "60", "met"],
        ["14", "15", "met"],
        ["21", "15", "missed"],
    ]


@pytest.mark.parametrize("flag", ["--anew", "--more"])
def test_a_first_look_takes_no_place(flag: str) -> None:
    """What was measured whole is neither measured anew nor gone on with by one block."""
    for command in (["run-all"], ["run", "formats/in-region"]):
        called = {"run-all": cli.run_all, "run": cli.run}[command[0]]
        told = CliRunner().invoke(called, [*command[1:], "--quick", flag])
        assert isinstance(told.exception, UserError)
        assert str(told.exception) == f"--quick: together with {flag}; allowed: without it"
