"""What the committed records say, gathered into one file that ships with the package."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from helpers.errors import UserError
from helpers.paths import ROOT

PATH = Path(__file__).with_name("evidence.json")

_DIGITS = 6  # of a number that is kept

ORIGINAL = "original"
"""Layout of a file as it was written."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one contender at one point of a case."""

    case: str  # as in its page's address
    profile: str  # network that was emulated
    contender: str
    point: Mapping[str, Any]
    p50_s: float  # of a read, or of one box or tile where several were timed apart
    p95_s: float
    open_s: float
    n: int  # times behind these
    array_nbytes: float  # of what was asked for
    n_requests: float | None = None  # None where nothing was traced
    wire_nbytes: float | None = None
    n_chunks: float | None = None  # touched by a box on average
    settings: Mapping[str, Any] = field(default_factory=dict)
    # what the boxes asked of objects: how many of them, and each its counts, as `IoCounts` has them
    asked: Sequence[Sequence[float]] = ()
    blocks: Sequence[float] = ()  # the time that counts, block by block, for pairs within them
    dilation: float = 1.0  # how many times slower the network was, so that times are divided by it
    n_processes: int = 1  # that share the network with the one that was measured

    @property
    def seconds(self) -> float:
        """Time that counts: with the opening where a file is opened for each task."""
        return self.p50_s + (self.open_s if "task" in self.point else 0.0)

    @property
    def is_box(self) -> bool:
        """Whether boxes of an array were timed apart, so that layouts are compared."""
        return self.n_chunks is not None

    @property
    def is_tile(self) -> bool:
        """Whether tiles of a service were timed."""
        return "n_users" in self.point


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the records say."""

    rows: tuple[Measured, ...]
    parameters: Mapping[str, Mapping[str, Any]]  # what each case was asked for

    def profile_of(self, case: str) -> str:
        """Name the network that a case emulates."""
        return str(self.parameters[case]["profile"])


@cache
def load(path: Path = PATH) -> Evidence:
    """Read the file that ships with the package."""
    found = json.loads(path.read_text(encoding="utf-8"))
    cases = found["cases"]
    parameters = {name: case["parameters"] for name, case in cases.items()}
    rows = [
        Measured(
            profile=cases[row["case"]]["profile"],
            n_processes=parameters[row["case"]].get("n_processes", 1),
            **row,
        )
        for row in found["rows"]
    ]
    return Evidence(tuple(rows), parameters)


def write(path: Path = PATH, root: Path = ROOT) -> int:
    """Write the file anew from the reference records of a checkout; return the number of rows."""
    found = gather(root)
    if not found["rows"]:
        raise UserError("results: no reference record is there; allowed: in a checkout")
    cases, rows = (
        ",\n".join(json.dumps(one, sort_keys=True) for one in part)
        for part in ([found["cases"]], found["rows"])
    )
    path.write_text(f'{{"cases":\n{cases},\n"rows": [\n{rows}\n]}}\n', encoding="utf-8")
    return len(found["rows"])


def gather(root: Path = ROOT) -> dict[str, Any]:
    """Summarise every reference record: each contender at each point, its copies left out."""
    from helpers.benchmark.record import list_records, read_records  # which answers need not
    from helpers.book.cases import Case, read_parameters
    from helpers.book.studies import find_study

    cases: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for path in list_records(root / "results" / "reference"):
        if not path.with_suffix(".ipynb").exists():  # no record of a case
            continue
        name, frame = f"{path.parent.name}/{path.stem}", read_records([path])
        parameters = json.loads(frame["parameters"].iloc[-1])
        date = max(frame["started_utc"])[:10]
        cases[name] = {
            "parameters": parameters,
            "profile": parameters.get("profile", ""),
            "date": date,
        }
        study = find_study(path.parent.name)
        count = None
        if study.asked is not None:
            case = Case("laptop", path.parent.name, path.stem, root)
            values = study.parameters(**read_parameters(case)).model_dump()
            count = partial(study.asked, values)
        rows += _summarise(name, frame, count)
    return {"cases": cases, "rows": rows}


def _summarise(
    case: str, frame: Any, count: Callable[[Any], Sequence[Any]] | None
) -> Iterator[dict[str, Any]]:
    """Summarise the measured rows of one record, with what their boxes asked where that is counted."""
    from helpers.benchmark.statistics import measured

    kept = measured(frame)
    kept = kept[(kept["control_of"] == "") & ~kept["is_ceiling"].astype(bool)]
    for (contender, point), part in kept.groupby(["contender", "point"], sort=True):
        traces = [json.loads(text) for text in part["trace"]]
        settings = json.loads(part["settings"].iloc[0])
        yield {
            "case": case,
            "contender": contender,
            "point": json.loads(str(point)),
            "settings": {k: v for k, v in settings.items() if k != "cache_state"},
            **_numbers(part, traces),
            "blocks": _list_blocks(part, traces, with_opening="task" in json.loads(str(point))),
            **({"dilation": k} if (k := float(part["dilation"].iloc[0])) != 1 else {}),
            **({"asked": asked} if (asked := _tell_asked(count(part) if count else ())) else {}),
        }


def _tell_asked(loads: Sequence[Any]) -> list[list[float]]:
    """Write down what boxes asked, once where several asked the same, with how many these were."""
    return [[n, *counts] for counts, n in sorted(Counter(map(astuple, loads)).items())]


def _list_blocks(
    part: Any, traces: Sequence[Mapping[str, Any]], *, with_opening: bool
) -> list[float]:
    """List the time of each block, in their order: of its median box where boxes are timed."""
    seconds = part["read_s"] + (part["open_s"] if with_opening else 0.0)
    if "box_s" in traces[0]:
        seconds = [statistics.median(_list_boxes(trace)) for trace in traces]
    pairs = sorted(zip(part["block"], seconds, strict=True))
    return [_shorten(value) for _, value in pairs]


def _list_boxes(trace: Mapping[str, Any]) -> list[float]:
    """List the times of boxes; the first read after opening is left out, as its page does."""
    return list(trace["box_s"][1:] or trace["box_s"])


def _shorten(value: float) -> float:
    return float(f"{float(value):.{_DIGITS}g}")


def _numbers(part: Any, traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compute times and counts of one contender at one point: of a box where boxes are timed."""
    seconds, n_boxes = list(part["read_s"]), len(part)
    found: dict[str, Any] = {}
    if "box_s" in traces[0]:
        seconds = [s for trace in traces for s in _list_boxes(trace)]
        n_boxes = sum(trace["n_boxes"] for trace in traces)
        n_chunks = sum(trace["n_chunks"] * trace["n_boxes"] for trace in traces)
        found = {"n_chunks": n_chunks / n_boxes}
    p50_s, p95_s = statistics.median(seconds), float(np.quantile(seconds, 0.95))
    if "p50_s" in traces[0]:  # of the tiles of a load
        p50_s, p95_s = (statistics.median(t[name] for t in traces) for name in ("p50_s", "p95_s"))
    found |= {
        "p50_s": p50_s,
        "p95_s": p95_s,
        "open_s": statistics.median(part["open_s"]),
        "array_nbytes": part["array_nbytes"].sum() / n_boxes,
        "n_requests": part["n_requests"].sum() / n_boxes,
        "wire_nbytes": part["wire_nbytes"].sum() / n_boxes,
    }
    if "all_requests" in traces[0]:  # of a file, with its opening
        found["n_requests"] = statistics.median(trace["all_requests"] for trace in traces)
        found["wire_nbytes"] = statistics.median(trace["all_nbytes"] for trace in traces)
    elif part["n_requests"].isna().any():
        found |= {"n_requests": math.nan, "wire_nbytes": math.nan}
    kept = {name: _shorten(value) for name, value in found.items()}
    return {"n": len(seconds), **{k: None if math.isnan(v) else v for k, v in kept.items()}}
