"""Check what the newest versions request of whole chunks, against the committed record: ``python -m studies.request_ledger.cli``."""

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
from wire.cli import end_well
from wire.errors import say
from wire.ledger.check import (
    CANDIDATE,
    RELEASE,
    CheckReport,
    CheckResult,
    Difference,
    Failure,
)
from wire.ledger.cli import describe_result

NEWEST = "newest"


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


def check_newest(clients: Sequence[str]) -> CheckReport:
    """Measure the newest versions once and compare them with the committed record."""
    committed = findings.tabulate(read_records([findings.COMMITTED]))
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
    return CheckReport(tuple(compare_client(name, committed, table) for name in clients))


def compare_client(client: str, committed: pd.DataFrame, newest: pd.DataFrame) -> CheckResult:
    """Compare the runs of a client with the newest environment that the committed record has."""
    committed, newest = (runs[runs["client"] == client] for runs in (committed, newest))
    before = findings.choose_newest(findings.merge_runs(committed))
    merged = findings.merge_runs(newest)
    after = merged[merged["environment"].isin(merged["environment"].iloc[-1:])]  # as measured
    columns = ["layout", "operation", "count", "before", "after"]
    differences = findings.compare(before, after)[columns].itertuples(index=False)
    failures = [
        *list_failures(RELEASE, findings.choose_newest(committed)),
        *list_failures(CANDIDATE, newest),
    ]
    last, candidate = ("".join(lines["versions"].iloc[:1]) for lines in (before, after))
    return CheckResult(
        client,
        last,
        candidate,
        last,
        candidate,
        len(before.merge(after, on=["layout", "operation"])),
        tuple(
            Difference(client, layout, operation, count, low, high, bool(high > low))
            for layout, operation, count, low, high in differences
        ),
        (),
        tuple(failures),
    )


def list_failures(name: str, runs: pd.DataFrame) -> list[Failure]:
    """List the operations that a client could not do, with why."""
    refused = runs.loc[runs["absent"] != "", ["client", "layout", "operation", "absent"]]
    return [
        Failure(client, layout, operation, name, reason)
        for client, layout, operation, reason in refused.drop_duplicates().itertuples(index=False)
    ]


@click.command()
@click.option(
    "--client",
    "clients",
    multiple=True,
    type=click.Choice([*LAYOUTS]),
    help="Client to check; all by default.",
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def check(clients: tuple[str, ...], is_json: bool) -> None:
    """Run the newest versions, and print what requests more or less than the committed record.

    The exit code is 1 where something requests more.
    """
    report = check_newest([*(clients or LAYOUTS)])
    if is_json:
        say(json.dumps(report.to_json(), indent=2))
    else:
        for result in report.results:
            say("\n".join(describe_result(result)))
    sys.exit(any(result.is_worse for result in report.results))


if __name__ == "__main__":
    with end_well():
        check(standalone_mode=False)
