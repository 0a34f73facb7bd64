"""Print numbers that pages found, and say where a claim of a sentence does not hold.

``{num}`key``` prints a finding of the page on which it stands, ``{num}`study/case::key``` that of
another; ``|range`` behind the key adds its interval, ``|verdict`` prints what was judged.
``{claim}`key``` prints nothing where the claim holds of the results that are shown, and else says so.
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from helpers.errors import UserError
from helpers.findings import NOISE, Finding, format_finding, read_findings

NOT_SO = "(not so in these results) "


class _Role(SphinxRole):
    """A role that looks a key up."""

    def find(self) -> tuple[Finding | None, str, float]:
        """Return the finding, how to print it, and the noise of its page."""
        where, _, how = self.text.partition("|")
        page, _, key = where.strip().rpartition("::")
        page = f"notebooks/{page}" if page else self.env.docname
        path = Path(self.env.srcdir) / f"{page}.csv"
        self.env.note_dependency(str(path))
        found = read_findings(path)
        return found.get(key), how.strip(), found.get(NOISE, Finding()).value


class Num(_Role):
    """Print a number."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write it as text."""
        try:
            found, how, noise = self.find()
            return [nodes.Text(format_finding(found, how, noise=noise))], []
        except UserError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]


class Claim(_Role):
    """Say where a sentence does not hold."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write nothing, or that it is not so."""
        found, *_ = self.find()
        if found is None or found.value:
            return [nodes.Text("")], []
        return [nodes.inline("", NOT_SO, classes=["not-so"])], []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the roles."""
    app.add_role("num", Num())
    app.add_role("claim", Claim())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
