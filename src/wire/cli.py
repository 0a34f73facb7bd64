"""The console command ``wire``: each of its commands is imported when it is called, none for help."""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from wire.errors import (
    UserError,
    cut,
    describe_refusal,
    describe_system_error,
    printable,
    redact,
    say,
)
from wire.interrupts import find_signal, interrupt

_COMMANDS = {  # where each is, the extra that brings its packages, and what it does
    "trace": ("wire.trace.cli", "trace", "Find the lines of a program that wait, and what for."),
    "decide": ("wire.decide.cli", "decide", "Choose chunks, format and settings for a dataset."),
    "hdf5": ("wire.hdf5.cli", "hdf5", "Find the fastest way to read an HDF5 or netCDF-4 file."),
    "costs": ("wire.costs.cli", "costs", "Price a month of a tile service and its caches."),
    "fit": ("wire.scaling:fit", "scaling", "Predict from a few runs how far more workers help."),
    "calibrate": ("wire.calibrate.cli", "calibrate", "Measure your store, as a network to predict for."),
    "run": ("runner.cli", "book", "Measure one case."),
    "run-all": ("runner.cli", "book", "Measure every case, and build the book."),
    "ledger": ("wire.ledger.cli", "ledger", "Compare the requests of a client with its last release."),
    "compare": ("runner.cli", "book", "Compare two records of a case."),
    "submit": ("runner.cli", "book", "Collect your records for a pull request."),
    "book": ("runner.cli", "book", "Build the book from existing results."),
    "server": ("runner.cli", "book", "Find the S3 server, or build it once."),
    "publish": ("runner.cli", "book", "Make your results those that the book shows."),
    "derive": ("runner.cli", "book", "Write schemas, verdicts and ratios from models and records."),
}  # fmt: skip

_GROUPS = {
    "Ask": ("trace", "decide", "hdf5", "costs", "fit", "calibrate"),
    "Measure": ("run", "run-all", "ledger", "compare", "submit"),
    "Maintain": ("book", "server", "publish", "derive"),
}

_EXAMPLES = [
    ("wire trace python my.py", "What does my program wait for?"),
    ("wire decide s3://bucket/data.zarr", "Should I rechunk it?"),
    ("wire run formats/in-region", "Measure one case of the book."),
]


class _Commands(click.Group):
    """Commands of the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List their names."""
        return [*_COMMANDS]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List what they do by group, from the table."""
        for group, names in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name, _COMMANDS[name][2]) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples line by line."""
        with formatter.section("Examples"):
            formatter.write_dl(_EXAMPLES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or refuse one whose packages are not installed."""
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        try:
            imported = importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise needs(cmd_name, str(error.name)) from error
        command: click.Command = getattr(imported, name or cmd_name.replace("-", "_"))
        return command


_OF_A_CHECKOUT = ("helpers", "runner", "studies")  # packages that no wheel brings


def needs(name: str, module: str) -> UserError:
    """Say which extra brings the package that a command lacks, or that it takes a checkout."""
    if module.partition(".")[0] in _OF_A_CHECKOUT:
        return UserError(
            f"wire {name}", "not in a wheel", "in a clone of the repository, after make env"
        )
    extra = _COMMANDS[name][1] if name in _COMMANDS else "book"
    return UserError(
        f"wire {name}",
        f"{module} is not installed",
        f"after pip install 'arrays-over-the-wire[{extra}]'",
    )


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="arrays-over-the-wire")
def main() -> None:
    """Find out what makes reading big arrays from object storage slow, and what fixes it."""


def run() -> None:
    """Run a command; what the user has to know of a failure is its last line."""
    with end_well():
        main(standalone_mode=False)


@contextmanager
def end_well() -> Iterator[None]:
    """End with a line instead of a traceback, and on a signal only after the children have."""
    # a shell that starts it behind itself has it ignore Ctrl-C
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN):
        signal.signal(signal.SIGINT, interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # else nohup, or another's
            signal.signal(number, interrupt)
    try:
        if "MAKELEVEL" in os.environ and sys.platform == "linux":
            # where make is killed it can tell its children nothing: the system does
            ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        yield
    except UserError as error:
        _end(f"error: {error}")
    except click.ClickException as error:
        say(error.format_message(), err=True)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        hint = "; what was measured is kept, and the same command goes on from there"
        say("interrupted" + hint * (sys.argv[1:2] in (["run"], ["run-all"])), err=True)
        sys.exit(128 + (find_signal() or signal.SIGINT))  # as shells have it
    except ModuleNotFoundError as error:
        _end(f"error: {needs(' '.join(sys.argv[1:2]), str(error.name))}")
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NOT_WRITTEN:
            _end(f"error: {describe_refusal(error)}")
        if isinstance(error, OSError) and error.errno in _NO_SUCH_PLACE and error.filename:
            allowed = "a path that is as the command needs it"
            refusal = UserError(cut(str(error.filename)), describe_system_error(error), allowed)
            _end(f"error: {refusal}")
        _end(traceback.format_exc().rstrip())  # of a defect: the whole


def _end(text: str) -> NoReturn:
    """End with what is said last."""
    sys.exit(printable(redact(text)))


# of a disk that is full, or of a checkout that may only be read
_NOT_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}
# of a path that somebody gave
_NO_SUCH_PLACE = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG}  # fmt: skip
