"""Repairs of HDF5 files: what they are, their command lines, and how they are done."""

from __future__ import annotations

import math
import shlex
import shutil
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from helpers.errors import UserError
from helpers.storage.locations import Location
from helpers.storage.repairs.copying import copy_file
from helpers.storage.repairs.equality import check_equal
from helpers.storage.repairs.inspection import FileReport, Variable, inspect_file
from helpers.storage.repairs.sources import find_location, name, open_hdf5, open_source

Tool = Literal["h5repack", "h5py"]
Shape = tuple[int, ...]

MIB = 2**20
PAGES_NBYTES = (4 * MIB, 8 * MIB)
"""Page sizes that are considered, as published comparisons have them."""

CHUNK_TARGET_NBYTES = 4 * MIB
"""Bytes in memory that a new chunk comes near to; HDF5's chunk cache holds two."""

_BUILT_IN = {"deflate", "shuffle", "fletcher32", "szip", "nbit", "scaleoffset"}


@dataclass(frozen=True, slots=True)
class Repair:
    """Another layout for the same content.

    Parameters
    ----------
    page_nbytes : int
        Bytes of a page; 0 for file space that is not paged.
    metadata_block_nbytes : int
        Bytes set aside for metadata at the front; 0 for the library's own choice.
    chunk_shapes : tuple of (str, tuple of int)
        Datasets that get other chunks, and which.
    """

    page_nbytes: int = 0
    metadata_block_nbytes: int = 0
    chunk_shapes: tuple[tuple[str, Shape], ...] = ()

    @property
    def label(self) -> str:
        """What it does, in a few words."""
        if not self.page_nbytes:
            return "metadata at the front"
        rechunked = " and rechunked" if self.chunk_shapes else ""
        return f"paged{rechunked}, {self.page_nbytes / MIB:g} MiB pages"

    def command(self, source: str, out: str) -> str:
        """Return the command line that does it.

        Parameters
        ----------
        source, out : str
            Paths of input and output.

        Returns
        -------
        str
            An `h5repack` command.

        Examples
        --------
        >>> Repair(page_nbytes=8 * 2**20).command("a.h5", "b.h5")
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


def list_repairs(report: FileReport) -> list[Repair]:
    """List the repairs that could make a file faster to read.

    Parameters
    ----------
    report : FileReport
        How it lies.

    Returns
    -------
    list of Repair
        Metadata at the front; paged; paged and, where chunks are small, rechunked.
        Behind a user block metadata at the front alone.
    """
    front_nbytes = max(MIB, 2 ** math.ceil(math.log2(2 * report.metadata_nbytes)))
    repairs = [Repair(metadata_block_nbytes=front_nbytes)]
    if report.userblock_nbytes:  # HDF5 refuses pages behind a user block that is no multiple
        return repairs
    repairs += [Repair(page_nbytes) for page_nbytes in PAGES_NBYTES]
    chunk_shapes = tuple(
        (variable.name, shape)
        for variable in report.variables
        if (shape := choose_chunk_shape(variable)) != variable.chunk_shape
    )
    if chunk_shapes:
        repairs += [Repair(page_nbytes, 0, chunk_shapes) for page_nbytes in PAGES_NBYTES]
    return repairs


def choose_chunk_shape(variable: Variable) -> Shape:
    """Choose larger chunks, where those of a variable are small and many.

    Extents are doubled, that of the dimension first in which a chunk covers the
    smallest share, so that chunks keep their form.

    Parameters
    ----------
    variable : Variable
        How it lies.

    Returns
    -------
    tuple of int
        Elements for each dimension; its own where nothing is gained.
    """
    if variable.n_chunks < 2 or not variable.chunk_shape or variable.is_variable_length:
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


def find_tool(report: FileReport) -> Tool:
    """Choose what repairs a file: `h5repack`, where it is on PATH and can do it faithfully.

    It has the filters of the library alone, and of datasets of variable length
    it copies the fill value as a reference to a heap that the copy does not have.

    Parameters
    ----------
    report : FileReport
        How the file lies.

    Returns
    -------
    {"h5repack", "h5py"}
        The tool.
    """
    used = {name for variable in report.variables for name in variable.filters}
    is_plain = used <= _BUILT_IN and not any(v.is_variable_length for v in report.variables)
    return "h5repack" if is_plain and shutil.which("h5repack") else "h5py"


def apply_repair(
    source: str | Location, repair: Repair, out: Path, *, tool: Tool | None = None
) -> str:
    """Write a repaired copy, and compare every dataset and attribute with the input.

    The input is only read. The copy appears under its name when it was found equal.

    Parameters
    ----------
    source : str or Location
        Path, address of an object, or its location.
    repair : Repair
        What to do.
    out : Path
        File to write; it must not be there.
    tool : {"h5repack", "h5py"}, optional
        What does it; by default as `find_tool` chooses.

    Returns
    -------
    str
        What was done and compared, in one line.

    Raises
    ------
    UserError
        If `out` is there, the input cannot be decoded, or the copy differs.
    """
    check_out(source, out)
    with open_source(source) as file:
        report = inspect_file(file, name(source))
        for variable in report.variables:
            variable.check_filters()
        tool = tool or find_tool(report)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".repair-") as folder:
            made = Path(folder) / out.name
            if tool == "h5repack":
                _repack(_as_path(source, file, Path(folder)), repair, made)
            else:
                _copy(file, name(source), repair, made)
            compared = check_equal(file, name(source), made)
            out.hardlink_to(made)
    return f"{out}: made by {tool}; {compared}"


def check_out(source: str | Location, out: Path) -> None:
    """Refuse an output that is the input, or is there, or has no folder.

    Parameters
    ----------
    source : str or Location
        Path, address of an object, or its location.
    out : Path
        File to write.

    Raises
    ------
    UserError
        If it cannot be written without touching what is there.
    """
    if find_location(source) is None and out.resolve() == Path(name(source)).resolve():
        raise UserError(
            f"apply: {out} is the input; allowed: another file, the input is not touched"
        )
    if out.exists():
        raise UserError(f"apply: {out} is there already; allowed: a file that is not")
    if not out.parent.is_dir():
        raise UserError(f"apply: no folder {out.parent}; allowed: a file in a folder that is there")


def _as_path(source: str | Location, file: BinaryIO, folder: Path) -> Path:
    """Return a path to the source, of a copy if it is far away."""
    if find_location(source) is None:
        return Path(name(source))
    path = folder / "source.h5"
    file.seek(0)
    with path.open("wb") as copy:
        shutil.copyfileobj(file, copy, 8 * MIB)
    return path


def _repack(source: Path, repair: Repair, out: Path) -> None:
    argv = ["h5repack", *repair.arguments(), str(source), str(out)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode or not out.exists():
        said = " ".join((done.stderr or done.stdout).split())
        raise UserError(
            f"apply: h5repack could not repair {source} ({said}); allowed: a file that this"
            " version of h5repack reads"
        )


def _copy(file: BinaryIO, name: str, repair: Repair, out: Path) -> None:
    with open_hdf5(file, name) as source:
        copy_file(
            source,
            out,
            page_nbytes=repair.page_nbytes,
            metadata_block_nbytes=repair.metadata_block_nbytes,
            chunk_shapes=dict(repair.chunk_shapes),
        )
