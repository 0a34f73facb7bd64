"""Tests of `helpers.book.arrange`: findings first, nothing empty, code folded, figures slim."""

from __future__ import annotations

from typing import Any

from helpers.book.arrange import arrange


def text(source: str, name: str = "t") -> dict[str, Any]:
    """Make a cell of text."""
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def code(source: str, *outputs: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Make a cell of code."""
    return {
        "cell_type": "code", "id": "c", "metadata": metadata, "source": source,
        "outputs": list(outputs), "execution_count": 1,
    }  # fmt: skip


def shown(**data: str) -> dict[str, Any]:
    """Make an output that is shown."""
    kinds = {kind.replace("_", "/"): value for kind, value in data.items()}
    return {"output_type": "display_data", "data": kinds, "metadata": {}}


GLUED = {
    "output_type": "display_data",
    "data": {"application/papermill.record/text/plain": "'5'"},
    "metadata": {"scrapbook": {"name": "n-blocks"}},
}
TABLE = shown(text_html="<table><tbody><tr><td>5</td></tr></tbody></table>")


def sources(cells: list[dict[str, Any]]) -> list[str]:
    """List the first lines of the cells."""
    return [cell["source"].strip().splitlines()[0] for cell in cells]


def test_findings_come_first() -> None:
    """What ran before the findings follows all else, in its order, behind a heading with a label."""
    cells = [
        text("# Title"), text("A question."), code("imports"), text("## Workload"), code("write"),
        text("## Findings\n\n### Gains"), code("compare", TABLE),
        text("### Figures\n\nas published\n\n## Findings in one place"), code("list", TABLE),
        text("## Limits"), text("## What next"),
    ]  # fmt: skip
    found = arrange(cells, "measured-here")
    assert sources(found) == [
        "# Title", "A question.", "## Findings", "### Gains", "compare", "### Figures",
        "## Findings in one place", "list", "## Limits", "## What next", "(measured-here)=",
        "imports", "## Workload", "write",
    ]  # fmt: skip
    assert "{ref}`how it was measured <measured-here>`" in found[1]["source"]
    ids = [cell["id"] for cell in found if cell["cell_type"] == "markdown"]
    assert "t-1" in ids


def test_a_page_without_findings_stays_as_it_is() -> None:
    """Nothing moves where nothing is called a finding, or nothing stands before it."""
    for cells in (
        [text("# Title"), code("read"), text("## Limits")],
        [text("# Title"), text("## Findings"), code("read", TABLE)],
    ):
        assert sources(arrange(cells, "label")) == sources(cells)


def test_labels_stay_with_their_headings() -> None:
    """A label belongs to the heading below it, wherever that goes."""
    cells = [text("# Title"), code("read"), text("above\n\n(there)=\n## Findings\n\nbelow")]
    found = [cell["source"] for cell in arrange(cells, "label")]
    assert "(there)=\n## Findings\n\nbelow" in found


def test_what_a_case_does_not_measure_is_not_shown() -> None:
    """A part whose code shows nothing is left out; what it glues is kept unseen."""
    cells = [
        text("# Title"), text("## Findings"),
        text("### Words"), text("Only words."),
        text("### Nothing"), code("pass"),
        text("### Empty table"), code("table", shown(text_html="<table><tbody>\n </tbody></table>")),
        text("### Empty text"), code("note", shown(text_plain="''")),
        text("### Glued alone"), code("glue", GLUED),
        text("### Shown"), code("table", TABLE),
    ]  # fmt: skip
    found = arrange(cells, "label")
    assert sources(found) == [
        "# Title", "## Findings", "### Words", "Only words.", "table", "note", "glue",
        "### Shown", "table",
    ]  # fmt: skip
    hidden = [cell["source"] for cell in found if cell["metadata"].get("tags") == ["remove-cell"]]
    assert hidden == ["table", "note", "glue"]


def test_code_is_folded() -> None:
    """Every cell of code is folded once, its other tags kept."""
    cells = [
        text("# Title"),
        code("a"),
        code("b", tags=["parameters"]),
        code("c", tags=["hide-input"]),
    ]
    tags = [cell["metadata"].get("tags") for cell in arrange(cells, "label")]
    assert tags == [None, ["hide-input"], ["parameters", "hide-input"], ["hide-input"]]


def test_figures_are_slim() -> None:
    """Coordinates end at a hundredth, and words stay."""
    svg = (
        '<svg viewBox="0 0 200 100"><metadata>made 2026</metadata><defs></defs><path id="d1.2345" d="M 1.23456 7\n L 2 3"/>'
        '<use x="4.56789"/><text style="font-size: 10px">0.123456</text></svg>'
    )
    cell = code("draw", {**shown(), "data": {"image/svg+xml": [svg]}})
    found = arrange([text("# Title"), cell], "label")[1]["outputs"][0]["data"]["image/svg+xml"]
    assert 'd="M 1.23 7 L 2 3"' in found and 'x="4.56"' in found
    assert "0.123456" in found and 'id="d1.2345"' in found and "metadata" not in found
