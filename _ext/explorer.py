"""Put before the explorer what it draws: medians of all records that the book shows, and downloads."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from helpers.book import explorer
from helpers.book.studies import write_table
from helpers.paths import ROOT

PAGE = "explorer"


def prepare(app: Sphinx) -> None:
    """Write the data beside the scripts of the page, and the table of quantities that it includes."""
    source = Path(app.srcdir)
    if not (source / f"{PAGE}.md").exists():
        return
    folder = source / "_static" / PAGE
    for name, content in explorer.write_files(source / "notebooks", ROOT / "results" / "published"):
        (folder / name).write_bytes(content)
    lines = [(f"`{name}`", meaning) for name, meaning in explorer.COLUMNS.items()]
    told = write_table(["column", "meaning"], lines)
    (source / "_generated" / "explorer-columns.md").write_text(told, encoding="utf-8")
    app.add_js_file(f"{PAGE}/data.js")


def setup(app: Sphinx) -> dict[str, bool]:
    """Run before pages are read."""
    app.connect("builder-inited", prepare, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
