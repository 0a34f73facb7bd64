"""A copy appears under its name when h5diff finds it equal, and nothing is left of one that does not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import obstore
import pytest
from click.testing import CliRunner

from tests.refusals import refused
from tests.stores import make_location
from wire.bed.testbed import Server
from wire.children import CHECK_S
from wire.cli import main
from wire.hdf5 import repacked
from wire.hdf5.prediction import MIB
from wire.hdf5.repacked import TOOLS, Repack, apply_repack, check_out

PAGED = Repack(65536)

needs_tools = pytest.mark.skipif(
    not (shutil.which("h5repack") and shutil.which("h5diff")),
    reason=f"h5repack and h5diff are not on the path ({TOOLS})",
)
"""Skips a test where a tool is missing."""


def make(path: Path, **others: Any) -> Path:
    """Make a file with a variable, and whatever else is given."""
    with h5py.File(path, "w") as file:
        values = np.random.default_rng(0).normal(size=(40, 5000))
        file.create_dataset("g/x", data=values, chunks=(1, 500), compression=1).attrs["units"] = "m"
        for name, value in others.items():
            file[name] = value
    return path


def list_left(folder: Path) -> set[str]:
    """Name what is in a folder, hidden or not."""
    return {one.name for one in folder.iterdir()}


@needs_tools
def test_command_writes_a_copy(tmp_path: Path) -> None:
    """It has the layout that was asked for and the same values; JSON stays JSON; the input is only read."""
    path, out = make(tmp_path / "a.h5"), tmp_path / "out.h5"
    before, label = path.read_bytes(), "paged and rechunked, 4 MiB pages"
    arguments = [str(path), "--apply", str(out), "--repack", label, "--json"]
    done = CliRunner().invoke(main, ["hdf5", "advise", *arguments])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["report"]["page_nbytes"] == 0
    assert done.stderr.startswith(f"{label}: {out}: h5diff finds it equal")
    with h5py.File(path) as old, h5py.File(out) as new:
        assert new.id.get_create_plist().get_file_space_page_size() == 4 * MIB
        assert new["g/x"].chunks > old["g/x"].chunks
        assert (new["g/x"][:] == old["g/x"][:]).all() and new["g/x"].attrs["units"] == "m"
    assert path.read_bytes() == before and list_left(tmp_path) == {"a.h5", "out.h5"}


def test_a_copy_takes_what_is_stored_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that were never stored take the tools no end of time; links that are too many are not looked at."""
    monkeypatch.setattr(repacked, "check_out", lambda _: None)  # the tools need not be here
    for chunks in ((1, 1), (1000, 1000), None):
        path = tmp_path / "sparse.h5"
        with h5py.File(path, "w") as file:
            made = file.create_dataset("x", shape=(10**6, 10**6), chunks=chunks, dtype="f4")
            if chunks:
                made[0, 0] = 1
        assert path.stat().st_size < 10**7
        with refused("file", "/x.* 4 TB that were never stored", "^at most"):
            apply_repack(str(path), PAGED, tmp_path / "out.h5")
    monkeypatch.setattr("wire.hdf5.files.MAX_LINKS", 10)
    with h5py.File(tmp_path / "links.h5", "w") as file:
        for i in range(11):
            file[f"g/{i}"] = h5py.SoftLink("/x")
    with refused("file", "more than 10 links", "groups of fewer"):
        apply_repack(str(tmp_path / "links.h5"), PAGED, tmp_path / "out.h5")


@needs_tools
def test_a_file_in_a_bucket_is_fetched_and_copied(server: Server, tmp_path: Path) -> None:
    """The copy is on disk, and what was fetched is gone."""
    near, path = make_location(server, "apply"), make(tmp_path / "a.h5")
    obstore.put(near.obstore(), path.name, path)
    apply_repack(near / path.name, PAGED, tmp_path / "out.h5")
    assert list_left(tmp_path) == {"a.h5", "out.h5"}


LIES = {
    "value": lambda file: file["g/x"].__setitem__((3, 3), 1e9),
    "dataset missing": lambda file: file.__delitem__("g/x"),
    "attribute": lambda file: file["g/x"].attrs.modify("units", "k"),
    # of which h5diff says that it cannot be compared, and ends with 0
    "type of an attribute": lambda file: file["g/x"].attrs.create("units", np.bytes_("m")),
}


