"""Pages staged and built by Jupyter Book, with every warning an error; results promoted to the reference."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from helpers.benchmark.record import read_records, schema
from helpers.findings import SUFFIX as FINDINGS_SUFFIX
from helpers.findings import read_findings
from helpers.parameters import Parameters, write_table
from helpers.paths import ROOT
from helpers.plotting import narrow
from runner import submitted
from runner.cases import (
    SUFFIXES,
    Case,
    find_case,
    find_cases,
    find_parameters,
    find_studies,
    find_study,
    is_done,
    read_parameters,
    seal,
)
from runner.home import draw_pictures
from runner.pages import (
    NOTEBOOKS,
    Page,
    Say,
    find_pages,
    list_cases,
    read_notebook,
    read_results,
    read_titles,
    render_page,
    tabulate_profiles,
    tabulate_records,
    walk_toc,
)
from runner.published import RATIOS, VERDICTS
from wire.children import start_child
from wire.errors import UserError, copy_redacted, redact_tree
from wire.files import check_name

# What a page may show or need besides the executed notebooks.
_EXPLORER = "explorer"
_SOURCES = ("_config.yml", "_toc.yml", "pages/*", "_static", "_ext")
# A figure of a case on another page: that of the results that the book shows.
_PICTURE = re.compile(r"_generated/figures/([\w-]+/[\w-]+)/([\w-]+)\.svg")
_LONGEST_S = 3600.0  # a build takes a minute or two
_WARNING = re.compile(r"^(?:(?P<page>.*?)(?::\d*)*: )?(?:WARNING|ERROR|CRITICAL): (?P<text>.*)$")


def stage(site: str, *, root: Path = ROOT, say: Say = lambda _line: None) -> list[Page]:
    """Copy what the book is made of to `_build/stage/`, emptied before."""
    pages = find_pages(check_name(site), root=root, say=say)
    into = root / "_build" / "stage"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for path in (path for pattern in _SOURCES for path in root.glob(pattern)):
        if path.is_dir():
            shutil.copytree(path, into / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(path, into / path.name)
    (into / "_generated").mkdir()
    for page in pages:
        _stage_page(page, into)
    titles = read_titles(root)
    for name in sorted({*list_cases(root)} - {page.name for page in pages}):
        say(f"{name.removeprefix(NOTEBOOKS)}: not measured yet")
        _stage_gap(name, titles[name], into)
    _list_pages(into / "_toc.yml", pages)
    _write_generated(pages, into, root=root, say=say)
    return pages


def _stage_page(page: Page, into: Path) -> None:
    """Write a page if it is shown, its record and findings next to it and what ran, without credentials.

    The download is named by study and case: that of another has another name.
    """
    target = into / f"{page.name}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    ran = into / "_generated" / "executed" / f"{page.name}.ipynb"
    both = ((target, render_page(page)), (ran, read_results(page)))
    for _, notebook in both:
        _take_narrow(notebook, into / "_static" / "narrow")
    for path, notebook in both if page.is_shown else ():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(redact_tree(notebook)), encoding="utf-8")
    for suffix in SUFFIXES[1:]:
        if (source := page.executed.with_suffix(suffix)).exists():
            copy_redacted(source, target.with_suffix(suffix))
    download = into / "_generated" / "records" / f"{page.notebook}-{page.case}.csv"
    download.parent.mkdir(exist_ok=True)
    if (findings := target.with_suffix(FINDINGS_SUFFIX)).exists():
        shutil.copy2(findings, download.with_suffix(FINDINGS_SUFFIX))
    with (
        target.with_suffix(".csv").open(newline="") as rows,
        download.open("w", newline="") as file,
    ):
        lines = ([*map(_as_text, line)] for line in csv.reader(rows))
        csv.writer(file, lineterminator="\n").writerows(lines)


def _take_narrow(notebook: Mapping[str, Any], folder: Path) -> None:
    """Move the narrow version of each figure of a notebook to a folder, where pages find it."""
    folder.mkdir(parents=True, exist_ok=True)
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if drawn := output.get("data", {}).pop(narrow.MIME, ""):
                wide = "".join(output["data"]["image/svg+xml"])
                name = f"{narrow.make_digest(wide)}.svg"
                (folder / name).write_text("".join(drawn), encoding="utf-8")


def _as_text(cell: str) -> str:
    """Quote what a spreadsheet would compute: a record may be a stranger's."""
    is_number = re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", cell)
    return (
        f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) and not is_number else cell
    )


