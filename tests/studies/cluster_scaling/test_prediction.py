"""Predictions of cluster scaling: what a calibration says of connections, and of processors."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from helpers.arrays.readers import READERS
from studies.cluster_scaling import prediction
from studies.cluster_scaling.prediction import choose_dilation, find_share
from tests.refusals import refused
from wire.bed.networks import FirstByte, Profile, get_profile
from wire.models.transfer import ClientModel

STEADY = Profile("steady", FirstByte(0.1, 0.1))
SLOW, QUICK = ClientModel(1.0, cpu_s_per_chunk=0.1), ClientModel(1.0, cpu_s_per_chunk=0.01)
CLIENTS = {"slow": SLOW, "quick": QUICK}


def test_the_smallest_dilation_at_which_processors_have_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a tenth of a second in a fifth processors have half; of k times less they have 1 / (k + 1)."""
    for k in (1, 4):
        found = find_share(CLIENTS, STEADY, {1: 10}, dilation=k)
        assert found == (pytest.approx(1 / (k + 1)), "slow")
    for share, k in ((0.6, 1), (0.3, 3), (0.051, 19), (0.049, 20)):
        monkeypatch.setattr(prediction, "MOST_SHARE", share)
        assert choose_dilation(CLIENTS, STEADY, {1: 10}) == k
    monkeypatch.setattr(prediction, "MOST_SHARE", 1e-6)
    with refused("dilation", "^auto; .* even at 8192", "a network"):
        choose_dilation(CLIENTS, STEADY, {1: 1})


def test_what_all_share_ends_growth() -> None:
    """Ten requests a second of each worker meet a rate of 100 at ten, so at sixteen; none meets none."""
    limited = replace(STEADY, requests_per_s=100)
    assert prediction.find_end(SLOW, limited, n_chunks=8) == (16, "request rate")
    assert prediction.find_end(SLOW, STEADY, n_chunks=8, most=4) is None


def test_a_case_may_leave_its_dilation_open() -> None:
    """What is given stays; otherwise it is chosen, and clients are told in the network's seconds."""
    assert prediction.settle_dilation(4.0, CLIENTS, STEADY, {1: 10}) == (4.0, CLIENTS)
    k, faster = prediction.settle_dilation("auto", CLIENTS, STEADY, {1: 10})
    assert k == choose_dilation(CLIENTS, STEADY, {1: 10}) and k in (4, 5)
    assert [one.cpu_s_per_chunk * k for one in faster.values()] == pytest.approx([0.1, 0.01])


@pytest.mark.parametrize(("n_opened", "opens"), [(8, 1.0), (0, 0.0), (None, 0.0)])
def test_new_connections_cost_what_the_profile_says(n_opened: int | None, opens: float) -> None:
    """A reader that opens one for each thread pays for it once a read; one that keeps them does not."""
    row = {
        "contender": "zarr-obstore", "phase": "calibration", "n_workers": 4, "concurrency": 8,
        "n_requests": 80, "wire_nbytes": 80e6, "stored_nbytes": 80e6, "read_s": 0.5,
        "trace": json.dumps({} if n_opened is None else {"n_new_connections": n_opened}),
    }  # fmt: skip
    clients = prediction.read_clients(pd.DataFrame([row]), READERS, n_chunks=80)
    assert clients["zarr-obstore"].new_connections == opens
    profile = get_profile("other-region")
    bare: dict[str, Any] = dict.fromkeys(
        ("round_trip_s", "setup_round_trips", "initial_window_nbytes")
    )
    shares = [
        find_share(clients, replace(profile, **less), {4: 80}, dilation=1) for less in ({}, bare)
    ]
    assert (shares[0] < shares[1]) == bool(opens)
