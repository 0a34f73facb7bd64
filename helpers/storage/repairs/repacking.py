"""How repairs of HDF5 files are done, and what does them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import BinaryIO, Literal

from helpers.errors import UserError
from helpers.storage.locations import Location
from helpers.storage.repairs.choices import MIB, Repair
from helpers.storage.repairs.copying import copy_file
from helpers.storage.repairs.equality import check_equal, check_sources
from helpers.storage.repairs.inspection import inspect_file
from helpers.storage.repairs.reports import FileReport
from helpers.storage.repairs.sources import find_location, name, open_hdf5, open_source

Tool = Literal["h5repack", "h5py"]

_BUILT_IN = {"deflate", "shuffle", "fletcher32", "szip", "nbit", "scaleoffset"}


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
        compared_with = _find_compared(source, file, out)
        tool = tool or find_tool(report)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".repair-") as folder:
            # virtual datasets find their sources from where a file lies
            made = Path(f"{folder}.h5")
            try:
                if tool == "h5repack":
                    _repack(_as_path(source, file, Path(folder)), repair, made)
                else:
                    _copy(file, name(source), repair, made)
                compared = check_equal(compared_with, name(source), made)
                out.hardlink_to(made)
            finally:
                made.unlink(missing_ok=True)
    return f"{out}: made by {tool}; {compared}"


def _find_compared(source: str | Location, file: BinaryIO, out: Path) -> BinaryIO | Path:
    """Return what the copy is compared with, after a look for the sources of virtual datasets."""
    path = None if find_location(source) else Path(name(source))
    with open_hdf5(file, name(source)) as opened:
        folders = (path.parent if path else None, out.parent)
        has_sources = check_sources(opened, name(source), folders)
    return path if has_sources and path else file


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
    try:  # permissions alone do not tell: a system of files may be read-only, or no such system
        tempfile.TemporaryDirectory(dir=out.parent, prefix=".repair-").cleanup()
    except OSError as error:
        raise UserError(
            f"apply: {out.parent} cannot be written to ({error.strerror}); allowed: a folder that can"
        ) from error


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
