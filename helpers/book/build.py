"""Pages staged and built, with every warning an error; results promoted to the reference."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import nbformat
import pandas as pd
import yaml

from helpers.book.cases import Case, find_case, find_cases, is_done, read_parameters
from helpers.book.pages import (
    Page,
    find_pages,
    list_cases,
    render_page,
    render_profile_sources,
    render_profiles,
    render_schema,
    walk_toc,
)
from helpers.book.studies import find_studies, render_parameters
from helpers.errors import UserError
from helpers.paths import ROOT, check_site
from helpers.redaction import copy_redacted, redact_tree

_PROFILES = ROOT / "helpers" / "netem" / "profiles.yaml"
# What a page may show or need besides the executed notebooks.
_SOURCES = ("_config.yml", "_toc.yml", "*.md", "references.bib", "_static", "_ext")
# Repository files that are no pages.
NOT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_WARNING = re.compile(r"^(?:(?P<page>.*?)(?::\d*)*: )?(?:WARNING|ERROR|CRITICAL): (?P<text>.*)$")


def stage(
    site: str, *, root: Path = ROOT, say: Callable[[str], None] = lambda _line: None
) -> list[Page]:
    """Copy what the book is made of to `_build/stage/`, emptied before."""
    pages = find_pages(check_site(site), root=root, say=say)
    into = root / "_build" / "stage"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    _copy_sources(root, into)
    _write_generated(into / "_generated")
    for page in pages:  # beside each its record, both without credentials
        target = into / f"{page.name}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(redact_tree(render_page(page))), encoding="utf-8")
        copy_redacted(page.record, target.with_suffix(".csv"))
    for name in sorted({*list_cases(root)} - {page.name for page in pages}):
        say(f"{name.removeprefix('notebooks/')}: not measured yet")
        _stage_gap(name, into)
    _list_pages(into / "_toc.yml", pages)
    return pages


def _copy_sources(root: Path, into: Path) -> None:
    """Copy the text pages, the configuration and what they use."""
    for path in (path for pattern in _SOURCES for path in root.glob(pattern)):
        if path.is_dir():
            shutil.copytree(path, into / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.name not in NOT_PAGES:
            shutil.copy2(path, into / path.name)


def _write_generated(folder: Path) -> None:
    """Write the tables that text pages include, from what the code itself uses."""
    profiles = yaml.safe_load(_PROFILES.read_text(encoding="utf-8"))
    tables = {
        "schema.md": render_schema(),
        "profiles.md": render_profiles(profiles),
        "profile-sources.md": render_profile_sources(profiles),
    }
    for study in find_studies().values():
        tables[f"parameters-{study.name}.md"] = render_parameters(study.parameters)
        tables |= {name: render() for name, render in study.fragments.items()}
    folder.mkdir()
    for name, text in tables.items():
        (folder / name).write_text(text, encoding="utf-8")


def _stage_gap(name: str, into: Path) -> None:
    """Write the page of a case that nobody has measured: that it is so, and how to."""
    _, notebook, case = name.split("/")
    target = into / f"{name}.md"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(
        f"# {case}\n\n:::{{admonition}} Not measured yet\n:class: note\n"
        f"There is no record of this case of {{doc}}`/{notebook}`, so there is nothing to show.\n"
        f"To measure it: `make run CASE={notebook}/{case}`.\n:::\n",
        encoding="utf-8",
    )


def _list_pages(toc_path: Path, pages: list[Page]) -> None:
    """Append cases that the table of contents does not know under their notebook's overview."""
    toc = yaml.safe_load(toc_path.read_text(encoding="utf-8"))
    known = {*walk_toc(toc)}
    for page in pages:
        if page.name not in known:
            chapters = [entry for entry in toc["chapters"] if entry["file"] == page.notebook]
            if not chapters:
                raise UserError(
                    f"_toc.yml: no page {page.notebook!r} to list {page.case!r} under; add {page.notebook}.md and its entry"
                )
            chapters[0].setdefault("sections", []).append({"file": page.name, "title": page.case})
    toc_path.write_text(yaml.safe_dump(toc, sort_keys=False), encoding="utf-8")


