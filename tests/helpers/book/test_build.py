"""Tests of `helpers.book`: what is staged, what is built, and what the pages say."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.benchmark.provenance import Provenance
from helpers.benchmark.record import Record, Row, read_rows
from helpers.book import build, cases
from helpers.book import pages as book
from helpers.book.cases import Case
from helpers.book.pages import Page
from helpers.errors import UserError
from helpers.paths import ROOT

CASES = ("in-region", "other-region", "wide-area")
GLUED = {
    "profile": "in-region",
    "scaling": "throughput still grows at 8 workers",
    "limits-of-others": "By the model none is held up.",
    "best-reads": "Zarr v3 through obstore",
    "best-contender": "Zarr with obstore",
    "best-throughput": "310 MB/s",
    "best-share-of-ceiling": "0.92",
    "ratio-best-to-s3fs": "1.9",
    "ratio-best-to-s3fs-one-get": "1.1",
    "ratio-best-to-netcdf": "4.1",
    "knee-workers": "4",
    "binding-limit": "the link",
    "median-prediction-error": "12 %",
    "aa-noise": "3.0 %",
    "n-blocks": "5",
    "machine": "an invented machine",
}
GLUE = re.compile(r"\{glue:text\}`(?P<page>[^:`]+)\.ipynb::(?P<key>[\w-]+)(?P<end>[^`]*)`")
UNITS = (
    r"(?:[kMGT]i?B(?:/s)?|[GM]b(?:/s|ps)|m?s|%|times|seconds|minutes|hours|GET/s|requests|workers)"
)
NUMBER_WITH_UNIT = re.compile(rf"(?<![\w-])\d[\d.,]*\s?{UNITS}(?![\w/])")
# What may hold a digit that nobody measured: roles, code, links, numbers of list items, and the
# names of thresholds that items of a list give the reasons of.
NOT_TYPED = re.compile(
    r"\{[\w:]+\}`[^`]*`|`[^`]*`|\[[^\]]*\]\([^)]*\)|^\d+\. |^- \*[^*]+\*|HDF5|ROS3|h5py",
    re.MULTILINE,
)
# A picture of one white pixel.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mP8/x8AAwMCAO+ip1sAAAAASUVORK5CYII="


def make_notebook(*, glued: dict[str, str], has_failed: bool = False) -> nbformat.NotebookNode:
    """Make an executed notebook as papermill leaves one."""
    figure = new_code_cell(
        "fig",
        execution_count=1,
        outputs=[new_output("display_data", data={"image/png": PNG})],
    )
    figure.metadata["mystnb"] = {
        "figure": {
            "name": "fig-scaling",
            "caption": "Throughput ({numref}`fig-scaling`), fig-scaling.",
        },
        "image": {"alt": "It grows."},
    }
    glue = new_code_cell(
        "for key, text in found.items():\n    glue(key, text, display=False)",
        execution_count=2,
    )
    for key, text in glued.items():
        bundle = {"application/papermill.record/text/plain": repr(text)}
        glue.outputs.append(
            new_output(
                "display_data",
                data=bundle,
                metadata={
                    "scrapbook": {
                        "mime_prefix": "application/papermill.record/",
                        "name": key,
                    }
                },
            )
        )
    if has_failed:
        glue.outputs = [
            new_output(
                "error",
                ename="UserError",
                evalue="no store",
                traceback=["UserError: no store"],
            )
        ]
    text = new_markdown_cell(
        "(fig-table)=\n## Findings\n\nSee {numref}`fig-scaling` and {ref}`below <fig-table>`, a fig-table, with $t = n / b$.\n\n$$ t = \\frac{n}{b} $$"
    )
    cells = [
        new_markdown_cell("# How does it scale?\n\nA question."),
        figure,
        text,
        glue,
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(
        cells=cells,
        metadata={"kernelspec": kernel, "papermill": {"exception": has_failed or None}},
    )


def make_row(case: str) -> Row:
    """Make one row of an invented record."""
    return Row(
        study="cluster-scaling", case=case, contender="zarr", point={"n_workers": 1}, settings={"cache_state": "cold"},
        cache_state="cold", is_ceiling=False, control_of="", seed=1, phase="measured", block=0, order=0,
        started_utc="2026-01-02T03:04:05+00:00", open_s=0.1, read_s=1.0, array_nbytes=10, stored_nbytes=5,
        wire_nbytes=6, n_requests=2, trace={}, check="checksum", fingerprint="", machine={}, versions={},
        parameters={}, commit="0123456789abcdef", is_dirty=False,
    )  # fmt: skip


def make_results(
    root: Path,
    site: str,
    case: str,
    *,
    machine: str = "Invented CPU",
    has_failed: bool = False,
    glued: dict[str, str] = GLUED,
    minutes: Sequence[int] = (0,),
) -> Path:
    """Write an executed notebook and its record, and return the notebook's path."""
    path = root / "results" / site / "cluster-scaling" / f"{case}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(make_notebook(glued=glued, has_failed=has_failed), path)
    facts = {"cpu": machine, "n_cores": 2, "memory_gb": 8, "system": "Linux"}
    origin = Provenance(facts, {"python": "3.12.1", "zarr": "3.1.6"}, {})
    record = Record(path.with_suffix(".csv"), study="cluster-scaling", case=case, provenance=origin)
    record.append(
        [
            replace(
                make_row(case),
                machine=facts,
                versions=origin.versions,
                fingerprint=origin.fingerprint,
                block=block,
                started_utc=f"2026-01-02T03:{4 + minute:02}:{block:02}+00:00",
            )
            for block, minute in enumerate(minutes)
        ]
    )
    return path


