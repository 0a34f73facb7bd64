"""News of the ledger: its jumps as lines of a page, as rows of a table, and as an Atom feed."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from xml.etree import ElementTree

import yaml

from helpers.parameters import write_table as write_markdown_table
from helpers.paths import ROOT
from studies.request_jumps.findings import (
    YEARS,
    choose_newest,
    list_accesses,
    list_dates,
    read_tables,
)
from studies.request_ledger import findings as of_chunks
from wire.ledger.jumps import (
    LEAST,
    NETWORKS,
    Explanation,
    Jump,
    MeasuredAccess,
    describe_change,
    explain_jump,
    find_jumps,
    read_explanations,
)

IN_REGION = "in-region"
LAYOUTS = {
    "hdf5-scattered": "an HDF5 file with scattered chunks",
    "hdf5-paged": "an HDF5 file with paged metadata",
    "tree": "a consolidated tree of 24 groups",
    "tree-unconsolidated": "a tree of 24 groups without consolidated metadata",
    "coordinates": "a dataset with 40 coordinates",
    "written-tree": "a small tree",
    "appended": "a small dataset",
    "sharded": "an array in shards",
    "chunks": "an array of 32 chunks",
    "parquet": "a Parquet file",
    "zarr-v2": "a Zarr v2 array",
    "zarr-v3": "a Zarr v3 array",
    "zarr-v3-sharded": "a Zarr v3 array in shards",
    "zarr-v2-unconsolidated": "a Zarr v2 array without consolidated metadata",
    "netcdf": "a netCDF file",
    "netcdf-large": "a large netCDF file",
    "geotiff": "a GeoTIFF",
}
"""Layouts of the ledger in words."""


@dataclass(frozen=True, slots=True)
class News:
    """All jumps of one release that have one reason, and the largest of them to show."""

    jump: Jump
    smaller: tuple[Jump, ...]
    explanation: Explanation | None
    released: date | None
    taken_back: MeasuredAccess | None  # the same access with the line that takes the jump back

    @property
    def release(self) -> str:
        """Name the release, or the stack of a day."""
        after = self.jump.after
        is_stack = after.package == YEARS
        return (
            f"The packages of {after.version}" if is_stack else f"{after.package} {after.version}"
        )

    @property
    def title(self) -> str:
        """Say the release and what changed, in one line."""
        after, changes = self.jump.after, [*self.jump.more, *self.jump.less]
        change = describe_change(self.jump, changes[0])
        layout = LAYOUTS.get(after.layout, after.layout)
        return f"{self.release}: {after.access} of {layout} by {after.client}, {change}"

    @property
    def line(self) -> str:
        """Return the line that takes the jump back; empty where nobody knows one."""
        return self.explanation.line if self.explanation else ""


def _cost_s(jump: Jump) -> float:
    """Return by how many seconds the requests take longer in the same region."""
    return jump.after.seconds(IN_REGION) - jump.before.seconds(IN_REGION)


def list_news(
    accesses: Sequence[MeasuredAccess], explanations: Sequence[Explanation] | None = None
) -> list[News]:
    """List what got worse, newest first: one entry for each release and reason.

    Jumps of one release that nobody explained are one entry.
    """
    if explanations is None:
        explanations = read_explanations()
    dates = list_dates()
    groups: dict[tuple[str, str, str], list[Jump]] = {}
    for jump in find_jumps(accesses):
        explanation = explain_jump(jump, explanations)
        # of the stacks of a day, those that somebody traced: each has many new releases
        if jump.is_worse and costs_more(jump) and (explanation or jump.after.package != YEARS):
            reason = explanation.because if explanation else ""
            key = jump.after.package, jump.after.version, reason
            groups.setdefault(key, []).append(jump)
    news = []
    for jumps in groups.values():
        explanation = explain_jump(jumps[0], explanations)
        backs = {jump.name: find_taken_back(jump, explanation, accesses) for jump in jumps}
        # the largest of those that were measured with the line too, where there are such
        ranked = sorted(jumps, key=lambda jump: (backs[jump.name] is not None, _cost_s(jump)))
        *smaller, largest = ranked
        released = dates.get((largest.after.package, largest.after.version))
        taken_back = backs[largest.name]
        news.append(News(largest, tuple(smaller), explanation, released, taken_back))
    newest = sorted(news, key=lambda entry: entry.jump.name)
    return sorted(newest, key=lambda entry: entry.released or date.min, reverse=True)


def costs_more(jump: Jump) -> bool:
    """Return whether its requests take longer over some network, by a tenth; true where none are known."""
    pairs = [(jump.before.seconds(name), jump.after.seconds(name)) for name in NETWORKS]
    return any(after > 1.1 * before or not (before and after) for before, after in pairs)


def find_taken_back(
    jump: Jump, explanation: Explanation | None, accesses: Sequence[MeasuredAccess]
) -> MeasuredAccess | None:
    """Find the same access measured with the line that takes a jump back, or with the release instead."""
    if explanation is None:
        return None
    after = jump.after
    client = explanation.measured_as or after.client
    version = explanation.instead or after.version
    wanted = client, after.layout, after.access, after.package, version
    return next((access for access in accesses if (*access.key, access.version) == wanted), None)


@cache
def _read_news() -> tuple[list[MeasuredAccess], list[News]]:
    accesses = list_accesses(read_tables())
    return accesses, list_news(accesses)


NEWS_HEADS = ("release", "what changed", "in the same region", "what takes it back")


def write_news(n_most: int = 12) -> str:
    """Write the newest jumps as a table in Markdown, a row each; a record without jumps has none."""
    _, news = _read_news()
    dated = [entry for entry in news if entry.released]
    if not dated:
        return "No jump is in the records.\n"
    return write_markdown_table(NEWS_HEADS, [_describe_entry(entry) for entry in dated[:n_most]])


def write_headlines(n_most: int = 3) -> str:
    """Write the newest jumps for the front page, a line each that leads to its row."""
    _, news = _read_news()
    lines = []
    for entry in [entry for entry in news if entry.released][:n_most]:
        after = entry.jump.after
        layout = LAYOUTS.get(after.layout, after.layout)
        count = describe_change(entry.jump, [*entry.jump.more, *entry.jump.less][0])
        row = f'<a href="request-ledger.html#{entry.jump.name}">{entry.release}</a>'
        lines.append(f"- {row}: {count} for {after.access} of {layout}")
    return "\n".join(lines or ["No jump is in the records."]) + "\n"


def _describe_entry(entry: News) -> tuple[str, str, str, str]:
    """Describe a jump in the cells of a row."""
    jump = entry.jump
    after = jump.after
    layout = LAYOUTS.get(after.layout, after.layout)
    changes = ", ".join(describe_change(jump, count) for count in (*jump.more, *jump.less)[:1])
    release = f'<a href="#{jump.name}">{entry.release}</a>, {entry.released:%B %Y}'
    what = [f"{after.client}, {after.access} of {layout}: {changes}."]
    back = ""
    if entry.explanation:
        what.append(entry.explanation.because)
        what += [f"[Source]({link})." for link in entry.explanation.links[:1]]
        if entry.line:
            back = f"`{entry.line}`{_write_count(entry)}"
    if entry.smaller:
        what.append(f"Other accesses: {len(entry.smaller)}.")
    return release, " ".join(what), _write_seconds(jump), back


def _write_seconds(jump: Jump) -> str:
    before, after = (access.seconds(IN_REGION) for access in (jump.before, jump.after))
    return f"{_digits(before)} to {_digits(after)} s" if before and after else ""


def _write_count(entry: News) -> str:
    if entry.taken_back is None:
        return ""
    n_requests = entry.taken_back.bounds("n_requests")[0]
    return f" ({n_requests:.0f} requests)"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def write_table() -> str:
    """Write all jumps as a table in HTML, a row each with an anchor; those that got better too."""
    accesses, _ = _read_news()
    jumps = sorted(find_jumps(accesses), key=_date_of, reverse=True)
    explanations = read_explanations()
    rows = [_write_row(jump, explain_jump(jump, explanations)) for jump in jumps]
    heads = ["released", "release", "client", "access", "requests", "in a chain", "MB", "s", "line"]
    head = "".join(f"<th>{name}</th>" for name in heads)
    return (
        "```{raw} html\n"
        '<p><label>Filter <input type="search" id="jumps-filter" placeholder="gcsfs, tree, write"></label>'
        ' <span id="jumps-count" role="status"></span></p>\n'
        '<div class="scrolls" tabindex="0" role="region" aria-label="jumps of all releases">'
        f'<table id="jumps-table"><thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table></div>\n```\n"
    )


def write_data() -> str:
    """Write the data of the panel: whole chunks, and the accesses of the ledger with the newest release."""
    rows = []
    for entry in choose_newest(_read_news()[0]):
        if "unique_nbytes" not in entry.blocks[0] or not entry.steps:
            continue  # whole chunks are there
        counts = entry.blocks[0]
        gets = counts["n_get"] + counts["n_head"]
        steps = zip(entry.steps[::2], entry.steps[1::2], strict=True)
        rows.append(
            {
                "client": entry.client,
                "environment": f"{entry.package} {entry.version}",
                "layout": entry.layout,
                "operation": entry.access,
                "n_requests": counts["n_requests"],
                "n_waits": counts["n_waits"],
                "gets": gets,
                "puts": counts["n_requests"] - gets,
                "mb": round(counts["wire_nbytes"] / 1e6, 3),
                "steps": [number for ended, nbytes in steps for number in (ended, 0, nbytes)],
            }
        )
    return of_chunks.write_data(rows)


def _date_of(jump: Jump) -> tuple[str, str]:
    released = list_dates().get((jump.after.package, jump.after.version))
    return str(released or ""), jump.name


def _write_row(jump: Jump, explanation: Explanation | None) -> str:
    after = jump.after
    counts = []
    for count in LEAST:
        scale = 1e6 if count == "wire_nbytes" else 1
        values = [access.bounds(count)[0] / scale for access in (jump.before, jump.after)]
        texts = [f"{value:.0f}" if value >= 10 or scale == 1 else f"{value:.2g}" for value in values]  # fmt: skip
        is_change = count in (*jump.more, *jump.less)
        text = " → ".join(dict.fromkeys(texts))
        counts.append(f"<b>{text}</b>" if is_change else text)
    seconds = [[entry.seconds(name) for name in NETWORKS] for entry in (jump.before, after)]
    by_network = ", ".join(
        f"{name}: {_digits(first)} → {_digits(second)} s"
        for name, first, second in zip(NETWORKS, *seconds, strict=True)
    )
    line = html.escape(explanation.line) if explanation and explanation.line else ""
    release = after.version if after.package == YEARS else f"{after.package} {after.version}"
    cells = [
        _date_of(jump)[0],
        f'<a href="#{jump.name}">{html.escape(release)}</a>',
        html.escape(after.client),
        html.escape(f"{after.access} of {LAYOUTS.get(after.layout, after.layout)}"),
        *counts,
        f'<span title="{by_network}">{_digits(seconds[0][0])} → {_digits(seconds[1][0])}</span>',
        f"<code>{line}</code>" if line else "",
    ]
    return f'<tr id="{jump.name}">' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def write_feed() -> str:
    """Write the jumps as an Atom feed (RFC 4287), newest first."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    book = str(config["html"]["baseurl"]).rstrip("/")
    page, feed = f"{book}/request-ledger.html", f"{book}/_static/request-ledger/jumps.atom"
    _, news = _read_news()
    dated = [entry for entry in news if entry.released]
    root = ElementTree.Element("feed", xmlns="http://www.w3.org/2005/Atom")
    for name, text in (
        ("id", page),
        ("title", "Jumps in requests: Arrays over the Wire"),
        ("updated", _stamp(dated[0].released if dated else None)),
    ):
        ElementTree.SubElement(root, name).text = text
    ElementTree.SubElement(root, "link", rel="self", href=feed)
    ElementTree.SubElement(root, "link", rel="alternate", href=page)
    author = ElementTree.SubElement(root, "author")
    ElementTree.SubElement(author, "name").text = str(config["author"])
    for entry in dated:
        item = ElementTree.SubElement(root, "entry")
        address = f"{page}#{entry.jump.name}"
        texts = [entry.explanation.because if entry.explanation else "", entry.line]
        for name, text in (
            ("id", address),
            ("title", entry.title),
            ("updated", _stamp(entry.released)),
            ("summary", " ".join(filter(None, texts)) or entry.title),
        ):
            ElementTree.SubElement(item, name).text = text
        ElementTree.SubElement(item, "link", rel="alternate", href=address)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _stamp(day: date | None) -> str:
    return f"{day or date(2026, 1, 1)}T00:00:00Z"
