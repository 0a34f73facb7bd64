"""Repacking: what could help a file, and a copy that appears if it is equal."""

from __future__ import annotations

import math
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import h5py

from advisors.hdf5.caches import MIB
from advisors.hdf5.comparison import check_equal, check_sources
from advisors.hdf5.copying import copy_file
from advisors.hdf5.files import (
    LIBRARY_ERRORS,
    Source,
    is_near,
    name_source,
    open_hdf5,
    open_source,
    shorten_error,
)
from advisors.hdf5.inspection import FileReport, Variable, inspect_file
from helpers.errors import UserError

Shape = tuple[int, ...]

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

    @property
    def label(self) -> str:
        """What it does, in a few words.

        Examples
        --------
        >>> Repack(8 * MIB).label, Repack(4 * MIB, 0, (("x", (9,)),)).label
        ('paged, 8 MiB pages', 'paged and rechunked, 4 MiB pages')
        """
        what = ["paged"] * (self.page_nbytes > 0) + ["rechunked"] * bool(self.chunk_shapes)
        pages = f", {self.page_nbytes / MIB:g} MiB pages" if self.page_nbytes else ""
        return (" and ".join(what) or "metadata at the front") + pages

    def copy(self, source: h5py.File, target: Any, *, is_model: bool = False) -> None:
        """Do it by h5py, or make a model of what it would make."""
        copy_file(
            source,
            target,
            page_nbytes=self.page_nbytes,
            metadata_block_nbytes=self.metadata_block_nbytes,
            chunk_shapes=dict(self.chunk_shapes),
            is_model=is_model,
        )


def list_repacks(report: FileReport) -> list[Repack]:
    """List the repacks that could make a file faster to read.

    HDF5 refuses pages behind a user block.
    """
    pages = (0,) if report.userblock_nbytes else PAGES_NBYTES
    chunk_shapes = tuple(
        (variable.name, shape)
        for variable in report.variables
        if (shape := choose_chunk_shape(variable)) != variable.chunk_shape
    )
    plain = [Repack(page_nbytes) for page_nbytes in pages if page_nbytes]
    return plain + [Repack(page_nbytes, 0, chunk_shapes) for page_nbytes in pages if chunk_shapes]


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


def write_command(name: str, repack: Repack) -> str:
    """Write the command line that makes a repack."""
    return shlex.join(["wire", "hdf5", "advise", name, "--apply", "OUT", "--repack", repack.label])


def apply_repack(source: Source, repack: Repack, out: Path) -> str:
    """Write a repacked copy, and compare all that it holds with the input.

    The input is only read. The copy appears under its name when it was found equal.
    """
    check_out(source, out)
    name = name_source(source)
    with open_source(source) as file:
        report, _ = inspect_file(file, name)
        for variable in report.variables:
            variable.check_filters()
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".repack-") as folder:
            path = Path(name) if is_near(source) else _fetch(file, Path(folder) / "source.h5")
            with open_hdf5(path, name) as opened:
                check_sources(opened, name, path.parent if is_near(source) else None, out.parent)
            made = Path(f"{folder}.h5")  # links and virtual datasets are found from where it lies
            try:
                _make(path, name, repack, made)
                rechunked = {name for name, _ in repack.chunk_shapes}
                compared = check_equal(path, name, made, rechunked=rechunked)
                publish(made, out)
            finally:
                made.unlink(missing_ok=True)
    return f"{out}: {compared}"


def _make(path: Path, name: str, repack: Repack, made: Path) -> None:
    with open_hdf5(path, name) as opened:
        userblock_nbytes = opened.userblock_size
        try:
            repack.copy(opened, made)
        except UserError:
            raise
        except LIBRARY_ERRORS as error:
            raise UserError(
                f"apply: {name} cannot be copied ({shorten_error(error)}); allowed: a sound file"
                " of types and filters that h5py has, and room for a copy"
            ) from error
    with path.open("rb") as source, made.open("r+b") as copy:
        copy.write(source.read(userblock_nbytes))


def publish(made: Path, out: Path) -> None:
    """Give a file its name, unless another has it by now."""
    try:
        out.hardlink_to(made)
    except FileExistsError as error:
        raise UserError(f"apply: {out} is there by now; allowed: a file that is not") from error
    except OSError:  # a system of files without hard links
        made.rename(out)


def check_out(source: Source, out: Path) -> None:
    """Refuse an output that is the input, or is there, or has no folder."""
    if is_near(source) and out.resolve() == Path(name_source(source)).resolve():
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
