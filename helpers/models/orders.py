"""Which request waits for which: of a recorded trace, and of reads one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers.errors import UserError
from helpers.models.caches import Reading
from helpers.models.fluid import check_count


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request of a trace, and its answer.

    Parameters
    ----------
    start_s, first_byte_s, end_s : float
        When it was asked, and when the first and the last byte were there.
    offset, nbytes : int
        Where the bytes lie in the object, and how many came.
    """

    start_s: float
    first_byte_s: float
    end_s: float
    offset: int
    nbytes: int

    def __post_init__(self) -> None:
        if not self.start_s <= self.first_byte_s <= self.end_s:
            raise UserError(
                f"exchange: {self}; allowed: start_s, first_byte_s and end_s in this order"
            )


@dataclass(frozen=True, slots=True)
class Step:
    """A request that waits for others.

    Parameters
    ----------
    after : tuple of int
        Indices of the steps that must have ended; none for the call itself.
    think_s : float
        Seconds from the last of them to the request.
    nbytes : int
        Bytes of the answer.
    is_waited : bool
        Whether the call does not end before it.
    """

    after: tuple[int, ...]
    think_s: float
    nbytes: int
    is_waited: bool = True


def order_trace(exchanges: Sequence[Exchange], *, start_s: float | None = None) -> tuple[Step, ...]:
    """Find which request of a trace waited for which.

    A request that starts while none is under way waited for all before it. One
    that starts beside others goes on with the chain that ended last before it
    and that nobody has gone on with; if there is none, it forks from the one
    that ended last, or from the call.

    Parameters
    ----------
    exchanges : sequence of Exchange
        A trace of one client.
    start_s : float, optional
        When the call began; by default with the first request.

    Returns
    -------
    tuple of Step
        One for each request, in the order of their starts.

    Examples
    --------
    Two requests at once, and a third after both:

    >>> trace = [Exchange(0, 1, 2, 0, 9), Exchange(0.5, 1, 3, 9, 9), Exchange(3.25, 4, 5, 18, 9)]
    >>> [(step.after, step.think_s) for step in order_trace(trace)]
    [((), 0.0), ((), 0.5), ((0, 1), 0.25)]
    """
    ordered = sorted(exchanges, key=lambda exchange: exchange.start_s)
    if not ordered:
        return ()
    begin_s = ordered[0].start_s if start_s is None else start_s
    steps, tails, since = list[Step](), set[int](), 0
    for number, this in enumerate(ordered):
        ended = [n for n in range(since, number) if ordered[n].end_s <= this.start_s]
        if len(ended) == number - since:  # none under way
            after, since = tuple(ended), number
        else:
            open_ends = [n for n in ended if n in tails]
            last = max(open_ends or ended, key=lambda n: ordered[n].end_s, default=None)
            after = steps[since].after if last is None else (last,)
        tails = (tails - {*after}) | {number}
        from_s = max((ordered[n].end_s for n in after), default=begin_s)
        steps.append(Step(after, max(0.0, this.start_s - from_s), this.nbytes))
    return tuple(steps)


def order_reads(reading: Reading, *, n_connections: int = 1) -> tuple[Step, ...]:
    """Order reads as a client does that keeps so many requests in flight.

    A read in the background starts with the one that follows it, and nobody
    waits for it.

    Parameters
    ----------
    reading : Reading
        What is asked, in order.
    n_connections : int
        Requests in flight; 1 for a library that waits for each.

    Returns
    -------
    tuple of Step
        One for each read.

    Examples
    --------
    >>> from helpers.models.caches import Read
    >>> [step.after for step in order_reads(Reading((Read(0, 1), Read(1, 1), Read(2, 1))))]
    [(), (0,), (1,)]
    """
    check_count("n_connections", n_connections)
    steps, waited = list[Step](), list[int]()
    for number, read in enumerate(reading.reads):
        after = tuple(waited[-n_connections:][:1]) if len(waited) >= n_connections else ()
        steps.append(Step(after, read.think_s, read.nbytes, not read.is_ahead))
        if not read.is_ahead:
            waited.append(number)
    return tuple(steps)
