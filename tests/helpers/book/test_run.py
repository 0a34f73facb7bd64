"""Cases are run, resumed, refused and reported."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
import yaml
from filelock import FileLock
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from helpers.benchmark.record import read_records, read_rows
from helpers.book import build, cases, cli, expected, run, studies
from helpers.book.cases import Case
from helpers.book.studies import find_studies
from helpers.cli import end_well
from helpers.errors import UserError
from helpers.paths import ROOT
from tests import made
from tests.rows import write_record

MakeCase = Callable[..., Case]

SOURCE = """
import pathlib, sys
path = pathlib.Path(record)
path.write_text(path.read_text() + "again" if path.exists() else "once")
"""


def write_notebook(path: Path, *, code: str = SOURCE) -> None:
    """Write a notebook with the parameters of the book and one cell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parameters = nbformat.v4.new_code_cell(
        'seed: int = 1  # seed\nrecord: str = "x.csv"  # file', metadata={"tags": ["parameters"]}
    )
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(
        cells=[parameters, nbformat.v4.new_code_cell(code)], metadata=kernel
    )
    nbformat.write(notebook, path)


@pytest.fixture
def make_case(tmp_path: Path, made_study: None) -> MakeCase:
    """Make a project in a path with a space, with one notebook and cases."""
    root = tmp_path / "a project"

    def make(name: str = "one", text: str = "# why\nseed: 2\n", code: str = SOURCE) -> Case:
        write_notebook(root / "notebooks" / "study.ipynb", code=code)
        case = Case("laptop", "study", name, root)
        case.parameter_file.parent.mkdir(parents=True, exist_ok=True)
        case.parameter_file.write_text(text)
        return case

    return make


def test_a_case_leaves_notebook_and_record(make_case: MakeCase) -> None:
    """The result is what the notebook makes of the parameters."""
    case = make_case()
    assert run.run_case(case, print).state == "done"
    executed = nbformat.read(case.result(".ipynb"), as_version=4)
    assert any("seed = 2" in cell.source for cell in executed.cells)
    assert case.result(".csv").read_text() == "once"


def test_a_case_that_is_done_is_not_run_again(make_case: MakeCase) -> None:
    """Resuming skips what is done, and runs it when asked to or when a parameter changed."""
    case = make_case()
    run.run_case(case, print)
    assert run.run_case(case, print).state == "done before"
    assert run.run_case(case, print, anew=True).state == "done"
    make_case("one", "# why\nseed: 2\n", code=SOURCE + "# another comment")
    case.parameter_file.write_text("seed: 3\n")
    assert run.run_case(case, print).state == "done"
    kept = list(case.result(".csv").parent.glob("one.2*.csv"))
    assert len(kept) >= 1  # the record of other parameters is kept


def test_a_longer_budget_goes_on_with_the_rows(make_case: MakeCase) -> None:
    """It says how long to measure, not what: that of the command line, or of an edited file."""
    case = make_case(code=SOURCE + "assert time_budget_s in (30.0, 60.0)")
    assert run.run_case(case, print, budget_s=30.0).state == "done"
    case.parameter_file.write_text("seed: 2\ntime_budget_s: 500\n")
    assert run.run_case(case, print).state == "done before"
    assert run.run_case(case, print, more=True, budget_s=60.0).state == "done"
    assert case.result(".csv").read_text() == "onceagain"
    assert not [*case.result(".csv").parent.glob("one.2*")]
    cut = replace(run.run_case(case, print), is_cut=True)
    assert run.summarise([cut])[-1].startswith("cut short: 1 whose time budget ended")
    for minutes in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UserError, match=f"--minutes: {minutes:g}; allowed: above 0"):
            cli.run.main([case.title, "--minutes", str(minutes)], standalone_mode=False)


def test_budgets_of_every_case_fit_into_an_hour() -> None:
    """With the book after them, and into four minutes a case; a first block may take longer."""
    laptop = cases.find_cases("laptop")
    around_s = expected.AROUND_S
    expected_s = [cases.read_parameters(case)["time_budget_s"] + around_s for case in laptop]
    assert max(expected_s) <= 4 * 60
    assert sum(expected_s) + 150 <= 60 * 60  # 150 s of building the book


