"""Interrupts: Ctrl-C and its like, heard once, and asked for where a library swallows them."""

from __future__ import annotations

import time
from typing import Any

_GRACE_S = 5.0  # for what was interrupted to end in order; a signal after that interrupts its end
_interrupted_s: list[float] = []  # when the last signal was heard
_heard: list[int] = []  # which


def interrupt(number: int, _frame: Any) -> None:
    """Do what Ctrl-C does, but once: make and its group send it twice.

    The handler stays: a signal that is ignored would be ignored by the children too.
    """
    now = time.monotonic()
    if not _interrupted_s or now - _interrupted_s[-1] > _GRACE_S:
        _interrupted_s.append(now)
        _heard.append(number)
        raise KeyboardInterrupt


def is_interrupted() -> bool:
    """Tell whether a signal has asked this process to end."""
    return bool(_interrupted_s)


def check_interrupt() -> None:
    """Raise again what a library has swallowed, as h5py does in a callback.

    Loops over objects of a file ask for it, and whatever is about to publish something.
    """
    if is_interrupted():
        raise KeyboardInterrupt


def find_signal() -> int | None:
    """Return the number of the signal that was heard last, if one was."""
    return _heard[-1] if _heard else None
