"""Pages of a built book, as tests read them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

_NESTED = {"div", "section", "article", "main", "table", "figure", "dl", "ul", "ol"}
_NOT_LOADED = {"canonical", "license", "search", "next", "prev", "index"}


class Resources(HTMLParser):
    """Collect what a page loads, where it links to, and tags that do not match."""

    def __init__(self, text: str) -> None:
        """Read a page."""
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.pictures: list[dict[str, str | None]] = []
        self.open: list[str] = []
        self.mismatched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag and what it loads."""
        given = dict(attrs)
        if tag in _NESTED:
            self.open.append(tag)
        if tag == "a":
            self.links.append(given.get("href") or "")
        elif tag == "link" and given.get("rel") not in _NOT_LOADED:
            self.loads.append(given.get("href") or "")
        elif given.get("src"):
            self.loads.append(given["src"] or "")
        if tag == "img":
            self.pictures.append(given)

    def handle_endtag(self, tag: str) -> None:
        """Note a tag that closes another than the last one opened."""
        if tag in _NESTED and (not self.open or self.open.pop() != tag):
            self.mismatched.append(tag)


def read_pages(html: Path) -> dict[str, Resources]:
    """Read the pages of a built book."""
    paths = [path for path in html.rglob("*.html") if "_static" not in path.parts]
    return {path.relative_to(html).as_posix(): Resources(path.read_text()) for path in paths}


def assert_reads_offline(html: Path) -> None:
    """Check that no page, script or style sheet of a book loads anything from elsewhere."""
    for name, page in read_pages(html).items():
        assert [one for one in page.loads if re.match(r"(?:https?:)?//", one)] == [], name
        assert page.mismatched == page.open == [], name
    for path in [*html.rglob("*.css"), *html.rglob("*.js"), *html.rglob("*.html")]:
        text = path.read_text()
        assert not re.search(r"https?://[^\s\"']*(?:unpkg|jsdelivr|cdnjs|googleapis|gstatic)", text), path  # fmt: skip
        assert not re.search(r"(?:@import|url\()\s*[\"']?https?://", text), path
