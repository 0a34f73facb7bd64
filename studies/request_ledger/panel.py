"""What the page *Your network* draws: requests of the newest clients, and their replay, as its script does it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from statistics import NormalDist

import pandas as pd

from advisors.costs.prices import find_price
from helpers.benchmark.record import read_records
from helpers.models.transfer import Network, Step, replay
from helpers.netem.profiles import get_profile, network_of
from helpers.paths import ROOT
from studies.request_ledger import findings
from studies.request_ledger.environments import read_environments

COMMITTED = ROOT / "results" / "reference" / "request-ledger" / "versions.csv"
PRESETS = ("in-region", "other-region", "wide-area", "express")
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


def replay_evenly(steps: Sequence[Step], network: Network) -> float:
    """Replay requests once, with even draws of the times to first byte; in s."""
    return replay(steps, network, rng=EvenDraws()).seconds


def choose_newest(table: pd.DataFrame) -> pd.DataFrame:
    """Choose the first run of each operation of the newest environment of each client."""
    order = {one.name: i for i, one in enumerate(read_environments())}
    there = table[(table["reason"] == "") & (table["n_requests"] > 0) & (table["block"] == 0)]
    ranks = there["environment"].map(order)
    return there[ranks == ranks.groupby(there["client"]).transform("max")]


def write_data() -> str:
    """Write the data of the page, a script in Markdown; without a record there are no rows."""
    rows = []
    if COMMITTED.exists():
        for line in choose_newest(findings.tabulate(read_records([COMMITTED]))).to_dict("records"):
            gets = line["n_get"] + line["n_head"]
            kept = ("client", "environment", "layout", "operation", "n_requests", "n_waits")
            puts = line["n_requests"] - gets
            rows.append({**{name: line[name] for name in kept}, "gets": gets, "puts": puts}
                        | {"mb": round(line["wire_nbytes"] / 1e6, 3), "steps": list(line["steps"])})  # fmt: skip
    presets = {}
    for name in PRESETS:
        network = network_of(get_profile(name))
        presets[name] = {
            "p50": 1e3 * network.first_byte_median_s,
            "p95": 1e3 * network.first_byte_p95_s,
            "stream": network.stream_nbytes_per_s / 1e6,
            "link": min(network.aggregate_nbytes_per_s / 1e6, 10_000),
        }
    items = {"get": "store_gets_1e3", "put": "store_lists_1e3"}
    prices = {name: (find_price(item).value or 0.0) / 1e3 for name, item in items.items()}
    data = json.dumps({"rows": rows, "presets": presets, "prices": prices}).replace("<", "\\u003c")
    return f"```{{raw}} html\n<script>const LEDGER = {data};</script>\n```\n"
