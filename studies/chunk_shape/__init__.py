"""Which chunk shape serves which accesses, on a disk and in an object store."""

from collections.abc import Mapping
from typing import Any

from helpers.book.studies import Study, Threshold, later

_PAGE, _WORKED = "advisors.decide.page", ("fields", "granules", "tiles", "loader")


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


STUDY = Study(
    name="chunk-shape",
    headline="best-throughput",
    # what the published case asks for, scaled
    expect=later("advisors.costs.page_tables", "expect_like", "chunk-shape/in-region", count_work),
    asked=later("studies.chunk_shape.workload", "count_asked"),
    # the rest is of the page of decisions, which has no study of its own
    fragments={
        "zarr-versions.md": later("studies.chunk_shape.sentences", "render_versions"),
        "chunk-shape-positions.md": later("studies.chunk_shape.sentences", "render_positions"),
        "ready-checks.md": later("studies.chunk_shape.ready", "render_ready"),
        "chunk-shape-boxes.md": later("studies.chunk_shape.boxes", "render_boxes"),
        "chunk-shape-readers.md": later("studies.chunk_shape.prediction", "render_readers"),
        "decide-lookup.md": later(_PAGE, "render_lookup"),
        "decide-needs.md": later(_PAGE, "render_needs"),
        "decide-trial.md": later(_PAGE, "render_trial"),
        **{f"decide-{name}.md": later(_PAGE, "render_case", name) for name in _WORKED},
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
