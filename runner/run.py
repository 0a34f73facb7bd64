"""Cases run one after the other by papermill, each unless it is done; pages rendered from their rows."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import nbformat
import pandas as pd
import papermill
from jupyter_core.utils import ensure_event_loop
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from helpers.benchmark.record import read_records
from helpers.benchmark.statistics import measured
from helpers.findings import (
    N_BLOCKS,
    NOISE,
    SUFFIX,
    UNSTABLE_ABOVE,
    Finding,
    format_finding,
    read_findings,
)
from helpers.paths import RENDERED, ROOT
from runner.cases import (
    SUFFIXES,
    Case,
    CaseParameters,
    check_parameters,
    find_damage,
    find_study,
    fingerprint,
    fingerprint_rows,
    is_done,
    lock_case,
    read_metadata,
    read_parameters,
    seal,
)
from runner.pages import Say
from wire.children import environment, remove_left
from wire.errors import UserError, describe_refusal, find_secrets, redact, redact_tree
from wire.interrupts import is_interrupted

_LONGEST = 80  # characters of a folder of sockets, whose paths have 107 at most
State = Literal["done", "done before", "failed", "refused"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case."""

    case: Case  # which
    state: State  # what became of it
    seconds: float = 0.0  # wall time of the run
    text: str = ""  # why it failed or was refused
    findings: Mapping[str, Finding] = field(default_factory=dict)  # what its page found
    headline: str = ""  # that finding of its study which the table shows

    @property
    def noise(self) -> float:
        """A/A ratio less 1 of what its page judges; NaN if unknown."""
        return self.findings.get(NOISE, Finding()).value


def run_cases(
    cases: Sequence[Case],
    say: Say,
    *,
    checked: Mapping[Case, CaseParameters] | None = None,
    **options: Any,
) -> list[Outcome]:
    """Run cases one after the other, saying which; one that fails does not stop the others.

    Parameters that were `checked`, see `check_expected`, are not read again.
    """
    outcomes = []
    for i, case in enumerate(cases, 1):
        say(f"[{i}/{len(cases)}] {case.title}")
        outcomes.append(run_case(case, (checked or {}).get(case), **options))
    return outcomes


def run_case(
    case: Case,
    checked: CaseParameters | None = None,
    *,
    anew: bool = False,
    more: bool = False,
    quick: bool = False,
    budget_s: float = 0.0,
) -> Outcome:
    """Run one case unless it is done, and say what became of it.

    Its parameters are read here unless they were `checked`, with the budget, before. A `budget_s` other than 0 takes the place of that of its file. A `quick` one has one block,
    with which a later run goes on; what is done with more stays.
    """
    try:
        values = {**(checked or check_parameters(case, budget_s)).overrides}
        with lock_case(case):
            wanted = [values, *([values | {"n_blocks": 1}] if quick else [])]
            if any(is_done(case, state) for state in wanted) and not anew and not more:
                ran = read_metadata(case.result(".ipynb")).get("papermill", {})
                return _describe(case, "done before", float(ran.get("duration") or 0.0))
            values = wanted[-1]
            _set_aside(case, values, anew=anew)
            start = time.monotonic()
            problem = execute(case, values)
            seconds = time.monotonic() - start
            if problem:
                return Outcome(case, "failed", seconds, redact(problem, find_secrets(values)))
            return _describe(case, "done", seconds)
    except UserError as error:
        return Outcome(case, "refused", text=str(error))
    except OSError as error:
        return Outcome(case, "failed", text=describe_refusal(error))


def _describe(case: Case, state: State, seconds: float) -> Outcome:
    """Put together what became of a case whose executed notebook is there."""
    findings = read_findings(case.result(SUFFIX))
    study = find_study(case.notebook)
    key = study.headlines.get(case.name, study.headline)
    return Outcome(case, state, seconds, "", findings, format_headline(key, findings.get(key)))


def format_headline(key: str, finding: Finding | None) -> str:
    """Write a finding with its name and unit, and what more than one block says of it.

    Examples
    --------
    >>> format_headline("gain-at-8", Finding(1.523, 1.31, 1.7, n=5, verdict="faster"))
    'gain at 8: 1.5 (1.3 to 1.7) times, faster'
    """
    finding = finding or Finding(verdict="not found")
    number = f"{format_finding(finding, 'range')} {finding.unit or 'times'}"
    parts = ([number] if math.isfinite(finding.value) else []) + [finding.verdict] * (
        finding.n != 1
    )
    return f"{key.replace('-', ' ')}: {', '.join(filter(None, parts))}"


