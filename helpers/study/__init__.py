"""What studies share: where storage, measurement and models meet.

Notebooks say what is asked and show what was found; the steps between, the
same in every study, are here: contenders from reads, predictions from
calibrations, tables from records.
"""

from helpers.networks import network_of
from helpers.study.contending import Way, contend
from helpers.study.describing import (
    case_of,
    collect,
    describe_array,
    describe_origin,
    n_cores,
    read_published,
)
from helpers.study.expecting import (
    calibrate_network,
    compare_predictions,
    predict,
    read_clients,
)
from helpers.study.showing import (
    count_rows,
    draw_network,
    draw_scaling,
    set_style,
    tabulate,
    tabulate_requests,
    tell_runs,
    trace_of,
)
from helpers.study.wording import describe_profile, digits

__all__ = [
    "Way",
    "calibrate_network",
    "case_of",
    "collect",
    "compare_predictions",
    "contend",
    "count_rows",
    "describe_array",
    "describe_origin",
    "describe_profile",
    "digits",
    "draw_network",
    "draw_scaling",
    "n_cores",
    "network_of",
    "predict",
    "read_clients",
    "read_published",
    "set_style",
    "tabulate",
    "tabulate_requests",
    "tell_runs",
    "trace_of",
]
