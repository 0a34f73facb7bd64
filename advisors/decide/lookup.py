"""Answers to a grid of questions, kept beside the package: what the page looks up in the browser."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from advisors.decide.choices import Choice, tell_usd
from advisors.decide.question import Question
from advisors.decide.ranking import decide

PATH = Path(__file__).with_name("lookup.json")

OPTIONS: Mapping[str, Mapping[str, str]] = {
    "shape": {
        "8760,721,1440": "a year of hours, quarter degree",
        "87600,721,1440": "ten years of hours, quarter degree",
    },
    "dtype": {"float32": "float32", "int16": "int16"},
    "access": {
        "series:1": "time series",
        "series:0.8,map:0.2": "80 % series, 20 % maps",
        "series:0.2,map:0.8": "20 % series, 80 % maps",
        "map:1": "maps",
        "24x64x64:1": "boxes, 24x64x64",
    },
    "store": {"in-region": "in region", "other-region": "other region", "wide-area": "wide area"},
}
"""What a reader of the page chooses among, with what each is called there."""


def list_questions() -> Iterator[dict[str, str]]:
    """List every question of the grid."""
    for values in itertools.product(*OPTIONS.values()):
        yield dict(zip(OPTIONS, values, strict=True))


def look_up(given: Mapping[str, str]) -> dict[str, Any]:
    """Answer one question, in the texts that the page shows."""
    answer = decide(Question.ask(**given))
    itemsize = answer.question.itemsize
    best = answer.choices[0]
    told = [_tell(choice, itemsize) for choice in answer.choices]
    return {"choices": told, "case": best.support.case, "code": best.code}


def _tell(choice: Choice, itemsize: int) -> list[str]:
    return [
        f"{choice.label}, {choice.tell_layout(itemsize)}",
        f"{choice.client}, {choice.tell_reading()}",
        choice.tell_times(),
        tell_usd(choice.usd_month),
        choice.support.confidence,
    ]


def write(path: Path = PATH) -> int:
    """Answer the whole grid anew, which takes a minute or two; return the number of answers."""
    found = {" ".join(given.values()): look_up(given) for given in list_questions()}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in found.items())
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return len(found)


def render() -> str:
    """Write the place of the look-up in its page, with all answers."""
    answers = json.loads(PATH.read_text(encoding="utf-8"))
    data = json.dumps({"options": OPTIONS, "answers": answers}).replace("</", "<\\/")
    return (
        "```{raw} html\n"
        '<div id="decide-lookup"><p>The answers are looked up in your browser, which needs JavaScript; '
        "<code>wire decide</code> computes the same.</p></div>\n"
        f'<script type="application/json" id="decide-data">\n{data}\n</script>\n'
        "```\n"
    )
