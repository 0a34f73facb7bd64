"""Which results each case's page shows, and how an executed notebook becomes a page."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import yaml

from helpers.benchmark.record import read_records
from helpers.benchmark.statistics import busy_share, measured
from helpers.cost_tables import count_run
from helpers.findings import NOISE, QUOTED, UNSTABLE_ABOVE, Finding, read_findings
from helpers.paths import ROOT
from helpers.plotting.tables import format_digits
from runner import foreign
from runner.cases import Case, find_damage, list_studies
from wire.bed import networks
from wire.errors import UserError, name_file
from wire.files import check_file, check_name

Say = Callable[[str], None]
Cells = list[dict[str, Any]]

NOTEBOOKS = "notebooks/"
"""Folder of the pages of cases in the book."""

# of a run that did not end, or not well, and what a run has set aside
_LEFT_OVER = re.compile(r"\.(running|failed|\d{8}-\d{6})\.ipynb$")


@dataclass(frozen=True, slots=True)
class Page:
    """A case and the results that its page shows."""

    notebook: str  # names, as in "cluster-scaling" and "in-region"
    case: str
    executed: Path  # executed notebook
    site: str  # folder of `results/` that it lies in, "reference" for the committed one
    is_shown: bool = True  # as a page; of the others the book has the record and its findings
    title: str = ""  # in the table of contents; of a case that is not listed, its notebook's and its own name

    @property
    def name(self) -> str:
        """Address of the page, without its suffix."""
        return f"{NOTEBOOKS}{self.notebook}/{self.case}"

    @property
    def record(self) -> Path:
        """CSV record next to the executed notebook."""
        return self.executed.with_suffix(".csv")


def toc_files(root: Path = ROOT) -> list[str]:
    """List the pages of `_toc.yml` in order."""
    return [*read_titles(root)]


def read_titles(root: Path = ROOT) -> dict[str, str]:
    """Read the pages of `_toc.yml` in order, each with its title there, which may be empty."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return {toc["root"]: "", **dict(walk_toc(toc))}


