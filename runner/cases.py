"""Studies, found in their folders and listed nowhere; their cases, and whether results are those of a case."""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from filelock import FileLock, Timeout

from helpers.findings import SUFFIX
from helpers.parameters import Parameters, Study
from helpers.paths import ROOT
from wire.errors import UserError, redact_tree, show
from wire.files import check_file, check_name, read_yaml

SEAL = "seal"
"""Of an executed notebook, in what it says of its case: the digest of all that its page is made of."""

SUFFIXES = (".ipynb", ".csv", SUFFIX, ".runs.json")
"""Of the files of a result: executed notebook, record, its findings, and the origin of its rows."""


def list_studies() -> list[str]:
    """List the names of the studies, which are those of their folders; none is imported."""
    package = importlib.import_module("studies")
    folders = [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]
    return [name.replace("_", "-") for name in folders]


def find_studies() -> dict[str, Study]:
    """Find all studies, by name."""
    return {name: find_study(name) for name in list_studies()}


def find_study(name: str) -> Study:
    """Find the study of a notebook without the others, or say which there are."""
    study: Study = _import(name, "").STUDY
    return study


def find_parameters(name: str) -> type[Parameters]:
    """Find the model of the parameters of a study."""
    model: type[Parameters] = _import(name, ".parameters").Parameters
    return model


def _import(name: str, module: str) -> Any:
    if name not in (names := list_studies()):
        raise UserError("study", f"{name!r}", ", ".join(names))
    return importlib.import_module(f"studies.{name.replace('-', '_')}{module}")


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
        """The notebook without outputs: one of its own, such as ``study.case.ipynb``, else the study's."""
        own = self.root / "notebooks" / f"{self.notebook}.{self.name}.ipynb"
        return own if own.exists() else own.with_name(f"{self.notebook}.ipynb")

    def result(self, suffix: str, site: str = "") -> Path:
        """Where a result of this case lies, at its own site or another."""
        return self.root / "results" / (site or self.site) / self.notebook / f"{self.name}{suffix}"


def find_cases(site: str, root: Path = ROOT) -> list[Case]:
    """Find the cases of a site, notebook by notebook."""
    files = sorted((root / "parameters" / check_name(site)).glob("*/*.yaml"))
    if not files:
        sites = sorted(path.name for path in (root / "parameters").iterdir() if path.is_dir())
        raise UserError("SITE", f"{site!r}", ", ".join(sites))
    for file in files:
        check_name(file.parent.name, "study")
        check_name(file.stem, f"case of {file.parent.name}")
    return [Case(site, file.parent.name, file.stem, root) for file in files]


def find_case(title: str, site: str, root: Path = ROOT) -> Case:
    """Find one case by notebook and name."""
    cases = {case.title: case for case in find_cases(site, root)}
    if title not in cases:
        raise UserError("CASE", show(title), ", ".join(cases))
    return cases[title]


@dataclass(frozen=True, slots=True)
class CaseParameters:
    """Parameters of a case that were read and checked."""

    overrides: Mapping[str, Any]  # those of its file, its record and a budget of the caller's
    settings: Mapping[str, Any]  # all of them, with the defaults of the study


def read_parameters(case: Case, budget_s: float = 0.0) -> dict[str, Any]:
    """Read and check what the file of a case says, with a time budget of the caller's if it is not 0."""
    return dict(check_parameters(case, budget_s).overrides)


def check_parameters(case: Case, budget_s: float = 0.0) -> CaseParameters:
    """Read and check the parameters of a case, with a time budget of the caller's if it is not 0."""
    where = f"parameters/{case.site}/{case.title}.yaml"
    overrides = read_yaml(case.parameter_file, where)
    if not case.source.exists():
        raise UserError(where, f"there is no notebooks/{case.notebook}.ipynb")
    values = {"record": f"{case.name}.csv", **overrides}
    values |= {"time_budget_s": budget_s} if budget_s else {}
    if values["record"] != f"{case.name}.csv":
        raise UserError(where, f"record: {show(values['record'])}", f"{case.name}.csv, its own")
    return CaseParameters(values, find_parameters(case.notebook).check(values, where))


def fingerprint(case: Case, values: Mapping[str, Any]) -> str:
    """Hash what a result is made of: the notebook, text included, and the parameters.

    The time budget is left out: it says how long to go on, and a longer one goes on with the rows.
    """
    return _hash(case, values, ("code", "markdown"), {"time_budget_s"})


def fingerprint_rows(case: Case, values: Mapping[str, Any]) -> str:
    """Hash what rows are made of: the code of the notebook, and the parameters that are measured."""
    return _hash(case, values, ("code",), find_parameters(case.notebook).not_measured)


