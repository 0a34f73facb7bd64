"""Which results each case's page shows, and how an executed notebook becomes a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from helpers.benchmark.record import read_records, schema
from helpers.book import findings
from helpers.book.arrange import arrange
from helpers.book.cases import (
    UNSTABLE_ABOVE,
    Case,
    find_digest,
    is_altered,
    read_findings,
    read_glued,
    read_metadata,
)
from helpers.book.studies import (
    Parameters,
    case_schema,
    describe,
    find_studies,
    list_fields,
    tell_allowed,
    write_table,
    write_value,
)
from helpers.errors import UserError
from helpers.paths import ROOT
from helpers.plotting.tables import tell_runs

# of a run that did not end, or not well, and what a run has set aside
_LEFT_OVER = re.compile(r"\.(running|failed|\d{8}-\d{6})\.ipynb$")


def find_pages(
    site: str, *, root: Path = ROOT, say: Callable[[str], None] = lambda _line: None
) -> list[Page]:
    """Choose the results that each case's page shows; a case that has none is left out.

    What a run has left beside its results is passed over, and so is any other
    notebook that no page can be made of, which is named.
    """
    listed = list_cases(root)
    chosen = {name: _choose(name, site, root=root, say=say) for name in listed}
    found = {name: page for name, page in chosen.items() if page is not None}
    studies = sorted({name.split("/")[1] for name in listed})
    for path in sorted((root / "results" / site).glob("*/*.ipynb")):
        page = Page(path.parent.name, path.stem, path, site)
        if page.name in listed or _LEFT_OVER.search(path.name):
            continue
        problem = _find_problem(page)
        if page.notebook not in studies:
            problem = f"no study is called {page.notebook}; allowed: {', '.join(studies)}"
        if problem:
            say(f"{path.relative_to(root)}: not in the book: {problem}")
        else:
            found[page.name] = page
    return list(found.values())


def _find_problem(page: Page) -> str:
    """Say why no page can be made of a notebook of the user's own, if so."""
    if not page.record.exists():
        return f"its record {page.record.name} is missing"
    try:
        if not is_finished(page.executed):
            return "it did not run to its end"
        render_page(page)
    except UserError as error:
        return str(error)
    except (AttributeError, IndexError, KeyError, TypeError):
        return f"{page.executed.name}: not a whole notebook; measure the case anew"
    return ""


def toc_files(root: Path = ROOT) -> list[str]:
    """List the pages of `_toc.yml` in order."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *walk_toc(toc)]


def list_cases(root: Path = ROOT) -> list[str]:
    """List the pages of `_toc.yml` that show the results of a case."""
    return [name for name in toc_files(root) if name.startswith("notebooks/")]


def in_book_order(cases: Sequence[Case], root: Path = ROOT) -> list[Case]:
    """Put cases in the order of their pages, those without a page last: later ones quote earlier."""
    listed = {name: i for i, name in enumerate(toc_files(root))}
    return sorted(cases, key=lambda case: listed.get(f"notebooks/{case.title}", len(listed)))


def walk_toc(entry: dict[str, Any]) -> Iterator[str]:
    """Walk the entries below one entry of the table of contents."""
    for child in [*entry.get("chapters", ()), *entry.get("sections", ())]:
        yield child["file"]
        yield from walk_toc(child)


def _choose(name: str, site: str, *, root: Path, say: Callable[[str], None]) -> Page | None:
    """Choose between a user's own results of a case and the reference, if there are any."""
    _, notebook, case = name.split("/")
    own = root / "results" / site / notebook / f"{case}.ipynb"
    reference = root / "results" / "reference" / notebook / f"{case}.ipynb"
    if own.exists() and own != reference:
        page = Page(notebook, case, own, site)
        if not (problem := _find_problem(page)):
            return page
        say(f"{own.relative_to(root)}: not in the book: {problem}")
    if not reference.exists():
        return None
    record = reference.with_suffix(".csv")
    if not record.exists():
        raise UserError(
            f"results: {record.relative_to(root)} is missing; every executed notebook needs its record"
        )
    has_failed = own != reference and (own.exists() or own.with_suffix(".failed.ipynb").exists())
    return Page(notebook, case, reference, "reference", failed_site=site if has_failed else "")