PAGES = {
    "index": "# A book\n\n{glue:text}`notebooks/cluster-scaling/in-region.ipynb::best-throughput:s`\n",
    "cluster-scaling": "# A study\n\n{glue:text}`notebooks/cluster-scaling/in-region.ipynb::best-throughput:s`\n",
    "method": "# Method\n\nOn {glue:text}`notebooks/cluster-scaling/in-region.ipynb::machine:s`, with $x^2$, after {cite:t}`abernathey2020`.\n",
}
"""Text pages of an invented book; those of the real one are tested as a site."""


def make_project(root: Path) -> Path:
    """Make a project of one study, with invented pages and invented reference results."""
    root.mkdir(parents=True, exist_ok=True)
    for name in ("_config.yml", "references.bib", "references.md"):
        shutil.copy(ROOT / name, root / name)
    for name, text in PAGES.items():
        (root / f"{name}.md").write_text(text)
    sections = [{"file": f"notebooks/cluster-scaling/{case}"} for case in CASES]
    chapters = [{"file": "method"}, {"file": "cluster-scaling", "sections": sections}, {"file": "references"}]  # fmt: skip
    toc = {"format": "jb-book", "root": "index", "chapters": chapters}
    (root / "_toc.yml").write_text(yaml.safe_dump(toc))
    for name in ("_static", "_ext"):
        shutil.copytree(ROOT / name, root / name)
    for case in CASES:
        make_results(root, "reference", case)
    return root


def stage_cases(site: str, root: Path) -> list[Page]:
    """Stage the book and return the pages of the study whose results are invented."""
    return [page for page in build.stage(site, root=root) if page.notebook == "cluster-scaling"]


def source_pages() -> list[Path]:
    """List the text pages that `_toc.yml` names."""
    return [ROOT / f"{name}.md" for name in book.toc_files() if not name.startswith("notebooks/")]


def reference_notebooks() -> list[Path]:
    """List the committed executed notebooks."""
    return sorted((ROOT / "results" / "reference").glob("*/*.ipynb"))


