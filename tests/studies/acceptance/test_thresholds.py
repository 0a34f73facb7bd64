"""The thresholds of every study: read from texts, judged by the worst case and its interval."""

from __future__ import annotations

import math
import re

import pytest

from helpers.benchmark.statistics import Interval
from helpers.book.studies import Study, Threshold, find_studies
from helpers.paths import ROOT
from studies.acceptance import STUDY, findings
from studies.acceptance.findings import Judged, judge, read_number

LEAST = Threshold(key="gain", name="a gain", bound=1.3, is_least=True, how="measured")
MOST = Threshold(key="error", name="an error (%)", bound=20, is_least=False, how="measured")
FREE = Threshold(key="gain", name="a gain", bound=0, is_least=True, how="measured")
MADE = Study(name="made", headline="gain", thresholds=(LEAST, MOST))


@pytest.mark.parametrize(
    ("threshold", "text", "verdict"),
    [
        (LEAST, "1.41 (1.35 to 1.47)", "met"),
        (LEAST, "1.41 (1.2 to 1.47)", "undecided"),
        (LEAST, "1.2 (1.1 to 1.29)", "missed"),
        (MOST, "12 (11 to 21)", "undecided"),
        (MOST, "30 (21 to 40)", "missed"),
        # Without an interval the value decides, the bound included.
        (LEAST, "1.3 times", "met"),
        (MOST, "20.1 %", "missed"),
        (FREE, "0.4 (0.3 to 0.5)", "reported only"),
        # Words are no number, nor is what was not measured.
        (LEAST, "not measured", "not measured"),
    ],
)
def test_verdicts(threshold: Threshold, text: str, verdict: str) -> None:
    """The whole interval decides, and where it lies on both sides nothing is decided."""
    assert Judged(threshold, read_number(text)).verdict == verdict


def test_negative_ends_are_read() -> None:
    """A slope may be negative, with either end."""
    assert read_number("-3.01 (-11.5 to -0.5)") == Interval(-3.01, -11.5, -0.5, 2)


def test_the_worst_case_counts() -> None:
    """Of all cases of the study, also under keys that end with that of the threshold."""
    glued = {
        "made/a": {"gain": "1.9 times", "error": "4 %"},
        "made/b": {"hdf5-gain": "1.5 times", "error": "9 %"},
        "other/c": {"gain": "0.1 times", "again": "0.2"},
    }
    least, most = (judge(MADE, one, glued) for one in MADE.thresholds)
    assert (least.value and least.value.centre, least.where) == (1.5, "worst of 2 cases: b")
    assert (most.value and most.value.centre, most.where) == (9.0, "worst of 2 cases: b")
    assert judge(MADE, LEAST, {}).verdict == "not measured"
    # A smaller gain that is undecided hides none that is missed.
    glued = {"made/c-d": {"gain": "1.2 [1.15, 1.23]"}, "made/e": {"gain": "1.1 [0.9, 1.4]"}}
    assert (judge(MADE, LEAST, glued).verdict, judge(MADE, LEAST, glued).where) == (
        "missed",
        "worst of 2 cases: c d",
    )


def test_a_page_judges_what_it_tells() -> None:
    """Thresholds of its own study, by their intervals; one without a target is counted apart."""
    own = findings.judge_own({"share-of-ceiling": "0.928 (0.91 to 0.956)", "aa-noise": "4 %"})
    assert [(one.threshold.key, one.verdict) for one in own] == [("share-of-ceiling", "met")]
    assert findings.tell_met(own) == "1 of 1 thresholds are met"
    assert findings.tell_met(findings.judge_own({"over-netcdf": "2"})).startswith("reported only")


def test_every_threshold_of_every_study_is_tabulated() -> None:
    """None is listed by hand, and those that nobody measured stand there too."""
    judged = findings.judge_all({}, "no-such-site")
    names = {one.name for study in find_studies().values() for one in study.thresholds}
    assert names <= {one.threshold.name for one in judged}
    table = findings.tabulate_thresholds(judged)
    assert set(table.loc[sorted(names), "verdict"]) == {"not measured"}


def test_whole_runs_are_held_to_minutes_and_memory() -> None:
    """A study has a target of its own where it declares one; the sum of its cases is held to it."""
    note = {
        "cases": {"made/a": 300.0, "made/b": 420.0, "free/c": 60.0},
        "seconds": 3700.0,
        "peak_nbytes": 7e9,
    }
    studies = {
        "made": Study(name="made", headline="", minutes=11),
        "free": Study(name="free", headline=""),
    }
    found = {one.threshold.name: one for one in findings._judge_run(note, studies)}
    assert found["minutes of made"].value == Interval(12.0, pytest.approx(math.nan, nan_ok=True), pytest.approx(math.nan, nan_ok=True), 1)  # fmt: skip
    assert found["minutes of made"].verdict == "missed"
    assert found["minutes of the longest case"].verdict == "missed"
    assert found["minutes of run-all"].verdict == "missed"
    assert found["peak memory of run-all (GB)"].verdict == "missed"
    assert "minutes of free" not in found


def test_the_count_names_what_is_not_met() -> None:
    """Only thresholds with a target that were measured count."""
    texts = ["1.4", "1.2", "1.4 (1.2 to 1.6)", "not measured"]
    judged = [Judged(LEAST, read_number(text)) for text in texts]
    judged.append(Judged(FREE, read_number("1")))
    assert findings.tell_met(judged) == "1 of 3 thresholds are met (1 missed, 1 undecided)"


def test_the_page_shows_every_threshold() -> None:
    """The fragment has a line for each, and says how each is computed; the page why it is missed."""
    text = STUDY.fragments["thresholds.md"]()
    for study in find_studies().values():
        for one in study.thresholds:
            assert f"| {one.name} |" in text and f": {one.how}" in text
    missed = re.findall(r"^\| ([^|]+) \|[^|]*\|[^|]*\| \*\*missed\*\* \|", text, re.MULTILINE)
    told = (ROOT / "acceptance.md").read_text(encoding="utf-8").lower()
    own = [name for name in missed if not name.startswith(("minutes of", "peak memory of"))]
    assert own and not [name for name in own if f"*{name.lower()}.*" not in told]


def test_every_ratio_has_a_threshold() -> None:
    """What is compared is declared, so that it reaches the table."""
    keys = {one.key for one in STUDY.thresholds}
    assert {*findings.RATIOS, *findings._SLOPES} < keys
