"""Studies: what each declares in its own folder, found there and listed nowhere."""

from __future__ import annotations

import importlib
import json
import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from helpers.book.parameters import Parameters, case_schema, write_cell
from helpers.errors import UserError
from helpers.paths import ROOT

Say = Callable[[str], None]

_PACKAGE = "studies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """What the cases of a study are held to, and the glued finding that says whether they keep it."""

    key: str  # of the finding; it stands also for keys that end with it, as in one for each medium
    name: str  # on the page
    bound: float  # infinite, or 0 where it is the least, for what is only reported
    is_least: bool
    how: str  # how the value was computed


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One question: a notebook, its cases, and what the book needs to know of them."""

    name: str  # of the notebook and of the folders of its cases and results
    headline: str  # key of the glued finding that the table of cases shows
    thresholds: tuple[Threshold, ...] = ()
    # of all its cases in one run of every case, at most; infinite where there is no such target
    minutes: float = math.inf
    set_up: Callable[[Say], None] | None = None  # runs once before its cases
    # case and name of the figure that the README shows, if it is one of this study
    cover: tuple[str, str] | None = None
    # text that pages include, by file name below `_generated/`
    fragments: Mapping[str, Callable[[], str]] = field(default_factory=dict)

    @property
    def parameters(self) -> type[Parameters]:
        """The model of its parameters, from its folder."""
        module = importlib.import_module(f"{_PACKAGE}.{self.name.replace('-', '_')}.parameters")
        model: type[Parameters] = module.Parameters
        return model


def find_studies() -> dict[str, Study]:
    """Find every folder of studies that declares one, by the name of its notebook."""
    package = importlib.import_module(_PACKAGE)
    modules = [
        importlib.import_module(f"{_PACKAGE}.{found.name}")
        for found in pkgutil.iter_modules(package.__path__)
        if found.ispkg
    ]
    return {module.STUDY.name: module.STUDY for module in modules}


def find_study(name: str) -> Study:
    """Find the study of a notebook, or say which there are."""
    studies = find_studies()
    if name not in studies:
        raise UserError(f"study: {name!r}; allowed: {', '.join(studies)}")
    return studies[name]


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
