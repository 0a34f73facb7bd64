"""What answers rest on: gathered from the records, told beside the answer, and put on trial."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from advisors.decide import evidence, page, trial
from advisors.decide.evidence import Evidence, Group, Measured, list_groups, rank_clients
from advisors.decide.question import Question
from advisors.decide.snippets import CLIENTS
from advisors.decide.support import find_support
from helpers.book.studies import find_studies
from helpers.errors import UserError
from helpers.paths import ROOT

ROW = Measured("a/one", "in-region", "x", {"n_workers": 2}, 1.0, 1.2, 0.1, 5, 1e6)


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
    assert [set(one.seconds) for one in groups] == [{"file", "references"}, {"file"}]
    assert groups[0].seconds["references"] == pytest.approx(0.5)  # with its opening


def test_clients_are_ranked_by_what_they_took_beside_each_other() -> None:
    """One that was alone, or is not asked for, ranks nobody."""
    groups = [
        Group("a/one", "near", "", {"x": 1.0, "y": 2.0, "z": 0.1}),
        Group("a/two", "near", "", {"x": 9.0}),
    ]
    ranked = rank_clients(groups, ["x", "y"])
    assert [(one.client, one.ratio) for one in ranked] == [("x", 1.0), ("y", pytest.approx(2.0))]
    assert ranked[0].cases == ("a/one",)


def test_support_depends_on_network_and_size() -> None:
    """The same client is measured over its own network, and uncertain over another with other sizes."""
    question = Question.ask(shape="8760,100,120")
    clients = ["zarr-obstore", "zarr-s3fs"]
    found = [
        find_support(question, clients, [2.5e6]),
        find_support(question, clients, [2.5e12]),
        find_support(question.model_copy(update={"store": "express"}), clients, [2.5e12]),
    ]
    assert [one.confidence for one in found] == ["measured", "near", "uncertain"]
    assert not found[0].case_file and "profile: express" in found[2].case_file
    for one in found:
        assert (ROOT / "results" / "reference" / f"{one.case}.csv").exists()


def test_a_trial_leaves_its_own_case_out() -> None:
    """What a case says is judged by the others: two that agree are right, one that differs is not."""
    rows = [
        replace(ROW, case=case, contender=name, p50_s=seconds)
        for case, fast in (("a/one", "x"), ("a/two", "x"), ("a/three", "y"))
        for name, seconds in (("x", 1.0 if fast == "x" else 3.0), ("y", 2.0))
    ]
    found = {one.case: one for one in trial.try_clients(Evidence(tuple(rows), {}))}
    assert found["a/three"].chosen == "x" and found["a/three"].ratio == pytest.approx(1.5)
    assert found["a/three"].best == "y"
    assert len(found) == 3


def test_boxes_are_counted_one_by_one() -> None:
    """The median box is predicted, not the mean of boxes that ask for other things; counts are the trace's."""
    whole, in_parts = [1.0, 4.0, 1e6, 1.0, 1.0, 0.0, 0.0], [1.0, 2.0, 1e6, 1.0, 3.0, 0.0, 2.0]
    row = replace(ROW, settings={"concurrency": 10}, point={"medium": "sharded"})
    alone, mixed = (
        trial.predict_box("in-region", replace(row, asked=asked))
        for asked in ([in_parts], [[2.0, *in_parts[1:]], whole])
    )
    assert mixed == pytest.approx(alone)
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
    share = trial.score(trials).within
    assert ("kept" if share >= trial.TARGET else "missed") in text
    assert f"at {100 * share:.0f} %" in text


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
