"""Say of a finding what was read, over which network and when, from the record that is shown.

A text page writes ``{where}`study/case words``` behind a finding; the words, if there are any,
stand before the bytes of the largest array that was read.
"""

from __future__ import annotations

import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

from helpers.benchmark.record import read_records
from helpers.netem.profiles import get_profile
from helpers.plotting.tables import digits


def tell_where(text: str, folder: Path) -> str:
    """Say it, from the records in a folder; empty if nobody measured the case."""
    case, _, words = text.partition(" ")
    path = folder / f"{case}.csv"
    if not path.exists():
        return ""
    rows = read_records([path])
    told = [f"{words} {digits(rows['array_nbytes'].max() / 1e6)} MB"] if words else []
    told.append(tell_network(json.loads(rows["parameters"].iloc[-1]).get("profile", "")))
    told.append(max(rows["started_utc"])[:10])
    return ", ".join(part for part in told if part)


def tell_network(name: str) -> str:
    """Say in four numbers and words what a network is like."""
    profile = get_profile(name) if name else None
    if profile is None:
        return ""
    if profile.first_byte_s is None:
        return "no network"
    return f"{1000 * profile.first_byte_s.median_s:g} ms, {profile.aggregate_mb_per_s:g} MB/s"


class Where(SphinxRole):
    """The role, which reads the records that lie beside the staged pages."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Write it as small text."""
        told = tell_where(self.text, Path(self.env.srcdir) / "notebooks")
        return [nodes.inline("", f"({told})" if told else "", classes=["where"])], []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the role."""
    app.add_role("where", Where())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
