"""What the study of caching needs alone: loads as contenders, predictions, findings, drawings."""

from helpers.studies.caching_costs.bill import (
    find_costs,
    learn_assumptions,
    measure_entries,
    tabulate_assumptions,
    tabulate_costs,
    tabulate_equal_tail,
    tabulate_published,
)
from helpers.studies.caching_costs.bill_drawing import (
    cheapest,
    draw_costs,
    draw_levers,
    find_levers,
    saved_usd,
)
from helpers.studies.caching_costs.drawing import (
    draw_amdahl,
    draw_latencies,
    draw_predictions,
    draw_published,
    draw_requests,
    draw_savings,
)
from helpers.studies.caching_costs.findings import (
    compare_published,
    find_all,
    measure_opening,
    measure_savings,
    select_loads,
    tabulate,
    tabulate_failures,
)
from helpers.studies.caching_costs.loads import CacheLoad, open_loads
from helpers.studies.caching_costs.predictions import (
    compare_hit_ratios,
    compare_predictions,
    predict_latencies,
)
from helpers.studies.caching_costs.workload import Workload, plan_workload

__all__ = [
    "CacheLoad",
    "Workload",
    "cheapest",
    "compare_hit_ratios",
    "compare_predictions",
    "compare_published",
    "draw_amdahl",
    "draw_costs",
    "draw_latencies",
    "draw_levers",
    "draw_predictions",
    "draw_published",
    "draw_requests",
    "draw_savings",
    "find_all",
    "find_costs",
    "find_levers",
    "learn_assumptions",
    "measure_entries",
    "measure_opening",
    "measure_savings",
    "open_loads",
    "plan_workload",
    "predict_latencies",
    "saved_usd",
    "select_loads",
    "tabulate",
    "tabulate_assumptions",
    "tabulate_costs",
    "tabulate_equal_tail",
    "tabulate_failures",
    "tabulate_published",
]
