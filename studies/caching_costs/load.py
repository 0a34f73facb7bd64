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
    # of the service `open_s`, `warp_s`, `cpu_s` and `total_s`
    requests: pd.DataFrame
    seconds: float  # from the order to the last answer
    generator_cpu_s: float  # processor time of the load generator
    n_failures: int  # failed requests as Locust counts them


@dataclass(frozen=True, slots=True)
class Generator:
    """A load generator that runs."""

    lines: TextIO  # orders out, results in

    def run(
        self,
        service: Service,
        plans: Sequence[Sequence[Tile]],
        *,
        spawn_rate: float = 100.0,
        think_s: float = 0.0,
        others: Sequence[Service] = (),
        seconds: float = 0.0,
        due_s: Sequence[float] = (),
    ) -> Load:
        """Let a user for each plan ask for its tiles; with `others`, users are dealt among the services.

        With `seconds` users begin again with their tiles until that long after the beginning. With
        `due_s` the first tile of each plan is an arrival, due so long after the beginning, and its
        latency counts from then: nobody waits for an answer before the next one comes.
        """
        steps: Any = [[(tile[0], tile_path(tile)) for tile in plan] for plan in plans]
        if due_s:
            steps = [[(*plan[0], due)] for plan, due in zip(steps, due_s, strict=True)]
        order = {
            "hosts": [f"http://{one.address}" for one in (service, *others)],
            "plans": steps,
            "spawn_rate": len(plans) if due_s else spawn_rate,
            "think_s": think_s,
            "seconds": seconds,
            "lead_s": _LEAD_S if due_s else 0.0,
        }
        return _read_load(self._tell(order))

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
    found = json.loads(line)
    columns = ["dataset", "path", "start_s", "latency_s", "status", "checksum", "timing", "nbytes"]
    requests = pd.DataFrame(found["requests"], columns=columns)
    spent = [dict(_TIMING.findall(text)) for text in requests.pop("timing")]
    for name in ("open", "warp", "cpu", "total"):
        requests[f"{name}_s"] = [float(part.get(name, "nan")) / 1000 for part in spent]
    return Load(requests, found["seconds"], found["cpu_s"], found["n_failures"])


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


def summarise(load: Load, *, must_fail: Sequence[str] = ()) -> dict[str, float]:
    """Summarise a load in numbers for a record.

    Latencies are those of the datasets that can be read.
    """
    requests = load.requests
    has_to = requests["dataset"].isin(must_fail)
    failed = requests["status"] != 200
    good = requests[~has_to]
    numbers: dict[str, float] = {
        "n_tiles": len(requests),
        "n_failures": int((failed & ~has_to).sum() + (has_to & ~failed).sum()),
        "n_expected_failures": int((failed & has_to).sum()),
        "tiles_per_s": len(requests) / load.seconds,
        "generator_share": load.generator_cpu_s / load.seconds,  # of one core
    }
    if len(good):
        numbers["tile_nbytes"] = float(good["nbytes"].mean())
    numbers |= {f"p{q}_s": float(good["latency_s"].quantile(q / 100)) for q in (50, 95, 99)}
    medians: Any = good.groupby("dataset")[["latency_s", "open_s", "cpu_s", "total_s"]].median()
    return numbers | {
        f"{name}|{column}": float(line[column])
        for name, line in medians.iterrows()
        for column in medians
    }


def list_requests(
    load: Load, columns: Sequence[str], *, must_fail: Sequence[str] = ()
) -> dict[str, float]:
    """List each request to a dataset that can be read, as numbers for a record."""
    good = load.requests[~load.requests["dataset"].isin(must_fail)]
    return {
        f"{name}|{column}|{number}": round(float(value), 5)
        for column in columns
        for number, (name, value) in enumerate(zip(good["dataset"], good[column], strict=True))
    }
