"""Compare what a client requests with a package from anywhere against its last release."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wire.bed.networks import get_profile
from wire.bed.testbed import open_testbed
from wire.errors import UserError
from wire.ledger.clients import CLIENTS
from wire.ledger.environments import Environment, read_environments
from wire.ledger.jumps import LEAST, MeasuredAccess, compare_releases
from wire.ledger.layouts import write_layouts
from wire.ledger.measure import Ledger, LedgerLine, list_lines, open_ledger

RELEASE, CANDIDATE = "last release", "candidate"
N_BLOCKS = 2
REPORT_VERSION = 1
"""Of what `--json` prints."""
_NAME = re.compile(r"\s*([A-Za-z0-9][\w.-]*?)\s*(?:\[[^\]]*\])?\s*(?:@|[=<>!~]=|[<>]|$)")


@dataclass(frozen=True, slots=True)
class Difference:
    """A count of one access that differs between the last release and a candidate."""

    client: str  # of the ledger, as `--client` takes it
    layout: str  # what is read, such as hdf5-scattered
    access: str  # what a program does with it, such as three variables
    count: str  # n_requests, n_waits (requests in a chain) or wire_nbytes
    before: float  # with the last release
    after: float  # with the candidate
    is_more: bool  # whether the candidate's count is larger


@dataclass(frozen=True, slots=True)
class Failure:
    """An access that an environment could not make, or that read something wrong."""

    client: str
    layout: str
    access: str
    environment: str  # last release, or candidate
    reason: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a candidate of one package changes, what was compared, and what could not be."""

    package: str  # that is checked; of whole chunks the client
    last_release: str  # package and version, such as s3fs 2026.9.0; empty where nothing ran
    candidate: str
    last_packages: str  # with the versions of the packages beside it
    candidate_packages: str
    n_compared: int  # accesses that ran with both
    differences: tuple[Difference, ...]
    wrong: tuple[Failure, ...]  # accesses that read something else than was written
    absent: tuple[Failure, ...]  # accesses that could not be made

    @property
    def is_worse(self) -> bool:
        """Whether the candidate makes a count larger, or reads something wrong."""
        is_wrong = any(failure.environment == CANDIDATE for failure in self.wrong)
        return is_wrong or any(entry.is_more for entry in self.differences)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `wire ledger check --json` prints: a result for each package."""

    results: tuple[CheckResult, ...]
    version: int = REPORT_VERSION

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return asdict(self)


def name_package(requirement: str) -> str:
    """Return the package that a requirement names, or that a folder holds.

    Examples
    --------
    >>> name_package("s3fs @ git+https://github.com/fsspec/s3fs@branch"), name_package("Zarr==3.0.9")
    ('s3fs', 'zarr')
    """
    if (folder := Path(requirement)).is_dir():
        return read_project_name(folder)
    match = _NAME.match(requirement)
    if match is None:
        raise UserError("--with", requirement, "'PACKAGE @ URL', a requirement, or a folder")
    return match[1].lower()


def read_project_name(folder: Path) -> str:
    """Return the name of the project in a folder: that of its pyproject.toml, or what its build says."""
    allowed = "a folder with a Python project, or 'PACKAGE @ PATH'"
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8")).get("project", {})
    except FileNotFoundError:
        project = {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UserError("--with", folder, allowed) from error
    if "name" in project:
        return str(project["name"]).lower()
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-deps", "-"]
    completed = subprocess.run(
        command, input=folder.resolve().as_uri(), capture_output=True, text=True, check=False
    )
    name = re.search(r"^([A-Za-z0-9][\w.-]*) @ ", completed.stdout, re.M)
    if name is None:
        raise UserError("--with", folder, allowed)
    return name[1].lower()


def make_environments(requirement: str) -> tuple[str, Environment, Environment]:
    """Describe the environments of a package's last release and of a candidate, with the same others.

    The name of a package alone is its newest release, and the last one is then the newest that the
    ledger lists.
    """
    package = name_package(requirement)
    listed = {environment.package: environment for environment in read_environments()[1:]}
    by_name = {name.lower(): environment for name, environment in listed.items()}
    if package not in by_name or by_name[package].node:
        allowed = ", ".join(sorted(name for name, listing in by_name.items() if not listing.node))
        raise UserError("--with", requirement, f"a package of the ledger: {allowed}")
    last = by_name[package]
    companions = tuple(
        name for name in last.packages if not name.lower().startswith(f"{package}==")
    )
    today = datetime.now(UTC).date().isoformat()
    name, _, place = (part.strip() for part in requirement.partition("@"))
    folder = Path(place or requirement)
    if folder.is_dir():
        requirement = f"{name if place else package} @ {folder.resolve().as_uri()}"
    is_newest = requirement.strip().lower() == package
    before = f"{package}=={last.version}" if is_newest else package
    release = Environment(RELEASE, last.clients, (before, *companions), today, last.python)
    candidate = Environment(CANDIDATE, last.clients, (requirement, *companions), today, last.python)
    return package, release, candidate


def check_package(
    requirement: str,
    names: Collection[str] = (),
    *,
    report: Callable[[str], None] = lambda _line: None,
) -> CheckResult:
    """Measure the accesses of a package's clients with its last release and with a candidate.

    Each runs twice, and a count differs only where both runs agree. `report` is called with one
    line for each access.
    """
    package, release, candidate = make_environments(requirement)
    chosen = [name for name in release.clients if not names or name in names]
    if not chosen:
        raise UserError("--client", ", ".join(names), ", ".join(release.clients))
    shutil.rmtree(candidate.folder, ignore_errors=True)  # a branch or folder may have changed
    layouts = {layout for name in chosen for layout, _ in CLIENTS[name].accesses}
    network = get_profile("express")
    environments = [release, candidate]
    with (
        tempfile.TemporaryDirectory() as folder,
        open_testbed("embedded", network, needed_nbytes=10**9) as testbed,
    ):
        stored = write_layouts(testbed.near, "ledger-check", Path(folder), layouts, seed=0)
        with open_ledger(testbed, stored, environments, chosen, profile=network) as ledger:
            return compare_environments(ledger, package, environments, chosen, report=report)


def compare_environments(
    ledger: Ledger,
    package: str,
    environments: Sequence[Environment],
    names: Collection[str],
    *,
    report: Callable[[str], None] = lambda _line: None,
) -> CheckResult:
    """Measure all accesses in two environments, and compare the second with the first."""
    counts: dict[LedgerLine, list[dict[str, Any]]] = {}
    lines = list_lines(environments, names)
    for _ in range(N_BLOCKS):
        for line in lines:
            counts.setdefault(line, []).append(ledger.measure(line))
            report(f"{line.environment}: {line.client}, {line.access} of {line.layout}")
    names_of_both = [environment.name for environment in environments]
    wrong, absent = list[Failure](), list[Failure]()
    differences, n_compared = list[Difference](), 0
    packages = dict.fromkeys(names_of_both, "")
    for line in lines:
        if line.environment != names_of_both[0]:
            continue
        pair = {name: counts[replace(line, environment=name)] for name in names_of_both}
        failed = False
        for name, runs in pair.items():
            packages[name] = packages[name] or str(runs[0]["versions"])
            for failures, key in ((absent, "absent"), (wrong, "wrong")):
                if reason := next((str(run[key]) for run in runs if run[key]), ""):
                    failed = True
                    failures.append(Failure(line.client, line.layout, line.access, name, reason))
        if failed:
            continue
        n_compared += 1
        differences += list_differences(
            *(
                MeasuredAccess(line.client, line.layout, line.access, package, name, i, tuple(runs))
                for i, (name, runs) in enumerate(pair.items())
            )
        )
    before, after = packages.values()
    return CheckResult(
        package,
        name_release(package, before),
        name_release(package, after),
        before,
        after,
        n_compared,
        tuple(differences),
        tuple(wrong),
        tuple(absent),
    )


def name_release(package: str, packages: str) -> str:
    """Name the release of a package among packages with their versions; empty if it is not there.

    Examples
    --------
    >>> name_release("s3fs", "h5py 3.16.0, s3fs 2026.9.0")
    's3fs 2026.9.0'
    """
    releases = packages.split(", ")
    return next((text for text in releases if text.partition(" ")[0].lower() == package), "")


def list_differences(before: MeasuredAccess, after: MeasuredAccess) -> list[Difference]:
    """List the counts of an access that differ, by the rule of jumps."""
    jump = compare_releases(before, after)
    if jump is None:
        return []
    return [
        Difference(
            before.client,
            before.layout,
            before.access,
            count,
            before.bounds(count)[0],
            after.bounds(count)[0],
            count in jump.more,
        )
        for count in LEAST
        if count in (*jump.more, *jump.less)
    ]