def walk_toc(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Walk the entries below one entry of the table of contents: file and title."""
    for child in [*entry.get("chapters", ()), *entry.get("sections", ())]:
        yield child["file"], child.get("title", "")
        yield from walk_toc(child)


def list_cases(root: Path = ROOT) -> list[str]:
    """List the pages of `_toc.yml` that show the results of a case."""
    return [name for name in toc_files(root) if name.startswith(NOTEBOOKS)]


def in_book_order(cases: Sequence[Case], root: Path = ROOT) -> list[Case]:
    """Put cases in the order of their pages, those without a page last: later ones quote earlier."""
    listed = {name: i for i, name in enumerate(toc_files(root))}
    return sorted(cases, key=lambda case: listed.get(f"{NOTEBOOKS}{case.title}", len(listed)))


def find_pages(site: str, *, root: Path = ROOT, say: Say = lambda _line: None) -> list[Page]:
    """Choose the results of each case: one's own if they are whole, else the reference.

    A case that has none is left out. Of the reference only what `_toc.yml` lists is shown as a
    page, of one's own results everything. What a run has left next to its results is passed over,
    and so is any other notebook that no page can be made of, which is named.
    """
    titles = read_titles(root)
    listed = [name for name in titles if name.startswith(NOTEBOOKS)]
    own, reference = dict[str, Page](), dict[str, Page]()
    for path in sorted((root / "results" / site).glob("*/*.ipynb")):
        page = Page(path.parent.name, path.stem, path, site)
        if site == "reference" or _LEFT_OVER.search(path.name):
            continue
        if problem := find_problem(page):
            say(f"{path.relative_to(root).as_posix()!r}: not in the book: {problem}")
        else:
            own[page.name] = page
    for path in sorted((root / "results" / "reference").glob("*/*.ipynb")):
        page = Page(path.parent.name, path.stem, path, "reference")
        page = replace(page, is_shown=page.name in listed)
        if page.name not in own and (problem := find_problem(page)):
            raise UserError("results/reference", f"{problem}; restore it, or measure the case anew")
        reference[page.name] = page
    places = {name: place for place, name in enumerate(listed)}
    shown = [replace(page, title=titles.get(name, "")) for name, page in (reference | own).items()]
    return sorted(shown, key=lambda page: places.get(page.name, len(places)))


def find_problem(page: Page) -> str:
    """Say why no page can be made of a notebook, if so."""
    try:
        check_name(page.case, "case")
        if page.notebook not in list_studies():
            return f"no study is called {page.notebook!r}; allowed: {', '.join(list_studies())}"
        if not check_file(page.record).exists():
            return f"its record {page.record.name} is missing"
        render_page(page)
        return find_damage(page.executed, page.record)
    except UserError as error:
        return str(error)


def read_notebook(path: Path) -> dict[str, Any]:
    """Read a notebook that may come from a stranger."""
    try:
        notebook = nbformat.read(check_file(path), as_version=4)  # type: ignore[no-untyped-call]
        nbformat.validate(notebook)
    except UserError:
        raise
    except Exception as error:  # whatever its text makes nbformat say
        raise UserError(name_file(path), "not a whole notebook; measure the case anew") from error
    checked: dict[str, Any] = notebook
    if not checked["cells"]:
        raise UserError(name_file(path), "a notebook without cells; measure the case anew")
    return checked


def _read_rows(record: Path) -> pd.DataFrame:
    """Read a record once for all that a build writes of it; nobody changes what this returns."""
    return _read_unchanged(record, record.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _read_unchanged(record: Path, _changed_ns: int) -> pd.DataFrame:
    return read_records([record])


def read_results(page: Page) -> dict[str, Any]:
    """Read the executed notebook of a page; one that is not of the reference may be a stranger's.

    Of such a one the page takes the outputs, without anything live, and all else from `notebooks/`.
    """
    executed = read_notebook(page.executed)
    if page.site == "reference":
        return executed
    case = Case(page.site, page.notebook, page.case, page.executed.parents[3])
    commits = _read_rows(page.record)["commit"].drop_duplicates()
    return foreign.rebuild(executed, foreign.find_sources(case.source, commits, case.root))


def render_page(page: Page) -> dict[str, Any]:
    """Make the page of a case, in the order of its notebook: its question, whose results, code folded."""
    notebook = read_results(page)
    cells = notebook["cells"] = [cell for cell in notebook["cells"] if is_of_case(cell, page.case)]
    _suffix_labels(cells, f"{page.notebook}-{page.case}")
    first = cells[0]
    title, _, rest = first["source"].partition("\n")
    if first["cell_type"] != "markdown" or not title.startswith("# "):
        raise UserError(
            page.executed.name,
            "the first cell is no title",
            "a text cell that begins with '# '",
        )
    heading = f"# {page.title}" if page.title else f"{title}: {page.case.replace('-', ' ')}"
    parts = [heading, _render_noise(page), rest, _render_origin(page)]
    first["source"] = "\n\n".join(part.strip() for part in parts if part) + "\n"
    fold(cells)
    notebook["cells"] = [shown for cell in cells for shown in _offer_findings(cell, page)]
    return notebook


def _offer_findings(cell: dict[str, Any], page: Page) -> Cells:
    """Replace the table of a page's findings, whose keys say little to a reader, by a link to their file."""
    outputs = cell.get("outputs", [])
    tables = ("".join(output.get("data", {}).get("text/html", "")) for output in outputs)
    if not any(f"<th>{QUOTED}</th>" in table for table in tables):
        return [cell]
    link = f"</_generated/records/{page.notebook}-{page.case}.findings.csv>"
    text = f"All of them, with intervals, units and noise: {{download}}`findings as CSV {link}`."
    return [
        cell | {"outputs": []},
        {"cell_type": "markdown", "id": "findings", "metadata": {}, "source": text},
    ]


def is_of_case(cell: dict[str, Any], case: str) -> bool:
    """Tell whether a cell is on the page of a case: its tags may say of which alone."""
    only = [tag for tag in cell["metadata"].get("tags", ()) if tag.startswith("only-")]
    return not only or f"only-{case}" in only


def _render_noise(page: Page) -> str:
    """Warn of a page whose measurement was not quiet enough to rank contenders closely."""
    noise = read_findings(page.record).get(NOISE, Finding()).value
    if not noise > UNSTABLE_ABOVE:
        return ""
    return (
        ":::{admonition} Unstable\n:class: warning unstable\nTwo copies of one contender differ by"
        f" {100 * noise:.2g} % here, more than the {100 * UNSTABLE_ABOVE:g} % up to which an order of"
        " contenders is trusted.\nSmaller differences on this page may be the machine's doing.\nTo"
        f" measure again, on a machine with nothing else to do:"
        f" `make run CASE={page.notebook}/{page.case} FLAGS=--anew`.\n:::\n"
    )


def _render_origin(page: Page) -> str:
    """Say whose results a page shows: machine, versions, date, record."""
    rows = _read_rows(page.record)
    if rows.empty:
        raise UserError(page.record.name, "holds no row; measure the case anew")
    is_reference = page.site == "reference"
    heading = "Reference record" if is_reference else f"Your own results (site {page.site})"
    days = sorted({escape(str(text)[:10]) for text in rows["started_utc"]})  # UTC
    dates = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    facts = json.loads(rows["machine"].iloc[0])  # a record has one
    cpu, n_cores, memory, system = (
        escape(facts.get(name, "?")) for name in ("cpu", "n_cores", "memory_gb", "system")
    )
    commits = " and ".join(sorted({escape(str(name)[:10]) for name in rows["commit"]}))
    changed = ", with local changes" if rows["is_dirty"].any() else ""
    lines = [
        f"Measured {dates} on {cpu}, {n_cores} cores, {memory} GB of memory, {system};"
        f" commit {commits}{changed}.",
        *_say_what_counts(rows),
        _write_versions(rows),
        f"For your own, run `make run CASE={page.notebook}/{page.case}`." * is_reference,
        f"{{download}}`The record as CSV </_generated/records/{page.notebook}-{page.case}.csv>`.",
    ]
    return f":::{{admonition}} {heading}\n:class: note origin\n{chr(10).join(filter(None, lines))}\n:::\n"


LEAST_WAVES = 8
"""Of requests, below which the start of a read weighs in its time."""


def _say_what_counts(rows: pd.DataFrame) -> Iterator[str]:
    """Say whether processors count in a record, and how many of its reads have few waves of requests."""
    used = measured(rows)
    counts = used["cpus"] > 0
    if (used.loc[~counts, "dilation"] > 1).any():
        scope = "in some reads " * bool(counts.any())
        yield (
            f"CPU time is not counted {scope}here: CPUs are as many times faster as the network is slowed"
            " down, so ratios between clients are those of the network where CPUs were not busy."
        )
    if n_few := int((used["waves"] < LEAST_WAVES).sum()):
        yield (
            f"{n_few} of {len(used)} reads are of fewer than {LEAST_WAVES} waves of requests: how a"
            " client starts weighs in them."
        )


# Versions that a page names of those that the record does.
_NAMED = [
    "python",
    "zarr",
    "obstore",
    "s3fs",
    "fsspec",
    "h5py",
    "netCDF4",
    "xarray",
    "dask",
    "numcodecs",
]


def _write_versions(rows: pd.DataFrame) -> str:
    """Write the ten versions that matter most, and how many more the record names."""
    versions: dict[str, str] = {}
    for text in rows["versions"].unique():
        versions |= json.loads(text)
    packages = ", ".join(escape(f"{name} {versions[name]}") for name in _NAMED if name in versions)
    n_more = len(versions.keys() - {*_NAMED})
    return f"Versions: {packages}" + f"; {n_more} more are in the record" * bool(n_more) + "."


def escape(text: object) -> str:
    """Escape what would be mark-up in a text that somebody else wrote."""
    return re.sub(r"[\\`*_{}\[\]<>&|$~#!:]", r"\\\g<0>", " ".join(str(text).split()))


def _without_markup(text: object) -> str:
    """Escape what would be mark-up in the caption of a figure, but for roles with a name."""
    parts = re.split(r"(\{\w+\}`[\w-]+`|[\w\s-]+)", " ".join(str(text).split()))
    return "".join(part if i % 2 else escape(part) for i, part in enumerate(parts))


def _suffix_labels(cells: Cells, page: str) -> None:
    """Append notebook and case to the name of every figure and to every mention of it."""
    figures = [cell["metadata"].get("mystnb", {}).get("figure", {}) for cell in cells]
    names = "|".join(re.escape(figure["name"]) for figure in figures if "name" in figure)
    mention = re.compile(rf"(?<![\w-])(?:{names})(?![\w-])" if names else r"(?!)")
    for figure in figures:
        figure |= {
            key: mention.sub(rf"\g<0>-{page}", _without_markup(text))
            for key, text in figure.items()
        }
    for cell in cells:
        if cell["cell_type"] == "markdown":
            cell["source"] = mention.sub(rf"\g<0>-{page}", cell["source"])


def fold(cells: Cells) -> None:
    """Fold the code of a page."""
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        tags = cell["metadata"].setdefault("tags", [])
        # a cell whose output alone was folded would show code that nobody asked for
        tags[:] = ["hide-cell" if tag == "hide-output" else tag for tag in tags]
        is_figure = "figure" in cell["metadata"].get("mystnb", {})
        # what is timed and which statistic is taken is seen; how a picture is drawn is folded
        if is_figure and not any(tag.startswith(("hide-", "remove-")) for tag in tags):
            tags.append("hide-input")
        if is_figure:  # not what its last line returns
            drawn = [
                output for output in cell["outputs"] if "image/svg+xml" in output.get("data", {})
            ]
            cell["outputs"] = drawn or cell["outputs"]


def tabulate_records(pages: Sequence[Page]) -> pd.DataFrame:
    """Tabulate the records of the book, with a link to the page of a case that has one."""
    lines = []
    for page in pages:
        rows, title = _read_rows(page.record), f"{page.notebook}/{page.case}"
        noise = read_findings(page.record).get(NOISE, Finding()).value
        profile = json.loads(rows["parameters"].iloc[-1]).get("profile", "")
        named = {json.loads(point).get("profile", profile) for point in rows["point"].unique()}
        networks = sorted(Path(str(name).partition("@")[0]).stem for name in named)
        used, n_cores = measured(rows), json.loads(rows["machine"].iloc[-1]).get("n_cores", 1)
        long = used[used["real_open_s"] + used["real_read_s"] > 0.1]  # busy in ticks of 10 ms
        shares = busy_share(long).groupby([long["contender"], long["point"]]).median() / n_cores
        lines.append(
            {
                "case": f"[{title}](/{page.name})" if page.is_shown else title,
                "rows": f"{{download}}`{len(rows)} </_generated/records/{page.notebook}-{page.case}.csv>`",
                "commit": escape(str(rows["commit"].iloc[-1])[:7]),
                "network": escape(", ".join(networks)),
                "noise (%)": _write(100 * noise),
                "CPU (%)": _write(100 * float(shares.max())),  # of the busiest contender
                "waves": _write(float(used["waves"].min())),
                "measured": escape(str(rows["started_utc"].max())[:10]).replace("-", "\u2011"),
                "minutes": _write(count_run(rows)["minutes"]),  # of all its sessions
            }
        )
    return pd.DataFrame(lines).sort_values("case", key=lambda names: names.str.strip("["))


def _write(value: float) -> str:
    return format_digits(value) if math.isfinite(value) else "unknown"


def tabulate_profiles() -> pd.DataFrame:
    """Tabulate the network profiles."""
    path, lines = Path(networks.__file__).with_name("networks.yaml"), []
    profiles = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name, profile in profiles.items():
        first_byte = profile.get("first_byte_s", {})
        limits = ("stream_mb_per_s", "worker_mb_per_s", "aggregate_mb_per_s", "requests_per_s")
        median, p95 = (
            f"{first_byte[key] * 1e3:g}" if key in first_byte else "none"
            for key in ("median_s", "p95_s")
        )
        trips = profile.get("setup_round_trips")
        setup = f"{trips:g} of {1e3 * profile['round_trip_s']:g} ms" if trips else "nothing"
        cells = [profile.get(key, "no limit") for key in limits]
        lines.append([f"`{name}`", median, p95, *cells, setup])
    heads = ["profile", "first byte, median (ms)", "95th percentile (ms)", "one connection (MB/s)"]
    heads += ["those of a worker (MB/s)", "all connections (MB/s)", "requests per second"]
    heads += ["before the first request of a connection"]
    return pd.DataFrame(lines, columns=heads)
