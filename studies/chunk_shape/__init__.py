"""Which chunk shape serves which accesses, on a disk and in an object store."""

from functools import partial

from helpers.book.studies import Study, Threshold

# Parts of the page of decisions, which has no study of its own: most of its answers are chunk shapes.
_DECIDED = ("lookup", "needs", "fields", "granules", "tiles", "loader", "trial")


def _render_decision(name: str) -> str:
    """Write a part of the page of decisions, which is imported when it is asked for."""
    from advisors.decide.page import FRAGMENTS

    return FRAGMENTS[name]()


STUDY = Study(
    name="chunk-shape",
    headline="best-throughput",
    fragments={
        name: partial(_render_decision, name) for name in (f"decide-{part}.md" for part in _DECIDED)
    },
    thresholds=(
        Threshold(
            key="median-error",
            name="chunk shape: prediction error (%)",
            bound=20,
            is_least=False,
            how="predicted against measured time of what no fit has seen, median over layouts and accesses",
        ),
        Threshold(
            key="rank-correlation",
            name="chunk shape: rank correlation of predicted and measured times",
            bound=0.95,
            is_least=True,
            how="the same layouts and accesses",
        ),
        Threshold(
            key="gain-worst-access",
            name="chunk shape: worst access, ours over the balance rule",
            bound=1.3,
            is_least=True,
            how="at the same bound on chunk bytes",
        ),
        Threshold(
            key="gain-worst-access-any-size",
            name="chunk shape: worst access, ours over the balance rule at its best chunk size",
            bound=1.3,
            is_least=True,
            how="where the rule may choose its bytes too; equal is the target where no shape is better",
        ),
    ),
)
