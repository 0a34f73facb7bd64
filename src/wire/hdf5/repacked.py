"""Layouts that `h5repack` could give a file, by formula, and copies that it makes and `h5diff` finds equal."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import socket
import tempfile
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import hdf5plugin

from wire.children import remove_left, start_child
from wire.errors import UserError, cut, describe_system_error, format_size, show
from wire.hdf5 import files
from wire.hdf5.inspection import FileLayout, Read, Variable, merge_spans
from wire.hdf5.prediction import MIB
from wire.interrupts import check_interrupt

Shape = tuple[int, ...]

PAGES_NBYTES = (4 * MIB, 8 * MIB)
"""Page sizes that are considered, as published comparisons have them."""

CHUNK_TARGET_NBYTES = 4 * MIB
"""Bytes in memory that a new chunk comes near to; HDF5's chunk cache holds two."""

MOST_RECHUNKED = 12
"""Variables that get other chunks, so that the command stays one that people copy."""


@dataclass(frozen=True, slots=True)
class Repack:
    """Another layout for the same content."""

    page_nbytes: int = 0  # bytes of a page; 0 for file space that is not paged
    chunk_shapes: tuple[tuple[str, Shape], ...] = ()  # datasets that get other chunks, and which

    @property
    def name(self) -> str:
        """What it does, in a few words."""
        changes = ["paged"] * (self.page_nbytes > 0) + ["rechunked"] * bool(self.chunk_shapes)
        pages = f", {self.page_nbytes / MIB:g} MiB pages" if self.page_nbytes else ""
        return " and ".join(changes) + pages

    def list_arguments(self) -> list[str]:
        """Give the options of `h5repack`."""
        paged = ["-S", "PAGE", "-G", str(self.page_nbytes)] if self.page_nbytes else []
        names: dict[Shape, list[str]] = {}
        for name, shape in self.chunk_shapes:
            names.setdefault(shape, []).append(name)
        layouts = (f"{','.join(n)}:CHUNK={'x'.join(map(str, c))}" for c, n in names.items())
        return [*paged, *(word for layout in layouts for word in ("-l", layout))]


def list_repacks(whole: FileLayout, variables: Sequence[Variable]) -> list[Repack]:
    """List the repacks that could make a file faster of which these variables are read.

    Chunks grow of those that have the most. HDF5 refuses pages behind a user block.
    """
    pages = (0,) if whole.userblock_nbytes else PAGES_NBYTES
    most = sorted(variables, key=lambda variable: -variable.n_chunks)[:MOST_RECHUNKED]
    chunk_shapes = tuple(
        (variable.name, shape)
        for variable in most
        if (shape := choose_chunk_shape(variable)) != variable.chunk_shape
    )
    plain = [Repack(page_nbytes) for page_nbytes in pages if page_nbytes]
    return plain + [Repack(page_nbytes, chunk_shapes) for page_nbytes in pages if chunk_shapes]


def choose_chunk_shape(variable: Variable) -> Shape:
    """Choose larger chunks, where those of a variable are small and many.

    Extents are doubled, that of the dimension first in which a chunk covers the
    smallest share, so that chunks keep their form. The options of `h5repack` cannot name a
    variable with a comma or a colon in its name, nor does a shell one that steers a terminal.
    """
    is_named = variable.name.isprintable() and not {*",:"} & {*variable.name}
    is_kept = variable.is_variable_length or not variable.is_lossless or variable.is_sparse
    if variable.n_chunks < 2 or is_kept or not is_named:
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


