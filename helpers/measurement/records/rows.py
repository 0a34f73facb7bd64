"""Rows of a record, and their schema."""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_origin, get_type_hints

import pandas as pd

from helpers.errors import UserError
from helpers.measurement.provenance import as_json

PHASES = ("warm-up", "measured", "calibration")


class RecordError(UserError):
    """A record cannot be read, continued or merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement of one contender; its fields are the schema.

    Mappings are JSON text in the file.
    """

    study: Annotated[str, "", "notebook that asks the question"]
    case: Annotated[str, "", "parameter file that fixes the answer's setting"]
    contender: Annotated[str, "", "what is compared"]
    point: Annotated[Mapping[str, Any], "", "place on the x-axis, as in n_workers"]
    settings: Annotated[Mapping[str, Any], "", "settings of the contender and its client"]
    cache_state: Annotated[str, "", "which caches were empty"]
    is_ceiling: Annotated[bool, "", "raw reads without decoding, the most there is"]
    control_of: Annotated[str, "", "contender of which this is a second copy, for A/A"]
    seed: Annotated[int, "1", "seed of the order"]
    phase: Annotated[
        str, "", "'warm-up', never used; 'calibration', for predictions; or 'measured'"
    ]
    block: Annotated[int, "1", "repetition, from 0 in each phase"]
    order: Annotated[int, "1", "place in the block, from 0"]
    started_utc: Annotated[str, "ISO 8601", "when the opening began"]
    open_s: Annotated[float, "s", "time to open"]
    read_s: Annotated[float, "s", "time to read"]
    array_nbytes: Annotated[int, "B", "bytes in the array, decoded"]
    stored_nbytes: Annotated[int, "B", "bytes in the store, encoded"]
    wire_nbytes: Annotated[float, "B", "bytes of response bodies, empty when not traced"]
    n_requests: Annotated[float, "1", "requests, empty when not traced"]
    trace: Annotated[Mapping[str, Any], "", "further numbers from the trace"]
    check: Annotated[str, "", "how what was read was verified"]
    fingerprint: Annotated[str, "", "hash of machine and parameters, in older rows of versions too"]
    machine: Annotated[Mapping[str, Any], "", "processor, cores, memory, system"]
    versions: Annotated[Mapping[str, Any], "", "versions of all that the measuring processes have imported"]
    parameters: Annotated[Mapping[str, Any], "", "what the study was asked for"]
    commit: Annotated[str, "", "commit of the project"]
    is_dirty: Annotated[bool, "", "whether the sources differ from the commit"]

    def __post_init__(self) -> None:
        """Refuse a row that no clock and no counter can have made."""
        if self.phase not in PHASES:
            raise RecordError(f"phase: {self.phase!r}; allowed: {', '.join(PHASES)}")
        for name in ("open_s", "read_s", "array_nbytes", "stored_nbytes", "block", "order"):
            if not getattr(self, name) >= 0:
                raise RecordError(f"{name}: {getattr(self, name)!r}; allowed: at least 0")

    @property
    def key(self) -> tuple[str, int, str, str]:
        """Phase, block, contender and point: no two rows share these."""
        return self.phase, self.block, self.contender, as_json(self.point)


_HINTS = get_type_hints(Row, include_extras=True)


KINDS = {name: get_origin(hint.__origin__) or hint.__origin__ for name, hint in _HINTS.items()}


COLUMNS = tuple(KINDS)


JSON_COLUMNS = tuple(name for name, kind in KINDS.items() if kind is abc.Mapping)


def schema() -> pd.DataFrame:
    """List the columns of a record, for the page on method.

    Returns
    -------
    DataFrame
        One row a column, named by the index: type, unit, description.
    """
    names = {abc.Mapping: "JSON", str: "text"}
    lines = [
        (names.get(KINDS[name], KINDS[name].__name__), *hint.__metadata__)
        for name, hint in _HINTS.items()
    ]
    index = pd.Index(COLUMNS, name="column")
    return pd.DataFrame(lines, index=index, columns=["type", "unit", "description"])
