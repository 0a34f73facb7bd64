"""Close every entry of the bibliography once, and give it no role that readers' software misreads.

Sphinx opens a list at the first entry and closes it after the last by looking at
neighbours, which docutils before 0.20 gets wrong between entries of a
bibliography; the page then falls apart after it. An entry that stands alone
needs no neighbours, and no list around it that holds no list item.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def visit_citation(translator: Any, node: nodes.citation) -> None:
    """Open an entry."""
    translator.body.append(translator.starttag(node, "div", CLASS="citation"))


def depart_citation(translator: Any, node: nodes.citation) -> None:
    """Close what `visit_citation` opened."""
    translator.body.append("</div>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace how HTML pages write an entry."""
    app.add_node(nodes.citation, override=True, html=(visit_citation, depart_citation))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
