"""Tables that text pages include, from what the code itself uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.benchmark.record import schema


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
