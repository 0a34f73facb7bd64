"""A trace as an HTTP archive (HAR 1.2), and the archives of browsers and proxies read as traces."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from wire.errors import UserError, convert_validation_error, cut, printable, show
from wire.trace.analysis import kind_of
from wire.trace.rows import CallSite, Run, TracedRequest, is_listing
from wire.untrusted import UntrustedFolder

MAX_ARCHIVED = 30_000
"""Requests in the HTTP archive, the first of them: a browser opens no more, and the table has all."""

MAX_READ = 300_000
"""Requests of an archive that is read."""

MAX_NBYTES = 300_000_000
"""Bytes of an archive that is read, which may hold bodies too."""

_MAX_DEPTH = 150  # a browser's archive has the stacks of calls, one inside the other
_IN_FORMAT = {"method", "key", "host", "scheme", "status", "nbytes", "sent_nbytes"}
_NOT_KEPT = {"tag", "worker"}
_DEFAULTS = asdict(TracedRequest(0.0))
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/")
_PRODUCT = re.compile(r"[\w.+-]{1,60}(?:/[\w.+-]{1,40})?")
_NO_NETWORK = ("data", "blob", "about", "chrome-extension", "moz-extension", "ws", "wss", "file")
_EMPTY = {"cookies": [], "headers": [], "headersSize": -1, "httpVersion": "HTTP/1.1"}


def write_har(run: Run, command: Sequence[str], about_run: Mapping[str, Any]) -> str:
    """Write an HTTP archive without headers, which any browser's network panel opens.

    What the format has no place for stands under names of our own, as it allows: of each request in
    `_wire`, and of the run and its lines of code in what `about_run` holds.
    """
    places = sorted(range(len(run.rows)), key=lambda place: run.rows[place].start_s)
    numbers = number_sites(run)
    entries = [_write_entry(run.rows[i], numbers[i]) for i in places[:MAX_ARCHIVED]]
    log = {
        "version": "1.2",
        "creator": {"name": "wire trace", "version": "2"},
        "entries": entries,
        "_command": shlex.join(command),
        **{f"_{name}": value for name, value in about_run.items()},
    }
    if len(places) > MAX_ARCHIVED:
        log["comment"] = f"the first {MAX_ARCHIVED} of {len(places)} requests"
    return json.dumps({"log": log})


def number_sites(run: Run) -> list[int | None]:
    """Return the place in `list_sites` of the line of each request; None where nothing tells."""
    if not run.sites:
        return [None] * len(run.rows)
    numbers = {site: number for number, site in enumerate(list_sites(run))}
    return [None if site is None else numbers[site] for site in run.sites]


def list_sites(run: Run) -> list[CallSite]:
    """List the lines of the program from which requests came, each once."""
    return [site for site in dict.fromkeys(run.sites) if site is not None]


def _write_entry(row: TracedRequest, site: int | None) -> dict[str, Any]:
    end_s = row.end_s or row.first_byte_s or row.start_s
    first_s = row.first_byte_s or end_s
    timings = {
        "blocked": -1, "dns": -1, "ssl": -1, "send": 0,
        "connect": round(1000 * row.handshake_s, 3) if row.is_first else -1,
        "wait": round(1000 * (first_s - row.start_s), 3),
        "receive": round(1000 * (end_s - first_s), 3),
    }  # fmt: skip
    begin_s = row.start_s - (row.handshake_s if row.is_first else 0.0)
    values = asdict(row)
    own_fields = {
        name: values[name]
        for name in values
        if name not in _IN_FORMAT | _NOT_KEPT and values[name] != _DEFAULTS[name]
    }
    return {
        "startedDateTime": _write_moment(begin_s),
        "time": round(sum(max(0, value) for value in timings.values()), 3),
        "request": {
            **_EMPTY, "method": row.method, "url": f"{row.scheme}://{row.host}{quote(row.key)}",
            "queryString": [], "bodySize": row.sent_nbytes,
        },
        "response": {
            **_EMPTY, "status": row.status, "statusText": "", "redirectURL": "",
            "bodySize": row.nbytes, "content": {"size": row.nbytes, "mimeType": ""},
        },
        "cache": {},
        "timings": timings,
        "connection": str(row.connection),
        "_kind": kind_of(row),
        "_wire": {**own_fields, "start_s": row.start_s, **({} if site is None else {"site": site})},
    }  # fmt: skip


def _write_moment(time_s: float) -> str:
    return datetime.fromtimestamp(max(0.0, time_s), UTC).isoformat(timespec="milliseconds")


class ArchiveReader:
    """Read an archive that a stranger may have made, or refuse it in one line.

    Of headers it takes the range and the name of the client, of a URL no query; cookies, other
    headers and bodies are left where they are.
    """

    def __init__(self, path: Path) -> None:
        self.label = f"HAR {cut(str(path))}"
        self._source = UntrustedFolder(path.resolve().parent, self.label)
        self._name = path.resolve().name

    def refuse(self, problem: str, allowed: str = "an HTTP archive, HAR 1.2") -> UserError:
        """Make the error that names this archive."""
        return self._source.refuse(problem, allowed)

    def read_log(self) -> dict[str, Any]:
        """Read the log, whose entries are a list."""
        content = self._source.read_json(self._name, max_nbytes=MAX_NBYTES, max_depth=_MAX_DEPTH)
        log = content.get("log") if isinstance(content, dict) else None
        if not isinstance(log, dict) or not isinstance(log.get("entries"), list):
            raise self.refuse("has no log with entries")
        if len(log["entries"]) > MAX_READ:
            raise self.refuse(f"has {len(log['entries']):,} entries", f"at most {MAX_READ:,}")
        return log

    def read_ours(self, log: Mapping[str, Any]) -> tuple[list[TracedRequest], list[int | None]]:
        """Read the requests of an archive that `wire trace` wrote, and the number of the line of each."""
        from pydantic import TypeAdapter, ValidationError

        rows, sites = list[TracedRequest](), list[int | None]()
        for number, entry in enumerate(log["entries"]):
            try:
                extra = dict(entry["_wire"])
                sites.append(extra.pop("site", None))
                url = urlsplit(entry["request"]["url"])
                row = TracedRequest(
                    method=entry["request"]["method"],
                    key=unquote(url.path),
                    host=url.netloc,
                    scheme=url.scheme,
                    status=entry["response"]["status"],
                    nbytes=entry["response"]["bodySize"],
                    sent_nbytes=entry["request"]["bodySize"],
                    **extra,
                )
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise self.refuse(
                    f"entry {number}: {show(error)}", "what wire trace wrote"
                ) from error
            rows.append(row)
        try:
            checked = TypeAdapter(list[TracedRequest]).validate_python([*map(asdict, rows)])
            return checked, TypeAdapter(list[int | None]).validate_python(sites)
        except ValidationError as error:
            raise convert_validation_error(error).within(f"{self.label}: entries") from error

    def read_foreign(self, log: Mapping[str, Any]) -> Run:
        """Read the archive of a browser or a proxy as a run.

        What came from a cache or never was on the network is left out, and a remark says how many.
        """
        origins = [_origin(page.get("title")) for page in _maps(log.get("pages"))]
        rows, sites, n_left = list[TracedRequest](), list[CallSite | None](), 0
        connections = dict[str, int]()
        for number, entry in enumerate(log["entries"]):
            try:
                row = _read_entry(entry, connections)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                problem = f"entry {number}: {cut(str(error)) or type(error).__name__}"
                raise self.refuse(problem) from error
            if row is None:
                n_left += 1
                continue
            rows.append(row)
            sites.append(_find_site(entry, origins))
        if not rows:
            raise self.refuse(f"none of its {len(log['entries']):,} entries was on the network")
        begin_s = min(row.start_s - row.handshake_s for row in rows)
        wall_s = max(max(row.end_s for row in rows) - begin_s, 1e-6)
        remarks = [f"{n_left:,} entries that came from a cache or never were on the network"]
        has_sites = any(site is not None for site in sites)
        return Run(
            rows, wall_s, begin_s, None, remarks=remarks if n_left else (),
            sites=sites if has_sites else (),
        )  # fmt: skip


def _maps(value: Any) -> Iterator[dict[str, Any]]:
    """Iterate over the objects of what should be a list of them."""
    yield from (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _read_entry(entry: Mapping[str, Any], connections: dict[str, int]) -> TracedRequest | None:
    """Read an entry; nothing of one that was not on the network."""
    request, response, timings = entry["request"], entry["response"], entry["timings"]
    url = urlsplit(str(request["url"]))
    if url.scheme in _NO_NETWORK or entry.get("_fromCache") or not url.hostname:
        return None
    if url.scheme not in ("http", "https"):
        raise ValueError(f"the URL's scheme is {url.scheme!r}")
    phases = {
        name: max(0.0, _read_number(timings.get(name), -1.0)) / 1000
        for name in ("blocked", "dns", "connect", "send", "wait", "receive")
    }
    moment = datetime.fromisoformat(str(entry["startedDateTime"]))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    handshake_s = phases["dns"] + phases["connect"]
    start_s = moment.timestamp() + phases["blocked"] + handshake_s
    first_s = start_s + phases["send"] + phases["wait"]
    status = int(_read_number(response["status"], 0))
    end_s = first_s + phases["receive"]
    wanted, sent = _headers(request), _headers(response)
    range_start, range_nbytes = _read_range(wanted.get("range", ""), sent.get("content-range", ""))
    connection = str(entry.get("connection") or "")
    is_new = phases["connect"] > 0 or (bool(connection) and connection not in connections)
    number = connections.setdefault(connection or f" {len(connections)}", len(connections) + 1)
    agent = _PRODUCT.match(wanted.get("user-agent", ""))
    target = f"{url.path}?{url.query}"
    return TracedRequest(
        start_s, first_s, end_s,
        connection=number,
        method=str(request["method"]).upper()[:20],
        key=unquote(url.path) or "/",
        range_start=range_start,
        range_nbytes=range_nbytes,
        status=status if 0 <= status < 1000 else 0,
        nbytes=0 if request["method"] == "HEAD" else _count_body(response, sent),
        is_first=is_new,
        host=_strip_login(url.netloc),
        scheme=url.scheme,
        user_agent=agent[0] if agent else "",
        sent_nbytes=max(0, int(_read_number(request.get("bodySize"), 0))),
        handshake_s=handshake_s,
        is_listing=is_listing(target.encode("utf-8", "replace")),
    )  # fmt: skip


def _strip_login(netloc: str) -> str:
    return netloc.rpartition("@")[2]


def _read_number(value: Any, default: float) -> float:
    if value is None:
        return default
    number = float(value)
    if not math.isfinite(number) or abs(number) > 1e15:
        raise ValueError(f"the number {show(value)}")
    return number


def _headers(message: Mapping[str, Any]) -> dict[str, str]:
    """Take the headers that tell what was asked for and by whom, and no other."""
    wanted = ("range", "content-range", "content-length", "user-agent")
    return {
        name: str(field.get("value", ""))
        for field in _maps(message.get("headers"))
        if (name := str(field.get("name", "")).lower()) in wanted
    }


def _read_range(wanted: str, sent: str) -> tuple[int | None, int | None]:
    match = _RANGE.fullmatch(wanted.replace(" ", ""))
    if match is None or len(wanted) > 60 or len(sent) > 80:
        return None, None
    if answer := _CONTENT_RANGE.match(sent):
        return int(answer[1]), int(answer[2]) - int(answer[1]) + 1
    if not match[1]:
        return None, int(match[2]) if match[2] else None
    return int(match[1]), int(match[2]) - int(match[1]) + 1 if match[2] else None


def _count_body(response: Mapping[str, Any], sent: Mapping[str, str]) -> int:
    """Count the bytes of a body that came over the network: tools differ in where they say it."""
    content = response.get("content")
    content = content if isinstance(content, dict) else {}
    moved = _read_number(response.get("_transferSize"), -1)
    headers = max(0.0, _read_number(response.get("headersSize"), -1))
    length = sent.get("content-length", "")
    for number in (
        _read_number(response.get("bodySize"), -1),
        moved - headers if moved > 0 else -1,
        float(length) if length.isdecimal() and len(length) < 16 else -1,
        _read_number(content.get("size"), -1) - _read_number(content.get("compression"), 0),
    ):
        if number > 0:
            return int(number)
    return 0


def _origin(address: Any) -> str:
    try:
        return urlsplit(str(address)).netloc
    except ValueError:
        return ""


def _find_site(entry: Mapping[str, Any], origins: Sequence[str]) -> CallSite | None:
    """Find the line of the page's own script that asked, which Chromium and Edge write down.

    It is the innermost call whose script is of the page's origin; where there is none, the innermost is
    uncertain.
    """
    initiator = entry.get("_initiator")
    stack = initiator.get("stack") if isinstance(initiator, dict) else None
    frames = list[dict[str, Any]]()
    while isinstance(stack, dict) and len(frames) < 1000:
        frames += [*_maps(stack.get("callFrames"))]
        stack = stack.get("parent")
    frames = [
        frame for frame in frames if isinstance(frame.get("lineNumber"), int) and frame.get("url")
    ]
    if not frames:
        return None
    own = next((i for i, frame in enumerate(frames) if _origin(frame["url"]) in origins), None)
    place = own or 0
    name = urlsplit(str(frames[place]["url"])).path.rpartition("/")[2] or "page"
    below = str(frames[place - 1].get("functionName", "")) if place else ""
    return CallSite(
        file=printable(cut(name)),
        line=max(0, frames[place]["lineNumber"]) + 1,
        function=printable(cut(str(frames[place].get("functionName", "")))),
        source="",
        library_call=printable(cut(below)),
        is_certain=own is not None,
    )
