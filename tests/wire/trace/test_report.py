"""What a user reads of a trace, and the files of it."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.refusals import refused
from tests.wire.trace.test_findings import chain, run_of
from wire.trace import analysis, cli, findings, page, render, stored
from wire.trace.rows import Bypass, Run, TracedRequest, Tunnel


def test_time_adds_up_to_what_was_planted() -> None:
    """Start, set-up, first byte, body, a client that blocks, processor and idle, each a second of seven."""
    row = TracedRequest(
        102.0, 103.0, 105.0, method="GET", key="/b/f", status=200, nbytes=10, is_first=True,
        handshake_s=1.0, client_blocked_s=1.0,
    )  # fmt: skip
    run = Run([row], 7.0, 100.0, 0, [(100.0, 0.0), (105.0, 0.0), (106.0, 1.0), (107.0, 1.0)])
    found = analysis.find_time(run)
    assert found == pytest.approx(dict.fromkeys(found, 1.0))
    assert sum(found.values()) == pytest.approx(run.wall_s)


def test_time_of_requests_side_by_side() -> None:
    """A wait behind a body is the body's; one that never ended goes on to the end of the program."""
    rows = [
        TracedRequest(0.0, 1.0, 3.0, method="GET", key="/b/f", status=200, nbytes=10),
        TracedRequest(2.0, 0.0, 0.0, method="GET", key="/b/g"),
    ]
    found = analysis.find_time(Run(rows, 5.0, 0.0, 0))
    assert (found["first bytes"], found["bodies"], found["idle"]) == (3.0, 2.0, 0.0)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"key": "/b/a/.zarray"}, "metadata"),
        ({"key": "/b/a/0.1.2"}, "chunk"),
        ({"key": "/b/a/c/0/3", "range_start": 10, "range_nbytes": 5}, "chunk"),
        ({"key": "/b/a.nc", "range_start": 0, "range_nbytes": 5}, "range"),
        ({"key": "/b/a.nc"}, "object"),
        ({"key": "/b", "is_listing": True}, "listing"),
        ({"key": "/object"}, "object"),
        ({"key": "/"}, "listing"),
        ({"key": "/b/a/zarr.json", "status": 404}, "probe"),
        ({"key": "/b/a.nc", "method": "HEAD"}, "HEAD"),
        ({"key": "/b/repo/snapshots/1CECHN"}, "manifest"),
        ({"key": "/latest/meta-data", "host": "169.254.169.254"}, "credentials"),
        ({"key": "/b/a.nc", "method": "PUT"}, "write"),
    ],
)  # fmt: skip
def test_kinds(given: dict[str, object], kind: str) -> None:
    """Method, path and answer tell what a request was for."""
    assert analysis.kind_of(TracedRequest(0.0, **{"method": "GET", "status": 200, **given})) == kind  # type: ignore[arg-type]


def test_network_of_a_trace() -> None:
    """First byte and stream are those that were planted; four that share a link show its rate."""
    rows = [TracedRequest(i, i + 0.05, i + 0.15, status=200, nbytes=1_000_000) for i in range(9)]
    found = analysis.find_network(rows)
    assert (found.first_byte_median_s, found.stream_nbytes_per_s) == pytest.approx((0.05, 1e7))
    assert found.aggregate_nbytes_per_s == float("inf")
    shared = [
        TracedRequest(20, 20.05, 20.45, status=200, nbytes=1_000_000, connection=i)
        for i in range(8)
    ]
    found = analysis.find_network([*rows, *shared])
    assert found.aggregate_nbytes_per_s == pytest.approx(2e7)


def look_before_each(n: int, user_agent: str = "aiobotocore/3.10.0") -> list[TracedRequest]:
    """Make so many objects read in turn, each after a HEAD."""
    rows = chain(2 * n, user_agent=user_agent, think_s=0.0)
    for number, row in enumerate(rows):
        row.key, row.method = f"/b/f{number // 2}", "GET" if number % 2 else "HEAD"
    return rows


