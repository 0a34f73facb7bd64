"""What the page looks up is what the command answers, in a real browser too."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from advisors.decide import page
from advisors.decide.question import Question
from advisors.decide.ranking import decide
from helpers.paths import ROOT

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)  # fmt: skip
QUESTIONS = list(page.list_questions())


def read() -> dict[str, object]:
    """Read the answers that are kept."""
    found: dict[str, object] = json.loads(page.PATH.read_text(encoding="utf-8"))
    return found


def find_dearer(given: Mapping[str, str]) -> Any:
    """Return the answer to a question if a budget changes its first choice."""
    answer: Any = read()[" ".join(given.values())]
    changed = answer["orders"][-2][1][0] != answer["orders"][0][1][0]
    return answer if changed and given["dtype"] != "float32" else None


def test_every_question_has_its_answer() -> None:
    """No more and no fewer."""
    assert {*read()} == {" ".join(given.values()) for given in QUESTIONS}


@pytest.mark.parametrize("number", [0, len(QUESTIONS) // 2, len(QUESTIONS) - 1])
def test_answers_are_those_of_the_command(number: int) -> None:
    """`wire decide --derive` would change none of those that are tried, and a budget is the command's."""
    given = QUESTIONS[number]
    kept: Any = read()[" ".join(given.values())]
    assert json.loads(json.dumps(page.look_up(given))) == kept, "run `wire decide --derive`"
    for usd, order, n_fit in kept["orders"]:
        budget = {} if usd is None else {"budget_usd_month": usd or 1e-6}
        answer = decide(Question.ask(**given, **budget))
        itemsize = answer.question.itemsize
        told = [page.tell_choice(choice, itemsize) for choice in answer.choices]
        assert told == [kept["choices"][i] for i in order]
        assert sum(not one.is_over_budget for one in answer.choices) == n_fit
        assert kept["codes"][str(order[0])] == answer.choices[0].code


@pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome on PATH")
def test_the_page_shows_what_was_asked_for(tmp_path: Path) -> None:
    """The address says what is chosen; table, code and command are those of the answer."""
    given, answer = next((given, one) for given in QUESTIONS if (one := find_dearer(given)))
    first, order, n_fit = answer["orders"][-2]
    script = (ROOT / "_static" / "decide.js").read_text(encoding="utf-8")
    place = page.render_lookup().removeprefix("```{raw} html\n").removesuffix("```\n")
    path = tmp_path / "page.html"
    path.write_text(f'<!doctype html><meta charset="utf-8">{place}<script>{script}</script>')
    command = [str(BROWSER), "--headless=new", "--disable-gpu", "--virtual-time-budget=5000"]
    command += [f"--user-data-dir={tmp_path / 'user'}", "--dump-dom"]
    command += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    asked = "&".join(f"{name}={value}" for name, value in {**given, "budget": first}.items())
    done = subprocess.run(
        [*command, f"{path.as_uri()}#{asked}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    shown = html.unescape(re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL))
    cells = [
        text + ", over the budget" * (text.endswith(" USD") and place >= n_fit)
        for place, i in enumerate(order)
        for text in answer["choices"][i]
    ]
    assert re.findall("<td[^>]*>(.*?)</td>", shown) == cells
    assert answer["codes"][str(order[0])] in shown
    assert f"wire decide --shape {given['shape']} --type {given['dtype']}" in shown
    assert f"--budget-usd-month {first!r}" in shown
    assert shown.count("<select") == len(page.OPTIONS)
