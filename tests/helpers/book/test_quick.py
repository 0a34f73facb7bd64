"""A first look: one block a case, of which nothing is published and which spoils nothing."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from helpers.book import build, cli, run
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
    """The first case of each study comes before second ones; what is left is named."""
    one, two = make_case("one"), make_case("two")
    other = run.Case(one.site, "another", "one", one.root)
    started: list[str] = []

    def note(case: run.Case, *_say: object, **_how: bool) -> run.Outcome:
        started.append(case.title)
        return run.Outcome(case, "done before", is_quick=True)

    monkeypatch.setattr(run, "run_case", note)
    run.run_cases([one, two, other], print, quick=True)
    assert started == ["study/one", "another/one", "study/two"]
    monkeypatch.setattr(run, "QUICK_S", -1.0)
    outcomes = run.run_cases([one, two], print, quick=True)
    assert {outcome.state for outcome in outcomes} == {"left for later"}
    assert "left for later: 2 that did not start" in "\n".join(run.summarise(outcomes))
    assert run.explain_failures(outcomes) == []


@pytest.mark.parametrize("flag", ["--anew", "--more"])
def test_a_first_look_takes_no_place(flag: str) -> None:
    """What was measured whole is neither measured anew nor gone on with by one block."""
    for command in (["run-all"], ["run", "formats/in-region"]):
        called = {"run-all": cli.run_all, "run": cli.run}[command[0]]
        told = CliRunner().invoke(called, [*command[1:], "--quick", flag])
        assert isinstance(told.exception, UserError)
        assert str(told.exception) == f"--quick: together with {flag}; allowed: without it"
