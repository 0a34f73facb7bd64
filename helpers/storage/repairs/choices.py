"""Repairs of HDF5 files: what they are, their command lines, and which could help a file."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from dataclasses import dataclass

from helpers.storage.repairs.reports import FileReport, Variable

Shape = tuple[int, ...]

MIB = 2**20
PAGES_NBYTES = (4 * MIB, 8 * MIB)
"""Page sizes that are considered, as published comparisons have them."""

CHUNK_TARGET_NBYTES = 4 * MIB
"""Bytes in memory that a new chunk comes near to; HDF5's chunk cache holds two."""


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
