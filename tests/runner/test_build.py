"""What is staged, what is built of it, and what the pages say; of the published book see `test_site`."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record
from helpers.findings import Finding, write_findings
from helpers.paths import ROOT
from runner import build, cases, pages
from runner.cases import Case
from runner.home import draw_pictures
from runner.pages import Page
from tests.browser import read_pages
from tests.refusals import refused
from tests.rows import make_row
from tests.stores import becomes
from tests.wire.test_redaction import ADDRESSES, SIGHTS

STUDY = "cluster-scaling"
CASES = ("in-region", "other-region", "wide-area")
# A picture of one white pixel.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mP8/x8AAwMCAO+ip1sAAAAASUVORK5CYII="
FINDINGS = {"gain": Finding(1.523, 1.31, 1.7, n=5, verdict="faster"), "rate": Finding(310, 290, 330, unit="MB/s"), "noisy": Finding(2.0, noise=0.13)}  # fmt: skip


def make_notebook() -> nbformat.NotebookNode:
    """Make an executed notebook as papermill leaves one."""
    figure = new_code_cell(
        "fig", execution_count=1, outputs=[new_output("display_data", data={"image/png": PNG})]
    )
    figure.metadata["mystnb"] = {
        "figure": {"name": "fig-x", "caption": "Throughput ({numref}`fig-x`)."},
        "image": {"alt": "It grows."},
    }
    timed = new_code_cell("def read(array):\n    return array[:]", execution_count=3)
    text = new_markdown_cell(
        "## Findings\n\n{claim}`holds` It is {num}`gain|range` times as fast, see"
        " {numref}`fig-x`, with $t = n / b$."
    )
    last = new_code_cell("write_findings(record)", execution_count=2)
    first = new_markdown_cell("# How does it scale?\n\nA question.\n\nWhy we ask.")
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=[first, figure, timed, text, last], metadata={"kernelspec": kernel})


def make_results(
    root: Path,
    site: str,
    case: str,
    *,
    machine: str = "Invented CPU",
    noise: float = 0.03,
    row: dict[str, Any] | None = None,
    version: str = "3.1.6",
) -> Path:
    """Write an executed notebook with record, findings and digests, and return the notebook's path."""
    path = root / "results" / site / STUDY / f"{case}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".csv").unlink(missing_ok=True)
    facts = {"cpu": machine, "n_cores": 2, "memory_gb": 8, "system": "Linux"}
    origin = Provenance(facts, {"python": "3.12.1", "zarr": version}, {})
    record = Record(path.with_suffix(".csv"), study=STUDY, provenance=origin)
    told = {"machine": facts, "versions": origin.versions, "parameters": {}, "fingerprint": origin.fingerprint}  # fmt: skip
    first = {"study": STUDY, "case": case, "read_s": 1.0, "commit": "0123456789abcdef"} | told
    record.append([make_row(**(first | (row or {})))])
    write_findings(path.with_suffix(".csv"), FINDINGS, {"holds": site == "reference"}, noise=noise, n_blocks=1)  # fmt: skip
    nbformat.write(make_notebook(), path)
    cases.seal(path, path.with_suffix(".csv"))
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of one study, with invented pages and reference results, to be copied."""
    root = tmp_path_factory.mktemp("small")
    (root / "pages").mkdir()
    for name in ("_config.yml", "pages/references.bib", "pages/references.md"):
        shutil.copy(ROOT / name, root / name)
    for name in ("_static", "_ext"):
        shutil.copytree(ROOT / name, root / name)
    texts = {
        "index": "# A book\n\nIt is {num}`cluster-scaling/in-region::gain|range` times as fast.\n",
        STUDY: "# A study\n\nReaches {num}`cluster-scaling/in-region::rate`, a factor of"
        " {num}`cluster-scaling/in-region::noisy|x`, with $x^2$.\n\n"
        "Noisy{num}`cluster-scaling/other-region::gain|unstable` above {num}`unstable-above` %,"
        " quiet{num}`cluster-scaling/in-region::gain|unstable`. {claim}`cluster-scaling/in-region::lost` So.\n",
        "method": "# Method\n\n```{include} _generated/schema.md\n```\n\nAfter {cite:t}`abernathey2020`.\n",
    }
    for name, text in texts.items():
        (root / "pages" / f"{name}.md").write_text(text)
    sections = [{"file": f"notebooks/{STUDY}/{case}"} for case in CASES]
    sections[CASES.index("wide-area")]["title"] = "From far away"
    chapters = [{"file": "method"}, {"file": STUDY, "sections": sections}, {"file": "references"}]
    toc = {"format": "jb-book", "root": "index", "chapters": chapters}
    (root / "_toc.yml").write_text(yaml.safe_dump(toc))
    (root / "notebooks").mkdir()
    source = make_notebook()
    source.cells[1].outputs = []
    nbformat.write(source, root / "notebooks" / f"{STUDY}.ipynb")
    for case in CASES:
        make_results(root, "reference", case, noise=0.13 if case == "other-region" else 0.03)
    return root


@pytest.fixture
def project(tmp_path: Path, small: Path) -> Path:
    """A project of its own, in a folder with a space in its name."""
    return shutil.copytree(small, tmp_path / "a project")


def staged(root: Path, case: str) -> str:
    """Return the first cell of a staged page."""
    path = root / "_build" / "stage" / "notebooks" / STUDY / f"{case}.ipynb"
    return str(nbformat.read(path, as_version=4).cells[0].source)


def test_reference_is_shown(project: Path) -> None:
    """Without results of one's own each page shows the reference and says so, with its origin."""
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    (project / "_build" / "stage").mkdir(parents=True)
    (project / "_build" / "stage" / "old.md").write_text("# Old")
    found = build.stage("laptop", root=project)
    assert [(page.case, page.site) for page in found] == [(case, "reference") for case in CASES]
    first = staged(project, "wide-area")
    assert first.startswith("# From far away\n"), "the title of the table of contents"
    assert staged(project, "in-region").startswith("# How does it scale?: in region\n")
    for part in ("Reference record", "Invented CPU, 2 cores, 8 GB", "2026-01-01", "zarr 3.1.6", "0123456789", "/cluster-scaling-wide-area.csv>"):  # fmt: skip
        assert part in first
    folder = project / "_build" / "stage" / "notebooks" / STUDY
    assert (folder / "wide-area.findings.csv").exists()
    # in the order of its notebook, the code that draws is folded, and labels are those of one page
    cells = nbformat.read(folder / "in-region.ipynb", as_version=4).cells
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert [re.search(r"^## (.*)", text, re.M)[1] for text in texts[1:]] == ["Findings"]
    (figure,) = [cell.metadata["mystnb"]["figure"] for cell in cells if "mystnb" in cell.metadata]
    assert figure["name"] == "fig-x-cluster-scaling-in-region"
    assert figure["caption"] == "Throughput ({numref}`fig-x-cluster-scaling-in-region`)."
    tags = {cell.source.partition("\n")[0]: cell.metadata.get("tags", []) for cell in cells}
    assert "hide-input" in tags["fig"]
    assert tags["def read(array):"] == [], "what is timed is seen"
    assert not (project / "_build" / "stage" / "old.md").exists()
    assert {path: path.read_bytes() for path in before} == before


