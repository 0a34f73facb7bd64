"""Cases run one after the other, each unless it is done, and what became of them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

import nbformat
import papermill
from filelock import FileLock, Timeout
from jupyter_client.manager import AsyncKernelManager
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from helpers.benchmark.memory import touch_memory
from helpers.book.cases import (
    UNSTABLE_ABOVE,
    Case,
    Findings,
    digest_rows,
    duration_s,
    findings_of,
    fingerprint,
    hash_sources,
    is_altered,
    is_done,
    lock_case,
    read_metadata,
    read_parameters,
)
from helpers.book.expected import QUICK_S, expect_look_s, expect_s, order_looks
from helpers.errors import UserError, tell_refusal
from helpers.paths import ROOT
from helpers.redaction import find_secrets, redact, redact_tree

State = Literal["done", "done before", "failed", "refused", "left for later"]
Say = Callable[[str], None]

_SAVE_EVERY_S = 5.0  # of the draft: a save costs what measures some 10 ms of a core
_ALONE_S = 60.0  # for which a folder is left alone: its owner may be about to lock it
_END_S = 20.0  # for a cell that is interrupted to stop what it started


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case."""

    case: Case  # which
    state: State  # what became of it
    seconds: float = 0.0  # wall time of the run
    text: str = ""  # why it failed or was refused
    found: Findings = field(default_factory=Findings)  # what its executed notebook says
    is_cut: bool = False  # whether it has fewer blocks than its parameters ask for
    cpu_s: float = 0.0  # processor time of the runner itself meanwhile; 0 if nothing ran
    is_quick: bool = False  # whether it is a first look, of one block

    @property
    def is_unstable(self) -> bool:
        """Whether it is done, but with more noise than the project trusts."""
        return self.found.is_unstable

    @property
    def verdict(self) -> str:
        """The state, whether it is a first look, and whether it is unstable."""
        marks = ["first look"] * self.is_quick + ["unstable"] * self.is_unstable
        return ", ".join([self.state, *marks])


def run_case(
    case: Case,
    say: Say,
    *,
    anew: bool = False,
    more: bool = False,
    quick: bool = False,
    budget_s: float = 0.0,
) -> Outcome:
    """Run one case unless it is done, and say what became of it.

    A `budget_s` other than 0 takes the place of that of its file. A `quick` one has one block;
    what was measured whole stays, and a later run that is not quick measures from the first block.
    """
    _remove_left()
    try:
        values = read_parameters(case, budget_s)
        with lock_case(case):
            if quick and values["n_blocks"] > 1 and not is_done(case, values):
                _refuse_to_shorten(case, values)
                found = _run_locked(case, values | _ONE_BLOCK, anew=anew, more=more)
                return replace(found, is_quick=found.state in ("done", "done before"))
            return _run_locked(case, values, anew=anew, more=more)
    except UserError as error:
        return Outcome(case, "refused", text=str(error))
    except OSError as error:
        return Outcome(case, "failed", text=tell_refusal(error))


_ONE_BLOCK = {"n_blocks": 1}


def _refuse_to_shorten(case: Case, values: dict[str, Any]) -> None:
    """Refuse a first look at a case that a whole run has begun."""
    record, note = case.result(".csv"), case.result(".fingerprint")
    is_begun = note.exists() and note.read_text() == hash_sources(case, values, ("code",))
    if record.exists() and is_begun:
        raise UserError(
            f"--quick: {case.title} was begun whole and has rows; allowed: without it, which goes on with them"
        )


def _run_locked(case: Case, values: dict[str, Any], *, anew: bool, more: bool) -> Outcome:
    """Run a case that nobody else runs now, unless it is done."""
    if is_done(case, values) and not anew and not more:
        return _describe(case, values, "done before", duration_s(case))
    touch_memory()
    start = time.monotonic()
    _set_aside(case, values, anew=anew)
    problem = execute(case, values)
    seconds = time.monotonic() - start
    if problem:
        return Outcome(case, "failed", seconds, redact(problem, find_secrets(values)))
    return _describe(case, values, "done", seconds)


def _describe(case: Case, values: dict[str, Any], state: State, seconds: float) -> Outcome:
    """Put together what became of a case whose executed notebook is there."""
    found = findings_of(case)
    harness = read_metadata(case.result(".ipynb")).get("case", {}).get("harness", {})
    return Outcome(
        case,
        state,
        seconds,
        found=found,
        is_cut=0 < found.n_blocks < values.get("n_blocks", 0),
        cpu_s=float(harness.get("cpu_s", 0.0)) if state == "done" else 0.0,
    )


