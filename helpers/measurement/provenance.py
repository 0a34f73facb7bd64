"""Where a measurement comes from: machine, versions, parameters, commit.

Nothing here names a host, a user or a path: records are published.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import psutil

from helpers.errors import UserError
from helpers.redaction import redact_tree

Scalar = str | int | float | bool | None

_PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Provenance:
    """What must be equal for two measurements to lie in one record.

    The commit is kept for the reader but is not part of the fingerprint: a
    corrected sentence in a notebook must not throw away an hour of measuring.

    Parameters
    ----------
    machine : mapping
        Facts of the machine, see `machine`.
    versions : mapping of str to str
        Version of each package that is measured, see `versions`.
    parameters : mapping
        What the study was asked for, without what only says how long to go on.
    commit : str
        Commit of the project, or "unknown".
    is_dirty : bool
        Whether the sources differ from `commit`.
    """

    machine: Mapping[str, Scalar]
    versions: Mapping[str, str]
    parameters: Mapping[str, object]
    commit: str = "unknown"
    is_dirty: bool = True
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        """Black out credentials, and compute the fingerprint once: both go into every row."""
        object.__setattr__(self, "parameters", redact_tree(self.parameters))
        value = fingerprint(self.parameters, machine=self.machine, versions=self.versions)
        object.__setattr__(self, "fingerprint", value)


def describe(parameters: Mapping[str, object], packages: Iterable[str]) -> Provenance:
    """Describe this machine, the packages named, and the commit.

    Parameters
    ----------
    parameters : mapping
        What the study was asked for; values that JSON can hold.
    packages : iterable of str
        Distribution names, as in "zarr".

    Returns
    -------
    Provenance
        Facts of here and now.

    Raises
    ------
    UserError
        If a package is not installed, or a parameter does not fit into JSON.
    """
    name, is_dirty = commit()
    return Provenance(machine(), versions(packages), dict(parameters), name, is_dirty)


def machine() -> dict[str, Scalar]:
    """Describe this machine without naming it.

    Returns
    -------
    dict
        `cpu` (model), `n_cores` (those this process may use), `memory_gb`
        (decimal, whole) and `system` (kernel to two numbers, architecture).
    """
    release = ".".join(platform.release().split(".")[:2])
    return {
        "cpu": _cpu_model(),
        "n_cores": _n_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": f"{platform.system()} {release} {platform.machine()}",
    }


def _n_cores() -> int:
    """Count the cores this process may use, where the system can tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    """Name the processor, for `platform.processor` is empty on most Linuxes."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Look up the versions of Python and of installed packages.

    Parameters
    ----------
    packages : iterable of str
        Distribution names, as in "zarr".

    Returns
    -------
    dict of str to str
        Name to version, in alphabetical order, `python` included.

    Raises
    ------
    UserError
        If a package is not installed.
    """
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError as error:
            raise UserError(
                f"packages: {name!r} is not installed; name installed distributions only"
            ) from error
    return dict(sorted(found.items()))


def commit() -> tuple[str, bool]:
    """Find the commit of the project.

    Returns
    -------
    name : str
        The commit in full, or "unknown" where there is no git, no commit yet,
        or the project lies inside a repository of something else.
    is_dirty : bool
        Whether files outside `results/` differ from that commit; true when it
        is unknown, because nothing vouches for the sources.
    """
    top = _git("rev-parse", "--show-toplevel")
    name = _git("rev-parse", "--verify", "HEAD")
    if not top or not name or Path(top).resolve() != _PROJECT:
        return "unknown", True
    return name, _git("status", "--porcelain", "--", ".", ":!results") != ""


def _git(*arguments: str) -> str | None:
    """Ask git about the project; None where it cannot answer."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=_PROJECT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def fingerprint(
    parameters: Mapping[str, object],
    *,
    machine: Mapping[str, Scalar],
    versions: Mapping[str, str],
) -> str:
    """Hash what must not change within a record.

    Parameters
    ----------
    parameters : mapping
        What the study was asked for.
    machine : mapping
        Facts of the machine.
    versions : mapping of str to str
        Version of each package.

    Returns
    -------
    str
        Sixteen hexadecimal digits, independent of the order of the keys.

    Raises
    ------
    UserError
        If a value does not fit into JSON.

    Examples
    --------
    >>> one = fingerprint({"seed": 1, "codec": "zstd"}, machine={}, versions={})
    >>> one == fingerprint({"codec": "zstd", "seed": 1}, machine={}, versions={})
    True
    >>> one == fingerprint({"codec": "zstd", "seed": 2}, machine={}, versions={})
    False
    """
    text = as_json({"machine": machine, "versions": versions, "parameters": parameters})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def as_json(value: object) -> str:
    """Write a value as JSON on one line, keys in order.

    Parameters
    ----------
    value : object
        Numbers, text, lists and mappings; NaN is refused, for JSON has none.

    Returns
    -------
    str
        The same text for equal values.

    Raises
    ------
    UserError
        If JSON cannot hold the value.

    Examples
    --------
    >>> as_json({"n_workers": 4, "codec": "zstd"})
    '{"codec": "zstd", "n_workers": 4}'
    """
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        # The value itself stays unsaid: it may be a secret.
        raise UserError(
            f"a value does not fit into a record: {error}; allowed: text, finite numbers, lists, mappings"
        ) from error


def _plain(value: object) -> object:
    """Turn mappings and NumPy numbers into what JSON knows."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not plain")


def differences(here: Mapping[str, object], there: Mapping[str, object]) -> Iterator[str]:
    """Name the entries in which two mappings differ.

    Parameters
    ----------
    here, there : mapping
        Facts of this run and of a record.

    Yields
    ------
    str
        One difference.

    Examples
    --------
    >>> list(differences({"zarr": "3.1.6"}, {"zarr": "3.4.2"}))
    ['zarr 3.1.6 here, 3.4.2 there']
    """
    for key in sorted({*here, *there}):
        mine, other = here.get(key, "absent"), there.get(key, "absent")
        if mine != other:
            yield f"{key} {mine} here, {other} there"