def test_own_results_come_first(project: Path) -> None:
    """A finished case of one's own replaces the reference on its page, and on no other."""
    make_results(project, "hub", "other-region", machine="My CPU")
    make_results(project, "hub", "my-case")
    found = build.stage("hub", root=project)
    assert [page.site for page in found] == ["reference", "hub", "reference", "hub"]
    assert "Your own results (site hub)" in staged(project, "other-region")
    assert "My CPU" in staged(project, "other-region")
    toc = yaml.safe_load((project / "_build" / "stage" / "_toc.yml").read_text())
    chapter = next(entry for entry in toc["chapters"] if entry["file"] == STUDY)
    assert chapter["sections"][-1] == {"file": f"notebooks/{STUDY}/my-case", "title": "my case"}
    assert {page.site for page in build.stage("laptop", root=project)} == {"reference"}


CHANGED = "it, its rows or its findings are not as the run left them"
# What is written over what, in which file of a result, and what is said of it.
DAMAGES = [
    (".csv", ",1.0,", ",0.9,", CHANGED),  # every time, consistently
    (".ipynb", '"outputs": \\[\\]', '"outputs": [{"name": "stdout", "output_type": "stream", "text": "3.1"}]', CHANGED),
    (".ipynb", '"sha256"', '"sha"', "it has no digest of what it is made of"),
    (".findings.csv", "1.523", "15.23", CHANGED),
    (".ipynb", "fig-x`\\)", "fig-x`) <script>alert(1)</script>", CHANGED),  # below a figure
    (".csv", r"(?s)^(.*\n)(.*)measured,0,0(.*)$", r"\1\2measured,0,0\3\2measured,1,0\3", "rows that in-region.ipynb was not executed with"),
    (".ipynb", "(?s)^.*$", "{", "not a whole notebook"),
    (".ipynb", "(?s)^.*$", '{"cells": 7}', "not a whole notebook"),
    (".ipynb", "(?s)^.*$", "[" * 200_000, "not a whole notebook"),
    (".ipynb", "(?s)^.*$", '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}', "without cells"),
    (".csv", "(?s)^.*$", "study,case\n", "in-region.csv: not a record of this schema"),
    (".findings.csv", "(?s)^.*$", "a,b\n1,2\n", "not the findings of a page"),
    (".csv", "", None, "its record in-region.csv is missing"),
]  # fmt: skip