def _set_aside(case: Case, values: dict[str, Any], *, anew: bool) -> None:
    """Keep a record that this run cannot go on with, or that was edited, under another name.

    Rows stay where only text changed: a better sentence costs no measurement.
    """
    record, executed, note = map(case.result, (".csv", ".ipynb", ".fingerprint"))
    runs = case.result(".runs.json")  # origins of the rows of the record
    note.parent.mkdir(parents=True, exist_ok=True)
    mine = hash_sources(case, values, ("code",))
    known = note.read_text() if note.exists() else ""
    if record.exists() and (anew or is_altered(executed, record) or known != mine):
        stamp = time.strftime(".%Y%m%d-%H%M%S")
        for path in filter(Path.exists, (record, executed, runs)):
            shutil.move(path, case.result(stamp + path.name.removeprefix(case.name)))
    note.write_text(mine)


def execute(case: Case, values: dict[str, Any]) -> str:
    """Execute the notebook beside its record; return what went wrong, or nothing."""
    draft, failed = case.result(".running.ipynb"), case.result(".failed.ipynb")
    start, start_cpu = time.monotonic(), time.process_time()
    try:
        notebook = _execute_to(draft, case.source, values)
    except PapermillExecutionError as error:
        _clean(draft)
        os.replace(draft, failed)
        return " ".join(f"{error.ename}: {error.evalue}".split()).removeprefix("UserError: ")
    except RuntimeError as error:  # what nbclient raises of a kernel that is gone
        if draft.exists():
            _clean(draft)
            os.replace(draft, failed)
        told = " ".join(str(error).split())
        return f"its kernel died or did not start ({told}); was it killed, or did memory end?"
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    wall_s, cpu_s = time.monotonic() - start, time.process_time() - start_cpu
    notebook.metadata["case"] = {
        "fingerprint": fingerprint(case, values),
        "site": case.site,
        "harness": {  # what the runner took beside the kernel: messages, drafts, the watch over memory
            "cpu_s": round(cpu_s, 3),
            "wall_s": round(wall_s, 3),
            "share_of_a_core": round(cpu_s / wall_s, 5),
        },
    }
    if case.result(".csv").exists():
        notebook.metadata["case"]["rows"] = digest_rows(case.result(".csv"))
    nbformat.write(notebook, draft)  # type: ignore[no-untyped-call]
    _clean(draft)
    os.replace(draft, case.result(".ipynb"))
    failed.unlink(missing_ok=True)
    return ""


def _execute_to(draft: Path, source: Path, values: dict[str, Any]) -> Any:
    """Execute a notebook in a kernel of its own, which has ended afterwards."""
    with kernel_options() as options:
        try:
            return papermill.execute_notebook(
                str(source),
                str(draft),
                parameters=values,
                cwd=str(draft.parent),
                kernel_name="python3",
                progress_bar=False,
                **options,
            )
        except RuntimeError as error:
            said = _stderr_of(options["config"]).read_text(errors="replace")
            last = said.strip().rpartition("\n")[2]
            raise RuntimeError(f"{error}: {last}" if last else str(error)) from error


def _stderr_of(config: Config) -> Path:
    """Return where a kernel's own errors go: one that is ended between messages has some too."""
    return Path(config.KernelManager.connection_file).with_name("stderr")


class _Kernel(AsyncKernelManager):
    """A kernel that leaves in order: first its cell ends, then it is asked to leave.

    Its parent interrupts at every shutdown and asks in the same breath. A kernel
    that is still tidying up after its last answer then speaks of an interrupt
    that nobody made, and one that runs a cell loses the socket to answer with.
    """

    is_idle = False

    async def shutdown_kernel(  # type: ignore[override]  # as in its parent
        self, now: bool = False, restart: bool = False
    ) -> None:
        """End the kernel; what runs in a cell is interrupted and can stop what it started."""
        self.shutting_down = True
        self.stop_restarter()
        if not self.is_idle:
            with contextlib.suppress(RuntimeError):  # stuck: it is killed below
                await self._end_cell()
        await self.request_shutdown(restart)
        await self.finish_shutdown(restart=restart)
        await self.cleanup_resources(restart=restart)

    async def _end_cell(self) -> None:
        """Interrupt what runs, and wait for the kernel to answer again."""
        await self.interrupt_kernel()
        client = self.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=_END_S)
        finally:
            client.stop_channels()


