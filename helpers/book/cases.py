"""What a case is, what is derived from its parameters, whether its results are those, and what they say."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml
from filelock import FileLock, Timeout

from helpers.book import findings as numbers
from helpers.book.studies import case_schema, check_early, find_studies, find_study, write_cell
from helpers.errors import UserError, cut, show
from helpers.paths import ROOT, check_name
from helpers.redaction import redact_tree


@dataclass(frozen=True, slots=True)
class Case:
    """One parameter file, and where its results go."""

    site: str
    notebook: str
    name: str
    root: Path = ROOT

    @property
    def title(self) -> str:
        """Notebook and case, as ``make run CASE=...`` takes them."""
        return f"{self.notebook}/{self.name}"

    @property
    def parameter_file(self) -> Path:
        """Where the parameters are."""
        return self.root / "parameters" / self.site / self.notebook / f"{self.name}.yaml"

    @property
    def source(self) -> Path:
        """The notebook without outputs."""
        return self.root / "notebooks" / f"{self.notebook}.ipynb"

    def result(self, suffix: str, site: str = "") -> Path:
        """Where a result of this case lies, at its own site or another."""
        return self.root / "results" / (site or self.site) / self.notebook / f"{self.name}{suffix}"


def find_cases(site: str, root: Path = ROOT) -> list[Case]:
    """Find the cases of a site, notebook by notebook."""
    files = sorted((root / "parameters" / check_name(site)).glob("*/*.yaml"))
    if not files:
        sites = sorted(path.name for path in (root / "parameters").iterdir() if path.is_dir())
        raise UserError(f"SITE: {site!r}; allowed: {', '.join(sites)}")
    return [Case(site, file.parent.name, file.stem, root) for file in files]


def find_case(title: str, site: str, root: Path = ROOT) -> Case:
    """Find one case by notebook and name."""
    cases = {case.title: case for case in find_cases(site, root)}
    if title not in cases:
        raise UserError(f"CASE: {title!r}; allowed: {', '.join(cases)}")
    return cases[title]


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


class _Loader(yaml.SafeLoader):
    """Reads numbers as people write them: 1:30, 010 and 0x1F_ are none, though YAML 1.1 has values for them."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag not in (_INT, _FLOAT)]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_INT, re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"), [*"-+0123456789"])
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"[-+]?(?:(?:\d+\.\d*|\.\d+)(?:e[-+]?\d+)?|\d+e[-+]?\d+|\.inf)\Z|\.nan\Z",
        re.ASCII | re.IGNORECASE,
    ),
    [*"-+.0123456789"],
)


def read_parameters(case: Case, budget_s: float = 0.0) -> dict[str, Any]:
    """Read and check the parameters of a case, with a time budget of the caller's if it is not 0."""
    where = f"parameters/{case.site}/{case.title}.yaml"
    try:
        overrides = yaml.load(case.parameter_file.read_bytes(), _Loader) or {}  # noqa: S506  # a safe one
    except Exception as error:  # a tag fails with whatever its text makes Python say
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{where}: is no YAML: {cut(told)}") from error
    if not isinstance(overrides, dict):
        raise UserError(f"{where}: {show(overrides)}; allowed: NAME: VALUE on each line")
    if not case.source.exists():
        raise UserError(f"{where}: there is no notebooks/{case.notebook}.ipynb")
    schema = case.root / "parameters" / f"{case.notebook}.schema.json"
    if schema.exists():
        check_early(json.loads(schema.read_bytes()), overrides, where)
    values = {"record": f"{case.name}.csv", **overrides}
    values |= {"time_budget_s": budget_s} if budget_s else {}
    if values["record"] != f"{case.name}.csv":
        raise UserError(
            f"{where}: record: {show(values['record'])}; allowed: {case.name}.csv, its own"
        )
    find_study(case.notebook).parameters.check(values, where)
    return values


def fingerprint(case: Case, values: dict[str, Any]) -> str:
    """Hash what a result is made of: the notebook, text included, and the parameters."""
    return hash_sources(case, values, ("code", "markdown"))


