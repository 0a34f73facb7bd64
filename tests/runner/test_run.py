"""Cases are run, resumed, refused, reported, rendered and promoted."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from click.testing import CliRunner

from helpers import parameters
from helpers.benchmark.record import Record, read_records
from helpers.findings import NOISE, SUFFIX, Finding
from helpers.paths import RENDERED, ROOT
from runner import build, cases, cli, run
from runner.cases import Case
from tests import made
from tests.refusals import refused
from tests.rows import ORIGIN, make_row
from tests.stores import becomes
from tests.wire.test_redaction import ADDRESSES, SIGHTS
from wire.errors import UserError

MakeCase = Callable[..., Case]

SOURCE = """
import pathlib, sys
path = pathlib.Path(record)
path.write_text(path.read_text() + "again" if path.exists() else "once")
"""
# As many rows as blocks, each kept when it is measured, whoever measured those before.
ROWS = f"""
import sys, time; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from helpers.benchmark.record import Record
from tests.rows import ORIGIN, make_row
rows = Record(Path(record), study="study", provenance=ORIGIN)
for block in range(len(rows.rows), n_blocks):
    rows.append([make_row(study="study", case=Path(record).stem, block=block)])
"""
FOUND = """
from helpers.findings import Finding, write_findings
write_findings(record, {{"headline": Finding(3.14159, unit="MB/s")}}, {{}}, noise={noise}, n_blocks=n_blocks)
"""


def write_notebook(path: Path, *, code: str = SOURCE) -> None:
    """Write a notebook with the parameters of the made study and one cell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parameters = nbformat.v4.new_code_cell(
        'seed: int = 1\nn_blocks: int = 2\nredis_url: str = ""\nrecord: str = "x.csv"',
        metadata={"tags": ["parameters"]},
    )
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(
        cells=[parameters, nbformat.v4.new_code_cell(code)], metadata=kernel
    )
    nbformat.write(notebook, path)


@pytest.fixture
def make_case(tmp_path: Path, made_study: None) -> MakeCase:
    """Make a project in a path with a space and what templates and addresses read, with one notebook and cases."""
    root = tmp_path / "a {project} #1 %41 $x"

    def make(name: str = "one", text: str = "# why\nseed: 2\n", code: str = SOURCE) -> Case:
        write_notebook(root / "notebooks" / "study.ipynb", code=code)
        case = Case("laptop", "study", name, root)
        case.parameter_file.parent.mkdir(parents=True, exist_ok=True)
        case.parameter_file.write_text(text)
        return case

    return make


def list_files(case: Case) -> set[str]:
    """List what lies next to the results of a case, but for its lock."""
    return {path.name for path in case.result("").parent.iterdir() if path.name[0] != "."}


def test_a_case_leaves_notebook_and_record_and_is_not_run_again(make_case: MakeCase) -> None:
    """The result is what the notebook makes of the parameters; it is made anew if these change."""
    case = make_case(code=SOURCE + f"print({str(Path.home() / 'x')!r})")
    assert run.run_case(case).state == "done"
    executed = nbformat.read(case.result(".ipynb"), as_version=4)
    assert any("seed = 2" in cell.source for cell in executed.cells)
    text = case.result(".ipynb").read_text()
    assert str(case.root) not in text and str(Path.home()) + "/" not in text, "it is published"
    assert case.result(".csv").read_text() == "once"
    assert list_files(case) == {"one.csv", "one.fingerprint", "one.ipynb"}
    assert run.run_case(case).state == "done before"
    assert run.run_case(case, anew=True).state == "done"
    case.parameter_file.write_text("seed: 3\n")
    assert run.run_case(case).state == "done"
    assert case.result(".csv").read_text() == "once"
    assert len([*case.result("").parent.glob("one.2*.csv")]) >= 1, "the record of others is kept"


