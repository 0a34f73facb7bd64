"""Counts of the ledger next to the server's own access log."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.stores import make_location
from wire.bed.networks import get_profile
from wire.bed.proxy import open_proxy
from wire.bed.testbed import Testbed, open_server
from wire.ledger.clients import CLIENTS
from wire.ledger.counting import KINDS, count_requests
from wire.ledger.environments import HERE, Environment
from wire.ledger.layouts import write_layouts
from wire.ledger.measure import list_lines, open_ledger

CLIENT_NAMES = ("s3fs-file", "zarr-array-obstore", "xarray-tree-s3fs", "pyarrow")
# the operation, as a line of the server's access log names it after time, address, user and request
OPERATION = re.compile(r"\] \S+ \S+ \S+ s3_(\w+) ")
OPERATIONS = {"Get": "GET", "Head": "HEAD", "ListObjects": "LIST", "PutObject": "PUT"}
PATIENCE_S = 10.0  # for the server to write a line of a request that it has answered


def count_logged(log: Path, start: int) -> Counter[str]:
    """Count the kinds of the requests that a log holds from a byte on."""
    operations = OPERATION.findall(log.read_text()[start:])
    return Counter(
        next((kind for begin, kind in OPERATIONS.items() if name.startswith(begin)), "OTHER")
        for name in operations
    )


@pytest.mark.slow
def test_counts_are_those_of_the_servers_own_log(tmp_path: Path) -> None:
    """Of four clients, each access has as many GET, HEAD, LIST, PUT and other requests as the server logged."""
    log, network = tmp_path / "access.log", get_profile("loopback")
    log.touch()
    layouts = {layout for name in CLIENT_NAMES for layout, _ in CLIENTS[name].accesses}
    environments = [Environment(HERE, CLIENT_NAMES)]
    compared = []
    with open_server(tmp_path / "store", access_log=log) as server:
        near = make_location(server, "logged")
        made = tmp_path / "made"
        made.mkdir()
        stored = write_layouts(near, "logged", made, layouts, seed=0)
        with (
            open_proxy(str(near.endpoint_url), profile=network) as proxy,
            open_ledger(
                Testbed(near, near.through(proxy.endpoint_url), proxy),
                stored,
                environments,
                CLIENT_NAMES,
                profile=network,
            ) as ledger,
        ):
            for line in list_lines(environments, CLIENT_NAMES):
                assert ledger.prepare(line) == ""
                start = len(log.read_text())
                answer = ledger.run(line)
                counts = count_requests(ledger.testbed.take_trace())
                kinds = Counter({kind: counts[f"n_{kind.lower()}"] for kind in (*KINDS, "OTHER")})
                until_s = time.monotonic() + PATIENCE_S
                while count_logged(log, start) != kinds and time.monotonic() < until_s:
                    time.sleep(0.05)
                assert count_logged(log, start) == kinds, line
                assert kinds.total() == counts["n_requests"] > 0
                assert ledger.check(line, answer) == "", line
                compared.append(line.client)
    assert {*compared} == {*CLIENT_NAMES}