def hash_sources(case: Case, values: dict[str, Any], cell_types: Sequence[str]) -> str:
    """Hash the cells of some types and the parameters, of which a hash must not tell a password.

    The time budget is left out: it says how long to go on, and a longer one goes on with the rows.
    """
    cells = nbformat.read(case.source, as_version=4).cells  # type: ignore[no-untyped-call]
    sources = [cell.source for cell in cells if cell.cell_type in cell_types]
    kept = {name: value for name, value in values.items() if name != "time_budget_s"}
    text = json.dumps([sources, redact_tree(kept)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_done(case: Case, values: dict[str, Any]) -> bool:
    """Tell whether the results are there and are those of this notebook and these parameters."""
    paths = [case.result(suffix) for suffix in (".ipynb", ".csv")]
    if not all(path.exists() for path in paths) or is_altered(*paths):
        return False
    known = read_metadata(paths[0]).get("case", {}).get("fingerprint")
    return bool(known == fingerprint(case, values))


def digest_rows(record: Path, nbytes: int = -1) -> dict[str, Any]:
    """Compute what an executed notebook keeps of its record, of which it may be but the beginning."""
    content = record.read_bytes()[: None if nbytes < 0 else nbytes]
    return {"nbytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def find_digest(executed: Path) -> dict[str, Any]:
    """Find the digest of its rows in an executed notebook; those of before have none."""
    told = read_metadata(executed).get("case")
    found = told.get("rows") if isinstance(told, dict) else None
    return found if isinstance(found, dict) else {}


def is_altered(executed: Path, record: Path) -> bool:
    """Tell whether a record is not the one that its notebook was executed with.

    Rows may have been appended since, by a run that goes on or was interrupted.
    """
    digest = find_digest(executed)
    if not digest or not record.exists():
        return False
    nbytes = digest.get("nbytes")
    return not isinstance(nbytes, int) or digest_rows(record, max(0, nbytes)) != digest


def read_metadata(path: Path) -> dict[str, Any]:
    """Read what an executed notebook says of its run; nothing if it is no whole notebook."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["metadata"])
    except (OSError, ValueError, TypeError, KeyError):
        return {}


@contextmanager
def lock_case(case: Case) -> Iterator[None]:
    """Hold a case for this process, so that nobody else measures it; ends with the process."""
    path = case.result(".lock").with_name(f".{case.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path).acquire(blocking=False):
            yield
    except Timeout as error:
        raise UserError(
            f"CASE: {case.title!r} is being measured by another run at site {case.site};"
            " allowed: once at a time"
        ) from error


UNSTABLE_ABOVE = 0.1
"""A/A noise above which a case is unstable.

The pages rank contenders that differ by a tenth; where two copies of one
contender differ by more, such an order is the machine's doing.
"""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the table of cases says of an executed notebook."""

    headline: str = ""  # its finding; empty if it has none
    # by which part two copies of one contender differ (A/A), in the worst block where that is
    # told; NaN if unknown
    noise: float = math.nan
    n_blocks: int = 0  # measured blocks; 0 if unknown

    @property
    def is_unstable(self) -> bool:
        """Whether the noise is above what the project trusts."""
        return self.noise > UNSTABLE_ABOVE


def duration_s(case: Case, site: str = "") -> float:
    """Read how long a case took, here or in the reference; 0 if nobody knows."""
    told = read_metadata(case.result(".ipynb", site))
    return float(told.get("papermill", {}).get("duration") or 0.0)


def findings_of(case: Case) -> Findings:
    """Read what the table says of a case that ran."""
    headline = find_study(case.notebook).headline
    if found := numbers.read_findings(case.result(".csv")):
        told = numbers.format_finding(found.get(headline), "range")
        n_blocks = found[numbers.N_BLOCKS].value
        return Findings(told, found[numbers.NOISE].value, int(n_blocks))
    notebook = nbformat.read(case.result(".ipynb"), as_version=4)  # type: ignore[no-untyped-call]
    return read_findings(notebook, headline)


def read_findings(notebook: Any, headline: str) -> Findings:
    """Read headline, noise and blocks from what a notebook glued; the headline under its key."""
    texts = (read_glued(notebook, key) for key in ("aa-noise", "aa-noise-worst"))
    noises = [float(one[0]) / 100 for text in texts if (one := re.match(r"[\d.]+(?= %)", text))]
    blocks = re.match(r"\d+", read_glued(notebook, "n-blocks"))
    return Findings(
        read_glued(notebook, headline),
        max(noises, default=math.nan),
        int(blocks[0]) if blocks else 0,
    )


def read_glued(notebook: Any, key: str) -> str:
    """Read a text that a notebook glued under a key; empty if it did not."""
    return list_glued(notebook).get(key, "")


def list_glued(notebook: Any) -> dict[str, str]:
    """List all texts that a notebook glued, by key."""
    found = {}
    for output in (output for cell in notebook["cells"] for output in cell.get("outputs", [])):
        name = output.get("metadata", {}).get("scrapbook", {}).get("name", "")
        if name:
            key = name.removeprefix("application/papermill.record/")
            found[key] = str(next(iter(output["data"].values()))).strip("'\"")
    return found


def write_derived(root: Path = ROOT) -> list[Path]:
    """Write what is derived from the models: parameter cells and schemas; return what changed."""
    changed = []
    for study in find_studies().values():
        schema = json.dumps(case_schema(study.parameters, study.name), indent=2) + "\n"
        notebook = root / "notebooks" / f"{study.name}.ipynb"
        texts = {
            root / "parameters" / f"{study.name}.schema.json": schema,
            notebook: _with_cell(notebook, write_cell(study.parameters)),
        }
        for path, text in texts.items():
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                changed.append(path)
    return changed


def _with_cell(path: Path, source: str) -> str:
    """Return the text of a notebook with another parameter cell."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = source
    return str(nbformat.writes(notebook)) + "\n"  # type: ignore[no-untyped-call]
