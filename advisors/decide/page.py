"""What the page of decisions shows: needs, worked cases and the trial, computed when the book is built.

Answers to a grid of questions are kept beside the package: the browser looks them up.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from advisors.decide.choices import Choice, tell_number, tell_usd
from advisors.decide.evidence import load
from advisors.decide.question import Question
from advisors.decide.ranking import Answer, decide, rank
from advisors.decide.trial import SHAPE, TARGET, WITHIN, Score, Trial, score, try_all, try_clients
from helpers.book.studies import write_table

Given = Mapping[str, Any]

_FIELD: Given = {"shape": "87600,721,1440", "arrays": 55}
_GRANULE: Given = {"shape": "75000000", "access": "whole:1", "arrays": 1000, "chunks": "10000"}

QUESTIONS: Mapping[str, tuple[str, Given]] = {
    "fields": ("series and maps, 80:20", {**_FIELD, "access": "series:0.8,map:0.2"}),
    "series": ("series alone", {**_FIELD, "access": "series:1"}),
    "maps": ("maps alone", {**_FIELD, "access": "map:1"}),
    "granules": ("HDF5 granules, as they are", {**_GRANULE, "may_rewrite": False}),
    "archive": ("HDF5 granules that may be repacked", {**_GRANULE, "must_stay": "hdf5"}),
    "tiles": (
        "map tiles of a service",
        {
            "shape": "365,1800,3600",
            "access": "1x256x256@aligned:1",
            "arrays": 100,
            "requests_per_s": 185,
            "datasets": 100,
            "change_every_s": 86400,
        },
    ),
    "loader": (
        "random boxes of a loader",
        {
            "shape": "87600,721,1440",
            "access": "8x128x128:1",
            "cores": 8,
            "memory_gb": 32,
            "reads_per_month": 10_000_000,
        },
    ),
}
"""Needs of the table, and the questions that stand for them; four of them are worked through."""

_WIDTH = 72  # characters of a line of code

_OPTIONS = {"memory_gb": "memory", "dtype": "type", "change_every_s": "change-every"}


@cache
def answer(name: str) -> Answer:
    """Answer one of the questions, once."""
    return decide(Question.ask(**QUESTIONS[name][1]))


def tell_command(given: Given) -> str:
    """Write a question as the command that asks it.

    Examples
    --------
    >>> tell_command({"shape": "10,10", "may_rewrite": False})
    'wire decide --shape 10,10 --no-rewrite'
    """
    words = ["wire", "decide"]
    for name, value in given.items():
        if name == "may_rewrite":
            words.append("--may-rewrite" if value else "--no-rewrite")
        else:
            words += [f"--{_OPTIONS.get(name, name).replace('_', '-')}", f"{value}"]
    return shlex.join(words)


def _tell_support(choice: Choice) -> str:
    """Write how far a choice rests on a record, with the link to its page."""
    support = choice.support
    if not support.case:
        return support.confidence
    return f"{support.confidence}: [{support.case}]({support.url})"


def _tell_copies(choice: Choice) -> str:
    copies = f"{choice.n_copies} copies" if choice.n_copies > 1 else "one copy"
    return f"{choice.label}, {copies}"


def render_needs() -> str:
    """Write the first choice of each question, and below it what limits it and its lines of code."""
    rows, lines = [], []
    for name, (need, _) in QUESTIONS.items():
        found = answer(name)
        best = found.choices[0]
        rows.append(
            [
                need,
                f"{_tell_copies(best)}, {best.tell_layout(found.question.itemsize)}",
                f"{best.client}, {best.tell_reading()}",
                best.tell_times(),
                _tell_support(best),
            ]
        )
        bottlenecks = ", ".join(f"{one.limit} ({one.access})" for one in best.forecasts)
        lines.append([need, f"Bottleneck: {bottlenecks}. {best.limits}", _quote_lines(best.code)])
    head = ["need", "what is stored", "how it is read", "median (95th percentile)", "rests on"]
    limits = ["need", "what limits it", "its lines of code"]
    return f"{write_table(head, rows)}\nWhat limits each of them, and the lines that make it:\n\n{write_table(limits, lines)}"


_DECISIVE = re.compile(
    r"^ *(chunks=\(.*|zarr\.config\.set.*\)|.*TTLCache\(.*?\)+|headers = \{.*\}|with Thread.*|granule = .*):?,?(?:  #.*)?$",
    re.MULTILINE,
)


def _quote_lines(code: str) -> str:
    r"""Quote the lines of a program in which a choice shows: chunks, requests in flight, caches.

    Examples
    --------
    >>> _quote_lines('x = y\n    chunks=(5, 2), shards=None,\n')
    '`chunks=(5, 2), shards=None`'
    """
    return ", ".join(f"`{line.rstrip(',:')}`" for line in _DECISIVE.findall(code))


def render_case(name: str) -> str:
    """Write a worked case: its command, the choices, and of the first its limits and its code."""
    found = answer(name)
    best = found.choices[0]
    rows = [
        [
            f"{number}",
            f"{one.label}, {one.tell_layout(found.question.itemsize)}",
            f"{one.client}, {one.tell_reading()}",
            one.tell_times(),
            tell_usd(one.usd_month),
            _tell_support(one),
        ]
        for number, one in enumerate(found.choices, start=1)
    ]
    head = ["", "choice", "how it is read", "median (95th percentile)", "a month", "rests on"]
    parts = [
        f"```console\n$ {_fold(tell_command(QUESTIONS[name][1]))}\n```\n",
        f"**First choice: {_tell_copies(best)}, read by {best.client},"
        f" {tell_usd(best.usd_month)} a month.**\n",
        write_table(head, rows),
        "\n".join(_tell_limits(best)),
        f"To paste:\n\n```python\n{best.code}\n```\n",
    ]
    if best.support.case_file:
        parts.append(
            f"{best.support.confidence.capitalize()}: run this case to know.\n\n"
            f"```yaml\n{best.support.case_file}```\n"
        )
    return "\n".join([*parts, " ".join(found.notes), ""])


def _fold(command: str) -> str:
    """Break a command before its options into lines that a page shows whole."""
    lines: list[str] = []
    for part in command.split(" --"):
        if lines and len(lines[-1]) + len(part) < _WIDTH:
            lines[-1] += f" --{part}"
        else:
            lines.append(f"--{part}" if lines else part)
    return " \\\n    ".join(lines)


def _tell_limits(choice: Choice) -> list[str]:
    """List the bottleneck of each access, the bill line by line, and what is left out."""
    lines = [
        f"- {one.access}: {tell_number(one.n_requests)} requests and {tell_number(one.nbytes / 1e6)} MB;"
        f" the bottleneck is {one.limit}."
        for one in choice.forecasts
    ]
    bill = ", ".join(f"{name} {tell_usd(usd)}" for name, usd in choice.usd.items())
    lines += [f"- A month: {bill}.", f"- Measured: {choice.support.why}"]
    return [*lines, f"- {choice.limits}", ""] if choice.limits else [*lines, ""]


def render_trial() -> str:
    """Write how often the answer was right, case by case, and where it was not."""
    trials = try_all()
    of_shapes = (one for one in trials if one.about.startswith(SHAPE))
    by_model = [*of_shapes, *try_clients(load().rows, with_overheads=False)]
    by_case: dict[str, list[Trial]] = defaultdict(list)
    for one in trials:
        by_case[one.case].append(one)
    rows = [[_link(case), *_tell_score(score(each))] for case, each in sorted(by_case.items())]
    misses = sorted((one for one in trials if not one.is_within), key=lambda one: -one.ratio)
    head = ["case left out", "decisions", "the best", f"within {_NEARLY}", "or tied"]
    missed = ["case", "decision", "chosen", "measured best", "time over the best", "in pairs"]
    return "\n".join(
        [
            write_table(
                [*head, "median ratio", "worst ratio"],
                [*rows, ["all", *_tell_score(score(trials))]],
            ),
            f"{tell_verdict(score(trials), score(by_model))}\n",
            "The decisions that were furthest off, by the names of the case's page:\n",
            write_table(missed, [_tell_miss(one) for one in misses[:8]]),
        ]
    )


_NEARLY = f"{100 * (WITHIN - 1):.0f} %"


def tell_verdict(found: Score, by_model: Score) -> str:
    """Say whether the target is kept, by medians, how sure that is, and what less would have done."""
    kept = "kept" if found.within >= TARGET else "missed"
    low, high = (f"{100 * share:.0f}" for share in found.without)
    return (
        f"The target is {100 * TARGET:.0f} % within {_NEARLY} by medians: {kept},"
        f" at {100 * found.within:.0f} %, {found.n_within} of {found.n}."
        f" Of the others {found.n_tied} cannot be told apart from the measured best;"
        f" with these it is {found.n_within + found.n_tied} of {found.n}."
        f" Judged without one block of each record, by medians, it is {low} to {high} %."
        f" The model alone, without what clients took elsewhere, is within {_NEARLY} in"
        f" {100 * by_model.within:.0f} %, and a blind choice in {100 * found.by_chance:.0f} %."
    )


def _link(case: str) -> str:
    return f"[{case}](notebooks/{case})"


def _tell_score(found: Score) -> list[str]:
    shares = (found.n_best, found.n_within, found.n_within + found.n_tied)
    told = [f"{100 * n / found.n:.0f} %" for n in shares]
    return [f"{found.n}", *told, f"{found.median:.3g}", f"{found.worst:.3g}"]


def _tell_miss(one: Trial) -> list[str]:
    """Write a decision that was off, and whether the record can tell that it was."""
    chosen, best = (
        f"{name}, in no other case" if name in one.unseen else name
        for name in (one.chosen, one.best)
    )
    pairs = f"{one.pairs.low:.2g} to {one.pairs.high:.2g}{', a tie' * one.is_tied}"
    about = one.about.replace(", ", " for ", 1)
    return [_link(one.case), about, chosen, best, f"{one.ratio:.3g}", pairs]


PATH = Path(__file__).with_name("lookup.json")

OPTIONS: Mapping[str, Mapping[str, str]] = {
    "shape": {
        "8760,721,1440": "a year of hours, quarter degree",
        "87600,721,1440": "ten years of hours, quarter degree",
        "3650,1800,3600": "ten years of days, a tenth of a degree",
        "2048,2048,2048": "a volume of 2048 by 2048 by 2048 voxels",
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
    """Answer one question under every budget, in the texts that the page shows.

    The order of choices changes only where a budget reaches what one of them costs, so
    `orders` has one for no budget and one from each such amount on: the amount, the
    choices in their order, and how many of them fit.
    """
    question = Question.ask(**given)
    choices = list(decide(question).choices)
    orders: list[tuple[float | None, list[int], int]] = []
    for usd in (None, 0.0, *sorted({one.usd_month for one in choices})):
        ranked = rank(question.model_copy(update={"budget_usd_month": usd}), choices)
        costs_and_code = [(one.usd_month, one.code) for one in choices]
        order = [costs_and_code.index((one.usd_month, one.code)) for one in ranked]
        orders.append((usd, order, sum(not one.is_over_budget for one in ranked)))
    firsts = {order[0] for _, order, _ in orders}
    return {
        "choices": [tell_choice(choice, question.itemsize) for choice in choices],
        "cases": [choice.support.case for choice in choices],
        "codes": {str(i): choices[i].code for i in sorted(firsts)},
        "orders": orders,
    }


def tell_choice(choice: Choice, itemsize: int) -> list[str]:
    """Write a choice as the texts of a row."""
    return [
        f"{choice.label}, {choice.tell_layout(itemsize)}",
        f"{choice.client}, {choice.tell_reading()}",
        choice.tell_times(),
        tell_usd(choice.usd_month),
        choice.support.confidence,
    ]


def write_lookup(path: Path = PATH) -> int:
    """Answer the whole grid anew, which takes a minute or two; return the number of answers."""
    found = {" ".join(given.values()): look_up(given) for given in list_questions()}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in found.items())
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return len(found)


def render_lookup() -> str:
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
