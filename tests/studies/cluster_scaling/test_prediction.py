"""Predictions of cluster scaling: what a calibration tells of connections, and of processors."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from helpers.arrays.readers import READERS
from helpers.benchmark.record import read_records
from helpers.errors import UserError
from helpers.models.transfer import Client
from helpers.netem.profiles import FirstByte, Profile, get_profile
from helpers.paths import ROOT
from studies.cluster_scaling import prediction
from studies.cluster_scaling.figures import tabulate_requests
from studies.cluster_scaling.prediction import choose_dilation, choose_for_record, find_share

RECORD = ROOT / "results" / "reference" / "cluster-scaling" / "in-region-dilated.csv"
STEADY = Profile("steady", FirstByte(0.1, 0.1))
SLOW, QUICK = Client(1.0, cpu_s_per_chunk=0.1), Client(1.0, cpu_s_per_chunk=0.01)


def test_the_smallest_dilation_at_which_processors_have_little() -> None:
    """Of a tenth of a second in a fifth processors have half; of k times less they have 1 / (k + 1)."""
    clients = {"slow": SLOW, "quick": QUICK}
    for k in (1, 4):
        found = find_share(clients, STEADY, [1], 10, dilation=k)
        assert (found.contender, found.share) == ("slow", pytest.approx(1 / (k + 1)))
    for share, k in ((0.6, 1), (0.051, 19), (0.049, 20)):
        found = choose_dilation(clients, STEADY, [1], 10, most_share=share)
        assert (found.dilation, found.share) == (k, pytest.approx(1 / (k + 1)))


def test_a_case_may_leave_its_dilation_open(tmp_path: Path) -> None:
    """What is given stays; else it is chosen, and a record of it reads like one of the same dilation given."""
    clients = {"slow": SLOW, "quick": QUICK}
    assert prediction.settle_dilation(4.0, clients, STEADY, [1], 10) == (4.0, clients)
    k, faster = prediction.settle_dilation("auto", clients, STEADY, [1], 10)
    assert k == choose_dilation(clients, STEADY, [1], 10).dilation and k in (19, 20)
    assert [one.cpu_s_per_chunk * k for one in faster.values()] == pytest.approx([0.1, 0.01])
    rows = pd.read_csv(RECORD)
    at_first = rows["phase"] == "calibration"
    for name in ("open_s", "read_s"):
        rows.loc[at_first, name] = rows.loc[at_first, f"real_{name}"]
    rows.loc[at_first, "dilation"] = 1
    rows.to_csv(tmp_path / RECORD.name, index=False)
    given, chosen = map(prediction.read_calibrated, (RECORD, tmp_path / RECORD.name))
    assert chosen.dilation == given.dilation and chosen.clients.keys() == given.clients.keys()
    for name, one in given.clients.items():
        assert chosen.clients[name].cpu_s_per_chunk == pytest.approx(one.cpu_s_per_chunk, rel=1e-3)


def test_a_record_tells_its_dilation(capsys: pytest.CaptureFixture[str]) -> None:
    """The committed calibration, made at another dilation, gives one with its share and reader."""
    prediction.main([str(RECORD), "0.1"])
    told = re.fullmatch(
        r"dilation: (\d+); processors then have ([\d.]+)% of the time of ([\w-]+), .*\n",
        capsys.readouterr().out,
    )
    assert told and int(told[1]) >= 1 and float(told[2]) <= 10 and told[3] in READERS


def test_pages_say_the_share_of_processors_and_the_errors_beside_null_models() -> None:
    """The share stands against its bound, and the errors of three models by workers."""
    told = prediction.render_choice(RECORD)
    assert f"with the dilation of {json.loads(_read_case())['dilation']:g} at which" in told
    assert "The bound is 5 %, which is " in told
    errors = prediction.list_errors([RECORD])
    fitted, ignored, shared = (errors[name] for name in prediction._MODELS)
    assert (fitted != ignored).all() and (fitted != shared).any()
    table = prediction.render_errors(RECORD.parent)
    assert "| in region dilated | 8 |" in table and "the model's error is " in table
    assert (
        "held to a median of at most 10 %" in table
        and "the nearest of the three, or as near, at " in table
    )
    medians = pd.DataFrame(
        [(9, 30, 5), (4, 30, 12)], [("in-region", 8), ("wide-area", 2)], [*prediction._MODELS]
    )
    assert prediction._tell_null_models(medians).endswith(
        "at 1 of 2 sizes. A null model is nearer in region with 8 workers (one cost for all 5 %, fitted 9 %)."
    )


def _read_case() -> str:
    return str(read_records([RECORD])["parameters"].iloc[0])


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, math.nan])
def test_shares_are_refused(share: float) -> None:
    """What is no share is refused, and one that no dilation reaches."""
    with pytest.raises(UserError, match="^share: .*; allowed: above 0 and below 1$"):
        choose_dilation({"slow": SLOW}, STEADY, [1], 10, most_share=share)
    with pytest.raises(UserError, match="even at a dilation of 8192; allowed: more than that$"):
        choose_dilation({"slow": SLOW}, STEADY, [1], 1, most_share=1e-6)


@pytest.mark.parametrize("arguments", [[], ["a", "b", "c"], ["a.csv", "many"], ["absent.csv"]])
def test_arguments_are_refused(arguments: list[str]) -> None:
    """What names no record and no share is one line."""
    with pytest.raises(UserError, match=r"^(arguments|share|absent.csv): "):
        prediction.main(arguments)


def test_a_record_without_calibration_is_refused(tmp_path: Path) -> None:
    """Without the rows from which costs are fitted nothing is chosen."""
    lines = RECORD.read_text().splitlines(keepends=True)
    path = tmp_path / "rows.csv"
    path.write_text("".join(line for line in lines if ",calibration," not in line))
    with pytest.raises(UserError, match="^rows.csv: no row of a calibration; allowed: "):
        choose_for_record(path)


def test_new_connections_are_a_column_where_they_were_counted() -> None:
    """A record that counts them shows how many a thread opened; one made before shows what it has."""
    rows = read_records([RECORD])
    kept = [
        {key: n for key, n in json.loads(trace).items() if key != "n_new_connections"}
        for trace in rows["trace"]
    ]
    rows = rows.assign(trace=[json.dumps(trace) for trace in kept])
    before = tabulate_requests(rows, n_chunks=64, n_workers=8)
    assert "new connections a thread" not in before
    counts = 8 * (rows["contender"] != "zarr-s3fs")
    traces = [
        json.dumps({**json.loads(trace), "n_new_connections": int(n)})
        for trace, n in zip(rows["trace"], counts, strict=True)
    ]
    after = tabulate_requests(rows.assign(trace=traces), n_chunks=64, n_workers=8)
    assert after["new connections a thread"].loc[["zarr-s3fs", "zarr-obstore"]].tolist() == [0, 0.5]
    pd.testing.assert_frame_equal(after.drop(columns="new connections a thread"), before)


@pytest.mark.parametrize(("n_opened", "opens"), [(8, 1.0), (0, 0.0), (None, 0.0)])
def test_new_connections_cost_what_the_profile_says(n_opened: int | None, opens: float) -> None:
    """A reader that opens one for each thread pays for it once a read; one that keeps them does not."""
    trace = {} if n_opened is None else {"n_new_connections": n_opened}
    row = {
        "contender": "zarr-obstore",
        "phase": "calibration",
        "n_workers": 4,
        "concurrency": 8,
        "n_requests": 80,
        "wire_nbytes": 80e6,
        "stored_nbytes": 80e6,
        "read_s": 0.5,
        "trace": json.dumps(trace),
    }
    clients = prediction.read_clients(pd.DataFrame([row]), READERS, n_chunks=80)
    assert clients["zarr-obstore"].new_connections == opens
    profile = get_profile("other-region")
    bare = {"round_trip_s": None, "setup_round_trips": None, "initial_window_nbytes": None}
    times_s = [
        find_share(clients, replace(profile, **less), [4], 80, dilation=1) for less in ({}, bare)
    ]
    assert (times_s[0].share < times_s[1].share) == bool(opens)
