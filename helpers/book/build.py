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
import yaml
from filelock import FileLock, Timeout

from helpers.benchmark.record import read_records, runs_path
from helpers.book.arrange import slim_figure
from helpers.book.cases import Case, find_case, find_cases, is_done, read_parameters
from helpers.book.findings import SUFFIX
from helpers.book.pages import (
    Page,
    find_pages,
    list_cases,
    read_notebook,
    render_citation,
    render_faults,
    render_page,
    render_parameters,
    render_profile_sources,
    render_profiles,
    render_schema,
    walk_toc,
)
from helpers.book.studies import find_studies
from helpers.errors import UserError
from helpers.paths import ROOT, check_name
from helpers.redaction import copy_redacted, redact_tree

_PROFILES = ROOT / "helpers" / "netem" / "profiles.yaml"
_COVER = ROOT / "results" / "reference" / "headline.svg"
# What a page may show or need besides the executed notebooks.
_SOURCES = ("_config.yml", "_toc.yml", "*.md", "references.bib", "_static", "_ext")
# Repository files that are no pages.
NOT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_WARNING = re.compile(r"^(?:(?P<page>.*?)(?::\d*)*: )?(?:WARNING|ERROR|CRITICAL): (?P<text>.*)$")


def stage(
    site: str, *, root: Path = ROOT, say: Callable[[str], None] = lambda _line: None
) -> list[Page]:
    """Copy what the book is made of to `_build/stage/`, emptied before."""
    pages = find_pages(check_name(site), root=root, say=say)
    into = root / "_build" / "stage"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    _copy_sources(root, into)
    _write_generated(into / "_generated")
    for page in pages:
        _stage_page(page, into)
    for name in sorted({*list_cases(root)} - {page.name for page in pages}):
        say(f"{name.removeprefix('notebooks/')}: not measured yet")
        _stage_gap(name, into)
    _list_pages(into / "_toc.yml", pages)
    _stage_cover(pages, into / "_generated" / "headline.svg")
    return pages


def _stage_page(page: Page, into: Path) -> None:
    """Write a page, its record beside it and what ran for download, all without credentials."""
    target = into / f"{page.name}.ipynb"
    ran = into / "_generated" / "executed" / f"{page.name}.ipynb"
    for path, notebook in ((target, render_page(page)), (ran, read_notebook(page.executed))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(redact_tree(notebook)), encoding="utf-8")
    copy_redacted(page.record, target.with_suffix(".csv"))
    copy_redacted(runs_path(page.record), runs_path(target))
    if (findings := page.record.with_suffix(SUFFIX)).exists():
        copy_redacted(findings, target.with_suffix(SUFFIX))


def _stage_cover(pages: list[Page], target: Path) -> None:
    """Show on the first page the figure of the results that the book shows, else the published one."""
    figure = _COVER.read_text(encoding="utf-8")
    for page in pages:
        study = find_studies().get(page.notebook)
        if study is not None and study.cover is not None and study.cover[0] == page.case:
            figure = _read_figure(page.executed, study.cover[1]) or figure
    target.write_text(slim_figure(figure), encoding="utf-8")


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
        "faults.md": render_faults(),
        "profiles.md": render_profiles(profiles),
        "profile-sources.md": render_profile_sources(profiles),
    }
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    tables |= {"CITATION.cff": cited, "citation.md": render_citation(yaml.safe_load(cited))}
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
    about = (into / f"{notebook}.md").read_text(encoding="utf-8").partition("\n")[0]
    target.write_text(
        f"{about} ({case.replace('-', ' ')})\n\n:::{{admonition}} Not measured yet\n:class: note\n"
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
    """Stage the book and build it, with every warning an error, and say what is done.

    Another that is being built here is waited for: both would empty the same folders.
    """
    folder = root / "_build"
    folder.mkdir(exist_ok=True)
    lock = FileLock(folder / ".lock")  # which ends with its process
    try:
        held = lock.acquire(blocking=False)
    except Timeout:
        say("another run builds the book: waiting for it")
        held = lock.acquire()
    with held:
        return _build(site, root, say)


def _build(site: str, root: Path, say: Callable[[str], None]) -> Path:
    pages = stage(site, root=root, say=say)
    n_own = sum(page.site != "reference" for page in pages)
    say(f"{len(pages)} cases: {n_own} of site {site}, {len(pages) - n_own} of the reference")
    say("writing the pages, which takes a minute or two; every warning ends it")
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
    html = root / "_build" / "html"
    weights = weigh(html)
    heaviest = max(weights, key=lambda name: weights[name])
    kilobytes = f"{weights[heaviest] / 1e3:.0f} kB"
    say(f"{len(weights)} pages; the heaviest with all it loads is {heaviest}, {kilobytes}")
    return html / "index.html"


_LOADING = re.compile(r"<(?:img|script|link)\b[^>]*>")
_NOT_LOADED = re.compile(r'rel="(?:canonical|next|prev|search|license|index)"')


def weigh(html: Path) -> dict[str, int]:
    """Add up the bytes of each page of a built book and of all that it loads."""
    static = html / "_static"
    by_styles = [static / "basic.css", *static.glob("vendor/**/*.woff*")]
    common = sum(path.stat().st_size for path in by_styles if path.exists())
    weights = {}
    for page in sorted(html.rglob("*.html")):
        if not page.is_relative_to(static):
            text = page.read_text(encoding="utf-8")
            tags = [tag for tag in _LOADING.findall(text) if not _NOT_LOADED.search(tag)]
            found = [re.search(r'(?:src|href)="([^"?#:]+)', tag) for tag in tags]
            files = {(page.parent / one[1]).resolve() for one in found if one}
            sizes = [path.stat().st_size for path in {page.resolve(), *files} if path.is_file()]
            weights[page.relative_to(html).as_posix()] = common + sum(sizes)
    return weights


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
        for suffix in (".ipynb", ".csv", ".runs.json"):
            target = case.result(suffix, "reference")
            target.parent.mkdir(parents=True, exist_ok=True)
            copied.append(copy_redacted(case.result(suffix), target))
        if (findings := case.result(SUFFIX)).exists():
            copied.append(copy_redacted(findings, case.result(SUFFIX, "reference")))
    return [*copied, *_publish_cover(root, {case.title for case in cases})]


def _refuse(case: Case) -> None:
    """Refuse a result that nobody could make again, or that says too little."""
    if not is_done(case, read_parameters(case)):
        raise UserError(f"{case.title}: not done; run it before it becomes the reference")
    rows = read_records([case.result(".csv")])
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
            executed = Case("reference", study.name, case, root).result(".ipynb")
            if figure := _read_figure(executed, name):
                target.write_text(figure, encoding="utf-8")
            yield target


def _read_figure(executed: Path, name: str) -> str:
    """Read a figure out of an executed notebook by its name; empty if it is not there."""
    notebook = nbformat.read(executed, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        figure = cell.metadata.get("mystnb", {}).get("figure", {}).get("name")
        for output in cell.get("outputs", []):
            if figure == name and "image/svg+xml" in output.get("data", {}):
                return str(output["data"]["image/svg+xml"])
    return ""
