"""Cases: parameter files to executed notebooks and records.

``results/SITE/Q/C.{ipynb,csv}`` is what ``notebooks/Q.ipynb`` makes of
``parameters/SITE/Q/C.yaml``. A case that is done is not run again unless its
notebook or its parameters changed; one that was interrupted goes on with the
rows that its record holds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import nbformat
import papermill
import yaml
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from helpers.errors import UserError
from helpers.parameters import complete_parameters
from helpers.paths import ROOT

State = Literal["done", "done before", "failed", "refused"]
Say = Callable[[str], None]

_AROUND_S = 60.0  # of a case beside its blocks: kernel, cluster, calibration, figures

HEADLINES = ("headline", "best-throughput")
"""Keys of the glued finding that the table of cases shows; the first that a notebook has."""


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case."""

    case: Case
    state: State
    seconds: float = 0.0
    text: str = ""


def find_cases(site: str, root: Path = ROOT) -> list[Case]:
    """Find the cases of a site, notebook by notebook.

    Raises
    ------
    UserError
        If the site has none.
    """
    files = sorted((root / "parameters" / site).glob("*/*.yaml"))
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
        overrides = yaml.safe_load(case.parameter_file.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise UserError(f"{where}: is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(overrides, dict):
        raise UserError(f"{where}: {overrides!r}; allowed: NAME: VALUE on each line")
    if not case.source.exists():
        raise UserError(f"{where}: there is no notebooks/{case.notebook}.ipynb")
    values = {"record": f"{case.name}.csv", **overrides}
    complete_parameters(case.source, values, where)
    return values


def fingerprint(case: Case, values: dict[str, Any]) -> str:
    """Hash what a result is made of: the notebook, text included, and the parameters."""
    return _hash(case, values, ("code", "markdown"))


def _hash(case: Case, values: dict[str, Any], cell_types: Sequence[str]) -> str:
    cells = nbformat.read(case.source, as_version=4).cells  # type: ignore[no-untyped-call]
    sources = [cell.source for cell in cells if cell.cell_type in cell_types]
    return hashlib.sha256(json.dumps([sources, values], sort_keys=True).encode()).hexdigest()


def is_done(case: Case, values: dict[str, Any]) -> bool:
    """Tell whether the results are there and are those of this notebook and these parameters."""
    paths = [case.result(suffix) for suffix in (".ipynb", ".csv")]
    if not all(path.exists() for path in paths):
        return False
    metadata = nbformat.read(paths[0], as_version=4).metadata  # type: ignore[no-untyped-call]
    return bool(metadata.get("case", {}).get("fingerprint") == fingerprint(case, values))


def run_case(case: Case, say: Say, *, anew: bool = False, more: bool = False) -> Outcome:
    """Run one case unless it is done, and say what became of it.

    Parameters
    ----------
    case : Case
        What to run.
    say : callable
        Takes a line of progress.
    anew : bool
        Measure again what is done; the old record is kept beside the new one.
    more : bool
        Go on with a case that its time budget ended, on top of its record.
    """
    try:
        values = read_parameters(case)
    except UserError as error:
        return Outcome(case, "refused", text=str(error))
    if is_done(case, values) and not anew and not more:
        return Outcome(case, "done before", _duration_s(case), _headline(case))
    start = time.monotonic()
    _set_aside(case, values, anew=anew)
    problem = _execute(case, values)
    seconds = time.monotonic() - start
    if problem:
        return Outcome(case, "failed", seconds, problem)
    return Outcome(case, "done", seconds, _headline(case))


def _set_aside(case: Case, values: dict[str, Any], *, anew: bool) -> None:
    """Keep a record that this run cannot go on with, under another name.

    Rows stay where only text changed: a better sentence costs no measurement.
    """
    record, note = case.result(".csv"), case.result(".fingerprint")
    note.parent.mkdir(parents=True, exist_ok=True)
    mine = _hash(case, values, ("code",))
    known = note.read_text() if note.exists() else ""
    if record.exists() and (anew or known != mine):
        shutil.move(record, record.with_suffix(time.strftime(".%Y%m%d-%H%M%S.csv")))
    note.write_text(mine)


def _execute(case: Case, values: dict[str, Any]) -> str:
    """Execute the notebook beside its record; return what went wrong, or nothing."""
    draft, failed = case.result(".running.ipynb"), case.result(".failed.ipynb")
    try:
        with kernel_options() as options:
            notebook = papermill.execute_notebook(
                str(case.source),
                str(draft),
                parameters=values,
                cwd=str(draft.parent),
                kernel_name="python3",
                progress_bar=False,
                **options,
            )
    except PapermillExecutionError as error:
        _clean(draft)
        os.replace(draft, failed)
        return " ".join(f"{error.ename}: {error.evalue}".split()).removeprefix("UserError: ")
    notebook.metadata["case"] = {"fingerprint": fingerprint(case, values), "site": case.site}
    nbformat.write(notebook, draft)  # type: ignore[no-untyped-call]
    _clean(draft)
    os.replace(draft, case.result(".ipynb"))
    failed.unlink(missing_ok=True)
    return ""


@contextmanager
def kernel_options() -> Iterator[dict[str, Any]]:
    """Start kernels of this environment, and on Linux speak to them without TCP.

    Sockets have short paths, so they get a folder of their own.
    """
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    if sys.platform != "linux":
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="arrays-") as folder:
        os.environ["JUPYTER_RUNTIME_DIR"] = folder
        yield {"config": Config({"KernelManager": {"transport": "ipc"}})}


def _clean(path: Path) -> None:
    """Take the paths of this machine out of an executed notebook."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    kept = {"duration", "start_time", "end_time", "exception"}
    told = notebook.metadata.get("papermill", {})
    notebook.metadata["papermill"] = {key: told[key] for key in kept if key in told}
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
    text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    for place, name in ((str(ROOT), "."), (str(Path.home()), "~")):
        text = text.replace(place, name)
    path.write_text(text + "\n", encoding="utf-8")


def _duration_s(case: Case, site: str = "") -> float:
    """Read how long a case took, here or in the reference; 0 if nobody knows."""
    path = case.result(".ipynb", site)
    if not path.exists():
        return 0.0
    metadata = nbformat.read(path, as_version=4).metadata  # type: ignore[no-untyped-call]
    return float(metadata.get("papermill", {}).get("duration") or 0.0)


def _headline(case: Case) -> str:
    notebook = nbformat.read(case.result(".ipynb"), as_version=4)  # type: ignore[no-untyped-call]
    return read_headline(notebook)


def read_headline(notebook: Any) -> str:
    """Read the finding that the table of cases shows; empty if a notebook has none."""
    return next(filter(None, (read_glued(notebook, key) for key in HEADLINES)), "")


def read_glued(notebook: Any, key: str) -> str:
    """Read a text that a notebook glued under a key; empty if it did not."""
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        name = output.get("metadata", {}).get("scrapbook", {}).get("name", "")
        if name.removeprefix("application/papermill.record/") == key:
            return str(next(iter(output["data"].values()))).strip("'")
    return ""


def run_cases(
    cases: Sequence[Case], say: Say, *, anew: bool = False, more: bool = False
) -> list[Outcome]:
    """Run cases one after the other, saying which runs, how many remain and how long.

    A case that fails does not stop the others.
    """
    left = [_expected_s(case) for case in cases]
    outcomes = []
    for i, case in enumerate(cases):
        say(f"[{i + 1}/{len(cases)}] {case.title}: {_say_left(left[i:])}")
        outcomes.append(run_case(case, say, anew=anew, more=more))
        say(
            f"[{i + 1}/{len(cases)}] {case.title}: {outcomes[-1].state}, {outcomes[-1].seconds:.0f} s"
        )
    return outcomes


def _expected_s(case: Case) -> float:
    """Expect what a case took before, or its time budget and what surrounds it; 0 if unknown.

    A reference that was continued took less in its last run than a first run takes.
    """
    budget = re.search(r"(?m)^time_budget_s:\s*([\d.]+)", case.parameter_file.read_text("utf-8"))
    from_budget = float(budget[1]) + _AROUND_S if budget else 0.0
    return max(_duration_s(case) or _duration_s(case, "reference"), from_budget)


def _say_left(seconds: Sequence[float]) -> str:
    known = [s for s in seconds if s]
    if not known:
        return f"{len(seconds)} to run, some 4 minutes each"
    mean = sum(known) / len(known)
    return f"{len(seconds)} to run, about {sum(s or mean for s in seconds) / 60:.0f} minutes"


def summarise(outcomes: Sequence[Outcome]) -> list[str]:
    """Write the table of cases."""
    width = max(len(outcome.case.title) for outcome in outcomes)
    lines = [f"{'case':{width}}  {'state':11}  {'time':>6}  {'headline':14}  notebook"]
    for outcome in outcomes:
        headline = outcome.text if outcome.state.startswith("done") else ""
        path = _relative(outcome)
        lines.append(
            f"{outcome.case.title:{width}}  {outcome.state:11}  {outcome.seconds:5.0f}s  {headline:14}  {path}"
        )
    return lines


def explain_failures(outcomes: Sequence[Outcome]) -> list[str]:
    """Say which cases failed, why, and how to run each alone; empty if none did."""
    lines = []
    for outcome in outcomes:
        if outcome.state in ("failed", "refused"):
            lines.append(f"{outcome.case.title} {outcome.state}: {outcome.text}")
            lines.append(
                f"  run it alone: make run CASE={outcome.case.title} SITE={outcome.case.site}"
            )
    return lines


def _relative(outcome: Outcome) -> str:
    suffix = {"failed": ".failed.ipynb", "refused": ""}.get(outcome.state, ".ipynb")
    path = outcome.case.result(suffix) if suffix else outcome.case.parameter_file
    return str(path.relative_to(outcome.case.root))


def note_whole_run(site: str, outcomes: Sequence[Outcome], **took: float) -> None:
    """Keep what a run of every case took, for the bars: `seconds` and `peak_nbytes`."""
    cases = {outcome.case.title: round(outcome.seconds, 1) for outcome in outcomes}
    note = {**{name: round(value, 1) for name, value in took.items()}, "cases": cases}
    (ROOT / "results" / site / "run-all.json").write_text(json.dumps(note) + "\n")
