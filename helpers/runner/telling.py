"""What became of the cases, in a table, in words and for the bars."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from helpers.paths import ROOT
from helpers.runner.findings import UNSTABLE_ABOVE
from helpers.runner.running import Outcome


def summarise(outcomes: Sequence[Outcome]) -> list[str]:
    """Write the table of cases, and below it what its noise means and what measuring took."""
    table = [("case", "state", "noise", "blocks", "time", "headline", "notebook")]
    for outcome in outcomes:
        found = outcome.found
        table.append(
            (
                outcome.case.title,
                outcome.verdict,
                "" if math.isnan(found.noise) else f"{100 * found.noise:.3g} %",
                str(found.n_blocks or ""),
                f"{outcome.seconds:.0f} s",
                found.headline,
                _relative(outcome),
            )
        )
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        *(_align(line, widths) for line in table),
        *_explain_noise(outcomes),
        *_tell_harness(outcomes),
    ]


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Write a line of the table; numbers stand to the right."""
    is_number = (False, False, True, True, True, False, False)
    return "  ".join(
        f"{cell:>{width}}" if right else f"{cell:{width}}"
        for cell, width, right in zip(cells, widths, is_number, strict=True)
    ).rstrip()


def _explain_noise(outcomes: Sequence[Outcome]) -> list[str]:
    """Say what noise is and from where on a case is unstable, and what to do about those that are."""
    lines = [
        "",
        "noise: by how much two copies of one contender differ (A/A);"
        f" above {100 * UNSTABLE_ABOVE:g} % a case is unstable, for pages rank what differs by as little.",
    ]
    for outcome in outcomes:
        if outcome.is_unstable:
            flag = "--more" if outcome.is_cut else "--anew"
            lines.append(
                f"  {outcome.case.title}: once the machine has nothing else to do,"
                f" make run CASE={outcome.case.title} SITE={outcome.case.site} FLAGS={flag}"
            )
    return lines


def _tell_harness(outcomes: Sequence[Outcome]) -> list[str]:
    """Say what part of a core the runner itself took from what was measured."""
    ran = [outcome for outcome in outcomes if outcome.cpu_s]
    if not ran:
        return []
    return [f"the runner itself took {100 * harness_share(ran):.1f} % of a core meanwhile."]


def harness_share(outcomes: Sequence[Outcome]) -> float:
    """Compute the runner's own processor time over the wall time of the cases that ran."""
    ran = [outcome for outcome in outcomes if outcome.cpu_s]
    return sum(one.cpu_s for one in ran) / sum(one.seconds for one in ran) if ran else 0.0


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
    """Keep what a run of every case took, for the bars.

    `seconds` and `peak_nbytes` of everything, `watcher_cpu_s` of the watch over
    memory; and of the runner as a whole, that watch included, the part of a core
    that it took while the cases ran.
    """
    cases = {outcome.case.title: round(outcome.seconds, 1) for outcome in outcomes}
    note = {name: round(value, 2) for name, value in took.items()}
    share = {"harness_share_of_a_core": round(harness_share(outcomes), 5)}
    path = ROOT / "results" / site / "run-all.json"
    path.write_text(json.dumps({**note, **share, "cases": cases}) + "\n")
