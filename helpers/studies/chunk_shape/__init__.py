"""What the study of chunk shapes alone needs: layouts, reads, predictions, findings, figures."""

from helpers.studies.chunk_shape.contending import (
    contend_all,
    keep_fitting,
    write_calibrations,
    write_layouts,
)
from helpers.studies.chunk_shape.drawing import (
    draw_bias,
    draw_codecs,
    draw_fronts,
    draw_prediction,
    draw_rewriting,
    draw_traffic,
)
from helpers.studies.chunk_shape.findings import (
    bias,
    cache_gains,
    codec_costs,
    count_traffic,
    first_reads,
    judge_advice,
    name_all,
    rewrite_costs,
    tabulate_positions,
)
from helpers.studies.chunk_shape.layouts import (
    choose_ours,
    describe,
    make_accesses,
    make_chunkings,
    make_sample,
    scale_shape,
)
from helpers.studies.chunk_shape.planning import Plan, contend
from helpers.studies.chunk_shape.predicting import (
    calibrate,
    compare,
    judge,
    predict,
    share_out,
    tabulate_costs,
    worst_errors,
)
from helpers.studies.chunk_shape.verdicts import compare_gains, find_all

__all__ = [
    "Plan",
    "bias",
    "cache_gains",
    "calibrate",
    "choose_ours",
    "codec_costs",
    "compare",
    "compare_gains",
    "contend",
    "contend_all",
    "count_traffic",
    "describe",
    "draw_bias",
    "draw_codecs",
    "draw_fronts",
    "draw_prediction",
    "draw_rewriting",
    "draw_traffic",
    "find_all",
    "first_reads",
    "judge",
    "judge_advice",
    "keep_fitting",
    "make_accesses",
    "make_chunkings",
    "make_sample",
    "name_all",
    "predict",
    "rewrite_costs",
    "scale_shape",
    "share_out",
    "tabulate_costs",
    "tabulate_positions",
    "worst_errors",
    "write_calibrations",
    "write_layouts",
]
