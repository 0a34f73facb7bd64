"""A trace as files: a table, an HTTP archive and the run, without credentials; and how a stored one is read."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import os
import shlex
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, get_type_hints

from wire.deadline import deadline
from wire.errors import (
    UserError,
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
from wire.trace.har import ArchiveReader, list_sites, number_sites, write_har
from wire.trace.request_log import LoggedTrace, is_being_written, parse_log
from wire.trace.rows import CallSite, Run, TracedRequest, Tunnel
from wire.untrusted import UntrustedFolder

VERSION = 2
"""Of the form of `trace.json`: a field that is added leaves it, one that goes or changes raises it."""

FILES = ("trace.csv", "trace.json", "trace.har", "trace.html")
REQUEST_LOG = "trace.requests.jsonl"
"""Requests as they end (`wire.trace.request_log`), until the other files hold them."""
MAX_ROWS = 300_000
"""Requests of a stored trace that is read."""

READ_S, REPORT_S = 5.5, 4.0
"""Seconds in which a stored trace is read, and in which it is analysed."""

_MAX_SAMPLES = 50_000  # of processor seconds, written and read
_TABLE_NBYTES, _RUN_NBYTES = 150_000_000, 20_000_000
_LAST_S, _MOST = 1e11, 2**53  # of a moment since 1970, and of a number of bytes
_COLUMNS = [column.name for column in fields(TracedRequest) if column.name not in ("tag", "worker")]
_SITE = "site"  # column of the table: the place of a request's line in the list of `trace.json`


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
    words = redact_words(command)

    def clean_text(text: str) -> str:
        return _flatten(redact_tree(text, secrets))

    clean_sites = {site: _redact_site(site, clean_text) for site in list_sites(run)}
    clean_run = replace(
        run,
        rows=rows,
        sites=[None if site is None else clean_sites[site] for site in run.sites],
        bypassed=[
            replace(bypass, name=clean_text(bypass.name), address=clean_text(bypass.address))
            for bypass in run.bypassed
        ],
        unread=[
            replace(tunnel, host=clean_text(tunnel.host), reason=clean_text(tunnel.reason))
            for tunnel in run.unread
        ],
        remarks=[clean_text(remark) for remark in run.remarks],
        missing=[clean_text(phrase) for phrase in run.missing],
        uncertain=[clean_text(phrase) for phrase in run.uncertain],
    )
    return clean_run, words


def redact_words(command: Sequence[str]) -> list[str]:
    """Black out credentials in the words of a command."""
    words = redact_tree(redact_command(command), find_command_secrets(command))
    return [_flatten(word) for word in words]


def _redact_site(site: CallSite, clean_text: Callable[[str], str]) -> CallSite:
    """Black out credentials in a line of the program, whose source may hold any."""
    return replace(
        site,
        file=clean_text(site.file),
        function=clean_text(site.function),
        source=clean_text(site.source),
        library_call=clean_text(site.library_call),
    )


def _flatten(text: str) -> str:
    """Escape what is not printed, ends of lines too."""
    return text if text.isprintable() else printable(text).replace("\n", r"\n")


def claim_folder(out: Path) -> Path:
    """Make the folder for a trace, with an empty log: this one, or with a number where it holds another run.

    A trace is not written over that of another run, for nobody could tell which is which. Of two
    that begin at once only one makes the log, so each has a folder of its own. Who is done writes
    its files before its log goes, so whoever has made a log sees them.

    Raises
    ------
    OSError
        Where no folder can be made or written to.
    """
    folder, number = out, 1
    while True:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(folder / REQUEST_LOG, flags, 0o600))
            if not find_foreign_names(folder) and not any(
                (folder / name).exists() for name in FILES
            ):
                return folder
            (folder / REQUEST_LOG).unlink()
        number += 1
        folder = out.with_name(f"{out.name or 'trace'}-{number}")


def find_foreign_names(folder: Path) -> list[str]:
    """Find what a folder holds besides a trace."""
    names = sorted(path.name for path in folder.iterdir())
    return [name for name in names if not name.lstrip(".").startswith("trace.")]


def write_trace(folder: Path, run: Run, command: Sequence[str]) -> None:
    """Write what was seen, as a table, as an archive and what `wire trace show` needs besides.

    The run and the command are those of `redact_run`. The folder and the files are for their owner alone.
    """
    with _private(folder):
        replace_file(folder / "trace.csv", write_csv(run))
        replace_file(folder / "trace.json", write_run(run, command))
        replace_file(folder / "trace.har", write_har(run, command, describe_run(run)))


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


def write_csv(run: Run) -> str:
    """Write a row a request, with the number of its line in the program where that is known."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if not run.sites:
        writer.writerow(_COLUMNS)
        writer.writerows(map(attrgetter(*_COLUMNS), run.rows))
        return file.getvalue()
    writer.writerow([*_COLUMNS, _SITE])
    values = map(attrgetter(*_COLUMNS), run.rows)
    writer.writerows((*row, site) for row, site in zip(values, number_sites(run), strict=True))
    return file.getvalue()


