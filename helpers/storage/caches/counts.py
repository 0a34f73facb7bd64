"""What a cache did: hits, misses, and failures that it got over."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, fields
from typing import Literal

Event = Literal["hits", "misses", "errors", "corrupt"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Events of a cache since it was emptied.

    Parameters
    ----------
    hits, misses : int
        Entries found, and entries that had to be made.
    errors : int
        Times that the cache failed and the store was read instead.
    corrupt : int
        Entries that were not as this run wrote them, and were made anew.
    """

    hits: int = 0
    misses: int = 0
    errors: int = 0
    corrupt: int = 0

    @property
    def hit_ratio(self) -> float:
        """Share of look-ups that found an entry; nan if there was none.

        Examples
        --------
        >>> Counts(hits=3, misses=1).hit_ratio
        0.75
        """
        total = self.hits + self.misses
        return self.hits / total if total else float("nan")


class Counter:
    """Count events of many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def add(self, event: Event) -> None:
        """Count one event.

        Parameters
        ----------
        event : {"hits", "misses", "errors", "corrupt"}
            What happened.
        """
        with self._lock:
            self._counts[event] += 1

    def reset(self) -> None:
        """Begin at zero."""
        with self._lock:
            self._counts: dict[Event, int] = {
                "hits": 0,
                "misses": 0,
                "errors": 0,
                "corrupt": 0,
            }

    def read(self) -> Counts:
        """Return the counts so far.

        Returns
        -------
        Counts
            A copy that does not change.
        """
        with self._lock:
            return Counts(**self._counts)


def difference(after: Counts, before: Counts) -> Counts:
    """Subtract counts: what happened in between.

    Parameters
    ----------
    after, before : Counts
        Counts of the same cache.

    Returns
    -------
    Counts
        Events after `before` and up to `after`.

    Examples
    --------
    >>> difference(Counts(hits=5, misses=1), Counts(hits=2, misses=1))
    Counts(hits=3, misses=0, errors=0, corrupt=0)
    """
    one, two = asdict(after), asdict(before)
    return Counts(**{field.name: one[field.name] - two[field.name] for field in fields(Counts)})
