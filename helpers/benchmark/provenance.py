"""Where a measurement comes from: machine, versions, parameters, commit.

Nothing here names a host, a user or a path: records are published.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from helpers.paths import RENDERED as RENDERED
from wire.errors import UserError, redact_tree
from wire.host import PYTHON_BUILD, Scalar, differences, installed_version, machine, python_build

_PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Provenance:
    """What must be equal for two measurements to lie in one record.

    The commit is kept for the reader but is not part of the fingerprint: a
    corrected sentence in a notebook must not throw away an hour of measuring.
    Nor are versions, for which are known depends on what has been imported by
    then: they are compared one by one, by all names that both sides know.
    """

    machine: Mapping[str, Scalar]  # facts of the machine, see `machine`
    versions: Mapping[str, str]  # version of each package that was imported by now, see `imported`
    # what the study was asked for, without what only says how long to go on
    parameters: Mapping[str, object]
    commit: str = "unknown"  # commit of the project, or "unknown"
    is_dirty: bool = True  # whether the sources differ from `commit`
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        """Black out credentials, and compute the fingerprint once: both go into every row."""
        object.__setattr__(self, "parameters", redact_tree(self.parameters))
        value = fingerprint(self.parameters, machine=self.machine)
        object.__setattr__(self, "fingerprint", value)


def describe(parameters: Mapping[str, object], *, but: Collection[str] = ()) -> Provenance:
    """Describe this machine, what has been imported, the commit, and the parameters of a study.

    Left out of these is what does not change what is measured, as in how long to go on.
    """
    name, is_dirty = commit()
    measured_parameters = {key: value for key, value in parameters.items() if key not in but}
    return Provenance(machine(), imported(), measured_parameters, name, is_dirty)


def imported() -> dict[str, str]:
    """Look up the versions of all that this process has imported so far.

    Nothing is a list that somebody has to keep: packages are mapped to the distributions that
    installed them. This project is not among them, for its commit says more.
    """
    python = {"python": platform.python_version(), PYTHON_BUILD: python_build()}
    return dict(sorted({**python, **_imported(frozenset([*sys.modules]))}.items()))


@functools.lru_cache(maxsize=1)  # asked after each read, and seldom is there anything new
def _imported(names: frozenset[str]) -> dict[str, str]:
    # modules without a file are namespaces, of which nothing may have been imported
    loaded = {
        name.partition(".")[0] for name in names if getattr(sys.modules.get(name), "__file__", "")
    }
    owners = (name for package in loaded for name in _distribution_names().get(package, ()))
    versions = {name: installed_version(name) for name in owners if name != _NAME}
    # the libraries that h5py and netCDF4 have loaded; each brings its own HDF5
    h5py, netcdf4 = sys.modules.get("h5py"), sys.modules.get("netCDF4")
    libraries = {
        "HDF5 of h5py": getattr(getattr(h5py, "version", None), "hdf5_version", None),
        "HDF5 of netCDF4": getattr(netcdf4, "__hdf5libversion__", None),
        "netCDF-C of netCDF4": getattr(netcdf4, "__netcdf4libversion__", None),
    }
    return versions | {name: str(version) for name, version in libraries.items() if version}


@functools.cache
def _distribution_names() -> Mapping[str, list[str]]:
    """List who installed each package."""
    return metadata.packages_distributions()


_NAME = "arrays-over-the-wire"


def name_worker_versions(process: str, answers: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Name the versions that processes beside this one have imported.

    A distribution of the version that is installed here has its plain name.
    Another version, and a library that was loaded there, has the process in
    its name, so that neither hides the other. What has been imported here does
    not matter: the names are the same whenever they are made.
    """
    versions_by_name: dict[str, set[str]] = {}
    for name, version in (pair for answer in answers for pair in answer.items()):
        is_same = installed_version(name) == version
        versions_by_name.setdefault(name if is_same else f"{name} in {process}", set()).add(version)
    return {
        name: ", ".join(sorted(versions)) for name, versions in sorted(versions_by_name.items())
    }


def commit() -> tuple[str, bool]:
    """Find the commit of the project."""
    top, _, name = (_git("rev-parse", "--show-toplevel", "HEAD") or "").partition("\n")
    if not name or Path(top).resolve() != _PROJECT:
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


def fingerprint(parameters: Mapping[str, object], *, machine: Mapping[str, Scalar]) -> str:
    """Hash what must not change within a record and is known from its first row on."""
    text = as_json({"machine": machine, "parameters": parameters})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def as_json(value: object) -> str:
    """Write a value as JSON on one line, keys in order."""
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        # The value itself stays unsaid: it may be a secret.
        raise UserError(
            "record",
            f"a value does not fit into it: {error}",
            "text, finite numbers, lists, mappings",
        ) from error


def _plain(value: object) -> object:
    """Turn mappings and NumPy numbers into what JSON knows."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not plain")


def list_clashes(now: Mapping[str, object], recorded: Mapping[str, object]) -> Iterator[str]:
    """Name the entries that two mappings both have and in which they differ."""
    both = now.keys() & recorded.keys()
    return differences({k: now[k] for k in both}, {k: recorded[k] for k in both})