def write_run(run: Run, command: Sequence[str]) -> str:
    """Write what is known of a run besides its requests."""
    return json.dumps({"version": VERSION, "command": shlex.join(command), **describe_run(run)})


def describe_run(run: Run) -> dict[str, Any]:
    """Describe a run without its requests, and list the lines of the program that these are for."""
    step = math.ceil(len(run.processor_s) / _MAX_SAMPLES) or 1
    samples = [*run.processor_s[::step]]
    if run.processor_s and samples[-1] != run.processor_s[-1]:
        samples[-1] = run.processor_s[-1]
    values = asdict(replace(run, rows=(), sites=(), processor_s=samples))
    del values["rows"], values["sites"]
    return {"run": values, "sites": [asdict(site) for site in list_sites(run)]}


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


def _read_unfinished(source: UntrustedFolder) -> tuple[Run, list[str]]:
    """Read the log of a trace that was ended before its report: what it knows, and that it is a part."""
    text = source.read_text(REQUEST_LOG, max_nbytes=_TABLE_NBYTES, max_lines=MAX_ROWS + 1)
    logged = parse_log(text.splitlines())
    if logged.begin_s is None and not any(row.end_s for row in logged.requests):
        raise source.refuse("neither a beginning nor a request is in its log", "what a trace has")
    try:
        run = _make_unfinished_run(logged, is_being_written(source.folder / REQUEST_LOG))
        problem = _find_nonsense(run)
    except (TypeError, ValueError, OverflowError) as error:
        raise source.refuse(f"{REQUEST_LOG}: {show(error)}", "what a trace has") from error
    if problem:
        raise source.refuse(problem, "what a trace has")
    return redact_run(run, logged.command)


def _make_unfinished_run(logged: LoggedTrace, is_running: bool | None) -> Run:
    """Make the run of a log, with what is not known of it; its values are of their types or refused."""
    _check_types(logged.requests, TracedRequest)
    _check_types(logged.tunnels, Tunnel)
    rows = [row for row in logged.requests if row.end_s]
    moments = [] if logged.begin_s is None else [logged.begin_s]
    begin_s = min(moments + [row.start_s - row.handshake_s for row in rows])
    wall_s = max(max((row.end_s for row in rows), default=begin_s) - begin_s, 1e-6)
    if logged.end is not None:
        wall_s, missing = logged.end.wall_s, [*logged.end.missing]
    else:
        missing = [_describe_missing(logged, is_running)]
    if logged.n_lost:
        missing.append(f"requests that could not be written, {logged.n_lost:,} lines of the log")
    remarks = ["the report is made of the trace's log: its other files could not be written"]
    return Run(
        rows=rows,
        wall_s=wall_s,
        begin_s=begin_s,
        exit_code=None if logged.end is None else logged.end.exit_code,
        unread=logged.tunnels,
        sites=[None] * len(rows),
        remarks=remarks if logged.end is not None else [],
        missing=missing,
    )


def _check_types(rows: Sequence[Any], row_type: type) -> None:
    """Refuse rows with a value of another type than the class has."""
    for name, hint in get_type_hints(row_type).items():
        kind = (int, float) if hint is float else hint
        for row in rows:
            if not isinstance(getattr(row, name), kind):
                raise ValueError(f"{name}: {show(getattr(row, name))}")


def _describe_missing(logged: LoggedTrace, is_running: bool | None) -> str:
    """Describe why a log has no end."""
    name = f"the trace of {cut(shlex.join(logged.command))!r}" if logged.command else "the trace"
    if logged.begin_s is not None:
        moment = datetime.datetime.fromtimestamp(logged.begin_s, datetime.UTC)
        name = f"{name}, begun {moment:%Y-%m-%d %H:%M:%S} UTC,"
    if is_running:
        return f"what comes next: {name} is still running"
    if is_running is None:
        return f"what came after this: {name} is still running, or was ended before it finished"
    return f"what came after this: {name} was ended before it finished"