def build(site: str, *, root: Path = ROOT, say: Callable[[str], None] = lambda _line: None) -> Path:
    """Stage the book and build it, with every warning an error."""
    stage(site, root=root, say=say)
    for name in ("html", ".doctrees", "jupyter_execute"):
        shutil.rmtree(root / "_build" / name, ignore_errors=True)
    program = str(Path(sys.executable).with_name("jupyter-book"))
    command = [program, "build", "_build/stage", "--path-output", "."]
    command += ["--all", "--quiet", "--warningiserror", "--nitpick", "--keep-going"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    log = root / "_build" / "book.log"
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode:
        raise UserError(
            first_warning(done.stderr) + f"; the whole log is in {log.relative_to(root)}"
        )
    return root / "_build" / "html" / "index.html"


def first_warning(log: str) -> str:
    """Say in one line what was wrong first, and how much more there is.

    Examples
    --------
    >>> first_warning("/a/_build/stage/method.md:7: WARNING: undefined label: 'x'")
    "book: method.md: undefined label: 'x'"
    """
    lines = re.sub(r"\x1b\[[0-9;]*m", "", log).splitlines()
    found = [match for line in lines if (match := _WARNING.match(line))]
    if not found:
        last = [line.strip() for line in log.splitlines() if line.strip()][-1:] or ["no message"]
        return f"book: not built: {last[0]}"
    page = (found[0]["page"] or "_config.yml").split("_build/stage/")[-1]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"book: {page}: {found[0]['text']}{more}"


def publish(site: str, root: Path = ROOT, *, titles: Sequence[str] = ()) -> list[Path]:
    """Promote results of a site, of all cases or of those named, to what the book shows."""
    cases = [find_case(title, site, root) for title in titles] or find_cases(site, root)
    for case in cases:
        _refuse(case)
    copied = []
    for case in cases:
        for suffix in (".ipynb", ".csv"):
            target = case.result(suffix, "reference")
            target.parent.mkdir(parents=True, exist_ok=True)
            copied.append(copy_redacted(case.result(suffix), target))
    return [*copied, *_publish_cover(root, {case.title for case in cases})]


def _refuse(case: Case) -> None:
    """Refuse a result that nobody could make again, or that says too little."""
    if not is_done(case, read_parameters(case)):
        raise UserError(f"{case.title}: not done; run it before it becomes the reference")
    rows = pd.read_csv(case.result(".csv"))
    n_blocks = rows.loc[rows["phase"] == "measured", "block"].nunique()
    if n_blocks < 5:
        raise UserError(
            f"{case.title}: {n_blocks} blocks; allowed: at least 5 in a reference record"
        )
    if rows["is_dirty"].any():
        raise UserError(
            f"{case.title}: measured with sources that are in no commit; allowed: a record of a clean checkout"
        )


def _publish_cover(root: Path, titles: Collection[str]) -> Iterator[Path]:
    """Take the figure that the README shows out of the notebook of its study, if it is new."""
    for study in find_studies().values():
        if study.cover is not None and f"{study.name}/{study.cover[0]}" in titles:
            case, name = study.cover
            target = root / "results" / "reference" / "headline.svg"
            if figure := _read_figure(Case("reference", study.name, case, root), name):
                target.write_text(figure, encoding="utf-8")
            yield target


def _read_figure(case: Case, name: str) -> str:
    """Read a figure out of an executed notebook by its name; empty if it is not there."""
    notebook = nbformat.read(case.result(".ipynb"), as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        figure = cell.metadata.get("mystnb", {}).get("figure", {}).get("name")
        for output in cell.get("outputs", []):
            if figure == name and "image/svg+xml" in output.get("data", {}):
                return str(output["data"]["image/svg+xml"])
    return ""