def source_notebooks() -> list[Path]:
    """List the notebooks."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


@cache
def glued_keys(path: Path) -> set[str]:
    """List the keys that an executed notebook glues."""
    cells = nbformat.read(path, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return {
        output.metadata["scrapbook"]["name"]
        for output in outputs
        if "scrapbook" in output.get("metadata", {})
    }


def findings(path: Path) -> str:
    """Return the text of the sections of a notebook whose heading speaks of findings."""
    cells = [
        cell.source
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown"
    ]
    sections = re.split(r"(?m)^(?=## )", "\n".join(cells))
    return "\n".join(text for text in sections if re.match(r"## .*find", text, re.IGNORECASE))


# The sources of the book.


def test_pages_exist() -> None:
    """Every text page of `_toc.yml` exists, and every text page is in it."""
    assert [path.name for path in source_pages() if not path.exists()] == []
    assert {path.name for path in ROOT.glob("*.md")} - {
        path.name for path in source_pages()
    } <= set(build.NOT_PAGES)


def test_cases_are_listed() -> None:
    """The cases of `_toc.yml` are those that the laptop site has parameters for."""
    listed = {*book.list_cases()}
    files = (ROOT / "parameters" / "laptop").glob("*/*.yaml")
    assert listed == {f"notebooks/{path.parent.name}/{path.stem}" for path in files}


def test_index_types_no_number() -> None:
    """The first page glues its numbers."""
    assert re.findall(r".*\d.*", NOT_TYPED.sub("", (ROOT / "index.md").read_text())) == []


@pytest.mark.parametrize("path", source_notebooks(), ids=lambda path: path.stem)
def test_overview_types_no_measurement(path: Path) -> None:
    """The overview of a study glues its numbers."""
    text = (ROOT / f"{path.stem}.md").read_text()
    assert NUMBER_WITH_UNIT.findall(NOT_TYPED.sub("", text)) == []


def test_findings_type_no_measurement() -> None:
    """No notebook types a number with a unit among its findings."""
    assert source_notebooks()
    for path in source_notebooks():
        assert findings(path), f"{path.name} has no section of findings"
        assert NUMBER_WITH_UNIT.findall(NOT_TYPED.sub("", findings(path))) == [], path.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It reaches 310 MB/s.", ["310 MB/s"]),
        ("It is 3.1 times faster", ["3.1 times"]),
        ("within 12 % of it", ["12 %"]),
        ("in 40ms", ["40ms"]),
        # Glued, a label, a year, a count without a unit: all allowed.
        ("{glue:text}`best-throughput:s` in {numref}`fig-4ms`", []),
        ("the 2020 configuration, version 3", []),
    ],
)
def test_number_with_unit(text: str, expected: list[str]) -> None:
    """The rule finds what was typed and leaves alone what was glued."""
    assert NUMBER_WITH_UNIT.findall(NOT_TYPED.sub("", text)) == expected


def test_figures_are_described() -> None:
    """Every figure has a name, a caption and alt text, and every picture is a figure."""
    assert source_notebooks()
    assert reference_notebooks()
    for path in [*source_notebooks(), *reference_notebooks()]:
        names = []
        for cell in nbformat.read(path, as_version=4).cells:
            described = cell.metadata.get("mystnb", {})
            has_picture = any(
                "image/" in kind
                for output in cell.get("outputs", [])
                for kind in output.get("data", {})
            )
            if has_picture or "figure" in described:
                names.append(described["figure"]["name"])
                assert re.fullmatch(r"fig-[a-z0-9-]+", names[-1]), (
                    path.name,
                    names[-1],
                )
                assert len(described["figure"]["caption"]) > 20, (path.name, names[-1])
                assert len(described["image"]["alt"]) > 20, (path.name, names[-1])
        assert len(names) == len(set(names)) > 0, path.name


def test_glued_keys_exist() -> None:
    """Every key that a text page glues is in the reference notebook that it names."""
    for path in source_pages():
        for match in GLUE.finditer(path.read_text()):
            executed = (
                ROOT / "results" / "reference" / f"{match['page'].removeprefix('notebooks/')}.ipynb"
            )
            assert match["key"] in glued_keys(executed), (path.name, match[0])
            # Without a format MyST-NB takes what follows the last colon, which is the key, for one.
            assert match["end"] == ":s", (path.name, match[0])


def test_published_tables_have_sources() -> None:
    """Every published table is named in its `README.md`, and every table named there exists."""
    folder = ROOT / "results" / "published"
    named = set(re.findall(r"`([\w-]+\.csv)`", (folder / "README.md").read_text()))
    assert named == {path.name for path in folder.glob("*.csv")}


# Staging.


@pytest.fixture(autouse=True, scope="module")
def no_tables() -> Iterator[None]:
    """Leave out the tables that real pages include: some are simulated, and the site is tested with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_write_generated", Path.mkdir)
        yield


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project to be copied."""
    return make_project(tmp_path_factory.mktemp("small"))


@pytest.fixture
def project(tmp_path: Path, small: Path) -> Path:
    """A project of its own, in a folder with a space in its name."""
    return shutil.copytree(small, tmp_path / "a project")


def staged(root: Path, case: str) -> str:
    """Return the first cell of a staged page."""
    cells = nbformat.read(
        root / "_build" / "stage" / "notebooks" / "cluster-scaling" / f"{case}.ipynb",
        as_version=4,
    ).cells
    return str(cells[0].source)


def test_reference_is_shown(project: Path) -> None:
    """Without results of one's own each page shows the reference and says so, with its origin."""
    pages = stage_cases("laptop", project)
    assert [(page.case, page.site) for page in pages] == [(case, "reference") for case in CASES]
    first = staged(project, "wide-area")
    assert first.startswith("# How does it scale? (wide area)\n")
    for part in (
        "Reference record",
        "Invented CPU, 2 cores, 8 GB",
        "2026-01-02",
        "zarr 3.1.6",
        "0123456789",
        "<wide-area.csv>",
    ):
        assert part in first


