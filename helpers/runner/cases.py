"""What a case is, and whether its results are those of its notebook and its parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml
from filelock import FileLock, Timeout

from helpers.errors import UserError, cut, show
from helpers.parameters import complete_parameters
from helpers.paths import ROOT, check_site
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
    """Find the cases of a site, notebook by notebook.

    Raises
    ------
    UserError
        If the site has none.
    """
    files = sorted((root / "parameters" / check_site(site)).glob("*/*.yaml"))
    if not files:
        sites = sorted(path.name for path in (root / "parameters").iterdir() if path.is_dir())
        raise UserError(f"SITE: {site!r}; allowed: {', '.join(sites)}")
    return [Case(site, file.parent.name, file.stem, root) for file in files]


def find_case(title: str, site: str, root: Path = ROOT) -> Case:
    """Find one case by notebook and name.

    Raises
    ------
    UserError
        If there is no such case.
    """
    cases = {case.title: case for case in find_cases(site, root)}
    if title not in cases:
        raise UserError(f"CASE: {title!r}; allowed: {', '.join(cases)}")
    return cases[title]


def read_parameters(case: Case) -> dict[str, Any]:
    """Read and check the parameters of a case, defaults included.

    Raises
    ------
    UserError
        If the file is no mapping, or a parameter is unknown or out of bounds.
    """
    where = f"parameters/{case.site}/{case.title}.yaml"
    try:
        overrides = yaml.safe_load(case.parameter_file.read_bytes()) or {}
    except Exception as error:  # a tag fails with whatever its text makes Python say
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{where}: is no YAML: {cut(told)}") from error
    if not isinstance(overrides, dict):
        raise UserError(f"{where}: {show(overrides)}; allowed: NAME: VALUE on each line")
    if not case.source.exists():
        raise UserError(f"{where}: there is no notebooks/{case.notebook}.ipynb")
    values = {"record": f"{case.name}.csv", **overrides}
    complete_parameters(case.source, values, where)
    return values


def fingerprint(case: Case, values: dict[str, Any]) -> str:
    """Hash what a result is made of: the notebook, text included, and the parameters."""
    return hash_sources(case, values, ("code", "markdown"))


def hash_sources(case: Case, values: dict[str, Any], cell_types: Sequence[str]) -> str:
    """Hash the cells of some types and the parameters, of which a hash must not tell a password."""
    cells = nbformat.read(case.source, as_version=4).cells  # type: ignore[no-untyped-call]
    sources = [cell.source for cell in cells if cell.cell_type in cell_types]
    return hashlib.sha256(
        json.dumps([sources, redact_tree(values)], sort_keys=True).encode()
    ).hexdigest()


def is_done(case: Case, values: dict[str, Any]) -> bool:
    """Tell whether the results are there and are those of this notebook and these parameters."""
    paths = [case.result(suffix) for suffix in (".ipynb", ".csv")]
    if not all(path.exists() for path in paths):
        return False
    known = read_metadata(paths[0]).get("case", {}).get("fingerprint")
    return bool(known == fingerprint(case, values))


def read_metadata(path: Path) -> dict[str, Any]:
    """Read what an executed notebook says of its run; nothing if it is no whole notebook."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["metadata"])
    except (OSError, ValueError, TypeError, KeyError):
        return {}


@contextmanager
def lock_case(case: Case) -> Iterator[None]:
    """Hold a case for this process, so that nobody else measures it; ends with the process.

    Raises
    ------
    UserError
        If another process holds it.
    """
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