def damage(page: Path, suffix: str, old: str, new: str | None) -> None:
    """Write something else into a file of a result, or take it away."""
    path = page.with_suffix(suffix)
    if new is None:
        path.unlink()
    else:
        path.write_text(re.sub(old, new, path.read_text(), count=1))


@pytest.mark.parametrize(("suffix", "old", "new", "told"), DAMAGES)
def test_damaged_results_are_not_shown(
    project: Path, suffix: str, old: str, new: str | None, told: str
) -> None:
    """Of one's own the reference is shown instead; of the reference the build ends. One line names it."""
    said: list[str] = []
    damage(make_results(project, "laptop", "in-region", machine="My CPU"), suffix, old, new)
    found = build.stage("laptop", root=project, say=said.append)
    assert {page.site for page in found} == {"reference"}
    assert told in said[0] and "not in the book: " in said[0] and said[0].isprintable()
    damage(project / "results" / "reference" / STUDY / "in-region.ipynb", suffix, old, new)
    with refused("results/reference", told):
        build.stage("laptop", root=project)


def test_what_a_run_leaves_is_passed_over_or_named(project: Path) -> None:
    """A draft, a failed notebook and what was set aside say nothing; a stray one is named."""
    said: list[str] = []
    for suffix in (".running", ".failed", ".20260102-030405"):
        draft = make_results(project, "laptop", f"in-region{suffix}")
        draft.with_suffix(".csv").unlink()
    for stray in ("my-study/case.ipynb", f"{STUDY}/<b>.ipynb"):
        path = project / "results" / "laptop" / stray
        path.parent.mkdir(exist_ok=True)
        shutil.copy(draft, path)
    (project / "results" / "reference" / STUDY / "other-region.ipynb").unlink()
    found = build.stage("laptop", root=project, say=said.append)
    assert {page.site for page in found} == {"reference"}
    assert "case: '<b>'; allowed: a name" in said[0] and len(said) == 3
    assert "no study is called 'my-study'; allowed: " in said[1]
    assert said[2] == f"{STUDY}/other-region: not measured yet"
    text = (project / "_build" / "stage" / "notebooks" / STUDY / "other-region.md").read_text()
    assert f"`make run CASE={STUDY}/other-region`" in text


