"""Cases run one after the other, each unless it is done."""

from __future__ import annotations

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
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from helpers.errors import UserError
from helpers.paths import ROOT
from helpers.redaction import find_secrets, redact, redact_tree
from helpers.runner.cases import Case, fingerprint, hash_sources, is_done, read_parameters
from helpers.runner.findings import duration_s, headline_of

State = Literal["done", "done before", "failed", "refused"]


Say = Callable[[str], None]


_AROUND_S = 60.0  # of a case beside its blocks: kernel, cluster, calibration, figures


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case."""

    case: Case
    state: State
    seconds: float = 0.0
    text: str = ""


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
        return Outcome(case, "done before", duration_s(case), headline_of(case))
    start = time.monotonic()
    _set_aside(case, values, anew=anew)
    problem = _execute(case, values)
    seconds = time.monotonic() - start
    if problem:
        return Outcome(case, "failed", seconds, redact(problem, find_secrets(values)))
    return Outcome(case, "done", seconds, headline_of(case))


def _set_aside(case: Case, values: dict[str, Any], *, anew: bool) -> None:
    """Keep a record that this run cannot go on with, under another name.

    Rows stay where only text changed: a better sentence costs no measurement.
    """
    record, note = case.result(".csv"), case.result(".fingerprint")
    note.parent.mkdir(parents=True, exist_ok=True)
    mine = hash_sources(case, values, ("code",))
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
    """Take the paths of this machine and credentials out of an executed notebook."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    kept = {"duration", "start_time", "end_time", "exception"}
    told = notebook.metadata.get("papermill", {})
    notebook.metadata["papermill"] = {key: told[key] for key in kept if key in told}
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
    secrets = find_secrets(told.get("parameters"))
    clean = nbformat.from_dict(redact_tree(notebook, secrets))  # type: ignore[no-untyped-call]
    text = nbformat.writes(clean)  # type: ignore[no-untyped-call]
    for place, name in ((str(ROOT), "."), (str(Path.home()), "~")):
        text = text.replace(place, name)
    path.write_text(text + "\n", encoding="utf-8")


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
    return max(duration_s(case) or duration_s(case, "reference"), from_budget)


def _say_left(seconds: Sequence[float]) -> str:
    known = [s for s in seconds if s]
    if not known:
        return f"{len(seconds)} to run, some 4 minutes each"
    mean = sum(known) / len(known)
    return f"{len(seconds)} to run, about {sum(s or mean for s in seconds) / 60:.0f} minutes"