def test_versions_of_every_row_are_shown(project: Path) -> None:
    """A row names what was imported by then: the page names what any of them does."""
    path = project / "results" / "reference" / "cluster-scaling" / "in-region.csv"
    (row,) = read_rows(path)
    later = replace(row, block=1, versions={**row.versions, "zarrs": "0.2.3"})
    origin = Provenance(row.machine, row.versions, row.parameters)
    record = Record(path, study=row.study, case=row.case, provenance=origin)
    record.append([later])
    stage_cases("laptop", project)
    text = staged(project, "in-region")
    assert "Versions of the 3 packages and libraries in use" in text
    assert "python 3.12.1, zarr 3.1.6, zarrs 0.2.3." in text


def test_own_results_come_first(project: Path) -> None:
    """A finished case of one's own replaces the reference on its page, and on no other."""
    make_results(project, "hub", "other-region", machine="My CPU")
    sites = [page.site for page in stage_cases("hub", project)]
    assert sites == ["reference", "hub", "reference"]
    assert "Your own results (site hub)" in staged(project, "other-region")
    assert "My CPU" in staged(project, "other-region")
    assert "Reference record" in staged(project, "in-region")
    # Another site does not see them.
    assert {page.site for page in build.stage("laptop", root=project)} == {"reference"}


def test_failed_run_is_named(project: Path) -> None:
    """A failed run of one's own is not shown, and the page says that it failed."""
    make_results(project, "laptop", "in-region", machine="My CPU", has_failed=True)
    assert build.stage("laptop", root=project)[0].site == "reference"
    assert "at site laptop did not finish" in staged(project, "in-region")
    assert "My CPU" not in staged(project, "in-region")


def seal(path: Path) -> Path:
    """Put the digest of its rows into an executed notebook, as the runner does; return the record."""
    record = path.with_suffix(".csv")
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["case"] = {"rows": cases.digest_rows(record)}
    nbformat.write(notebook, path)
    return record


def edit(record: Path) -> None:
    """Change a digit of every time, consistently."""
    record.write_text(record.read_text().replace(",1.0,", ",0.9,"))


def test_a_page_says_whether_its_rows_are_sealed(project: Path) -> None:
    """Records of before there were digests are shown, with that statement."""
    seal(project / "results" / "reference" / "cluster-scaling" / "in-region.ipynb")
    build.stage("laptop", root=project)
    assert "by SHA-256 (" in staged(project, "in-region")
    assert "No digest of its rows" in staged(project, "wide-area")


def test_edited_results_are_not_shown(project: Path) -> None:
    """One's own give way to the reference, with a line; an edited reference ends the build."""
    said: list[str] = []
    own = seal(make_results(project, "laptop", "in-region", machine="My CPU"))
    before = own.read_text()
    edit(own)
    assert own.read_text() != before
    assert stage_cases("laptop", project)[0].site == "reference"
    build.stage("laptop", root=project, say=said.append)
    told = "in-region.csv: its rows are not those that in-region.ipynb was executed with"
    assert f"results/laptop/cluster-scaling/in-region.ipynb: not in the book: {told}" in said[0]
    own.write_text(before)
    assert stage_cases("laptop", project)[0].site == "laptop"
    edit(seal(project / "results" / "reference" / "cluster-scaling" / "wide-area.ipynb"))
    with pytest.raises(UserError, match=f"^{told.replace('in-region', 'wide-area')}; restore it"):
        build.stage("laptop", root=project)