def test_a_longer_budget_goes_on_with_the_rows(make_case: MakeCase) -> None:
    """It says how long to measure, not what: that of the command line, or of an edited file."""
    case = make_case(code=SOURCE + "assert time_budget_s in (30.0, 60.0)")
    assert run.run_case(case, budget_s=30.0).state == "done"
    case.parameter_file.write_text("seed: 2\ntime_budget_s: 500\n")
    assert run.run_case(case).state == "done before"
    assert run.run_case(case, more=True, budget_s=60.0).state == "done"
    assert case.result(".csv").read_text() == "onceagain"
    assert not [*case.result("").parent.glob("one.2*")]


def test_a_first_look_has_one_block_with_which_a_run_goes_on(make_case: MakeCase) -> None:
    """Nothing of it is published; what is done whole is not looked at again."""
    case = make_case(text="n_blocks: 5\n", code=ROWS)
    assert run.run_case(case, quick=True).state == "done"
    assert read_records([case.result(".csv")])["block"].tolist() == [0]
    with refused("study/one", "^not done; run it before"):
        build.publish("laptop", case.root)
    assert run.run_case(case, quick=True).state == "done before"
    assert run.run_case(case).state == "done"
    assert read_records([case.result(".csv")])["block"].tolist() == [*range(5)]
    assert run.run_case(case, quick=True).state == "done before"
    assert not [*case.result("").parent.glob("one.2*")]


def test_rows_that_a_run_appended_are_kept_and_those_of_others_not_shown(
    make_case: MakeCase,
) -> None:
    """A run goes on with them; until then no page is made of a notebook that has not seen them."""
    case = make_case(code=SOURCE)
    run.run_case(case)
    page, rows = case.result(".ipynb"), case.result(".csv")
    rows.write_text("once and more")
    assert "rows that one.ipynb was not executed with" in cases.find_damage(page, rows)
    assert cases.find_damage(page, rows, goes_on=True) == ""
    assert run.run_case(case).state == "done"
    assert rows.read_text() == "once and moreagain"
    assert cases.find_damage(page, rows) == ""


@pytest.mark.parametrize(("suffix", "old"), [(".ipynb", '"7"'), (".csv", "once")])
def test_edited_results_are_kept_and_measured_anew(
    make_case: MakeCase, suffix: str, old: str
) -> None:
    """A number on the page, or rows, that somebody changed; `test_build` has all that is recognised."""
    case = make_case(code=SOURCE + "3 + 4")
    run.run_case(case)
    edited = case.result(suffix)
    text = edited.read_text().replace(old, old.replace("7", "9").upper())
    edited.write_text(text)
    assert run.run_case(case).state == "done"
    assert case.result(".csv").read_text() == "once"
    [kept] = edited.parent.glob(f"one.2*{suffix}")
    assert kept.read_text() == text
    assert run.run_case(case).state == "done before"


