"""Leave scripts to their page, and point the buttons of a page at the source that it was made of."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx


def source_of(pagename: str) -> str:
    """Name the source of a page, without its suffix."""
    return re.sub(r"^(notebooks/[^/]+)/[^/]+$", r"\1", pagename)


def name_download(page: str) -> str:
    """Name what is downloaded from the page of a case by notebook and case."""
    return re.sub(r"([^/]+)/([^/]+)$", r"\1/\1-\2", page)


def redirect(buttons: list[dict[str, Any]], page: str, source: str) -> None:
    """Replace the staged path by the source's in every address elsewhere, groups included."""
    for button in buttons:
        redirect(button.get("buttons", []), page, source)
        if url := button.get("url", ""):  # a download lies next to the page
            target = source if url.startswith("https://") else name_download(page)
            button["url"] = url.replace(f"{page}.ipynb", f"{target}.ipynb")


def move_text(buttons: list[dict[str, Any]], page: str) -> None:
    """Lead each link to the source of a text page into the folder of such sources, groups included."""
    for button in buttons:
        move_text(button.get("buttons", []), page)
        if (url := button.get("url", "")).endswith(f"/{page}.md") and url.startswith("https://"):
            button["url"] = url.removesuffix(f"{page}.md") + f"pages/{page}.md"


def relink(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Relink the buttons of one page."""
    if (source := source_of(pagename)) != pagename:
        redirect(context.get("header_buttons", []), pagename, source)
    else:
        move_text(context.get("header_buttons", []), pagename)


def offer_executed(app: Sphinx, exception: Exception | None) -> None:
    """Offer for download what ran, not the page that was made of it."""
    executed = Path(app.srcdir) / "_generated" / "executed"
    if exception is None and executed.is_dir():
        for path in executed.rglob("*.ipynb"):
            page = path.relative_to(executed).with_suffix("").as_posix()
            shutil.copy(path, Path(app.outdir) / "_sources" / f"{name_download(page)}.ipynb")


def choose_files(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Load what lies in the folder of a page on that page alone."""
    for kind in ("script_files", "css_files"):
        owners = [(file, Path(str(getattr(file, "filename", "") or "")).parent.name) for file in context[kind]]  # fmt: skip
        shown = [file for file, owner in owners if owner == pagename or owner not in app.env.all_docs]  # fmt: skip
        context[kind] = shown


def setup(app: Sphinx) -> dict[str, bool]:
    """Run after the theme."""
    app.connect("html-page-context", relink, priority=900)  # the theme adds buttons at up to 501
    app.connect("html-page-context", choose_files, priority=900)
    app.connect("build-finished", offer_executed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
