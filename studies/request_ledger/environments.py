"""Environments of the ledger of whole chunks, in the list of this folder."""

from __future__ import annotations

from pathlib import Path

from wire.ledger import environments
from wire.ledger.environments import HERE, Environment, make_environment

__all__ = ["HERE", "Environment", "make_environment", "read_environments"]

LISTED = Path(__file__).with_name("environments.yaml")


def read_environments() -> list[Environment]:
    """Read the list of environments; the one that runs this is the first."""
    return environments.read_environments(LISTED)
