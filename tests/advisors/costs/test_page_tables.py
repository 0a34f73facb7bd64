"""What a case requests of a store is counted, and scaled to others."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from advisors.costs.page_tables import REFERENCE, count_run, find_runs, render_runs
from helpers.benchmark.record import read_records
from helpers.book.studies import find_studies, find_study


def test_requests_of_opening_count_and_pauses_do_not() -> None:
    """Of three reads, two in a row, one after a long pause; what was not traced counts nothing."""
    starts = ["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T05:00:00Z"]
    rows = pd.DataFrame(
        {
            "started_utc": starts,
            "open_s": 1.0,
            "read_s": 5.0,
            "n_requests": [10, 20, None],
            "wire_nbytes": [1e9, 2e9, None],
            "trace": [json.dumps({"n_open_requests": 4}), "{}", "{}"],
        }
    )
    found = {"reads": 3, "requests": 34, "gb": 3.0, "minutes": 1.1}
    assert count_run(rows) == pytest.approx(found)


def test_every_published_case_over_a_network_is_priced() -> None:
    """Reading from outside the region costs more than from inside."""
    text = render_runs()
    titles = {f"{path.parent.name}/{path.stem}" for path in find_runs()}
    shown = {line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()[2:]}
    assert shown <= titles
    assert {"cluster-scaling/in-region", "hdf5-drivers/in-region"} <= shown
    for line in text.splitlines()[2:]:
        inside, outside = (float(cell) for cell in line.strip("| ").split(" | ")[-2:])
        assert 0 <= inside < outside


@pytest.mark.parametrize(
    ("title", "most"), [("cluster-scaling/wide-area", 1.25), ("hdf5-drivers/layouts", 3)]
)
def test_what_is_expected_of_a_case_is_what_it_asked_for(title: str, most: float) -> None:
    """Scaled from one published case, the requests and bytes of others are near, or above."""
    rows = read_records([REFERENCE / f"{title}.csv"])
    n_blocks = int(rows.loc[rows["phase"] == "measured", "block"].max()) + 1
    expected = find_study(title.partition("/")[0]).expect
    assert expected is not None
    found = expected(json.loads(rows["parameters"].iloc[0]) | {"n_blocks": n_blocks})
    asked = count_run(rows)
    assert 0.75 * asked["requests"] <= found.n_requests <= most * asked["requests"]
    assert 0.75 * asked["gb"] <= found.gb <= most * asked["gb"]
    assert 0 < found.usd_in_region < found.usd_outside


PRICED = [name for name, study in find_studies().items() if study.expect is not None]


@pytest.mark.parametrize("name", PRICED)
def test_every_study_says_what_it_requests(name: str) -> None:
    """A case on a store of one's own has its price first; nearly twice that for twice the blocks."""
    study = find_study(name)
    assert study.expect is not None
    given = study.parameters().model_dump() | {"store": "s3://b/p"}
    one, two = (study.expect(given | {"n_blocks": n}) for n in (5, 10))
    if one.n_requests:  # chunk shapes are read from a disk by default
        assert 1.5 < two.n_requests / one.n_requests < 2.01
        assert 1.5 < two.gb / one.gb < 2.01 and one.usd_in_region < one.usd_outside
