"""The thresholds of every study, read from the executed notebooks of its cases, and the verdicts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import nbformat
import pandas as pd

from helpers.benchmark.statistics import Interval
from helpers.book import cases as runner
from helpers.book.studies import Study, Threshold, find_studies
from helpers.paths import ROOT

Verdict = Literal["met", "missed", "undecided", "reported only", "not measured"]
Glued = Mapping[str, Mapping[str, str]]
"""Glued findings by the title of their case and their key."""

_NUMBER = re.compile(
    r"(?P<centre>-?\d[\d.]*)[^\[(\d]*"
    r"(?:[\[(](?P<low>-?\d[\d.]*)(?: to |, )(?P<high>-?\d[\d.]*)[\])])?"
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A threshold, what was measured, and where."""

    threshold: Threshold
    value: Interval | None
    where: str = ""

    @property
    def is_target(self) -> bool:
        """Whether it is held to anything, and not only reported."""
        return self.threshold.bound != (0 if self.threshold.is_least else math.inf)

    @property
    def verdict(self) -> Verdict:
        """Whether the whole interval lies on one side of the bound; the value, if it has none."""
        if self.value is None:
            return "not measured"
        if not self.is_target:
            return "reported only"
        ends = [self.value.low, self.value.high] if self.value.n > 1 else [self.value.centre]
        sign = 1 if self.threshold.is_least else -1
        kept = [sign * end >= sign * self.threshold.bound for end in ends]
        return "met" if all(kept) else "undecided" if any(kept) else "missed"

    @property
    def target(self) -> str:
        """The bound in words."""
        sign = "at least" if self.threshold.is_least else "at most"
        return f"{sign} {self.threshold.bound:g}" if self.is_target else "none"


def read_number(text: str) -> Interval | None:
    """Read a glued finding that begins with a number, and its interval if it tells one.

    Examples
    --------
    >>> read_number("1.41 (1.35 to 1.47)")
    Interval(centre=1.41, low=1.35, high=1.47, n=2, note='')
    >>> read_number("1.11 [0.928, 1.3] times (indistinguishable)").high
    1.3
    >>> read_number("4.6 %").centre, read_number("none up to 8")
    (4.6, None)
    """
    found = _NUMBER.match(text)
    if found is None:
        return None
    centre = float(found["centre"].rstrip("."))
    if found["low"] is None:
        return Interval(centre, math.nan, math.nan, 1)
    return Interval(centre, float(found["low"]), float(found["high"]), 2)


def read_glued(site: str) -> dict[str, dict[str, str]]:
    """Read what the executed cases of a site glued; of the reference where a case has not run here."""
    found = {}
    for case in runner.find_cases(site):
        path = case.result(".ipynb")
        path = path if path.exists() else case.result(".ipynb", "reference")
        if path.exists():
            notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
            found[case.title] = runner.list_glued(notebook)
    return found


def judge_all(glued: Glued, site: str) -> list[Judged]:
    """Judge the thresholds of every study by its worst case, and those of whole runs."""
    studies = find_studies()
    judged = [judge(study, one, glued) for study in studies.values() for one in study.thresholds]
    return [*judged, *_judge_runs(site, studies)]


def judge(study: Study, threshold: Threshold, glued: Glued) -> Judged:
    """Judge a threshold by the worst of the cases that tell it."""
    found = {
        f"{title}, {key}": number
        for title, texts in glued.items()
        if title.split("/")[0] == study.name
        for key, text in texts.items()
        if f"-{key}".endswith(f"-{threshold.key}") and (number := read_number(text))
    }
    if not found:
        return Judged(threshold, None)
    worst = min if threshold.is_least else max
    where = worst(found, key=lambda name: found[name].centre)
    told = f"worst of {len(found)}: {where}" if len(found) > 1 else where
    return Judged(threshold, found[where], told)


def _judge_runs(site: str, studies: Mapping[str, Study]) -> list[Judged]:
    """Judge what the last whole run of a site and the set-up took, if they ran here."""
    run, setup = ROOT / "results" / site / "run-all.json", ROOT / ".venv" / "setup.json"
    judged = _describe_run(json.loads(run.read_text()), studies) if run.exists() else []
    if setup.exists():
        how = "environment and S3 server, as the last `make env` took"
        minutes = json.loads(setup.read_text())["seconds"] / 60
        judged.append(_whole("minutes of the first set-up", minutes, 6, how))
    return judged


def _describe_run(note: Mapping[str, Any], studies: Mapping[str, Study]) -> list[Judged]:
    """Describe a whole run: minutes of each study with a target, of one case, of all, and memory."""
    seconds: dict[str, float] = note["cases"]
    slowest = max(seconds, key=lambda title: seconds[title])
    of_all = f"wall time of {len(seconds)} cases and the book, in the last run of every case"
    memory = "sum of the peaks of all its processes, each shared page counted in each"
    judged = []
    for name, study in studies.items():
        own = [took for title, took in seconds.items() if title.startswith(f"{name}/")]
        if own and study.minutes < math.inf:
            how = f"wall time of its {len(own)} cases, in the last run of every case"
            judged.append(_whole(f"minutes of {name}", sum(own) / 60, study.minutes, how))
    return [
        *judged,
        _whole("minutes of the longest case", seconds[slowest] / 60, 4, f"wall time of {slowest}"),
        _whole("minutes of run-all", note["seconds"] / 60, math.inf, of_all),
        _whole("peak memory of run-all (GB)", note["peak_nbytes"] / 1e9, 6, memory),
    ]


def _whole(name: str, value: float, bound: float, how: str) -> Judged:
    threshold = Threshold(key="", name=name, bound=bound, is_least=False, how=how)
    return Judged(threshold, Interval(value, math.nan, math.nan, 1))


def tabulate(judged: list[Judged]) -> pd.DataFrame:
    """Tabulate thresholds: value and interval, target, verdict, and how each was computed."""
    lines = [
        (
            one.threshold.name,
            _tell(one.value),
            one.target,
            one.verdict,
            "; ".join(filter(None, [one.threshold.how, one.where])),
        )
        for one in judged
    ]
    names = ["threshold", "measured", "target", "verdict", "how"]
    return pd.DataFrame(lines, columns=names).set_index("threshold")


def _tell(value: Interval | None) -> str:
    if value is None:
        return "—"
    ends = f" ({value.low:.3g} to {value.high:.3g})" if value.n > 1 else ""
    return f"{value.centre:.3g}{ends}"


def tell_met(judged: list[Judged]) -> str:
    """Say how many thresholds are met, of those with a target that were measured."""
    verdicts = [one.verdict for one in judged if one.is_target and one.value]
    n_met = verdicts.count("met")
    rest = [f"{n} {name}" for name in ("missed", "undecided") if (n := verdicts.count(name))]
    more = f" ({', '.join(rest)})" if rest else ""
    return f"{n_met} of {len(verdicts)} thresholds are met{more}"


def render(site: str = "laptop") -> str:
    """Write the thresholds of every study as a table for the page, and below it how each came about."""
    judged = judge_all(read_glued(site), site)
    lines = [f"{tell_met(judged)}.", "", "| threshold | measured | target | verdict |"]
    lines.append("| --- " * 4 + "|")
    table = tabulate(judged)
    for name, value, target, verdict in table.drop(columns="how").itertuples():
        told = f"**{verdict}**" if verdict == "missed" else verdict
        lines.append(f"| {name} | {value} | {target} | {told} |")
    lines += ["", "How each is computed:", ""]
    for name, how in table["how"].items():
        lines += [str(name), f": {how}", ""]
    return "\n".join(lines)
