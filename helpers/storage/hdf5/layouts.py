"""Layouts of a granule: the same values, arranged by the tools that people use for it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import h5py

from helpers.errors import UserError
from helpers.storage.hdf5.properties import iterate_variables

MIB = 2**20
RECHUNKED = 100_000  # elements, as the field's guidance for photon data has it
_SMALL = 50_000  # elements up to which a variable keeps its chunks when rechunked
_REPACK_TIMEOUT_S = 900

Tool = Literal["auto", "h5repack", "h5py"]


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How a file is arranged anew.

    Parameters
    ----------
    name : str
        Name in parameter files, records and figures.
    description : str
        One line for readers of the book.
    page_nbytes : int
        Bytes of a page of the paged strategy; 0 for none.
    chunk_elements : int
        Elements of a chunk along the first dimension of long variables; 0 to keep.
    metadata_block_nbytes : int
        Bytes that are set aside for metadata at a time; 0 for the library's 2 kB.
    """

    name: str
    description: str
    page_nbytes: int = 0
    chunk_elements: int = 0
    metadata_block_nbytes: int = 0


FILE_LAYOUTS: Mapping[str, FileLayout] = {
    each.name: each
    for each in (
        FileLayout("original", "as the producer writes it: metadata between the data"),
        FileLayout(
            "front",
            "all metadata in one block at the front of the file",
            metadata_block_nbytes=8 * MIB,
        ),
        FileLayout("paged-4mib", "paged, pages of 4 MiB", page_nbytes=4 * MIB),
        FileLayout("paged-8mib", "paged, pages of 8 MiB", page_nbytes=8 * MIB),
        FileLayout(
            "rechunked-4mib",
            "paged, pages of 4 MiB, and chunks of 100 000 photons",
            page_nbytes=4 * MIB,
            chunk_elements=RECHUNKED,
        ),
        FileLayout(
            "rechunked-8mib",
            "paged, pages of 8 MiB, and chunks of 100 000 photons",
            page_nbytes=8 * MIB,
            chunk_elements=RECHUNKED,
        ),
    )
}
"""Arrangements of one HDF5 file, by name; `original` is the file as it was written."""


def arrange(source: Path, target: Path, layout: FileLayout, *, tool: Tool = "auto") -> str:
    """Write a file anew in another layout.

    Parameters
    ----------
    source, target : Path
        The file, and the one to make.
    layout : FileLayout
        How to arrange it.
    tool : {"auto", "h5repack", "h5py"}
        What writes; by default ``h5repack`` where it is on PATH.

    Returns
    -------
    str
        What wrote it, with its version.

    Raises
    ------
    UserError
        If the tool is not there or fails.
    """
    program = shutil.which("h5repack")
    if tool == "h5repack" and program is None:
        raise UserError("tool: h5repack is not on PATH; allowed: h5py, or install HDF5's tools")
    if program is None or tool == "h5py":
        _copy(source, target, layout)
        return f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"
    _run([program, *_options(source, layout), str(source), str(target)])
    return _run([program, "--version"]).strip().replace(": Version", "")


def _options(source: Path, layout: FileLayout) -> list[str]:
    """Write a layout as options of h5repack."""
    options: list[str] = []
    if layout.page_nbytes:
        options += ["--fs_strategy=PAGE", f"--fs_pagesize={layout.page_nbytes}"]
    if layout.metadata_block_nbytes:
        options += [f"--metadata_block_size={layout.metadata_block_nbytes}"]
    if layout.chunk_elements:
        with h5py.File(source) as file:
            for name, variable in iterate_variables(file):
                if chunk := _chunk(variable, layout):
                    options += ["--layout", f"{name}:CHUNK={'x'.join(map(str, chunk))}"]
    return options


def _chunk(variable: h5py.Dataset, layout: FileLayout) -> tuple[int, ...] | None:
    """Choose the chunk of a long variable; None where it keeps its own."""
    if not (layout.chunk_elements and variable.chunks) or variable.shape[0] <= _SMALL:
        return None
    return (min(layout.chunk_elements, variable.shape[0]), *variable.shape[1:])


def _run(argv: list[str]) -> str:
    """Run one of HDF5's tools."""
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=_REPACK_TIMEOUT_S, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"h5repack: {said[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout or done.stderr


def _copy(source: Path, target: Path, layout: FileLayout) -> None:
    """Do what h5repack does, with h5py's creation properties."""
    options: dict[str, object] = {}
    if layout.page_nbytes:
        options |= {"fs_strategy": "page", "fs_page_size": layout.page_nbytes}
    if layout.metadata_block_nbytes:
        options |= {"meta_block_size": layout.metadata_block_nbytes}
    with h5py.File(source) as old, h5py.File(target, "w", **options) as new:
        _copy_group(old, new, layout)


def _copy_group(old: h5py.Group, new: h5py.Group, layout: FileLayout) -> None:
    for name, value in old.attrs.items():
        new.attrs[name] = value
    for name, item in old.items():
        if isinstance(item, h5py.Group):
            _copy_group(item, new.create_group(name), layout)
        elif chunk := _chunk(item, layout):
            _copy_rechunked(item, new, chunk)
        else:
            old.copy(item, new, name)


def _copy_rechunked(old: h5py.Dataset, new: h5py.Group, chunk: tuple[int, ...]) -> None:
    dataset = new.create_dataset(
        old.name.rpartition("/")[2],
        data=old[:],
        chunks=chunk,
        maxshape=old.maxshape,
        shuffle=old.shuffle,
        compression=old.compression,
        compression_opts=old.compression_opts,
    )
    for name, value in old.attrs.items():
        dataset.attrs[name] = value