def is_finished(executed: Path) -> bool:
    """Tell whether an executed notebook ran to its end without an error."""
    cells = [cell for cell in read_notebook(executed)["cells"] if cell["cell_type"] == "code"]
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    has_run = all(cell["execution_count"] for cell in cells if cell["source"].strip())
    return has_run and "error" not in kinds


@dataclass(frozen=True, slots=True)
class Page:
    """A case and the results that its page shows."""

    notebook: str  # names, as in "cluster-scaling" and "in-region"
    case: str
    executed: Path  # executed notebook
    site: str  # folder of `results/` that it lies in, "reference" for the committed one
    failed_site: str = ""  # site whose own run of this case did not finish, or empty

    @property
    def name(self) -> str:
        """Address of the page, without its suffix."""
        return f"notebooks/{self.notebook}/{self.case}"

    @property
    def record(self) -> Path:
        """CSV record beside the executed notebook."""
        return self.executed.with_suffix(".csv")


def read_notebook(path: Path) -> dict[str, Any]:
    """Read a notebook."""
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


_LABELS = re.compile(
    r"^\((?P<target>[\w-]+)\)=\s*$|^:(?:name|label):\s*(?P<name>[\w-]+)\s*$", re.MULTILINE
)


def render_page(page: Page) -> dict[str, Any]:
    """Make the page of a case: its question, what was found, then how, its code folded.

    What the notebook glued as `verdict` stands under the question, before whose record it is.
    """
    notebook = read_notebook(page.executed)
    _suffix_labels(notebook["cells"], f"{page.notebook}-{page.case}")
    first = notebook["cells"][0]
    title, _, rest = first["source"].partition("\n")
    if first["cell_type"] != "markdown" or not title.startswith("# "):
        raise UserError(
            f"{page.executed.name}: the first cell is no title; allowed: a text cell that begins with '# '"
        )
    question, _, background = rest.strip().partition("\n\n")
    parts = [f"{title} ({page.case.replace('-', ' ')})", render_noise(page, notebook), question]
    parts += [read_glued(notebook, "verdict"), render_origin(page)]
    first["source"] = "\n\n".join(part.rstrip() for part in parts if part) + "\n"
    if background:  # which can wait until the findings are read
        heading = "" if background.startswith("#") else "## Background\n\n"
        cell = {"cell_type": "markdown", "id": "background", "metadata": {}}
        notebook["cells"].insert(1, cell | {"source": f"{heading}{background}\n"})
    notebook["cells"] = arrange(notebook["cells"], f"measured-{page.notebook}-{page.case}")
    return notebook


def render_noise(page: Page, notebook: dict[str, Any]) -> str:
    """Warn of a page whose measurement was not quiet enough to rank contenders closely."""
    study = find_studies().get(page.notebook)
    found = read_findings(notebook, study.headline if study else "")
    if numbers := findings.read_findings(page.record):
        found = replace(found, noise=numbers[findings.NOISE].value)
    if not found.is_unstable:
        return ""
    own = f"`make run CASE={page.notebook}/{page.case} FLAGS=--anew`, on a machine with nothing else to do"
    return (
        f":::{{admonition}} Unstable\n:class: warning unstable\nTwo copies of one contender differ by up to {100 * found.noise:.3g} % here,"
        f" more than the {100 * UNSTABLE_ABOVE:g} % up to which an order of contenders is trusted.\n"
        f"Smaller differences on this page may be the machine's doing.\nTo measure again: {own}.\n:::\n"
    )


