"""A deadline for what waits: it ends wherever it waits, and says what it waited for in vain."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _OverdueError(BaseException):
    """Nothing between an alarm and `deadline` may take it for an error of its own, and try again."""


WATCH_S = 0.5
"""How often it is looked whether what a read waits for is still there."""


@contextmanager
def deadline(seconds: float, find_dead_process: Callable[[], str] = str) -> Iterator[None]:
    """End what takes longer than so many real seconds, or waits for what has ended, wherever it waits.

    A library may wait for a stalled store for ever, or repeat its request as long; and it may wait
    again while it tidies up, so the alarm comes again, each second or as often as `seconds`, until it has ended. It is one of
    the main thread, where notebooks run; elsewhere, and where the system has none, nothing is ended.
    `find_dead_process` says in a line what has ended that is waited for, and nothing while all is there.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not hasattr(signal, "setitimer"):
        yield
        return

    is_under_way, lost, done = True, "", threading.Event()

    def end(_number: int, _frame: object) -> None:
        if is_under_way:
            raise _OverdueError

    def watch() -> None:
        nonlocal lost
        while not (lost or done.wait(WATCH_S)):
            if lost := find_dead_process():
                signal.setitimer(signal.ITIMER_REAL, 1e-3, 1.0)

    before = signal.signal(signal.SIGALRM, end)
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        # inside, for it may be over at once; an alarm within a callback of the garbage collector
        # is lost, so that of a short deadline comes again soon
        signal.setitimer(signal.ITIMER_REAL, seconds, min(1.0, max(0.1, seconds)))
        yield
        is_under_way = False
    except _OverdueError:
        is_under_way = False
        if lost:
            raise ConnectionError(lost) from None
        raise TimeoutError(
            f"not done in {seconds:g} s, its deadline; allowed: a store that answers by then,"
            " or a larger time_budget_s"
        ) from None
    except Exception:
        if lost := find_dead_process():  # which explains whatever a library makes of it
            raise ConnectionError(lost) from None
        raise
    finally:
        done.set()
        watching.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
