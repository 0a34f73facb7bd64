"""``wire ledger``: what the newest versions ask for, against the committed record."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import methodcaller
from pathlib import Path

import click
import pandas as pd

from helpers.benchmark import loop, provenance
from helpers.benchmark.record import Record, read_records
from studies.request_ledger import findings, gcs
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
from wire.bed.networks import get_profile
from wire.bed.testbed import open_testbed
from wire.errors import say

NEWEST = "newest"
_WORDS = {"n_requests": "requests", "wire_nbytes": "bytes", "n_waits": "waits in a chain"}


def list_newest() -> list[Environment]:
    """List, for each package of the list, an environment with its newest version as of today."""
    today = datetime.now(UTC).date().isoformat()
    newest: dict[tuple[str, ...], Environment] = {}
    for environment in read_environments()[1:]:
        packages = tuple(name.partition("==")[0] for name in environment.packages)
        name = f"{NEWEST} {packages[0]}" if "==" in environment.packages[0] else NEWEST
        newest[packages] = replace(
            environment, name=name, packages=packages, until=today, layouts=(), is_stack=False
        )
    return [*newest.values()]


def check_newest(clients: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Measure the newest versions once; compare with the committed record, and say what could not be."""
    committed = findings.tabulate(read_records([findings.COMMITTED]))
    before = findings.choose_newest(findings.merge_runs(committed))
    settings = Parameters.model_validate({})
    environments = list_newest()
    listed = list_operations(environments, clients, OPERATIONS)
    network, go = get_profile("in-region"), methodcaller("go")
    with (
        tempfile.TemporaryDirectory() as folder,
        open_testbed("embedded", network, needed_nbytes=10**9) as testbed,
        Session({environment.name: environment for environment in environments}) as session,
    ):
        shapes = tuple(settings.array_shape), tuple(settings.chunk_shape)
        stored = write_layouts(testbed.near, *shapes, seed=settings.seed)
        origin = provenance.describe(settings.model_dump(), but=Parameters.not_measured)
        record = Record(Path(folder) / "newest.csv", study="request-ledger", provenance=origin)
        where = testbed.near, stored.prefix, network
        with gcs.open_service(clients, *where, seed=settings.seed) as services:
            rows = loop.measure_blocks(
                contend_all(listed, session, testbed, stored, read=go, services=services),
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
@click.option(
    "--client",
    "clients",
    multiple=True,
    type=click.Choice([*LAYOUTS]),
    help="Client to check; all by default.",
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def check(clients: tuple[str, ...], is_json: bool) -> None:
    """Run the newest versions, and say what asks for more or less than the committed record.

    The exit code is 1 where something asks for more.
    """
    differences, absent = check_newest([*(clients or LAYOUTS)])
    lines = differences.to_dict("records")
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
            which = "what was checked asks" if absent else "all newest versions ask"
            say(f"{which} for what the record has")
    sys.exit(any(line["is_more"] for line in lines))