def render_origin(page: Page) -> str:
    """Say whose results a page shows: machine, versions, date, record."""
    rows = read_records([page.record])
    if rows.empty:
        raise UserError(f"{page.record.name}: holds no row; measure the case anew")
    if is_altered(page.executed, page.record):
        raise UserError(
            f"{page.record.name}: its rows are not those that {page.executed.name} was executed"
            " with; restore it, or measure the case anew"
        )
    is_reference = page.site == "reference"
    heading = "Reference record" if is_reference else f"Your own results (site {page.site})"
    command = f"make run CASE={page.notebook}/{page.case}"
    failed = (
        f"Your own run at site {page.failed_site} did not finish, so this is the reference.\n"
        if page.failed_site
        else ""
    )
    own = f"For your own, run `{command}`.\n" if is_reference else ""
    days = sorted({text[:10] for text in rows["started_utc"]})  # UTC
    dates = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    facts = json.loads(rows["machine"].iloc[0])  # a record has one
    commits = " and ".join(sorted({name[:10] for name in rows["commit"]}))
    changed = ", with local changes" if rows["is_dirty"].any() else ""
    runs = f"Measured in {told}.\n" if (told := tell_runs(rows)) else ""
    return (
        f":::{{admonition}} {heading}\n:class: note origin\n{failed}Measured {dates} on {facts['cpu']},"
        f" {facts['n_cores']} cores, {facts['memory_gb']} GB of memory, {facts['system']}.\n{runs}"
        f"With the versions below; commit {commits}{changed}.\n{_harness(page)}{_seal(page)}"
        f'{own}{{download}}`The record as CSV <{page.record.name}>`; <a href="../../explorer.html'
        f'#source={page.notebook}/{page.case}&amp;log=1">its points, each to be hovered over</a>.\n:::\n\n{_versions(rows)}'
    )


def _harness(page: Page) -> str:
    """Say what part of a core the runner itself took, where the notebook notes it."""
    harness = read_metadata(page.executed).get("case", {}).get("harness", {})
    if "share_of_a_core" not in harness:
        return ""
    return f"Beside what is measured, the runner took {100 * harness['share_of_a_core']:.2g} % of a core.\n"


def _seal(page: Page) -> str:
    """Say whether the rows are known to be those of the executed notebook."""
    digest = find_digest(page.executed)
    if not digest:
        return "No digest of its rows: this record was made before there was one.\n"
    return f"Its rows are those of the executed notebook, by SHA-256 ({digest['sha256'][:16]}).\n"


def _versions(rows: Any) -> str:
    """List, folded, every version that a row names; one has what was imported by then."""
    named = {name: v for text in rows["versions"] for name, v in json.loads(text).items()}
    listed = ", ".join(f"{name} {version}" for name, version in sorted(named.items()))
    heading = f"Versions of the {len(named)} packages and libraries in use"
    return f":::{{admonition}} {heading}\n:class: dropdown\n{listed}.\n:::\n"


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


def render_profiles(profiles: Mapping[str, Any]) -> str:
    """Write the network profiles as a table."""
    names = ["profile", "first byte, median (ms)", "95th percentile (ms)", "one connection (MB/s)"]
    names += [
        "those of a worker (MB/s)",
        "all connections (MB/s)",
        "requests per second",
        "before the first request of a connection",
    ]
    lines = []
    for name, profile in profiles.items():
        first_byte = profile.get("first_byte_s", {})
        delays = [
            f"{first_byte[key] * 1e3:g}" if key in first_byte else "none"
            for key in ("median_s", "p95_s")
        ]
        limits = ("stream_mb_per_s", "worker_mb_per_s", "aggregate_mb_per_s", "requests_per_s")
        told = [profile.get(key, "no limit") for key in limits]
        trips = profile.get("setup_round_trips")
        setup = f"{trips:g} of {1e3 * profile['round_trip_s']:g} ms" if trips else "nothing"
        lines.append([f"`{name}`", *delays, *told, setup])
    return write_table(names, lines)


