"""Repacking: what could help a file, what does it, and whether the copy has the same content."""

from __future__ import annotations

import math
import shlex
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import h5py
import numpy as np

from advisors.hdf5.copying import copy_file
from advisors.hdf5.inspection import (
    FileReport,
    Variable,
    inspect_file,
    list_sources,
    refuse_external,
)
from advisors.hdf5.recording import (
    find_location,
    list_datasets,
    name_source,
    open_hdf5,
    open_source,
)
from helpers.errors import UserError
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

    @property
    def label(self) -> str:
        """What it does, in a few words."""
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


_SLAB_NBYTES = 64 * 2**20


def check_sources(file: h5py.File, name: str, folders: Sequence[Path | None]) -> bool:
    """Refuse values in other files that a file and its copy do not both find.

    The library reads fill values where it finds nothing, in both of them, so
    that they would compare as equal.
    """
    datasets = [file[path] for path in list_datasets(file)]
    for dataset in datasets:
        refuse_external(dataset, name)
    pairs = [(found.name, *pair) for found in datasets for pair in list_sources(found)]
    for folder in folders:
        for path, other, key in dict.fromkeys(pairs):
            if folder is None or not _has_dataset(folder / _first(other), _first(key)):
                raise UserError(
                    f"file: {name}: the virtual dataset {path!r} has no source {_first(key)!r} in"
                    f" {_first(other)!r} as found from {folder or name}; allowed: sources that both"
                    " the file and its copy find"
                )
    return bool(pairs)


def _first(pattern: str) -> str:
    """Return the first of the names that a pattern of HDF5 stands for."""
    return pattern.replace("%%", "\0").replace("%b", "0").replace("\0", "%")


def _has_dataset(path: Path, key: str) -> bool:
    try:
        with h5py.File(path, "r") as file:
            return isinstance(file.get(key), h5py.Dataset)
    except OSError:
        return False


def check_equal(file: BinaryIO | Path, name: str, copy: Path) -> str:
    """Compare every object, dataset and attribute of a file with those of its copy."""
    with open_hdf5(file, name) as one, h5py.File(copy, "r") as other:
        n_datasets = n_attributes = 0
        for path in list_objects(one, other):
            try:
                n_attributes += _check_attributes(one[path], other[path], path)
                if isinstance(one[path], h5py.Dataset):
                    n_datasets += 1
                    _check_dataset(one[path], other[path], path)
            except (RuntimeError, OSError, KeyError) as error:
                raise _differ(path, " ".join(str(error).split())) from error
    return f"{n_datasets} datasets and {n_attributes} attributes are equal"


