"""What a page of formats computes from rows."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import matplotlib.style
import pandas as pd
import pytest
from matplotlib.figure import Figure

from helpers.benchmark import ranking, statistics
from helpers.netem.profiles import get_profile
from helpers.paths import ROOT
from helpers.plotting.palette import STYLE
from studies.formats import figures, findings, prediction
from studies.formats.memory import Held

TIMES = {
    "zarr-obstore": [1.0, 1.1, 1.0, 1.05, 1.0],
    "control": [1.02, 1.08, 1.01, 1.04, 1.0],
    "zarr-direct": [0.5, 0.52, 0.5, 0.51, 0.5],
    "csv-pandas": [9.0, 9.1, 9.2, 9.0, 9.1],
    "parquet-pandas": [3.0, 3.1, 3.0, 3.0, 3.1],
    "raw": [0.4, 0.41, 0.4, 0.4, 0.4],
}


def make_rows(phase: str = "measured", open_s: float = 0.2) -> pd.DataFrame:
    """Make rows of five blocks of the whole array."""
    lines = [
        {
            "phase": phase,
            "case": "x",
            "block": block,
            "point": '{"access":"whole"}',
            "access": "whole",
            "contender": name,
            "control_of": "zarr-obstore" if name == "control" else "",
            "is_ceiling": name == "raw",
            "open_s": open_s,
            "read_s": read_s,
            "array_nbytes": 1e8,
            "stored_nbytes": 5e7,
            "wire_nbytes": 5e7,
            "n_requests": 20,
            "concurrency": 4,
            "trace": json.dumps({"n_open_requests": 2, "cpu_s": 0.3}),
            "machine": json.dumps({"n_cores": 2, "cpu": "a processor"}),
        }
        for name, times in TIMES.items()
        for block, read_s in enumerate(times)
    ]
    return findings.add_totals(statistics.add_throughputs(pd.DataFrame(lines)))


def test_opening_counts() -> None:
    """What is judged is opening and reading."""
    rows = make_rows()
    assert (rows["total_s"] - rows["read_s"]).tolist() == pytest.approx([0.2] * len(rows))


def test_our_own_paths_are_left_out_of_what_can_be_installed() -> None:
    """They win here, and the page says so apart."""
    whole = findings.select(make_rows(), "whole")
    judged = {"control": "control", "value": "total_s"}
    assert ranking.rank(whole, **judged).best == "zarr-direct"
    installable = ranking.rank(findings.installable(whole), **judged)
    assert installable.best == "zarr-obstore"
    assert len(findings.tabulate_ranks(installable, ranking.rank(whole, **judged))) == 2
    assert len(findings.tabulate_ranks(installable, installable)) == 1, "once, where ours is not"


def test_pairs_are_those_named_beforehand() -> None:
    """Only those of which both were measured; a true factor of three is told apart."""
    pairs = findings.compare_pairs(findings.select(make_rows(), "whole"), control="control")
    assert [*pairs] == ["csv-over-parquet"]
    assert pairs["csv-over-parquet"].verdict == "slower"
    assert findings.tell_comparison(pairs["csv-over-parquet"]).startswith("2.8")
    table, rows = findings.tabulate_pairs(pairs), (ROOT / "formats.md").read_text().splitlines()
    assert [*table.index] == ["csv-pandas over parquet-pandas"], "both sides in full"
    for key, pair in findings.CLAIMS.items():
        for row in (row for row in rows if row.endswith(f"::{key}:s` |")):
            assert f"`{pair[0]}` over `{pair[1]}`" in row


def test_claims_of_2022_are_judged_by_their_pairs() -> None:
    """A factor of three is far above, and so it is not close; what was not measured is no line."""
    pairs = findings.compare_pairs(findings.select(make_rows(), "whole"), control="control")
    claims = findings.judge_claims(pairs)
    assert claims["verdict"].tolist() == ["holds", "does not hold"]
    assert claims["ours"].str.startswith("one process: 2.8").all()
    assert findings.judge_claims({}).empty


def test_a_mix_is_the_mean_time_of_an_access() -> None:
    """Block by block, so a contender that is quick at steps alone is not the fastest of series."""
    rows = make_rows()
    step, series = (rows.assign(access=one, point=one) for one in findings.MIXED[::-1])
    is_table = series["contender"] == "parquet-pandas"
    step.loc[is_table, "total_s"], series.loc[is_table, "total_s"] = 0.1, 9.0
    assert findings.rank_mixes(step, control="control") == {}
    both = pd.concat([step, series], ignore_index=True)
    mixed = findings.mix(both, 0.8).set_index("contender")
    assert mixed.loc["parquet-pandas", "total_s"].tolist() == pytest.approx([7.22] * 5)
    mixes = findings.rank_mixes(both, control="control")
    assert {one.best for one in mixes.values()} == {"zarr-obstore"}, "ours is left out"
    heads = [table.index.name for table in findings.tabulate_mixes(mixes)]
    assert heads == ["as many series as steps (50:50)", "four series to a step (80:20)"]


def test_tables_hold_each_contender_once() -> None:
    """Medians of all accesses in one; what it costs beside its time in another, told by its ends."""
    rows = make_rows()
    of_step = rows.assign(point='{"access":"step"}', access="step", total_s=0.1, wire_nbytes=1e6)
    table = findings.tabulate(pd.concat([rows, of_step], ignore_index=True))
    assert table.index[0] == "raw" and "control" not in table.index
    assert table.loc["csv-pandas", "MB sent"] == 50
    assert table.loc["csv-pandas", "processor seconds a GB"] == pytest.approx(3)
    assert (table["seconds a step"] == 0.1).all() and (table["MB sent a step"] == 1).all()
    assert "MB sent a step" not in findings.tabulate(rows)
    stored = SimpleNamespace(nbytes=1e8)
    kept: Any = SimpleNamespace(
        stored=stored, nbytes={"zarr": 5e7, "csv": 3e8, "references": 1e4, "netcdf": 6e7}
    )
    written = pd.DataFrame(
        {"access": "write", "contender": ["zarr", "csv", "references"], "read_s": [1.0, 8.0, 0.01]}
    )
    held = {"zarr-obstore": Held(130_000_000), "csv-pandas": Held(700_000_000)}
    held |= {"references-obstore": Held(200_000_000), "zarr-direct": Held(100_000_000)}
    costs = findings.tabulate_costs([*held], kept, written, held, n=4)
    assert costs.loc["references-obstore", "stored MB"] == 60.01, "with the file they lead to"
    assert costs["seconds to write"].tolist() == [1.0, 8.0, 0.01, 1.0]
    assert costs["memory over values"].tolist() == [1.3, 7.0, 2.0, 1.0]
    told = findings.tell_costs(costs)
    expected = "1.3 (zarr-obstore) to 7 (csv-pandas) times the values"
    assert told["memory-range"] == expected, "ours is no choice"
    assert told["write-range"] == "1 (zarr) to 8 (csv) s", "references hold no values"


def test_prediction_waits_for_the_network() -> None:
    """Requests in turn while opening, and by connections while reading; nothing is free."""
    calibrated = make_rows(phase="calibration").groupby("contender").head(1)
    profile = get_profile("in-region")
    assert profile.first_byte_s is not None
    expected = prediction.predict(calibrated, profile).set_index("contender")
    least_s = 0.2 + 2 * profile.first_byte_s.median_s + 5 * profile.first_byte_s.median_s
    assert (expected["total_s"] > least_s).all()
    assert expected.loc["csv-pandas", "total_s"] > 9
    errors = prediction.compare_predictions(make_rows(), expected.reset_index())
    assert {"contender", "relative_error"} <= {*errors}


def test_figures_show_every_contender() -> None:
    """A row each, with names, and nothing but the ceiling without one."""
    rows = make_rows()
    expected = prediction.predict(
        make_rows(phase="calibration").groupby("contender").head(1), get_profile("in-region")
    )
    with mpl.rc_context():
        mpl.style.use(STYLE)
        ax = Figure().subplots()
        figures.draw_times([ax], rows, expected, ["whole"])
        shown = [label.get_text() for label in ax.get_yticklabels()]
        assert shown == ["zarr-direct", "zarr-obstore", "parquet-pandas", "csv-pandas"]
        assert "second" in ax.get_xlabel()
        errors = prediction.compare_predictions(rows, expected)
        figures.draw_errors(ax, errors)
        assert ax.get_legend() is None, "of what is not drawn nothing is said"
        figures.draw_errors(ax, pd.concat([errors, errors.assign(access="step")]))
        ax.figure.draw_without_rendering()
        legend: Any = ax.get_legend()
        assert legend.get_window_extent().y0 >= ax.get_window_extent().y1


def test_findings_are_words() -> None:
    """Every key has a text, and the headline is what can be installed."""
    rows = make_rows()
    whole, judged = findings.select(rows, "whole"), {"control": "control", "value": "total_s"}
    errors = pd.DataFrame({"relative_error": [0.1, -0.3]})
    ranks = ranking.rank(findings.installable(whole), **judged), ranking.rank(whole, **judged)
    pairs = findings.compare_pairs(whole, control="control")
    found = findings.find_all(
        rows, errors, *ranks, pairs, mixes={}, profile=get_profile("in-region")
    )
    assert found["fastest-installable"] == "zarr-obstore"
    assert found["fastest-of-all"] == "zarr-direct"
    assert found["verdict"].startswith(
        "Of what can be installed, zarr-obstore is the fastest: it opens"
    )
    assert found["median-prediction-error"] == "20 %"
    assert all(isinstance(text, str) and text for text in found.values())


@pytest.mark.parametrize(
    ("share", "verdict"),
    [
        ("1.06 (1.01 to 1.21)", "met"),
        ("0.8 (0.6 to 0.9)", "missed"),
        ("0.8 (0.6 to 1.5)", "undecided"),
        ("1.2", "undecided"),  # without an interval
        (None, None),  # no network is emulated
    ],
)
def test_a_client_is_held_to_raw_reads_by_its_whole_interval(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, share: str | None, verdict: str | None
) -> None:
    """Beside it stands how much of the link the raw reads fill: here 100 of 200 MB/s."""
    (tmp_path / "formats").mkdir()
    rows = make_rows().assign(wire_nbytes=4e7)
    rows.to_csv(tmp_path / "formats" / "in-region.csv")
    glued = {"best-installable": "zarr-obstore"} | ({"share-of-ceiling": share} if share else {})
    monkeypatch.setattr(findings.published, "REFERENCE", tmp_path)
    monkeypatch.setattr(findings.published, "read_findings", lambda _title: glued)
    *_, last = findings.render_ceilings().splitlines()
    expected = f"| in region | 0.5 | zarr-obstore | {share} | {verdict} |"
    assert last == (expected if verdict else "| --- | --- | --- | --- | --- |")