def _stage_gap(name: str, title: str, into: Path) -> None:
    """Write the page of a case that nobody has measured: that it is so, and how to."""
    _, notebook, case = name.split("/")
    target = into / f"{name}.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    heading = title or f"{notebook.replace('-', ' ').capitalize()}: {case.replace('-', ' ')}"
    target.write_text(
        f"# {heading}\n\n:::{{admonition}} Not measured yet\n:class: note\n"
        "There is no record of this case, so there is nothing to show.\n"
        f"To measure it: `make run CASE={notebook}/{case}`.\n:::\n",
        encoding="utf-8",
    )


def _list_pages(toc_path: Path, pages: Sequence[Page]) -> None:
    """Append cases that the table of contents does not know under their notebook's overview.

    A notebook that has none stands under the explorer, which says how cases become pages.
    """
    toc = yaml.safe_load(toc_path.read_text(encoding="utf-8"))
    listed = {name for name, _ in walk_toc(toc)}
    for page in pages:
        if page.is_shown and page.name not in listed:
            places = (page.notebook, _EXPLORER)
            chapters = [
                entry for name in places for entry in toc["chapters"] if entry["file"] == name
            ]
            if not chapters:
                raise UserError(
                    "_toc.yml",
                    (
                        f"no page {page.notebook!r} to list {page.case!r} under; add {page.notebook}.md "
                        "and its entry"
                    ),
                )
            chapters[0].setdefault("sections", []).append(
                {"file": page.name, "title": page.case.replace("-", " ")}
            )
    toc_path.write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")


def _write_generated(pages: Sequence[Page], into: Path, *, root: Path, say: Say) -> None:
    """Write what text pages include of `_generated/`, from what the code itself uses."""
    by_title = {page.name.removeprefix(NOTEBOOKS): page for page in pages}
    executed = {title: page.executed for title, page in by_title.items()}
    sent = submitted.read_all(root / "results" / "submitted")
    for line in sent.left_out:
        say(f"results/submitted: not in the book: {line}")
    makers: dict[str, Callable[[], str]] = {
        "schema.md": lambda: write_table(["column", "type", "unit", "meaning"], schema()),
        "profiles.md": lambda: _render(tabulate_profiles()),
        "records.md": lambda: _render(tabulate_records(pages)),
        "submitted.md": lambda: submitted.render(sent, is_own=False),
        "submitted-own.md": lambda: submitted.render(sent, is_own=True),
        **{path.name: partial(path.read_text, "utf-8") for path in (VERDICTS, RATIOS)},
        **draw_pictures(
            lambda case: read_findings(executed.get(case, Path("none"))),
            into / "_static" / "narrow",
        ),
    }
    for name, study in find_studies().items():
        table = partial(_render_parameters, find_parameters(name))
        makers |= {f"parameters-{name}.md": table, **study.fragments}
        for served, make in study.served.items():
            (into / "_static" / served).parent.mkdir(parents=True, exist_ok=True)
            (into / "_static" / served).write_text(make(), encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in into.glob("*.md")]
    for name in {name for text in texts for name in re.findall(r"_generated/([\w.-]+)", text)}:
        if name in makers:
            (into / "_generated" / name).write_text(makers[name](), encoding="utf-8")
    for title, name in {picture for text in texts for picture in _PICTURE.findall(text)}:
        path = into / "_generated" / "figures" / title / f"{name}.svg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if title in by_title and (figure := _read_figure(read_results(by_title[title]), name)):
            path.write_text(figure, encoding="utf-8")


def _render(table: pd.DataFrame) -> str:
    return write_table([*map(str, table)], table.to_numpy().tolist())


def _render_parameters(model: type[Parameters]) -> str:
    """Write the parameters of a study as a table for its page."""
    lines = [
        (f"`{name}`", f"`{json.dumps(field.default)}`", field.description)
        for name, field in model.model_fields.items()
    ]
    return write_table(["parameter", "default", "meaning"], lines)


def _read_figure(notebook: Mapping[str, Any], name: str) -> str:
    """Read a figure out of an executed notebook by its name; empty if it is not there."""
    for cell in notebook["cells"]:
        figure = cell["metadata"].get("mystnb", {}).get("figure", {}).get("name")
        for output in cell.get("outputs", []):
            if figure == name and "image/svg+xml" in output.get("data", {}):
                return str(output["data"]["image/svg+xml"])
    return ""


