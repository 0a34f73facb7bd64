"""Find the line of the program that each request waits for.

The shim in each Python process of the program writes down what its threads are at
(`wire.trace.shims.sampler` has the records), and which line made each request of Python's own
clients. A request that was noted is on that line. Any other is on the line at which a thread of
its process was until the answer came. That line is uncertain where another thread may have
been in a call of a library meanwhile, at another line; where the thread was seen elsewhere before
that; and where nothing was looked at meanwhile.
"""

from __future__ import annotations

import json
import linecache
import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wire.bed.messages import key_of
from wire.trace.rows import CallSite, TracedRequest

__all__ = ["CallSite", "ProcessSamples", "find_sites", "locate", "read_samples"]

SLACK_S = 0.02
"""How much later than its request a note may be written: between two clocks and two processes."""

NOTE_S = 10.0  # how long before it reaches the gateway a request may have been made
FRESH_S = 1.0  # up to which a note is that of the request; an older one may be of another
LEAST_SHARE = 0.5  # of a request, during which a thread is at a line that is certain
STAMP_S = 0.005  # by which the gateway's times of a request may differ from the program's
MOST_STAMP_SHARE = 0.25  # of a request, so that a short one has a middle

_CALLEE = re.compile(r"(?:await\s+|return\s+|yield\s+from\s+|yield\s+)*([A-Za-z_][\w.]*)\s*(?=\()")

_WAITING = frozenset(
    (
        "threading",
        "concurrent",
        "queue",
        "asyncio",
        "multiprocessing",
        "subprocess",
        "time",
        "_thread",
        "select",
        "selectors",
        "signal",
        "_queue",
        "posix",
        "os",
    )
)
"""Modules in which a thread waits for others, or for nothing: it makes no request by them."""

_ITERATING = frozenset(
    [
        "all",
        "any",
        "bytes",
        "dict",
        "enumerate",
        "filter",
        "frozenset",
        "iter",
        "list",
        "map",
        "max",
        "min",
        "next",
        "reversed",
        "set",
        "sorted",
        "sum",
        "tuple",
        "zip",
    ]
)
"""Python's own functions that take values from others, which a library may request meanwhile."""

_SECRET = re.compile(
    r"""(["']?\b(?!(?-i:Key)\b)\w*(?:secret|token|passw|credential|signature|auth|sas|sid|key)\w*["']?"""
    r"""\s*[=:,(]\s*[rbuf]{0,2})(["'])(?:(?!\2).)*(?:\2|$)""",
    re.IGNORECASE,
)


def redact_source(source: str) -> str:
    """Return a line of source without text that is a credential by the name before it.

    Examples
    --------
    >>> redact_source("fs = S3FileSystem(key='AKIA1', secret='x1', anon=False)")
    "fs = S3FileSystem(key='***', secret='***', anon=False)"

    `Key` is boto3's name of an object:

    >>> redact_source("client.get_object(Bucket='b', Key='c/0', SSECustomerKey='x')")
    "client.get_object(Bucket='b', Key='c/0', SSECustomerKey='***')"
    """
    return _SECRET.sub(r"\1\2***\2", source)


@dataclass(frozen=True, slots=True)
class Site:
    """Hold a line as a process wrote it down, and what kind of call it waits in."""

    place: CallSite | None  # None where only the task is known
    task: str  # name of what a thread runs, such as a key of Dask's; "" where it has none
    is_waiting: bool  # for another thread or process, or for a while
    is_library: bool  # whether a call of another library is known
    is_harmless: bool = False  # whether the call is one of Python's own, which makes no request

    def about(self) -> Site:
        """Return the same line, as one that is uncertain."""
        place = self.place and replace(self.place, is_certain=False)
        return replace(self, place=place)


@dataclass(slots=True)
class ThreadStays:
    """Hold at which lines a thread was, one entry for each change; before the first it was at none.

    A thread left its lines at an unknown moment between the last sample that saw it there and the
    first that did not: from `left_s` of an entry to `seen_s` of the next.
    """

    seen_s: list[float] = field(default_factory=list)  # the first sample at these lines
    before_s: list[float] = field(default_factory=list)  # the sample before that
    numbers: list[tuple[int, ...]] = field(default_factory=list)

    def find_between(
        self, begin_s: float, end_s: float
    ) -> Iterator[tuple[tuple[float, float], tuple[float, float], tuple[int, ...]]]:
        """Yield when the thread was certainly and when possibly where, for stays in an interval."""
        infinite = float("inf")
        first = max(bisect_right(self.seen_s, begin_s) - 1, -1)
        for n in range(first, len(self.seen_s)):
            seen_s, before_s = (self.seen_s[n], self.before_s[n]) if n >= 0 else (-infinite,) * 2
            if before_s >= end_s:
                break
            is_last = n + 1 == len(self.seen_s)
            left_s = infinite if is_last else max(self.before_s[n + 1], seen_s)
            elsewhere_s = infinite if is_last else self.seen_s[n + 1]
            numbers = self.numbers[n] if n >= 0 else ()
            yield (seen_s, left_s), (before_s, elsewhere_s), numbers