def render_profile_sources(profiles: Mapping[str, Any]) -> str:
    """Write where the figures of the network profiles come from, units left out of their names."""
    items = []
    for name, profile in profiles.items():
        words = {
            key.removesuffix("_mb_per_s").removesuffix("_s").replace("_", " "): text
            for key, text in profile["sources"].items()
        }
        lines = [f"- {word}: {text}" for word, text in words.items()]
        items.append(f"`{name}`\n: " + "\n  ".join(lines) + "\n")
    return "\n".join(items)


_FAULTS = {
    "error_503": "answered 503",
    "reset": "connection reset",
    "truncate": "body cut short",
    "stall": "stalled",
    "corrupt": "a byte changed",
}


def render_faults(path: Path = ROOT / "results" / "reference" / "faults.csv") -> str:
    """Write what became of reads from a store that fails, and what users saw of it."""
    if not path.exists():
        return "Not measured yet; `make faults` does it.\n"
    table = pd.read_csv(path, keep_default_na=False)
    faults = list(dict.fromkeys(table["fault"]))
    lines = [
        (f"`{reader}`", *(_tell_ends(rows[rows["fault"] == fault]) for fault in faults))
        for reader, rows in table.groupby("reader", sort=False)
    ]
    titles = [_FAULTS[fault] for fault in faults]
    return f"{write_table(['reader', *titles], lines)}\n{_list_sayings(table)}"


def _tell_ends(rows: pd.DataFrame) -> str:
    """Say how the reads of a reader under a fault ended, and what that took."""
    words = {"n_right": "right", "n_refused": "refused", "n_found_wrong": "found wrong"}
    counts = rows[[*words]].sum()
    ends = [f"{counts[name]} {word}" for name, word in words.items() if counts[name]]
    n = rows["n_retries"].sum()
    told = [f"{n} {'retry' if n == 1 else 'retries'}"] if n else []
    return ", ".join([*ends, *told])


def _list_sayings(table: pd.DataFrame) -> str:
    """List what users of refused reads saw, and of which readers."""
    seen: dict[tuple[str, str], list[str]] = {}
    for fault, said, reader in table[["fault", "saw", "reader"]].itertuples(index=False):
        names = seen.setdefault((fault, said.replace("`", "")), [])
        names += [reader] if reader not in names else []
    return "".join(
        f"- {_FAULTS[fault]}: `{said}` ({', '.join(names)})\n"
        for (fault, said), names in seen.items()
        if said
    )


def render_schema() -> str:
    """Write the columns of a record as a table for the page on method."""
    lines = [
        (f"`{name}`", row["type"], row["unit"], row["description"])
        for name, row in schema().iterrows()
    ]
    return write_table(["column", "type", "unit", "meaning"], lines)


def render_parameters(model: type[Parameters]) -> str:
    """Write the parameters of a study as a table for its page."""
    allowed = case_schema(model, "")["properties"]
    lines = [
        (f"`{name}`", f"`{write_value(one.default)}`", tell_allowed(allowed[name]), describe(one))
        for name, one in list_fields(model).items()
    ]
    return write_table(["parameter", "default", "allowed", "meaning"], lines)


def render_citation(cited: Mapping[str, Any]) -> str:
    """Write how the book is cited, for BibTeX; what is not known, such as a DOI, is left out."""
    fields = {
        "title": f"{{{cited['title']}}}",
        "author": " and ".join(f"{{{author['name']}}}" for author in cited["authors"]),
        "year": str(cited.get("date-released", ""))[:4],
        "version": cited.get("version"),
        "doi": cited.get("doi"),
        "url": cited.get("url"),
    }
    lines = "".join(f"  {key} = {{{value}}},\n" for key, value in fields.items() if value)
    return f"```bibtex\n@software{{arrays-over-the-wire,\n{lines}}}\n```\n"