def test_an_interrupted_case_goes_on_with_its_record(make_case: MakeCase) -> None:
    """Rows of the same parameters are not set aside when the notebook did not end."""
    case = make_case(
        code=SOURCE + "assert pathlib.Path(record).read_text() != 'once', 'interrupted'"
    )
    assert run.run_case(case, print).state == "failed"
    assert run.run_case(case, print).state == "done"
    assert case.result(".csv").read_text() == "onceagain"


@pytest.mark.parametrize("text", ["1e3", "1.5E+2", "+2.5", ".5", "7"])
def test_numbers_are_read_as_written(make_case: MakeCase, text: str) -> None:
    """A number that is decimal is one, with an exponent too."""
    case = make_case(text=f"time_budget_s: {text}\n")
    assert cases.read_parameters(case)["time_budget_s"] == float(text)


@pytest.mark.parametrize("edit", [lambda text: text.replace("o", "0"), lambda text: text[:-2]])
def test_an_edited_record_is_kept_and_measured_anew(
    make_case: MakeCase, edit: Callable[[str], str]
) -> None:
    """Changed digits and dropped rows are recognised, with the notebook that goes with them."""
    case = make_case()
    run.run_case(case, print)
    record = case.result(".csv")
    edited = edit(record.read_text())
    record.write_text(edited)
    assert run.run_case(case, print).state == "done"
    assert record.read_text() == "once"
    [kept] = record.parent.glob("one.2*.csv")
    assert kept.read_text() == edited and kept.with_suffix(".ipynb").exists()
    assert run.run_case(case, print).state == "done before"


def test_rows_that_were_added_are_no_edit(make_case: MakeCase) -> None:
    """A run that goes on and is interrupted leaves more rows than its notebook knows of."""
    case = make_case()
    run.run_case(case, print)
    case.result(".csv").write_text("once and more")
    assert run.run_case(case, print).state == "done before"


def test_a_notebook_without_a_digest_is_as_good_as_before(make_case: MakeCase) -> None:
    """What was executed before there were digests stays done."""
    case = make_case()
    run.run_case(case, print)
    notebook = json.loads(case.result(".ipynb").read_text())
    del notebook["metadata"]["case"]["rows"]
    case.result(".ipynb").write_text(json.dumps(notebook))
    assert run.run_case(case, print).state == "done before"