class _Client(PapermillNotebookClient):  # type: ignore[misc]
    """Executes a notebook, and tells its kernel when all cells have been answered."""

    @contextmanager
    def setup_kernel(self, **kwargs: Any) -> Iterator[None]:
        said = _stderr_of(self.config)
        with said.open("wb") as stderr, super().setup_kernel(stderr=stderr, **kwargs):
            yield
            self.km.is_idle = True


class _Engine(NBClientEngine):  # type: ignore[misc]
    """Lets papermill execute with the client above."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **kwargs: Any) -> Any:
        client = _Client(
            nb_man,
            kernel_name=kernel_name,
            startup_timeout=kwargs["start_timeout"],
            kernel_manager_class=_Kernel,
            config=kwargs["config"],
        )
        save, saved_s = nb_man.save, -math.inf

        def save_now_and_then() -> None:  # papermill would at both ends of each cell
            nonlocal saved_s
            if time.monotonic() > saved_s + _SAVE_EVERY_S:
                save()
                saved_s = time.monotonic()

        nb_man.save = save_now_and_then
        try:
            return client.execute()
        finally:
            nb_man.save = save  # as papermill does once more, however the last cell ended


@contextmanager
def kernel_options() -> Iterator[dict[str, Any]]:
    """Start kernels of this environment, and on Linux speak to them without TCP.

    Each gets a folder of its own for its sockets, whose paths must be short and
    which two runs must not share.
    """
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    papermill_engines.register("arrays", _Engine)
    with _kernel_folder() as folder:
        manager: dict[str, Any] = {"connection_file": os.path.join(folder, "kernel.json")}
        if sys.platform == "linux":
            manager["transport"] = "ipc"
        config = Config({"KernelManager": manager})
        _stderr_of(config).touch()
        yield {"engine_name": "arrays", "config": config}


def _remove_left() -> None:
    """Remove the folders of kernels' sockets that killed runs left."""
    for left in Path(tempfile.gettempdir()).glob("arrays-*"):
        with contextlib.suppress(Timeout, OSError):  # held, or removed by another run meanwhile
            found = left.lstat()
            is_old = found.st_mtime < time.time() - _ALONE_S
            is_ours = found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode)
            lock = left / "lock"  # a run that is killed before it has one leaves none
            if is_old and is_ours and (lock.exists() or not any(left.iterdir())):
                with FileLock(lock).acquire(blocking=False):
                    shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _kernel_folder() -> Iterator[str]:
    """Make a folder for a kernel's sockets."""
    with (
        tempfile.TemporaryDirectory(prefix="arrays-") as folder,
        FileLock(Path(folder) / "lock"),  # which ends with this process, however that ends
    ):
        yield folder


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
    cases: Sequence[Case],
    say: Say,
    *,
    anew: bool = False,
    more: bool = False,
    quick: bool = False,
    budget_s: float = 0.0,
) -> list[Outcome]:
    """Run cases one after the other, saying which runs, how many remain and how long.

    A case that fails does not stop the others. Of `quick` ones, the shortest of each study come
    first, and beside the first of all none starts that would end after `QUICK_S`.
    """
    expect = expect_look_s if quick else expect_s
    expected = {case: expect(case, say, budget_s) for case in cases}
    ordered = order_looks(expected) if quick else cases
    left = [expected[case] for case in ordered]
    start = time.monotonic()
    outcomes: list[Outcome] = []
    for i, case in enumerate(ordered):
        spent_s, place = time.monotonic() - start, f"[{i + 1}/{len(cases)}] {case.title}"
        if quick and outcomes and spent_s + left[i] > QUICK_S:
            outcomes.append(Outcome(case, "left for later"))
            continue
        rest = f"{len(cases) - i} to run, as far as {(QUICK_S - spent_s) / 60:.0f} minutes last"
        say(f"{place}: {rest if quick else _say_left(left[i:])}")
        outcome = run_case(case, say, anew=anew, more=more, quick=quick, budget_s=budget_s)
        outcomes.append(outcome)
        say(f"{place}: {outcome.verdict}, {outcome.seconds:.0f} s")
    return outcomes


def _say_left(seconds: Sequence[float]) -> str:
    known = [s for s in seconds if s]
    if not known:
        return f"{len(seconds)} to run, some 4 minutes each"
    mean = sum(known) / len(known)
    return f"{len(seconds)} to run, about {sum(s or mean for s in seconds) / 60:.0f} minutes"