@pytest.mark.parametrize(
    ("suffix", "text", "told"),
    [
        (".ipynb", "{", "not a whole notebook"),
        (".ipynb", '{"cells": 7}', "not a whole notebook"),
        (".ipynb", '{"cells": [{"source": "x", "cell_type": "code"}]}', "not a whole notebook"),
        (".csv", "study,case\n", "in-region.csv: not a record of this schema"),
        (".csv", None, "its record in-region.csv is missing"),
    ],
)
def test_damaged_results_of_ones_own_do_not_block_the_book(
    project: Path, suffix: str, text: str | None, told: str
) -> None:
    """The reference is shown instead, and one line names what is damaged."""
    said: list[str] = []
    path = make_results(project, "laptop", "in-region", machine="My CPU").with_suffix(suffix)
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    pages = build.stage("laptop", root=project, say=said.append)
    assert {page.site for page in pages} == {"reference"}
    assert said[0].startswith("results/laptop/cluster-scaling/in-region.ipynb: not in the book: ")
    assert told in said[0] and "\n" not in said[0]


def test_interrupted_run_is_not_finished(project: Path) -> None:
    """A notebook with a cell that never ran is not a result."""
    path = make_results(project, "laptop", "in-region")
    assert book.is_finished(path)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[-1].execution_count = None
    nbformat.write(notebook, path)
    assert not book.is_finished(path)


def test_further_case_is_listed(project: Path) -> None:
    """A case that `_toc.yml` does not know appears under its notebook."""
    make_results(project, "laptop", "my-case")
    assert [page.case for page in stage_cases("laptop", project)] == [*CASES, "my-case"]
    toc = yaml.safe_load((project / "_build" / "stage" / "_toc.yml").read_text())
    chapter = next(entry for entry in toc["chapters"] if entry["file"] == "cluster-scaling")
    assert chapter["sections"][-1] == {
        "file": "notebooks/cluster-scaling/my-case",
        "title": "my-case",
    }


@pytest.mark.parametrize("suffix", [".running", ".failed", ".20260102-030405"])
def test_what_a_run_leaves_is_no_page(project: Path, suffix: str) -> None:
    """A draft, whole or torn, and a failed notebook are passed over without a word."""
    said: list[str] = []
    draft = make_results(project, "laptop", f"in-region{suffix}")
    draft.with_suffix(".csv").unlink()
    torn = draft.with_name(f"wide-area{suffix}.ipynb")
    torn.write_text("{")
    pages = build.stage("laptop", root=project, say=said.append)
    assert {page.site for page in pages} == {"reference"}
    assert [line for line in said if not line.endswith(": not measured yet")] == []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("cluster-scaling/copy.ipynb", None, "its record copy.csv is missing"),
        ("my-study/case.ipynb", None, "no study is called my-study; allowed: "),
        ("cluster-scaling/torn.ipynb", "{", "its record torn.csv is missing"),
    ],
)
def test_a_stray_notebook_is_named(project: Path, name: str, text: str | None, told: str) -> None:
    """A notebook that no page can be made of is named in one line, and the book is built without."""
    said: list[str] = []
    path = project / "results" / "laptop" / name
    path.parent.mkdir(parents=True)
    if text is None:
        nbformat.write(make_notebook(glued=GLUED), path)
    else:
        path.write_text(text)
    pages = build.stage("laptop", root=project, say=said.append)
    assert {page.site for page in pages} == {"reference"}
    [line] = [line for line in said if not line.endswith(": not measured yet")]
    assert line.startswith(f"results/laptop/{name}: not in the book: {told}")


def test_an_unstable_page_is_marked(project: Path) -> None:
    """Noise above the bound, if only in a block, is told at the top of the page; below it is not."""
    glued = GLUED | {"aa-noise-worst": "16 %, unstable", "verdict": "It scales."}
    make_results(project, "laptop", "in-region", glued=glued)
    build.stage("laptop", root=project)
    first = staged(project, "in-region")
    assert "{admonition} Unstable" in first and "differ by up to 16 %" in first
    assert first.index("Unstable") < first.index("A question.") < first.index("It scales.")
    assert first.index("It scales.") < first.index("{admonition} Your own results")
    assert "Unstable" not in staged(project, "wide-area")