def test_an_unstable_page_is_marked(project: Path) -> None:
    """Noise above the bound is told at the top of the page, that of the quantity which is judged."""
    make_results(project, "laptop", "in-region", noise=0.16)
    build.stage("laptop", root=project)
    first = staged(project, "in-region")
    assert "{admonition} Unstable" in first and "differ by 16 %" in first
    assert first.index("Unstable") < first.index("A question.") < first.index("Your own results")
    assert "Unstable" not in staged(project, "wide-area")


def test_a_page_says_whether_cpu_time_counts_and_how_many_reads_are_short(project: Path) -> None:
    """A network that is slowed down alone is said to be so, and so is a read of few waves."""
    dilated = {"dilation": 5.0, "n_requests": 32.0, "trace": {"max_in_flight": 8}}
    charged = {**dilated, "n_requests": 64.0, "settings": {"cache_state": "cold"}, "cpus": 4}
    notes = "CPU time is not counted here", "1 of 1 reads are of fewer than 8 waves"
    make_results(project, "laptop", "in-region", row=dilated)
    make_results(project, "laptop", "wide-area", row=charged)
    build.stage("laptop", root=project)
    assert all(text in staged(project, "in-region") for text in notes)
    assert not any(text in staged(project, "wide-area") for text in notes)


def test_older_results_are_staged_without_passwords(project: Path) -> None:
    """Results that hold credentials from before lose them on the way to the book."""
    path = make_results(project, "laptop", "wide-area")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[-1].outputs = [new_output("stream", text=f"at {ADDRESSES[2]}\n")]
    tags = {"tags": ["injected-parameters"]}
    notebook.cells.insert(1, new_code_cell(f"redis_url = {ADDRESSES[0]!r}", metadata=tags))
    nbformat.write(notebook, path)
    record = path.with_suffix(".csv")
    record.write_text(record.read_text().replace("crc32c", f"crc32c at {ADDRESSES[1]}"))
    cases.seal(path, path.with_suffix(".csv"))
    assert any(page.site == "laptop" for page in build.stage("laptop", root=project))
    files = [one for one in (project / "_build").rglob("*") if one.is_file()]
    assert not [one for one in files if SIGHTS.search(one.read_text("utf-8", "replace"))]


@pytest.mark.parametrize(("log", "message"), [
    # without a line number, in colour, with more to follow
    ("\x1b[91m/a b/_build/stage/index.md: ERROR: bad\x1b[39m\n/a/_build/stage/c.md:1: WARNING: d",
     "index.md: bad (and 1 more)"),
    ("WARNING: unknown config value 'x'", "_config.yml: unknown config value 'x'"),
    ("x.ExtensionError: no file\n\nRuntimeError:\n=====\n", "not built: x.ExtensionError: no file"),
    ("\x1b[39;49;00m\n", "not built: no message"),
])  # fmt: skip
def test_first_warning(log: str, message: str) -> None:
    """The first warning is told in one line with its page; without any, what an extension raised."""
    assert build.first_warning(log) == message


# Building.

TAG = "<script>document.title='planted'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, small: Path) -> Path:
    """A book built from invented results; a record of somebody else plants tags wherever it can."""
    root = shutil.copytree(small, tmp_path_factory.mktemp("book") / "a project")
    path = make_results(
        root,
        "laptop",
        "wide-area",
        machine=f"My CPU {TAG} {{raw}}`x` ```{{raw}} html\n{TAG}\n```",
        version=f"3 {TAG}",
        row={"contender": TAG, "commit": TAG, "check": f"=HYPERLINK({TAG})"},
    )
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].metadata["mystnb"]["figure"]["caption"] += f"{TAG} `{TAG}`` \\`{TAG}` $`${TAG}$`$ \\{TAG}"  # fmt: skip
    notebook.cells[1].metadata["mystnb"]["image"]["alt"] += TAG
    notebook.cells[-1].outputs = [
        new_output("display_data", data={kind: TAG})
        for kind in ("text/html", "text/markdown", "text/plain", "application/javascript")
    ] + [new_output("stream", text=TAG)]
    nbformat.write(notebook, path)
    told = {"gain": Finding(verdict=TAG), "rate": Finding(1.0, unit=TAG)}
    write_findings(path.with_suffix(".csv"), told, {"holds": False}, noise=0.01, n_blocks=1)
    cases.seal(path, path.with_suffix(".csv"))
    said: list[str] = []
    html = build.build("laptop", root=root, say=said.append).parent
    assert "3 cases: 1 of site laptop, 2 of the reference" in said
    return html