def ask_h5diff(file: Path, copy: Path) -> str:
    """Let HDF5's own tool compare as well, where it is on PATH and can read both."""
    program = shutil.which("h5diff")
    if program is None:
        return ""
    argv = [program, str(file), str(copy)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode == 1:
        raise _differ("some object", f"h5diff: {' '.join(done.stdout.split())[:200]}")
    return ", for h5diff too" if done.returncode == 0 else ""


def list_objects(one: h5py.File, other: h5py.File) -> list[str]:
    """Return the paths of all objects, after comparing the links to them."""
    ours, theirs = _find_links(one), _find_links(other)
    if ours != theirs:
        raise _differ(min(ours.items() ^ theirs.items())[0], "link")
    names = ["/"]
    one.visit(names.append)
    return names


def _find_links(file: h5py.File) -> dict[str, tuple[str, ...]]:
    """Return the kind of each link, and where it leads out of the file's own objects."""

    def visit(name: str, link: Any) -> None:
        places = (getattr(link, key) for key in ("filename", "path") if hasattr(link, key))
        found[name] = (type(link).__name__, *map(str, places))

    found: dict[str, tuple[str, ...]] = {}
    file.visititems_links(visit)
    return found


def _check_attributes(one: Any, other: Any, path: str) -> int:
    if set(one.attrs) != set(other.attrs):
        raise _differ(path, "attributes")
    for key in one.attrs:
        ours, theirs = one.attrs.get_id(key), other.attrs.get_id(key)
        if ours.dtype != theirs.dtype or ours.get_space().shape != theirs.get_space().shape:
            raise _differ(f"{path}@{key}", "type")
        if isinstance(one.attrs[key], h5py.Empty):
            continue
        if not are_equal(_read(ours), _read(theirs), (one.file, other.file)):
            raise _differ(f"{path}@{key}", "value")
    return len(one.attrs)


def _read(attribute: Any) -> Any:
    values = np.empty(attribute.shape, attribute.dtype)
    attribute.read(values)
    return values


def _check_dataset(one: h5py.Dataset, other: h5py.Dataset, path: str) -> None:
    if (one.shape, one.maxshape, one.dtype) != (other.shape, other.maxshape, other.dtype):
        raise _differ(path, "shape or type")
    if one.shape is None:
        return
    for region in iterate_slabs(one):
        if not are_equal(one[region], other[region], (one.file, other.file)):
            raise _differ(path, "values")


def iterate_slabs(dataset: h5py.Dataset) -> Iterator[Any]:
    """Cut a dataset along its first dimension, into slabs of some tens of MB."""
    if not dataset.shape:
        yield ()
        return
    row_nbytes = max(1, dataset.size // max(1, dataset.shape[0]) * dataset.dtype.itemsize)
    deep = dataset.chunks[0] if dataset.chunks else 1
    step = max(deep, _SLAB_NBYTES // row_nbytes // deep * deep)
    for start in range(0, dataset.shape[0], step):
        yield slice(start, start + step)


def are_equal(one: Any, other: Any, files: tuple[h5py.File, h5py.File]) -> bool:
    """Compare values bit by bit; references by the paths that they lead to."""
    if isinstance(one, h5py.Reference) and isinstance(other, h5py.Reference):
        paths = [files[n][r].name if r else None for n, r in enumerate((one, other))]
        return paths[0] == paths[1]
    if isinstance(one, (str, bytes)):
        return bool(one == other)
    ours, theirs = np.asarray(one), np.asarray(other)
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return False
    if not ours.dtype.hasobject:
        return ours.tobytes() == theirs.tobytes()
    if ours.dtype.fields:
        return all(are_equal(ours[key], theirs[key], files) for key in ours.dtype.fields)
    pairs = zip(ours.ravel().tolist(), theirs.ravel().tolist(), strict=True)
    return all(a == b if not _is_nested(a) else are_equal(a, b, files) for a, b in pairs)


def _is_nested(value: Any) -> bool:
    return isinstance(value, (h5py.Reference, np.ndarray, np.generic))


def _differ(path: str, what: str) -> UserError:
    return UserError(
        f"apply: the copy differs from the input at {path} ({what}), and was not kept;"
        " allowed: a file that the tool copies faithfully"
    )


Tool = Literal["h5repack", "h5py"]

_BUILT_IN = {"deflate", "shuffle", "fletcher32", "szip", "nbit", "scaleoffset"}


def find_tool(report: FileReport) -> Tool:
    """Choose what repacks a file: `h5repack`, where it is on PATH and can do it faithfully.

    It has the filters of the library alone, and of datasets of variable length
    it copies the fill value as a reference to a heap that the copy does not have.
    """
    used = {name for variable in report.variables for name in variable.filters}
    is_plain = used <= _BUILT_IN and not any(v.is_variable_length for v in report.variables)
    return "h5repack" if is_plain and shutil.which("h5repack") else "h5py"


def apply_repack(
    source: str | Location, repack: Repack, out: Path, *, tool: Tool | None = None
) -> str:
    """Write a repacked copy, and compare every dataset and attribute with the input.

    The input is only read. The copy appears under its name when it was found equal.
    """
    check_out(source, out)
    with open_source(source) as file:
        report = inspect_file(file, name_source(source))
        for variable in report.variables:
            variable.check_filters()
        compared_with = _find_compared(source, file, out)
        tool = tool or find_tool(report)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".repack-") as folder:
            # virtual datasets find their sources from where a file lies
            made = Path(f"{folder}.h5")
            try:
                path = _as_path(source, file, Path(folder)) if tool == "h5repack" else None
                if path:
                    _repack(path, repack, made)
                else:
                    with open_hdf5(file, name_source(source)) as opened:
                        repack.copy(opened, made)
                compared = check_equal(compared_with, name_source(source), made)
                by_tool = ask_h5diff(path, made) if path else ""
                out.hardlink_to(made)
            finally:
                made.unlink(missing_ok=True)
    return f"{out}: made by {tool}; {compared}{by_tool}"


def _find_compared(source: str | Location, file: BinaryIO, out: Path) -> BinaryIO | Path:
    """Return what the copy is compared with, after a look for the sources of virtual datasets."""
    path = None if find_location(source) else Path(name_source(source))
    with open_hdf5(file, name_source(source)) as opened:
        folders = (path.parent if path else None, out.parent)
        has_sources = check_sources(opened, name_source(source), folders)
    return path if has_sources and path else file


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


def _as_path(source: str | Location, file: BinaryIO, folder: Path) -> Path:
    """Return a path to the source, of a copy if it is far away."""
    if find_location(source) is None:
        return Path(name_source(source))
    path = folder / "source.h5"
    file.seek(0)
    with path.open("wb") as copy:
        shutil.copyfileobj(file, copy, 8 * MIB)
    return path


def _repack(source: Path, repack: Repack, out: Path) -> None:
    argv = ["h5repack", *repack.arguments(), str(source), str(out)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode or not out.exists():
        said = " ".join((done.stderr or done.stdout).split())
        raise UserError(
            f"apply: h5repack could not repack {source} ({said}); allowed: a file that this"
            " version of h5repack reads"
        )
