"""Show the narrow version of a figure, where there is one, on screens as narrow as a telephone's.

The build keeps it in `_static/narrow/`, named by the digest of the figure that it stands for.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

from helpers.plotting.narrow import make_digest

SCREEN = "(max-width: 40rem)"  # as in book.css


def visit_image(translator: Any, node: nodes.image) -> None:
    """Write a picture of two sources where a figure has a narrow version, else the image."""
    folder = Path(translator.builder.app.srcdir)
    path = folder / str(node["uri"])
    name = ""
    if path.suffix == ".svg" and path.is_file():
        name = f"{make_digest(path.read_text(encoding='utf-8'))}.svg"
    node["has_narrow"] = bool(name) and (folder / "_static" / "narrow" / name).is_file()
    if node["has_narrow"]:
        top = posixpath.dirname(translator.builder.imgpath)
        source = posixpath.join(top, "_static", "narrow", name)
        translator.body.append(f'<picture><source media="{SCREEN}" srcset="{source}" />')
    HTML5Translator.visit_image(translator, node)


def depart_image(translator: Any, node: nodes.image) -> None:
    """Close what `visit_image` opened."""
    HTML5Translator.depart_image(translator, node)
    if node["has_narrow"]:
        translator.body.append("</picture>")


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace how HTML pages write images."""
    app.add_node(nodes.image, override=True, html=(visit_image, depart_image))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
