"""Print numbers that pages found, and say where a claim of a sentence is not so, or not decided.

``{num}`key``` prints a finding of the page on which it stands, ``{num}`study/case::key``` that of
another: the rounded number, with its interval, repeats, noise and record as its tooltip, and a
dagger where the noise of that number itself makes it unstable. ``|range`` behind the key prints the
interval too, for tables, ``|x`` the number as a factor, as in 13x, and ``|bar`` a bar beside the
factor, for a column of speed-ups; ``|verdict`` prints what was judged, and ``|unstable`` the dagger
alone, where only the noise of the page is known.
``{claim}`key``` prints nothing where the claim holds of the results that are shown, and else says so;
where these are the reference, it says so too where the claim does not hold in another record.
"""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from helpers.again import compare_over_records, fails_in_a_record, read_all_records
from helpers.benchmark.statistics import Interval
from helpers.findings import (
    CONSTANTS,
    NOISE,
    UNSTABLE_MARK,
    Finding,
    describe_noise,
    format_finding,
    read_findings,
)
from helpers.plotting.tables import format_digits
from wire.errors import UserError

NOT_SO = "(not so in these results) "
NOT_SO_AGAIN = "(not so in another record) "
NOT_DECIDED = "(not decided in these results) "


class unstable(nodes.superscript):
    """A mark on a number; whatever has no writer of its own writes it as a superscript."""


def visit_unstable(translator: Any, node: unstable) -> None:
    """Open the mark in HTML, with its reason for a pointer, for a keyboard and for a screen reader."""
    reason = html.escape(node["reason"])
    translator.body.append(
        f'<sup class="unstable" title="{reason}" role="img" aria-label="{reason}" tabindex="0">'
    )


def depart_unstable(translator: Any, _node: unstable) -> None:
    """Close what `visit_unstable` opened."""
    translator.body.append("</sup>")


BAR_FULL = 100.0
"""Factor whose bar is full; bars are logarithmic, for factors of 2 and of 50 stand in one column."""


class factor_bar(nodes.inline):
    """A bar as long as a factor; it says nothing that the number beside it does not say."""


def measure_bar(factor: float) -> float:
    """Compute the share of its column that the bar of a factor fills, between 0 and 1.

    Examples
    --------
    >>> measure_bar(10.0), measure_bar(1.0), measure_bar(1e6)
    (0.5, 0.0, 1.0)
    """
    return min(max(math.log(max(factor, 1.0)) / math.log(BAR_FULL), 0.0), 1.0)


def visit_bar(translator: Any, node: factor_bar) -> None:
    """Draw the bar in HTML, unseen by screen readers."""
    translator.body.append(
        f'<span class="factor" aria-hidden="true"><i style="width:{100 * node["share"]:.0f}%"></i></span>'
    )


def depart_bar(_translator: Any, _node: factor_bar) -> None:
    """Close nothing, for the bar is whole."""


class number(nodes.inline):
    """A number with what a sceptic asks of it; whatever has no writer of its own writes the number."""


def visit_number(translator: Any, node: number) -> None:
    """Open the number in HTML, with its details for a pointer, a finger, a keyboard and a screen reader."""
    details = html.escape(node["details"])
    translator.body.append(f'<span class="num" title="{details}" tabindex="0">')


def depart_number(translator: Any, _node: number) -> None:
    """Close what `visit_number` opened."""
    translator.body.append("</span>")


def describe_details(finding: Finding, page: str, over: Interval | None = None) -> str:
    """Describe in a line what is behind a number: interval, repeats, noise, what it is, and its record.

    `over` is the ratio over all records, where there are several.
    """
    parts = []
    if math.isfinite(finding.low):
        low, high = (format_digits(end, n=3) for end in (finding.low, finding.high))
        parts.append(f"95 % interval {low} to {high}{f' {finding.unit}' if finding.unit else ''}")
    if finding.n > 1:
        parts.append(f"{finding.n} repeats")
    if over is not None:
        low, high = (format_digits(end, n=3) for end in (over.low, over.high))
        parts.append(f"over {over.n} records {low} to {high}")
    if math.isfinite(finding.noise):
        parts.append(f"noise {format_digits(100 * finding.noise)} %")
    if finding.quantity:
        parts.append(finding.quantity)
    if page:
        parts.append(f"record {page}")
    return "; ".join(parts)


def _name_key(text: str) -> str:
    """Name the key of a finding that a role was given, without its page and style."""
    return text.partition("|")[0].strip().rpartition("::")[2]


def _is_reference(finding: Finding, page: str, key: str) -> bool:
    """Decide whether the finding that is shown is that of the reference, and not of a reader's own record."""
    records = read_all_records(page, key) if page else []
    return bool(records) and records[0].value == finding.value


class _Role(SphinxRole):
    """A role that looks a key up."""

    def find(self) -> tuple[Finding | None, str, float, str]:
        """Return the finding, how to print it, the noise of its page, and the record it is from."""
        name, _, style = self.text.partition("|")
        page, _, key = name.strip().rpartition("::")
        if not page and key in CONSTANTS:
            return CONSTANTS[key], style.strip(), math.nan, ""
        page = f"notebooks/{page}" if page else self.env.docname
        path = Path(self.env.srcdir) / f"{page}.csv"
        self.env.note_dependency(str(path))
        findings = read_findings(path)
        page_noise = findings.get(NOISE, Finding()).value
        return findings.get(key), style.strip(), page_noise, page.removeprefix("notebooks/")


class Num(_Role):
    """Print a number."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write it as a number with its details, as text, or as a mark."""
        try:
            finding, style, page_noise, page = self.find()
            text = format_finding(finding, style, noise=page_noise)
        except UserError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]
        if style == "unstable":
            reason = describe_noise(finding, page_noise)
            return ([unstable("", text, reason=reason)] if text else []), []
        if finding is None or style == "verdict" or not math.isfinite(finding.value):
            return [nodes.Text(text)], []
        written: list[nodes.Node] = [nodes.Text(text)]
        key = _name_key(self.text)
        over = compare_over_records(page, key) if _is_reference(finding, page, key) else None
        if style != "range" and (details := describe_details(finding, page, over)):
            written = [number("", text, details=details)]
        if reason := describe_noise(finding):
            written.append(unstable("", UNSTABLE_MARK, reason=reason))
        if style == "bar":
            written.insert(0, factor_bar("", share=measure_bar(finding.value)))
        return written, []


class Claim(_Role):
    """Say where a sentence does not hold."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write nothing, or that it is not so, or not decided by results that cannot judge it."""
        try:
            claim, _, _, page = self.find()
        except UserError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]
        if claim is None or math.isnan(claim.value):
            return [nodes.inline("", NOT_DECIDED, classes=["not-so"])], []
        if claim.value and _is_reference(claim, page, key := _name_key(self.text)):
            text = NOT_SO_AGAIN if fails_in_a_record(page, key) else ""
            return [nodes.inline("", text, classes=["not-so"]) if text else nodes.Text("")], []
        if claim.value:
            return [nodes.Text("")], []
        return [nodes.inline("", NOT_SO, classes=["not-so"])], []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the roles, and how a number and its mark are written."""
    app.add_node(unstable, html=(visit_unstable, depart_unstable))
    app.add_node(number, html=(visit_number, depart_number))
    app.add_node(factor_bar, html=(visit_bar, depart_bar))
    app.add_role("num", Num())
    app.add_role("claim", Claim())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
