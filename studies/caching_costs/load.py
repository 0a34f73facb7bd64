"""Load on a tile service: plans in, timed requests out.

The load generator is Locust without its web page, in a process of its own that takes orders: it
connects to its owner, each line is an order, and each line back its result. Starting Locust takes
a second, which therefore lies outside every measurement.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import select
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlencode

import numpy as np
import pandas as pd
import xxhash

from helpers.benchmark.provenance import imported
from studies.caching_costs.datasets import HOST, VARIABLE
from wire.children import start_child
from wire.errors import UserError

if TYPE_CHECKING:
    from studies.caching_costs.service import Service

Tile = tuple[str, int, int, int]
"""Name of a dataset, zoom, column and row."""

_RESCALE = "-2,32"  # degrees Celsius over the colours of a tile
_TIMEOUT_S = 240.0
_LEAD_S = 1.0  # in which all who arrive are made ready
# Locust comes first: it patches the sockets of a process, which has to be before one is made.
_SERVE = "import sys, locust, studies.caching_costs.load as it; it.take_orders(int(sys.argv[1]))"
_TIMING = re.compile(r"(\w+);dur=([\d.]+)")


def tile_path(tile: Tile, *, sel: str = "") -> str:
    """Return the path of a tile, of a day where `sel` says which."""
    name, zoom, column, row = tile
    parameters = {"url": name, "variable": VARIABLE, "rescale": _RESCALE}
    query = urlencode(parameters | ({"sel": sel} if sel else {}))
    return f"/tiles/WebMercatorQuad/{zoom}/{column}/{row}.png?{query}"


def summarise(requests: pd.DataFrame, *, is_alone: bool) -> dict[str, float]:
    """Summarise what a load found in numbers for a record: with `is_alone` also each request.

    `typical_s` is what is judged, the geometric mean over datasets of the mean latency of
    each, so that every dataset counts the same, however slow it is.
    """
    ends_s = requests["start_s"] + requests["latency_s"]
    means_s = requests.groupby("dataset")["latency_s"].mean()
    summary = {
        "n_tiles": float(len(requests)),
        "tile_nbytes": float(requests["nbytes"].mean()),
        "tiles_per_s": len(requests) / float(ends_s.max() - requests["start_s"].min()),
        "typical_s": float(np.exp(np.log(means_s).mean())),
        **{f"p{q}_s": float(requests["latency_s"].quantile(q / 100)) for q in (50, 95)},
        **{f"{name}|latency_s": float(mean_s) for name, mean_s in means_s.items()},
    }
    for name, part in requests.groupby("dataset"):
        failed = float((part["status"] != 200).mean())
        summary |= {f"{name}|p50_s": float(part["latency_s"].median()), f"{name}|failed": failed}
    for column in ("latency_s", "open_s", "cpu_s") if is_alone else ():
        numbered = enumerate(zip(requests["dataset"], requests[column], strict=True))
        summary |= {f"{name}|{column}|{k}": round(float(s), 5) for k, (name, s) in numbered}
    return summary


@dataclass(slots=True)
class Generator:
    """A load generator that runs."""

    lines: TextIO  # orders out, results in
    last: pd.DataFrame | None = None  # what the last load found

    def run(
        self, service: Service, plans: Sequence[Sequence[Tile]], *, due_s: Sequence[float] = ()
    ) -> pd.DataFrame:
        """Let a user for each plan ask for its tiles, one after the other, all users at once.

        The plans are dealt to the processes of the service: where there are as many of them as
        users, each user has one.

        With `due_s` the first tile of each plan is an arrival, due so long after the beginning, and its
        latency counts from then: nobody waits for an answer before the next one comes.

        Returns
        -------
        DataFrame
            A line for each request: `dataset`, `path`, `start_s`, `latency_s`, `status`,
            `checksum`, `nbytes`, and of the service `open_s` and `cpu_s`.
        """
        steps: Any = [[(tile[0], tile_path(tile)) for tile in plan] for plan in plans]
        if due_s:
            steps = [[(*plan[0], due)] for plan, due in zip(steps, due_s, strict=True)]
        lead_s = _LEAD_S if due_s else 0.0
        hosts = [f"http://{address}" for address in service.addresses]
        answers = self._tell({"hosts": hosts, "plans": steps, "lead_s": lead_s})
        spent = [dict(_TIMING.findall(request.pop("timing"))) for request in answers]
        requests = pd.DataFrame(answers)
        for name in ("open", "cpu"):
            requests[f"{name}_s"] = [float(part.get(name, "nan")) / 1000 for part in spent]
        self.last = requests
        return requests

    def versions(self) -> dict[str, str]:
        """Ask what it has imported."""
        return dict(self._tell({}))

    def _tell(self, order: dict[str, Any]) -> Any:
        """Send an order and wait for the line that answers it."""
        self.lines.write(json.dumps(order) + "\n")
        self.lines.flush()
        if not (line := self.lines.readline()):
            raise UserError("load generator", "it ended", "one that runs")
        return json.loads(line)


@contextlib.contextmanager
def open_generator() -> Iterator[Generator]:
    """Start Locust as a child process and wait until it takes orders."""
    with socket.create_server((HOST, 0)) as listener:
        command = [sys.executable, "-c", _SERVE, str(listener.getsockname()[1])]
        with start_child(command) as child:
            child.wait_until(lambda: bool(select.select([listener], [], [], 0)[0]), timeout_s=60)
            connection, _ = listener.accept()
            connection.settimeout(_TIMEOUT_S)
            with connection, connection.makefile("rw", encoding="utf-8") as lines:
                yield Generator(lines)


def take_orders(port: int) -> None:
    """Take orders in the process of Locust, until the owner hangs up."""
    connection = socket.create_connection((HOST, port))
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            order = json.loads(line)  # an empty one asks what is there
            lines.write(json.dumps(_run(order) if order else imported()) + "\n")
            lines.flush()


def _run(order: dict[str, Any]) -> list[dict[str, Any]]:
    """Let each user ask for its tiles, one after the other, and time each.

    A step is a dataset, a path, and for arrivals when it is due, in seconds from the beginning: its
    time counts from then on, however late it is sent.
    """
    import gevent  # which patches this process
    from locust import task
    from locust.contrib.fasthttp import FastHttpUser
    from locust.env import Environment
    from locust.exception import StopUser

    hosts, done = order["hosts"], list[object]()
    plans = iter(zip(itertools.cycle(hosts), order["plans"], strict=False))
    requests: list[dict[str, Any]] = []
    begin_s = time.perf_counter() + order["lead_s"]

    class TileUser(FastHttpUser):
        def on_start(self) -> None:
            self.address, steps = next(plans)
            self.left = iter(steps)

        def on_stop(self) -> None:
            done.append(self)

        @task
        def ask(self) -> None:
            step = next(self.left, None)
            if step is None:
                raise StopUser
            name, path, *due = step
            start_s = time.perf_counter()
            if due:
                gevent.sleep(max(0.0, begin_s + due[0] - start_s))
                start_s = begin_s + due[0]
            answer = self.client.get(f"{self.address}{path}", name=name)
            latency_s = time.perf_counter() - start_s
            content = answer.content or b""
            headers: Any = answer.headers or {}
            requests.append(
                {
                    "dataset": name,
                    "path": path,
                    "start_s": start_s,
                    "latency_s": latency_s,
                    "status": answer.status_code,
                    "checksum": xxhash.xxh3_64_hexdigest(content),
                    "nbytes": len(content),
                    "timing": headers.get("server-timing", ""),
                }
            )

    environment = Environment(user_classes=[TileUser], host=hosts[0], catch_exceptions=False)
    runner = environment.create_local_runner()
    n_users = len(order["plans"])
    runner.start(n_users, spawn_rate=n_users)
    while len(done) < n_users:
        gevent.sleep(0.005)
    runner.quit()
    return requests
