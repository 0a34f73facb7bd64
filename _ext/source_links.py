"""Point the edit and launch buttons of a case's page at the notebook it was made of.

A page `notebooks/<notebook>/<case>` is staged from a record; what a reader can
edit or run is `notebooks/<notebook>.ipynb`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from sphinx.application import Sphinx

# Buttons are there once the theme has added them, which it does at up to 501.
_AFTER_THE_THEME = 900


def source_of(pagename: str) -> str:
    """Name the source of a page, without its suffix."""
    parts = PurePosixPath(pagename).parts
    return "/".join(parts[:2]) if len(parts) == 3 and parts[0] == "notebooks" else pagename


def redirect(buttons: list[dict[str, Any]], page: str, source: str) -> None:
    """Replace the staged path by the source's in every address, groups included."""
    for button in buttons:
        redirect(button.get("buttons", []), page, source)
        if "url" in button:
            button["url"] = button["url"].replace(f"{page}.ipynb", f"{source}.ipynb")


def relink(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Relink the buttons of one page."""
    if (source := source_of(pagename)) != pagename:
        redirect(context.get("header_buttons", []), pagename, source)


def setup(app: Sphinx) -> dict[str, bool]:
    """Run after the theme."""
    app.connect("html-page-context", relink, priority=_AFTER_THE_THEME)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
