"""The threads are listed whole, and each is a line of the page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pandas as pd
import yaml

from studies.own_program import threads

LISTED = yaml.load(threads.LISTED.read_text(), yaml.BaseLoader)  # it makes text alone
NAMES = [thread["thread"] for thread in LISTED["threads"]]


def test_each_thread_has_a_program_and_what_helped() -> None:
    """Programs can be read, packages have one version, and what helped is another state than before."""
    for thread in LISTED["threads"]:
        then = thread["then"]
        both = {**thread, **then}
        assert then.keys() <= {"change", "packages", "script", "variables"}
        assert any(then.get(name, thread.get(name)) != thread.get(name) for name in then.keys() - {"change"})  # fmt: skip
        for state in (thread, both):
            ast.parse(state["script"])
            assert all(re.fullmatch(r"[\w-]+==[\w.]+", package) for package in state["packages"])


def test_the_record_is_of_these_threads_and_packages() -> None:
    """Each thread that is listed was traced twice, with the packages that are listed."""
    rows = pd.read_csv(threads.RECORD, keep_default_na=False)
    asked = [
        (thread["thread"], " ".join({**thread, **part}["packages"]))
        for thread in LISTED["threads"]
        for part in ({}, thread["then"])
    ]
    assert [*zip(rows["thread"], rows["packages"], strict=True)] == asked
    assert all(rows.loc[rows["state"] == "as it was", "cause"])


def test_the_table_has_a_line_a_thread() -> None:
    """What the page includes names each thread once, and before and after of each."""
    lines = [line for line in threads.write_threads().splitlines() if "→" in line]
    assert [next(name for name in NAMES if f"[{name}]" in line) for line in lines] == NAMES
    assert all(line.count("→") == 5 for line in lines)


def test_a_program_that_the_change_makes_slower_is_called_slower(tmp_path: Path) -> None:
    """Less waiting does not make up for a whole program that takes longer: both times are shown."""
    rows = pd.read_csv(threads.RECORD, keep_default_na=False).head(2)
    rows["waiting_s"], rows["wall_s"] = [4.0, 1.0], [10.0, 15.0]
    rows.to_csv(tmp_path / "threads.csv", index=False)
    text = threads.write_threads(tmp_path / "threads.csv")
    assert "| 4 → 1 |" in text and "| 10 → 15 | 1.5x slower |" in text
    assert "0 of 1 whole programs ran faster" in text and "1 ran slower" in text