def test_the_screen() -> None:
    """One screen has the counts, causes in order, and what was not seen."""
    rows = look_before_each(10)
    run = run_of(rows, wall_s=2.5, gateway_s=0.025, remarks=["something else"])
    lines = [*render.render(findings.report(run), ["python", "my script.py"])]
    text = "\n".join(lines)
    assert len(lines) < 30
    assert lines[0].startswith(
        "Your program spends 2 s of 2.5 s waiting for answers, one after the other"
    )
    assert lines[1].startswith("20 requests to")
    assert "20 of them one after the other, at most 1 concurrent" in lines[1]
    assert lines[2].startswith("  10 HEAD, 10 object; latency 100 ms")
    assert "wire trace --try max_concurrency=1 python 'my script.py'" in text
    assert "gateway 1 %" in text
    assert lines[-1] == "not seen: something else"
    busy = findings.report(run_of(chain(3), gateway_s=1.0))
    assert "may be the limit" in [*render.render(busy, ["x"])][1]


def test_a_report_that_takes_too_long_has_the_requests_alone() -> None:
    """Counts of a budget stay, causes are left out, and the report says so."""
    run = run_of(chain(20_000, think_s=0.02))
    late = findings.report(run, within_s=0.05)
    assert (late.n_requests, late.n_waits, late.moved_nbytes) == (20_000, 20_000, 20_000_000)
    lines = [*render.render(late, ["x"])]
    assert lines[1].startswith("20,000 requests to")
    assert "causes were not sought: 20,000 requests take longer than 0.05 s" in lines[-1]
    assert "What to change" in page.write_html(run, late, ["x"])


def test_refused_answers_are_reported() -> None:
    """Forty of forty answers were no data, and the report says which."""
    rows = chain(40)
    for number, row in enumerate(rows):
        row.status = (400, 503, 599, 0)[number % 4]
    text = "\n".join(render.render(findings.report(run_of(rows)), ["x"]))
    assert "failed: 10 of 40 400 Bad Request, 10 of 40 503 Service Unavailable" in text
    assert "10 of 40 status 599, 10 of 40 no answer" in text


