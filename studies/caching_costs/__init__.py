"""What a cache of opened datasets gains a tile service, and what it costs."""

from helpers.book.studies import Study, Threshold


def _render(name: str) -> str:
    """Write a part of the calculator's page, which is imported when it is asked for."""
    from advisors.costs import calculator

    return str(getattr(calculator, name)())


STUDY = Study(
    name="caching-costs",
    headline="best-throughput",
    fragments={
        "cost-calculator.md": lambda: _render("render_calculator"),
        "prices.md": lambda: _render("render_prices"),
        "published-costs.md": lambda: _render("render_published"),
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
