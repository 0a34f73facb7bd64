"""Two reports of `--json` as a comment on a pull request: what a change asks for more, or less.

`python -m wire.trace.compare HEAD.json [BASE.json]` prints it as Markdown.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from wire.errors import UserError, cut, format_size, printable, say
from wire.trace import report
from wire.untrusted import UntrustedFolder

MARK = "<!-- wire trace -->"
"""Begins the comment, so that the next run finds it."""

_MOST_FINDINGS = 3
_COUNTS = {
    "n_requests": "requests",
    "n_waits": "requests one after the other",
    "moved_nbytes": "bytes moved",
}


def read_report(path: Path) -> dict[str, Any]:
    """Read what `wire trace --json` printed, whose last line is the report; refuse anything else in a line."""
    source = UntrustedFolder(path.resolve().parent, f"report {cut(str(path))}")
    lines = source.read_text(path.resolve().name).splitlines()
    try:
        table = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        table = None
    is_report = isinstance(table, dict) and table.get("version") == report.VERSION
    if not isinstance(table, dict) or not is_report:
        raise source.refuse(
            "has no report as its last line", f"that of wire trace --json, version {report.VERSION}"
        )
    for name in _COUNTS:
        if not isinstance(table.get(name), int):
            raise source.refuse(f"{name}: {table.get(name)!r}", "a whole number")
    return table


def compare(head: Mapping[str, Any], base: Mapping[str, Any] | None) -> Iterator[str]:
    """Write what was asked for, next to what the base branch asks for, as lines of Markdown.

    Counts are compared, and no seconds: those of a shared machine are no finding.

    Yields
    ------
    str
        A line of Markdown.
    """
    yield MARK
    yield f"**wire trace**: {_quote(head['verdict'])}"
    yield ""
    yield "| | base | this change | |" if base else "| | this change |"
    yield "| --- | --: | --: | --: |" if base else "| --- | --: |"
    for name, title in _COUNTS.items():
        format_count = format_size if name == "moved_nbytes" else "{:,}".format
        if base is None:
            yield f"| {title} | {format_count(head[name])} |"
            continue
        more = head[name] - base[name]
        sign = "+" if more > 0 else "-" if more < 0 else ""
        change = f"{sign}{format_count(abs(more))}" if more else "the same"
        yield f"| {title} | {format_count(base[name])} | {format_count(head[name])} | {change} |"
    for finding in head.get("findings", [])[:_MOST_FINDINGS]:
        yield ""
        yield f"- {_quote(finding['title'])}: {_quote(finding['evidence'])}"
        yield f"  {_code(finding['line'])}"
    for phrase in head.get("not_known", []):
        yield ""
        yield f"Not known whether seen: {_quote(phrase)}"
    for place in head.get("not_seen", []):
        yield ""
        yield f"Not seen: {_quote(place)}"


def _quote(text: object) -> str:
    """Write text that Markdown takes for nothing else: no link, mention, row or element."""
    flat = escape(printable(str(text)).replace("\n", " "))
    return "".join(rf"\{letter}" if letter in r"\`*_[]|@#!~" else letter for letter in flat)


def _code(text: object) -> str:
    flat = printable(str(text)).replace("\n", "; ").replace("`", "'")
    return f"`` {flat} ``"


def main(words: Sequence[str]) -> int:
    """Print the comment, or what is wrong with a file in one line."""
    if len(words) not in (1, 2):
        say("error: wire.trace.compare: allowed: HEAD.json [BASE.json]", err=True)
        return 2
    try:
        head, *bases = [read_report(Path(word)) for word in words]
        say("\n".join(compare(head, bases[0] if bases else None)))
    except UserError as error:
        say(f"error: {error}", err=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
