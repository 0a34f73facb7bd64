"""Point the edit and launch buttons of a case's page at the notebook it was made of.

A page `notebooks/<notebook>/<case>` is staged from a record; what a reader can
edit or run is `notebooks/<notebook>.ipynb`. What a reader can download is the
notebook as it ran, in the order of its cells, named by notebook and case.
"""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from sphinx.application import Sphinx

# Buttons are there once the theme has added them, which it does at up to 501.
_AFTER_THE_THEME = 900


def source_of(pagename: str) -> str:
    """Name the source of a page, without its suffix."""
    parts = PurePosixPath(pagename).parts
    return "/".join(parts[:2]) if len(parts) == 3 and parts[0] == "notebooks" else pagename


def name_download(page: str) -> str:
    """Name what is downloaded from the page of a case by notebook and case."""
    folder, notebook, case = page.split("/")
    return f"{folder}/{notebook}/{notebook}-{case}"


def redirect(buttons: list[dict[str, Any]], page: str, source: str) -> None:
    """Replace the staged path by the source's in every address elsewhere, groups included."""
    for button in buttons:
        redirect(button.get("buttons", []), page, source)
        is_away = button.get("url", "").startswith("https://")  # a download lies next to the page
        target = source if is_away else name_download(page)
        if "url" in button:
            button["url"] = button["url"].replace(f"{page}.ipynb", f"{target}.ipynb")


def relink(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Relink the buttons of one page."""
    if (source := source_of(pagename)) != pagename:
        redirect(context.get("header_buttons", []), pagename, source)


def offer_executed(app: Sphinx, exception: Exception | None) -> None:
    """Offer for download what ran, not the page that was made of it."""
    executed = Path(app.srcdir) / "_generated" / "executed"
    if exception is None and executed.is_dir():
        for path in executed.rglob("*.ipynb"):
            page = path.relative_to(executed).with_suffix("").as_posix()
            target = Path(app.outdir) / "_sources" / f"{name_download(page)}.ipynb"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def setup(app: Sphinx) -> dict[str, bool]:
    """Run after the theme."""
    app.connect("html-page-context", relink, priority=_AFTER_THE_THEME)
    app.connect("build-finished", offer_executed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
