"""The one command: what pages and the README type is there, and help costs no library."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import click
import pytest

from helpers.cli import main
from helpers.paths import ROOT

BLOCK = re.compile(r"^ *```(?:sh|console|bash)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def find_commands() -> list[str]:
    """List what code blocks of the pages type after `wire`; a line may go on in the next."""
    found = set()
    for path in ROOT.glob("*.md"):
        for block in BLOCK.findall(path.read_text(encoding="utf-8")):
            lines = block.replace("\\\n", " ").splitlines()
            found |= {shlex.join(shlex.split(one, comments=True)) for one in lines if "wire" in one}
    typed = (one.removeprefix("'$' ").removeprefix(".venv/bin/") for one in found)
    return sorted(one for one in typed if one.startswith("wire "))


@pytest.mark.parametrize("line", find_commands())
def test_what_pages_type_is_there(line: str) -> None:
    """Each command that a page types is known, with every option; nothing of it is run."""
    group: click.Command = main
    name, *arguments = shlex.split(line)
    context = click.Context(group, info_name=name)
    while isinstance(group, click.Group):
        found = group.get_command(context, arguments.pop(0))
        assert found is not None, line
        group, context = found, click.Context(found, parent=context)
    group.make_parser(context).parse_args(arguments)


def test_pages_type_commands() -> None:
    """The search finds commands of the README, over two lines, and of a sub-command."""
    lines = find_commands()
    assert "wire costs --set requests_per_s=20" in lines
    assert any(line.startswith("wire hdf5 advise") for line in lines)
    assert any(line.startswith("wire decide") and "--access" in line for line in lines)


HELP = """
import sys
from helpers.cli import main
main(["--help"], standalone_mode=False)
heavy = {"botocore", "dask", "distributed", "h5py", "matplotlib", "obstore", "pandas", "pydantic"}
print(sorted((heavy | {"scipy", "xarray", "zarr"}) & {*sys.modules}))
"""


def test_help_imports_nothing_heavy() -> None:
    """The list of commands imports each of them, which brings no library of arrays, files or stores."""
    told = subprocess.run(
        [sys.executable, "-c", HELP], cwd=ROOT, capture_output=True, text=True, check=True
    )
    *_, heavy = told.stdout.splitlines()
    assert "run-all" in told.stdout
    assert heavy == "[]"
