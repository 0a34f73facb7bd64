"""``wire ledger``: what a client requests with a package from anywhere, against its last release."""

from __future__ import annotations

import json
import sys

import click

from wire.errors import say
from wire.ledger.check import CheckReport, CheckResult, Difference, Failure, check_package
from wire.ledger.clients import CLIENTS
from wire.ledger.environments import read_environments

_WORDS = {"n_requests": "requests", "wire_nbytes": "bytes", "n_waits": "requests in a chain"}


@click.group()
def ledger() -> None:
    """Check what clients request from a store, version by version."""


@ledger.command()
@click.option(
    "--with",
    "requirements",
    multiple=True,
    metavar="REQUIREMENT",
    help="Package to check: 'PACKAGE @ URL', a requirement, or a folder. [default: newest releases]",
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    type=click.Choice([*CLIENTS]),
    help="Client to check. [default: all of the package]",
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def check(requirements: tuple[str, ...], clients: tuple[str, ...], is_json: bool) -> None:
    """Measure what clients request with a package, against its last release.

    Each access runs twice, and counts are those of the server's side. The exit code is 1 where
    something requests more, waits longer or moves more, or reads what was not written.

    \b
    Examples:
      wire ledger check --with ./s3fs
      wire ledger check --with "s3fs @ git+https://github.com/fsspec/s3fs@main"
      wire ledger check --with "zarr==3.0.9" --client xarray-tree-obstore --json
    """  # noqa: D301
    wanted = requirements or tuple(list_newest())
    results = tuple(
        check_package(requirement, clients, report=lambda line: say(line, err=True))
        for requirement in wanted
    )
    if is_json:
        say(json.dumps(CheckReport(results).to_json(), indent=2))
    else:
        for result in results:
            say("\n".join(describe_result(result)))
    sys.exit(any(result.is_worse for result in results))


def list_newest() -> list[str]:
    """List the packages of the ledger that pip installs, of which the newest release is checked."""
    return list(
        dict.fromkeys(
            environment.package
            for environment in read_environments()[1:]
            if environment.package and not environment.node
        )
    )


def describe_result(result: CheckResult) -> list[str]:
    """Describe what differs, the answer first."""
    n_more = sum(entry.is_more for entry in result.differences)
    answer = f"{n_more} counts are more" if n_more else "nothing requests more"
    lines = [f"{result.package}: {answer}, in {result.n_compared} accesses"]
    lines += [
        f"  last release: {result.last_packages}",
        f"  candidate:    {result.candidate_packages}",
    ]
    lines += [f"reads wrong values: {describe_failure(failure)}" for failure in result.wrong]
    lines += [describe_difference(entry) for entry in result.differences]
    return lines + [f"not checked: {describe_failure(failure)}" for failure in result.absent]


def describe_failure(failure: Failure) -> str:
    """Describe why an access has no counts."""
    where = f"{failure.client}, {failure.access} of {failure.layout}"
    return f"{where}, {failure.environment}: {failure.reason}"


def describe_difference(entry: Difference) -> str:
    """Describe one count that differs.

    Examples
    --------
    >>> describe_difference(Difference("s3fs-file", "hdf5-paged", "one chunk", "n_requests", 2, 9, True))
    's3fs-file, one chunk of hdf5-paged: more requests, 2 with the last release and 9 now'
    """
    word = "more" if entry.is_more else "less"
    numbers = f"{entry.before:,.0f} with the last release and {entry.after:,.0f} now"
    return (
        f"{entry.client}, {entry.access} of {entry.layout}: {word} {_WORDS[entry.count]}, {numbers}"
    )
