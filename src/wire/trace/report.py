"""What is reported of a run: a verdict, where the program waited, why, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from wire.trace.rows import CallSite

VERSION = 3
"""Of the form of `Report.to_json`: a field that is added leaves it, one that goes or changes raises it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold a cause that was found: in which requests, what changes it and what that gains."""

    name: str  # of the cause, `in-turn`
    title: str
    count: int  # requests that it concerns
    evidence: str
    line: str  # what to write instead: code to paste, or what to do where no code helps
    # of the whole program, times as fast; 0 where the result is wrong, and where only reading less helps
    gain: float
    seconds: float  # of the whole program, predicted
    is_bound: bool  # whether the trace does not show enough for one number: the gain may be lower
    setting: str  # of `--try`, or nothing where none can act
    see: str  # address in the book, `symptoms-zarr.html#opening-takes-ninety-seconds`
    least_gain: float = 0.0  # where the gain may be lower; 0 where it is so much at most
    phase: int = -1  # place in `Report.phases`; -1 for a cause of the whole run
    phase_gain: float = 0.0  # of the phase alone, times as fast
    phase_least_gain: float = 0.0
    phase_seconds: float = 0.0  # that the phase takes as it is, from its first request to its last
    saved_s: float = 0.0  # seconds of the phase and so of the program, predicted
    least_saved_s: float = 0.0  # where they may be fewer; 0 where they are so many at most
    waited_s: float = 0.0  # with requests under way that it concerns
    # places of its requests among those of the run that ended, in the order in which they began; JSON has none
    rows: Sequence[int] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """Hold what one line of the program, or requests of which no line is known, waited for."""

    code_line: CallSite | None  # nothing where it is not known
    client: str  # `s3fs`, or nothing where it does not name itself
    n_requests: int
    n_waits: int  # requests in the longest chain, each begun after the one before had ended
    n_in_flight: int  # concurrent requests, at most
    moved_nbytes: int
    waited_s: (
        float  # seconds with requests of this phase under way, shared with others of that time
    )
    begin_s: float  # of its first request, seconds since the program's start
    end_s: float  # of its last one


@dataclass(frozen=True, slots=True)
class Report:
    """Hold what is reported of a run."""

    verdict: str  # one sentence in plain words
    wall_s: float
    exit_code: int | None  # None where it is not known
    n_requests: int
    hosts: list[str]
    n_waits: int  # requests in the longest chain, each begun after the one before had ended
    n_in_flight: int  # at most
    moved_nbytes: int
    unique_nbytes: int  # each byte of each object once
    sent_nbytes: int
    time_s: dict[str, float]  # what each second went to; they add up to `wall_s`
    kinds: dict[str, int]  # requests of each kind of object
    first_byte_s: tuple[float, float]  # median and 95th percentile
    stream_mb_per_s: float  # 0 where no body was large enough to show it
    gateway_share: float  # of the wall time, for which the gateway had a CPU
    on: str  # network on which times are predicted, or nothing
    predicted_s: float  # wall time there
    findings: list[Finding]  # the most serious first
    not_seen: list[str]
    # traffic that may be the program's and may be another's
    not_known: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # on how far the findings reach
    # answers from 400 on, and requests without one, by status
    refused: dict[int, int] = field(default_factory=dict)
    phases: list[PhaseReport] = field(default_factory=list)  # the longest first
    pauses_s: float = (
        0.0  # in which nothing was read or computed, such as between cells of a notebook
    )

    # what `wall_s` was made of, which these add up to: "start-up", "waiting", "connections",
    # "processor", and "idle" with pauses in it; phases have parts of "waiting"
    account_s: dict[str, float] = field(default_factory=dict)

    @property
    def reading_s(self) -> float:
        """Wall time without pauses, which all gains of the whole are of."""
        return self.predicted_s - self.pauses_s

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON has it: the same names, and `refused` as a list."""
        table = asdict(self)
        for finding in table["findings"]:
            del finding["rows"]
        table["refused"] = [
            {"status": status, "count": count} for status, count in self.refused.items()
        ]
        return {"version": VERSION, **table}