def summarise(outcomes: Sequence[Outcome]) -> list[str]:
    """Write the table of cases, headlines cut, and below it what noise means and measuring took."""
    table = [("case", "state", "noise", "blocks", "time", "headline", "notebook")]
    for outcome in outcomes:
        found = outcome.found
        noise = "" if math.isnan(found.noise) else f"{100 * found.noise:.3g} %"
        numbers = (noise, str(found.n_blocks or ""), f"{outcome.seconds:.0f} s")
        headline = shorten(found.headline, 48, placeholder=" ...", break_on_hyphens=False)
        table.append((outcome.case.title, outcome.verdict, *numbers, headline, _relative(outcome)))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    minutes, share = sum(one.seconds for one in outcomes) / 60, harness_share(outcomes)
    took = f"{minutes:.1f} minutes in all; the runner itself took {100 * share:.1f} % of a core."
    lines = (_align(line, widths) for line in table)
    return [*lines, *_explain_noise(outcomes), *_explain_looks(outcomes), *[took] * bool(share)]


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Write a line of the table; numbers stand to the right."""
    is_number = (False, False, True, True, True, False, False)
    return "  ".join(
        f"{cell:>{width}}" if right else f"{cell:{width}}"
        for cell, width, right in zip(cells, widths, is_number, strict=True)
    ).rstrip()


def _explain_noise(outcomes: Sequence[Outcome]) -> list[str]:
    """Say what noise is and from where on a case is unstable, and what to do about those that are."""
    lines = [
        "",
        "noise: by how much two copies of one contender differ (A/A);"
        f" above {100 * UNSTABLE_ABOVE:g} % a case is unstable, for pages rank what differs by as little.",
    ]
    for outcome in outcomes:
        if outcome.is_unstable:
            flag = "--more" if outcome.is_cut else "--anew"
            lines.append(
                f"  {outcome.case.title}: once the machine has nothing else to do,"
                f" make run CASE={outcome.case.title} SITE={outcome.case.site} FLAGS={flag}"
            )
    return lines


def _explain_looks(outcomes: Sequence[Outcome]) -> list[str]:
    """Say what a first look is worth, and how to have the others."""
    lines = []
    if any(outcome.is_quick for outcome in outcomes):
        lines.append(
            "first look: one block, of which nothing is told apart and nothing is published;"
            " without --quick the case is measured whole."
        )
    if n_left := sum(outcome.state == "left for later" for outcome in outcomes):
        lines.append(
            f"left for later: {n_left} that would not have ended within {QUICK_S / 60:.0f} minutes;"
            " the same command goes on with them."
        )
    if n_cut := sum(one.is_cut and not one.is_quick for one in outcomes):
        lines.append(
            f"cut short: {n_cut} whose time budget ended before their most blocks;"
            " --more goes on with them, and --minutes 8 gives each so long."
        )
    return lines


def harness_share(outcomes: Sequence[Outcome]) -> float:
    """Compute the runner's own processor time over the wall time of the cases that ran."""
    ran = [outcome for outcome in outcomes if outcome.cpu_s]
    return sum(one.cpu_s for one in ran) / sum(one.seconds for one in ran) if ran else 0.0


def explain_failures(outcomes: Sequence[Outcome]) -> list[str]:
    """Say which cases failed, why, and how to run each alone; empty if none did."""
    lines = []
    for case, state, text in ((one.case, one.state, one.text) for one in outcomes):
        if state in ("failed", "refused"):
            lines.append(f"{case.title} {state}: {text}")
            lines.append(f"  run it alone: make run CASE={case.title} SITE={case.site}")
    return lines


def _relative(outcome: Outcome) -> str:
    suffixes = {"failed": ".failed.ipynb", "refused": "", "left for later": ""}
    suffix = suffixes.get(outcome.state, ".ipynb")
    path = outcome.case.result(suffix) if suffix else outcome.case.parameter_file
    return str(path.relative_to(outcome.case.root))


def note_whole_run(site: str, outcomes: Sequence[Outcome], **took: float) -> None:
    """Keep what a run of every case took, for the acceptance thresholds.

    `seconds` and `peak_nbytes` of everything, `watcher_cpu_s` of the watch over
    memory; and of the runner as a whole, that watch included, the part of a core
    that it took while the cases ran.
    """
    cases = {outcome.case.title: round(outcome.seconds, 1) for outcome in outcomes}
    note = {name: round(value, 2) for name, value in took.items()}
    share = {"harness_share_of_a_core": round(harness_share(outcomes), 5)}
    path = ROOT / "results" / site / "run-all.json"
    path.write_text(json.dumps({**note, **share, "cases": cases}) + "\n")
