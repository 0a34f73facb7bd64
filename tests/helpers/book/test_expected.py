"""What a run would cost on a store of one's own is said, and refused above a bound, before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.book import cli, run
from helpers.book.cases import Case, find_case
from helpers.book.expected import check_expected
from helpers.errors import UserError

OWN = find_case("cluster-scaling/own-bucket", "hub")


def test_what_is_billed_is_said_and_bounded() -> None:
    """Requests, bytes, minutes and both prices are in the line; the bound is on the sum of all cases."""
    said: list[str] = []
    usd = check_expected([OWN], said.append)
    [line] = said
    for words in ("requests", " GB ", "within about 60 minutes", "USD in the region", "outside"):
        assert words in line
    assert 0 < check_expected([OWN], said.append, max_usd=1.0, in_region=True) < usd
    with pytest.raises(UserError, match="USD are expected outside .*; allowed: .*--in-region"):
        check_expected([OWN], said.append, max_usd=1.0)
    assert f", {usd:.2f} outside" in line
    with pytest.raises(UserError, match="expected outside"):
        check_expected([OWN, OWN], said.append, max_usd=1.5 * usd)


@pytest.mark.parametrize("max_usd", [-1.0, float("nan")])
def test_a_bound_without_sense_is_refused(max_usd: float) -> None:
    """Nothing compares as more than it."""
    with pytest.raises(UserError, match="^--max-usd: .*; allowed: from 0 on"):
        check_expected([], lambda _: None, max_usd=max_usd)


def test_a_run_above_its_bound_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one case nor all of a site; what runs on a store of its own costs nothing."""
    ran: list[str] = []
    monkeypatch.setattr(run, "run_case", lambda case, *_, **__: ran.append(case.title))
    for command, *arguments in ((cli.run, OWN.title), (cli.run_all,)):
        options = ["--site", "hub", "--max-usd", "0.5"]
        done = CliRunner().invoke(command, [*arguments, *options])
        assert isinstance(done.exception, UserError) and "--max-usd: 0.5; " in str(done.exception)
    assert not ran
    check_expected([find_case("cluster-scaling/in-region", "laptop")], ran.append, max_usd=0.0)
    assert not ran


@pytest.mark.usefixtures("made_study")
def test_what_nobody_measured_is_not_bounded(tmp_path: Path) -> None:
    """A study that does not say what it asks for runs, but not under a bound."""
    case = Case("laptop", "study", "one", tmp_path)
    for path, text in (
        (case.parameter_file, "store: s3://b/p\nprofile: loopback\n"),
        (case.source, "{}"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    said: list[str] = []
    check_expected([case], said.append)
    assert "nobody has measured" in said[0]
    with pytest.raises(UserError, match="nobody has measured what study/one asks"):
        check_expected([case], said.append, max_usd=10.0)
