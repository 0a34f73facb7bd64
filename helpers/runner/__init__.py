"""Cases: parameter files to executed notebooks and records.

``results/SITE/Q/C.{ipynb,csv}`` is what ``notebooks/Q.ipynb`` makes of
``parameters/SITE/Q/C.yaml``. A case that is done is not run again unless its
notebook or its parameters changed; one that was interrupted goes on with the
rows that its record holds.
"""

from helpers.runner.cases import (
    Case,
    find_case,
    find_cases,
    fingerprint,
    is_done,
    lock_case,
    read_metadata,
    read_parameters,
)
from helpers.runner.findings import (
    HEADLINES,
    UNSTABLE_ABOVE,
    Findings,
    list_glued,
    read_findings,
    read_glued,
    read_headline,
)
from helpers.runner.running import Outcome, Say, kernel_options, run_case, run_cases
from helpers.runner.telling import explain_failures, note_whole_run, summarise

__all__ = [
    "HEADLINES",
    "UNSTABLE_ABOVE",
    "Case",
    "Findings",
    "Outcome",
    "Say",
    "explain_failures",
    "find_case",
    "find_cases",
    "fingerprint",
    "is_done",
    "kernel_options",
    "list_glued",
    "lock_case",
    "note_whole_run",
    "read_findings",
    "read_glued",
    "read_headline",
    "read_metadata",
    "read_parameters",
    "run_case",
    "run_cases",
    "summarise",
]
