"""Notebooks that somebody else executed: nothing in their outputs acts, and their cells are the project's."""

from __future__ import annotations

import re
import subprocess
import time
from copy import deepcopy
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from runner import foreign
from runner.pages import is_of_case
from tests.refusals import refused

# What a resealed notebook may hold that acts in a browser, as HTML, as Markdown or inside a picture.
LIVE = [
    "<script>x()</script>",
    "<SCRIPT SRC=//h/x.js></SCRIPT>",
    "<script/x>x()</script>",
    "<scr<script>ipt>x()</script>",
    "<img src=x onerror=x()>",
    "<img src=//h/pixel.png>",
    "<svg onload=x()>",
    "<svg><script>x()</script></svg>",
    "<svg><a xlink:href='javascript:x()'><text>y</text></a></svg>",
    "<svg><animate attributeName=href values=javascript:x() /></svg>",
    "<svg><set attributeName=onmouseover to=x() /></svg>",
    "<svg><foreignObject><iframe src=javascript:x()></iframe></foreignObject></svg>",
    "<svg><use href='data:image/svg+xml,<svg/>#x' /></svg>",
    "<svg><image href='//h/x.svg' /></svg>",
    "<svg><style>@import url(//h/x.css)</style></svg>",
    "<svg><style>*{background:url(//h/x)}</style></svg>",
    "<svg><rect style='fill:url(//h/x)' /></svg>",
    "<svg><handler>x()</handler></svg>",
    "<iframe src=javascript:x()></iframe>",
    "<iframe srcdoc='<script>x()</script>'></iframe>",
    "<object data=//h/x.swf></object>",
    "<embed src=//h/x.swf>",
    "<applet code=x></applet>",
    "<meta http-equiv=refresh content='0;url=//h'>",
    "<base href=//h>",
    "<link rel=stylesheet href=//h/x.css>",
    "<style>@import '//h/x.css';</style>",
    "<style>td{background:url(//h/x)}</style>",
    "<a href=javascript:x()>y</a>",
    "<a href='java&#x09;script:x()'>y</a>",
    "<a href='data:text/html,<script>x()</script>'>y</a>",
    "<form action=//h><button>y</button></form>",
    "<button formaction=javascript:x()>y</button>",
    "<input autofocus onfocus=x()>",
    "<details open ontoggle=x()>y</details>",
    "<video src=//h/x onerror=x()></video>",
    "<audio src=//h/x onerror=x()></audio>",
    "<body onload=x()>",
    "<div style=\"background:url('//h/x')\">y</div>",
    "<math><maction actiontype=statusline xlink:href=javascript:x()>y</maction></math>",
    "<template><script>x()</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=x()>'></noscript>",
    "<!--><img src=x onerror=x()>-->",
    "<table><td background=//h/x onclick=x()>y</td></table>",
    "[y](javascript:x())",
    "![y](//h/x.png)",
    "{raw}`x`",
]
# Around what is planted: a table of pandas, and a picture of Matplotlib.
TABLE = '<table class="dataframe"><tr><td>{}</td></tr></table>'
SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{}</svg>'
TAGS = {"table", "thead", "tr", "td", "th", *foreign.SHAPES}
LOADS = re.compile(r"//h|javascript:|@import|data:|\bon\w+=", re.IGNORECASE)


class Tags(HTMLParser):
    """Collect what acts or loads: other tags, attributes, and styles, but no text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self._is_style = False
        self.feed(re.sub(r'xmlns(:\w+)?="http://www\.w3\.org/[^"]*"', "", text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check a tag."""
        self._is_style = tag == "style"
        known = {one.lower() for one in TAGS}
        self.wrong += [tag] * (tag not in known)
        self.wrong += [name for name, value in attrs if name.startswith("on") or LOADS.search(value or "")]  # fmt: skip

    def handle_data(self, data: str) -> None:
        """Check the text of a style."""
        self.wrong += [data] * bool(self._is_style and LOADS.search(data))

    def handle_endtag(self, tag: str) -> None:
        """Leave a style."""
        self._is_style = False


@pytest.mark.parametrize("live", LIVE)
def test_nothing_in_an_output_acts(live: str) -> None:
    """Text stays as text, a table keeps the words of its cells, and a picture its shapes."""
    for content in (live, TABLE.format(live), TABLE.replace("<td>", f"<td {live}>")):
        made = foreign.clean_output({"output_type": "display_data", "data": {"text/html": content}})
        assert {*made["data"]} <= {"text/html", "text/plain"}
        assert Tags(made["data"].get("text/html", "")).wrong == []
    for inner in (live, live.removeprefix("<svg>").removesuffix("</svg>")):
        assert Tags(foreign.clean_svg(SVG.format(inner))).wrong == []
    for kind in ("text/markdown", "application/javascript", "text/latex", "application/x"):
        made = foreign.clean_output({"output_type": "display_data", "data": {kind: live}})
        assert {*made["data"]} == {"text/plain"}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("image/svg+xml", "<svg"),
        ("image/svg+xml", '<!DOCTYPE svg [<!ENTITY a "b">]><svg xmlns="http://www.w3.org/2000/svg">&a;</svg>'),
        ("image/svg+xml", SVG.format("<g>" * 100_000)),
        ("image/svg+xml", "<html xmlns='http://www.w3.org/1999/xhtml'/>"),
        ("image/png", "PHNjcmlwdD4="),  # <script>
        ("image/png", "no base64"),
        ("image/gif", "R0lGODlh"),
    ],
)  # fmt: skip
def test_what_is_no_picture_is_left_out(kind: str, content: str) -> None:
    """What is shown in its place is plain text."""
    made = foreign.clean_output({"output_type": "display_data", "data": {kind: content}})
    assert {*made["data"]} == {"text/plain"}