def test_a_page_tells_what_the_runner_took(project: Path) -> None:
    """The share of a core is that of the executed notebook; an older one has none."""
    path = make_results(project, "laptop", "in-region")
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["case"] = {"harness": {"share_of_a_core": 0.0042}}
    nbformat.write(notebook, path)
    build.stage("laptop", root=project)
    assert "the runner took 0.42 % of a core" in staged(project, "in-region")
    assert "the runner took" not in staged(project, "wide-area")


def test_a_page_tells_its_runs(project: Path) -> None:
    """A record that was continued after a pause says so on its page."""
    make_results(project, "laptop", "in-region")
    make_results(project, "laptop", "other-region", minutes=[0, 0, 14, 14, 14])
    build.stage("laptop", root=project)
    assert "Measured in 2 runs" not in staged(project, "in-region")
    told = "Measured in 2 runs: blocks 0 to 1, then blocks 2 to 4 after a pause of 14 minutes."
    assert told in staged(project, "other-region")


def test_labels_are_unique(project: Path) -> None:
    """The pages of one notebook share no label, and words of the text stay as they are."""
    build.stage("laptop", root=project)
    folder = project / "_build" / "stage" / "notebooks" / "cluster-scaling"
    cells = nbformat.read(folder / "in-region.ipynb", as_version=4).cells
    (figure,) = [c.metadata["mystnb"]["figure"] for c in cells if "mystnb" in c.metadata]
    (text,) = [c.source for c in cells if "## Findings" in c.source]
    assert figure["name"] == "fig-scaling-cluster-scaling-in-region"
    assert (
        figure["caption"]
        == "Throughput ({numref}`fig-scaling-cluster-scaling-in-region`), fig-scaling."
    )
    assert text.startswith("(fig-table-cluster-scaling-in-region)=\n")
    assert (
        "{numref}`fig-scaling-cluster-scaling-in-region` and {ref}`below <fig-table-cluster-scaling-in-region>`, a fig-table"
        in text
    )


def test_stage_leaves_nothing_behind(project: Path) -> None:
    """What was staged before and is gone from the project is gone from the stage."""
    build.stage("laptop", root=project)
    old = project / "_build" / "stage" / "old.md"
    old.write_text("# Old")
    build.stage("laptop", root=project)
    assert not old.exists()


def test_sources_stay_as_they_are(project: Path) -> None:
    """Staging and its changes touch no file of the project."""
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    build.stage("laptop", root=project)
    assert {path: path.read_bytes() for path in before} == before


def test_a_case_without_results_says_so(project: Path) -> None:
    """A listed case that nobody measured has a page that says how to, and is named in one line."""
    said: list[str] = []
    (project / "results" / "reference" / "cluster-scaling" / "in-region.ipynb").unlink()
    pages = build.stage("laptop", root=project, say=said.append)
    assert "notebooks/cluster-scaling/in-region" not in {page.name for page in pages}
    assert "cluster-scaling/in-region: not measured yet" in said
    folder = project / "_build" / "stage" / "notebooks" / "cluster-scaling"
    text = (folder / "in-region.md").read_text()
    assert "Not measured yet" in text and "`make run CASE=cluster-scaling/in-region`" in text
    assert not (folder / "in-region.ipynb").exists()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        # A notebook without its record: which file is missing.
        ("in-region.csv", "results/reference/cluster-scaling/in-region.csv is missing"),
    ],
)  # fmt: skip
def test_missing_results_are_named(project: Path, broken: str, message: str) -> None:
    """What is missing is said in one line."""
    (project / "results" / "reference" / "cluster-scaling" / broken).unlink()
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        build.stage("laptop", root=project)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("in-region.ipynb", "{", "in-region.ipynb: not a whole notebook"),
        (
            "in-region.ipynb",
            '{"cells": []}',
            "in-region.ipynb: a notebook without cells",
        ),
        ("in-region.csv", "study,case\n", "in-region.csv: not a record"),
    ],
)
def test_torn_results_are_named(project: Path, name: str, text: str, message: str) -> None:
    """A file that is no notebook or no record is refused by name."""
    (project / "results" / "reference" / "cluster-scaling" / name).write_text(text)
    with pytest.raises(UserError, match=re.escape(message)):
        build.stage("laptop", root=project)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (
            "/a/_build/stage/method.md:7: WARNING: undefined label: 'x'",
            "book: method.md: undefined label: 'x'",
        ),
        # Without a line number, in colour, with more to follow.
        (
            "\x1b[91m/a b/_build/stage/index.md: ERROR: bad\x1b[39m\n/a/_build/stage/c.md:1: WARNING: d",
            "book: index.md: bad (and 1 more)",
        ),
        # A warning about the configuration names no page.
        (
            "WARNING: unknown config value 'x'",
            "book: _config.yml: unknown config value 'x'",
        ),
        # No warning at all: the last line is what there is.
        ("Traceback:\nTypeError: y\n", "book: not built: TypeError: y"),
    ],
)
def test_first_warning(log: str, message: str) -> None:
    """The first warning is told in one line with its page."""
    assert build.first_warning(log) == message


