"""What answers rest on: gathered from the records, told beside the answer, and put on trial."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest

from advisors.decide import evidence, page, trial
from advisors.decide.clients import (
    compare_clients,
    find_overheads,
    list_groups,
    predict_row,
    rank_clients,
)
from advisors.decide.evidence import Measured
from advisors.decide.forecasts import ask_chunks
from advisors.decide.question import Question
from advisors.decide.snippets import CLIENTS
from advisors.decide.support import choose_client, find_support
from helpers.book.studies import find_studies
from helpers.errors import UserError
from helpers.paths import ROOT

ROW = Measured(
    "a/one",
    "in-region",
    "x",
    {"n_workers": 2},
    p50_s=1.0,
    p95_s=1.2,
    open_s=0.1,
    n=5,
    array_nbytes=1e6,
    n_requests=10,
    wire_nbytes=1e6,
    settings={"concurrency": 10},
    blocks=(1.0,) * 5,
)


def take(seconds: float, contender: str = "x", **given: Any) -> Measured:
    """Make a row that took so long in every block."""
    blocks = (seconds,) * 5
    return replace(ROW, contender=contender, p50_s=seconds, blocks=blocks, **given)


def test_the_file_is_that_of_the_records() -> None:
    """`wire decide --derive` would change nothing."""
    kept = json.loads(evidence.PATH.read_text(encoding="utf-8"))
    assert json.loads(json.dumps(evidence.gather())) == kept, "run `wire decide --derive`"


def test_no_record_no_file() -> None:
    """A folder without records is refused, and the file stays."""
    before = evidence.PATH.read_bytes()
    with pytest.raises(UserError, match="no reference record"):
        evidence.write(evidence.PATH, root=ROOT / "tests" / "made")
    assert evidence.PATH.read_bytes() == before


def test_every_client_that_has_code_was_measured() -> None:
    """Of each there is a row, but for what the answer calls uncertain."""
    measured = {row.contender for row in evidence.load().rows}
    assert {name for name in CLIENTS if name not in measured} == {"gdal", "gdal-hdf5"}


def test_conversions_stand_beside_the_file() -> None:
    """References are compared with who reads the file as it was written, not with its repacks."""
    point = {"layout": "original", "task": "all"}
    rows = [
        replace(ROW, contender="file", point=point),
        replace(ROW, contender="references", point={**point, "layout": "references"}, p50_s=0.4),
        replace(ROW, contender="file", point={**point, "layout": "paged"}, p50_s=0.2),
    ]
    groups = list_groups(rows)
    assert [set(one.rows) for one in groups] == [{"file", "references"}, {"file"}]
    assert groups[0].rows["references"].seconds == pytest.approx(0.5)  # with its opening


def test_only_what_reads_the_same_is_compared() -> None:
    """A setting that reads an eighth of the bytes is no faster for it; nor is one without a trace there."""
    rows = [take(1.0), take(0.2, "y", array_nbytes=1e6 / 8), take(0.1, "z", n_requests=None)]
    assert [set(one.rows) for one in list_groups(rows)] == [{"x"}, {"y"}]
    alike = [one for one in list_groups(evidence.load().rows) if one.case.startswith("requests")]
    for group in alike:
        assert len({name.partition(" x ")[0] for name in group.rows}) == 1  # as many threads


def test_who_else_was_there_does_not_count() -> None:
    """A client that was measured beside a slow one alone is no faster for it."""
    rows = [take(1.0), take(4.0, "slow")]
    rows += [replace(row, case="a/two") for row in (take(4.0, "slow"), take(3.6, "hardly faster"))]
    overheads = find_overheads(list_groups(rows))
    expected = rank_clients(overheads, dict.fromkeys(overheads, 1.0))
    assert list(expected) == ["x", "hardly faster", "slow"]
    assert overheads["slow"].cases == ("a/one", "a/two")


def test_what_is_asked_is_predicted_and_the_rest_is_overhead() -> None:
    """Who asks for each chunk twice, and takes what that takes, has the overhead of who asks once."""
    twice = replace(ROW, contender="twice", n_requests=200)
    once = replace(ROW, contender="once", n_requests=100)
    rows = [
        take(predict_row(row), row.contender, n_requests=row.n_requests) for row in (once, twice)
    ]
    assert rows[1].seconds > 1.5 * rows[0].seconds
    overheads = find_overheads(list_groups(rows))
    assert overheads["once"].ratio == pytest.approx(overheads["twice"].ratio)
    assert (
        next(iter(rank_clients(overheads, {"twice": 2.0, "seen nowhere": 1.9}))) == "seen nowhere"
    )


def test_a_record_is_predicted_on_its_own_network() -> None:
    """Dilated time has faster processors; what alike processes share is divided; a server sends what is asked."""
    much = replace(ROW, array_nbytes=1e9, wire_nbytes=1e6)
    assert predict_row(replace(much, dilation=8.0)) < predict_row(much) / 5
    many = replace(ROW, n_requests=1e5, settings={"concurrency": 10_000})
    assert predict_row(replace(many, n_processes=8)) == pytest.approx(
        8 * predict_row(many), rel=0.15
    )
    cut_out = replace(ROW, array_nbytes=32.0, n_requests=1, wire_nbytes=125.0)
    chunks = replace(cut_out, n_requests=8, wire_nbytes=4e6)
    assert predict_row(cut_out) < predict_row(chunks) / 2


def test_clients_are_compared_where_both_were_measured() -> None:
    """A geometric mean; none where they were never beside each other."""
    rows = [take(1.0), take(2.0, "y"), take(1.0, case="a/two"), take(8.0, "y", case="a/two")]
    groups = list_groups(rows)
    assert compare_clients(groups, "y", "x") == pytest.approx(4.0)
    assert compare_clients(groups, "y", "z") is None


@pytest.mark.parametrize(
    ("store", "nearest"), [("wide-area", "other-region"), ("express", "in-region")]
)
def test_what_is_measured_nowhere_rests_on_the_nearest_network(store: str, nearest: str) -> None:
    """By times to first byte, so no record without a network stands for one with much of it."""
    question = Question.ask(shape="8760,100,120", store=store)
    found = find_support(question, "zarr-obstore", request_nbytes=[1e6])
    assert nearest in evidence.load().profile_of(found.case)


def test_requests_of_a_chunk_are_those_of_the_records() -> None:
    """A client that is said to ask twice for a chunk asks for twice as much as one that asks once."""
    groups = [one for one in list_groups(evidence.load().rows) if "n_workers" in one.point]
    for group in groups:
        known = {name: row for name, row in group.rows.items() if name in CLIENTS}
        for name, row in known.items():
            if "zarr-obstore" in known and CLIENTS[name].format == "zarr":
                n_chunks = known["zarr-obstore"].n_requests or 0
                assert row.n_requests == CLIENTS[name].requests_per_chunk * n_chunks


def test_the_client_is_chosen_by_what_is_asked() -> None:
    """One request a chunk beats two where waiting binds; a client without a record is told to be so."""
    question = Question.ask(shape="8760,100,120", access="series:1")
    pattern = question.pattern()
    reads = [ask_chunks(pattern, pattern.accesses[0], (24, 10, 12))]
    assert choose_client(question, ["zarr-s3fs", "zarr-obstore"], reads) == "zarr-obstore"
    found = find_support(question, "gdal")
    assert found.confidence == "uncertain" and "in no record" in found.why


def test_support_depends_on_network_and_size() -> None:
    """The same client is measured over its own network, and uncertain over another with other sizes."""
    question = Question.ask(shape="8760,100,120")
    beside = ["zarr-obstore", "zarr-s3fs"]
    found = [
        find_support(asked, "zarr-obstore", beside=beside, request_nbytes=[nbytes])
        for asked, nbytes in (
            (question, 2.5e6),
            (question, 2.5e12),
            (question.model_copy(update={"store": "express"}), 2.5e12),
        )
    ]
    assert [one.confidence for one in found] == ["measured", "near", "uncertain"]
    assert not found[0].case_file and "profile: express" in found[2].case_file
    for one in found:
        assert (ROOT / "results" / "reference" / f"{one.case}.csv").exists()
        assert "Zarr through s3fs takes " in one.why and one.why.count(" takes ") == 1


def test_a_trial_leaves_its_own_case_out() -> None:
    """What a case says is judged by the others: two that agree are right, one that differs is not."""
    rows = [
        take(seconds, name, case=case)
        for case, fast in (("a/one", "x"), ("a/two", "x"), ("a/three", "y"))
        for name, seconds in (("x", 1.0 if fast == "x" else 3.0), ("y", 2.0))
    ]
    found = {one.case: one for one in trial.try_clients(rows)}
    assert found["a/three"].chosen == "x" and found["a/three"].ratio == pytest.approx(1.5)
    assert found["a/three"].best == "y" and not found["a/three"].unseen
    assert len(found) == 3


def test_what_is_left_open_earns_nothing() -> None:
    """Of two that are expected to take as long, the slower is judged, and said to be seen nowhere else."""
    rows = [take(1.0), take(2.0, "y")]
    (found,) = trial.try_clients(rows)
    assert (found.chosen, found.best, found.ratio) == ("y", "x", 2.0)
    assert {*found.unseen} == {"x", "y"} and found.by_chance == 0.5


def test_a_tie_is_told_and_counted_apart() -> None:
    """Pairs within blocks that lie on both sides of 1 tell nothing; medians are judged all the same."""
    rows = [take(1.0), replace(take(1.3, "y"), blocks=(1.5, 0.8, 1.4, 0.9, 1.3), n_requests=9)]
    (tied,) = trial.try_clients(rows)
    assert tied.chosen == "y" and tied.is_tied and not tied.is_within
    clear = replace(tied, pairs=replace(tied.pairs, low=1.1))
    found = trial.score([tied, clear, replace(tied, pairs=replace(tied.pairs, low=math.nan))])
    assert (found.n_within, found.n_tied, found.n_best) == (0, 1, 0)
    assert found.without[0] < 1  # without one of its slow blocks it may be the faster


def test_boxes_are_counted_one_by_one() -> None:
    """The median of all boxes is predicted: between those that ask for other things, without a leap at half."""
    whole, in_parts = [1.0, 4.0, 2e6, 1.0, 1.0, 0.0, 0.0], [1.0, 2.0, 1e6, 1.0, 3.0, 0.0, 2.0]
    row = replace(ROW, settings={"concurrency": 10}, point={"medium": "sharded"})
    alone, other, fewer, more = (
        trial.predict_box(replace(row, asked=asked))
        for asked in (
            [in_parts],
            [whole],
            [[49.0, *in_parts[1:]], [51.0, *whole[1:]]],
            [[51.0, *in_parts[1:]], [49.0, *whole[1:]]],
        )
    )
    least, most = sorted((alone, other))
    assert least < fewer < most and least < more < most
    assert more == pytest.approx(fewer, rel=0.05) and most > 1.2 * least
    counted = [row for row in evidence.load().rows if row.asked]
    assert {row.point["medium"] for row in counted} == {"zarr", "sharded"}
    for one in counted:
        assert sum(times for times, *_ in one.asked) == one.n


def test_every_committed_case_over_a_network_is_tried() -> None:
    """All trials have a measured best, and the page says what came out."""
    trials = trial.try_all()
    assert len(trials) > 30 and all(one.ratio >= 1 for one in trials)
    assert {one.about.partition(",")[0] for one in trials} == {"chunk shape", "client"}
    text = page.render_trial()
    found = trial.score(trials)
    assert ("kept" if found.within >= trial.TARGET else "missed") in text
    assert f"at {100 * found.within:.0f} %, {found.n_within} of {found.n}." in text
    assert f"with these it is {found.n_within + found.n_tied} of {found.n}." in text
    assert found.n_best <= found.n_within <= found.n_within + found.n_tied <= found.n


def test_the_page_includes_what_is_computed() -> None:
    """Every fragment is declared by a study and included by the page, and shows its question."""
    declared = find_studies()["chunk-shape"].fragments
    text = (ROOT / "decide.md").read_text(encoding="utf-8")
    assert set(re.findall(r"_generated/(decide-[\w-]+\.md)", text)) == {
        one for one in declared if one.startswith("decide-")
    }
    for name in ("fields", "granules", "tiles", "loader"):
        shown = declared[f"decide-{name}.md"]()
        assert "$ wire decide --shape" in shown and "```python" in shown
        assert "| 1 |" in shown and "First choice: " in shown
    table = declared["decide-needs.md"]()
    rows = [
        line.split(" | ")
        for line in table.splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    assert len(rows) == 2 * (len(page.QUESTIONS) + 1)
    assert all("Bottleneck: " in cells[1] and "`" in cells[2] for cells in rows if len(cells) == 3 and cells[0] != "| need")  # fmt: skip
