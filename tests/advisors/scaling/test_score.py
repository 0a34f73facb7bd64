"""Published curves: which are which, and that the page says what the code computes."""

from __future__ import annotations

import re

import pytest

from advisors.scaling import curve
from advisors.scaling.score import (
    DEVELOPMENT,
    Kind,
    fit_all_sizes,
    read_curves,
    render_score,
    score_curve,
    score_published,
    summarise,
    tell_curve,
    tell_why,
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


def test_the_page_says_why() -> None:
    """All curves beyond the target are named, with what hindsight and all sizes would give."""
    scores, whole, text = score_published(is_development=False), fit_all_sizes(), tell_why()
    assert {*whole} == {*scores}
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line][1:]
    beyond = [name for name, score in scores.items() if score.errors["transfer"] > 0.25]
    assert len(rows) == len(beyond)
    for name, row in zip(beyond, rows, strict=True):
        ours, best, fitted = (float(cell) for cell in row.rstrip(" |").split(" | ")[3:])
        assert row.startswith(f"| {tell_curve(name)} |") and best <= ours
        assert fitted == pytest.approx(100 * whole[name], abs=0.06)
    # a law that saw the scored sizes is never far off, so what lacks is in them
    assert max(whole.values()) < 0.1 and f"of {len(scores)} test curves no knee is seen" in text


def test_no_law_sees_what_it_is_scored_on() -> None:
    """Other times in the larger half change the error and none of the predictions."""
    runs: dict[float, list[float]] = {n: [100 / n] for n in (1.0, 2.0, 4.0, 8.0)}
    slower = {n: [2 * one for one in seconds] if n > 2 else seconds for n, seconds in runs.items()}
    kind = Kind("", None, 1)
    found, other = score_curve(kind, runs).errors, score_curve(kind, slower).errors
    for law, error in found.items():
        # the same prediction, none below the measured times, over twice those times
        assert error < 1 and other[law] == pytest.approx(1 - (1 + error) / 2, abs=0.01)
