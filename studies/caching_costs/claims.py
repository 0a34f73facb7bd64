"""What the published study claims of caches, answered by what the reference found and by the cost model."""

from __future__ import annotations

from collections.abc import Mapping

from advisors.costs.assumptions import Assumptions, change
from advisors.costs.bill import count_redis_nodes, price_option
from advisors.costs.prices import get_prices
from advisors.costs.published import compare_published
from helpers.benchmark.statistics import Interval
from helpers.book import findings, published
from helpers.paths import ROOT

_REFERENCE = ROOT / "results" / "reference" / "caching-costs"


def answer_claims() -> dict[str, Mapping[str, published.Answer]]:
    """Answer each claim of the study that is decided here, with its interval."""

    def measured(case: str, key: str) -> Interval:
        one = findings.read_findings(_REFERENCE / f"{case}.csv")[key]
        return Interval(one.value, one.low, one.high, one.n)

    table = compare_published()
    half_a_second = {"billing": "function", "memory_gb": 10.0, "make_s": 0.35, "open_s": 0.15}
    computing = price_option(
        change(Assumptions(), half_a_second), get_prices("published-2023"), option="none"
    ).lines["computing"]
    entry_nbytes = 1e6 * measured("published-size", "entry-mb").centre
    nodes = {"of the published size": 5e5, "of the size measured here": entry_nbytes}
    return {
        "cost-model": {
            "by its rules": published.exact((table["published"] - table["by_its_rules"]).abs().max())
        },
        "computing-cost": {"by Little's law": published.exact(computing)},
        "redis-node": {
            name: published.exact(count_redis_nodes(Assumptions(metadata_nbytes=nbytes)))
            for name, nbytes in nodes.items()
        },
        "opening-counts": {"in-region": measured("in-region", "opening-share")},
        "metadata-size": {"published-size, an entry": published.exact(entry_nbytes / 1e6)},
        "chunk-slows-tile": {"published-size": measured("published-size", "large-chunk")},
    }  # fmt: skip