# Building.


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
        if tag in {
            "div",
            "section",
            "article",
            "main",
            "table",
            "figure",
            "dl",
            "ul",
            "ol",
        }:
            self.open.append(tag)
        if tag == "a":
            self.links.append(given.get("href") or "")
        elif tag == "link" and given.get("rel") not in {
            "canonical",
            "license",
            "search",
            "next",
            "prev",
            "index",
        }:
            self.loads.append(given.get("href") or "")
        elif given.get("src"):
            self.loads.append(given["src"] or "")
        if tag == "img":
            self.pictures.append(given)

    def handle_endtag(self, tag: str) -> None:
        """Note a tag that closes another than the last one opened."""
        if tag in {
            "div",
            "section",
            "article",
            "main",
            "table",
            "figure",
            "dl",
            "ul",
            "ol",
        } and (not self.open or self.open.pop() != tag):
            self.mismatched.append(tag)


def read_pages(html: Path) -> dict[str, Resources]:
    """Read the pages of a built book."""
    paths = [path for path in html.rglob("*.html") if "_static" not in path.parts]
    return {path.relative_to(html).as_posix(): Resources(path.read_text()) for path in paths}


def assert_reads_offline(html: Path) -> None:
    """Check that no page, script or style sheet of a book loads anything from elsewhere."""
    for name, page in read_pages(html).items():
        assert [address for address in page.loads if re.match(r"(?:https?:)?//", address)] == [], (
            name
        )
        assert page.mismatched == page.open == [], name
    for path in [*html.rglob("*.css"), *html.rglob("*.js"), *html.rglob("*.html")]:
        text = path.read_text()
        assert not re.search(
            r"https?://[^\s\"']*(?:unpkg|jsdelivr|cdnjs|googleapis|gstatic)", text
        ), path
        assert not re.search(r"(?:@import|url\()\s*[\"']?https?://", text), path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book built from invented results, one case of it the user's own."""
    root = make_project(tmp_path_factory.mktemp("book") / "a project")
    make_results(root, "laptop", "wide-area", machine="My CPU")
    said: list[str] = []
    html = build.build("laptop", root=root, say=said.append).parent
    (root / "_build" / "said.txt").write_text("\n".join(said))
    return html


def test_book_reads_offline(built: Path) -> None:
    """Pages with formulas, figures and citations need nothing from the web."""
    assert_reads_offline(built)
    assert "<math" in (built / "notebooks" / "cluster-scaling" / "in-region.html").read_text()


def test_the_build_says_what_it_does(built: Path) -> None:
    """It tells whose results it shows, that it writes pages, and what the heaviest weighs."""
    said = (built.parent / "said.txt").read_text()
    assert re.search(r"^\d+ cases: 1 of site laptop, \d+ of the reference$", said, re.MULTILINE)
    assert "writing the pages" in said
    assert re.search(r"\d+ pages; the heaviest with all it loads is \S+\.html, \d+ kB", said)


def test_pages_have_stable_addresses(built: Path) -> None:
    """Each page of `_toc.yml` has the address that its name promises."""
    toc = yaml.safe_load((built.parent / "stage" / "_toc.yml").read_text())
    names = [*book.walk_toc(toc)]
    assert (
        len(names) == 6 and [name for name in names if not (built / f"{name}.html").exists()] == []
    )


