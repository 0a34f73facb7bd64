"""Environments of the ledger: sets of packages, listed in a file, made by uv and npm, each once."""

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
    """A set of packages, and the clients that the ledger measures in it."""

    name: str  # "2023", or a package and its version, as in "zarr 3.0.10"
    clients: tuple[str, ...]
    packages: tuple[str, ...] = ()  # requirements; none for the environment that runs this
    until: str = ""  # day of the newest package, as ISO 8601 has it
    python: str = ""
    layouts: tuple[str, ...] = ()  # that its clients read; none for all of theirs
    is_stack: bool = False  # whether it is the stack of a day
    node: tuple[str, ...] = ()  # packages of npm

    @property
    def folder(self) -> Path:
        """Where it is made; another for other contents."""
        contents = [self.packages, self.until, self.python, *([self.node] if self.node else [])]
        digest = hashlib.sha256(json.dumps(contents).encode()).hexdigest()
        return cache_folder() / "ledger" / digest[:16]

    @property
    def package(self) -> str:
        """Package whose version it states; empty for the stack of a day."""
        return self.name.partition(" ")[0] if " " in self.name else ""

    @property
    def version(self) -> str:
        """Version of that package."""
        return self.name.partition(" ")[2]


def read_environments(path: Path = LISTED) -> list[Environment]:
    """Read a list of environments, in which all is text; the one that runs this is the first."""
    listed = yaml.load(path.read_text(), yaml.BaseLoader)  # noqa: S506  # it makes text alone
    environments = [Environment(HERE, ())]
    if stacks := listed.get("stacks"):
        shared = {"packages": stacks["packages"], "clients": stacks["clients"]}
        for name, day in stacks["days"].items():
            environments.append(_describe(name, **(shared | day), is_stack=True))
    for package, group in listed["changes"].items():
        settings = {"until": listed["today"], "python": listed["python"], **group}
        companions, versions = settings.pop("packages"), settings.pop("versions")
        templates = settings.pop("pinned", [package])
        for version in versions:
            pinned = [f"{name}=={version}" for name in templates]
            if "node" in settings:
                settings["node"], pinned = [f"{package}@{version}"], []
            name = f"{package} {version}"
            environments.append(_describe(name, packages=[*pinned, *companions], **settings))
    return environments


def _describe(name: str, **settings: Any) -> Environment:
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()
    }
    return Environment(name, **values)


def make_environment(environment: Environment) -> Path:
    """Make an environment unless it is there and return its interpreter; refuse in a line what cannot be installed."""
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
            pattern = f".pyenv/versions/{environment.python}.*/bin/python"
            interpreters = sorted(Path.home().glob(pattern))
            interpreter = interpreters[-1] if interpreters else environment.python
            try:
                _uv("venv", "--clear", "--python", interpreter, venv)
                if environment.packages:
                    day = ["--exclude-newer", f"{environment.until}T23:59:59Z"]
                    packages = environment.packages
                    _uv("pip", "install", "--python", python, *day * bool(environment.until), *packages)  # fmt: skip
                if environment.node:
                    _run(["npm", "install", "--prefix", venv, *environment.node])
            except (subprocess.CalledProcessError, FileNotFoundError) as error:
                output = getattr(error, "stderr", "") or str(error)
                reason = " ".join(output.split())[-300:]
                raise UserError(environment.name, f"cannot be installed: {reason}") from error
            seal(venv)
    return python


def _uv(*arguments: str | Path) -> None:
    _run([sys.executable, "-m", "uv", "--quiet", *arguments])


def _run(command: list[str | Path]) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=_BUILD_S)
