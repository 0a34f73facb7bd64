"""Tables that text pages include, from what the code itself uses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.benchmark.record import schema


def render_thresholds(path: Path) -> str:
    """Write the bars of a reference as a table, and below it how each was computed."""
    lines = ["| bar | measured | asked | holds |", "| --- " * 4 + "|"]
    bars = pd.read_csv(path).to_dict("records")
    for bar in bars:
        sign = "at least" if bar["is_least"] else "at most"
        anything = 0 if bar["is_least"] else float("inf")
        is_asked = bar["bound"] != anything
        asked = f"{sign} {bar['bound']:g}" if is_asked else "reported only"
        holds = ("yes" if bar["holds"] else "**no**") if is_asked else "—"
        lines.append(f"| {bar['name']} | {bar['value']:.3g} | {asked} | {holds} |")
    lines += ["", "How each was computed:", ""]
    for bar in bars:
        lines += [bar["name"], f": {bar['how']}", ""]
    return "\n".join(lines)


def render_profiles(profiles: Mapping[str, Any]) -> str:
    """Write the network profiles as a table."""
    lines = [
        "| profile | first byte, median (ms) | 95th percentile (ms) | one connection (MB/s) | all connections (MB/s) | requests per second | divided by |"
    ]
    lines.append("| --- " * 7 + "|")
    for name, profile in profiles.items():
        first_byte = profile.get("first_byte_s", {})
        delays = [
            f"{first_byte[key] * 1e3:g}" if key in first_byte else "none"
            for key in ("median_s", "p95_s")
        ]
        limits = [
            str(profile.get(key, "no limit"))
            for key in ("stream_mb_per_s", "aggregate_mb_per_s", "requests_per_s")
        ]
        lines.append(
            "| " + " | ".join([f"`{name}`", *delays, *limits, str(profile.get("scale", 1))]) + " |"
        )
    return "\n".join(lines) + "\n"


def render_profile_sources(profiles: Mapping[str, Any]) -> str:
    """Write where the figures of the network profiles come from."""
    items = []
    for name, profile in profiles.items():
        lines = [f"- {_words(key)}: {text}" for key, text in profile["sources"].items()]
        items.append(f"`{name}`\n: " + "\n  ".join(lines) + "\n")
    return "\n".join(items)


def _words(key: str) -> str:
    """Turn the name of a figure with its unit into words."""
    return key.removesuffix("_mb_per_s").removesuffix("_s").replace("_", " ")


def render_schema() -> str:
    """Write the columns of a record as a table for the page on method."""
    lines = ["| column | type | unit | meaning |", "| --- | --- | --- | --- |"]
    for name, row in schema().iterrows():
        lines.append(f"| `{name}` | {row['type']} | {row['unit']} | {row['description']} |")
    return "\n".join(lines) + "\n"
