"""Pages of a built book as tests read them, and a headless Chromium that loads and asks them.

It speaks the DevTools protocol over its socket, so that tests need no driver beside the
browser; without one they skip, and say so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)  # fmt: skip
_LONGEST_S = 60.0  # a page takes a second, but for a machine that does much else
# Two frames: in the first, what watches sizes is told of them.
_SETTLED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
_FLAGS = [
    "--headless=new",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
]


class Tab:
    """One page at a time, and what was said of it since it was opened."""

    def __init__(self, address: str) -> None:
        websocket = pytest.importorskip("websocket", reason="websocket-client is not installed")
        self._socket = websocket.create_connection(
            address, timeout=_LONGEST_S, suppress_origin=True
        )
        self._n_sent = 0
        self._page = ""
        self._events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **given: Any) -> Any:
        """Send a command and return its result; events meanwhile are kept."""
        self._n_sent += 1
        self._socket.send(json.dumps({"id": self._n_sent, "method": method, "params": given}))
        while (message := json.loads(self._socket.recv())).get("id") != self._n_sent:
            self._events.append(message)
        assert "error" not in message, f"{method}: {message['error']}"
        return message["result"]

    def resize(self, width: int, height: int = 800) -> None:
        """Make the window this size, and let the page settle."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        self.evaluate(_SETTLED)

    def open(self, url: str, *, width: int, height: int = 800) -> None:
        """Open a page in a window of this size, and wait until it is loaded."""
        self.resize(width, height)
        # what is said of the page before is no fault of this one
        self._events.clear()
        if url.partition("#")[0] == self._page:  # else a new place on the page is all that it is
            self.send("Page.navigate", url="about:blank")
            self._wait_for("Page.loadEventFired")
            self._events.clear()
        self._page = url.partition("#")[0]
        self.send("Page.navigate", url=url)
        self._wait_for("Page.loadEventFired")
        self.evaluate(_SETTLED)

    def _wait_for(self, method: str) -> None:
        until = time.monotonic() + _LONGEST_S
        while not any(event.get("method") == method for event in self._events):
            assert time.monotonic() < until, f"no {method}"
            self._events.append(json.loads(self._socket.recv()))

    def evaluate(self, expression: str) -> Any:
        """Evaluate JavaScript; a promise is waited for."""
        found = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_until(self, expression: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + _LONGEST_S
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < until, f"never true: {expression}"
            time.sleep(0.05)

    def faults(self) -> list[str]:
        """List what went wrong since the page was opened: errors, and files that are not there."""
        told = []
        for event in self._events:
            given = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    told.append(str(given["exceptionDetails"].get("exception", given)))
                case "Runtime.consoleAPICalled" if given["type"] in ("error", "assert"):
                    told.append(str([one.get("value") for one in given["args"]]))
                case "Log.entryAdded" if given["entry"]["level"] == "error":
                    told.append(given["entry"]["text"])
                case "Network.responseReceived" if given["response"]["status"] >= 400:
                    told.append(given["response"]["url"])
        return told

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


@contextmanager
def open_browser(folder: Path) -> Iterator[Tab]:
    """Run a browser whose profile is in a folder, and give its first tab."""
    if PROGRAM is None:
        pytest.skip("no chromium or chrome on PATH")
    flags = [*_FLAGS, f"--user-data-dir={folder}"]
    flags += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("w") as log:
        child = subprocess.Popen([PROGRAM, *flags, "about:blank"], stderr=log, stdout=log)
    try:
        port = _read_port(folder)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30) as found:
            targets = json.load(found)
        page = next(one for one in targets if one["type"] == "page")
        tab = Tab(page["webSocketDebuggerUrl"])
        yield tab
        tab.close()
    finally:
        child.terminate()
        child.wait(timeout=30)


def _read_port(folder: Path) -> int:
    """Wait until the browser listens, and return where."""
    until = time.monotonic() + _LONGEST_S
    while time.monotonic() < until:
        if found := re.search(r"ws://127\.0\.0\.1:(\d+)/", (folder / "log").read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise AssertionError(f"no browser: {(folder / 'log').read_text()[-500:]}")


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
