"""Give the explorer what it draws, and leave scripts and styles of a page to that page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from book import explorer
from helpers.parameters import write_table

PAGE = "explorer"


def prepare(app: Sphinx) -> None:
    """Write the data next to the scripts of the page, and the table of columns that it includes."""
    source = Path(app.srcdir)
    if not (source / f"{PAGE}.md").exists():
        return
    folder = source / "_static" / PAGE
    for name, content in explorer.write_files(source / "notebooks"):
        (folder / name).write_bytes(content)
    lines = [(f"`{name}`", meaning) for name, meaning in explorer.COLUMNS.items()]
    told = write_table(["column", "meaning"], lines)
    (source / "_generated" / "explorer-columns.md").write_text(told, encoding="utf-8")
    app.add_js_file(f"{PAGE}/data.js")


def choose_files(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Load what is named after a page, or lies in its folder, on that page alone."""

    def is_wanted(file: Any) -> bool:
        path = Path(str(getattr(file, "filename", "") or ""))
        owners = {path.stem, path.parent.name} & {*app.env.all_docs}
        return not owners or pagename in owners

    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context[kind] if is_wanted(file)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Run before pages are read, and after what loads all files on all pages."""
    app.connect("builder-inited", prepare, priority=400)
    app.connect("html-page-context", choose_files, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