def _set_aside(case: Case, values: Mapping[str, Any], *, anew: bool) -> None:
    """Keep a record that this run cannot go on with, or that was edited, under another name.

    Rows stay where only text changed: a better sentence costs no measurement.
    """
    record, executed, note = map(case.result, (".csv", ".ipynb", ".fingerprint"))
    note.parent.mkdir(parents=True, exist_ok=True)
    mine = fingerprint_rows(case, values)
    note_text = note.read_text() if note.exists() else ""
    is_damaged = (
        executed.exists() and record.exists() and bool(find_damage(executed, record, goes_on=True))
    )
    if record.exists() and (anew or is_damaged or note_text != mine):
        stamp = time.strftime(".%Y%m%d-%H%M%S")
        for suffix in SUFFIXES:
            if case.result(suffix).exists():
                shutil.move(case.result(suffix), case.result(stamp + suffix))
    if note_text != mine:
        note.write_text(mine)


def execute(case: Case, values: Mapping[str, Any]) -> str:
    """Execute the notebook next to its record; return what went wrong, or nothing."""
    draft, failed = case.result(".running.ipynb"), case.result(".failed.ipynb")
    try:
        execute_notebook(case.source, draft, values)
    except (PapermillExecutionError, RuntimeError) as error:
        if draft.exists():
            _clean(draft)
            os.replace(draft, failed)
        if isinstance(error, PapermillExecutionError):
            return " ".join(f"{error.ename}: {error.evalue}".split()).removeprefix("UserError: ")
        cause = " ".join(str(error).split())  # of nbclient, about a kernel that is gone
        return f"its kernel died or did not start ({cause}); was it killed, or did memory end?"
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _clean(draft, {"fingerprint": fingerprint(case, values), "site": case.site})
    seal(draft, case.result(".csv"))  # before it has its name, for a run may be killed
    os.replace(draft, case.result(".ipynb"))
    failed.unlink(missing_ok=True)
    return ""


