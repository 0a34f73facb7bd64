"""What the study of caching needs alone: loads as contenders, predictions, findings, drawings."""

from helpers.studies.caching_costs.drawing import (
    draw_amdahl,
    draw_latencies,
    draw_published,
    draw_requests,
    draw_savings,
)
from helpers.studies.caching_costs.findings import (
    compare_hit_ratios,
    compare_published,
    compare_with_alone,
    find_all,
    judge_all,
    measure_opening,
    measure_savings,
    predict_latencies,
    tabulate,
    tabulate_failures,
)
from helpers.studies.caching_costs.loads import CacheLoad, open_loads
from helpers.studies.caching_costs.workload import Workload, plan_workload

__all__ = [
    "CacheLoad",
    "Workload",
    "compare_hit_ratios",
    "compare_published",
    "compare_with_alone",
    "draw_amdahl",
    "draw_latencies",
    "draw_published",
    "draw_requests",
    "draw_savings",
    "find_all",
    "judge_all",
    "measure_opening",
    "measure_savings",
    "open_loads",
    "plan_workload",
    "predict_latencies",
    "tabulate",
    "tabulate_failures",
]
