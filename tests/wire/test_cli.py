"""The one command: what pages type is there, names are no way out, and it ends with a line."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from helpers.paths import ROOT
from runner import build, cases
from tests.refusals import refused
from wire.cli import _COMMANDS, _GROUPS, end_well, main
from wire.errors import UserError, say
from wire.files import check_file, check_name, replace_file

BLOCK = re.compile(r"^ *```(?:sh|console|bash)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def find_commands() -> list[str]:
    """List what code blocks of the pages type after `wire`; a line may go on in the next."""
    found = set()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("pages/*.md")]:
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
        if group.invoke_without_command:  # what follows `--` is somebody's program
            break
        found = group.get_command(context, arguments.pop(0))
        assert found is not None, line
        group, context = found, click.Context(found, parent=context)
    group.make_parser(context).parse_args(arguments)


def test_every_command_of_the_table_is_there() -> None:
    """Each is imported, and has a help text of its own."""
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None and command.help, name


def run_script(*lines: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own."""
    command = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_help_imports_no_command() -> None:
    """The list of commands is told without any of them, and without NumPy."""
    told = run_script(
        "import sys; from wire.cli import main",
        "main(['--help'], standalone_mode=False)",
        "print(sorted({one.partition('.')[0] for one in sys.modules} & {'numpy', 'pandas', 'pydantic', 'yaml', 'advisors'}))",
    ).stdout
    assert "run-all" in told and told.endswith("[]\n")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("seed", 2), "error: seed: 2"),
        (UserError("a", "\x1b[31mb"), r"error: a: \\x1b\[31mb"),
        (OSError(errno.ENOSPC, "No space left", "a\x1b[31mb"), r"error: a\\x1b\[31mb: no space is left; allowed"),
        (ModuleNotFoundError("no", name="zarr"), r"error: wire .*: zarr is not installed; allowed: after pip"),
        (OSError(errno.EBADF, "at redis://u:secret@host"), r"(?s)Traceback.*redis://\*\*\*@host"),
    ],
)  # fmt: skip
def test_every_failure_ends_with_a_line(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, line: str
) -> None:
    """Only a defect has a traceback, and that shows no credential."""
    monkeypatch.setattr(signal, "getsignal", lambda _number: None)  # pytest has its own
    monkeypatch.delenv("MAKELEVEL", raising=False)
    with pytest.raises(SystemExit) as ended, end_well():
        raise error
    assert re.match(line, str(ended.value))
    assert str(ended.value).startswith("Traceback") or "\n" not in str(ended.value)


SWALLOWED = """
import os, signal, time, weakref; from wire import cli, interrupts
class Held: pass
with cli.end_well():
    held = Held()
    kept = weakref.ref(held, lambda _: os.kill(os.getpid(), signal.{first}))
    del held  # what a callback raises goes no further
    print('went on', flush=True)
    {then}
    print('published')
"""


PUBLISHED = "from pathlib import Path; from wire.files import replace_file; replace_file(Path('out.txt'), '')"


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("then", ["interrupts.check_interrupt()", PUBLISHED])
def test_an_interrupt_that_was_swallowed_is_not_lost(first: str, then: str, tmp_path: Path) -> None:
    """What asks for it ends, and no file is published."""
    out = tmp_path / "out.txt"
    done = run_script(SWALLOWED.format(first=first, then=then.replace("out.txt", str(out))))
    assert not out.exists()
    assert done.returncode == 128 + signal.Signals[first] and done.stdout == "went on\n"
    assert done.stderr.splitlines()[-1] == "interrupted"


