"""What the published study claims of caches is answered, or says what would decide it."""

from __future__ import annotations

from helpers.benchmark.statistics import Interval
from helpers.book import published
from studies.caching_costs.claims import (
    SOURCE,
    answer_claims,
    render_claims,
    render_published_size,
)


def test_every_claim_has_its_verdict() -> None:
    """All are answered but the one that no case here can, and intervals are those of several blocks."""
    claims, found = published.read_claims(), answer_claims()
    asked = {name for name, claim in claims.items() if claim.study == SOURCE}
    assert asked - {*found} == {"diskcache-on-network"}
    assert {*found} < asked
    nodes = found["redis-node"].values()
    counts = [one.centre for one in nodes if isinstance(one, Interval)]
    assert max(counts) > min(counts) == 1
    as_redis = found["diskcache-as-redis"]["in-region"]
    assert isinstance(as_redis, Interval) and as_redis.n >= 5
    told = render_claims()
    assert told.count("\n") == len(asked) + 2
    assert "cannot be decided here" in told and "holds under conditions" in told


def test_a_case_is_quoted_once_it_is_measured() -> None:
    """Before, the page says how to measure it; then it has the verdicts of the case's own page."""
    none = "caching-costs/nobody-measured"
    assert render_published_size(none) == f"Not measured yet; `wire run {none}` does it.\n"
    told = render_published_size("caching-costs/load").splitlines()
    begun = (
        *("Without a cache the median tile", "The gain in the median", "Every predicted median"),
        *("Of 27 loads, the predicted median", "Of datasets that are"),
    )
    assert [line[: len(text)] for line, text in zip(told, begun, strict=True)] == [*begun]
