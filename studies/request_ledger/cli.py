"""``wire ledger``: what the newest versions ask for, against the committed record."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import click
import pandas as pd

from helpers.benchmark import loop, provenance
from helpers.benchmark.record import Record, read_records
from helpers.errors import UserError, say
from helpers.netem.profiles import get_profile
from helpers.objectstore.testbed import open_testbed
from studies.request_ledger import findings
from studies.request_ledger.environments import Environment, read_environments
from studies.request_ledger.parameters import Parameters
from studies.request_ledger.workload import (
    LAYOUTS,
    OPERATIONS,
    Session,
    contend_all,
    list_operations,
)
from studies.request_ledger.written import write_layouts

NEWEST = "newest"
_WORDS = {"n_requests": "requests", "wire_nbytes": "bytes", "n_waits": "waits in a chain"}


def list_newest() -> list[Environment]:
    """List, for each package of the list, an environment with its newest version as of today."""
    today = datetime.now(UTC).date().isoformat()
    newest: dict[tuple[str, ...], Environment] = {}
    for environment in read_environments()[1:]:
        packages = tuple(one.partition("==")[0] for one in environment.packages)
        name = f"{NEWEST} {packages[0]}" if "==" in environment.packages[0] else NEWEST
        newest[packages] = Environment(
            name, environment.clients, packages, until=today, python=environment.python
        )
    return [*newest.values()]


def check_newest(clients: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Measure the newest versions once, and compare them with the committed record.

    Returns
    -------
    DataFrame, list of str
        As of `findings.compare`, and in a line each what could not be checked.
    """
    committed = findings.tabulate(read_records([findings.COMMITTED]))
    before = findings.choose_newest(findings.merge_runs(committed))
    settings = Parameters.model_validate({})
    environments = list_newest()
    listed = list_operations(environments, clients, OPERATIONS)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        network = get_profile("in-region")
        testbed = stack.enter_context(open_testbed("embedded", network, needed_nbytes=10**9))
        shapes = tuple(settings.array_shape), tuple(settings.chunk_shape)
        stored = write_layouts(testbed.near, *shapes, seed=settings.seed)
        session = stack.enter_context(Session({one.name: one for one in environments}))
        origin = provenance.describe(settings.model_dump(), but=Parameters.not_measured)
        record = Record(folder / "newest.csv", study="request-ledger", provenance=origin)
        contenders = contend_all(listed, session, testbed, stored, read=lambda client: client.go())
        rows = loop.measure_blocks(
            contenders,
            record,
            seed=settings.seed,
            budget=loop.Budget(settings.time_budget_s),
            dilation=1.0,
            n_warm_ups=0,
            n_blocks=1,
        )
    table = findings.tabulate(rows)
    reasons = table.loc[table["absent"] != "", ["client", "absent"]].drop_duplicates()
    absent = [f"{client}: {reason}" for client, reason in reasons.itertuples(index=False)]
    merged = findings.merge_runs(table)
    last = merged.groupby("client")["environment"].transform("last")  # as they were measured
    return findings.compare(before, merged[merged["environment"] == last]), absent


@click.group()
def ledger() -> None:
    """Check what each client asks of the store, version by version."""


@ledger.command()
@click.option("--client", "clients", multiple=True, help="Client to check; all by default.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def check(clients: tuple[str, ...], is_json: bool) -> None:
    """Run the newest versions, and say what asks for more or less than the committed record.

    The exit code is 1 where something asks for more.
    """
    for name in clients:
        if name not in LAYOUTS:
            raise UserError(f"--client: {name!r}; allowed: {', '.join(LAYOUTS)}")
    found, absent = check_newest([*(clients or LAYOUTS)])
    lines = found.to_dict("records")
    for line in lines:
        line["is_more"] = line["after"] > line["before"]
    if is_json:
        say(json.dumps({"differences": lines, "absent": absent}, indent=2))
    else:
        for line in lines:
            word = "more" if line["is_more"] else "less"
            where = f"{line['client']}, {line['operation']} of {line['layout']}"
            numbers = f"{line['before']:.0f} before and {line['after']:.0f} now"
            say(f"{where}: {word} {_WORDS[line['count']]}, {numbers}")
        for reason in absent:
            say(f"not checked: {reason}")
        if not lines:
            say("all newest versions ask for what the record has")
    sys.exit(any(line["is_more"] for line in lines))
