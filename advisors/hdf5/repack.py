"""Repacking: what could help a file, what does it, and a copy that appears if it is equal."""

from __future__ import annotations

import math
import shlex
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import h5py

from advisors.hdf5.comparison import ask_tools, check_equal, check_sources
from advisors.hdf5.copying import copy_file
from advisors.hdf5.inspection import FileReport, Variable, inspect_file
from advisors.hdf5.recording import (
    LIBRARY_ERRORS,
    find_location,
    name_source,
    open_hdf5,
    open_source,
    shorten_error,
)
from helpers.errors import UserError, cut
from helpers.objectstore.locations import Location

Shape = tuple[int, ...]

MIB = 2**20
PAGES_NBYTES = (4 * MIB, 8 * MIB)
"""Page sizes that are considered, as published comparisons have them."""

CHUNK_TARGET_NBYTES = 4 * MIB
"""Bytes in memory that a new chunk comes near to; HDF5's chunk cache holds two."""


@dataclass(frozen=True, slots=True)
class Repack:
    """Another layout for the same content."""

    page_nbytes: int = 0  # bytes of a page; 0 for file space that is not paged
    # bytes set aside for metadata at the front; 0 for the library's own choice
    metadata_block_nbytes: int = 0
    chunk_shapes: tuple[tuple[str, Shape], ...] = ()  # datasets that get other chunks, and which
    planned_by: str = ""  # program that chose it, and does it where its copy is equal

    @property
    def label(self) -> str:
        """What it does, in a few words."""
        if self.planned_by:
            return self.planned_by
        if not self.page_nbytes:
            return "metadata at the front"
        rechunked = " and rechunked" if self.chunk_shapes else ""
        return f"paged{rechunked}, {self.page_nbytes / MIB:g} MiB pages"

    def command(self, source: str, out: str) -> str:
        """Return the command line that does it.

        Examples
        --------
        >>> Repack(page_nbytes=8 * 2**20).command("a.h5", "b.h5")
        'h5repack -S PAGE -G 8388608 a.h5 b.h5'
        """
        return shlex.join(["h5repack", *self.arguments(), source, out])

    def arguments(self) -> list[str]:
        """Return the options of `h5repack` that do it."""
        by_shape = defaultdict[Shape, list[str]](list)
        for variable, chunk_shape in self.chunk_shapes:
            by_shape[chunk_shape].append(variable)
        layouts = [
            f"{','.join(variables)}:CHUNK={'x'.join(map(str, chunk_shape))}"
            for chunk_shape, variables in by_shape.items()
        ]
        paged = ["-S", "PAGE", "-G", str(self.page_nbytes)] if self.page_nbytes else []
        front = (
            ["-S", "FSM_AGGR", "-M", str(self.metadata_block_nbytes)]
            if self.metadata_block_nbytes
            else []
        )
        return [*paged, *front, *(part for layout in layouts for part in ("-l", layout))]

    def copy(self, source: h5py.File, target: Any, *, is_model: bool = False) -> None:
        """Do it by h5py, or make a model of what it would make."""
        copy_file(
            source,
            target,
            page_nbytes=self.page_nbytes,
            # of a model, metadata are moved to the front afterwards
            metadata_block_nbytes=0 if is_model else self.metadata_block_nbytes,
            chunk_shapes=dict(self.chunk_shapes),
            is_model=is_model,
        )


def list_repacks(report: FileReport) -> list[Repack]:
    """List the repacks that could make a file faster to read."""
    front_nbytes = max(MIB, 2 ** math.ceil(math.log2(2 * report.metadata_nbytes)))
    repacks = [Repack(metadata_block_nbytes=front_nbytes)]
    if planned := ask_cmip7repack(report):
        repacks.append(planned)
    if report.userblock_nbytes:  # HDF5 refuses pages behind a user block that is no multiple
        return repacks
    repacks += [Repack(page_nbytes) for page_nbytes in PAGES_NBYTES]
    chunk_shapes = tuple(
        (variable.name, shape)
        for variable in report.variables
        if (shape := choose_chunk_shape(variable)) != variable.chunk_shape
    )
    if chunk_shapes:
        repacks += [Repack(page_nbytes, 0, chunk_shapes) for page_nbytes in PAGES_NBYTES]
    return repacks


