"""What the page of other clouds says is judged by rows, and left out where a client was not measured."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from helpers.findings import Finding
from studies.hdf5_drivers import other_clouds
from studies.hdf5_drivers.other_clouds import PROVIDERS


def make_rows(times_s: dict[str, float]) -> pd.DataFrame:
    """Make a record of five blocks of reads that take these times, with a copy of the last."""
    reads = [*times_s, "control"]
    last = reads[-2].partition(" on ")[0]
    lines = [
        {
            "contender": read.partition(" on ")[0],
            "layout": "original",
            "task": "variables",
            "phase": "measured",
            "control_of": last if read == "control" else "",
            "block": block,
            "open_s": 0.0,
            "read_s": times_s.get(read, times_s[reads[-2]]) * (1 + 0.01 * (block % 2)),
            "trace": json.dumps({}),
        }
        for block in range(5)
        for read in reads
    ]
    return pd.DataFrame(lines)


TIMES_S = {"default": 9.0, "blocks": 3.0, "whole": 1.0}


@pytest.mark.parametrize("clients", [["s3fs"], ["s3fs", "gcsfs"], [*PROVIDERS]])
def test_clients_are_compared_as_far_as_measured(clients: list[str]) -> None:
    """Each default over its blocks and its download, and over that of s3fs."""
    times_s = {
        read: TIMES_S[way] * (2 if client == "gcsfs" else 1)
        for client in clients
        for way, read in PROVIDERS[client].items()
    }
    found = other_clouds.compare_ways(make_rows(times_s))
    assert {key.partition("-")[0] for key in found} == {*clients}
    for client in clients:
        assert found[f"{client}-over-blocks"].value == pytest.approx(3)
        assert found[f"{client}-over-whole"].value == pytest.approx(9)
    counts = {
        name: Finding(number)
        for name, number in {"gcsfs-default-requests": 831, "s3fs-default-requests": 17}.items()
    }
    claims = other_clouds.judge_claims(found | counts)
    assert all(claim.holds for claim in claims.values())
    assert ("gcsfs-slower" in claims) == ("gcsfs" in clients)
    if "gcsfs" in clients:
        assert found["gcsfs-over-s3fs"].value == pytest.approx(2)


def test_a_default_that_is_no_slower_is_no_claim() -> None:
    """Where blocks gain nothing, the sentence does not hold."""
    ways = PROVIDERS["s3fs"]
    found = other_clouds.compare_ways(make_rows(dict.fromkeys(ways.values(), 1.0)))
    claims = other_clouds.judge_claims(found)
    assert not claims["s3fs-blocks-gain"].holds and not claims["s3fs-whole-gains"].holds
