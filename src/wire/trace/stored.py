"""A trace as files: a table, an HTTP archive and the run, without credentials; and how a stored one is read."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import quote

from wire.deadline import deadline
from wire.errors import (
    convert_validation_error,
    cut,
    find_command_secrets,
    printable,
    redact_command,
    redact_paths,
    redact_tree,
    show,
)
from wire.files import replace_file
from wire.trace.analysis import kind_of
from wire.trace.lines import redact_source
from wire.trace.rows import CallSite, Run, TracedRequest
from wire.untrusted import UntrustedFolder

FILES = ("trace.csv", "trace.json", "trace.har", "trace.html")
MAX_ARCHIVED = 30_000
"""Requests in the HTTP archive, the first of them: a browser opens no more, and the table has all."""

MAX_ROWS = 300_000
"""Requests of a stored trace that is read."""

READ_S, REPORT_S = 5.5, 4.0
"""Seconds in which a stored trace is read, and in which it is analysed."""

_MAX_SAMPLES = 50_000  # of processor seconds, written and read
_TABLE_NBYTES, _RUN_NBYTES = 150_000_000, 20_000_000
_LAST_S, _MOST = 1e11, 2**53  # of a moment since 1970, and of a number of bytes
_COLUMNS = [one.name for one in fields(TracedRequest) if one.name not in ("tag", "worker")]


def redact_run(run: Run, command: Sequence[str]) -> tuple[Run, list[str]]:
    """Black out credentials and what would steer a terminal in all that a trace holds and its command.

    Passwords of the command line are looked for everywhere. Paths that differ in a credential alone
    get numbers, so they remain several.
    """
    secrets = find_command_secrets(command)
    paths = [*dict.fromkeys(row.key for row in run.rows)]
    clean_paths, numbers = dict[str, str](), dict[str, int]()
    for path, clean in zip(paths, redact_paths(paths, secrets), strict=True):
        number = numbers[clean] = numbers.get(clean, 0) + 1
        clean = _flatten(clean if number == 1 else f"{clean}~{number}")
        clean_paths[path] = path if clean == path else clean
    names = [
        *{row.host for row in run.rows},
        *{row.process for row in run.rows},
        *{row.user_agent for row in run.rows},
        *{row.method for row in run.rows},
    ]
    clean_names = dict(zip(names, map(_flatten, redact_tree(names, secrets)), strict=True))
    all_clean = [*clean_names] == [*clean_names.values()]
    rows = [
        row
        if all_clean and clean_paths[row.key] == row.key
        else replace(
            row,
            key=clean_paths[row.key],
            host=clean_names[row.host],
            process=clean_names[row.process],
            user_agent=clean_names[row.user_agent],
            method=clean_names[row.method],
        )
        for row in run.rows
    ]
    words = [_flatten(word) for word in redact_tree(redact_command(command), secrets)]

    def clean_text(text: str) -> str:
        return _flatten(redact_tree(text, secrets))

    clean_sites = {
        site: replace(
            site,
            file=clean_text(site.file),
            function=clean_text(site.function),
            source=clean_text(redact_source(site.source)),
            library_call=clean_text(site.library_call),
        )
        for site in dict.fromkeys(filter(None, run.sites))
    }
    clean_run = replace(
        run,
        rows=rows,
        bypassed=[
            replace(one, name=clean_text(one.name), address=clean_text(one.address))
            for one in run.bypassed
        ],
        unread=[
            replace(one, host=clean_text(one.host), reason=clean_text(one.reason))
            for one in run.unread
        ],
        remarks=[clean_text(one) for one in run.remarks],
        sites=[clean_sites[site] if site else None for site in run.sites],
    )
    return clean_run, words


def _flatten(text: str) -> str:
    """Escape what is not printed, ends of lines too."""
    return text if text.isprintable() else printable(text).replace("\n", r"\n")


def choose_folder(out: Path) -> Path:
    """Return the folder for a trace: this one, or with a number where it holds another run.

    A trace is not written over that of another run, for nobody could tell which is which.
    """
    folder, number = out, 1
    while any((folder / name).exists() for name in FILES):
        number += 1
        folder = out.with_name(f"{out.name or 'trace'}-{number}")
    return folder


def write_trace(folder: Path, run: Run, command: Sequence[str]) -> None:
    """Write what was seen, as a table, as an archive and what `wire trace show` needs besides.

    The run and the command are those of `redact_run`. The folder and the files are for their owner alone.
    """
    with _private(folder):
        replace_file(folder / "trace.csv", write_csv(run.rows))
        replace_file(folder / "trace.json", write_run(run, command))
        replace_file(folder / "trace.har", write_har(run, command))


def write_page(folder: Path, text: str) -> None:
    """Write the page of a trace."""
    with _private(folder):
        replace_file(folder / "trace.html", text)


@contextmanager
def _private(folder: Path) -> Iterator[None]:
    """Make files that nobody else can read, in a folder that nobody else can enter."""
    before = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
            folder.chmod(0o700)
        yield
    finally:
        os.umask(before)


def write_csv(rows: Sequence[TracedRequest]) -> str:
    """Write a row a request."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(map(attrgetter(*_COLUMNS), rows))
    return file.getvalue()