@pytest.mark.parametrize("text", ["<tr><td>" * 100_000, "<" * 900_000, "<!--" * 200_000, "</td" * 200_000])  # fmt: skip
def test_a_table_is_read_in_one_pass(text: str) -> None:
    """However it is nested or broken; a parser that looks ahead would take an hour."""
    start = time.monotonic()
    foreign.rebuild_table(f"<table><tr><td>{text}")
    assert time.monotonic() - start < 60


def make_source() -> Any:
    """Make a notebook of the project."""
    cells = [new_markdown_cell("# Why?"), new_code_cell("n = 1", metadata={"tags": ["parameters"]}), new_code_cell("n")]  # fmt: skip
    return new_notebook(cells=cells)


def execute(source: Any, parameters: str = "n = 2\nx = [1, 'a']\ny = float('nan')") -> Any:
    """Execute it, as papermill does."""
    executed = deepcopy(source)
    cell = new_code_cell(parameters, metadata={"tags": ["injected-parameters"]})
    executed.cells.insert(2, cell)
    executed.cells[3].outputs = [new_output("execute_result", data={"text/plain": "2"})]
    return executed


def test_a_page_is_of_the_projects_cells_and_of_outputs_alone() -> None:
    """What else the sender wrote, into metadata of cells or of the notebook, is not on it."""
    source = make_source()
    executed = execute(source)
    executed.metadata["mystnb"] = {"execution_mode": "force"}
    executed.cells[0].metadata["tags"] = ["planted"]
    page = foreign.rebuild(executed, [new_notebook(), source])
    assert [cell["source"] for cell in page["cells"]] == [cell["source"] for cell in executed.cells]
    assert page["cells"][3]["outputs"][0]["data"] == {"text/plain": "2"}
    assert page["metadata"] == {} and "tags" not in page["cells"][0]["metadata"]
    nbformat.validate(nbformat.from_dict(page))


@pytest.mark.parametrize("parameters", ["import os", "n = open('x')", "n = float(open('x'))", "n += 1", "n = " + "[" * 10_000, "n"])  # fmt: skip
def test_parameters_are_literals(parameters: str) -> None:
    """A reader may run what is offered for download."""
    source = make_source()
    with refused("its cell of parameters", allowed="NAME = VALUE"):
        foreign.rebuild(execute(source, parameters), [source])


def test_other_cells_are_refused(tmp_path: Path) -> None:
    """Text and code are of the notebook as it is, or was at a commit that this checkout is built on."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    path = tmp_path / "notebooks" / "study.ipynb"
    path.parent.mkdir()
    git("init", "-q", "-b", "main")
    commits = {}
    for text in ("old", "planted", "new"):
        if text == "planted":  # on a branch that somebody sent
            git("checkout", "-q", "-b", "theirs")
        elif text == "new":
            git("checkout", "-q", "main")
        notebook = make_source()
        notebook.cells[0].source = text
        nbformat.write(notebook, path)
        git("add", ".")
        git("commit", "-q", "-m", text)
        commits[text] = git("rev-parse", "HEAD")
    for text, is_shown in (("new", True), ("old", True), ("planted", False)):
        notebook = make_source()
        notebook.cells[0].source = text
        sources = foreign.find_sources(path, [commits[text], "--upload-pack=x", "HEAD"], tmp_path)
        if is_shown:
            assert foreign.rebuild(execute(notebook), sources)["cells"][0]["source"] == text
        else:
            with refused("its text or code"):
                foreign.rebuild(execute(notebook), sources)
    # a case that has a notebook of its own today had that of its study then
    own = path.with_name("study.case.ipynb")
    [shared] = foreign.find_sources(own, [commits["old"]], tmp_path)
    assert shared["cells"][0]["source"] == "old"


def test_cells_of_another_case_are_on_no_page() -> None:
    """Tags say of which case a cell is alone, in notebooks that several cases shared."""
    metadata = [{}, {"tags": ["hide-input"]}, {"tags": ["only-one"]}, {"tags": ["only-other"]}]
    cells = [{"metadata": each} for each in metadata]
    assert [is_of_case(cell, "one") for cell in cells] == [True, True, True, False]
