"""Say of a finding what was read, over which network and when, from the record that is shown.

A text page writes ``{where}`study/case``` behind a finding, for the bytes of the largest array
that was read, the name of the network, and the day; and once ``{network}`name```, for what a
network of that name is like.
"""

from __future__ import annotations

import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from helpers.benchmark.record import read_records
from helpers.netem.profiles import get_recorded_profile
from helpers.plotting.tables import digits


def tell_where(case: str, folder: Path) -> str:
    """Say it, from the records in a folder; empty if nobody measured the case."""
    path = folder / f"{case}.csv"
    if not path.exists():
        return ""
    rows = read_records([path])
    name = json.loads(rows["parameters"].iloc[-1]).get("profile", "")
    network = name.replace("-", " ") if name and tell_network(name) else "no network"
    return (
        f"{digits(rows['array_nbytes'].max() / 1e6)} MB, {network}, {max(rows['started_utc'])[:10]}"
    )


def tell_network(name: str) -> str:
    """Say in two numbers what a network is like; empty if it delays nothing."""
    profile = get_recorded_profile(name)
    if profile.first_byte_s is None:
        return ""
    return f"{1000 * profile.first_byte_s.median_s:g} ms to the first byte, {profile.aggregate_mb_per_s:g} MB/s"


class Where(SphinxRole):
    """The role, which reads the records that lie beside the staged pages."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write it as small text."""
        told = tell_where(self.text, Path(self.env.srcdir) / "notebooks")
        return [nodes.inline("", told, classes=["where"])], []


class Network(SphinxRole):
    """The role that explains the name of a network."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write its numbers."""
        return [nodes.Text(tell_network(self.text))], []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the roles."""
    app.add_role("where", Where())
    app.add_role("network", Network())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