def test_failures_are_reported_and_the_others_run(
    make_case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error, a kernel that is killed, a full disk and a wrong parameter, each in a line at the end."""
    code = SOURCE + (
        "import os, signal\nassert seed != 13, 'unlucky'\n"
        "if seed == 14:\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    names = {"bad": "seed: 13", "dies": "seed: 14", "full": "seed: 3", "wrong": "sed: 2", "good": "seed: 2"}  # fmt: skip
    all_cases = [make_case(name, f"{text}\n", code) for name, text in names.items()]
    write_text = Path.write_text

    def fill_up(path: Path, *given: Any, **options: Any) -> int:
        if path.name == "full.fingerprint":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path.name)
        return write_text(path, *given, **options)

    monkeypatch.setattr(Path, "write_text", fill_up)
    said: list[str] = []
    outcomes = run.run_cases(all_cases, said.append)
    assert [one.state for one in outcomes] == ["failed", "failed", "failed", "refused", "done"]
    assert said[0] == "[1/5] study/bad"
    bad, dies, full, wrong = run.explain_failures(outcomes)
    assert "unlucky" in bad and "make run CASE=study/bad SITE=laptop" in bad
    assert "its kernel died" in dies
    assert full.startswith("study/full failed: full.fingerprint: no space is left; allowed")
    assert "no such parameter" in wrong
    assert "unlucky" in all_cases[0].result(".failed.ipynb").read_text()
    assert not [name for name in list_files(all_cases[0]) if ".running" in name]
    table = run.summarise(outcomes)
    assert all(case.title in table for case in all_cases)


def test_the_table_tells_what_was_found(make_case: MakeCase) -> None:
    """Headline, noise and blocks are those of the findings; a noisy case is no failure."""
    case = make_case(code=ROWS + FOUND.format(noise=0.16))
    for state in ("done", "done before"):
        outcomes = run.run_cases([case], print)
        table = run.summarise(outcomes)
        assert outcomes[0].state == state and ", unstable" in table
        assert "3.1 MB/s" in table and re.search(r"\b2\b", table.splitlines()[1])
        assert run.explain_failures(outcomes) == []
    assert max(map(len, table.splitlines()[:2])) < 180
    for noise in (0.079, math.nan):
        quiet = run.Outcome(case, "done", findings={NOISE: Finding(noise)})
        assert ", unstable" not in run.summarise([quiet])


BAD_FILES = [
    ("sed: 2\n", "sed: 2; no such parameter; allowed: profile, n_blocks, "),  # unknown
    ("seed: two\n", "seed: 'two'; allowed"),  # wrong type
    ("seed: 1\nseed: 2\n", "seed stands twice"),
    ("- seed\n", "allowed: NAME: VALUE"),  # no mapping
    *((f"{text}\n", f"{shown}; allowed: NAME: VALUE") for text, shown in (
        ("[]", "[]"), ("0", "0"), ("false", "False"), ("''", "''"))),
    ("seed: [\n", "is no YAML: line 2 makes no sense; allowed: NAME"),
    (b"\x7fELF\x02\x00\xff", "is no YAML"),  # a program
    ("seed: 2026-13-45\n", "is no YAML: a value is no date, number"),
    ("seed: !!bool x\n", "is no YAML: a value is no date, number"),
    ("seed: !!int twelve\n", "is no YAML"),  # a tag that its text fails
    ("seed: !!python/object:os.system {}\n", "is no YAML"),
    ("seed: " + "[" * (sys.getrecursionlimit() + 100), "is no YAML"),  # deeper than Python goes
    ("seed: " + "9" * 5000 + "\n", "is no YAML: a value is no date, number"),  # longer than Python reads
    ("seed: .inf\n", "seed: inf; allowed"),
    ("? [seed]\n: 1\n", "is no YAML"),  # a name that is a list
    ("1: 2\n", "1: 2; no such parameter"),
    ('seed: "a\\nb\\e[31m"\n', r"seed: 'a\nb\x1b[31m'; allowed"),  # control characters
    ("&a {seed: *a}\n", "is no YAML: an alias"),  # holds itself
    ("seed: 1:30\n", "1:30: YAML reads another number"),  # numbers that nobody means
    ("seed: 010\n", "010: YAML reads another number"),
    ("seed: [" + "1," * 110_000 + "]\n", "220009 bytes; allowed: at most 200000"),
    ("record: other.csv\n", "record: 'other.csv'; allowed: one.csv"),  # of another case
    (f"n_blocks: '{ADDRESSES[2]}'\n", "n_blocks: 'redis://***@host'; allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), BAD_FILES)
def test_bad_parameter_files_are_refused(
    make_case: MakeCase, text: str | bytes, words: str
) -> None:
    """Nothing runs, one short line says why, without a credential, and a record that is there stays."""
    case = make_case("one")
    case.parameter_file.write_bytes(text if isinstance(text, bytes) else text.encode())
    case.result(".csv").parent.mkdir(parents=True)
    case.result(".csv").write_text("measured before")
    outcome = run.run_case(case)
    assert outcome.state == "refused"
    assert words in outcome.text and not SIGHTS.search(outcome.text)
    assert outcome.text.isprintable() and len(outcome.text) < 250
    assert case.result(".csv").read_text() == "measured before"


def test_odd_and_unknown_names_are_refused(make_case: MakeCase) -> None:
    """One would reach the terminal and a script of its page; a typo is answered with what there is."""
    case = make_case()
    with refused("SITE", "^'moon'", "laptop"):
        cases.find_cases("moon", case.root)
    with refused("CASE", "^'study/two'", "study/one"):
        cases.find_case("study/two", "laptop", case.root)
    (case.parameter_file.parent / "\x1b[31m<b>.yaml").touch()
    with refused("case of study", r"^'\\x1b\[31m<b>'", "a name") as told:
        cases.find_cases("laptop", case.root)
    assert str(told.value).isprintable()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--minutes", "0"], "--minutes: 0; allowed: above 0"),
        (["--minutes", "inf"], "--minutes: inf; allowed: above 0"),
        (["--quick", "--anew"], "--quick: together with"),
        (["--render", "--more"], "--render: with an option to measure"),
        (["--max-usd", "-1"], "--max-usd: -1; allowed: from 0 on"),
    ],
)
def test_options_without_sense_are_refused(options: list[str], words: str) -> None:
    """Before anything runs."""
    done = CliRunner().invoke(cli.run, ["cluster-scaling/in-region", *options])
    assert isinstance(done.exception, UserError) and words in str(done.exception)


# A store of one's own.


def test_what_is_billed_is_said_and_bounded(
    make_case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests, bytes and both prices are in the line; the bound is on the sum of all cases."""
    study = parameters.Study(
        name="study",
        headline="headline",
        expect=lambda values: parameters.Expected(
            1000 * values["n_blocks"], 2.5, 0.25, 1.25, "of then"
        ),
    )
    monkeypatch.setattr(run, "find_study", lambda _name: study)
    text = "store: s3://b/p\nprofile: loopback\nn_blocks: 3\n"
    own, free = make_case("own", text), make_case("free")
    said: list[str] = []
    run.check_expected([own, free, make_case("wrong", "sed: 1\n")], said.append, max_usd=1.3)
    assert said[0] == (
        "study/own asks s3://b/p for about 3,000 requests and 2.5 GB:"
        " 0.25 USD in the region of the store, 1.2 outside (of then)"
    )
    assert said[1].startswith("study/wrong will not run: "), "not after the others took an hour"
    run.check_expected([own], said.append, quick=True)
    assert "about 1,000 requests" in said[2]
    with refused("--max-usd", "^2; 2.5 USD are expected"):
        run.check_expected([own, own], said.append, max_usd=2.0)


def test_parameters_are_checked_once_at_the_door(
    make_case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of a case asks its model once; the notebook, in its own process, asks again."""
    case, titles = make_case(), list[str]()
    check = cases.check_parameters

    def count(checked_case: Case, budget_s: float) -> cases.CaseParameters:
        titles.append(f"{checked_case.title} in {budget_s:g} s")
        return check(checked_case, budget_s)

    monkeypatch.setattr(run, "check_parameters", count)
    monkeypatch.setattr(run, "execute", lambda *_: "not executed")
    checked = run.check_expected([case], print, budget_s=60.0)
    outcomes = run.run_cases([case], print, checked=checked, budget_s=60.0)
    assert ([outcome.text for outcome in outcomes], titles) == (
        ["not executed"],
        ["study/one in 60 s"],
    )


# Runs that end before their time.


def test_a_case_runs_once_at_a_time(make_case: MakeCase) -> None:
    """A second run of a case is refused in one line, and the lock ends with its holder."""
    case = make_case()
    with cases.lock_case(case):
        outcome = run.run_case(case)
    assert outcome.state == "refused" and "another run" in outcome.text
    assert run.run_case(case).state == "done"


@pytest.mark.slow
def test_twenty_kills_of_a_run_lose_and_double_no_row(make_case: MakeCase) -> None:
    """SIGKILL at random moments: each run goes on, rows are whole, and no process is left."""
    code = ROWS.replace("    rows.append", "    time.sleep(0.1); rows.append")
    both = [make_case(name, "n_blocks: 20\n", code) for name in ("one", "two")]
    script = made.IN_SCRIPT + (
        "import sys; from pathlib import Path; from runner import run\n"
        "run.run_cases([run.Case('laptop', 'study', n, Path(sys.argv[1])) for n in ('one', 'two')], print)"
    )
    chance, n_rows = random.Random(20), 0
    for _ in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", script, both[0].root],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
        ) as running:
            time.sleep(chance.uniform(0.2, 8.0))
            below = psutil.Process(running.pid).children(recursive=True)
            running.kill()
        assert becomes(lambda below=below: not any(one.is_running() for one in below))
        records = [case.result(".csv") for case in both if case.result(".csv").exists()]
        before, n_rows = n_rows, len(read_records(records)) if records else 0
        assert n_rows >= before
    assert n_rows > 0
    assert {one.state for one in run.run_cases(both, print)} <= {"done", "done before"}
    for case in both:
        assert read_records([case.result(".csv")])["block"].tolist() == [*range(20)]


RUN = """
import sys
from pathlib import Path
from runner import cases
from wire import cli
from wire.bed import testbed
find = cases.find_case
cases.find_case = lambda title, site: find(title, site, Path({root!r}))
testbed.find_or_build_versitygw = lambda: None
sys.argv[1:] = ["run", "study/one"]
cli.run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("wait_s", [0.2, 1.0])
def test_an_interrupt_ends_with_one_line_and_leaves_nobody(
    make_case: MakeCase, wait_s: float
) -> None:
    """Nothing of papermill or of its kernel is said after it, whatever the kernel did at that moment."""
    case = make_case(text="n_blocks: 60\n", code=ROWS.replace("    rows.append", "    time.sleep(0.5); rows.append"))  # fmt: skip
    script = made.IN_SCRIPT + RUN.format(root=str(case.root))
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        assert becomes(case.result(".csv").exists)
        time.sleep(wait_s)
        below = psutil.Process(running.pid).children(recursive=True)
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    line = "interrupted; what was measured is kept, and the same command goes on from there"
    assert said.strip() == line
    assert below and becomes(lambda: not any(one.is_running() for one in below))
    assert len(read_records([case.result(".csv")])) > 0


# Results that are published.


@pytest.mark.parametrize(("seed", "address"), [(2, ADDRESSES[2]), (13, ADDRESSES[8])])
def test_a_run_writes_no_password(make_case: MakeCase, address: str, seed: int) -> None:
    """Record, notebook done or failed, fingerprint and the lines of the terminal: none shows it."""
    say = (
        "from helpers.benchmark.provenance import Provenance\n"
        "ORIGIN = Provenance({}, {}, {'seed': seed, 'redis_url': redis_url})\n"
        "make_row_, make_row = make_row, lambda **k: make_row_(machine={}, versions={}, parameters=ORIGIN.parameters, fingerprint=ORIGIN.fingerprint, **k)\n"
    )
    code = ROWS.replace("rows = Record", f"{say}rows = Record", 1) + (
        "print('at', redis_url)\nprint('login', redis_url.replace(':', ' '), file=sys.stderr)\n"
        "assert seed != 13, 'no login at ' + redis_url\nredis_url"
    )
    case = make_case(text=f"seed: {seed}\nredis_url: {json.dumps(address)}\n", code=code)
    said: list[str] = []
    outcomes = run.run_cases([case], said.append)
    assert outcomes[0].state == ("done" if seed == 2 else "failed"), outcomes[0].text
    said += [run.summarise(outcomes), *run.explain_failures(outcomes), repr(outcomes)]
    assert not SIGHTS.search("\n".join(said))
    written = [path for path in (case.root / "results").rglob("*") if path.is_file()]
    assert not [path for path in written if SIGHTS.search(path.read_text("utf-8", "replace"))]
    suffix = ".ipynb" if seed == 2 else ".failed.ipynb"
    assert "***" in case.result(suffix).read_text()
    assert "host" in case.result(".runs.json").read_text()


def test_results_are_published_whole_or_refused(make_case: MakeCase) -> None:
    """Of a commit and of five blocks at least; findings go with them, and others stay where they are."""
    case = make_case(text="n_blocks: 4\n", code=ROWS + FOUND.format(noise=0.01))
    run.run_case(case)
    with refused("study/one", "4 blocks", "at least 5"):
        build.publish("laptop", case.root)
    case.parameter_file.write_text("n_blocks: 5\n")
    run.run_case(case)
    with refused("CASE", "^'nothing/here'$", case.title):
        build.publish("laptop", case.root, titles=["nothing/here"])
    published = build.publish("laptop", case.root, titles=[case.title])
    names = {"one.csv", f"one{SUFFIX}", "one.ipynb", "one.runs.json"}
    assert {path.name for path in published} == names
    page, rows = (case.result(suffix, "reference") for suffix in (".ipynb", ".csv"))
    assert cases.find_damage(page, rows) == ""
    make_case(text="n_blocks: 5\n", code=ROWS.replace("block=block", "block=block, is_dirty=True"))
    run.run_case(case)
    with refused("study/one", "in no commit", "a record of a clean checkout"):
        build.publish("laptop", case.root)


# Pages rendered from their rows.

SHOW = """
import pathlib
n_blocks, len(pathlib.Path(record).read_text().splitlines())
"""


@pytest.fixture
def in_reference(make_case: MakeCase) -> Case:
    """A case in the reference, whose last load was stopped after three blocks of five."""
    case = make_case(text="n_blocks: 5\n", code=SHOW)
    page, rows = (case.result(suffix, "reference") for suffix in (".ipynb", ".csv"))
    page.parent.mkdir(parents=True)
    record = Record(rows, study="study", provenance=ORIGIN)
    for point, n in ((1, 5), (2, 3)):
        record.append([make_row(study="study", case="one", point={"x": point}, block=b) for b in range(n)])  # fmt: skip
    told = {"metadata": {"case": {"fingerprint": "of then"}, "papermill": {"duration": 278.9}}}
    page.write_text(json.dumps(told))
    return case


def test_a_page_is_that_of_todays_notebook_over_the_same_rows(in_reference: Case) -> None:
    """Outputs are new; rows and what is said of the run that measured are not."""
    case = in_reference
    page, rows = (case.result(suffix, "reference") for suffix in (".ipynb", ".csv"))
    before = rows.read_bytes()
    assert run.render_case(case) == page
    told = nbformat.read(page, as_version=4).cells[-1].outputs[0]["data"]["text/plain"]
    assert told == "(3, 9)", "blocks that it has whole, and its lines"
    assert RENDERED not in os.environ and rows.read_bytes() == before
    assert cases.find_damage(page, rows) == ""
    after = cases.read_metadata(page)
    assert after["papermill"] == {"duration": 278.9} and after["case"]["fingerprint"] != "of then"
    assert {path.name for path in page.parents[1].parent.iterdir()} == {"laptop", "reference"}


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("open(record, 'a').write('c,1')", "measured what its record lacks"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_what_would_measure_or_fails_leaves_the_page(
    in_reference: Case, code: str, told: str
) -> None:
    """The reference stays as it was, page and rows; and only a case that is there is rendered."""
    case = in_reference
    paths = [case.result(suffix, "reference") for suffix in (".ipynb", ".csv")]
    before = [path.read_bytes() for path in paths]
    write_notebook(case.source, code=code)
    with refused("--render", told):
        run.render_case(case)
    assert [path.read_bytes() for path in paths] == before
    with refused("--render", "study/two is not in the reference"):
        run.render_case(Case("laptop", "study", "two", case.root))
