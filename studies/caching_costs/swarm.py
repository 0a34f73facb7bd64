"""The load generator: Locust without its web page, as a process that takes orders.

Started by `load`, which imports Locust before this module. One connection is
accepted; each line on it is an order, each line back its result. Starting Locust
takes a second, which therefore lies outside every measurement. Importing it
patches the sockets of a process, so that only functions do it here.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import xxhash

from helpers.benchmark.provenance import imported


def run_order(order: dict[str, Any]) -> list[list[Any]]:
    """Let each user ask for its tiles, one after the other, and time each.

    A step is a dataset, a path, and for arrivals when it is due, in seconds from the beginning: its
    time counts from then on, however late it is sent.
    """
    import gevent
    from locust.env import Environment

    requests: list[list[Any]] = []
    done: list[object] = []
    order["begin"] = time.perf_counter() + order["lead_s"]
    users = [_make_user(order, requests, done)]
    environment = Environment(user_classes=users, host=order["host"], catch_exceptions=False)
    runner = environment.create_local_runner()
    runner.start(len(order["plans"]), spawn_rate=len(order["plans"]))
    while len(done) < len(order["plans"]):
        gevent.sleep(0.005)
    runner.quit()
    return requests


def _make_user(order: dict[str, Any], requests: list[list[Any]], done: list[object]) -> Any:
    import gevent
    from locust import task
    from locust.contrib.fasthttp import FastHttpUser
    from locust.exception import StopUser

    plans = iter(order["plans"])

    class TileUser(FastHttpUser):
        def on_start(self) -> None:
            self.left = iter(next(plans))

        def on_stop(self) -> None:
            done.append(self)

        @task
        def ask(self) -> None:
            step = next(self.left, None)
            if step is None:
                raise StopUser
            name, path, *due = step
            start = time.perf_counter()
            if due:
                gevent.sleep(max(0.0, order["begin"] + due[0] - start))
                start = order["begin"] + due[0]
            answer = self.client.get(path, name=name)
            seconds = time.perf_counter() - start
            content = answer.content or b""
            headers: Any = answer.headers or {}
            timing, checksum = headers.get("server-timing", ""), xxhash.xxh3_64_hexdigest(content)
            told = [name, path, start, seconds, answer.status_code, checksum, timing, len(content)]
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
