"""Environments of the ledger: listed in one file, made by uv, each once."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helpers.errors import UserError, explain
from helpers.paths import cache_folder, read_yaml

LISTED = Path(__file__).with_name("environments.yaml")
HERE = "here"
"""The environment that runs this."""
_BUILD_S = 900.0
_DRAWN = " \N{MULTIPLICATION SIGN}\u2570\u2500\u25b6\u2502\u251c"  # before what uv says


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


_Text = Annotated[str, Field(pattern=r"^[\w.\[\]<>=!-]+$")]


class _Asked(BaseModel):
    """Packages, and the clients and layouts that are asked for with them."""

    model_config = ConfigDict(extra="forbid")
    packages: list[_Text]
    clients: list[_Text]
    layouts: list[_Text] = []
    versions: list[_Text] = []  # of the package that changes


class _Day(BaseModel):
    model_config = ConfigDict(extra="forbid")
    until: date
    python: _Text
    layouts: list[_Text] = []


class _Stacks(_Asked):
    days: dict[str, _Day]


class _Listed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    today: date
    python: _Text
    stacks: _Stacks
    changes: dict[str, _Asked]


def read_environments(path: Path = LISTED) -> list[Environment]:
    """Read the list of environments; the one that runs this is the first.

    Raises
    ------
    UserError
        If the file is not such a list.
    """
    try:
        listed = _Listed.model_validate(read_yaml(path, path.name))
    except ValidationError as error:
        raise UserError(f"{path.name}: {explain(error)}") from error
    found = [Environment(HERE, ())]
    stacks = listed.stacks
    for name, day in stacks.days.items():
        packages, until = tuple(stacks.packages), day.until.isoformat()
        given = tuple(stacks.clients), packages, until, day.python, tuple(day.layouts)
        found.append(Environment(name, *given, is_stack=True))
    until = listed.today.isoformat()
    for package, asked in listed.changes.items():
        for version in asked.versions:
            packages = (f"{package}=={version}", *asked.packages)
            given = tuple(asked.clients), packages, until, listed.python, tuple(asked.layouts)
            found.append(Environment(f"{package} {version}", *given))
    return found


def make_environment(environment: Environment) -> Path:
    """Make an environment unless it is there, and return its interpreter.

    Raises
    ------
    UserError
        If there is no such Python, or uv cannot install the packages; the line says which.
    """
    if environment.name == HERE:
        return Path(sys.executable)
    folder = environment.folder
    folder.mkdir(parents=True, exist_ok=True)
    python, done = folder / "venv" / "bin" / "python", folder / "done"
    with FileLock(folder / "lock"):
        if not done.exists():
            made = _uv(
                "venv", "--clear", "--python", find_python(environment.python), python.parent.parent
            )
            if not made:
                where = ("--python", python, "--exclude-newer", f"{environment.until}T23:59:59Z")
                made = _uv("pip", "install", *where, *environment.packages)
            if made:
                raise UserError(f"{environment.name}: cannot be installed: {made}")
            done.touch()
    return python


@cache
def find_python(version: str) -> str:
    """Find an interpreter of a version: uv's own choice, or one that pyenv has but does not select."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(kept[-1]) if kept else version


def _uv(*arguments: str | Path) -> str:
    """Run uv; return its last words if it failed."""
    command = [sys.executable, "-m", "uv", *arguments[:1], "--no-progress", *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_BUILD_S)
    if not done.returncode:
        return ""
    told = [line.strip(_DRAWN) for line in done.stderr.splitlines() if line.strip()]
    return " ".join(told[-2:])[:300] or f"uv ended with {done.returncode}"
