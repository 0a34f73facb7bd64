"""Say in each page's head what it is about: for search engines, for link previews, for citations."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import Sphinx

_LONGEST = 200  # characters that previews show of a description
_CARD = "_static/card.png"


def describe(doctree: nodes.document | None) -> str:
    """Take the first paragraph of a page that is no note, as whole sentences if they fit."""
    for paragraph in doctree.findall(nodes.paragraph) if doctree is not None else ():
        text = " ".join(paragraph.astext().split())
        if isinstance(paragraph.parent, nodes.section) and len(text) > 40:
            return shorten(text)
    return ""


def shorten(text: str) -> str:
    """Cut a text after the last sentence that fits, or else after the last word."""
    if len(text) <= _LONGEST:
        return text
    cut = text[:_LONGEST]
    ends = [cut.rfind(mark) for mark in (". ", "? ")]
    if max(ends) > 40:
        return cut[: max(ends) + 1]
    return cut.rsplit(" ", 1)[0] + " …"


def render_tags(named: dict[str, str], properties: dict[str, str]) -> str:
    """Write what is not empty as tags."""
    tags = [("name", *item) for item in named.items()]
    tags += [("property", *item) for item in properties.items()]
    return "".join(
        f'<meta {kind}="{key}" content="{html.escape(value)}" />\n'
        for kind, key, value in tags
        if value
    )


def read_citation(srcdir: Path) -> dict[str, str]:
    """Read how the book is cited, in the names that reference managers look for."""
    path = srcdir / "_generated" / "CITATION.cff"
    cited = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        "citation_title": cited.get("title", ""),
        "citation_author": "; ".join(author["name"] for author in cited.get("authors", ())),
        "citation_publication_date": str(cited.get("date-released", "")).replace("-", "/"),
        "citation_doi": cited.get("doi", ""),
    }


def add_tags(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Add the tags of one page."""
    base = app.config.html_baseurl
    title = app.env.titles[pagename].astext() if pagename in app.env.titles else "Search"
    site = app.config.html_title or app.config.project
    told = (
        describe(doctree) or f"{title}, a page of {site}: reading big arrays from object storage."
    )
    named = {"description": told, "twitter:card": "summary_large_image"}
    if pagename == app.config.root_doc:
        named |= read_citation(Path(app.srcdir))
    properties = {
        "og:type": "website" if pagename == app.config.root_doc else "article",
        "og:site_name": site,
        "og:title": title,
        "og:description": told,
        "og:url": context.get("pageurl") or "",
        "og:image": f"{base}{_CARD}" if base else "",
        "og:image:alt": "Arrays over the Wire: reading big arrays from object storage, measured",
    }
    context["metatags"] = context.get("metatags", "") + render_tags(named, properties)


def setup(app: Sphinx) -> dict[str, bool]:
    """Run after what sets the page's address."""
    app.connect("html-page-context", add_tags, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
