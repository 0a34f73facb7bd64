"""Write formulas and the bibliography as HTML that browsers and readers' software take without help.

Sphinx's own renderer of formulas loads MathJax from a public CDN. Browsers draw MathML by
themselves, and docutils can translate LaTeX into it.

Sphinx opens a list at the first entry of a bibliography and closes it after the last by looking at
neighbours, which docutils before 0.20 gets wrong; the page then falls apart after it. An entry
that stands alone needs no neighbours, and no list around it that holds no list item.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number


def visit_citation(translator: Any, node: nodes.citation) -> None:
    """Open an entry."""
    translator.body.append(translator.starttag(node, "div", CLASS="citation"))


def depart_citation(translator: Any, node: nodes.citation) -> None:
    """Close what `visit_citation` opened."""
    translator.body.append("</div>\n")


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Write a formula inside a sentence."""
    translator.body.append(str(tex2mathml(node.astext(), inline=True)))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula of its own, with its number if it has one."""
    # it scrolls where it is too wide, so a keyboard reaches it
    translator.body.append(translator.starttag(node, "div", CLASS="math", tabindex="0"))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})</span>')
    translator.body.append(str(tex2mathml(node.astext(), inline=False)))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace how HTML pages write both; `static` names the renderer of formulas."""
    app.add_node(nodes.citation, override=True, html=(visit_citation, depart_citation))
    app.add_html_math_renderer("static", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
