"""The console command ``wire``: what installed packages bring to it, each imported when it is called."""

from __future__ import annotations

import errno
import logging
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

import click

from helpers.errors import UserError, tell_refusal
from helpers.redaction import redact

_GROUP = "wire"  # entry points, see pyproject.toml
# The extras of the advisors' commands; all else needs the book's.
_EXTRAS = {
    "calibrate": "calibrate",
    "chunks": "chunks",
    "costs": "costs",
    "decide": "decide",
    "fit": "scaling",
    "hdf5": "hdf5",
    "simulate": "scaling",
}


class _Commands(click.Group):
    """Commands found by their entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List what is installed, in alphabetical order."""
        return sorted({point.name for point in entry_points(group=_GROUP)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or stand in for one whose packages are not installed."""
        for point in entry_points(group=_GROUP, name=cmd_name):
            try:
                command: click.Command = point.load()
            except ModuleNotFoundError as error:
                return _absent(point.name, str(error.name))
            return command
        return None


def _absent(name: str, module: str) -> click.Command:
    """Make a command that says what it lacks."""

    def refuse(**_given: Any) -> None:
        raise needs(name, module)

    text = f"Not installed: pip install '{_find_extra(name)}'."
    accepts_all = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=refuse, help=text, context_settings=accepts_all)


def needs(name: str, module: str) -> UserError:
    """Say which extra brings the package that a command lacks."""
    return UserError(
        f"wire {name}: {module} is not installed; allowed: after pip install '{_find_extra(name)}'"
    )


def _find_extra(name: str) -> str:
    return f"arrays-over-the-wire[{_EXTRAS.get(name, 'book')}]"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="arrays-over-the-wire")
def main() -> None:
    """Measure how arrays are read from object storage, build the book, and ask its advisors."""


def run() -> None:
    """Run a command; what the user has to know of a failure is its last line."""
    with end_well():
        main(standalone_mode=False)


@contextmanager
def end_well() -> Iterator[None]:
    """End with a line instead of a traceback, and on a signal only after the children have."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # else nohup, or another's
            signal.signal(number, _interrupt)
    try:
        yield
    except UserError as error:
        sys.exit(f"error: {error}")
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        logging.getLogger("asyncio").disabled = True  # of tasks that this ends, which say so
        sys.exit("interrupted; what was measured is kept, and the same command goes on from there")
    except ModuleNotFoundError as error:
        sys.exit(f"error: {needs(' '.join(sys.argv[1:2]), str(error.name))}")
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NOT_WRITTEN:
            sys.exit(redact(f"error: {tell_refusal(error)}"))
        # of a defect: the whole traceback, but no credential of an address
        sys.exit(redact(traceback.format_exc().rstrip()))


# of a disk that is full, or of a checkout that may only be read
_NOT_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


def _interrupt(number: int, _frame: Any) -> None:
    """Do what Ctrl-C does, once."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def read_pairs(option: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE pairs; a value that is no number stays text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not (name and sign and value):
            raise UserError(f"--{option} {pair!r}; allowed is NAME=VALUE")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = value
    return found


def read_numbers(option: str, pairs: Sequence[str]) -> dict[str, float]:
    """Read NAME=NUMBER pairs."""
    found = read_pairs(option, pairs)
    for name, value in found.items():
        if not isinstance(value, float):
            raise UserError(f"--{option} {name}={value}; allowed is a number")
    return found
