"""How read throughput grows with the number of workers, and what ends the growth."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.book.studies import Study, Threshold, later

_RECORDS = Path(__file__).resolve().parents[2] / "results" / "reference" / "cluster-scaling"


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count the chunks that a case reads, and their bytes in memory, calibration included.

    Examples
    --------
    Three contenders with their ceiling, at two sizes twice to calibrate and then in five blocks
    with the control, which are 61 reads of two chunks:

    >>> shapes = {"array_shape": [1, 5, 180, 240], "chunk_shape": [1, 5, 90, 240]}
    >>> count_work({**shapes, "contenders": ["a", "b", "c"], "n_workers": [1, 2], "n_blocks": 5})
    (122.0, 52704000.0)
    """
    shape, n_each = values["array_shape"], len(values["contenders"]) + 1
    sizes = len(values["n_workers"])
    n_reads = values["n_blocks"] * (sizes * n_each + 1) + 2 * min(sizes, 2) * n_each
    n_chunks = math.prod(
        math.ceil(n / chunk) for n, chunk in zip(shape, values["chunk_shape"], strict=True)
    )
    return float(n_reads * n_chunks), float(n_reads * 4 * math.prod(shape))


STUDY = Study(
    name="cluster-scaling",
    headline="best-throughput",
    cover=("in-region", "fig-scaling"),
    minutes=12,
    # what the published case asks for, scaled
    expect=later(
        "advisors.costs.page_tables", "expect_like", "cluster-scaling/in-region", count_work
    ),
    fragments={
        "dilation-validity.md": later("studies.cluster_scaling.validity", "render_validity"),
        "laptop-cluster.md": later("studies.cluster_scaling.laptop", "render_growth"),
        "laptop-cluster.svg": later("studies.cluster_scaling.laptop", "draw_growth"),
        "long-reads.md": later("studies.cluster_scaling.laptop", "render_long"),
        "terabyte.md": later("studies.cluster_scaling.laptop", "render_terabyte"),
        "in-flight.md": later("studies.cluster_scaling.one_process", "render_in_flight"),
        "network-effects.md": later("studies.cluster_scaling.one_process", "render_effects"),
        "calibration-recovery.md": later("advisors.calibrate.recovery", "render_recovery"),
        "dilation-chosen.md": later(
            "studies.cluster_scaling.prediction",
            "render_choice",
            _RECORDS / "in-region-dilated.csv",
        ),
        "scaling-errors.md": later("studies.cluster_scaling.prediction", "render_errors", _RECORDS),
        "scaling-score.md": later("advisors.scaling.score", "render_score"),
        "scale-out-petabyte.md": later("advisors.scaling.scale_out", "render_petabyte"),
        "scale-out-petabyte.svg": later("advisors.scaling.figures", "draw_petabyte"),
        "scale-out-slots.svg": later("advisors.scaling.figures", "draw_shares"),
        "scale-out-tails.md": later("advisors.scaling.scale_out", "render_tails"),
        "scale-out-tails.svg": later("advisors.scaling.figures", "draw_tails"),
        "scale-out-validation.md": later(
            "advisors.scaling.validation", "render_validation", _RECORDS
        ),
        "scale-out-knee.md": later("advisors.scaling.validation", "render_knee"),
        "scale-out-scheduler.md": later("advisors.scaling.scheduler", "render_scheduler"),
        "scale-out-stores.md": later("advisors.scaling.synthetic", "render_stores"),
    },
    thresholds=(
        Threshold(
            key="median-prediction-error",
            name="cluster scaling: prediction error (%)",
            bound=10,
            is_least=False,
            how="predicted against measured read time, median over contenders and points; nothing that is predicted is used for the fit",
        ),
    ),
)
