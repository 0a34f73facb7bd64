"""Which chunk shape serves which accesses, on a disk and in an object store."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from helpers.book.studies import Expected, Study, Threshold

# Parts of the page of decisions, which has no study of its own: most of its answers are chunk shapes.
_DECIDED = ("lookup", "needs", "fields", "granules", "tiles", "loader", "trial")


def _render_decision(name: str) -> str:
    """Write a part of the page of decisions, which is imported when it is asked for."""
    from advisors.decide.page import FRAGMENTS

    return FRAGMENTS[name]()


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count positions times the elements of the array: requests and bytes of reads grow with both.

    Examples
    --------
    >>> count_work({"media": ["zarr"], "n_blocks": 2, "n_boxes": 10, "scale_factor": 2.0})
    (2.5, 2.5)
    """
    n_objects = sum(medium != "hdf5" for medium in values["media"])
    n_positions = n_objects * values["n_blocks"] * values["n_boxes"]
    return (n_positions / values["scale_factor"] ** 3,) * 2


def _expect(values: Mapping[str, Any]) -> Expected:
    """Expect what the published case asks for, scaled; imported when it is asked for."""
    from advisors.costs.page_tables import expect_like

    return expect_like("chunk-shape/in-region", count_work, values)


STUDY = Study(
    name="chunk-shape",
    headline="best-throughput",
    expect=_expect,
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
