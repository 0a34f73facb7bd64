"""Which results each case's page shows: your own where they are finished, else the reference."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from helpers.errors import UserError
from helpers.paths import ROOT

_LEFT_OVER = (".running.ipynb", ".failed.ipynb")  # of a run that did not end, or not well


def find_pages(
    site: str, *, root: Path = ROOT, say: Callable[[str], None] = lambda _line: None
) -> list[Page]:
    """Choose the results that each case's page shows.

    What a run has left beside its results is passed over, and so is any other
    notebook that no page can be made of, which is named.

    Parameters
    ----------
    site : str
        Folder under `results/` whose finished cases come before the reference.
    root : Path
        Folder of the project.
    say : callable
        Takes a line on each notebook that is passed over.

    Returns
    -------
    list of Page
        The cases of `_toc.yml` in its order, then the site's further finished cases by name.

    Raises
    ------
    UserError
        If a case of `_toc.yml` has no results, or its executed notebook has no record.
    """
    listed = [name for name in toc_files(root) if name.startswith("notebooks/")]
    found = {name: _choose(name, site, root=root) for name in listed}
    for path in sorted((root / "results" / site).glob("*/*.ipynb")):
        page = Page(path.parent.name, path.stem, path, site)
        if page.name in found or path.name.endswith(_LEFT_OVER):
            continue
        if problem := _find_problem(page, listed):
            say(f"{path.relative_to(root)}: not in the book: {problem}")
        else:
            found[page.name] = page
    for page in found.values():
        if not page.record.exists():
            raise UserError(
                f"results: {page.record.relative_to(root)} is missing; every executed notebook needs its record"
            )
    return list(found.values())


def _find_problem(page: Page, listed: list[str]) -> str:
    """Say why no page can be made of a notebook that `_toc.yml` does not list."""
    studies = {name.split("/")[1] for name in listed}
    if page.notebook not in studies:
        return f"no study is called {page.notebook}; allowed: {', '.join(sorted(studies))}"
    if not page.record.exists():
        return f"its record {page.record.name} is missing"
    try:
        return "" if is_finished(page.executed) else "it did not run to its end"
    except UserError as error:
        return str(error)


def toc_files(root: Path = ROOT) -> list[str]:
    """List the pages of `_toc.yml` in order.

    Parameters
    ----------
    root : Path
        Folder of the project.

    Returns
    -------
    list of str
        Addresses without suffix, the root page first.
    """
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *walk_toc(toc)]


def walk_toc(entry: dict[str, Any]) -> Iterator[str]:
    """Walk the entries below one entry of the table of contents."""
    for child in [*entry.get("chapters", ()), *entry.get("sections", ())]:
        yield child["file"]
        yield from walk_toc(child)


def _choose(name: str, site: str, *, root: Path) -> Page:
    """Choose between a user's own results of a case and the reference."""
    _, notebook, case = name.split("/")
    own = root / "results" / site / notebook / f"{case}.ipynb"
    reference = root / "results" / "reference" / notebook / f"{case}.ipynb"
    if own.exists() and is_finished(own):
        return Page(notebook, case, own, site)
    if not reference.exists():
        raise UserError(
            f"results: {notebook}/{case} has no finished run in results/{site}/ and no reference; "
            f"run `make run CASE={notebook}/{case}`"
        )
    return Page(notebook, case, reference, "reference", failed_site=site if own.exists() else "")


def is_finished(executed: Path) -> bool:
    """Tell whether an executed notebook ran to its end without an error.

    Parameters
    ----------
    executed : Path
        Notebook as papermill left it.

    Returns
    -------
    bool
        True if every code cell ran and none raised.
    """
    cells = [cell for cell in read_notebook(executed)["cells"] if cell["cell_type"] == "code"]
    has_failed = any(
        output["output_type"] == "error" for cell in cells for output in cell["outputs"]
    )
    return not has_failed and all(
        cell["execution_count"] for cell in cells if cell["source"].strip()
    )


@dataclass(frozen=True, slots=True)
class Page:
    """A case and the results that its page shows.

    Parameters
    ----------
    notebook, case : str
        Names, as in "cluster-scaling" and "in-region".
    executed : Path
        Executed notebook.
    site : str
        Folder of `results/` that it lies in, "reference" for the committed one.
    failed_site : str
        Site whose own run of this case did not finish, or empty.
    """

    notebook: str
    case: str
    executed: Path
    site: str
    failed_site: str = ""

    @property
    def name(self) -> str:
        """Address of the page, without its suffix."""
        return f"notebooks/{self.notebook}/{self.case}"

    @property
    def record(self) -> Path:
        """CSV record beside the executed notebook."""
        return self.executed.with_suffix(".csv")


def read_notebook(path: Path) -> dict[str, Any]:
    """Read a notebook.

    Parameters
    ----------
    path : Path
        File in the notebook format, version 4.

    Returns
    -------
    dict
        What the file holds, the source of each cell as one text.

    Raises
    ------
    UserError
        If the file is no such notebook.
    """
    try:
        notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        cells = notebook["cells"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{path.name}: not a whole notebook; measure the case anew") from error
    for cell in cells:
        cell["source"] = "".join(cell["source"])
    if not cells:
        raise UserError(f"{path.name}: a notebook without cells; measure the case anew")
    return notebook