@dataclass(slots=True)
class ProcessSamples:
    """Hold what one process wrote down."""

    pid: int
    parent_pid: int = 0
    folder: str = "/"
    sites: dict[int, Site] = field(default_factory=dict)
    stays: dict[int, ThreadStays] = field(default_factory=dict)  # by thread
    gaps: list[tuple[float, float]] = field(default_factory=list)
    # by method and path, when which line asked for it
    requests: dict[tuple[str, str], list[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    children: dict[int, tuple[float, int]] = field(default_factory=dict)
    connections: list[tuple[float, int, str, int]] = field(default_factory=list)
    served_ports: set[int] = field(default_factory=set)
    full_s: float = float("inf")  # when its file was full

    @property
    def has_lines(self) -> bool:
        """Whether any line of the user's was met in this process."""
        return bool(self.sites)


def read_samples(folder: Path) -> dict[int, ProcessSamples]:
    """Read what the processes of a program wrote down, by process; what cannot be read is left out."""
    processes = dict[int, ProcessSamples]()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        with suppress(OSError):
            for process in _read_file(path):
                processes[process.pid] = process
    return processes


def _read_file(path: Path) -> Iterator[ProcessSamples]:
    """Read one file; a number that the system gave to a second process begins a second one."""
    process: ProcessSamples | None = None
    with path.open(encoding="ascii", errors="replace") as file:
        for line in file:
            if not line.endswith("\n"):
                break  # it was killed while it wrote
            word, _, rest = line[:-1].partition(" ")
            with suppress(ValueError, KeyError, TypeError):
                if word == "begin":
                    if process is not None:
                        yield process
                    pid, parent, start_folder = rest.split(" ", 2)
                    process = ProcessSamples(int(pid), int(parent), json.loads(start_folder))
                elif process is not None:
                    _take(process, word, rest)
    if process is not None:
        yield process


def _take(process: ProcessSamples, word: str, rest: str) -> None:
    """Take one record."""
    if word == "at":
        moment, thread, numbers, before = rest.split(" ")
        stays = process.stays.setdefault(int(thread), ThreadStays())
        stays.numbers.append(tuple(map(int, numbers.split(",") if numbers != "-" else ())))
        stays.before_s.append(float(before))
        stays.seen_s.append(float(moment))
    elif word == "site":
        number, _, record = rest.partition(" ")
        process.sites[int(number)] = _make_site(json.loads(record), process.folder)
    elif word == "asks":
        moment, number, method, path = rest.split(" ", 3)
        key = key_of(json.loads(path).encode("latin-1", "replace"))
        process.requests[method, key].append((float(moment), int(number)))
    elif word == "gap":
        begin, end = rest.split(" ")
        process.gaps.append((float(begin), float(end)))
    elif word == "child":
        moment, pid, number = rest.split(" ")
        process.children[int(pid)] = (float(moment), int(number))
    elif word == "connects":
        moment, number, host, port = rest.split(" ")
        process.connections.append((float(moment), int(number), host, int(port)))
    elif word == "serves":
        process.served_ports.add(int(rest.split(" ")[1]))
    elif word == "full":
        process.full_s = float(rest)


def _make_site(record: dict[str, Any], folder: str) -> Site:
    """Make a line of its record, with its source and the library's function that it calls."""
    if "file" not in record:
        return Site(None, record["task"], is_waiting=False, is_library=True)
    path = os.path.join(folder, record["file"]) if record["file"][:1] != "<" else record["file"]
    number, cell = int(record["line"]), record.get("cell")
    source = record.get("source", "") or linecache.getline(path, number).strip()
    call, is_standard = record["call"], bool(record.get("is_standard", 0))
    if not call:
        call = _find_callee(record, path)
        is_standard = False
    elif "<locals>" in call:  # a wrapper, whose name says nothing
        call = _find_callee(record, path) or call
    is_built_in = call.startswith("builtins.")
    is_harmless = is_built_in and call.partition(".")[2] not in _ITERATING
    call = "" if is_built_in else call
    place = CallSite(
        file=f"In [{cell}]" if cell else _shorten(path),
        line=number,
        function=record["function"],
        source=redact_source(source),
        library_call=call,
        is_certain=True,
    )
    is_waiting = call.partition(".")[0] in _WAITING
    is_library = bool(call) and not is_standard and not is_waiting
    return Site(place, record.get("task", ""), is_waiting, is_library, is_harmless or is_standard)


def _find_callee(record: dict[str, Any], path: str) -> str:
    """Find which function without Python code a line calls, such as one written in Rust or C."""
    if "begin" not in record:
        return ""
    lines = [linecache.getline(path, n) for n in range(record["first"], record["last"] + 1)]
    if not any(lines) and record.get("source"):
        return ""
    text = "".join(lines).encode()[record["begin"] :].decode("utf-8", "replace")
    match = _CALLEE.match(text)
    if match is None:
        return ""
    root, _, attributes = match[1].partition(".")
    meaning = record.get("names", {}).get(root, "")
    return ".".join(filter(None, (meaning, attributes))) if meaning else ""


def _shorten(path: str) -> str:
    """Write a path as the user would: from the working folder on, where it lies below."""
    return path.removeprefix(os.getcwd() + os.sep)


class Locator:
    """Find lines in what the processes of a program wrote down."""

    def __init__(
        self, samples: dict[int, ProcessSamples], parents: Mapping[int, int] | None = None
    ) -> None:
        self._samples, self._parents = samples, parents or {}

    def find(self, row: TracedRequest) -> Site | None:
        """Find the line that a request is made for; None where nothing tells."""
        samples = self._samples.get(row.pid)
        site = None
        if samples is not None:
            site = self._find_noted(samples, row) or self._find_sampled(samples, row)
        if site is None or site.place is None:
            outer = self._find_in_parents(row)
            if site is None or outer is None:
                return site or outer
            return replace(site, place=outer.place)
        return site

    def _find_noted(self, samples: ProcessSamples, row: TracedRequest) -> Site | None:
        """Find the line that was written down when the request was made."""
        notes = samples.requests.get((row.method, row.key), [])
        times = [moment for moment, _ in notes]
        last = bisect_right(times, row.start_s + SLACK_S)
        recent = [n for n in range(last) if times[n] >= row.start_s - NOTE_S]
        if not recent:
            return None
        numbers = {notes[n][1] for n in recent}
        is_one = len(numbers) == 1 or times[recent[-1]] - times[recent[-2]] > SLACK_S
        is_one = is_one and row.start_s - times[recent[-1]] <= FRESH_S
        site = samples.sites.get(notes.pop(recent[-1])[1])
        return site if site is None or is_one else site.about()

    def _find_sampled(self, samples: ProcessSamples, row: TracedRequest) -> Site | None:
        """Find the line at which a thread was until the answer came: it may be read at another line."""
        begin_s = row.start_s
        end_s = max(row.first_byte_s or row.end_s, begin_s + 1e-4)
        if begin_s > samples.full_s:
            return None
        of_threads = [
            _find_presences(stays, samples.sites, begin_s, end_s)
            for stays in samples.stays.values()
        ]
        shares = defaultdict[int, float](float)
        for presences in of_threads:
            # a call begins and ends at its line: what a thread did just before or after is not it
            throughout = {n: p for n, p in presences.items() if p.is_throughout}
            longest = max((presence.share for presence in presences.values()), default=0.0)
            for number, presence in (throughout or presences).items():
                share = max(presence.share, LEAST_SHARE * presence.is_throughout)
                if share >= LEAST_SHARE * longest:
                    shares[number] = max(shares[number], share)
        longest = max(shares.values(), default=0.0)
        candidates = {
            number: share
            for number, share in shares.items()
            if number in samples.sites and share >= LEAST_SHARE * longest
        }
        active = {n: s for n, s in candidates.items() if not samples.sites[n].is_waiting}
        library = {n: s for n, s in active.items() if samples.sites[n].is_library}
        chosen = library or active or candidates
        if not chosen:
            return None
        number = max(chosen, key=lambda n: chosen[n])
        site = samples.sites[number]
        unseen_s = sum(
            max(0.0, min(end_s, b) - max(begin_s, a))
            for a, b in samples.gaps
            if b > begin_s and a < end_s
        )
        is_certain = (
            (site.is_library or len(candidates) == 1)
            and unseen_s < LEAST_SHARE * (end_s - begin_s)
            and _is_alone(samples.sites, number, of_threads)
        )
        return site if is_certain else site.about()

    def _find_in_parents(self, row: TracedRequest) -> Site | None:
        """Find the line of the process that waits for the one that asked."""
        pid, visited = row.pid, {row.pid}
        while True:
            for process in self._samples.values():
                if pid in process.children and process.pid not in visited:
                    number = process.children[pid][1]
                    if number in process.sites and process.sites[number].place:
                        return process.sites[number]
                    parent = process.pid
                    break
            else:
                child = self._samples.get(pid)
                parent = child.parent_pid if child else self._parents.get(pid, 0)
            if not parent or parent in visited:
                return None
            visited.add(parent)
            if parent in self._samples:
                site = self._find_sampled(self._samples[parent], row)
                if site is not None:
                    return site.about()
            pid = parent


@dataclass(slots=True)
class Presence:
    """Hold how far a thread was at a line during a request."""

    share: float = 0.0  # of the request, from the first sample at the line to the first elsewhere
    is_throughout: bool = True  # whether no sample during the request saw the thread elsewhere


def _find_presences(
    stays: ThreadStays, sites: Mapping[int, Site], begin_s: float, end_s: float
) -> dict[int, Presence]:
    """Find at which lines a thread may have been while a request went on, by number."""
    margin_s = min(STAMP_S, MOST_STAMP_SHARE * (end_s - begin_s))
    visits = list(stays.find_between(begin_s, end_s))
    presences = defaultdict[int, Presence](Presence)
    for (seen_s, _), (_, elsewhere_s), numbers in visits:
        share = (min(elsewhere_s, end_s) - max(seen_s, begin_s)) / (end_s - begin_s)
        for number in numbers:
            presences[number].share += max(share, 0.0)
    for (seen_s, left_s), _, numbers in visits:
        if max(seen_s, begin_s + margin_s) > min(left_s, end_s - margin_s):
            continue  # no sample during the request saw this stay
        places = {_line_of(sites, number) for number in numbers}
        for number, presence in presences.items():
            presence.is_throughout &= _line_of(sites, number) in places
    return dict(presences)


def _is_alone(
    sites: Mapping[int, Site], number: int, of_threads: Sequence[Mapping[int, Presence]]
) -> bool:
    """Tell whether a request can be for no other line than that of a number.

    A thread waits for its request throughout, so that each sample sees it at that line. Another
    thread that may have been in a call of unknown kind at another line, however shortly, may be
    the one that asked: the gateway may write down late when a request ended.
    """
    line = _line_of(sites, number)
    is_throughout = False
    for presences in of_threads:
        stays_here = any(
            presence.is_throughout and _line_of(sites, n) == line
            for n, presence in presences.items()
        )
        for n, presence in presences.items():
            site = sites.get(n)
            if site is None or site.is_waiting or site.is_harmless or _line_of(sites, n) == line:
                continue
            if presence.is_throughout or not stays_here:
                return False
        is_throughout |= stays_here
    return is_throughout


def _line_of(sites: Mapping[int, Site], number: int) -> tuple[str, int] | None:
    """Return file and line of a number; None where only a task is known, or nothing."""
    site = sites.get(number)
    return (site.place.file, site.place.line) if site and site.place else None


def locate(
    rows: Iterable[TracedRequest],
    samples: dict[int, ProcessSamples],
    parents: Mapping[int, int] | None = None,
) -> list[CallSite | None]:
    """Find the line of the program that each request is made for.

    Parameters
    ----------
    rows : iterable of TracedRequest
        What was seen of the program's requests.
    samples : dict of int to ProcessSamples
        What its processes wrote down, as `read_samples` returns it.
    parents : mapping of int to int, optional
        Of processes that wrote nothing down, the process that started each.

    Returns
    -------
    list of CallSite or None
        A line for each request, in the order of the rows; None where nothing tells.
    """
    return [site.place if site else None for site in find_sites(rows, samples, parents)]


def find_sites(
    rows: Iterable[TracedRequest],
    samples: dict[int, ProcessSamples],
    parents: Mapping[int, int] | None = None,
) -> list[Site | None]:
    """Find line and task of each request, in the order of the rows; the parameters are `locate`'s."""
    rows = list(rows)
    locator = Locator(samples, parents)
    sites: list[Site | None] = [None] * len(rows)
    for n in sorted(range(len(rows)), key=lambda n: rows[n].start_s):
        with suppress(ArithmeticError, LookupError, ValueError):
            sites[n] = locator.find(rows[n])
    return sites
