"""What each opening requests, over a store that counts, and that all of them lead to the same values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pandas as pd
import pytest

from helpers.benchmark.contender import CheckError
from studies.opening_trees import findings
from studies.opening_trees.openings import OPENINGS, choose_fields
from studies.opening_trees.parameters import Parameters
from studies.opening_trees.workload import FIELD, StoredTrees, TreeOpening, write_trees
from tests.refusals import refused
from tests.stores import make_location
from wire.bed.networks import FirstByte, Profile, get_profile
from wire.bed.proxy import open_proxy
from wire.bed.testbed import Server, Testbed

N_SWEEPS, N_COORDINATES = 3, 5


@pytest.fixture(scope="module")
def place(server: Server) -> Iterator[tuple[StoredTrees, Testbed]]:
    """Write small trees, and serve them through a proxy that counts."""
    location = make_location(server, "opening-trees")
    sizes = {"n_sweeps": N_SWEEPS, "n_coordinates": N_COORDINATES, "n_azimuths": 8, "n_ranges": 10}
    with ExitStack() as stack:
        proxy = stack.enter_context(
            open_proxy(server.endpoint_url, profile=get_profile("loopback"))
        )
        testbed = Testbed(location, location.through(proxy.endpoint_url), proxy)
        yield write_trees(location, sizes | {"seed": 1}), testbed


@pytest.mark.parametrize("name", OPENINGS)
def test_an_opening_waits_as_often_and_reads_what_was_written(
    name: str, place: tuple[StoredTrees, Testbed]
) -> None:
    """The field that is read after it has its values, coordinates, times and indexes."""
    steps = TreeOpening(OPENINGS[name], *place)
    steps.enter_block(0)
    steps.prepare()
    opened = steps.open()
    dataset = choose_fields(opened, steps.group, [FIELD]).load()
    counts = steps.collect()
    assert steps.check(dataset) == "xxh3 of DBZH with its coordinates"
    assert {*dataset[FIELD].dims} <= {*dataset.xindexes}
    n_waits = OPENINGS[name].count_waits(N_SWEEPS, N_COORDINATES)
    if not np.isnan(n_waits):  # the first wait is for the metadata of four formats at once
        assert counts["n_requests"] == n_waits + 3
    else:  # each group and array is looked up by itself
        assert counts["n_requests"] > 4 * 3 * N_SWEEPS
    starts = counts["start_ms"]
    assert isinstance(starts, list) and len(starts) == counts["n_requests"] and starts[0] == 0


def test_other_values_are_found(place: tuple[StoredTrees, Testbed]) -> None:
    """A field that differs in one element is an error, and no row."""
    steps = TreeOpening(OPENINGS["tree-lazy"], *place)
    steps.prepare()
    dataset = choose_fields(steps.open(), steps.group, [FIELD]).load()
    dataset[FIELD].values[0, 0] += 1
    with pytest.raises(CheckError, match="other values"):
        steps.check(dataset)


def test_an_unknown_opening_is_refused() -> None:
    """The baseline of every ratio must be there, and no other name may."""
    with refused("case: openings"):
        Parameters.check({"openings": ["tree-lazy"]}, "case")
    with refused("case: openings"):
        Parameters.check({"openings": ["tree", "shrub"]}, "case")


def make_rows(seconds: dict[str, float], phase: str = "measured") -> pd.DataFrame:
    """Make rows of five blocks that spread a little, with a second copy of the default."""
    lines = []
    for block, factor in enumerate((1.0, 1.02, 0.98, 1.01, 0.99)):
        for name, open_s in (seconds | {"control": seconds["tree"]}).items():
            counts = f'{{"n_waits": {13 if name == "tree" else 1}, "n_in_flight": 4}}'
            lines.append(
                {
                    "contender": name,
                    "control_of": "tree" if name == "control" else "",
                    "phase": phase,
                    "block": block,
                    "n_requests": 16.0,
                    "wire_nbytes": 1e6,
                    "open_s": open_s * (factor if name != "control" else factor**2),
                    "read_s": 0.1,
                    "trace": counts,
                }
            )
    return pd.DataFrame(lines)


def test_gains_are_those_of_the_slower_over_the_faster() -> None:
    """What was not measured is not compared, and reading the sweep afterwards is in the total."""
    rows = findings.prepare_rows(make_rows({"tree": 4.0, "tree-lazy": 0.4}))
    opening, total = (findings.compare_openings(rows, value) for value in ("open_s", "total_s"))
    assert [*opening] == ["tree-gain"]
    assert opening["tree-gain"].ratio.centre == pytest.approx(10)
    assert total["tree-gain"].ratio.centre == pytest.approx(4.1 / 0.5, rel=0.02)
    claims = findings.list_claims(opening, rows)
    assert {key: bool(claim.holds) for key, claim in claims.items()} == {
        "tree-gains": True,
        "one-wait": True,
    }
    assert 0 < findings.find_noise(rows, "control") < 0.02


def test_predicted_seconds_are_a_latency_for_each_wait() -> None:
    """Four seconds without a network and thirteen waits of 100 ms."""
    network = Profile("example", first_byte_s=FirstByte(median_s=0.1, p95_s=0.2))
    rows = make_rows({"tree": 4.0}, "calibration")
    seconds = findings.predict_seconds(rows, network, n_sweeps=3, n_coordinates=5)
    assert seconds[OPENINGS["tree"].label] == pytest.approx(4.0 + 1.3)
    assert np.isnan(findings.find_noise(make_rows({"tree": 1.0}), "nobody"))