def choose_chunk_shape(variable: Variable) -> Shape:
    """Choose larger chunks, where those of a variable are small and many.

    Extents are doubled, that of the dimension first in which a chunk covers the
    smallest share, so that chunks keep their form.
    """
    is_kept = variable.is_variable_length or not variable.is_lossless
    if variable.n_chunks < 2 or not variable.chunk_shape or is_kept:
        return variable.chunk_shape
    item_nbytes = variable.nbytes // max(1, math.prod(variable.shape))
    chunk_shape = [min(c, n) for c, n in zip(variable.chunk_shape, variable.shape, strict=True)]
    while 2 * math.prod(chunk_shape) * item_nbytes <= CHUNK_TARGET_NBYTES:
        shares = [c / n for c, n in zip(chunk_shape, variable.shape, strict=True)]
        dimension = min(range(len(shares)), key=shares.__getitem__)
        if shares[dimension] >= 1:
            break
        chunk_shape[dimension] = min(2 * chunk_shape[dimension], variable.shape[dimension])
    is_larger = math.prod(chunk_shape) > math.prod(variable.chunk_shape)
    return tuple(chunk_shape) if is_larger else variable.chunk_shape


def ask_cmip7repack(report: FileReport) -> Repack | None:
    """Ask `cmip7repack` which layout it would give a file of a climate model, which names its variable.

    None where it plans nothing, or is not on PATH; `pip install cmip7-repack` brings it.
    """
    if "://" in report.name or shutil.which(CMIP7) is None:
        return None
    with open_hdf5(Path(report.name), report.name) as file:
        if "variable_id" not in file.attrs:
            return None
    done = subprocess.run([CMIP7, "-x", report.name], capture_output=True, text=True, check=False)
    argv = shlex.split(done.stdout.partition("repack command: ")[2].partition("\n")[0])
    front = [part.partition("=")[2] for part in argv if part.startswith("--metadata_block_size=")]
    layouts = [argv[at + 1].partition(":CHUNK=") for at, part in enumerate(argv) if part == "-l"]
    shapes = ((name.strip("/"), tuple(map(int, shape.split("x")))) for name, _, shape in layouts)
    return Repack(0, int(front[0]), tuple(shapes), CMIP7) if front else None


Tool = Literal["h5repack", "h5py", "cmip7repack"]
CMIP7: Tool = "cmip7repack"

_BUILT_IN = {"deflate", "shuffle", "fletcher32", "szip", "nbit", "scaleoffset"}


def find_tool(report: FileReport) -> Tool:
    """Choose what repacks a file: `h5repack`, where it is on PATH and can do it faithfully.

    It has the filters of the library alone, loses the order of global attributes, and of
    datasets of variable length it copies the fill value as a reference to a heap that the
    copy does not have. Heaps of attributes it scatters among the data, where we put them
    together. And it goes through arrays of which hardly anything is stored.
    """
    is_scattered = report.n_heap_spans > 0 and not report.has_virtual
    return "h5repack" if suits_h5repack(report) and not is_scattered else "h5py"


def suits_h5repack(report: FileReport) -> bool:
    """Tell whether `h5repack` is there and copies a file faithfully, wherever its heaps come to lie."""
    used = {name for variable in report.variables for name in variable.filters}
    is_plain = used <= _BUILT_IN and not any(v.is_variable_length for v in report.variables)
    is_whole = is_plain and not report.is_ordered and not report.is_sparse
    return is_whole and shutil.which("h5repack") is not None


def find_command_tool(report: FileReport) -> Tool:
    """Choose whose command line repacks a file: `h5repack` needs it on disk, and to know its version."""
    if find_tool(report) == "h5py" or "://" in report.name:
        return "h5py"
    if not shutil.which("h5dump"):  # which is of the same HDF5, and says so without a copy
        return "h5repack"
    done = subprocess.run(
        ["h5dump", "-H", report.name],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return "h5py" if done.returncode else "h5repack"


def write_command(name: str, repack: Repack, tool: Tool) -> str:
    """Write the command line of a tool that makes a repack; ours falls back by itself."""
    is_named = any(mark in variable for variable, _ in repack.chunk_shapes for mark in ",:")
    if (
        tool == "h5repack" and not is_named and not repack.planned_by
    ):  # its options have these marks between names
        return repack.command(name, "OUT")
    return shlex.join(["wire", "hdf5", "advise", name, "--apply", "OUT", "--repack", repack.label])


def apply_repack(
    source: str | Location, repack: Repack, out: Path, *, tool: Tool | None = None
) -> str:
    """Write a repacked copy, and compare every dataset and attribute with the input.

    The input is only read. The copy appears under its name when it was found equal. What
    `h5repack` cannot do, or not faithfully, is left to h5py, unless a tool is asked for.
    """
    check_out(source, out)
    name, is_near = name_source(source), find_location(source) is None
    with open_source(source) as file:
        report = inspect_file(file, name)
        for variable in report.variables:
            variable.check_filters()
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".repack-") as folder:
            path = Path(name) if is_near else _fetch(file, Path(folder) / "source.h5")
            with open_hdf5(path, name) as opened:
                check_sources(opened, name, (path.parent if is_near else None, out.parent))
            made = Path(f"{folder}.h5")  # virtual datasets find their sources from where it lies
            found = find_tool(report)
            last: list[Tool] = ["h5repack"] if suits_h5repack(report) else []
            first: list[Tool] = [CMIP7, "h5py"] if repack.planned_by else [found, "h5py", *last]
            tools = [tool] if tool else list(dict.fromkeys(first))
            try:
                told = _make_equal(path, report, repack, made, tools)
                publish(made, out)
            finally:
                made.unlink(missing_ok=True)
    return f"{out}: made by {told}"