@needs_tools
@pytest.mark.parametrize("lie", LIES)
def test_a_copy_that_differs_does_not_appear(
    lie: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever h5repack did: the copy is compared, and what cannot be compared is not equal."""
    path, run = make(tmp_path / "a.h5"), repacked._run

    def run_and_lie(command: list[str], log: Path) -> tuple[int, str]:
        found = run(command, log)
        if command[0] == "h5repack":
            with h5py.File(command[-1], "r+") as file:
                LIES[lie](file)
        return found

    monkeypatch.setattr(repacked, "_run", run_and_lie)
    with refused("apply", "^h5diff finds a difference ", "."):
        apply_repack(str(path), PAGED, tmp_path / "out.h5")
    assert list_left(tmp_path) == {"a.h5"}


def start_apply(
    path: Path, out: Path, script: str = "from wire.cli import run; run()"
) -> subprocess.Popen[str]:
    """Start the command that makes a copy."""
    given = ["hdf5", "advise", str(path), "--apply", str(out), "--repack", "paged, 4 MiB pages"]
    return subprocess.Popen(
        [sys.executable, "-c", script, *given],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


SLOW_TOOL = """#!/bin/sh
echo $$ > {folder}/child
exec sleep 60
"""


@pytest.mark.parametrize("tool", ["h5repack", "h5diff"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_tool_and_leaves_nothing(
    tool: str, number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, or a batch system that ends the job, while a tool runs: it ends too, and no file is left."""
    path, bin_folder, home = make(tmp_path / "a.h5"), tmp_path / "bin", tmp_path / "home"
    bin_folder.mkdir()
    home.mkdir()
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    for name in ("h5repack", "h5diff"):
        text = SLOW_TOOL.format(folder=tmp_path)
        if name != tool:
            text = '#!/bin/sh\nfor last; do :; done; : > "$last"\n'
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(0o755)
    child = start_apply(path, home / "out.h5")
    started = tmp_path / "child"
    for _ in range(600):
        if started.exists() and started.read_text().strip():
            break
        time.sleep(0.1)
    child.send_signal(number)
    said = child.communicate(timeout=30)[1]
    if number == signal.SIGKILL:  # after which the next that writes there removes what is left
        time.sleep(10 * CHECK_S)
        check_out(home / "out.h5")
    else:
        assert child.returncode == 128 + number and said.strip() == "interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
    assert list_left(home) == set()


LOSES = """
import os, signal, weakref
from wire.hdf5 import {module}
from wire.cli import run
do = {module}.{function}
class Held: pass
def lose(*given, **named):
    held = Held()
    kept = weakref.ref(held, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del held
    return do(*given, **named)
{module}.{function} = lose
run()
"""


@needs_tools
@pytest.mark.parametrize("place", ["inspection.inspect_variable", "repacked._make_equal"])
def test_an_interrupt_that_a_callback_loses_publishes_nothing(place: str, tmp_path: Path) -> None:
    """As h5py does while it reads metadata: the command ends, and no copy appears."""
    path = make(tmp_path / "a.h5")
    module, _, function = place.partition(".")
    script = LOSES.format(module=module, function=function)
    said = start_apply(path, tmp_path / "out.h5", script).communicate(timeout=60)
    assert said[1].splitlines()[-1] == "interrupted", said
    assert list_left(tmp_path) == {"a.h5"}


def test_without_the_tools_one_line_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the file is looked at."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with refused("apply", "h5repack", "hdf5-tools.*conda-forge"):
        apply_repack(str(tmp_path / "none.h5"), PAGED, tmp_path / "out.h5")


@needs_tools
def test_outputs_that_cannot_be_are_refused_first(tmp_path: Path) -> None:
    """What is there, as the input is, a link that leads nowhere, no folder, and one that nobody may write to."""
    path = make(tmp_path / "a.h5")
    (tmp_path / "dangling").symlink_to("nowhere")
    cases = [
        (path, "is there already"),
        (tmp_path / "dangling", "is there already"),
        (tmp_path / "no/out", "/no cannot be written to"),
    ]
    if Path("/proc").is_dir():  # where nobody may write, the superuser neither
        cases.append((Path("/proc/out.h5"), "/proc cannot be written to"))
    for out, said in cases:
        with refused("apply", said, "."):
            apply_repack(str(path), PAGED, out)


@needs_tools
@pytest.mark.parametrize(
    ("kind", "leads_to", "out", "is_kept"),
    [
        ("link", "gone.h5", "near.h5", True),  # it dangles from there too
        ("link", "b.h5", "other/far.h5", False),  # another file may have that name there
        ("link", "FOLDER/b.h5", "other/far.h5", True),
        ("link", "b.h5", "linked/far.h5", False),  # through a symbolic link to the file
        ("virtual", "b.h5", "other/far.h5", False),
        ("virtual", ".", "other/far.h5", True),
        ("external", "b.bin", "near.h5", False),  # a copy would write to it
    ],
)
def test_what_lies_in_other_files(
    kind: str, leads_to: str, out: str, *, is_kept: bool, tmp_path: Path
) -> None:
    """A copy in another folder would not find what has a relative name."""
    for name in ("other", "linked"):
        (tmp_path / name).mkdir()
    make(tmp_path / "b.h5")
    source, place = tmp_path / "a.h5", leads_to.replace("FOLDER", str(tmp_path))
    with h5py.File(make(source), "r+") as file:
        if kind == "link":
            file["away"] = h5py.ExternalLink(place, "/g/x")
        elif kind == "virtual":
            layout = h5py.VirtualLayout((40, 5000), "f8")
            layout[:] = h5py.VirtualSource(place, "g/x", (40, 5000))
            file.create_virtual_dataset("away", layout)
        else:
            file.create_dataset("away", (5,), "f8", external=[(place, 0, h5py.h5f.UNLIMITED)])
    if out.startswith("linked"):
        (tmp_path / "linked/a.h5").symlink_to(source)
        source = tmp_path / "linked/a.h5"
    if is_kept:
        assert "equal" in apply_repack(str(source), PAGED, tmp_path / out)
        return
    with refused("file", "'/away' leads to|'/' leads to", "."):
        apply_repack(str(source), PAGED, tmp_path / out)
    assert not (tmp_path / out).exists()