def test_what_a_stranger_planted_is_text(built: Path) -> None:
    """No tag of a record or of its findings is one on a page, and none of it is lost."""
    for path in built.rglob("*.html"):
        assert not re.search(r"<script>document|<img src=x|title='planted'</script>", path.read_text()), path  # fmt: skip
    text = (built / "notebooks" / STUDY / "wide-area.html").read_text()
    assert "My CPU &lt;script&gt;document.title=" in text
    assert text.count("&lt;script&gt;document.title") > 4, "what it printed is shown"
    download = (
        built.parent / "stage" / "_generated" / "records" / f"{STUDY}-wide-area.csv"
    ).read_text()
    assert "'=HYPERLINK(" in download, "no spreadsheet computes it"


def test_numbers_of_findings_are_printed(built: Path) -> None:
    """On their own page and on others; a claim that does not hold says so."""
    for name in ("index.html", f"notebooks/{STUDY}/in-region.html"):
        assert "1.5 (1.3 to 1.7) times as fast" in (built / name).read_text()
    details = "95 % interval 290 to 330 MB/s; record cluster-scaling/in-region"
    number = f'<span class="num" title="{details}" tabindex="0">310</span>'
    assert f"Reaches {number}, a factor of " in (built / f"{STUDY}.html").read_text()
    pages_ = [(built / "notebooks" / STUDY / f"{case}.html").read_text() for case in CASES]
    assert ["not so in these results" in text for text in pages_] == [False, False, True]


def test_an_unstable_number_carries_a_mark_with_its_reason(built: Path) -> None:
    """Only a mark stands in the sentence; a quiet number has none, and a claim that nobody judged says so."""
    text = (built / f"{STUDY}.html").read_text()
    reason = "unstable: noise of 13 % exceeds 8 %"
    mark = f'<sup class="unstable" title="{reason}" role="img" aria-label="{reason}" tabindex="0">\u2020</sup>'
    assert f"Noisy{mark} above 8 %, quiet. " in text
    own = re.search(
        r'<span class="num" title="noise 13 %; record [^"]*" tabindex="0">2x</span>(.*?), with',
        text,
    )
    assert own and own[1] == mark, "a number whose own noise is known carries its mark by itself"
    assert '<span class="not-so">(not decided in these results) </span> So.' in text


def test_buttons_open_the_source_and_offer_what_ran(built: Path) -> None:
    """Edit and launch buttons of a case's page lead to the source notebook, the issue button to the page."""
    links = read_pages(built)[f"notebooks/{STUDY}/in-region.html"].links
    (record,) = [link for link in links if link.endswith(f"{STUDY}-in-region.csv")]
    assert (built / "notebooks" / STUDY / record).read_text().startswith("study,case,contender")
    for start in ("https://mybinder.org/v2/gh/", "https://hub.", "https://github.com/arrays-over-the-wire/arrays-over-the-wire/edit/"):  # fmt: skip
        (link,) = [link for link in links if link.startswith(start)]
        assert f"notebooks/{STUDY}.ipynb" in link
    offered = f"_sources/notebooks/{STUDY}/{STUDY}-in-region.ipynb"
    assert f"../../{offered}" in links
    ran = json.loads((built / offered).read_text())
    assert [cell["source"] for cell in ran["cells"]][1] == "fig", "in the order of the run"
    (issue,) = [link for link in links if "/issues/new" in link]
    assert f"notebooks/{STUDY}/in-region.html" in issue


