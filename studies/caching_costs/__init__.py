"""What a cache of opened datasets gains a tile service, and what it costs."""

from helpers.book.studies import Study, Threshold


def _calculator() -> str:
    from advisors.costs.calculator import render_calculator

    return render_calculator()


def _prices() -> str:
    from advisors.costs.calculator import render_prices

    return render_prices()


def _published() -> str:
    from advisors.costs.calculator import render_published

    return render_published()


STUDY = Study(
    name="caching-costs",
    headline="best-throughput",
    fragments={
        "cost-calculator.md": _calculator,
        "prices.md": _prices,
        "published-costs.md": _published,
    },
    thresholds=(
        Threshold(
            key="worst-prediction-error",
            name="caching: prediction error (%)",
            bound=15,
            is_least=False,
            how="median latency with a cache, predicted from requests that were alone, largest over caches",
        ),
        Threshold(
            key="hit-ratio-error",
            name="caching: error of the hit ratio (percentage points)",
            bound=3,
            is_least=False,
            how="predicted by Che's approximation against a real cache, 100 datasets",
        ),
        Threshold(
            key="failed-requests",
            name="caching: failed requests, but those that must fail",
            bound=0,
            is_least=False,
            how="of all contenders and blocks",
        ),
    ),
)
