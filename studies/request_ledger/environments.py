"""Environments of the ledger: listed in one file, made by uv, each once."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from wire.errors import UserError
from wire.files import cache_folder
from wire.sealed import check_owner, is_sealed, seal

LISTED = Path(__file__).with_name("environments.yaml")
HERE = "here"
"""The environment that runs this."""
_BUILD_S = 900.0


@dataclass(frozen=True, slots=True)
class Environment:
    """A set of packages, and the clients that the ledger asks in it."""

    name: str  # "2023", or a package and its version, as in "zarr 3.0.10"
    clients: tuple[str, ...]
    packages: tuple[str, ...] = ()  # requirements; none for the environment that runs this
    until: str = ""  # day of the newest package, as ISO 8601 has it
    python: str = ""
    layouts: tuple[str, ...] = ()  # that its clients are asked for; none for all of theirs
    is_stack: bool = False  # whether it is the stack of a day

    @property
    def folder(self) -> Path:
        """Where it is made; another for other contents."""
        contents = json.dumps([self.packages, self.until, self.python])
        return cache_folder() / "ledger" / hashlib.sha256(contents.encode()).hexdigest()[:16]


def read_environments() -> list[Environment]:
    """Read the list of environments, in which all is text; the one that runs this is the first."""
    listed = yaml.load(LISTED.read_text(), yaml.BaseLoader)  # noqa: S506  # it makes text alone
    stacks, environments = listed["stacks"], [Environment(HERE, ())]
    for name, day in stacks["days"].items():
        change = {"packages": stacks["packages"], "clients": stacks["clients"], **day}
        environments.append(_describe(name, **change, is_stack=True))
    for package, change in listed["changes"].items():
        where = {"until": listed["today"], "python": listed["python"]}
        other_packages = change.pop("packages")
        for version in change.pop("versions"):
            packages = [f"{package}=={version}", *other_packages]
            environments.append(
                _describe(f"{package} {version}", packages=packages, **change, **where)
            )
    return environments


def _describe(name: str, **fields: Any) -> Environment:
    tuples: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
    }
    return Environment(name, **tuples)


def make_environment(environment: Environment) -> Path:
    """Make an environment unless it is there, or say in a line what cannot be installed; return its interpreter."""
    if environment.name == HERE:
        return Path(sys.executable)
    folder = environment.folder
    folder.mkdir(parents=True, exist_ok=True)
    check_owner(folder)
    venv = folder / "venv"
    python = venv / "bin" / "python"
    with FileLock(folder / "lock"):
        if not is_sealed(venv):
            # uv finds what pyenv selects, and not what else it has
            interpreters = sorted(
                Path.home().glob(f".pyenv/versions/{environment.python}.*/bin/python")
            )
            wanted = interpreters[-1] if interpreters else environment.python
            day = f"{environment.until}T23:59:59Z"
            try:
                _uv("venv", "--clear", "--python", wanted, venv)
                _uv(
                    "pip",
                    "install",
                    "--python",
                    python,
                    "--exclude-newer",
                    day,
                    *environment.packages,
                )
            except subprocess.CalledProcessError as error:
                reason = " ".join(error.stderr.split())[-300:]
                raise UserError(environment.name, f"cannot be installed: {reason}") from error
            seal(venv)
    return python


def _uv(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "uv", "--quiet", *arguments]
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=_BUILD_S)
