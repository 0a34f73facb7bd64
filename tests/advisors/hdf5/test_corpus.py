"""Every command has an answer for ordinary files, and one line at most for hostile ones."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner, Result

from advisors.hdf5 import advice
from advisors.hdf5.advice import Advised, advise
from advisors.hdf5.cli import hdf5
from advisors.hdf5.comparison import check_equal
from advisors.hdf5.inspection import inspect_file
from advisors.hdf5.repack import Repack, find_command_tool, write_command
from helpers.errors import UserError
from helpers.netem.profiles import get_profile
from tests.advisors.hdf5 import corpus

COMMANDS = {
    "apply": ["--apply", "OUT"],
    "rechunk": ["--json", "--profile", "wide-area", "--apply", "OUT", "--repack", "paged and rechunked, 4 MiB pages"],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep files, so that each is made once."""
    return tmp_path_factory.mktemp("corpus")


def make(name: str, folder: Path) -> Path:
    """Make a file of the corpus, if it is not there."""
    path = folder / f"{name.replace('/', '-')}.h5"
    if not path.exists():
        corpus.ALL[name](path)
    return path


def run(path: Path, command: str, out: Path) -> Result:
    """Run a command on a file."""
    options = [str(out) if option == "OUT" else option for option in COMMANDS[command]]
    return CliRunner().invoke(hdf5, ["advise", str(path), *options])


def test_corpus_is_large() -> None:
    """At least sixty files, of which many are hostile."""
    assert len(corpus.ALL) >= 60 and len(corpus.HOSTILE) >= 30


@pytest.mark.parametrize(
    ("name", "command"),
    [(n, c) for n in corpus.ALL for c in COMMANDS if c != "rechunk" or n in corpus.ORDINARY],
)
def test_every_file_ends_in_an_answer_or_a_line(
    name: str, command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback on any file; an ordinary one is answered, as text and as JSON, and copied."""
    path, out, answers = make(name, folder), tmp_path / "out.h5", list[Advised]()

    def keep(*given: Any, **options: Any) -> Advised:
        answers.append(advise(*given, **options))
        return answers[-1]

    monkeypatch.setattr(advice, "advise", keep)
    done = run(path, command, out)
    for answer in answers:  # whatever became of the copy
        assert json.loads(json.dumps(answer.to_mapping()))["profile"] == answer.profile
    is_none = str(done.exception).startswith("repack: ")
    if command == "rechunk" and is_none:
        assert isinstance(done.exception, UserError)
    elif done.exception is None:
        assert out.exists() and answers
        if command == "rechunk":
            assert json.loads(done.stdout)["profile"] == "wide-area"
    else:
        assert name in corpus.HOSTILE, done.exception
        check_line(done.exception, path)
        assert not out.exists()
    assert [left.name for left in tmp_path.iterdir() if left != out] == []


def check_line(error: BaseException, path: Path) -> None:
    """One line, which names the file or what of it cannot be read, and what is allowed."""
    assert isinstance(error, UserError), error
    said = str(error)
    assert "\n" not in said and "; allowed: " in said
    assert path.name in said or said.startswith(("variable: ", "apply: the copy differs"))


@pytest.mark.skipif(not shutil.which("h5repack"), reason="h5repack is not on PATH")
def test_what_h5repack_cannot_do_is_left_to_h5py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that fails, or whose copy differs, is named beside the one that did it."""
    path, tools = tmp_path / "plain.h5", tmp_path / "bin"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.arange(900.0), chunks=(100,))
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f.create_dataset("x", data=np.zeros(900), chunks=(100,))
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    for number, (script, told) in enumerate(
        (
            ("echo too new >&2; exit 1", "too new"),
            (
                f'for out; do :; done; /bin/cp {tmp_path / "other.h5"} "$out"',
                "differs from the input at x",
            ),
        )
    ):
        (tools / "h5repack").write_text(f"#!/bin/sh\n{script}\n")
        (tools / "h5repack").chmod(0o755)
        done = run(path, "apply", tmp_path / f"{number}.h5")
        assert done.exception is None
        assert "made by h5py (not by h5repack: " in done.output and told in done.output


@pytest.mark.skipif(not shutil.which("h5repack"), reason="h5repack is not on PATH")
@pytest.mark.parametrize("name", corpus.ORDINARY)
def test_a_printed_command_does_what_it_says(name: str, folder: Path, tmp_path: Path) -> None:
    """h5repack is printed where its copy is equal; elsewhere our own command, with the label."""
    path = make(name, folder)
    for one in advise(str(path), get_profile("in-region")).advice:
        if one.repack is None:
            continue
        argv = shlex.split(one.command)
        if argv[0] == "wire":
            assert argv[1:] == [
                "hdf5", "advise", str(path), "--apply", "OUT", "--repack", one.label
            ]  # fmt: skip
            continue
        out = tmp_path / f"{one.label}.h5"
        assert argv[0] == "h5repack" and argv[-2:] == [str(path), "OUT"]
        done = subprocess.run([*argv[:-1], str(out)], capture_output=True, check=False)
        assert done.returncode == 0, (one.command, done.stderr)
        rechunked = {variable for variable, _ in one.repack.chunk_shapes}
        assert "are equal" in check_equal(path, name, out, rechunked=rechunked)


@pytest.mark.skipif(not shutil.which("h5repack"), reason="h5repack is not on PATH")
def test_a_command_that_would_fail_is_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for an object in a bucket, nor for a file that this version of the tools cannot read."""
    path = tmp_path / "plain.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.arange(900.0), chunks=(100,))
        f.create_dataset("a,b", data=np.arange(900.0), chunks=(100,))
    with path.open("rb") as file:
        report = inspect_file(file, str(path))
    assert find_command_tool(report) == "h5repack"
    assert find_command_tool(replace(report, name="s3://bucket/plain.h5")) == "h5py"
    repack = Repack(4 * 2**20, 0, (("a,b", (900,)),))
    assert write_command("plain.h5", repack, "h5repack").startswith(
        "wire hdf5 advise plain.h5 --apply"
    )
    (tmp_path / "h5dump").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "h5dump").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_command_tool(report) == "h5py"


def test_answer_names_its_network(folder: Path) -> None:
    """Predicted is on the network as it is, unless the scale model is asked for."""
    path = str(make("space-fsm", folder))
    for options, told in (
        (
            (),
            "in-region at full scale: 30 ms to the first byte (95th percentile 100 ms), 90 MB/s a stream",
        ),
        (("--scaled",), "in-region as a scale model, with bandwidths divided by 2.5: 30 ms"),
        (("--profile", "loopback"), "loopback at full scale: no limits"),
    ):
        done = CliRunner().invoke(hdf5, ["advise", path, *options])
        assert told in done.output
        said = json.loads(CliRunner().invoke(hdf5, ["advise", path, "--json", *options]).output)
        assert said["network"].startswith(told)


def test_page_buffer_holds_a_page_or_is_named(folder: Path) -> None:
    """Pages above 16 MiB are answered; a buffer that is too small is refused by its option."""
    path = str(make(f"pages-of-{32 * 2**20}", folder))
    assert CliRunner().invoke(hdf5, ["advise", path]).exception is None
    error = CliRunner().invoke(hdf5, ["advise", path, "--page-buffer", "4"]).exception
    assert str(error).startswith(
        "page-buffer: 4 MiB; allowed: 0, or at least a page of the file, 32"
    )
    plain = str(make("space-fsm", folder))
    done = CliRunner().invoke(hdf5, ["advise", plain, "--page-buffer", "4"])
    assert "4 MiB pages" in done.output and "8 MiB pages" not in done.output
