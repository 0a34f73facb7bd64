"""What only the study of HDF5 drivers needs."""

from helpers.studies.hdf5_drivers.contenders import (
    FileRead,
    look_once,
    make_contenders,
    pair_up,
    sweep,
    tabulate_sweep,
)
from helpers.studies.hdf5_drivers.drawing import draw_ranges, draw_requests, draw_times, label_steps
from helpers.studies.hdf5_drivers.findings import (
    compare_published,
    describe_drivers,
    describe_layouts,
    find_all,
    judge_claim,
    predict_floor,
    tabulate_times,
    tabulate_traces,
)

__all__ = [
    "FileRead",
    "compare_published",
    "describe_drivers",
    "describe_layouts",
    "draw_ranges",
    "draw_requests",
    "draw_times",
    "find_all",
    "judge_claim",
    "label_steps",
    "look_once",
    "make_contenders",
    "pair_up",
    "predict_floor",
    "sweep",
    "tabulate_sweep",
    "tabulate_times",
    "tabulate_traces",
]
