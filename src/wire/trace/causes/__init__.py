"""Known causes of slow reads: one typed entry each, refused at load if one is not complete."""

from __future__ import annotations

from wire.trace.causes import concurrency, connections, objects, ranges, results
from wire.trace.causes.registry import Cause, Evidence, Language, Remedy, make_registry

__all__ = ["REGISTRY", "Cause", "Evidence", "Language", "Remedy"]

REGISTRY = make_registry(
    [
        *results.CAUSES,
        *objects.CAUSES,
        *ranges.CAUSES,
        *concurrency.CAUSES,
        *connections.CAUSES,
    ]
)
"""Every cause by its name."""
