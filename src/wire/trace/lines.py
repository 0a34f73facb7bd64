"""Find the line of the program that each request waits for.

The shim in each Python process of the program writes down what its threads are at
(`wire.trace.shims.sampler` has the records), and which line made each request of Python's own
clients. A request that was noted is on that line. Any other is on the line at which a thread of
its process was while the request went on; where several threads were at different lines, or
nothing was looked at meanwhile, the line is uncertain.
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


_SECRET = re.compile(
    r"""(["']?\b\w*(?:secret|token|passw|credential|signature|auth|sas|sid|key)\w*["']?"""
    r"""\s*[=:,(]\s*[rbuf]{0,2})(["'])(?:(?!\2).)*(?:\2|$)""",
    re.IGNORECASE,
)


def redact_source(source: str) -> str:
    """Return a line of source without text that is a credential by the name before it.

    Examples
    --------
    >>> redact_source("fs = S3FileSystem(key='AKIA1', secret='x1', anon=False)")
    "fs = S3FileSystem(key='***', secret='***', anon=False)"
    """
    return _SECRET.sub(r"\1\2***\2", source)


@dataclass(frozen=True, slots=True)
class Site:
    """Hold a line as a process wrote it down, and what kind of call it waits in."""

    place: CallSite | None  # None where only the task is known
    task: str  # name of what a thread runs, such as a key of Dask's; "" where it has none
    is_waiting: bool  # for another thread or process, or for a while
    is_library: bool  # whether a call of another library is known

    def about(self) -> Site:
        """Return the same line, as one that is uncertain."""
        place = self.place and replace(self.place, is_certain=False)
        return replace(self, place=place)


@dataclass(slots=True)
class ProcessSamples:
    """Hold what one process wrote down."""

    pid: int
    parent_pid: int = 0
    folder: str = "/"
    sites: dict[int, Site] = field(default_factory=dict)
    # by thread, from when on it is at which lines
    states: dict[int, tuple[list[float], list[tuple[int, ...]]]] = field(default_factory=dict)
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
        moment, thread, numbers = rest.split(" ")
        moments, states = process.states.setdefault(int(thread), ([], []))
        moments.append(float(moment))
        states.append(tuple(map(int, numbers.split(",") if numbers != "-" else ())))
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
    return Site(place, record.get("task", ""), is_waiting, is_library)


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
    known = record.get("names", {}).get(root, "")
    return ".".join(filter(None, (known, attributes))) if known else ""


def _shorten(path: str) -> str:
    """Write a path as the user would: from the working folder on, where it lies below."""
    here = os.getcwd() + os.sep
    return path.removeprefix(here)


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
        """Find the line at which a thread was while the request went on."""
        begin_s = row.start_s
        end_s = max(row.end_s or row.first_byte_s, begin_s + 1e-4)
        if begin_s > samples.full_s:
            return None
        shares = defaultdict[int, float](float)
        for moments, states in samples.states.values():
            of_thread = defaultdict[int, float](float)
            for number, share in _find_shares(moments, states, begin_s, end_s):
                of_thread[number] += share
            # a call begins and ends at its line: what a thread did just before or after is not it
            longest = max(of_thread.values(), default=0.0)
            for number, share in of_thread.items():
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
        places = [samples.sites[n].place for n in chosen]
        lines = {(place.file, place.line) if place else None for place in places}
        unseen_s = sum(
            max(0.0, min(end_s, b) - max(begin_s, a))
            for a, b in samples.gaps
            if b > begin_s and a < end_s
        )
        is_certain = (
            len(lines) == 1
            and chosen[number] >= LEAST_SHARE
            and (site.is_library or len(candidates) == 1)
            and unseen_s < LEAST_SHARE * (end_s - begin_s)
        )
        return site if is_certain else site.about()

    def _find_in_parents(self, row: TracedRequest) -> Site | None:
        """Find the line of the process that waits for the one that asked."""
        pid, seen = row.pid, {row.pid}
        while True:
            for process in self._samples.values():
                if pid in process.children and process.pid not in seen:
                    number = process.children[pid][1]
                    if number in process.sites and process.sites[number].place:
                        return process.sites[number]
                    parent = process.pid
                    break
            else:
                known = self._samples.get(pid)
                parent = known.parent_pid if known else self._parents.get(pid, 0)
            if not parent or parent in seen:
                return None
            seen.add(parent)
            if parent in self._samples:
                site = self._find_sampled(self._samples[parent], row)
                if site is not None:
                    return site.about()
            pid = parent


def _find_shares(
    moments: Sequence[float], states: Sequence[tuple[int, ...]], begin_s: float, end_s: float
) -> Iterator[tuple[int, float]]:
    """Yield at which lines a thread was during an interval, and during which share of it."""
    place = max(bisect_right(moments, begin_s) - 1, 0)
    while place < len(moments) and moments[place] < end_s:
        next_s = moments[place + 1] if place + 1 < len(moments) else end_s
        share = (min(next_s, end_s) - max(moments[place], begin_s)) / (end_s - begin_s)
        for number in states[place]:
            yield number, share
        place += 1


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
