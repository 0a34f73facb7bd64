"""Records of others: what is sent, and what is refused of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from book import submitted
from book.cases import Case
from helpers.errors import UserError
from tests.rows import make_row, write_record

CASE = "cluster-scaling/in-region"


def test_records_are_sent_whole_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record goes with its digest; one that was changed, or came without, is refused in a line."""
    case = Case("laptop", *CASE.split("/"), tmp_path)
    monkeypatch.setattr(submitted, "find_case", lambda title, site: case)
    folder = tmp_path / "submitted"
    with pytest.raises(UserError, match="no record; allowed: after wire run"):
        submitted.submit("ada", [CASE], "laptop", folder=folder)
    write_record(case.result(".csv"), [make_row(), make_row(block=1)])
    into = submitted.submit("ada", [CASE], "laptop", folder=folder)
    (line,) = submitted.tabulate(folder).to_dict("records")
    assert (line["by"], line["case"], line["store"]) == ("ada", CASE, "embedded")
    (into / "more.csv").write_text("a\n")
    with pytest.raises(UserError, match="ada: more.csv is not as"):
        submitted.check(into)
    (into / "more.csv").unlink()
    record = into / f"{CASE}.csv"
    record.write_text(record.read_text() + "x")
    with pytest.raises(UserError, match="was changed"):
        submitted.check(into)


def test_what_is_here_was_sent_whole() -> None:
    """Each folder in the repository is as its command made it; the table refuses another."""
    assert [*submitted.tabulate()] == ["by", "case", "machine", "store", "measured", "commit"]


def test_a_name_is_no_path() -> None:
    """The folder is one below the others."""
    with pytest.raises(UserError, match="allowed: a name"):
        submitted.submit("../ada", [CASE], "laptop")