def _hash(
    case: Case, values: Mapping[str, Any], cell_types: Collection[str], but: Collection[str]
) -> str:
    cells = nbformat.read(case.source, as_version=4).cells  # type: ignore[no-untyped-call]
    sources = [cell.source for cell in cells if cell.cell_type in cell_types]
    shared = {name: value for name, value in values.items() if name not in but}
    text = json.dumps([sources, redact_tree(shared)], sort_keys=True)  # a hash tells no password
    return hashlib.sha256(text.encode()).hexdigest()


def is_done(case: Case, values: Mapping[str, Any]) -> bool:
    """Tell whether the results are there and are those of this notebook and these parameters."""
    executed, record = case.result(".ipynb"), case.result(".csv")
    if not (executed.exists() and record.exists()) or find_damage(executed, record):
        return False
    return bool(
        read_metadata(executed).get("case", {}).get("fingerprint") == fingerprint(case, values)
    )


def seal(executed: Path, record: Path) -> None:
    """Write into an executed notebook the digest of all that its page is made of."""
    notebook = json.loads(executed.read_bytes())
    n_bytes = record.stat().st_size if record.exists() else 0
    digest = _digest(notebook, record, n_bytes)
    case = {
        **notebook["metadata"].get("case", {}),
        SEAL: {"rows_nbytes": n_bytes, "sha256": digest},
    }
    notebook["metadata"]["case"] = case
    executed.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def find_damage(executed: Path, record: Path, *, goes_on: bool = False) -> str:
    """Say that an executed notebook, its rows or findings are not as the runner left them, if so.

    A run that `goes_on` may find rows that one before it has appended, and was interrupted.
    """
    try:
        notebook = json.loads(check_file(executed).read_bytes())
        digests = notebook["metadata"].get("case", {}).get(SEAL, {})
        n_bytes = digests.get("rows_nbytes")
        if not isinstance(n_bytes, int) or not digests.get("sha256"):
            return f"{executed.name}: it has no digest of what it is made of"
        if _digest(notebook, record, n_bytes) != digests["sha256"]:
            return f"{executed.name}: it, its rows or its findings are not as the run left them"
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return f"{executed.name}: not a whole notebook"
    if record.stat().st_size > n_bytes and not goes_on:
        return f"{record.name}: it has rows that {executed.name} was not executed with; run the case again"
    return ""


def _digest(notebook: Mapping[str, Any], record: Path, n_bytes: int) -> str:
    """Hash a notebook with metadata and outputs, its findings, and the first bytes of its rows.

    Each row names its run by a hash of where it comes from, so that file needs none of its own.
    """
    about = {key: value for key, value in notebook["metadata"].items() if key != "case"}
    case_metadata = {
        key: value for key, value in notebook["metadata"].get("case", {}).items() if key != SEAL
    }
    text = json.dumps([notebook["cells"], about, case_metadata], sort_keys=True)
    parts = [text.encode()]
    for path, end in ((record, max(0, n_bytes)), (record.with_suffix(SUFFIX), None)):
        parts.append(check_file(path).read_bytes()[:end] if path.exists() else b"")
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def read_metadata(path: Path) -> dict[str, Any]:
    """Read what an executed notebook says of its run; nothing if it is no whole notebook."""
    try:
        return dict(json.loads(check_file(path).read_text(encoding="utf-8"))["metadata"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
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
            "CASE",
            f"{case.title!r} is being measured by another run at site {case.site}",
            "once at a time",
        ) from error


def write_derived(root: Path = ROOT) -> list[Path]:
    """Write what repeats the models of the studies, and return the files that changed.

    These are the schemas of case files and the cells of notebooks that declare parameters.
    """
    changed = []
    for name in list_studies():
        # every parameter may be left out, no other may stand
        schema = find_parameters(name).model_json_schema()
        schema.pop("description", None)
        for definition in schema["properties"].values():
            definition.pop("title", None)
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **schema,
            "title": f"a case of {name}",
        }
        text = json.dumps(schema, indent=2) + "\n"
        path = root / "parameters" / f"{name}.schema.json"
        changed += [path] * write_changed(path, text)
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        changed += [path] * _write_parameter_cell(path)
    return changed


def _write_parameter_cell(path: Path) -> bool:
    """Write the cell of a notebook that declares its parameters; tell whether it changed."""
    name, _, case = path.stem.partition(".")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            cell["source"] = find_parameters(name).format_cell(case).splitlines(keepends=True)
    return write_changed(path, json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def write_changed(path: Path, text: str) -> bool:
    """Write a text; tell whether it changed."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True