def build(site: str, *, root: Path = ROOT, say: Say = lambda _line: None) -> Path:
    """Stage the book and build it, with every warning an error, and return its first page.

    Another that is being built here is waited for: both would empty the same folders. The builder
    holds the lock too, so that it is free no sooner than nobody writes.
    """
    folder = root / "_build"
    folder.mkdir(exist_ok=True)
    program = str(Path(sys.executable).with_name("jupyter-book"))
    command = [program, "build", "_build/stage", "--path-output", "."]
    command += ["--all", "--quiet", "--warningiserror", "--nitpick", "--keep-going"]
    log = folder / "book.log"
    with (folder / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pages = stage(site, root=root, say=say)
        n_own = sum(page.site != "reference" for page in pages)
        say(f"{len(pages)} cases: {n_own} of site {site}, {len(pages) - n_own} of the reference")
        say("writing the pages, which takes a minute or two; every warning ends it")
        for name in ("html", ".doctrees", "jupyter_execute"):
            shutil.rmtree(folder / name, ignore_errors=True)
        narrow_figures = root / "_build" / "stage" / "_static" / "narrow"
        env = {**os.environ, "ARRAYS_NARROW": str(narrow_figures)}  # of pages that draw now
        with start_child(command, env=env, folder=root, log=log, pass_fds=[lock.fileno()]) as child:
            exit_code = child.wait(timeout_s=_LONGEST_S)
    if exit_code:
        text = log.read_text(encoding="utf-8", errors="replace")
        raise UserError(
            "book", f"{first_warning(text)}; the whole log is in {log.relative_to(root)}"
        )
    return root / "_build" / "html" / "index.html"


def first_warning(log: str) -> str:
    """Say in one line what was wrong first, and how much more there is."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", log).splitlines()]
    warnings_found = [match for line in lines if (match := _WARNING.match(line))]
    if (
        not warnings_found
    ):  # what an extension raised says more than the box that is drawn around it
        raised = [line for line in lines if re.match(r"[\w.]+(?:Error|Exception): .", line)]
        return f"not built: {([*filter(None, lines), *raised] or ['no message'])[-1]}"
    page = (warnings_found[0]["page"] or "_config.yml").split("_build/stage/")[-1]
    more = f" (and {len(warnings_found) - 1} more)" if len(warnings_found) > 1 else ""
    return f"{page}: {warnings_found[0]['text']}{more}"


def publish(site: str, root: Path = ROOT, *, titles: Sequence[str] = ()) -> list[Path]:
    """Promote results of a site, of all cases or of those named, to what the book shows."""
    cases = [find_case(title, site, root) for title in titles] or find_cases(site, root)
    for case in cases:
        _refuse(case)
    copied = []
    for case in cases:
        for suffix in SUFFIXES:
            if (source := case.result(suffix)).exists():
                target = case.result(suffix, "reference")
                target.parent.mkdir(parents=True, exist_ok=True)
                copied.append(copy_redacted(source, target))
        seal(*(case.result(suffix, "reference") for suffix in (".ipynb", ".csv")))
    for study in find_studies().values():  # of one the README shows a figure
        cover = study.cover and Case("reference", study.name, study.cover[0], root)
        if study.cover and cover and cover.title in {case.title for case in cases}:
            copied.append(root / "results" / "reference" / "headline.svg")
            if figure := _read_figure(read_notebook(cover.result(".ipynb")), study.cover[1]):
                copied[-1].write_text(figure, encoding="utf-8")
    return copied


def _refuse(case: Case) -> None:
    """Refuse a result that nobody could make again, or that says too little."""
    if not is_done(case, read_parameters(case)):
        raise UserError(case.title, "not done; run it before it becomes the reference")
    rows = read_records([case.result(".csv")])
    n_blocks = rows.loc[rows["phase"] == "measured", "block"].nunique()
    least = find_study(case.notebook).least_blocks
    if n_blocks < least:
        raise UserError(case.title, f"{n_blocks} blocks", f"at least {least} in a reference record")
    if rows["is_dirty"].any():
        raise UserError(
            case.title,
            "measured with sources that are in no commit",
            "a record of a clean checkout",
        )