def _read(source: UntrustedFolder) -> tuple[Run, list[str]]:
    if not (source.folder / FILES[1]).exists() and (source.folder / REQUEST_LOG).exists():
        return _read_unfinished(source)
    content = source.read_json("trace.json", max_nbytes=_RUN_NBYTES)
    if not isinstance(content, dict) or not {"command", "run"} <= {*content}:
        raise source.refuse("trace.json has no command and run", f"what {FILES[1]} has")
    table = source.read_text("trace.csv", max_nbytes=_TABLE_NBYTES, max_lines=MAX_ROWS + 1)
    rows, numbers = _read_rows(table, source)
    return _make_run(content, rows, numbers, f"{source.label}: trace.json")


def read_har(path: Path, *, within_s: float = READ_S) -> tuple[Run, list[str]]:
    """Read an HTTP archive as a run and the command that it is of, or refuse it in a line.

    One that `wire trace` wrote is the run that it was; one of a browser or a proxy has no command.
    """
    reader = ArchiveReader(path)
    try:
        with deadline(within_s):
            log = reader.read_log()
            if "_run" not in log:
                run = reader.read_foreign(log)
                if problem := _find_nonsense(run):
                    raise reader.refuse(problem, "those of a trace")
                return redact_run(run, [])
            rows, numbers = reader.read_ours(log)
            content = {
                "run": log["_run"],
                "sites": log.get("_sites", []),
                "command": log.get("_command"),
            }
            return _make_run(content, rows, numbers, reader.label)
    except TimeoutError as error:
        raise reader.refuse(
            f"takes longer than {within_s:g} s to read", "a smaller archive"
        ) from error


def _make_run(
    content: Mapping[str, Any],
    rows: Sequence[TracedRequest],
    numbers: Sequence[int | None],
    label: str,
) -> tuple[Run, list[str]]:
    """Make the run of what a file has of it, each value of its type and within bounds."""
    from pydantic import TypeAdapter, ValidationError

    allowed = "the run of a trace"
    try:
        run: Run = TypeAdapter(Run).validate_python({**content["run"], "rows": (), "sites": ()})
        sites = TypeAdapter(list[CallSite]).validate_python(content.get("sites", []))
        words = shlex.split(content["command"])
    except ValidationError as error:
        raise convert_validation_error(error).within(f"{label}: run") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(label, show(error), allowed) from error
    if any(number is not None and not 0 <= number < len(sites) for number in numbers):
        raise UserError(label, "a request is of a line that is not there", allowed)
    site_of = [None if number is None else sites[number] for number in numbers]
    run = replace(run, rows=rows, sites=site_of if sites else ())
    if problem := _find_nonsense(run):
        raise UserError(label, problem, "that of a trace")
    return redact_run(run, words)


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
        if not (0 <= row.start_s <= _LAST_S and 0 <= row.handshake_s <= _LAST_S):
            return "moments outside of all years"
        if not all(0 <= count <= _MOST for count in (row.nbytes, row.sent_nbytes)):
            return "bytes of a request without a bound"
        if not all(0 <= (count or 0) <= _MOST for count in (row.range_start, row.range_nbytes)):
            return "a range without a bound"
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


def _read_rows(text: str, source: UntrustedFolder) -> tuple[list[TracedRequest], list[int | None]]:
    """Read the table of requests column by column, each value of its type and within bounds.

    The second list has the number of the line of each, which older tables lack.
    """
    try:
        columns, *lines = csv.reader(io.StringIO(text, newline=""))
    except (csv.Error, ValueError) as error:
        raise source.refuse(f"trace.csv: {cut(str(error))}", "a table in CSV") from error
    if sorted({*columns} - {_SITE}) != sorted(_COLUMNS) or len({*columns}) < len(columns):
        odd = sorted({*columns} - {_SITE} ^ {*_COLUMNS}) or ["a column that stands twice"]
        raise source.refuse(f"trace.csv: {cut(odd[0])}", f"the columns {', '.join(_COLUMNS)}")
    for number, values in enumerate(lines, 2):
        if len(values) != len(columns):
            problem = f"trace.csv: line {number} has {len(values)} values"
            raise source.refuse(problem, f"{len(columns)}, one a column")
    hints = {**get_type_hints(TracedRequest), _SITE: int | None}
    table = dict[str, list[Any]]()
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
    rows = [TracedRequest(*row) for row in zip(*filled, strict=True)] if lines else []
    return rows, table.get(_SITE, [None] * len(lines))


def _is_parsed(parse: Callable[[Sequence[str]], list[Any]], value: str) -> bool:
    try:
        parse([value])
    except (ValueError, KeyError):
        return False
    return True
