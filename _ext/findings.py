"""Print numbers that pages found, and say where a claim of a sentence is not so, or not decided.

``{num}`key``` prints a finding of the page on which it stands, ``{num}`study/case::key``` that of
another; ``|range`` behind the key adds its interval, ``|verdict`` prints what was judged, and
``|unstable`` a dagger where the number is unstable, with the reason as its tooltip.
``{claim}`key``` prints nothing where the claim holds of the results that are shown, and else says so.
"""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from helpers.findings import (
    CONSTANTS,
    NOISE,
    Finding,
    describe_noise,
    format_finding,
    read_findings,
)
from wire.errors import UserError

NOT_SO = "(not so in these results) "
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


class _Role(SphinxRole):
    """A role that looks a key up."""

    def find(self) -> tuple[Finding | None, str, float]:
        """Return the finding, how to print it, and the noise of its page."""
        name, _, style = self.text.partition("|")
        page, _, key = name.strip().rpartition("::")
        if not page and key in CONSTANTS:
            return CONSTANTS[key], style.strip(), math.nan
        page = f"notebooks/{page}" if page else self.env.docname
        path = Path(self.env.srcdir) / f"{page}.csv"
        self.env.note_dependency(str(path))
        findings = read_findings(path)
        return findings.get(key), style.strip(), findings.get(NOISE, Finding()).value


class Num(_Role):
    """Print a number."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write it as text, or as a mark."""
        try:
            finding, style, noise = self.find()
            text = format_finding(finding, style, noise=noise)
        except UserError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]
        if style == "unstable" and text:
            return [unstable("", text, reason=describe_noise(finding, noise))], []
        return [nodes.Text(text)], []


class Claim(_Role):
    """Say where a sentence does not hold."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write nothing, or that it is not so, or not decided by results that cannot judge it."""
        try:
            claim, *_ = self.find()
        except UserError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]
        if claim is None or math.isnan(claim.value):
            return [nodes.inline("", NOT_DECIDED, classes=["not-so"])], []
        if claim.value:
            return [nodes.Text("")], []
        return [nodes.inline("", NOT_SO, classes=["not-so"])], []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the roles, and how the mark is written."""
    app.add_node(unstable, html=(visit_unstable, depart_unstable))
    app.add_role("num", Num())
    app.add_role("claim", Claim())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
