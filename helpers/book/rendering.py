"""An executed notebook as a page: its title, whose results it shows, labels that are its own."""

from __future__ import annotations

import json
import re
from typing import Any

from helpers.book.pages import Page, read_notebook
from helpers.errors import UserError
from helpers.measurement.records import read_records
from helpers.runner.cases import read_metadata
from helpers.runner.findings import UNSTABLE_ABOVE, read_findings
from helpers.study.showing import tell_runs

_LABELS = re.compile(
    r"^\((?P<target>[\w-]+)\)=\s*$|^:(?:name|label):\s*(?P<name>[\w-]+)\s*$",
    re.MULTILINE,
)


def render_page(page: Page) -> dict[str, Any]:
    """Make the page of a case.

    Parameters
    ----------
    page : Page
        The case and its results.

    Returns
    -------
    dict
        The executed notebook, as JSON holds it; its title names the case, below it stands whose
        results these are, and labels end in the case, because all cases of a
        notebook share theirs.

    Raises
    ------
    UserError
        If the notebook has no title or its record cannot be read.
    """
    notebook = read_notebook(page.executed)
    _suffix_labels(notebook["cells"], f"{page.notebook}-{page.case}")
    first = notebook["cells"][0]
    title, _, rest = first["source"].partition("\n")
    if first["cell_type"] != "markdown" or not title.startswith("# "):
        raise UserError(
            f"{page.executed.name}: the first cell is no title; allowed: a text cell that begins with '# '"
        )
    marks = f"{render_origin(page)}\n{render_noise(page, notebook)}"
    first["source"] = f"{title} ({page.case})\n\n{marks}\n{rest}"
    return notebook


def render_noise(page: Page, notebook: dict[str, Any]) -> str:
    """Warn of a page whose measurement was not quiet enough to rank contenders closely.

    Parameters
    ----------
    page : Page
        The case and its results.
    notebook : dict
        The executed notebook, as JSON holds it.

    Returns
    -------
    str
        An admonition in MyST Markdown; empty if its noise is within the bound, or unknown.
    """
    found = read_findings(notebook)
    if not found.is_unstable:
        return ""
    own = f"`make run CASE={page.notebook}/{page.case} FLAGS=--anew`, on a machine with nothing else to do"
    return (
        f":::{{admonition}} Unstable\n:class: warning unstable\nTwo copies of one contender differ by {100 * found.noise:.3g} % here,"
        f" more than the {100 * UNSTABLE_ABOVE:g} % up to which an order of contenders is trusted.\n"
        f"Smaller differences on this page may be the machine's doing.\nTo measure again: {own}.\n:::\n"
    )


def render_origin(page: Page) -> str:
    """Say whose results a page shows: machine, versions, date, record.

    Parameters
    ----------
    page : Page
        The case and its results.

    Returns
    -------
    str
        An admonition in MyST Markdown.
    """
    rows = read_records([page.record])
    if rows.empty:
        raise UserError(f"{page.record.name}: holds no row; measure the case anew")
    is_reference = page.site == "reference"
    heading = "Reference record" if is_reference else f"Your own results (site {page.site})"
    command = f"make run CASE={page.notebook}/{page.case}"
    failed = (
        f"Your own run at site {page.failed_site} did not finish, so this is the reference.\n"
        if page.failed_site
        else ""
    )
    own = f"For your own, run `{command}`.\n" if is_reference else ""
    runs = f"Measured in {told}.\n" if (told := tell_runs(rows)) else ""
    return (
        f":::{{admonition}} {heading}\n:class: note origin\n{failed}Measured {_dates(rows)} on {_machine(rows)}.\n{runs}"
        f"With the versions below; {_commit(rows)}.\n{_harness(page)}"
        f"{own}{{download}}`The record as CSV <{page.record.name}>`.\n:::\n\n{_versions(rows)}"
    )


def _harness(page: Page) -> str:
    """Say what part of a core the runner itself took, where the notebook notes it."""
    harness = read_metadata(page.executed).get("case", {}).get("harness", {})
    if "share_of_a_core" not in harness:
        return ""
    return f"Beside what is measured, the runner took {100 * harness['share_of_a_core']:.2g} % of a core.\n"


def _dates(rows: Any) -> str:
    """Say on which days (UTC) the rows were measured."""
    days = sorted({text[:10] for text in rows["started_utc"]})
    return f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"


def _machine(rows: Any) -> str:
    """Describe the machine; a record has one."""
    facts = json.loads(rows["machine"].iloc[0])
    return f"{facts['cpu']}, {facts['n_cores']} cores, {facts['memory_gb']} GB of memory, {facts['system']}"


def _versions(rows: Any) -> str:
    """List, folded, every version that a row names; one has what was imported by then."""
    named = {name: v for text in rows["versions"] for name, v in json.loads(text).items()}
    listed = ", ".join(f"{name} {version}" for name, version in sorted(named.items()))
    heading = f"Versions of the {len(named)} packages and libraries in use"
    return f":::{{admonition}} {heading}\n:class: dropdown\n{listed}.\n:::\n"


def _commit(rows: Any) -> str:
    """Name the commits, and say where sources differed from them."""
    commits = sorted({name[:10] for name in rows["commit"]})
    changed = ", with local changes" if rows["is_dirty"].any() else ""
    return f"commit {' and '.join(commits)}{changed}"


def _suffix_labels(cells: list[dict[str, Any]], page: str) -> None:
    """Append notebook and case to every label and to every mention of it."""
    figures = [cell["metadata"].get("mystnb", {}).get("figure", {}) for cell in cells]
    texts = [cell for cell in cells if cell["cell_type"] == "markdown"]
    labels = {figure["name"] for figure in figures if "name" in figure}
    labels |= {
        match["target"] or match["name"]
        for cell in texts
        for match in _LABELS.finditer(cell["source"])
    }
    if not labels:
        return
    # Only where Markdown names a label, for a label may be a word of the text too.
    names = "|".join(sorted(map(re.escape, labels)))
    mention = re.compile(rf"(?:^:(?:name|label):\s*|[(`<#])(?:{names})(?=[)`>]|\s*$)", re.MULTILINE)
    for figure in figures:
        if "name" in figure:
            figure["name"] += f"-{page}"
        if "caption" in figure:
            figure["caption"] = mention.sub(rf"\g<0>-{page}", figure["caption"])
    for cell in texts:
        cell["source"] = mention.sub(rf"\g<0>-{page}", cell["source"])
