"""The known causes as data: texts, thresholds and patterns for an analysis in a browser."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from wire.models import WORTH
from wire.models.transfer import TOLERANCE_S
from wire.trace import analysis, findings, har, rows, whatif
from wire.trace.causes import REGISTRY, concurrency, connections, objects, ranges, results
from wire.trace.causes.clients import CLIENTS
from wire.trace.render import BOOK
from wire.trace.whatif import HANDSHAKE_ROUND_TRIPS, RETRIED

__all__ = ["make_catalog", "write_catalog"]

_MODULES = (analysis, concurrency, connections, objects, ranges, results, whatif)


def make_catalog() -> dict[str, Any]:
    """Return every cause with its texts, and what tells one: the same values that `wire trace` uses."""
    return {
        "book": BOOK,
        "causes": [
            {
                "name": cause.name,
                "title": cause.title,
                "see": cause.see,
                "rank": cause.rank,
                "least": cause.least,
                "scope": cause.scope,
                "absorbs": [*cause.absorbs],
                "remedy": cause.remedy.text,
                "clients": {name: remedy.text for name, remedy in cause.clients.items()},
            }
            for cause in REGISTRY.values()
        ],
        "clients": {name: [*begins] for name, begins in CLIENTS.items()},
        "statuses": {str(status.value): status.phrase for status in HTTPStatus},
        "patterns": {
            "manifest": analysis._MANIFESTS.pattern,
            "chunk": analysis._CHUNK.pattern,
            "listing": rows._ASKS_FOR_NAMES.pattern.decode(),
        },
        "names": {
            "metadata": sorted(analysis._METADATA),
            "data": [*analysis.DATA_KINDS],
            "services": [*rows.METADATA_SERVICES],
            "no_network": [*har._NO_NETWORK],
            "redirects": [*connections._REDIRECTS],
            "retried": [*RETRIED],
            "no_refusals": [*results._NO_REFUSALS],
        },
        "limits": {
            "tolerance_s": TOLERANCE_S,
            "worth": WORTH,
            "least_s": findings._LEAST_S,
            "least_share": findings._LEAST_SHARE,
            "same": findings._SAME,
            "handshake_round_trips": HANDSHAKE_ROUND_TRIPS,
            "max_entries": har.MAX_READ,
            **_find_thresholds(),
        },
    }


def _find_thresholds() -> dict[str, float]:
    """Collect the numbers by which causes are told, as `module.name`."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name.strip('_').lower()}": value
        for module in _MODULES
        for name, value in vars(module).items()
        if name.isupper() and type(value) in (int, float)
    }


def write_catalog() -> str:
    """Write the catalog as JSON that can stand in a script element."""
    return json.dumps(make_catalog()).replace("<", r"\u003c")