def test_files_hold_the_trace_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored trace is read back as it was; credentials in a command or a path are blacked out."""
    monkeypatch.setenv("MY_SECRET_KEY", "wJalrXUtnFEMIbPxRfiCY")
    rows = chain(12, key="/b/wJalrXUtnFEMIbPxRfiCY/f{i}")
    run = run_of(chain(12), wall_s=2.0, processor_s=[(0.0, 0.0), (2.0, 1.0)])
    command = ["python", "x.py", "--password=hunter-2-of-a-stranger"]
    secret = Run([*run.rows, *rows], 2.0, 0.0, 0)
    clean, words = stored.redact_run(secret, command)
    stored.write_trace(tmp_path, clean, words)
    stored.write_page(tmp_path, page.write_html(clean, findings.report(clean), words))
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert "wJalrX" not in path.read_text(), path
        assert "hunter" not in path.read_text(), path
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(stored.FILES)
    stored.write_trace(tmp_path, run, ["python", "x.py"])
    again, told = stored.read_trace(tmp_path)
    assert told == ["python", "x.py"]
    assert findings.report(again) == findings.report(run)
    with (tmp_path / "trace.csv").open() as file:
        assert len([*csv.DictReader(file)]) == 12


CANARY = "hunter-2-canary"
PLACES = [
    "/b/f.nc;sig={}", "/b/f.nc;token={};v=1", "/b/password={}/c/0/0", "/b/%73ig={}", "/b/f%3Bsig%3D{}", "/b/f&pass={}",
    "/b/https://me:{}@host/f", "/{}/f",
]  # fmt: skip
OPTIONS = [["--password", CANARY], [f"--token={CANARY}"], ["-p", CANARY], ["-b", f"sid={CANARY}"], ["--proxy-user", f"me:{CANARY}"], ["-u", f"me:{CANARY}"], ["--header", f"Authorization: Basic {CANARY}"], ["sh", "-c", f"x --password '{CANARY}'"]]  # fmt: skip


def test_no_canary_leaves_by_any_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in paths, the command, redirects and errors it is in no file, and on no terminal; nor are escapes."""
    rows = chain(12 * len(PLACES), host="h", user_agent="x/1")
    for number, row in enumerate(rows):
        row.key = PLACES[number % len(PLACES)].format(CANARY) + f"/{number}"
    rows[0].host, rows[1].process, rows[2].key = (
        "h\x1b[2J\n9 requests",
        f"x --token={CANARY}",
        "/b/\x1b[2J",
    )
    run = Run(
        rows, 30.0, 0.0, 0,
        bypassed=[Bypass(1, f"curl -u me:{CANARY}", "h:1")],
        unread=[Tunnel(f"me:{CANARY}@h:443", f"moved to https://h/f?X-Amz-Signature={CANARY}", 1.0)],
        remarks=[f"GET https://h/f;sig={CANARY} failed", "Authorization: Bearer " + CANARY],
    )  # fmt: skip
    command = ["true", *(word for words in OPTIONS for word in words), "data.nc"]
    fake(monkeypatch, run, run)
    texts = []
    for number, more in enumerate(([], ["--json"])):
        out = tmp_path / str(number)
        result = CliRunner().invoke(cli.trace, ["--out", str(out), *more, "--", *command])
        assert result.exit_code == 0
        shown = CliRunner().invoke(cli.trace, ["show", str(out), *more])
        assert shown.exit_code == 0
        texts += [result.output, shown.output]
        assert sorted(path.name for path in out.iterdir()) == sorted(stored.FILES)
        texts += [path.read_text() for path in out.iterdir()]
    for text in texts:
        assert CANARY not in text
        assert "\x1b" not in text and "\n9 requests" not in text
    _, words = stored.redact_run(run, command)
    assert words[-1] == "data.nc"
    with (tmp_path / "0" / "trace.csv").open(
        newline=""
    ) as file:  # whole, and no two objects are one
        assert len({row["key"] for row in csv.DictReader(file)}) == len(rows)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "no command"),
        (["no-such-program", "x.py"], "is not found"),
        (["--", "no-such-program"], "is not found"),
        (["--try", "speed=9", "--", "true"], "--try: 'speed=9'; allowed: max_concurrency=VALUE"),
        (["--try", "pool=many", "--", "true"], "pool=NUMBER"),
        (["--try", "concurrency=10", "--", "true"], "is the default; allowed: another value of concurrency"),
        (["--try", "cache=readahead", "--", "true"], "is the default"),
        (["--max", "seconds=3", "--", "true"], "--max: 'seconds=3'; allowed: requests=NUMBER"),
        (["--max", "mb=nan", "--", "true"], "--max: 'mb=nan'"),
        (["--max", ",,", "--", "true"], "--max: ''; allowed: requests=NUMBER"),
        (["--max", "mb=1,mb=2", "--", "true"], "mb stands twice"),
        (["--on", "moon", "--", "true"], "profile: 'moon'"),
        (["--out", "/dev/null/x", "--", "true"], "--out: /dev/null/x"),
        (["--out", "tests", "--", "true"], "allowed: a new folder"),
        (["show", "no-such-folder"], "trace folder no-such-folder"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_before_anything_runs(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is run, and nobody has to read a traceback."""
    monkeypatch.setattr("wire.trace.launch.run", lambda *_, **__: pytest.fail("it ran"))
    result = CliRunner().invoke(cli.trace, words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("trace.csv", ",200,", ",fine,"),
        ("trace.csv", "0.1,", "nan,"),
        ("trace.csv", "start_s", "begin_s"),
        ("trace.csv", "0.1,", "9" * 400 + ","),
        ("trace.csv", ",GET,", ",GET,GET,"),
        ("trace.csv", "/b/f0", "x" * 200_000),
        ("trace.json", '"wall_s"', '"wall"'),
        ("trace.json", '"wall_s": 0.2', '"wall_s": 1e-300'),
        ("trace.json", '"wall_s": 0.2', '"wall_s": 1e999'),
        ("trace.json", '"wall_s": 0.2', '"wall_s": ' + "9" * 400),
        ("trace.json", '"begin_s": 0.0', '"begin_s": NaN'),
        ("trace.json", '"begin_s": 0.0', '"begin_s": ' + "[" * 5000 + "]" * 5000),
        ("trace.json", '"remarks": []', '"remarks": ["\\ud800"]'),
        ("trace.json", '"command": "x"', '"command": "\'"'),
        ("trace.json", '"command": "x"', '"command": 3'),
        ("trace.json", "{", "["),
        ("trace.json", '"run"', '"ran"'),
    ],
)
def test_a_folder_of_a_stranger_is_refused_in_a_line(
    name: str, before: str, after: str, tmp_path: Path
) -> None:
    """A trace that was damaged or made by somebody else."""
    run = run_of(chain(2))
    stored.write_trace(tmp_path, run, ["x"])
    text = (tmp_path / name).read_text()
    assert before in text
    (tmp_path / name).write_text(text.replace(before, after, 1))
    with refused("trace folder .*", allowed="."):
        stored.read_trace(tmp_path)


def test_requests_of_one_moment_are_reported(tmp_path: Path) -> None:
    """No time passes, in any of them, and the program took a microsecond."""
    rows = [replace(row, start_s=5.0, first_byte_s=5.0, end_s=5.0) for row in chain(20)]
    stored.write_trace(tmp_path, run_of(rows, wall_s=1e-6, gateway_s=1e-6), ["x"])
    result = CliRunner().invoke(cli.trace, ["show", str(tmp_path)])
    assert result.exit_code == 0
    assert "the gateway used a CPU" in result.stdout
    assert "20 requests" in result.stdout and "nan" not in result.stdout


def fake(monkeypatch: pytest.MonkeyPatch, *runs: Run) -> list[dict[str, object]]:
    """Let runs come from a list, and return what each was asked with."""
    asked, left = list[dict[str, object]](), [*runs]

    def run(_command: object, **given: object) -> Run:
        asked.append(given)
        return left.pop(0)

    monkeypatch.setattr("wire.trace.launch.run", run)
    return asked


def test_a_budget_exits_1_and_else_the_program_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above `--max` the exit code is 1, else that of the program."""
    fake(monkeypatch, *[Run(chain(9), 2.0, 0.0, 3)] * 2)
    given = ["--out", str(tmp_path / "t"), "--max"]
    above = CliRunner().invoke(cli.trace, [*given, "requests=8,mb=1", "--", "true"])
    assert above.exit_code == 1
    assert "requests 9, at most 8" in above.stderr
    below = CliRunner().invoke(cli.trace, ["--json", *given, "waits=9", "--", "true"])
    assert below.exit_code == 3
    assert json.loads(below.stdout.splitlines()[-1])["n_requests"] == 9
    shown = CliRunner().invoke(cli.trace, ["show", str(tmp_path / "t")])
    assert shown.exit_code == 0
    assert "9 requests" in shown.stdout


@pytest.mark.parametrize("broken", ["findings.report", "stored.redact_run", "render.render"])
def test_a_failure_of_the_report_leaves_the_programs_exit_code(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with ours is one line, and the program ended as it did; a budget that is not judged is not kept."""
    monkeypatch.setattr(f"wire.trace.{broken}", lambda *_, **__: 1 / 0)
    for code, given, expected in ((3, [], 3), (0, [], 0), (3, ["--max", "mb=1"], 3), (0, ["--max", "mb=1"], 1)):  # fmt: skip
        fake(monkeypatch, Run(chain(9), 2.0, 0.0, code))
        result = CliRunner().invoke(cli.trace, ["--out", str(tmp_path / "t"), *given, "--", "true"])
        assert result.exit_code == expected
        assert result.stderr.count("\n") == 1
        assert "the report failed: ZeroDivisionError" in result.stderr


def test_a_full_disk_takes_the_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is printed before, and a budget is judged all the same."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("wire.trace.stored.replace_file", fail)
    fake(monkeypatch, Run(chain(9), 2.0, 0.0, 0))
    words = ["--out", str(tmp_path / "t"), "--max", "requests=8", "--", "true"]
    result = CliRunner().invoke(cli.trace, words)
    assert result.exit_code == 1
    assert "9 requests to" in result.stderr
    assert "wire trace: no files: " in result.stderr
    assert "above --max" in result.stderr


def test_a_trace_stays_where_another_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run into a folder gets one with a number, and is said to."""
    fake(monkeypatch, Run(chain(9), 2.0, 0.0, 0), Run(chain(3), 2.0, 0.0, 0))
    for _ in range(2):
        result = CliRunner().invoke(cli.trace, ["--out", str(tmp_path / "t"), "--", "true"])
    assert "t/ holds another trace" in result.stderr
    assert "t-2/: trace.csv" in result.stderr
    shown = [
        CliRunner().invoke(cli.trace, ["show", str(tmp_path / name)]).stdout
        for name in ("t", "t-2")
    ]
    assert [text.splitlines()[1].split()[0] for text in shown] == ["9", "3"]


def test_a_setting_of_another_client_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is for s3fs changes nothing of DuckDB; a client without a name may be any."""
    fake(monkeypatch, Run(look_before_each(10, "duckdb/v1.4.0"), 2.0, 0.0, 0))
    words = ["--out", str(tmp_path / "t"), "--try", "max_concurrency=1", "--", "true"]
    result = CliRunner().invoke(cli.trace, words)
    assert "is not measured: it acts on s3fs, and the requests are of duckdb" in result.stderr
    assert not findings.explain_no_effect(Run(chain(2), 1.0, 0.0, 0), "max_concurrency=1")


def test_concurrency_of_zarr_comes_with_connections() -> None:
    """Over s3fs ten connections would hold it back."""
    assert cli.read_setting("concurrency=64") == {
        "ZARR_ASYNC__CONCURRENCY": "64",
        "FSSPEC_S3_CONFIG_KWARGS": '{"max_pool_connections": 64}',
    }


def test_a_setting_says_itself_that_it_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its form is that of a whole number, words are refused."""
    monkeypatch.setitem(cli.SETTINGS, "threads", ("N_THREADS", "{:d}"))
    assert cli.read_setting("pool=64") == {
        "FSSPEC_S3_CONFIG_KWARGS": '{"max_pool_connections": 64}'
    }
    assert cli.read_setting("threads=08") == {"N_THREADS": "8"}
    for words in ("many", "9" * 5000):
        with refused("--try", "^.threads=", "^threads=NUMBER, a whole one$"):
            cli.read_setting(f"threads={words}")


def test_a_program_that_cannot_begin_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a folder refused because of what an interrupted trace left in it."""
    monkeypatch.setattr("wire.trace.launch.run", lambda *_, **__: 1 / 0)
    (tmp_path / ".trace.csv.draft").touch()
    CliRunner().invoke(cli.trace, ["--out", str(tmp_path), "--", "true"])
    assert [one.name for one in tmp_path.iterdir()] == [".trace.csv.draft"]
    stored.write_trace(tmp_path, run_of(chain(2)), ["x"])
    assert {one.name for one in tmp_path.iterdir()} == {*stored.FILES[:3]}


def test_a_setting_is_tried_in_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A B B A, with the gain next to the one that was predicted, and what else changed."""
    before = Run(look_before_each(10), 2.0, 0.0, 0, output_digest="a")
    after = Run(look_before_each(10), 1.0, 0.0, 0, output_digest="b")
    runs = [before, after, after, before, *[before, after] * 6]
    monkeypatch.setattr(cli, "_TRY_S", 0.0)
    asked = fake(monkeypatch, *runs)
    words = ["--out", str(tmp_path), "--try", "max_concurrency=1", "--", "true"]
    result = CliRunner().invoke(cli.trace, words)
    assert result.exit_code == 0
    assert [bool(one.get("environment")) for one in asked] == [False, True, True, False]
    assert asked[1]["environment"] == {"FSSPEC_S3_MAX_CONCURRENCY": "1"}
    assert "max_concurrency=1: 2.00x faster (2.00x to 2.00x, 2 pairs), predicted 2" in result.stderr
    assert "the output is another" in result.stderr
    assert "the requests are the same: the code passes a value of its own" in result.stderr


def test_a_program_without_requests(tmp_path: Path) -> None:
    """A program that asks for nothing is said to, with its own exit code."""
    false = shutil.which("false")
    assert false
    result = CliRunner().invoke(cli.trace, ["--out", str(tmp_path), "--", false])
    assert result.exit_code == 1
    assert "No request of your program was seen" in result.stderr
