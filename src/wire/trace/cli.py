"""``wire trace``: run a program unchanged, and report what it waited for."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wire.errors import UserError, convert_system_error, cut, describe_refusal, say, show

if TYPE_CHECKING:
    from wire.models.transfer import Network
    from wire.trace.report import Report
    from wire.trace.rows import Run

SETTINGS = {
    "max_concurrency": ("FSSPEC_S3_MAX_CONCURRENCY", "{:d}"),
    "cache": ("FSSPEC_S3_DEFAULT_CACHE_TYPE", "{}"),
    "block_size": ("FSSPEC_S3_DEFAULT_BLOCK_SIZE", "{:d}"),
    "pool": ("FSSPEC_S3_CONFIG_KWARGS", '{{"max_pool_connections": {:d}}}'),
    "concurrency": ("ZARR_ASYNC__CONCURRENCY", "{:d}"),
    "gap": ("ZARR_ARRAY__SHARDING_COALESCE_MAX_GAP_BYTES", "{:d}"),
    "readdir": ("GDAL_DISABLE_READDIR_ON_OPEN", "{}"),
    "no_metadata_service": ("AWS_EC2_METADATA_DISABLED", "{}"),
}
"""What `--try` can set, and the variable that brings it to the library; a variable in capitals is set as it is."""

DEFAULTS = {"max_concurrency": "10", "cache": "readahead", "block_size": "52428800", "pool": "10", "concurrency": "10"}  # fmt: skip
"""What s3fs, botocore and Zarr do without a setting: to try it changes nothing."""

_MAXIMA = ("requests", "mb", "waits")
_TRY_S, _MOST_PAIRS, _LEAST_PAIRS = 120.0, 6, 2


class _Trace(click.Group):
    """A program with its arguments, or a subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep a program and what follows it as it is, with `--` before it or without."""
        _, rest, _ = self.make_parser(ctx).parse_args(args=[*args])
        own = args[: len(args) - len(rest)]
        is_program = bool(rest) and (own[-1:] == ["--"] or rest[0] not in self.commands)
        ctx.obj = rest if is_program else []
        return super().parse_args(ctx, own if is_program else args)

    def invoke(self, ctx: click.Context) -> Any:
        """Exit with 2 where what was typed cannot be done: 1 is that of a budget."""
        try:
            return super().invoke(ctx)
        except UserError as error:
            say(f"error: {error}", err=True)
            sys.exit(2)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List options by what they are for."""
        records = {
            str(param.name): record
            for param in self.get_params(ctx)
            if (record := param.get_help_record(ctx))
        }
        for title, names in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([records[name] for name in names if name in records])
        self.format_commands(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples line by line."""
        with formatter.section("Examples"):
            formatter.write_dl(_EXAMPLES)


_GROUPS = {
    "What is predicted and measured": ("on", "tried", "most"),
    "What is printed and written": ("out", "is_json", "quiet", "help"),
}
_EXAMPLES = [
    ("wire trace python my.py", "What does my program wait for?"),
    ("wire trace --try max_concurrency=1 python my.py", "What does a setting gain?"),
    ("wire trace --max requests=50,mb=10 pytest -q", "Fail where more is read."),
    ("wire trace show trace", "Print a stored trace."),
]


@click.group(cls=_Trace, invoke_without_command=True, no_args_is_help=False)
@click.option("--out", type=click.Path(path_type=Path), default=Path("trace"), show_default=True,
              metavar="DIR", help="Folder of the trace; a number is added where it holds another.")  # fmt: skip
@click.option(
    "--on",
    default="",
    metavar="NAME|FILE",
    help="Network to predict for, or a file of `wire calibrate`.",
)
@click.option("--try", "tried", default="", metavar="SETTING=VALUE",
              help=f"Measure in pairs what a setting gains: {', '.join(SETTINGS)}, or a VARIABLE.")  # fmt: skip
@click.option(
    "--max",
    "most",
    default="",
    metavar="requests=…,mb=…,waits=…",
    help="Exit 1 above any of these, or where traffic was not seen.",
)
@click.option(
    "--json", "is_json", is_flag=True, help="Print JSON, as the last line of standard output."
)
@click.option("--quiet", is_flag=True, help="Print nothing but what is wrong.")
@click.pass_context
def trace(
    ctx: click.Context, out: Path, on: str, tried: str, most: str, *, is_json: bool, quiet: bool
) -> None:
    """Report which lines of a program wait, and for what: wire trace COMMAND…, or wire trace show DIR.

    The program runs as it is; its output and its exit code are its own, and the report is on
    standard error. Exit codes of ours are 1 above a budget of --max, and 2 for what cannot be done.
    """
    if ctx.invoked_subcommand:
        return
    command: list[str] = ctx.obj
    if not command:
        raise UserError("wire trace", "no command", "wire trace [OPTIONS] COMMAND…")
    if shutil.which(command[0]) is None:
        raise UserError(
            "wire trace", f"{cut(command[0])!r} is not found", "a program on PATH, or its path"
        )
    maxima, environment, network = read_maxima(most), read_setting(tried), _network(on)
    refuse_default(tried, environment)
    claim(out)
    from wire.trace import findings, launch, stored
    from wire.trace.request_log import RequestLog, read_log

    try:
        folder = stored.claim_folder(out)
    except OSError as error:
        raise convert_system_error(error).within("--out") from error
    log = RequestLog(folder / stored.REQUEST_LOG)
    ctx.call_on_close(log.close)
    log.write_begin(stored.redact_words(command), time.time())
    try:
        run = launch.run(command, log=folder / stored.REQUEST_LOG)
    except Exception:
        if not read_log(folder / stored.REQUEST_LOG).requests:  # nothing ran
            (folder / stored.REQUEST_LOG).unlink()
        raise
    try:
        if log.problem:
            problem = f"the trace could not be written as it went on: {log.problem}"
            run = replace(run, remarks=[*run.remarks, problem])
        clean, words = stored.redact_run(run, command)
        log.write_end(run.exit_code or 0, clean.wall_s, clean.unseen)
        report = findings.report(clean, network)
        _tell(report, words, is_json=is_json, quiet=quiet)
        if folder != out:
            say(f"{out}/ holds another trace and stays as it is", err=True)
        _write(folder, clean, report, words, quiet=quiet)
        for line in measure(command, run, report, tried, environment) if environment else ():
            say(line, err=True)
        counts = (report.n_requests, report.moved_nbytes / 1e6, report.n_waits)
        exceeded = [
            f"{name} {count:g}, at most {maxima[name]:g}"
            for name, count in zip(_MAXIMA, counts, strict=True)
            if count > maxima[name]
        ]
        if exceeded:
            say(f"above --max: {'; '.join(exceeded)}", err=True)
        if most and (places := find_unseen(run)):
            exceeded.append("not seen")
            where = f"{cut(places[0])}{f' and {len(places) - 1} more' * (len(places) > 1)}"
            say(f"--max is not judged: traffic was not seen, with {where}", err=True)
        elif most and run.uncertain:
            say(f"--max: not known whether all was seen: {run.uncertain[0]}", err=True)
    except Exception as error:  # ours, whatever it is: the program did what it did
        with suppress(OSError):
            say(f"wire trace: the report failed: {show(error)}", err=True)
        sys.exit(run.exit_code or int(bool(most)))  # a budget that is not judged is not kept
    sys.exit(1 if exceeded else run.exit_code)


@trace.command("show")
@click.argument("folder", metavar="DIR|FILE.har", type=click.Path(path_type=Path))
@click.option("--on", default="", metavar="NAME|FILE", help="Network to predict for.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def show_trace(folder: Path, on: str, *, is_json: bool) -> None:
    """Print a stored trace, or what an HTTP archive of a browser or a proxy shows."""
    from wire.trace import findings, stored

    network = _network(on)
    read = stored.read_har if folder.is_file() else stored.read_trace
    run, command = read(folder)
    report = findings.report(run, network, within_s=stored.REPORT_S)
    _tell(report, command, is_json=is_json, quiet=False, err=False)


@trace.command("install-kernel")
@click.option(
    "--prefix", type=click.Path(path_type=Path), help="Folder whose share/jupyter gets the kernel."
)
def install_kernel(prefix: Path | None) -> None:
    """Write a Jupyter kernel, Python 3 (wire), in which %%wire shows what a cell waited for."""
    from wire.trace import jupyter

    say(f"{jupyter.install_kernel(prefix)}: kernel {jupyter.KERNEL_TITLE}")


def _write(folder: Path, run: Run, report: Report, words: Sequence[str], *, quiet: bool) -> None:
    """Write the files of a trace after its report: a full disk takes the files alone.

    The log of requests goes once they hold the same.
    """
    from wire.trace import page, stored

    try:
        stored.write_trace(folder, run, words)
        stored.write_page(folder, page.write_html(run, report, words))
        (folder / stored.REQUEST_LOG).unlink(missing_ok=True)
    except OSError as error:
        say(f"wire trace: no files: {describe_refusal(error)}", err=True)
    else:
        if not quiet:
            say(f"{folder}/: {', '.join(stored.FILES)} (waterfall)", err=True)


def _tell(
    report: Report, command: Sequence[str], *, is_json: bool, quiet: bool, err: bool = True
) -> None:
    from wire.trace import render

    if is_json:
        say(json.dumps(report.to_json()))
    elif not quiet:
        say("\n".join(render.render(report, command)), err=err)


def _network(name: str) -> tuple[str, Network]:
    from wire.bed.networks import get_profile, of_one_process
    from wire.models.transfer import Network, network_of

    return (name, network_of(of_one_process(get_profile(name)))) if name else ("", Network())


def find_unseen(run: Run) -> list[str]:
    """Find with whom a program exchanged what a budget would have to count."""
    return run.unseen


def read_maxima(text: str) -> dict[str, float]:
    """Read a budget, such as `requests=50,mb=10`; what it does not name has no bound."""
    maxima = dict.fromkeys(_MAXIMA, math.inf)
    allowed = ", ".join(f"{name}=NUMBER" for name in _MAXIMA)
    for pair in text.split(",") if text else ():
        name, _, value = (part.strip() for part in pair.partition("="))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if name not in _MAXIMA or not number >= 0:
            raise UserError("--max", f"{cut(pair)!r}", allowed)
        if maxima[name] < math.inf:
            raise UserError("--max", f"{name} stands twice", f"{name}=NUMBER once")
        maxima[name] = number
    return maxima


def read_setting(text: str) -> dict[str, str]:
    """Read what `--try` sets, as the variable that brings it to the library."""
    if not text:
        return {}
    name, _, value = text.partition("=")
    is_variable = name.isupper() and name.replace("_", "a").isalnum()
    if not value or not (name in SETTINGS or is_variable):
        allowed = ", ".join(f"{setting}=VALUE" for setting in SETTINGS)
        raise UserError("--try", f"{cut(text)!r}", f"{allowed}, or VARIABLE=VALUE")
    variable, form = SETTINGS.get(name, (name, "{}"))
    if (is_number := ":d" in form) and not (value.isdecimal() and len(value) < 16):
        raise UserError("--try", f"{cut(text)!r}", f"{name}=NUMBER, a whole one")
    variables = {variable: form.format(int(value) if is_number else value)}
    if name == "concurrency" and int(value) > int(DEFAULTS["pool"]):  # of Zarr over s3fs
        variables |= read_setting(f"pool={value}")
    return variables


def refuse_default(text: str, environment: Mapping[str, str]) -> None:
    """Refuse to try what a library does anyway, unless a variable of the user's says otherwise."""
    name, _, value = text.partition("=")
    if DEFAULTS.get(name) == value.lstrip("0") and not {*environment} & {*os.environ}:
        raise UserError("--try", f"{cut(text)!r} is the default", f"another value of {name}")


def claim(out: Path) -> None:
    """Make the folder of a trace, or refuse one that holds something else."""
    from wire.trace import stored

    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        foreign_names = stored.find_foreign_names(out)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise convert_system_error(error).within("--out") from error
    if foreign_names:
        raise UserError(
            "--out",
            f"{cut(str(out))} holds {cut(foreign_names[0])}",
            "a new folder, or that of a trace",
        )


def measure(
    command: Sequence[str], first: Run, report: Report, setting: str, environment: Mapping[str, str]
) -> list[str]:
    """Run a program without and with a setting in pairs, A B B A, and say what it gains.

    The first run has been made already. Pairs go on for two minutes, up to six of them.
    """
    from wire.trace import findings, launch

    if reason := findings.explain_no_effect(first, setting):
        return [reason]
    began_s, before = time.monotonic(), [first]
    after: list[Run] = []
    while len(after) < _LEAST_PAIRS or (
        len(after) < _MOST_PAIRS and (time.monotonic() - began_s) * (1 + 1 / len(after)) < _TRY_S
    ):
        n = len(after)
        for runs, variables in (
            ((after, environment), (before, {})) if n % 2 else ((before, {}), (after, environment))
        ):
            if len(runs) == n:
                runs.append(launch.run(command, environment=variables, is_silent=True))
    ratios = [
        without.wall_s / with_it.wall_s for without, with_it in zip(before, after, strict=True)
    ]
    centre, low, high = compute_interval(ratios)
    # at all of its lines, and of all of the program as the pairs are
    saved_s = sum(finding.saved_s for finding in report.findings if finding.setting == setting)
    predicted = report.predicted_s / max(report.predicted_s - saved_s, 1e-3)
    gain = f", predicted {predicted:.2g}x" if saved_s else ""
    lines = [
        f"{setting}: {centre:.2f}x faster ({low:.2f}x to {high:.2f}x, {len(ratios)} pairs){gain};"
        f" {len(first.rows)} requests without, {len(after[0].rows)} with it"
    ]
    if {run.exit_code for run in after} - {first.exit_code}:
        codes = ", ".join(sorted({str(run.exit_code) for run in after}))
        lines.append(f"with {setting} the exit code was {codes}, without it {first.exit_code}")
    # the first run printed for its reader
    digests, new_digests = ({run.output_digest for run in runs} for runs in (before[1:], after))
    if len(digests) > 1 or len(new_digests) > 1:
        lines.append("the output differs from run to run, so it cannot be compared")
    elif new_digests != digests:
        lines.append(f"the output is another with {setting}")
    else:
        lines.append("the output is the same")
    if _count_requests(first) == _count_requests(after[0]):
        lines.append(
            f"the requests are the same: the code passes a value of its own, or its client does not read {shlex.join(environment)}, unless it changes only how many are in flight"
        )
    return lines


_QUANTILES_OF_T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706)
"""97.5 % quantiles of Student's t with 1 to 5 degrees of freedom: two to six pairs."""


def compute_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Compute the median of ratios that were measured in pairs, and its 95 % interval.

    The interval is that of Student's t for the mean logarithm, of two to six pairs.

    Examples
    --------
    >>> [round(value, 2) for value in compute_interval([2.0, 2.0, 2.0])]
    [2.0, 2.0, 2.0]
    """
    logs = [math.log(ratio) for ratio in ratios]
    half = _QUANTILES_OF_T[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs))
    mean = statistics.fmean(logs)
    return math.exp(statistics.median(logs)), math.exp(mean - half), math.exp(mean + half)


def _count_requests(run: Run) -> Counter[tuple[object, ...]]:
    return Counter(
        (row.host, row.method, row.key, row.range_start, row.range_nbytes) for row in run.rows
    )
