"""Published curves: which are which, and that the page says what the code computes."""

from __future__ import annotations

import re

import pytest

from advisors.scaling import curve
from advisors.scaling.score import (
    DEVELOPMENT,
    Kind,
    read_curves,
    render_score,
    score_curve,
    score_published,
    summarise,
)
from helpers.book.studies import find_studies
from helpers.paths import ROOT


def test_the_sets_are_apart() -> None:
    """Each beginning of a name stands for curves, and the sets share none and leave none out."""
    names = [kind.name for kind in read_curves()]
    assert len(set(names)) == len(names)
    for start in DEVELOPMENT:
        assert [name for name in names if name.startswith(start)], start
    sets = [{*score_published(is_development=which)} for which in (True, False)]
    assert not sets[0] & sets[1] and sets[0] | sets[1] == {*names}


def test_the_law_is_as_it_was_scored() -> None:
    """What the development curves chose stays, for the test curves have been seen since."""
    chosen = (curve._SCATTER, curve._FREEDOM, curve._REACH)
    assert chosen == (0.05, 2.0, 100.0), "another choice needs test curves not yet seen"


def test_the_page_shows_what_the_code_computes() -> None:
    """Every number of both tables is recomputed, and the page types none of its own."""
    text = render_score()
    for is_development in (True, False):
        scores = score_published(is_development=is_development)
        for law in next(iter(scores.values())).errors:
            middle, tail, wins = summarise(scores, law)
            assert f"| {middle:.1f} | {tail:.1f} | {wins:.0f}" in text
    fragments = {name: make for s in find_studies().values() for name, make in s.fragments.items()}
    assert fragments["scaling-score.md"]() == text
    page = (ROOT / "scale-out.md").read_text(encoding="utf-8")
    assert "```{include} _generated/scaling-score.md\n```" in page
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    assert not re.search(r"\d\s*(%|percent|times)", prose)


def test_no_law_sees_what_it_is_scored_on() -> None:
    """Other times in the larger half change the error and none of the predictions."""
    runs: dict[float, list[float]] = {n: [100 / n] for n in (1.0, 2.0, 4.0, 8.0)}
    slower = {n: [2 * one for one in seconds] if n > 2 else seconds for n, seconds in runs.items()}
    kind = Kind("", None, 1)
    found, other = score_curve(kind, runs).errors, score_curve(kind, slower).errors
    for law, error in found.items():
        # the same prediction, none below the measured times, over twice those times
        assert error < 1 and other[law] == pytest.approx(1 - (1 + error) / 2, abs=0.01)
