"""A repacked copy, made by `h5repack`, which appears where `h5diff` finds it equal to the file."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

import h5py
import hdf5plugin

from advisors.hdf5.files import (
    Source,
    is_near,
    list_other_files,
    name_source,
    open_hdf5,
    open_source,
    walk,
)
from advisors.hdf5.repacked import Repack
from helpers.cli import check_interrupt
from helpers.errors import UserError, cut, show
from helpers.objectstore.processes import remove_left, start_child

TOOLS = "Debian: apt install hdf5-tools; elsewhere: conda install -c conda-forge hdf5"
"""Where `h5repack` and `h5diff` are had."""

_MINE = (
    f".repack-{socket.gethostname()}-"  # names of what is made, before the number of its process
)

_MOST_S = 1e6  # of a tool


def apply_repack(source: Source, repack: Repack, out: Path) -> str:
    """Write a repacked copy, and compare it with the file; the copy appears where it is equal.

    Whatever ends this early, a signal too, ends the tool that runs and leaves nothing.
    """
    check_out(source, out)
    name = name_source(source)
    with (
        open_source(source) as file,
        tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{_MINE}{os.getpid()}-") as folder,
    ):
        path = Path(name)
        if not is_near(source):
            path = Path(folder) / "source.h5"
            with path.open("wb") as fetched:
                shutil.copyfileobj(file, fetched, 8 * 2**20)
        check_others(path, name, Path(name).parent if is_near(source) else None, out.parent)
        made = Path(f"{folder}.h5")  # what it leads to is found from where it lies
        try:
            _make_equal(path, name, repack, made, Path(folder) / "said")
            publish(made, out)
        finally:
            made.unlink(missing_ok=True)
    return f"{out}: h5diff finds it equal"


# what h5diff says of datasets without values, and of those whose values it compares all the same
_HARMLESS = ("is an empty dataset", "is a virtual dataset")


def _make_equal(path: Path, name: str, repack: Repack, made: Path, log: Path) -> None:
    code, said = _run(["h5repack", *repack.list_arguments(), str(path), str(made)], log)
    if code or not made.exists():
        raise UserError(f"apply: h5repack refuses {name} ({cut(said)}); allowed: what it copies")
    code, said = _run(["h5diff", "-c", str(path), str(made)], log)
    differing = [one for one in said.splitlines() if one and not one.endswith(_HARMLESS)]
    if code or differing:
        told = cut(" ".join(differing))
        raise UserError(f"apply: h5diff finds a difference ({told}); allowed: an equal copy")


def _run(command: Sequence[str], log: Path) -> tuple[int, str]:
    """Run a tool to its end; it does not outlive whatever ends this, a kill too."""
    plugins = os.pathsep.join([os.environ.get("HDF5_PLUGIN_PATH", ""), hdf5plugin.PLUGIN_PATH])
    env = {**os.environ, "HDF5_PLUGIN_PATH": plugins.strip(os.pathsep)}
    with start_child(command, env=env, log=log) as child:
        code = child.wait(timeout_s=_MOST_S)
    return code, log.read_text(errors="replace")


def publish(made: Path, out: Path) -> None:
    """Give a file its name, unless another has it by now, or an interrupt was lost."""
    check_interrupt()
    try:
        out.hardlink_to(made)
    except FileExistsError as error:
        raise UserError(f"apply: {out} is there by now; allowed: a file that is not") from error
    except OSError:  # a system of files without hard links
        made.rename(out)


def check_out(source: Source, out: Path) -> None:
    """Refuse an output that is the input, or is there, or has no folder that can be written to."""
    if is_near(source) and out.resolve() == Path(name_source(source)).resolve():
        raise UserError(
            f"apply: {out} is the input; allowed: another file, the input is not touched"
        )
    if out.exists() or out.is_symlink():
        raise UserError(f"apply: {out} is there already; allowed: a file that is not")
    if not out.parent.is_dir():
        raise UserError(f"apply: no folder {out.parent}; allowed: a file in a folder that is there")
    for tool in ("h5repack", "h5diff"):
        if shutil.which(tool) is None:
            raise UserError(
                f"apply: {tool} is not on the path; allowed: after its install ({TOOLS})"
            )
    try:  # permissions alone do not tell: a system of files may be read-only, or no such system
        remove_left(out.parent, _MINE)
        tempfile.TemporaryDirectory(dir=out.parent, prefix=".repack-").cleanup()
    except OSError as error:
        raise UserError(
            f"apply: {out.parent} cannot be written to ({error.strerror}); allowed: a folder that can"
        ) from error


def check_others(path: Path, name: str, folder: Path | None, out_folder: Path) -> None:
    """Refuse a file that leads to others by relative names, unless the copy lies in its folder.

    From another folder they lead nowhere, or to another file, and h5diff compares but the names.
    A dataset whose values lie in another file is refused everywhere: a copy would write to it.
    `folder` is where the file is, None where it is far away.
    """
    asked = list[tuple[str, str]]()  # what leads to another file, and its name
    with open_hdf5(path, name) as file:
        for at, found in walk(file):
            if isinstance(found, h5py.h5g.GroupID):
                links = ((key, found.links.get_info(key)) for key in found)
                external = [key for key, link in links if link.type == h5py.h5l.TYPE_EXTERNAL]
                asked += [(at, os.fsdecode(found.links.get_val(key)[0])) for key in external]
            elif isinstance(found, h5py.h5d.DatasetID):
                dataset = h5py.Dataset(found)
                outside = list_other_files(dataset)
                if dataset.external:
                    raise UserError(
                        f"file: {name}: {show(at)} has its values in another file,"
                        f" {show(outside[0])}, which a copy would write to; allowed: a file that"
                        " holds its values itself"
                    )
                asked += [(at, other) for other in outside]
    home = out_folder.resolve()
    is_home = folder is not None and {folder.resolve(), (folder / Path(name).name).resolve().parent} == {home}  # fmt: skip
    for at, other in asked:
        if not Path(other).is_absolute() and not is_home:
            raise UserError(
                f"file: {name}: {show(at or '/')} leads to {show(other)}, which a copy in another"
                " folder would not find; allowed: a copy in the folder of the file"
            )
