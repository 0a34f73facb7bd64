"""Tables to axes: one look and one colour per contender across the whole book.

Every function draws on the axes it is given and returns nothing but text to
print. Labels stand beside what they name; there are no legends.
"""

from helpers.measurement.figures.deviations import draw_calibration, draw_errors
from helpers.measurement.figures.labels import label_ends, number_axis, spread
from helpers.measurement.figures.scaling import draw_scaling
from helpers.measurement.looks import (
    STYLE,
    Look,
    UnfairComparisonError,
    check_looks,
    comparison,
    contender_palette,
    find_look,
    get_looks,
)

__all__ = [
    "STYLE",
    "Look",
    "UnfairComparisonError",
    "check_looks",
    "comparison",
    "contender_palette",
    "draw_calibration",
    "draw_errors",
    "draw_scaling",
    "find_look",
    "get_looks",
    "label_ends",
    "number_axis",
    "spread",
]
