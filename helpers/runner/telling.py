"""What became of the cases, in a table, in words and for the bars."""

from __future__ import annotations

import json
from collections.abc import Sequence

from helpers.paths import ROOT
from helpers.runner.running import Outcome


def summarise(outcomes: Sequence[Outcome]) -> list[str]:
    """Write the table of cases."""
    table = [("case", "state", "time", "headline", "notebook")]
    for outcome in outcomes:
        headline = outcome.text if outcome.state.startswith("done") else ""
        took = f"{outcome.seconds:.0f} s"
        table.append((outcome.case.title, outcome.state, took, headline, _relative(outcome)))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [_align(line, widths) for line in table]


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Write a line of the table; durations stand to the right."""
    case, state, took, *rest = (
        f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)
    )
    return "  ".join([case, state, f"{took.strip():>{widths[2]}}", *rest]).rstrip()


def explain_failures(outcomes: Sequence[Outcome]) -> list[str]:
    """Say which cases failed, why, and how to run each alone; empty if none did."""
    lines = []
    for outcome in outcomes:
        if outcome.state in ("failed", "refused"):
            lines.append(f"{outcome.case.title} {outcome.state}: {outcome.text}")
            lines.append(
                f"  run it alone: make run CASE={outcome.case.title} SITE={outcome.case.site}"
            )
    return lines


def _relative(outcome: Outcome) -> str:
    suffix = {"failed": ".failed.ipynb", "refused": ""}.get(outcome.state, ".ipynb")
    path = outcome.case.result(suffix) if suffix else outcome.case.parameter_file
    return str(path.relative_to(outcome.case.root))


def note_whole_run(site: str, outcomes: Sequence[Outcome], **took: float) -> None:
    """Keep what a run of every case took, for the bars: `seconds` and `peak_nbytes`."""
    cases = {outcome.case.title: round(outcome.seconds, 1) for outcome in outcomes}
    note = {**{name: round(value, 1) for name, value in took.items()}, "cases": cases}
    (ROOT / "results" / site / "run-all.json").write_text(json.dumps(note) + "\n")
