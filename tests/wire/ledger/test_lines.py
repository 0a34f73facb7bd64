"""The lines that take a jump back, run for real with the packages of today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.stores import make_location
from wire.bed.networks import get_profile
from wire.bed.proxy import open_proxy
from wire.bed.testbed import Server, Testbed
from wire.ledger.clients import CLIENTS
from wire.ledger.environments import HERE, Environment
from wire.ledger.jumps import read_explanations
from wire.ledger.layouts import write_layouts
from wire.ledger.measure import LedgerLine, open_ledger

LINES = [
    (client, explanation.measured_as)
    for explanation in read_explanations()
    for client in explanation.clients
    if explanation.measured_as and client in CLIENTS
]


@pytest.mark.slow
@pytest.mark.parametrize(("client", "with_line"), LINES)
def test_a_line_that_takes_a_jump_back_makes_fewer_requests(
    client: str, with_line: str, server: Server, tmp_path: Path
) -> None:
    """The same access with it and without: the count goes down."""
    needed = {name.partition(".")[0] for name in CLIENTS[client].modules.split()}
    if lacking := [name for name in needed if importlib.util.find_spec(name) is None]:
        pytest.skip(f"not installed here: {', '.join(lacking)}")
    near, network = make_location(server, "lines"), get_profile("loopback")
    layout, access = next(iter(CLIENTS[with_line].accesses))
    if ("chunks", "whole array") in CLIENTS[with_line].accesses:
        layout, access = "chunks", "whole array"
    stored = write_layouts(near, client, tmp_path, [layout], seed=0)
    names = [client, with_line]
    with (
        open_proxy(str(near.endpoint_url), profile=network) as proxy,
        open_ledger(
            Testbed(near, near.through(proxy.endpoint_url), proxy),
            stored,
            [Environment(HERE, tuple(names))],
            names,
            profile=network,
        ) as ledger,
    ):
        before, after = (ledger.measure(LedgerLine(HERE, name, layout, access)) for name in names)
    assert not before["absent"] and not after["absent"]
    assert after["n_requests"] < before["n_requests"]
