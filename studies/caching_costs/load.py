"""Load on a tile service: plans in, timed requests out."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np
import pandas as pd

from helpers.errors import UserError
from helpers.objectstore.processes import start_child
from studies.caching_costs.service import Service, Tile, tile_path
from studies.caching_costs.valkey import HOST, find_port

_TIMEOUT_S = 240.0
_LEAD_S = 1.0  # in which all who arrive are made ready
# Locust comes first: it patches the sockets of a process, which has to be before one is made.
_SWARM = "import sys, locust, studies.caching_costs.swarm as it; it.main(int(sys.argv[1]))"
_TIMING = re.compile(r"(\w+);dur=([\d.]+)")


@dataclass(frozen=True, slots=True)
class Load:
    """What a load found."""

    # A line for each: `dataset`, `path`, `start_s`, `latency_s`, `status`, `checksum`, `nbytes`, and
    # of the service `open_s` and `cpu_s`
    requests: pd.DataFrame

    def numbers(self, *, is_alone: bool = False) -> dict[str, float]:
        """Summarise it in numbers for a record: with `is_alone` also each request.

        `typical_s` is what is judged, the geometric mean over datasets of the mean latency of
        each, so that every dataset counts the same, however slow it is.
        """
        requests = self.requests
        ends_s = requests["start_s"] + requests["latency_s"]
        means_s = requests.groupby("dataset")["latency_s"].mean()
        found = {
            "n_tiles": float(len(requests)),
            "tile_nbytes": float(requests["nbytes"].mean()),
            "tiles_per_s": len(requests) / float(ends_s.max() - requests["start_s"].min()),
            "typical_s": float(np.exp(np.log(means_s).mean())),
            **{f"p{q}_s": float(requests["latency_s"].quantile(q / 100)) for q in (50, 95)},
            **{f"{name}|latency_s": float(mean_s) for name, mean_s in means_s.items()},
        }
        for column in ("latency_s", "open_s", "cpu_s") if is_alone else ():
            each = zip(requests["dataset"], requests[column], strict=True)
            found |= {
                f"{name}|{column}|{k}": round(float(s), 5) for k, (name, s) in enumerate(each)
            }
        return found


@dataclass(slots=True)
class Generator:
    """A load generator that runs."""

    lines: TextIO  # orders out, results in
    last: Load | None = None  # what the last load found

    def run(
        self, service: Service, plans: Sequence[Sequence[Tile]], *, due_s: Sequence[float] = ()
    ) -> Load:
        """Let a user for each plan ask for its tiles, one after the other, all users at once.

        With `due_s` the first tile of each plan is an arrival, due so long after the beginning, and its
        latency counts from then: nobody waits for an answer before the next one comes.
        """
        steps: Any = [[(tile[0], tile_path(tile)) for tile in plan] for plan in plans]
        if due_s:
            steps = [[(*plan[0], due)] for plan, due in zip(steps, due_s, strict=True)]
        order = {
            "host": f"http://{service.address}",
            "plans": steps,
            "lead_s": _LEAD_S if due_s else 0.0,
        }
        self.last = _read_load(self._tell(order))
        return self.last

    def versions(self) -> dict[str, str]:
        """Ask what it has imported."""
        return dict(json.loads(self._tell({})))

    def _tell(self, order: dict[str, Any]) -> str:
        """Send an order and wait for the line that answers it."""
        self.lines.write(json.dumps(order) + "\n")
        self.lines.flush()
        if not (line := self.lines.readline()):
            raise UserError("load generator: it ended; allowed: one that runs")
        return line


def _read_load(line: str) -> Load:
    columns = ["dataset", "path", "start_s", "latency_s", "status", "checksum", "timing", "nbytes"]
    requests = pd.DataFrame(json.loads(line), columns=columns)
    spent = [dict(_TIMING.findall(text)) for text in requests.pop("timing")]
    for name in ("open", "cpu"):
        requests[f"{name}_s"] = [float(part.get(name, "nan")) / 1000 for part in spent]
    return Load(requests)


@contextlib.contextmanager
def open_generator() -> Iterator[Generator]:
    """Start Locust as a child process and wait until it takes orders."""
    port = find_port()
    with start_child([sys.executable, "-c", _SWARM, str(port)]) as child:
        found: list[socket.socket] = []
        child.wait_until(lambda: _connect(port, found), timeout_s=60)
        found[0].settimeout(_TIMEOUT_S)
        with found[0], found[0].makefile("rw", encoding="utf-8") as lines:
            yield Generator(lines)


def _connect(port: int, found: list[socket.socket]) -> bool:
    try:
        found.append(socket.create_connection((HOST, port), timeout=1))
    except OSError:  # not listening yet
        return False
    return True
