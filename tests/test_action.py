"""The action for GitHub: what of it runs here, against a local store, and the skill that names its fields."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.paths import ROOT
from tests.wire.trace.test_findings import run_of
from tests.wire.trace.test_report import look_before_each
from wire.trace import compare, findings
from wire.trace.report import Report

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
SKILL = (ROOT / "skills" / "wire-trace" / "SKILL.md").read_text()
PROGRAM = """
import http.server, threading, urllib.request
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
for number in range(COUNT):
    urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/program.py").read()
print("done")
"""


def test_every_action_is_pinned_and_no_input_reaches_a_shell() -> None:
    """What a pull request says is a variable, and never a part of a script."""
    for step in ACTION["runs"]["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
        else:
            assert step["shell"] == "bash"
            assert "${{" not in step["run"]
    assert {*ACTION["inputs"]} == {"command", "max", "compare", "comment"}


def git(folder: Path, *words: str) -> None:
    """Run git as somebody."""
    options = [
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    subprocess.run(["git", *options, *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.slow
def test_the_script_compares_with_the_base_branch(tmp_path: Path) -> None:
    """Nine requests instead of four, above a budget of eight; the program's output is its own."""
    folder, origin = tmp_path / "work", tmp_path / "origin"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM.replace("COUNT", "4"))
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "base")
    git(folder, "clone", "-q", "--bare", ".", str(origin))
    git(folder, "remote", "add", "origin", str(origin))
    (folder / "program.py").write_text(PROGRAM.replace("COUNT", "9"))
    out, summary = tmp_path / "out", tmp_path / "summary.md"
    environment = {
        **os.environ,
        "WIRE": str(Path(sys.executable).parent),
        "WIRE_OUT": str(out),
        "WIRE_COMMAND": f"{sys.executable} program.py",
        "WIRE_MAX": "requests=8",
        "WIRE_BASE": "main",
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    bash = shutil.which("bash")
    assert bash
    completed = subprocess.run(
        [bash, ROOT / "action" / "trace"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 1, completed.stderr
    assert completed.stdout == "done\n"
    assert "| requests | 4 | 9 | +5 |" in summary.read_text()
    assert (out / "head" / "trace.html").exists()
    assert "checkout" not in {path.name for path in out.iterdir()}


def test_a_comment_has_counts_and_causes_and_nothing_that_acts() -> None:
    """Names of a program are text: no mention, link, row or element."""
    report = findings.report(run_of(look_before_each(10)))
    head = json.loads(json.dumps(report.to_json()))
    hostile = "<img src=x>|@everyone [x](http://e)\n# `a`"
    head["findings"][0] |= {"evidence": hostile, "line": hostile}
    text = "\n".join(compare.compare(head, {**head, "n_requests": 25}))
    assert "| requests | 25 | 20 | -5 |" in text
    assert "| bytes moved | 20 kB | 20 kB | the same |" in text
    assert "<img" not in text.replace("`` <img src=x>|@everyone [x](http://e); # 'a' ``", "")
    assert r"\@everyone \[x\]" in text
    assert [line for line in text.splitlines() if line.startswith("#")] == []
    alone = "\n".join(compare.compare(replace_nothing(report), None))
    assert "| requests | 20 |" in alone


def replace_nothing(report: Report) -> dict[str, Any]:
    """Take a report as JSON has it, without causes."""
    return replace(report, findings=[]).to_json()


@pytest.mark.parametrize("text", ["", "{}", "done", '{"version": 1}', '{"version": 3}', "[" * 9000])
def test_no_report_is_refused_in_a_line(text: str, tmp_path: Path) -> None:
    """A program that printed nothing, or another version."""
    path = tmp_path / "head.json"
    path.write_text(text)
    completed = subprocess.run(
        [sys.executable, "-m", "wire.trace.compare", path], capture_output=True, text=True
    )
    assert completed.returncode == 2
    assert completed.stderr.startswith("error: report ") and completed.stderr.count("\n") == 1


def test_the_skill_names_fields_that_are_there() -> None:
    """An agent that reads them finds them."""
    _, header, body = SKILL.split("---\n", 2)
    assert yaml.safe_load(header)["name"] == "wire-trace"
    names = re.findall(
        r"`(?:findings\[\]\.)?([a-z_]+)`", body.split("| --- | --- |")[1].split("\n\n")[0]
    )
    report = findings.report(run_of(look_before_each(10))).to_json()
    known = {*report, *report["findings"][0], "code_line"}
    assert names and {*names} <= known
