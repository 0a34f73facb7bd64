"""Every command has an answer for ordinary files, and one line at most for hostile ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from advisors.hdf5.cli import hdf5
from helpers.errors import UserError
from tests.advisors.hdf5 import corpus

COMMANDS = {
    "advise": ["advise", "FILE", "--json", "--profile", "wide-area"],
    "check": ["check", "FILE", "--json"],
    "apply": ["advise", "FILE", "--apply", "OUT", "--repack", "paged, 4 MiB pages"],
    "rechunk": ["advise", "FILE", "--apply", "OUT", "--repack", "paged and rechunked, 4 MiB pages"],
}


def run(path: Path, command: str, out: Path) -> Result:
    """Run a command on a file."""
    places = {"FILE": str(path), "OUT": str(out)}
    return CliRunner().invoke(hdf5, [places.get(one, one) for one in COMMANDS[command]])


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in corpus.QUICK else pytest.mark.slow) for n in corpus.ALL],
)
def test_every_file_ends_in_an_answer_or_a_line(name: str, tmp_path: Path) -> None:
    """No traceback on any file; an ordinary one is answered and copied, and nothing is left behind."""
    path = tmp_path / "made.h5"
    corpus.ALL[name](path)
    for command in COMMANDS:
        out = tmp_path / f"{command}.h5"
        done = run(path, command, out)
        error = done.exception
        if isinstance(error, UserError):
            said = str(error)
            # pages are none behind a user block, and there may be no chunks to enlarge
            is_none = said.startswith("repack: ")
            assert is_none or name in corpus.HOSTILE, said
            assert "\n" not in said and "; allowed: " in said
            assert not out.exists()
        elif command == "check":
            assert isinstance(error, SystemExit | None)
            assert done.exit_code in ((0, 1) if name in corpus.ORDINARY else (0, 1, 2))
            if done.exit_code < 2:
                assert len(json.loads(done.output)["items"]) == 10
            else:
                assert done.output.startswith("error: ") and done.output.count("\n") == 1
        else:
            assert error is None, error
            assert out.exists() == ("OUT" in COMMANDS[command])
    assert not [left for left in tmp_path.iterdir() if left.name.startswith(".")]
