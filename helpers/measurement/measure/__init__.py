"""The one timing loop: blocks, random order, warm-ups apart."""

from helpers.measurement.measure.contenders import CheckError, Contender
from helpers.measurement.measure.loop import MeasurementError, measure_blocks
from helpers.measurement.measure.plans import Budget, StoppingRule, plan_block

__all__ = [
    "Budget",
    "CheckError",
    "Contender",
    "MeasurementError",
    "StoppingRule",
    "measure_blocks",
    "plan_block",
]
