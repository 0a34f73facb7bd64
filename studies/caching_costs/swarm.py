"""The load generator: Locust without its web page, as a process that takes orders.

Started by `load`, which imports Locust before this module. One connection is
accepted; each line on it is an order, each line back its result. Starting Locust
takes a second, which therefore lies outside every measurement. Importing it
patches the sockets of a process, so that only functions do it here.
"""

from __future__ import annotations

import itertools
import json
import math
import socket
import time
from typing import Any

import xxhash

from helpers.benchmark.provenance import imported


def run_order(order: dict[str, Any]) -> dict[str, Any]:
    """Let each user ask for its tiles, one after the other, and time each.

    A step is a dataset, a path, and for arrivals when it is due, in seconds from the beginning: its
    time counts from then on, however late it is sent. With ``seconds`` users begin again with
    their tiles until that long after the beginning.
    """
    import gevent
    from locust.env import Environment

    requests: list[list[Any]] = []
    done: list[object] = []
    order["begin"] = time.perf_counter() + order["lead_s"]
    environment = Environment(
        user_classes=[_make_user(order, requests, done)],
        host=order["hosts"][0],
        catch_exceptions=False,
    )
    runner = environment.create_local_runner()
    start, cpu = time.perf_counter(), time.process_time()
    runner.start(len(order["plans"]), spawn_rate=order["spawn_rate"])
    while len(done) < len(order["plans"]):
        gevent.sleep(0.005)
    spent = {"seconds": time.perf_counter() - start, "cpu_s": time.process_time() - cpu}
    total = environment.stats.total
    runner.quit()
    counted = {"n_requests": total.num_requests, "n_failures": total.num_failures}
    return {"requests": requests, **spent, **counted}


def _make_user(order: dict[str, Any], requests: list[list[Any]], done: list[object]) -> Any:
    import gevent
    import locust
    from locust.contrib.fasthttp import FastHttpUser
    from locust.exception import StopUser

    plans, hosts = iter(order["plans"]), itertools.cycle(order["hosts"])
    end = order["begin"] + (order["seconds"] or math.inf)

    class TileUser(FastHttpUser):
        wait_time = locust.constant(order["think_s"])

        def on_start(self) -> None:
            plan = next(plans)
            self.left = itertools.cycle(plan) if order["seconds"] else iter(plan)
            self.address = next(hosts)

        def on_stop(self) -> None:
            done.append(self)

        @locust.task
        def ask(self) -> None:
            step = next(self.left, None)
            if step is None or time.perf_counter() >= end:
                raise StopUser
            name, path, *due = step
            start = time.perf_counter()
            if due:
                gevent.sleep(max(0.0, order["begin"] + due[0] - start))
                start = order["begin"] + due[0]
            answer = self.client.get(self.address + path, name=name)
            seconds = time.perf_counter() - start
            checksum = xxhash.xxh3_64_hexdigest(answer.content or b"")
            headers: Any = answer.headers or {}
            timing = headers.get("server-timing", "")
            nbytes = len(answer.content or b"")
            told = [name, path, start, seconds, answer.status_code, checksum, timing, nbytes]
            requests.append(told)

    return TileUser


def main(port: int) -> None:
    """Take orders until the owner hangs up."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        connection, _ = listener.accept()
    with connection, connection.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            order = json.loads(line)  # an empty one asks who is there
            lines.write(json.dumps(run_order(order) if order else imported()) + "\n")
            lines.flush()