def write_run(run: Run, command: Sequence[str]) -> str:
    """Write what is known of a run besides its requests."""
    step = math.ceil(len(run.processor_s) / _MAX_SAMPLES) or 1
    samples = [*run.processor_s[::step]]
    if run.processor_s and samples[-1] != run.processor_s[-1]:
        samples[-1] = run.processor_s[-1]
    told = asdict(replace(run, rows=(), sites=(), processor_s=samples))
    del told["rows"]
    told["sites"], told["site_of_row"] = _pack_sites(run.sites)
    return json.dumps({"version": 1, "command": shlex.join(command), "run": told})


def _pack_sites(
    sites: Sequence[CallSite | None],
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return each line once, and for each row the number of its line; -1 where it has none."""
    numbers = {site: number for number, site in enumerate(dict.fromkeys(filter(None, sites)))}
    return [asdict(site) for site in numbers], [numbers[site] if site else -1 for site in sites]


def _unpack_sites(run: dict[str, Any], n_rows: int) -> list[Any]:
    """Return the line of each row, as `_pack_sites` took them apart."""
    lines, places = run.get("sites", []), run.get("site_of_row", [])
    if not places:
        return []
    if len(places) != n_rows or not all(
        type(place) is int and -1 <= place < len(lines) for place in places
    ):
        raise ValueError("site_of_row")
    return [None if place < 0 else lines[place] for place in places]


def write_har(run: Run, command: Sequence[str]) -> str:
    """Write an HTTP archive 1.2, without headers: any browser's network panel opens it.

    What the format has no place for stands under names of our own, as it allows.
    """
    nothing: dict[str, Any] = {
        "cookies": [],
        "headers": [],
        "headersSize": -1,
        "httpVersion": "HTTP/1.1",
    }
    entries, rows = [], sorted(run.rows, key=lambda row: row.start_s)
    for row in rows[:MAX_ARCHIVED]:
        end_s = row.end_s or row.first_byte_s or row.start_s
        first_s = row.first_byte_s or end_s
        timings = {
            "blocked": -1, "dns": -1, "ssl": -1, "send": 0,
            "connect": round(1000 * row.handshake_s, 3) if row.is_first else -1,
            "wait": round(1000 * (first_s - row.start_s), 3),
            "receive": round(1000 * (end_s - first_s), 3),
        }  # fmt: skip
        asked = {
            **nothing, "method": row.method, "url": f"{row.scheme}://{row.host}{quote(row.key)}",
            "queryString": [], "bodySize": row.sent_nbytes,
        }  # fmt: skip
        answer = {
            **nothing, "status": row.status, "statusText": "", "redirectURL": "", "bodySize": row.nbytes,
            "content": {"size": row.nbytes, "mimeType": ""},
        }  # fmt: skip
        entries.append({
            "startedDateTime": datetime.fromtimestamp(row.start_s, UTC).isoformat(timespec="milliseconds"),
            "time": round(sum(max(0, value) for value in timings.values()), 3),
            "request": asked, "response": answer, "cache": {}, "timings": timings,
            "connection": str(row.connection), "_kind": kind_of(row), "_process": row.process,
        })  # fmt: skip
    creator = {"name": "wire trace", "version": "1"}
    log = {
        "version": "1.2",
        "creator": creator,
        "entries": entries,
        "_command": shlex.join(command),
    }
    if len(rows) > MAX_ARCHIVED:
        log["comment"] = f"the first {MAX_ARCHIVED} of {len(rows)} requests"
    return json.dumps({"log": log})


def read_trace(folder: Path, *, within_s: float = READ_S) -> tuple[Run, list[str]]:
    """Read a trace and the command that it is of, which a stranger may have made, or refuse it in a line."""
    source = UntrustedFolder(folder, f"trace folder {cut(str(folder))}")
    try:
        with deadline(within_s):
            return _read(source)
    except TimeoutError as error:
        raise source.refuse(
            f"takes longer than {within_s:g} s to read", "a smaller trace"
        ) from error


def _read(source: UntrustedFolder) -> tuple[Run, list[str]]:
    from pydantic import TypeAdapter, ValidationError

    told = source.read_json("trace.json", max_nbytes=_RUN_NBYTES)
    if not isinstance(told, dict) or not {"command", "run"} <= {*told}:
        raise source.refuse("trace.json has no command and run", f"what {FILES[1]} has")
    table = source.read_text("trace.csv", max_nbytes=_TABLE_NBYTES, max_lines=MAX_ROWS + 1)
    rows = _read_rows(table, source)
    try:
        table_of_run = {**told["run"], "rows": (), "sites": _unpack_sites(told["run"], len(rows))}
        table_of_run.pop("site_of_row", None)
        run: Run = TypeAdapter(Run).validate_python(table_of_run)
        command = shlex.split(told["command"])
    except ValidationError as error:
        raise convert_validation_error(error).within(f"{source.label}: trace.json: run") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise source.refuse(f"trace.json: {show(error)}", "the run of a trace") from error
    run = replace(run, rows=rows)
    if problem := _find_nonsense(run):
        raise source.refuse(problem, "those of a trace")
    return redact_run(run, command)


def _find_nonsense(run: Run) -> str:
    """Find what no trace can hold."""
    moments = [run.begin_s, *(time_s for time_s, _ in run.processor_s)]
    if not all(0 <= time_s <= _LAST_S for time_s in moments):
        return "moments outside of all years"
    if not 1e-6 <= run.wall_s <= _LAST_S:
        return f"{run.wall_s:g} s of a program"
    if not 0 <= run.gateway_s <= 1000 * (run.wall_s + 1):
        return f"{run.gateway_s:g} s of the gateway"
    used = [seconds for _, seconds in run.processor_s]
    if not all(0 <= seconds <= _LAST_S for seconds in used) or len(used) > 2 * _MAX_SAMPLES:
        return "processor seconds without a bound"
    if not all(0 <= tunnel.nbytes_down <= _MOST for tunnel in run.unread):
        return "bytes of a tunnel without a bound"
    for row in run.rows:
        first_s, end_s = row.first_byte_s or row.start_s, row.end_s or math.inf
        if not row.start_s <= first_s <= end_s:
            return "times that run backwards"
    return ""


def _parse_seconds(texts: Sequence[str]) -> list[float]:
    values = [*map(float, texts)]
    return _check(values, texts, min(values, default=0.0) >= 0 and _is_below(values, _LAST_S))


def _parse_counts(texts: Sequence[str]) -> list[int]:
    is_short = max(map(len, texts), default=0) <= _MAX_DIGITS
    values = [*map(int, texts)] if is_short else []
    return _check(
        values, texts, is_short and min(values, default=0) >= 0 and _is_below(values, _MOST)
    )


def _parse_places(texts: Sequence[str]) -> list[int | None]:
    counts = iter(_parse_counts([text for text in texts if text]))
    return [next(counts) if text else None for text in texts]


def _is_below(values: Sequence[float], most: float) -> bool:
    """Tell whether all values are numbers, and none is larger."""
    return all(value <= most for value in values)


def _check(values: list[Any], texts: Sequence[str], is_allowed: bool) -> list[Any]:
    if not is_allowed:
        raise ValueError(texts)
    return values


_MAX_DIGITS = 20
_BOOLEANS = {"True": True, "False": False}
_PARSERS: Mapping[Any, tuple[Callable[[Sequence[str]], list[Any]], str]] = {
    float: (_parse_seconds, f"seconds from 0 to {_LAST_S:.0e}"),
    int: (_parse_counts, f"a whole number from 0 to {_MOST}"),
    int | None: (_parse_places, "a whole number, or nothing"),
    bool: (lambda texts: [_BOOLEANS[text] for text in texts], "True or False"),
    str: (lambda texts: [*map(sys.intern, texts)], "text"),
}


def _read_rows(text: str, source: UntrustedFolder) -> list[TracedRequest]:
    """Read the table of requests column by column, each value of its type and within bounds."""
    try:
        columns, *lines = csv.reader(io.StringIO(text, newline=""))
    except (csv.Error, ValueError) as error:
        raise source.refuse(f"trace.csv: {cut(str(error))}", "a table in CSV") from error
    if sorted(columns) != sorted(_COLUMNS):
        odd = sorted({*columns} ^ {*_COLUMNS}) or ["a column that stands twice"]
        raise source.refuse(f"trace.csv: {cut(odd[0])}", f"the columns {', '.join(_COLUMNS)}")
    for number, values in enumerate(lines, 2):
        if len(values) != len(columns):
            problem = f"trace.csv: line {number} has {len(values)} values"
            raise source.refuse(problem, f"{len(columns)}, one a column")
    hints, table = get_type_hints(TracedRequest), dict[str, list[Any]]()
    for name, texts in zip(columns, zip(*lines, strict=True), strict=True) if lines else ():
        parse, allowed = _PARSERS[hints[name]]
        try:
            table[name] = parse(texts)
        except (ValueError, KeyError) as error:
            number = next(n for n, value in enumerate(texts, 2) if not _is_parsed(parse, value))
            problem = f"trace.csv: line {number}, {name}: {show(texts[number - 2])}"
            raise source.refuse(problem, allowed) from error
    default = asdict(TracedRequest(0.0))
    filled = (table.get(name, [value] * len(lines)) for name, value in default.items())
    return [TracedRequest(*row) for row in zip(*filled, strict=True)] if lines else []


def _is_parsed(parse: Callable[[Sequence[str]], list[Any]], value: str) -> bool:
    try:
        parse([value])
    except (ValueError, KeyError):
        return False
    return True
