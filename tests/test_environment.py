"""Tests that `pyproject.toml`, `environment.yml` and `requirements.lock` say the same."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

from helpers.paths import ROOT

# What conda must bring and pip cannot, or need not name.
NOT_FROM_PYPROJECT = {"python", "pip", "go", "git", "make"}
# Names under which conda-forge carries a package of another name.
CONDA_NAMES = {"python-xxhash": "xxhash", "redis-py": "redis"}
REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)\s*(?P<bound>.*)$")


def split(requirement: str) -> tuple[str, str]:
    """Split a requirement into its name, normalised, and its bound, written as pip does."""
    match = REQUIREMENT.match(requirement)
    assert match is not None, requirement
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    return CONDA_NAMES.get(name, name), re.sub(r"^=(?!=)", "==", match["bound"].strip())


@pytest.fixture(scope="module")
def declared() -> dict[str, str]:
    """Requirements of `pyproject.toml`, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    # extras may name extras of the project itself
    flat = [one for group in groups for one in group if not one.startswith(project["name"])]
    return dict(split(requirement) for requirement in flat)


@pytest.fixture(scope="module")
def conda() -> dict[str, object]:
    """What `environment.yml` holds."""
    return dict(yaml.safe_load((ROOT / "environment.yml").read_text()))


@pytest.fixture(scope="module")
def locked() -> dict[str, str]:
    """Versions of `requirements.lock`."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    found = [re.match(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", line) for line in lines]
    return {split(match[1])[0]: match[2] for match in found if match}


def named(conda: dict[str, object]) -> dict[str, str]:
    """Requirements of `environment.yml`, its pip section included."""
    entries = conda["dependencies"]
    assert isinstance(entries, list)
    pip = [name for entry in entries if isinstance(entry, dict) for name in entry["pip"]]
    return dict(
        split(name) for name in [*(entry for entry in entries if isinstance(entry, str)), *pip]
    )


def test_names_agree(declared: dict[str, str], conda: dict[str, object]) -> None:
    """Each package of one file is in the other."""
    assert set(named(conda)) - NOT_FROM_PYPROJECT == set(declared)


def test_bounds_agree(declared: dict[str, str], conda: dict[str, object]) -> None:
    """Each package has the same bound in both files."""
    both = named(conda)
    assert {name: both[name] for name in declared} == declared


def test_python_is_allowed(conda: dict[str, object]) -> None:
    """The Python of `environment.yml` is one that the project supports, and comes from conda-forge alone."""
    lowest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert named(conda)["python"] == "==3.12"
    assert lowest == ">=3.11"
    assert conda["channels"] == ["conda-forge"]


def test_lock_holds_all(declared: dict[str, str], locked: dict[str, str]) -> None:
    """Every declared package is locked, at a version its bound allows."""
    assert set(declared) <= set(locked)
    for name, bound in declared.items():
        for clause in filter(None, bound.split(",")):
            operator, version = re.findall(r"^(==|>=)(.+)$", clause)[0]
            have, want = (
                [int(part) for part in re.findall(r"\d+", text)] for text in (locked[name], version)
            )
            assert have == want if operator == "==" else have >= want, name


def test_lock_is_hashed() -> None:
    """Every locked package carries hashes."""
    blocks = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text())
    packages = [block for block in blocks if re.match(r"^[A-Za-z0-9]", block)]
    assert len(packages) > 100
    assert [block.splitlines()[0] for block in packages if "--hash=sha256:" not in block] == []


def test_lock_has_no_address() -> None:
    """The lock names no index, no file and no address, so that it works behind any mirror."""
    text = (ROOT / "requirements.lock").read_text()
    assert (
        re.findall(
            r"https?://\S+|file://\S+|^--(?:extra-)?index-url.*|^--find-links.*",
            text,
            re.MULTILINE,
        )
        == []
    )


def test_every_python_gets_the_same_versions() -> None:
    """A record says what was measured; with which Python must not change what zarr it is."""
    text = (ROOT / "requirements.lock").read_text()
    names = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==", text, re.MULTILINE)
    assert len(names) > 100
    assert len(names) == len(set(names))
