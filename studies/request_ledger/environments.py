"""Environments of the ledger: listed in one file, made by uv, each once."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helpers.errors import UserError
from helpers.paths import cache_folder

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


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Day(_Model):
    until: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    python: _Text
    layouts: list[_Text] = []


class _Stacks(_Model):
    packages: list[_Text]
    clients: list[_Text]
    days: dict[str, _Day]


class _Change(_Model):
    packages: list[_Text]
    clients: list[_Text]
    layouts: list[_Text] = []
    versions: list[_Text]


class _Listed(_Model):
    old: list[_Text]  # named by others of the list
    today: str = Field(pattern=r"^\d{4}-\d\d-\d\d$")
    python: _Text
    stacks: _Stacks
    changes: dict[str, _Change]


def read_environments(path: Path = LISTED) -> list[Environment]:
    """Read the list of environments; the one that runs this is the first.

    Raises
    ------
    UserError
        If the file is not such a list.
    """
    try:
        text = yaml.load(path.read_bytes(), yaml.BaseLoader)  # noqa: S506  # it makes texts alone
        listed = _Listed.model_validate(text)
    except (OSError, ValidationError, yaml.YAMLError) as error:
        raise UserError(f"{path.name}: {' '.join(str(error).split())[:300]}") from error
    return [Environment(HERE, ()), *_list(listed)]


def _list(listed: _Listed) -> Iterator[Environment]:
    stacks = listed.stacks
    for name, day in stacks.days.items():
        given = tuple(stacks.clients), tuple(stacks.packages)
        layouts = tuple(day.layouts)
        yield Environment(name, *given, day.until, day.python, layouts, is_stack=True)
    for package, change in listed.changes.items():
        for version in change.versions:
            packages = (f"{package}=={version}", *change.packages)
            given = tuple(change.clients), packages
            name, layouts = f"{package} {version}", tuple(change.layouts)
            yield Environment(name, *given, listed.today, listed.python, layouts)


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