def test_results_that_cannot_be_written_are_one_line(
    make_case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk or a checkout that may only be read fails a case, and the others go on."""
    one, other = make_case("one"), make_case("other")
    write_text = Path.write_text

    def fill_up(path: Path, *given: Any, **options: Any) -> int:
        if path.name == "one.fingerprint":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path.name)
        return write_text(path, *given, **options)

    monkeypatch.setattr(Path, "write_text", fill_up)
    outcomes = run.run_cases([one, other], lambda _line: None)
    assert [outcome.state for outcome in outcomes] == ["failed", "done"]
    [line, _] = run.explain_failures(outcomes)
    assert line == (
        "study/one failed: one.fingerprint: No space left on device;"
        " allowed: a folder that can be written and has room"
    )
    results = one.root / "results" / "laptop"
    shutil.rmtree(results)
    results.touch()  # a folder that cannot be made
    outcome = run.run_case(one, print)
    assert outcome.state == "failed" and outcome.text.isprintable()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_command_that_cannot_write_ends_with_a_line(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """It is no defect of ours, so there is no traceback."""
    monkeypatch.setattr(signal, "getsignal", lambda _number: signal.SIG_IGN)  # pytest has its own
    with pytest.raises(SystemExit) as ended, end_well():
        raise OSError(code, os.strerror(code), "_build/stage")
    assert str(ended.value) == (
        f"error: _build/stage: {os.strerror(code)};"
        " allowed: a folder that can be written and has room"
    )
    with pytest.raises(SystemExit) as ended, end_well():
        raise OSError(errno.EBADF, "a defect")
    assert "Traceback" in str(ended.value)


def test_what_will_be_refused_is_said_before_measuring(make_case: MakeCase) -> None:
    """Not after the cases before it have taken an hour."""
    said: list[str] = []
    run.run_cases([make_case("good"), make_case("bad", "sed: 2\n")], said.append)
    assert said[0].startswith("study/bad will not run: ") and "no such parameter" in said[0]


def test_a_failing_case_leaves_its_notebook_and_the_others_run(make_case: MakeCase) -> None:
    """The error is in a notebook of its own, in the last lines, with how to run the case alone."""
    bad = make_case("bad", "seed: 13\n", code=SOURCE + "assert seed != 13, 'unlucky'")
    good = make_case("good", "seed: 2\n", code=SOURCE + "assert seed != 13, 'unlucky'")
    outcomes = run.run_cases([bad, good], print)
    assert [outcome.state for outcome in outcomes] == ["failed", "done"]
    assert not bad.result(".ipynb").exists()
    assert "unlucky" in bad.result(".failed.ipynb").read_text()
    last = run.explain_failures(outcomes)
    assert "study/bad" in last[0]
    assert "unlucky" in last[0]
    assert "make run CASE=study/bad" in last[1]


def test_results_hold_no_path_of_the_machine(make_case: MakeCase) -> None:
    """Executed notebooks are published, so they name no folder of the one who ran them."""
    case = make_case(code=SOURCE + f"print({str(Path.home() / 'x')!r})")
    run.run_case(case, print)
    text = case.result(".ipynb").read_text()
    assert str(Path.home()) + "/" not in text.replace(str(case.root), "")
    assert str(case.root) not in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sed: 2\n", "sed: 2; no such parameter; allowed: profile, n_blocks, "),  # unknown
        ("seed: two\n", "seed: 'two'; allowed"),  # wrong type
        ("- seed\n", "allowed: NAME: VALUE"),  # no mapping
        ("seed: [\n", "is no YAML"),  # no YAML
        (b"\x7fELF\x02\x00\xff", "is no YAML"),  # a program
        ("seed: 1  # K\xf6ln".encode("latin-1"), "is no YAML"),  # not UTF-8
        ("seed: 2001-99-99\n", "is no YAML"),  # no day
        ("seed: !!int twelve\n", "is no YAML"),  # tags that their text fails,
        ("seed: !!timestamp noon\n", "is no YAML"),  # each with another error
        ("seed: !!bool maybe\n", "is no YAML"),
        ("seed: !!python/object:os.system {}\n", "is no YAML"),
        ("seed: " + "[" * (sys.getrecursionlimit() + 100), "is no YAML"),  # deeper than Python goes
        ("seed: " + "9" * 5000 + "\n", "is no YAML"),  # longer than Python reads
        ("seed: .inf\n", "seed: inf; allowed"),
        ("seed: .nan\n", "seed: nan; allowed"),
        ("? [seed]\n: 1\n", "is no YAML"),  # a name that is a list
        ("1: 2\n", "1: 2; no such parameter"),
        ('seed: "a\\nb\\e[31m"\n', r"seed: 'a\nb\x1b[31m'; allowed"),  # control characters
        ('"a\\nb": 1\n', r"'a\nb': 1; no such parameter"),
        ("&a {seed: *a}\n", "seed: {'seed': {'seed': "),  # holds itself
        # Numbers of YAML 1.1 that nobody means.
        ("seed: 0x1F_\n", "seed: '0x1F_'; allowed"),
        ("seed: 1:30\n", "seed: '1:30'; allowed"),
        ("seed: 010\n", "seed: '010'; allowed"),
        ("seed: 1_000\n", "seed: '1_000'; allowed"),
        ("time_budget_s: 1:30.5\n", "time_budget_s: '1:30.5'; allowed"),
        ("record: other.csv\n", "record: 'other.csv'; allowed: one.csv"),  # of another case
    ],
)
def test_bad_parameter_files_are_refused(
    make_case: MakeCase, text: str | bytes, words: str
) -> None:
    """Nothing runs, one short line says why, and a record that is there stays."""
    case = make_case("one")
    case.parameter_file.write_bytes(text if isinstance(text, bytes) else text.encode())
    case.result(".csv").parent.mkdir(parents=True)
    case.result(".csv").write_text("measured before")
    outcome = run.run_case(case, print)
    assert outcome.state == "refused"
    assert words in outcome.text
    assert outcome.text.isprintable()
    assert len(outcome.text) < 250
    assert case.result(".csv").read_text() == "measured before"
    # Nor does any of them end the run of the other cases.
    assert [one.state for one in run.run_cases([case], lambda _: None)] == ["refused"]


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes()
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)

_NUMBERS = st.sampled_from([0, 1, -1, 10**6, 2**64, 0.5, 1e308, float("inf"), float("nan")])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.binary()
    | st.text().map(str.encode)
    | st.text("[]{}&*!?:-|>'\"%@`,# \n0a.~=<e").map(str.encode)
    | st.dictionaries(st.sampled_from(["seed", "record", "other"]) | st.text(), _VALUES).map(
        lambda values: yaml.safe_dump(values, allow_unicode=True).encode()
    )
)
@example(b"seed: !!float ''\n")
@example(b"a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nseed: [*b,*b,*b]\n")
@example(b"record: '\\0'\n")
@example(b"seed: 0o17\nseed: 1_000\n")
@example(b"<<: 1\n")
def test_any_parameter_file_is_read_or_refused(make_case: MakeCase, text: bytes) -> None:
    """Whatever a file holds, it gives parameters or one short line."""
    case = make_case("fuzzed")
    case.parameter_file.write_bytes(text)
    said, values = "", {}
    try:
        values = cases.read_parameters(case)
    except UserError as error:
        said = str(error)
    assert said.isprintable() and len(said) < 300
    assert set(values) <= set(studies.Parameters.model_fields)
    assert bool(values) != bool(said)
    assert cases.fingerprint(case, values)


_FIELDS = {name: [*study.parameters.model_fields] for name, study in find_studies().items()}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(sorted(_FIELDS)), st.data())
def test_any_value_of_a_study_is_taken_or_refused(
    make_case: MakeCase, notebook: str, data: st.DataObject
) -> None:
    """Whatever a parameter of a study is given, it is refused in one line, or runs."""
    names = st.sampled_from(_FIELDS[notebook])
    values = data.draw(st.dictionaries(names, _VALUES | _NUMBERS | st.lists(_NUMBERS), min_size=1))
    case = make_case("fuzzed")
    case = Case("laptop", notebook, "fuzzed", case.root)
    case.parameter_file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "notebooks" / f"{notebook}.ipynb", case.source)
    case.parameter_file.write_text(yaml.safe_dump(values))
    said = ""
    try:
        cases.fingerprint(case, cases.read_parameters(case))
    except UserError as error:
        said = str(error)
    assert said.isprintable() and len(said) < 1000  # names all that is allowed


def make_impossible(schema: dict[str, Any], chance: random.Random) -> Any:
    """Draw a value that a parameter of this schema cannot have."""
    numbers = [
        None,
        True,
        "",
        "12",
        "a\nb\x1b[31m",
        -1,
        -0.5,
        -(10**30),
        [1],
        {"a": 1},
        -math.inf,
        math.nan,
    ]
    kinds: dict[str, list[Any]] = {
        "integer": [*numbers, 0.5, 10**40],
        "number": [*numbers, math.inf],
        "string": [None, False, 3, 0.5, [], ["a"], {"a": "b"}],
        "array": [
            None,
            True,
            7,
            "",
            "a",
            {},
            [None],
            [[]],
            [{}],
            ["\x00"],
            ["a", "a"],
            [-1, math.nan],
        ],
    }
    kind = schema["type"] if "type" in schema else schema["anyOf"][0]["type"]
    named = ["", "nine", "NONE", "a b", "\u202e", "x" * 10_000] * ("enum" in schema)
    return chance.choice(kinds[kind] + named)


@pytest.mark.parametrize("notebook", sorted(_FIELDS))
def test_a_hundred_impossible_cases_of_a_notebook_measure_nothing(
    make_case: MakeCase, monkeypatch: pytest.MonkeyPatch, notebook: str
) -> None:
    """Each ends with one line and an exit code, before a kernel is started; what is there stays."""
    schema = json.loads((ROOT / "parameters" / f"{notebook}.schema.json").read_text())["properties"]
    case = Case("laptop", notebook, "fuzzed", make_case("other").root)
    case.parameter_file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "notebooks" / f"{notebook}.ipynb", case.source)
    monkeypatch.setattr(cases, "find_case", lambda *_: case)
    monkeypatch.setattr(run, "_run_locked", lambda *_, **__: pytest.fail("it ran"))
    chance = random.Random(notebook)
    for _ in range(100):
        names = chance.sample(sorted(schema), chance.randint(1, 4))
        values = {name: schema[name]["default"] for name in names[1:] if name != "record"}
        values[names[0]] = make_impossible(schema[names[0]], chance)
        case.parameter_file.write_text(yaml.safe_dump(values))
        with pytest.raises(SystemExit) as ended, end_well():
            cli.run.main([case.title], standalone_mode=False)
        said = str(ended.value.code)
        assert said.startswith(f"error: parameters/laptop/{case.title}.yaml: {names[0]}"), values
        assert said.isprintable() and len(said) < 1000
    assert not case.result("").parent.exists()


def test_unknown_sites_and_cases_name_the_known_ones(make_case: MakeCase) -> None:
    """A typo is answered with what there is."""
    case = make_case()
    with pytest.raises(UserError, match="SITE: 'moon'; allowed: laptop"):
        cases.find_cases("moon", case.root)
    with pytest.raises(UserError, match="CASE: 'study/two'; allowed: study/one"):
        cases.find_case("study/two", "laptop", case.root)


def test_the_table_names_every_case(make_case: MakeCase) -> None:
    """State, duration and path of each case are in the table."""
    case = make_case()
    lines = run.summarise(run.run_cases([case], print))
    assert "study/one" in lines[1]
    assert "done" in lines[1]
    assert str(Path("results/laptop/study/one.ipynb")) in lines[1]


def test_time_left_is_read_from_the_reference(make_case: MakeCase) -> None:
    """Before a case ever ran here, the reference says how long it takes."""
    case = make_case()
    said: list[str] = []
    run.run_case(case, print)
    notebook = json.loads(case.result(".ipynb").read_text())
    notebook["metadata"]["papermill"]["duration"] = 240.0
    reference = case.result(".ipynb", "reference")
    reference.parent.mkdir(parents=True)
    reference.write_text(json.dumps(notebook))
    shutil.rmtree(case.result(".ipynb").parent)
    run.run_cases([case], said.append)
    assert "1 to run, about 4 minutes" in said[0]


def write_rows(n_blocks: int, *, is_dirty: bool = False) -> str:
    """Write the code of a notebook that measures one row a block."""
    return f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.rows import make_row, write_record
rows = [make_row(block=block, is_dirty={is_dirty}) for block in range({n_blocks})]
write_record(Path(record), rows)
"""


def test_publishing_needs_five_blocks(make_case: MakeCase) -> None:
    """A reference record of fewer blocks is refused."""
    case = make_case(code=write_rows(1))
    run.run_case(case, print)
    with pytest.raises(UserError, match="1 blocks; allowed: at least 5"):
        build.publish("laptop", case.root)


def test_publishing_needs_sources_of_a_commit(make_case: MakeCase) -> None:
    """A reference that nobody could make again is refused, and none of it is promoted."""
    case = make_case(code=write_rows(5, is_dirty=True))
    run.run_case(case, print)
    with pytest.raises(UserError, match="in no commit; allowed: a record of a clean checkout"):
        build.publish("laptop", case.root)
    assert not case.result(".csv", "reference").exists()


def test_one_case_can_be_published(make_case: MakeCase) -> None:
    """A case that is named is promoted by itself; an unknown one is refused with those there are."""
    case = make_case(code=write_rows(5))
    run.run_case(case, print)
    with pytest.raises(UserError, match=f"CASE: 'nothing/here'; allowed: .*{case.title}"):
        build.publish("laptop", case.root, titles=["nothing/here"])
    build.publish("laptop", case.root, titles=[case.title])
    assert len(read_records([case.result(".csv", "reference")])) == 5


def glue(**texts: str) -> str:
    """Write code that glues texts under names with hyphens."""
    found = {name.replace("_", "-"): text for name, text in texts.items()}
    code = f"\nfrom myst_nb import glue\nfor key, text in {found}.items():\n    glue(key, text, display=False)"
    return SOURCE + code


@pytest.mark.parametrize(
    ("noise", "state"),
    [("9.9 %", "done"), ("10 %", "done"), ("16 %", "done, unstable"), ("nan %", "done")],
)
def test_a_noisy_case_is_told(make_case: MakeCase, noise: str, state: str) -> None:
    """Noise and blocks are in the table; above the bound the case is done but unstable."""
    case = make_case(code=glue(headline="fast", aa_noise=noise, n_blocks="3"))
    outcomes = run.run_cases([case], print)
    title, line, *notes = run.summarise(outcomes)
    columns = [title.index(word) for word in ("state", "noise", "blocks", "time")]
    cells = [line[a:b].strip() for a, b in itertools.pairwise(columns)]
    assert cells == [state, "" if "nan" in noise else noise, "3"]
    assert "above 10 %" in "\n".join(notes)
    assert ("FLAGS=--" in "\n".join(notes)) == (state != "done")
    assert run.explain_failures(outcomes) == [], "it is no failure"
    # It stays unstable when it is not run again.
    assert (state != "done") == (outcomes[0].is_unstable)
    [again] = run.run_cases([case], print)
    assert (again.state, again.is_unstable) == ("done before", outcomes[0].is_unstable)


def test_the_harness_tells_what_it_took(make_case: MakeCase) -> None:
    """The runner's own processor time is in the executed notebook and in the table."""
    case = make_case()
    outcomes = run.run_cases([case], print)
    noted = nbformat.read(case.result(".ipynb"), as_version=4).metadata["case"]["harness"]
    assert 0 < noted["cpu_s"] < noted["wall_s"]
    assert noted["share_of_a_core"] == pytest.approx(noted["cpu_s"] / noted["wall_s"], rel=0.1)
    assert re.fullmatch(
        r"0\.\d minutes in all; the runner .* of a core\.", run.summarise(outcomes)[-1]
    )


def test_a_long_headline_is_cut_in_the_table(make_case: MakeCase) -> None:
    """Of one that names twenty readers the table has the beginning, and no line is of 300 columns."""
    case = make_case(code=glue(headline="among the fastest: " + ", ".join(["zarr-obstore"] * 20)))
    [_, line, *_] = run.summarise(run.run_cases([case], print))
    assert " among the fastest: zarr-obstore, ... " in line
    assert len(line) < 180


def test_an_idle_kernel_is_not_interrupted(make_case: MakeCase, tmp_path: Path) -> None:
    """A notebook that came to its end is asked to leave, without the signal of Ctrl-C."""
    mark = tmp_path / "interrupted"
    code = f"""
import pathlib
get_ipython().kernel.saved_sigint_handler = lambda *_: pathlib.Path({str(mark)!r}).touch()
"""
    case = make_case(code=SOURCE + code)
    assert run.run_case(case, print).state == "done"
    assert not mark.exists()


def test_a_kernel_that_dies_fails_its_case_alone(make_case: MakeCase) -> None:
    """A kernel that is killed, as when memory ends, stops neither the run nor the next case."""
    code = SOURCE + "import os, signal\nif seed == 13:\n    os.kill(os.getpid(), signal.SIGKILL)"
    bad, good = make_case("bad", "seed: 13\n", code), make_case("good", "seed: 2\n", code)
    outcomes = run.run_cases([bad, good], print)
    assert [outcome.state for outcome in outcomes] == ["failed", "done"]
    assert "died" in run.explain_failures(outcomes)[0]
    assert bad.result(".failed.ipynb").exists()
    assert [path.name for path in bad.result("").parent.glob("*.running*")] == []


def test_what_a_kernel_said_as_it_died_is_told(make_case: MakeCase) -> None:
    """What it wrote where no cell's output goes has the reason, as no other place has it."""
    code = "import os\nos.write(2, b'no room left\\n')\nos._exit(1)"
    told = run.explain_failures([run.run_case(make_case(code=SOURCE + code), print)])
    assert "did not start (Kernel died: no room left)" in told[0]


def test_a_case_runs_once_at_a_time(make_case: MakeCase) -> None:
    """A second run of a case is refused in one line; another case of the notebook runs."""
    one, _ = make_case("one"), make_case("other")
    with cases.lock_case(one):
        script = made.IN_SCRIPT + (
            "import sys; from pathlib import Path\nfrom helpers.book.run import Case, run_case\n"
            "for name in ('one', 'other'):\n"
            "    print(run_case(Case('laptop', 'study', name, Path(sys.argv[1])), lambda _: None))"
        )
        command = [sys.executable, "-c", script, one.root]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        second = dict(zip(("one", "other"), said.splitlines(), strict=True))
    assert "'refused'" in second["one"] and "another run" in second["one"]
    assert not one.result(".csv").exists()
    assert "'done'" in second["other"]
    assert run.run_case(one, print).state == "done", "the lock ends with its holder"


def test_a_lock_does_not_outlive_its_holder(make_case: MakeCase) -> None:
    """A run that was killed leaves nothing that keeps the next from running."""
    case = make_case()
    script = (
        "import os, sys; from helpers.book.cases import Case, lock_case; from pathlib import Path\n"
        "with lock_case(Case('laptop', 'study', 'one', Path(sys.argv[1]))): os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", script, case.root], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert run.run_case(case, print).state == "done"


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, whose path is short: that of a socket has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


def test_a_kernel_leaves_no_socket(
    make_case: MakeCase, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets lie in a folder of their own kernel, and go with it."""
    look = "\nprint('sockets', *pathlib.Path().glob('kernel*'))"
    case = make_case(code=SOURCE + look)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for name in ("of-the-killed", "of-another-run", "just-made"):
        (temporary / f"arrays-{name}").mkdir()
        (temporary / f"arrays-{name}" / "lock").touch()
        if name != "just-made":
            os.utime(temporary / f"arrays-{name}", (1.0, 1.0))
    with FileLock(temporary / "arrays-of-another-run" / "lock"):
        run.run_case(case, print)
    stayed = {path.name for path in temporary.glob("arrays-*")}
    assert stayed == {"arrays-of-another-run", "arrays-just-made"}
    assert "kernel-ipc" not in case.result(".ipynb").read_text()
    assert sorted(
        path.name for path in case.result("").parent.iterdir() if path.name[0] != "."
    ) == [
        "one.csv",
        "one.fingerprint",
        "one.ipynb",
    ]


def wait_until(
    holds: Callable[[], Any], running: subprocess.Popen[str] | None = None, *, timeout_s: float = 60
) -> None:
    """Wait for something that happens in another process, as long as that runs."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert running is None or running.poll() is None, running.communicate()[1]
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def are_written(pids: Path) -> bool:
    """Tell whether a notebook has written the processes that have to end."""
    return pids.exists() and pids.read_text().endswith(" ")


def test_what_an_interrupt_ends_says_nothing_of_it() -> None:
    """A task of a kernel that went away has an error that nobody asks for: the line stands alone."""
    script = (
        "import asyncio; from helpers.cli import end_well\n"
        "async def lose(): raise RuntimeError('the kernel is gone')\n"
        "with end_well():\n"
        "    loop = asyncio.new_event_loop(); task = loop.create_task(lose())\n"
        "    loop.run_until_complete(asyncio.sleep(0)); raise KeyboardInterrupt"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_told_to_end_leaves_nothing(
    make_case: MakeCase, tmp_path: Path, temporary: Path, number: signal.Signals
) -> None:
    """The kernel, what it started and every temporary folder end with the runner."""
    pids = tmp_path / "pids"
    code = f"""
import os, pathlib, subprocess, sys, tempfile, time
from helpers.objectstore.processes import start_child
with tempfile.TemporaryDirectory(), start_child(["sleep", "600"]) as child:
    pathlib.Path({str(pids)!r}).write_text(f"{{os.getpid()}} {{child.pid}} ")
    time.sleep(600)
"""
    case = make_case(code=code)
    default = "default_int_handler" if number == signal.SIGINT else "SIG_DFL"
    script = made.IN_SCRIPT + (
        # what starts the tests may ignore it, and what they start inherits that
        f"import signal; signal.signal({int(number)}, signal.{default})\n"
        "import sys; from helpers.cli import end_well; from helpers.book import run\n"
        "from pathlib import Path\n"
        "with end_well(): run.run_case(run.Case('laptop', 'study', 'one', Path(sys.argv[1])), print)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, case.root],
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        wait_until(lambda: are_written(pids), running)
        running.send_signal(number)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 1
    lines = said.splitlines()
    assert len(lines) == 1 and lines[0].startswith("interrupted; what was measured is kept"), said
    wait_until(lambda: not any(map(psutil.pid_exists, map(int, pids.read_text().split()))))
    assert [*temporary.iterdir()] == []
    left = [path.name for path in case.result("").parent.iterdir() if path.name[0] != "."]
    assert left == ["one.fingerprint"]


def test_two_runs_build_the_book_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second waits, and says so: both would empty the same folder."""
    said: list[str] = []
    monkeypatch.setattr(build, "stage", lambda *_, **__: said.append("staged") or 1 / 0)
    (tmp_path / "_build").mkdir()
    with (tmp_path / "_build" / ".lock").open("w") as other:

        def release() -> None:
            said.append("the other ends")
            fcntl.flock(other, fcntl.LOCK_UN)

        for is_alone in (True, False):
            if not is_alone:
                fcntl.flock(other, fcntl.LOCK_EX)
                threading.Timer(0.3, release).start()
            with pytest.raises(ZeroDivisionError):
                build.build("laptop", root=tmp_path, say=said.append)
    waits = "another run builds the book: waiting for it"
    assert said == ["staged", waits, "the other ends", "staged"]


# Twenty rows, each kept when it is measured, whoever measured those before.
ROWS = f"""
import sys, time; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from helpers.benchmark.record import Record
from tests.rows import ORIGIN, make_row
rows = Record(Path(record), study="study", case=Path(record).stem, provenance=ORIGIN)
for block in range(len(rows.rows), 20):
    time.sleep(0.1)
    rows.append([make_row(study="study", case=Path(record).stem, block=block)])
"""


@pytest.mark.slow
@pytest.mark.skipif("ARRAYS_TEST_BUILD" not in os.environ, reason="takes two minutes")
def test_twenty_kills_of_a_run_lose_and_double_no_row(
    make_case: MakeCase, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL at random moments: each run goes on, rows are whole, no process and no folder is left."""
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(run, "_ALONE_S", 0.0)
    both = [make_case(name, code=ROWS) for name in ("one", "two")]
    script = made.IN_SCRIPT + (
        "import sys; from pathlib import Path; from helpers.book import run\n"
        "run.run_cases([run.Case('laptop', 'study', n, Path(sys.argv[1])) for n in ('one', 'two')], print)"
    )
    chance, n_rows = random.Random(20), 0
    for _ in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", script, both[0].root],
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
        ) as running:
            time.sleep(chance.uniform(0.2, 8.0))
            below = psutil.Process(running.pid).children(recursive=True)
            running.kill()
        wait_until(lambda below=below: not any(one.is_running() for one in below))
        records = [case.result(".csv") for case in both if case.result(".csv").exists()]
        before, n_rows = n_rows, len(read_records(records)) if records else 0
        assert n_rows >= before
    assert n_rows > 0
    assert {one.state for one in run.run_cases(both, print)} <= {"done", "done before"}
    for case in both:
        assert read_records([case.result(".csv")])["block"].tolist() == [*range(20)]
    left = {path.name for path in both[0].result("").parent.iterdir() if path.name[0] != "."}
    assert left == {
        f"{name}{end}"
        for name in ("one", "two")
        for end in (".csv", ".fingerprint", ".ipynb", ".runs.json")
    }
    assert [*temporary.iterdir()] == []


def test_a_record_of_others_is_kept_and_not_continued(make_case: MakeCase) -> None:
    """Rows of another machine end the run in one line; other damage is told as well, in `test_record`."""
    case = make_case(code=ROWS + "x = 1 / 0")
    assert run.run_case(case, print).state == "failed"
    record = case.result(".csv")
    rows = read_rows(record)
    write_record(record, [replace(row, machine={"cpu": "Two", "n_cores": 2}) for row in rows])
    edited = record.read_text()
    outcome = run.run_case(case, print)
    assert outcome.state == "failed" and outcome.text.isprintable()
    assert outcome.text.startswith("RecordError: one.csv: cannot continue")
    assert case.result(".csv").read_text() == edited


def copy_project(root: Path) -> None:
    """Copy what `make run` needs, with the Python of the tests for its environment."""
    for name in ("advisors", "helpers", "studies", "results/published"):
        shutil.copytree(ROOT / name, root / name)
    made.copy_study(root)
    programs = root / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, before in (("python", ""), ("wire", " -c 'from helpers.cli import run; run()'")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{before} "$@"\n')
        (programs / name).chmod(0o755)
    for path in (ROOT / "Makefile", *ROOT.glob("requirements*.lock")):
        shutil.copy(path, root / path.name)
    (root / ".venv" / "ready").touch()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_that_is_told_to_end_leaves_nothing(make_case: MakeCase, tmp_path: Path) -> None:
    """SIGTERM to make alone reaches the runner, its kernel and what that started."""
    pids = tmp_path / "pids"
    code = f"""
import os, pathlib, subprocess, time
child = subprocess.Popen(["sleep", "600"])
try:
    pathlib.Path({str(pids)!r}).write_text(f"{{os.getppid()}} {{os.getpid()}} {{child.pid}} ")
    time.sleep(600)
finally:
    child.kill()
"""
    case = make_case(code=code)
    copy_project(case.root)
    with subprocess.Popen(
        ["make", "run", f"CASE={case.title}"],
        cwd=case.root,
        env={**os.environ, "PYTHONPATH": str(case.root)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        wait_until(lambda: are_written(pids), running)
        running.terminate()
        _, said = running.communicate(timeout=60)
    assert running.returncode != 0
    assert "interrupted; what was measured is kept" in said
    wait_until(lambda: not any(map(psutil.pid_exists, map(int, pids.read_text().split()))))
