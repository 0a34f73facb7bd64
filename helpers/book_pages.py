"""Turn an executed notebook into a page: its title, whose results it shows, unique labels."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.errors import UserError
from helpers.measurement.records import read_records, schema

_LABELS = re.compile(
    r"^\((?P<target>[\w-]+)\)=\s*$|^:(?:name|label):\s*(?P<name>[\w-]+)\s*$",
    re.MULTILINE,
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
    first["source"] = f"{title} ({page.case})\n\n{render_origin(page)}\n{rest}"
    return notebook


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
    return (
        f":::{{admonition}} {heading}\n:class: note origin\n{failed}Measured {_dates(rows)} on {_machine(rows)}.\n"
        f"With {_versions(rows)}; {_commit(rows)}.\n"
        f"{own}{{download}}`The record as CSV <{page.record.name}>`.\n:::\n"
    )


def _dates(rows: Any) -> str:
    """Say on which days (UTC) the rows were measured."""
    days = sorted({text[:10] for text in rows["started_utc"]})
    return f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"


def _machine(rows: Any) -> str:
    """Describe the machine; a record has one."""
    facts = json.loads(rows["machine"].iloc[0])
    return f"{facts['cpu']}, {facts['n_cores']} cores, {facts['memory_gb']} GB of memory, {facts['system']}"


def _versions(rows: Any) -> str:
    """List the versions that were measured; a record has one set."""
    return ", ".join(
        f"{name} {version}" for name, version in json.loads(rows["versions"].iloc[0]).items()
    )


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


def render_bars(path: Path) -> str:
    """Write the bars of a reference as a table, and below it how each was computed.

    Parameters
    ----------
    path : Path
        What `make bench` wrote.

    Returns
    -------
    str
        A table in Markdown, one line a bar, and a list of definitions.
    """
    lines = ["| bar | measured | asked | holds |", "| --- " * 4 + "|"]
    bars = pd.read_csv(path).to_dict("records")
    for bar in bars:
        sign = "at least" if bar["is_least"] else "at most"
        is_asked = 0 < bar["bound"] < float("inf")
        asked = f"{sign} {bar['bound']:g}" if is_asked else "nothing"
        holds = ("yes" if bar["holds"] else "**no**") if is_asked else "—"
        lines.append(f"| {bar['name']} | {bar['value']:.3g} | {asked} | {holds} |")
    lines += ["", "How each was computed:", ""]
    for bar in bars:
        lines += [bar["name"], f": {bar['how']}", ""]
    return "\n".join(lines)


def render_profiles(profiles: Mapping[str, Any]) -> str:
    """Write the network profiles as a table.

    Parameters
    ----------
    profiles : mapping
        What `profiles.yaml` holds.

    Returns
    -------
    str
        A table in Markdown, one line a profile.
    """
    lines = [
        "| profile | first byte, median (ms) | 95th percentile (ms) | one connection (MB/s) | all connections (MB/s) | requests per second | divided by |"
    ]
    lines.append("| --- " * 7 + "|")
    for name, profile in profiles.items():
        first_byte = profile.get("first_byte_s", {})
        delays = [
            f"{first_byte[key] * 1e3:g}" if key in first_byte else "none"
            for key in ("median_s", "p95_s")
        ]
        limits = [
            str(profile.get(key, "no limit"))
            for key in ("stream_mb_per_s", "aggregate_mb_per_s", "requests_per_s")
        ]
        lines.append(
            "| " + " | ".join([f"`{name}`", *delays, *limits, str(profile.get("scale", 1))]) + " |"
        )
    return "\n".join(lines) + "\n"


def render_profile_sources(profiles: Mapping[str, Any]) -> str:
    """Write where the figures of the network profiles come from.

    Parameters
    ----------
    profiles : mapping
        What `profiles.yaml` holds.

    Returns
    -------
    str
        A definition list, one item a profile, one line a figure.
    """
    items = []
    for name, profile in profiles.items():
        lines = [f"- {_words(key)}: {text}" for key, text in profile["sources"].items()]
        items.append(f"`{name}`\n: " + "\n  ".join(lines) + "\n")
    return "\n".join(items)


def _words(key: str) -> str:
    """Turn the name of a figure with its unit into words."""
    return key.removesuffix("_mb_per_s").removesuffix("_s").replace("_", " ")


def render_schema() -> str:
    """Write the columns of a record as a table for the page on method.

    Returns
    -------
    str
        A table in Markdown, one line a column.
    """
    lines = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for name, row in schema().iterrows():
        lines.append(f"| `{name}` | {row['type']} | {row['unit']} | {row['description']} |")
    return "\n".join(lines) + "\n"