def lay_out(whole: FileLayout, read: FileLayout, repack: Repack) -> FileLayout:
    """Say where a repacked file would have what is read of it.

    Metadata come first, together, then variable after variable, none of their chunks across two
    pages. A compressed chunk has as many bytes for an element as the variable has now.

    `whole` is what reading all of the file asks for, `read` what is predicted.
    """
    opened = [(read.offset, read.stop) for read in (*whole.opened, *read.opened)]
    spans = merge_spans([*opened, *whole.metadata, *read.metadata])
    starts = [start for start, _ in spans]
    places = [*itertools.accumulate((stop - start for start, stop in spans), initial=0)]
    page, end = repack.page_nbytes, places[-1]

    def move(read: Read) -> Read:
        index = bisect_right(starts, read.offset) - 1
        return read._replace(offset=places[index] + read.offset - starts[index])

    def place(nbytes: int) -> int:
        nonlocal end
        if page and (nbytes >= page or end % page + nbytes > page):
            end = -(-end // page) * page
        end += nbytes
        return end - nbytes

    end = -(-end // page) * page if page else end
    shapes, moved = dict(repack.chunk_shapes), dict[int, Read]()
    longer = dict[int, list[Read]]()  # by where the first of the old chunks was
    for variable, chunks in zip(whole.variables, whole.chunks, strict=True):
        if variable.name in shapes and chunks:
            sizes = count_rechunked(variable, shapes[variable.name])
            longer[chunks[0].offset] = [Read(place(n), n, is_metadata=False) for n in sizes]
        else:
            moved |= {chunk.offset: chunk._replace(offset=place(chunk.nbytes)) for chunk in chunks}
    new_reads = []
    for reads, chunks in zip(read.read, read.chunks, strict=True):
        if chunks and chunks[0].offset in longer:
            new, index = (
                longer[chunks[0].offset],
                [move(read) for read in reads if read.is_metadata],
            )
            new_reads.append((*index[: max(1, len(index) * len(new) // len(chunks))], *new))
        else:
            both = (
                move(read) if read.is_metadata else moved.get(read.offset, read) for read in reads
            )
            new_reads.append(tuple(both))
    end = -(-end // page) * page if page else end
    new_opened = tuple(map(move, read.opened))
    return replace(
        read, opened=new_opened, read=tuple(new_reads), file_nbytes=end, page_nbytes=page
    )


def count_rechunked(variable: Variable, chunk_shape: Shape) -> list[int]:
    """Count the bytes of each chunk that a variable would have, in their order.

    Examples
    --------
    Of 100 elements in 400 bytes, chunks of 40: the last has 20.

    >>> one = Variable("x", (100,), "f8", (10,), 10, 400, 800, ("deflate",))
    >>> count_rechunked(one, (40,))
    [160, 160, 80]
    """
    if not variable.filters:
        n = math.prod(-(-n // c) for n, c in zip(variable.shape, chunk_shape, strict=True))
        return [variable.nbytes * math.prod(chunk_shape) // max(1, math.prod(variable.shape))] * n
    ratio = variable.stored_nbytes / max(1, math.prod(variable.shape))
    extents = (
        [min(c, n - start) for start in range(0, n, c)]
        for n, c in zip(variable.shape, chunk_shape, strict=True)
    )
    return [max(1, round(ratio * math.prod(extents))) for extents in itertools.product(*extents)]


TOOLS = "Debian: apt install hdf5-tools; elsewhere: conda install -c conda-forge hdf5"
"""Where `h5repack` and `h5diff` are had."""

_MINE = f".repack-{socket.gethostname()}-"  # then the number of the process that makes it
_MOST_S = 1e6  # of a tool
# what h5diff says of datasets without values, and of those whose values it compares all the same
_HARMLESS = ("is an empty dataset", "is a virtual dataset")


def apply_repack(source: files.Source, repack: Repack, out: Path) -> str:
    """Write a repacked copy, and compare it with the file; the copy appears where it is equal.

    Whatever ends this early, a signal too, ends the tool that runs and leaves nothing.
    """
    check_out(out)
    name = files.name_source(source)
    with (
        files.open_source(source) as file,
        tempfile.TemporaryDirectory(dir=out.parent, prefix=f"{_MINE}{os.getpid()}-") as folder,
    ):
        path, homes = Path(name), {Path(name).resolve().parent, Path(name).parent.resolve()}
        if not files.is_near(source):
            path, homes = Path(folder) / "source.h5", set()
            with path.open("wb") as fetched:
                shutil.copyfileobj(file, fetched, 8 * 2**20)
        check_others(path, name, is_home=homes == {out.parent.resolve()})
        copy = Path(f"{folder}.h5")  # what it leads to is found from where it lies
        try:
            _make_equal(path, name, repack, copy, Path(folder) / "said")
            check_interrupt()
            _publish(copy, out)
        finally:
            copy.unlink(missing_ok=True)
    return f"{out}: h5diff finds it equal"


def _make_equal(path: Path, name: str, repack: Repack, copy: Path, log: Path) -> None:
    code, output = _run(["h5repack", *repack.list_arguments(), str(path), str(copy)], log)
    if code or not copy.exists():
        raise UserError("apply", f"h5repack refuses {name} ({cut(output)})", "what it copies")
    code, output = _run(["h5diff", "-c", str(path), str(copy)], log)
    differing = [line for line in output.splitlines() if line and not line.endswith(_HARMLESS)]
    if code or differing:
        differences = cut(" ".join(differing))
        raise UserError("apply", f"h5diff finds a difference ({differences})", "an equal copy")


def _run(command: Sequence[str], log: Path) -> tuple[int, str]:
    """Run a tool to its end; it does not outlive whatever ends this, a kill too."""
    plugins = os.pathsep.join([os.environ.get("HDF5_PLUGIN_PATH", ""), hdf5plugin.PLUGIN_PATH])
    env = {**os.environ, "HDF5_PLUGIN_PATH": plugins.strip(os.pathsep)}
    with start_child(command, env=env, log=log) as child:
        code = child.wait(timeout_s=_MOST_S)
    return code, log.read_text(errors="replace")


def _publish(copy: Path, out: Path) -> None:
    """Give a file its name, unless another has it by now."""
    try:
        out.hardlink_to(copy)
    except FileExistsError as error:
        raise UserError("apply", f"{out} is there by now", "a file that is not") from error
    except OSError:  # a system of files without hard links
        copy.rename(out)


def check_out(out: Path) -> None:
    """Refuse an output that is there, as the input is, or has no folder that can be written to."""
    if out.exists() or out.is_symlink():
        raise UserError("apply", f"{out} is there already", "a file that is not")
    for tool in ("h5repack", "h5diff"):
        if shutil.which(tool) is None:
            raise UserError("apply", f"{tool} is not on the path", f"after its install ({TOOLS})")  # fmt: skip
    try:  # permissions alone do not tell: a system of files may be read-only, or no such system
        remove_left(out.parent, _MINE)
        tempfile.TemporaryDirectory(dir=out.parent, prefix=".repack-").cleanup()
    except OSError as error:
        problem = f"{out.parent} cannot be written to ({describe_system_error(error)})"
        raise UserError("apply", problem, "a folder that can") from error


def check_others(path: Path, name: str, *, is_home: bool) -> None:
    """Refuse a file that leads to others by relative names, unless the copy lies in its folder.

    From another folder they lead nowhere, or to another file, and h5diff compares but the names.
    A dataset whose values lie in another file is refused everywhere: a copy would write to it.
    So is a file most of whose values were never stored, and one of too many links to look at.
    """
    absent_nbytes, deadline = 0, files.Deadline()
    with files.open_hdf5(path, name) as file:
        for path_inside, object_id in files.walk(file, deadline):
            outside, is_written = list[str](), False
            if isinstance(object_id, h5py.h5d.DatasetID):
                absent_nbytes += count_absent_nbytes(h5py.Dataset(object_id))
            if absent_nbytes > MOST_ABSENT_NBYTES:
                problem = f"{show(path_inside)} and those before it have {format_size(absent_nbytes)} that were never stored"
                raise UserError(
                    "file",
                    f"{name}: {problem}, which h5repack and h5diff would go through all the same",
                    f"at most {format_size(MOST_ABSENT_NBYTES)} of them",
                )
            if isinstance(object_id, h5py.h5g.GroupID):
                links = ((key, object_id.links.get_info(key).type) for key in object_id)
                away = [key for key, kind in links if kind == h5py.h5l.TYPE_EXTERNAL]
                outside = [os.fsdecode(object_id.links.get_val(key)[0]) for key in away]
            elif isinstance(object_id, h5py.h5d.DatasetID):
                outside = files.list_other_files(h5py.Dataset(object_id))
                is_written = bool(h5py.Dataset(object_id).external)
            astray = [target for target in outside if not (is_home or Path(target).is_absolute())]
            if is_written or astray:
                problem = "which a copy would write to" if is_written else "which a copy elsewhere would not find"  # fmt: skip
                raise UserError(
                    "file",
                    (
                        f"{name}: {show(path_inside or '/')} leads to "
                        f"{show((outside if is_written else astray)[0])}, {problem}"
                    ),
                    "a file that holds its values itself, or a copy in its folder",
                )
    if deadline.n_left_out:
        problem = f"a group of more than {files.MAX_LINKS:,} links, which may lead to other files"
        raise UserError("file", f"{name}: has {problem}", "groups of fewer")


MOST_ABSENT_NBYTES = 10**10
"""Bytes of values that were never stored in a file that is repacked; tools take minutes for these."""


def count_absent_nbytes(dataset: h5py.Dataset) -> int:
    """Count the bytes of a dataset, in memory, that no chunk was ever stored for."""
    nbytes = math.prod(dataset.shape or (0,)) * int(dataset.dtype.itemsize)
    if dataset.chunks is None:
        return 0 if dataset.id.get_storage_size() else nbytes
    stored = int(dataset.id.get_num_chunks()) * math.prod(dataset.chunks) * dataset.dtype.itemsize
    return max(0, nbytes - int(stored))
