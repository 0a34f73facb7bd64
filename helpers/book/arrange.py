"""How an executed notebook is laid out as a page: what was found first, its code folded."""

from __future__ import annotations

import re
from typing import Any

Cells = list[dict[str, Any]]

_HEADING = re.compile(r"^(?:\([\w-]+\)=\n)?(?P<level>#{2,3}) (?P<text>.*)")
# Before a heading and its label, but not between the two.
_BEFORE_HEADING = re.compile(r"^(?<!\)=\n)(?=(?:\([\w-]+\)=\n)?#{2,3} )", re.MULTILINE)


def arrange(cells: Cells, label: str) -> Cells:
    """Lay out the cells of a page; `label` is that of the part which says how it was measured."""
    sections = [section for section in _split_sections(cells) if _says_something(section)]
    arranged = _put_findings_first(sections, label)
    for cell in arranged:
        _fold(cell)
    return arranged


def _split_sections(cells: Cells) -> list[Cells]:
    """Split a notebook at every heading, and before its first code cell."""
    sections: list[Cells] = [[]]
    for cell in cells:
        is_text = cell["cell_type"] == "markdown"
        parts = _BEFORE_HEADING.split(cell["source"]) if is_text else [cell["source"]]
        for i, part in enumerate(part for part in parts if part.strip() or not is_text):
            named = {"id": f"{cell['id']}-{i}"} if i and "id" in cell else {}
            is_first_code = not is_text and len(sections) == 1
            if (is_text and _HEADING.match(part)) or is_first_code:
                sections.append([])
            sections[-1].append(cell | named | {"source": part})
    return [section for section in sections if section]


def _says_something(section: Cells) -> bool:
    """Tell whether a part of a chapter has text alone, or shows an output; what it glues is kept.

    A case that does not measure what a part is about leaves it without a figure and a table.
    """
    heading = _HEADING.match(section[0]["source"])
    code = [cell for cell in section if cell["cell_type"] == "code"]
    if not heading or heading["level"] == "##" or not code or any(map(_is_shown, code)):
        return True
    section[:] = [cell | {"metadata": {"tags": ["remove-cell"]}} for cell in code]
    return any(cell["outputs"] for cell in code)


def _is_shown(cell: dict[str, Any]) -> bool:
    """Tell whether a code cell shows anything but an empty table or an empty text."""
    for output in cell["outputs"]:
        data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
        is_empty = re.search(r"<tbody>\s*</tbody>", data.get("text/html", "")) or (
            data.keys() == {"text/plain"} and data["text/plain"] in ("''", '""')
        )
        if "text" in output or (data and "scrapbook" not in output["metadata"] and not is_empty):
            return True
    return False


def _put_findings_first(sections: list[Cells], label: str) -> Cells:
    """Put what stands before the findings behind all that follows them, and link to it."""
    headings = [_HEADING.match(section[0]["source"]) for section in sections]
    found = [
        i
        for i, one in enumerate(headings)
        if one and one["level"] == "##" and "inding" in one["text"]
    ]
    if not found or found[0] <= 1:
        return [cell for section in sections for cell in section]
    title, *before = sections[: found[0]]
    title[-1]["source"] += (
        f"\n\nWhat was found comes first; {{ref}}`how it was measured <{label}>` follows,"
        " in the order in which the cells ran.\n"
    )
    bridge: dict[str, Any] = {"cell_type": "markdown", "id": "how", "metadata": {}}
    bridge["source"] = (
        f"({label})=\n## How it was measured\n\n"
        "These are the cells that ran before the findings, as they are in the notebook.\n"
    )
    moved = [title, *sections[found[0] :], [bridge], *before]
    return [cell for section in moved for cell in section]


def _fold(cell: dict[str, Any]) -> None:
    """Fold the code of a cell, and leave of its figures what the eye sees."""
    if cell["cell_type"] != "code":
        return
    tags = cell["metadata"].setdefault("tags", [])
    if not any(tag.startswith(("hide-", "remove-")) for tag in tags):
        tags.append("hide-input")
    for output in cell["outputs"]:
        if "image/svg+xml" in output.get("data", {}):
            svg = "".join(output["data"]["image/svg+xml"])
            output["data"]["image/svg+xml"] = slim_figure(svg)


def slim_figure(svg: str) -> str:
    """Write coordinates to a hundredth of a point, without what describes the file."""

    def shorten(match: re.Match[str]) -> str:
        return f'{match[1]}="{_DIGITS.sub("", " ".join(match[2].split()))}"'

    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return re.sub(r'\b(d|x|y|points)="([^"]*)"', shorten, svg)


# Digits that no eye tells apart.
_DIGITS = re.compile(r"(?<=\.\d\d)\d+")
