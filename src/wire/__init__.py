"""What makes reading arrays from object storage slow: emulate it, trace it, predict it, decide.

``with wire.trace() as trace:`` traces a block of a program, and in a notebook ``%load_ext wire``
brings ``%%wire``, which shows below a cell what the cell waited for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_LAZY = ("bed", "trace")


def __getattr__(name: str) -> Any:
    """Import a part of the product when it is asked for."""
    if name in _LAZY:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """Begin tracing a notebook's kernel: what ``%load_ext wire`` does."""
    import_module(f"{__name__}.trace.jupyter").load_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """End what ``%load_ext wire`` began."""
    import_module(f"{__name__}.trace.jupyter").unload_extension(shell)