def test_pages_say_whose_results(built: Path) -> None:
    """The built pages tell the reference from the user's own, and offer the record."""
    folder = built / "notebooks" / "cluster-scaling"
    assert "Reference record" in (folder / "in-region.html").read_text()
    assert "Your own results (site laptop)" in (folder / "wide-area.html").read_text()
    for case in CASES:
        links = Resources((folder / f"{case}.html").read_text()).links
        records = [folder / link for link in links if link.endswith(f"{case}.csv")]
        assert len(records) == 1
        assert records[0].resolve().read_text().startswith("study,case,contender")


def test_numbers_are_glued(built: Path) -> None:
    """Findings reach the first page and the overview from the executed notebooks."""
    for name in ("index.html", "cluster-scaling.html"):
        assert GLUED["best-throughput"] in (built / name).read_text()
    assert GLUED["machine"] in (built / "method.html").read_text()


def test_buttons_open_the_source(built: Path) -> None:
    """Edit and launch buttons of a case's page lead to the source notebook, the issue button to the page."""
    links = Resources(
        (built / "notebooks" / "cluster-scaling" / "in-region.html").read_text()
    ).links
    for start in (
        "https://mybinder.org/v2/gh/",
        "https://hub.",
        "https://github.com/arrays-over-the-wire/arrays-over-the-wire/edit/",
    ):
        (link,) = [link for link in links if link.startswith(start)]
        assert "notebooks/cluster-scaling.ipynb" in link
    assert "../../_sources/notebooks/cluster-scaling/in-region.ipynb" in links
    assert (built / "_sources" / "notebooks" / "cluster-scaling" / "in-region.ipynb").exists()
    (issue,) = [link for link in links if "/issues/new" in link]
    assert "notebooks/cluster-scaling/in-region.html" in issue


def test_furniture_is_there(built: Path) -> None:
    """Every page has a favicon and the licence; the search index holds the words of the pages."""
    for name, page in read_pages(built).items():
        assert any(address.endswith("favicon.svg") for address in page.loads), name
        assert "https://creativecommons.org/licenses/by/4.0/" in page.links, name
    index = (built / "searchindex.js").read_text()
    assert '"version"' in index or "version:" in index
    assert (
        "Profiling" in (built / "references.html").read_text()
        or "profiling" in (built / "references.html").read_text()
    )


WRONG = (
    ("method.md", "\nSee {ref}`nowhere`.\n", "undefined label: 'nowhere'"),
    ("index.md", "\n{cite:t}`nobody1900`\n", "could not find bibtex key"),
    ("cluster-scaling.md", "\n{glue:text}`notebooks/cluster-scaling/in-region.ipynb::no-such-key:s`\n", "Glue reference 'no-such-key' not found"),
)  # fmt: skip
"""Page, what is wrong on it, and how that is told."""


def test_warnings_are_errors(project: Path) -> None:
    """Pages that warn are not built, and the error names a page and its warning."""
    for name, text, _ in WRONG:
        with (project / name).open("a") as page:
            page.write(text)
    with pytest.raises(UserError, match=r"^book: \S+\.md: ") as caught:
        build.build("laptop", root=project)
    assert "\n" not in str(caught.value)
    assert f"(and {len(WRONG) - 1} more); the whole log is in _build/book.log" in str(caught.value)
    log = (project / "_build" / "book.log").read_text().splitlines()
    told = [build.first_warning(line) for line in log]
    for name, _, message in WRONG:
        assert any(one.startswith(f"book: {name}: {message}") for one in told), message


def test_cases_run_in_the_order_of_the_book(tmp_path: Path) -> None:
    """What quotes the results of others runs after them, and a case without a page at the end."""
    (tmp_path / "_toc.yml").write_text(
        "root: index\nchapters:\n- file: notebooks/zeta/one\n- file: notebooks/alpha/one\n"
    )
    cases = [Case("laptop", name, "one", tmp_path) for name in ("alpha", "mine", "zeta")]
    found = [case.notebook for case in book.in_book_order(cases, tmp_path)]
    assert found == ["zeta", "alpha", "mine"]