@pytest.mark.slow
def test_a_builder_ends_with_its_runner_and_holds_the_lock_until_then(project: Path) -> None:
    """Where the runner is killed, the lock is free once nobody writes any more."""
    script = "import sys; from pathlib import Path; from runner import build; build.build('laptop', root=Path(sys.argv[1]))"

    def find_builders() -> list[psutil.Process]:
        below = psutil.Process(running.pid).children(recursive=True)
        return [one for one in below if "jupyter-book" in " ".join(one.cmdline()[:2])]

    with subprocess.Popen(
        [sys.executable, "-c", script, project], env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as running:
        assert becomes(lambda: bool(find_builders()))
        builders = find_builders()
        running.kill()
    with (project / "_build" / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert not any(one.is_running() for one in builders)


def test_warnings_are_errors(project: Path) -> None:
    """Pages that warn are not built, and the error names a page and its warning."""
    wrong = {
        "method.md": ("{ref}`nowhere`", "undefined label: 'nowhere'"),
        "index.md": ("{cite:t}`nobody1900`", "could not find bibtex key"),
        f"{STUDY}.md": ("{num}`gain|loudly`", "num: 'loudly'; allowed"),
    }
    for name, (text, _) in wrong.items():
        with (project / "pages" / name).open("a") as page:
            page.write(f"\nSee {text}.\n")
    with refused("book", r"^\S+\.md: .*\(and "):
        build.build("laptop", root=project)
    told = [build.first_warning(line) for line in (project / "_build" / "book.log").read_text().splitlines()]  # fmt: skip
    for name, (_, message) in wrong.items():
        assert any(one.startswith(f"{name}: {message}") for one in told), message


def test_cases_run_in_the_order_of_the_book(tmp_path: Path) -> None:
    """What quotes the results of others runs after them, and a case without a page at the end."""
    (tmp_path / "_toc.yml").write_text(
        "root: index\nchapters:\n- file: notebooks/zeta/one\n- file: notebooks/alpha/one\n"
    )
    found = [Case("laptop", name, "one", tmp_path) for name in ("alpha", "mine", "zeta")]
    assert [case.notebook for case in pages.in_book_order(found, tmp_path)] == ["zeta", "alpha", "mine"]  # fmt: skip
    assert Page("zeta", "one", tmp_path, "x").name == "notebooks/zeta/one"


def test_the_first_page_has_pictures_of_what_is_shown(tmp_path: Path) -> None:
    """A bar is as long as its finding; where nothing is measured the picture is empty, and is there."""
    found = {"default-s": Finding(16.0), "whole-s": Finding(1.0)}
    pictures = {name: draw() for name, draw in draw_pictures(lambda _case: found, tmp_path).items()}
    assert all(picture.startswith("<?xml") for picture in pictures.values())
    assert ">16</text>" in pictures["home-hdf5.svg"]
    assert ">16</text>" not in draw_pictures(lambda _case: {}, tmp_path)["home-hdf5.svg"]()


def test_a_case_without_a_chapter_stands_under_the_explorer(tmp_path: Path) -> None:
    """A case that was measured here makes a page, though its notebook has no overview of its own."""
    toc = tmp_path / "_toc.yml"
    chapters = [{"file": "explorer"}, {"file": "formats"}]
    toc.write_text(yaml.safe_dump({"root": "index", "chapters": chapters}))
    measured = [Page(name, "in-region", tmp_path / "a.ipynb", "laptop") for name in ("loaders", "formats")]  # fmt: skip
    build._list_pages(toc, measured)
    listed = {
        chapter["file"]: [section["file"] for section in chapter["sections"]]
        for chapter in yaml.safe_load(toc.read_text())["chapters"]
    }
    assert listed == {
        "explorer": ["notebooks/loaders/in-region"],
        "formats": ["notebooks/formats/in-region"],
    }
