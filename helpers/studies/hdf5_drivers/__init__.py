"""What only the study of HDF5 drivers needs."""

from helpers.studies.hdf5_drivers.advising import (
    compare_advice,
    find_advice,
    make_gridded,
    tabulate_advice,
)
from helpers.studies.hdf5_drivers.contenders import (
    FileRead,
    make_contenders,
    make_control,
    pair_up,
)
from helpers.studies.hdf5_drivers.drawing import draw_ranges, draw_requests, draw_times, label_steps
from helpers.studies.hdf5_drivers.findings import (
    compare_published,
    describe_drivers,
    describe_layouts,
    predict_floor,
    tabulate_tasks,
    tabulate_times,
    tabulate_traces,
)
from helpers.studies.hdf5_drivers.looks import look_at, look_once
from helpers.studies.hdf5_drivers.recordings import (
    Recorded,
    caches_of,
    calibrated_drivers,
    record_library,
)
from helpers.studies.hdf5_drivers.replaying import (
    compare_foretold,
    draw_foretold,
    find_errors,
    fit_all,
    foretell,
    what_if,
)
from helpers.studies.hdf5_drivers.sweeps import sweep, tabulate_sweep
from helpers.studies.hdf5_drivers.verdicts import (
    find_all,
    find_claims,
    find_decision,
    judged_task,
    list_claims,
    list_ways,
    select_reads,
)

__all__ = [
    "FileRead",
    "Recorded",
    "caches_of",
    "calibrated_drivers",
    "compare_advice",
    "compare_foretold",
    "compare_published",
    "describe_drivers",
    "describe_layouts",
    "draw_foretold",
    "draw_ranges",
    "draw_requests",
    "draw_times",
    "find_advice",
    "find_all",
    "find_claims",
    "find_decision",
    "find_errors",
    "fit_all",
    "foretell",
    "judged_task",
    "label_steps",
    "list_claims",
    "list_ways",
    "look_at",
    "look_once",
    "make_contenders",
    "make_control",
    "make_gridded",
    "pair_up",
    "predict_floor",
    "record_library",
    "select_reads",
    "sweep",
    "tabulate_advice",
    "tabulate_sweep",
    "tabulate_tasks",
    "tabulate_times",
    "tabulate_traces",
    "what_if",
]
