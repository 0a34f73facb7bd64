"""What a program of one's own asks of a store, and what it waits for.

``with wire.trace() as trace:`` traces a block of a program that runs already, as
`wire.trace.recording.record` does. `wire.trace.DaskPlugin` does it for the tasks of Dask's workers.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wire.trace.recording import Recording


def record() -> AbstractContextManager[Recording]:
    """Trace a block of a program, as `wire.trace()` does; see `wire.trace.recording.record`."""
    from wire.trace import recording

    return recording.record()


def __getattr__(name: str) -> Any:
    if name == "DaskPlugin":
        from wire.trace.dask_plugin import DaskPlugin

        return DaskPlugin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _CallableModule(ModuleType):
    """A module that is called as its `record` is."""

    def __call__(self) -> AbstractContextManager[Recording]:
        return record()


sys.modules[__name__].__class__ = _CallableModule
