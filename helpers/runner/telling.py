"""What became of the cases, in a table, in words and for the bars."""

from __future__ import annotations

import json
from collections.abc import Sequence

from helpers.paths import ROOT
from helpers.runner.running import Outcome


def summarise(outcomes: Sequence[Outcome]) -> list[str]:
    """Write the table of cases."""
    width = max(len(outcome.case.title) for outcome in outcomes)
    lines = [f"{'case':{width}}  {'state':11}  {'time':>6}  {'headline':14}  notebook"]
    for outcome in outcomes:
        headline = outcome.text if outcome.state.startswith("done") else ""
        path = _relative(outcome)
        lines.append(
            f"{outcome.case.title:{width}}  {outcome.state:11}  {outcome.seconds:5.0f}s  {headline:14}  {path}"
        )
    return lines


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
