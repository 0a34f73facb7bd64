"""Write formulas as MathML while building, so that reading them needs no script.

Sphinx's own renderer loads MathJax from a public CDN. Browsers draw MathML by
themselves, and docutils can translate LaTeX into it.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number


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
    """Register the renderer under the name `static`."""
    app.add_html_math_renderer("static", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
