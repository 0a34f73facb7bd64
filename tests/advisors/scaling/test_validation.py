"""The simulation beside records: beyond their calibration, and in dilated time."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from advisors.scaling import validation
from advisors.scaling.cluster import Cluster, simulate_cluster
from helpers.models.transfer import Client, Network, simulate
from helpers.netem.profiles import get_profile
from helpers.paths import ROOT

RECORDS = ROOT / "results" / "reference" / "cluster-scaling"


def test_the_smallest_cluster_alone_predicts_larger_ones(tmp_path: Path) -> None:
    """Only clusters beyond it are predicted, of every record that lies in the folder."""
    name = "wide-area.csv"
    shutil.copy(RECORDS / name, tmp_path)
    beyond = validation.check_records(tmp_path, is_beyond=True)
    assert {each.n_workers for each in beyond} == {8}
    measured = {
        (each.contender, each.measured_s) for each in validation.check_record(RECORDS / name)
    }
    assert {(each.contender, each.measured_s) for each in beyond} <= measured
    told = "\n".join(validation._tell_beyond(tmp_path))
    assert f"| wide-area | 8 | {validation._median_error(beyond):.1f} |" in told
    assert "kept for each" in told or "missed for wide-area" in told


def test_clusters_that_grow_are_taken_up_when_they_were_measured(tmp_path: Path) -> None:
    """Of such a record each size is predicted from what it took without a network; a long read is not."""
    path, profile = tmp_path / "growth.csv", get_profile("in-region")
    assert validation.check_growth(path) == []
    client = Client(5e6, connections_per_worker=2, cpu_s_per_chunk=0.02, is_overlapped=True)
    lines = [
        "contender,n_workers,threads,profile,dilation,read_s,processors,wire_nbytes,n_requests,n_chunks,n_cores"
    ]
    for n, dilation in ((5, 5), (20, 20), (8, 1)):
        n_chunks = 10 * n
        free_s = simulate(Network(), client, n_chunks, n_workers=n, n_cores=2, seed=0)
        read_s = simulate_cluster(
            profile, client, Cluster(n, math.inf, 2, rtt_s=0.0), n_chunks
        ).seconds
        lines.append(
            f"raw,{n},{2 * n},in-region,{dilation},{read_s},{free_s / read_s},{5e6 * n_chunks},{n_chunks},{n_chunks},2"
        )
    path.write_text("\n".join(lines), encoding="utf-8")
    found = validation.check_growth(path)
    assert [(each.case, each.n_workers, each.dilation) for each in found] == [
        ("growth", 5, 5),
        ("growth", 20, 20),
    ]
    assert all(abs(each.error) < 0.1 for each in found)


@pytest.mark.parametrize(
    ("sizes", "predicted_s", "told"),
    [
        ((4, 8), 1.05, "4 to 8 workers the median is 5.0 %; our target of 10 % is kept, as far"),
        ((1, 64), 1.05, "1 to 64 workers the median is 5.0 %; our target of 10 % is kept."),
        ((1, 64), 0.8, "is missed."),
    ],
)
def test_dilated_clusters_are_held_to_their_target(
    sizes: tuple[int, ...], predicted_s: float, told: str
) -> None:
    """Records whose time is not dilated do not count, and what was not measured is said."""
    checks = [validation.Check("far", "x", n, predicted_s, 1.0, 8.0) for n in sizes]
    assert told in validation._tell_dilated([*checks, validation.Check("near", "x", 2, 9.0, 1.0)])
    assert "No cluster" in validation._tell_dilated([validation.Check("near", "x", 2, 9.0, 1.0)])


def test_what_is_left_of_the_knee_is_a_range_only_where_it_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two shares that are rounded alike are told once."""
    for documented_s, told in ((11.8, "What is left, 82 %, is"), (13.0, "left, 70 to 82 %, is")):
        knee = validation.Knee(396, 20.0, 10.0, 11.0, 11.8, documented_s)
        monkeypatch.setattr(validation, "explain_knee", lambda knee=knee: knee)
        assert told in validation.render_knee()