def _make_equal(
    path: Path, report: FileReport, repack: Repack, made: Path, tools: Sequence[Tool]
) -> str:
    """Make a copy by the first of some tools whose copy is equal; say by which, and why."""
    tool, *others = tools
    try:
        _make(path, report.name, repack, made, tool)
        rechunked = {name for name, _ in repack.chunk_shapes}
        compared = check_equal(
            path, report.name, made, rechunked=rechunked, is_refiltered=tool == CMIP7
        )
        return f"{tool}; {compared}{ask_tools(path, made, nbytes=report.nbytes)}"
    except UserError as error:
        if not others:
            raise
        made.unlink(missing_ok=True)
        told = _make_equal(path, report, repack, made, others)
        by, _, compared = told.partition("; ")
        why = cut(str(error).removeprefix("apply: ").partition("; allowed")[0])
        return f"{by} (not by {tool}: {why}); {compared}"


def _make(path: Path, name: str, repack: Repack, made: Path, tool: Tool) -> None:
    if tool == "h5repack":
        _run_h5repack(path, repack, made)
        return
    if tool == CMIP7:
        _run_cmip7repack(path, made)
        return
    with open_hdf5(path, name) as opened:
        try:
            repack.copy(opened, made)
        except UserError:
            raise
        except LIBRARY_ERRORS as error:
            raise UserError(
                f"apply: {name} cannot be copied ({shorten_error(error)}); allowed: a sound file"
                " of types and filters that h5py has, and room for a copy"
            ) from error


def publish(made: Path, out: Path) -> None:
    """Give a file its name, unless another has it by now."""
    try:
        out.hardlink_to(made)
    except FileExistsError as error:
        raise UserError(f"apply: {out} is there by now; allowed: a file that is not") from error
    except OSError:  # a system of files without hard links
        made.rename(out)


def check_out(source: str | Location, out: Path) -> None:
    """Refuse an output that is the input, or is there, or has no folder."""
    if find_location(source) is None and out.resolve() == Path(name_source(source)).resolve():
        raise UserError(
            f"apply: {out} is the input; allowed: another file, the input is not touched"
        )
    if out.exists():
        raise UserError(f"apply: {out} is there already; allowed: a file that is not")
    if not out.parent.is_dir():
        raise UserError(f"apply: no folder {out.parent}; allowed: a file in a folder that is there")
    try:  # permissions alone do not tell: a system of files may be read-only, or no such system
        tempfile.TemporaryDirectory(dir=out.parent, prefix=".repack-").cleanup()
    except OSError as error:
        raise UserError(
            f"apply: {out.parent} cannot be written to ({error.strerror}); allowed: a folder that can"
        ) from error


def _fetch(file: BinaryIO, path: Path) -> Path:
    """Write what is far away to disk."""
    file.seek(0)
    with path.open("wb") as copy:
        shutil.copyfileobj(file, copy, 8 * MIB)
    return path


def _run_cmip7repack(source: Path, out: Path) -> None:
    """Let it repack a link to the file, for it writes beside its input."""
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".repack-") as folder:
        link = Path(folder) / "file.nc"
        link.symlink_to(source.resolve())
        done = subprocess.run([CMIP7, str(link)], capture_output=True, text=True, check=False)
        made = Path(f"{link}_{CMIP7}")
        if done.returncode or not made.exists():
            said = cut(" ".join((done.stderr or done.stdout).split()[-30:]))
            raise UserError(
                f"apply: {CMIP7} failed ({said or 'it ended without a word'}) on {source};"
                f" allowed: a file that {CMIP7} takes"
            )
        made.rename(out)


def _run_h5repack(source: Path, repack: Repack, out: Path) -> None:
    argv = ["h5repack", *repack.arguments(), str(source), str(out)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode or not out.exists():
        said = cut(" ".join((done.stderr or done.stdout).split()))
        raise UserError(
            f"apply: h5repack failed ({said or 'it ended without a word'}) on {source};"
            " allowed: a file that this version of h5repack reads"
        )