def execute_notebook(source: Path, target: Path, values: Mapping[str, Any]) -> None:
    """Execute a notebook in the folder of its target, and on Linux speak to its kernel without TCP."""
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # the kernel of this environment
    remove_left(Path(tempfile.gettempdir()), "arrays-")
    loop = ensure_event_loop()  # on which papermill waits for the kernel

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Report what a task says that nobody waits for, but not of what an interrupt left behind."""
        if not is_interrupted():
            loop.default_exception_handler(context)

    loop.set_exception_handler(report)
    with tempfile.TemporaryDirectory(prefix=f"arrays-{os.getpid()}-") as folder:
        manager: dict[str, Any] = {"connection_file": f"{folder}/kernel.json"}
        if sys.platform == "linux" and len(folder) < _LONGEST:
            manager["transport"] = "ipc"
        papermill.execute_notebook(
            _escape_template(source),
            _escape_template(target),
            parameters=dict(values),
            cwd=str(target.parent),
            kernel_name="python3",
            progress_bar=False,
            config=Config({"KernelManager": manager}),
            extra_arguments=["--log-level=CRITICAL"],  # of what an interrupt ends it says nothing
        )


def _escape_template(path: Path) -> str:
    """Write a path for papermill, which fills in what stands between braces."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _clean(path: Path, case_metadata: Mapping[str, str] | None = None) -> None:
    """Take the paths of this machine and credentials out of an executed notebook."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    run = notebook.metadata.get("papermill", {})
    times = ("duration", "start_time", "end_time", "exception")
    notebook.metadata["papermill"] = {key: run[key] for key in times if key in run}
    if case_metadata:
        notebook.metadata["case"] = {**case_metadata}
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
    clean = redact_tree(notebook, find_secrets(run.get("parameters")))
    text = nbformat.writes(nbformat.from_dict(clean))  # type: ignore[no-untyped-call]
    for place, name in ((str(ROOT), "."), (str(Path.home()), "~")):
        text = text.replace(place, name)
    path.write_text(text + "\n", encoding="utf-8")


def render_case(case: Case) -> Path:
    """Execute the notebook of a case over the rows of the reference, and put its page in their place.

    The rows stay as they are: as many blocks are requested as they have whole. What the page says
    of its run is of the run that measured, which may have had another machine and other versions.
    A notebook that measures something nevertheless leaves the page as it was.
    """
    page, rows = (case.result(suffix, "reference") for suffix in (".ipynb", ".csv"))
    if not (page.exists() and rows.exists()):
        raise UserError(
            "--render", f"{case.title} is not in the reference", "a case with page and rows there"
        )
    values, rows_before, before = read_parameters(case), read_records([rows]), read_metadata(page)
    parameters = json.loads(
        rows_before["parameters"].iloc[-1]
    )  # of the case they may be others now
    values |= {name: parameters[name] for name in ("profile", "dilation") if name in parameters}
    with (
        lock_case(case),
        tempfile.TemporaryDirectory(dir=case.root / "results", prefix=".") as folder,
    ):
        aside = Case(case.site, case.notebook, case.name, Path(folder))
        for name in ("notebooks", "parameters"):
            (aside.root / name).symlink_to(case.root / name)
        aside.result("").parent.mkdir(parents=True)
        for suffix in (".csv", ".runs.json"):
            if case.result(suffix, "reference").exists():
                shutil.copyfile(case.result(suffix, "reference"), aside.result(suffix))
        with environment({RENDERED: "1"}):
            whole_blocks = measured(rows_before)  # whole blocks, of whatever was measured least
            blocks = whole_blocks.groupby(["contender", "point"])["block"].nunique()
            problem = execute(
                aside, values | {"n_blocks": max(1, int(blocks.min())) if len(blocks) else 1}
            )
        if problem:
            raise UserError("--render", f"{case.title}: {problem}")
        if aside.result(".csv").read_bytes() != rows.read_bytes():
            raise UserError(
                "--render",
                f"{case.title} measured what its record lacks",
                "a record with all contenders of the case (without --render it is measured)",
            )
        notebook = nbformat.read(aside.result(".ipynb"), as_version=4)  # type: ignore[no-untyped-call]
        for name in ("papermill", "kernelspec", "language_info"):  # of the run that made the rows
            if name in before:
                notebook.metadata[name] = before[name]
        notebook.metadata["case"]["fingerprint"] = fingerprint(case, values)
        nbformat.write(notebook, page)  # type: ignore[no-untyped-call]
        if aside.result(SUFFIX).exists():
            shutil.copyfile(aside.result(SUFFIX), case.result(SUFFIX, "reference"))
    seal(page, rows)
    return page


def summarise(outcomes: Sequence[Outcome]) -> str:
    """Write the table of cases, and what noise means."""
    lines = [
        {
            "case": outcome.case.title,
            "state": outcome.state + ", unstable" * (outcome.noise > UNSTABLE_ABOVE),
            "minutes": f"{outcome.seconds / 60:.1f}",
            "blocks": f"{outcome.findings[N_BLOCKS].value:.0f}"
            if N_BLOCKS in outcome.findings
            else "",
            "noise": "" if math.isnan(outcome.noise) else f"{100 * outcome.noise:.2g} %",
            "headline": outcome.headline,
        }
        for outcome in outcomes
    ]
    return (
        f"{pd.DataFrame(lines).to_string(index=False, justify='left')}\n\n"
        f"noise: by how much two copies of one contender differ; above {100 * UNSTABLE_ABOVE:g} % a case"
        " is unstable: once the machine has nothing else to do, measure it with --anew."
    )


def explain_failures(outcomes: Sequence[Outcome]) -> list[str]:
    """Say which cases failed, why, and how to run each alone; empty if none did."""
    return [
        f"{outcome.case.title} {outcome.state}: {outcome.text}\n"
        f"  run it alone: make run CASE={outcome.case.title} SITE={outcome.case.site}"
        for outcome in outcomes
        if outcome.state in ("failed", "refused")
    ]


def check_expected(
    cases: Sequence[Case],
    say: Say,
    *,
    max_usd: float = math.inf,
    quick: bool = False,
    is_repeated: bool = False,
    budget_s: float = 0.0,
) -> dict[Case, CaseParameters]:
    """Check the parameters of cases: say which will not run, and what the others will ask of a store.

    Returned are the parameters of the others, by case; one case alone that will not run is refused.
    Refused are more USD in all than `max_usd`, data that leave the region of the store included.
    Cases that bring a store of their own, or read from a file system, are not billed.
    """
    usd, checked = 0.0, dict[Case, CaseParameters]()
    for case in cases:
        study = find_study(case.notebook)
        try:
            checked[case] = check_parameters(case, budget_s)
        except UserError as error:
            if len(cases) == 1:
                raise
            say(f"{case.title} will not run: {error}")
            continue
        values = {**checked[case].settings, **({"n_blocks": 1} if quick else {})}
        is_free = values["store"] == "embedded" or values["store"].startswith("file:")
        if is_free or (is_done(case, checked[case].overrides) and not is_repeated):
            continue
        if study.expect is None:
            say(f"{case.title} asks {values['store']} for what nobody has measured")
            usd = math.inf
            continue
        predicted = study.expect(values)
        say(
            f"{case.title} asks {values['store']} for about {predicted.n_requests:,.0f} requests and"
            f" {predicted.gb:,.1f} GB: {predicted.usd_in_region:.2g} USD in the region of the store,"
            f" {predicted.usd_outside:.2g} outside ({predicted.prices})"
        )
        usd += predicted.usd_outside
    if usd > max_usd:
        raise UserError(
            "--max-usd", f"{max_usd:g}; {usd:.2g} USD are expected", "at least that, or without it"
        )
    return checked
