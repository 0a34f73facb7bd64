"""Issues of a weekly check: one for each jump, none twice, and one where it could not run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from helpers.paths import ROOT
from wire.ledger import issues
from wire.ledger.check import (
    CANDIDATE,
    RELEASE,
    CheckReport,
    CheckResult,
    Difference,
    Failure,
)
from wire.ledger.issues import COULD_NOT_RUN, Issue, choose_new, clean, list_issues
from wire.ledger.schema import SCHEMA, make_report_schema

MORE = Difference("s3fs-file", "hdf5-paged", "one chunk", "n_requests", 2, 9, True)
LESS = Difference("s3fs-file", "hdf5-paged", "three variables", "wire_nbytes", 2e6, 1e6, False)
ABSENT = Failure("s3fs-file", "hdf5-paged", "one chunk", CANDIDATE, "cannot be installed")
RESULT = CheckResult(
    "s3fs", "s3fs 2026.9.0", "s3fs 2026.12.0", "s3fs 2026.9.0", "s3fs 2026.12.0", 3, (), (), ()
)
JUMP = "s3fs-file: one chunk of hdf5-paged requests more with s3fs 2026.12.0"


def make_report(*results: CheckResult) -> Any:
    """Make a report as it is read from JSON."""
    return json.loads(json.dumps(CheckReport(results).to_json()))


@pytest.mark.parametrize(
    ("result", "titles"),
    [
        (RESULT, []),
        (replace(RESULT, differences=(LESS,)), []),
        # one issue for an access, whatever of it grew
        (replace(RESULT, differences=(MORE, replace(MORE, count="n_waits"), LESS)), [JUMP]),
        (
            replace(RESULT, differences=(MORE, replace(MORE, access="three variables"))),
            [JUMP, JUMP.replace("one chunk", "three variables")],
        ),
        (
            replace(RESULT, wrong=(replace(ABSENT, reason="read 1, not 2"),)),
            ["s3fs-file: one chunk of hdf5-paged reads wrong values with s3fs 2026.12.0"],
        ),
        (replace(RESULT, wrong=(replace(ABSENT, environment=RELEASE),)), []),
        # what could not be installed, one issue for a package
        (
            replace(RESULT, absent=(ABSENT, replace(ABSENT, access="three variables"))),
            ["The ledger could not check s3fs"],
        ),
        # what the last release lacks too is no news
        (replace(RESULT, absent=(ABSENT, replace(ABSENT, environment=RELEASE))), []),
        # unless nothing is left: an emulator does not start, or there are no clients
        (
            replace(RESULT, absent=(ABSENT, replace(ABSENT, environment=RELEASE)), n_compared=0),
            ["The ledger could not check s3fs"],
        ),
        (replace(RESULT, n_compared=0), ["The ledger could not check s3fs"]),
    ],
)
def test_a_report_becomes_issues(result: CheckResult, titles: list[str]) -> None:
    """Each names client, access and release."""
    assert [issue.title for issue in list_issues(make_report(result))] == titles


def test_a_body_has_the_counts_and_the_command_that_shows_them() -> None:
    """A maintainer can paste it."""
    [issue] = list_issues(make_report(replace(RESULT, differences=(MORE,))))
    assert "requests: 2 with the last release, 9 now" in issue.body
    assert 'wire ledger check --with "s3fs==2026.12.0" --client s3fs-file' in issue.body


def test_no_issue_is_opened_twice() -> None:
    """A jump that was closed is known; what could not run is opened anew once its issue is closed."""
    jump, blocked = Issue("jump", ""), Issue("blocked", "", is_final=False)
    for state, chosen in (("OPEN", []), ("CLOSED", [blocked])):
        existing = [{"title": title, "state": state} for title in ("jump", "blocked", "other")]
        assert choose_new([jump, blocked], existing) == chosen
    assert choose_new([jump, jump], []) == [jump]


@pytest.mark.parametrize("text", ["plain", "a\n```\n@all", 30 * "`", 40_000 * "`"])
def test_text_of_a_client_is_text_alone(text: str) -> None:
    """A title is one line, and a body one block of code that nothing in it ends."""
    issue = clean(Issue(f"{text[:5]}\n\x1b[31m{text}", text))
    assert "\n" not in issue.title and issue.title.isprintable() and len(issue.title) <= 200
    (fence,) = MarkdownIt().parse(issue.body)
    assert fence.type == "fence" and len(issue.body) < 65_536


def test_what_json_prints_is_what_its_schema_says() -> None:
    """A field that was added needs the file anew, one that went a new version too."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text("utf-8"))
    assert schema == make_report_schema(), "run python -m wire.ledger.schema"
    report = make_report(replace(RESULT, differences=(MORE,), absent=(ABSENT,)))
    jsonschema.validate(report, schema)
    for name in report:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({key: report[key] for key in report if key != name}, schema)


def run_report_job(folder: Path, existing: list[dict[str, str]]) -> dict[str, str]:
    """Run the commands of the job that opens issues, with a stand-in for gh; return titles and bodies."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "weekly.yml").read_text())
    (folder / "src").symlink_to(ROOT / "src")
    opened = folder / "opened"
    opened.mkdir()
    gh = folder / "gh"
    gh.write_text(
        "#!/bin/sh\n"
        f"[ \"$2\" = list ] && {{ printf '%s' '{json.dumps(existing)}'; exit; }}\n"
        '[ "$2 $3 $5" = "create --title --body-file" ] || exit 9\n'
        f'cp "$6" "{opened}/$4"\n'
    )
    gh.chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}"}
    for step in workflow["jobs"]["report"]["steps"]:
        if "run" in step and ".ci/report" not in step["run"]:
            subprocess.run(["bash", "-e", "-c", step["run"]], cwd=folder, env=env, check=True)
    return {path.name: path.read_text() for path in opened.iterdir()}


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_the_weekly_workflow_opens_new_issues_alone(tmp_path: Path) -> None:
    """Of two jumps one is known; of two reports one is missing, so the log is an issue."""
    reports = tmp_path / "_build" / "reports" / "ledger"
    reports.mkdir(parents=True)
    second = replace(MORE, access="three variables")
    report = make_report(replace(RESULT, differences=(MORE, second)))
    (reports / "ledger-check.json").write_text(json.dumps(report))
    (reports / "ledger-check.txt").write_text("the server did not start")
    opened = run_report_job(tmp_path, [{"title": JUMP, "state": "OPEN"}])
    assert {*opened} == {JUMP.replace("one chunk", "three variables"), COULD_NOT_RUN}
    assert "the server did not start" in opened[COULD_NOT_RUN]


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_the_weekly_workflow_says_that_nothing_was_uploaded(tmp_path: Path) -> None:
    """A job that ran out of time leaves no file."""
    assert "no report" in run_report_job(tmp_path, [])[COULD_NOT_RUN]


def test_a_report_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    """It could lead to any file of the machine that holds the token."""
    (tmp_path / "secret").write_text(json.dumps(make_report(replace(RESULT, n_compared=0))))
    (tmp_path / "report.json").symlink_to(tmp_path / "secret")
    [issue] = issues.read_issues(tmp_path / "report.json", tmp_path / "absent")
    assert issue.title == COULD_NOT_RUN
