"""What a case is, what its parameters are, whether its results are those, and what they say."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml
from filelock import FileLock, Timeout

from book.studies import case_schema, find_parameters, list_studies, write_cell
from helpers.errors import UserError, cut, show
from helpers.findings import SUFFIX
from helpers.paths import ROOT, check_file, check_name
from helpers.redaction import redact_tree

UNSEALED = (
    "it has no digests of its rows, outputs and findings: nobody knows whether they were measured"
)

SUFFIXES = (".ipynb", ".csv", SUFFIX, ".runs.json")
"""Of the files of a result: executed notebook, record, its findings, and the origin of its rows."""


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
    for file in files:
        check_name(file.parent.name, "study")
        check_name(file.stem, f"case of {file.parent.name}")
    return [Case(site, file.parent.name, file.stem, root) for file in files]


def find_case(title: str, site: str, root: Path = ROOT) -> Case:
    """Find one case by notebook and name."""
    cases = {case.title: case for case in find_cases(site, root)}
    if title not in cases:
        raise UserError(f"CASE: {show(title)}; allowed: {', '.join(cases)}")
    return cases[title]


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


class _Loader(yaml.SafeLoader):
    """Reads numbers as people write them, and each name once.

    1:30, 010 and 0x1F_ are no numbers, though YAML 1.1 has values for them.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise yaml.YAMLError(f"{twice[0]} stands twice")
        return super().construct_mapping(node, deep)


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
        text = check_file(case.parameter_file).read_bytes()
        overrides = yaml.load(text, _Loader) or {}  # noqa: S506  # a safe one
    except UserError:
        raise
    except Exception as error:  # a tag fails with whatever its text makes Python say
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{where}: is no YAML: {cut(told)}") from error
    if not isinstance(overrides, dict):
        raise UserError(f"{where}: {show(overrides)}; allowed: NAME: VALUE on each line")
    if not case.source.exists():
        raise UserError(f"{where}: there is no notebooks/{case.notebook}.ipynb")
    values = {"record": f"{case.name}.csv", **overrides}
    values |= {"time_budget_s": budget_s} if budget_s else {}
    if values["record"] != f"{case.name}.csv":
        raise UserError(
            f"{where}: record: {show(values['record'])}; allowed: {case.name}.csv, its own"
        )
    find_parameters(case.notebook).check(values, where)
    return values


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
    kept = {name: value for name, value in values.items() if name not in but}
    text = json.dumps([sources, redact_tree(kept)], sort_keys=True)  # a hash tells no password
    return hashlib.sha256(text.encode()).hexdigest()


def is_done(case: Case, values: Mapping[str, Any]) -> bool:
    """Tell whether the results are there and are those of this notebook and these parameters."""
    executed, record = case.result(".ipynb"), case.result(".csv")
    if not (executed.exists() and record.exists()) or find_damage(executed, record):
        return False
    return bool(_read_case(executed).get("fingerprint") == fingerprint(case, values))


def seal(executed: Path) -> None:
    """Write into an executed notebook the digests of its outputs, and of record and findings next to it."""
    notebook = nbformat.read(executed, as_version=4)  # type: ignore[no-untyped-call]
    notebook.metadata["case"] = {
        **notebook.metadata.get("case", {}),
        "rows": _digest_rows(executed.with_suffix(".csv")),
        "outputs": _digest_outputs(notebook),
        "findings": _digest_findings(executed),
    }
    nbformat.write(notebook, executed)  # type: ignore[no-untyped-call]


def find_damage(executed: Path, record: Path) -> str:
    """Say in what an executed notebook or its record is not as the runner left it; empty if it is.

    Rows may have been appended since, by a run that goes on or was interrupted.
    """
    known = _read_case(executed)
    rows, outputs, findings = (known.get(name) for name in ("rows", "outputs", "findings"))
    nbytes = rows.get("nbytes") if isinstance(rows, dict) else None
    if not isinstance(nbytes, int) or not outputs or findings is None:
        return UNSEALED
    notebook = nbformat.read(executed, as_version=4)  # type: ignore[no-untyped-call]
    if _digest_outputs(notebook) != outputs:
        return f"{executed.name}: its outputs are not those of the run that made it"
    if _digest_findings(executed) != findings:
        return f"{executed.stem}{SUFFIX}: its findings are not those of the run that made them"
    if _digest_rows(record, max(0, nbytes)) != rows:
        return f"{record.name}: its rows are not those that {executed.name} was executed with"
    return ""


def _digest_rows(record: Path, nbytes: int | None = None) -> dict[str, Any]:
    content = check_file(record).read_bytes()[:nbytes]
    return {"nbytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _digest_findings(executed: Path) -> str:
    found = check_file(executed.with_suffix(SUFFIX))
    return hashlib.sha256(found.read_bytes()).hexdigest() if found.exists() else ""


def _digest_outputs(notebook: Any) -> str:
    cells = [[cell["source"], cell.get("outputs", [])] for cell in notebook["cells"]]
    return hashlib.sha256(json.dumps(cells, sort_keys=True).encode()).hexdigest()


def _read_case(executed: Path) -> dict[str, Any]:
    """Read what an executed notebook says of its case; nothing if it does not."""
    told = read_metadata(executed).get("case")
    return told if isinstance(told, dict) else {}


def read_metadata(path: Path) -> dict[str, Any]:
    """Read what an executed notebook says of its run; nothing if it is no whole notebook."""
    try:
        return dict(json.loads(check_file(path).read_text(encoding="utf-8"))["metadata"])
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


def write_derived(root: Path = ROOT) -> list[Path]:
    """Write what is derived from the models: parameter cells and schemas; return what changed."""
    changed = []
    for name in list_studies():
        model = find_parameters(name)
        schema = json.dumps(case_schema(model, name), indent=2) + "\n"
        notebook = root / "notebooks" / f"{name}.ipynb"
        texts = {
            root / "parameters" / f"{name}.schema.json": schema,
            notebook: _with_cell(notebook, write_cell(model)),
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