def test_only_what_goes_on_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After an interrupt, rows of `wire run` are kept, and of other commands nothing was measured."""
    monkeypatch.setattr(signal, "getsignal", lambda _number: None)  # pytest has its own
    for name, told in (
        ("run", "interrupted; what was measured is kept"),
        ("hdf5", "interrupted\n"),
    ):
        monkeypatch.setattr(sys, "argv", ["wire", name])
        with pytest.raises(SystemExit, match="^130$"), end_well():
            raise KeyboardInterrupt
        assert capsys.readouterr().err.startswith(told)


def test_what_is_printed_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither escape codes of a name nor a password of an address reach it."""
    say("one\x1b]0;title\x07\ntwo at s3://key:PASSWORD@bucket")
    assert capsys.readouterr().out == "one\\x1b]0;title\\x07\ntwo at s3://***@bucket\n"
    others = [path for name in ("src", "helpers", "studies", "runner") for path in (ROOT / name).rglob("*.py")]  # fmt: skip
    assert not [path for path in others if "click.echo" in path.read_text()], "all print by `say`"


WAITS = "import time; from wire.cli import end_well\nwith end_well():\n    print('on', flush=True); time.sleep(60)"
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_what_is_started_ends_in_order(number: int) -> None:
    """With make, which is killed and can tell its children nothing; behind a shell by Ctrl-C, which that ignores."""
    is_make = number == signal.SIGKILL
    with subprocess.Popen(
        [sys.executable, "-c", *([PARENT, WAITS] if is_make else [WAITS])],
        cwd=ROOT,
        env={**os.environ, "MAKELEVEL": "1"} if is_make else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=None if is_make else lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as running:
        assert running.stdout is not None and running.stdout.readline() == "on\n"
        running.send_signal(number)
        _, said = running.communicate(timeout=30)  # whose pipe a child holds as long as it lives
    assert said.startswith("interrupted")


def test_a_child_that_starts_after_a_signal_hears_it_too() -> None:
    """Whatever clears up may start children, and the next signal still means something to them."""
    done = run_script(
        "import os, signal, subprocess, sys; from wire.cli import end_well",
        "ask = 'import signal; print(signal.getsignal(signal.SIGTERM).name)'",
        "with end_well():",
        "    try: os.kill(os.getpid(), signal.SIGTERM)",
        "    except KeyboardInterrupt:",
        "        print('interrupted', flush=True)",
        "        os.kill(os.getpid(), signal.SIGTERM)",  # make and its group send it twice
        "        print('went on', flush=True)",
        "        subprocess.run([sys.executable, '-c', ask])",
    )
    assert done.stdout.split("\n")[:3] == ["interrupted", "went on", "SIG_DFL"]


OUT = ["..", "../laptop", "laptop/../laptop", "/tmp", "", ".", "laptop/", ".hidden", "a b", "a\nb", "<b>", "\x1b[31m", "a" * 300]  # fmt: skip


@pytest.mark.parametrize("site", OUT)
def test_a_site_is_a_folder_and_no_way_out(tmp_path: Path, site: str) -> None:
    """No name of a site leads out of the folders of parameters and results; one line says so."""
    for folder in ("parameters/laptop/study", "laptop/study"):
        (tmp_path / folder).mkdir(parents=True)  # the second is what ../laptop would find
        (tmp_path / folder / "one.yaml").write_text("seed: 2\n")
    for act in (
        lambda: cases.find_cases(site, tmp_path),
        lambda: cases.find_case("study/one", site, tmp_path),
        lambda: build.publish(site, tmp_path),
        lambda: build.stage(site, root=tmp_path),
    ):
        with refused("SITE", allowed="."):
            act()
    assert {path.name for path in tmp_path.iterdir()} == {"laptop", "parameters"}
    assert check_name("my-site_2.b") == "my-site_2.b"


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """Reading one would never end."""
    os.mkfifo(tmp_path / "pipe")
    with refused(".*/pipe", "^no file$", "^a regular file$"):
        check_file(tmp_path / "pipe")
    assert check_file(tmp_path / "nothing yet") and check_file(tmp_path / ("a" * 300))


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """Nothing is left beside it."""
    path = tmp_path / "a" / "one.csv"
    for text in ("old", "new"):
        replace_file(path, text)
    assert path.read_text() == "new" and [*path.parent.iterdir()] == [path]


def test_every_command_stands_in_one_group_of_the_help() -> None:
    grouped = [name for names in _GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(_COMMANDS)
