"""The machine that this runs on and what is installed on it, in facts that name neither a host nor a user."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

import psutil

Scalar = str | int | float | bool | None

PYTHON_BUILD = "build of python"
"""Where versions say how Python was compiled: a name with spaces is no distribution."""


def machine() -> dict[str, Scalar]:
    """Describe this machine without naming it."""
    release = ".".join(platform.release().split(".")[:2])
    facts = Path("/proc/cpuinfo")  # for `platform.processor` is empty on most Linuxes
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "n_cores": n_cores(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": f"{platform.system()} {release} {platform.machine()}",
    }


def n_cores() -> int:
    """Count the cores that this process may use, where the system can tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def python_build() -> str:
    """Say how this Python was compiled, which is a part of every time that its processor takes."""
    options = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    if "--enable-optimizations" not in options:
        return "not optimised"
    return "optimised, LTO" if re.search(r"--with-lto(?!=no)", options) else "optimised"


def installed(names: Iterable[str]) -> dict[str, str]:
    """Look up the versions of distributions that are here, imported or not."""
    return {name: version for name in names if (version := installed_version(name))}


@functools.cache
def installed_version(name: str) -> str:
    """Look up the version of one distribution; empty where it is not here."""
    if name == "python":
        return platform.python_version()
    if name == PYTHON_BUILD:
        return python_build()
    with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
        return metadata.version(name)
    return ""


def differences(own: Mapping[str, object], reference: Mapping[str, object]) -> Iterator[str]:
    """Name the entries in which two mappings differ."""
    for key in sorted({*own, *reference}, key=str):
        mine, theirs_value = own.get(key, "absent"), reference.get(key, "absent")
        if mine != theirs_value:
            yield f"{key} {mine} here, {theirs_value} there"
