"""The whole book as one page that prints well, and as a PDF if a browser is there."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag

from helpers.book.pages import walk_toc
from helpers.errors import UserError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Folded code, lists of versions and controls say nothing on paper.
_LEFT_OUT = ".dropdown.admonition, details.hide.above-input, .cell_input, script, .headerlink, .copybtn, button, form"
_HEAD = """<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>{title}</title>
{styles}<style>
html {{ font-size: 9.5pt; }} body {{ margin: 0; }} article {{ break-before: page; max-width: none; }}
article:first-of-type {{ break-before: auto; }}
@page {{ size: A4; margin: 16mm 14mm; }}
</style></head><body><main class="bd-article">
"""


def assemble(html: Path) -> Path:
    """Write the articles of a built book, in its order, as one page beside it; return the page."""
    staged = html.parent / "stage"
    toc = yaml.safe_load((staged / "_toc.yml").read_text(encoding="utf-8"))
    title = yaml.safe_load((staged / "_config.yml").read_text(encoding="utf-8"))["title"]
    names = [toc["root"], *(name for name in walk_toc(toc) if name != toc["root"])]
    texts = {name: (html / f"{name}.html").read_text(encoding="utf-8") for name in names}
    links = re.findall(r'<link\b[^>]*rel="stylesheet"[^>]*>', texts[names[0]])
    sheets = re.findall(r'href="([^"]*)"', "".join(links))
    styles = "".join(f'<link rel="stylesheet" href="html/{sheet}">' for sheet in sheets)
    parts = [_HEAD.format(title=title, styles=styles)]
    for name, text in texts.items():
        inner = text.partition("<article")[2].partition("</article>")[0]
        article = BeautifulSoup(f"<article{inner}</article>", "html.parser").article
        assert article is not None
        parts.append(_join(article, name, names))
    target = html.parent / "print.html"
    target.write_text("\n".join([*parts, "</main></body></html>\n"]), encoding="utf-8")
    return target


def _join(article: Tag, name: str, names: Collection[str]) -> str:
    """Make the places, links and pictures of an article those of the one page."""
    for unread in article.select(_LEFT_OUT):
        unread.decompose()
    for details in article.select("details"):
        details["open"] = ""
    for tag in article.find_all(id=True):
        tag["id"] = f"{name}:{tag['id']}"
    article["id"] = f"{name}:"
    for attribute in ("href", "src"):
        for tag in article.select(f"[{attribute}]"):
            tag[attribute] = _lead(str(tag[attribute]), name, names)
    return str(article)


def _lead(link: str, name: str, names: Collection[str]) -> str:
    """Lead to the same place from the one page.

    Examples
    --------
    >>> _lead("../method.html#case", "notebooks/here", ["method", "notebooks/here"])
    '#method:case'
    >>> _lead("../_images/a.svg", "notebooks/here", [])
    'html/_images/a.svg'
    """
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return link
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
    page = name if not parts.path else path.removesuffix(".html")
    return f"#{page}:{parts.fragment}" if page in names else f"html/{path}"


def print_pdf(page: Path) -> Path:
    """Print the one page with a headless browser, and return the PDF beside it."""
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        raise UserError(
            f"--pdf: no browser on PATH; allowed: one of {', '.join(_BROWSERS)}, or print {page} from yours"
        )
    target = page.with_name("arrays-over-the-wire.pdf")
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [found, "--headless=new", "--disable-gpu", f"--user-data-dir={folder}"]
        command += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        command += ["--no-pdf-header-footer", f"--print-to-pdf={target}", page.resolve().as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not target.exists():
        raise UserError(f"--pdf: {Path(found).name} wrote no PDF: {done.stderr.strip()[-200:]}")
    return target
