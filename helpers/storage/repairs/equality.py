"""Whether two HDF5 files have the same content, whatever their layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from helpers.errors import UserError
from helpers.storage.repairs.inspection import list_datasets, list_sources, refuse_external
from helpers.storage.repairs.sources import open_hdf5

_SLAB_NBYTES = 64 * 2**20


def check_sources(file: h5py.File, name: str, folders: Sequence[Path | None]) -> bool:
    """Refuse values in other files that a file and its copy do not both find.

    The library reads fill values where it finds nothing, in both of them, so
    that they would compare as equal.

    Parameters
    ----------
    file : h5py.File
        Open for reading.
    name : str
        How messages call it.
    folders : sequence of Path or None
        Where the file and its copy lie; None in object storage.

    Returns
    -------
    bool
        Whether datasets have sources in other files.

    Raises
    ------
    UserError
        If a dataset has values in an external file, or a source is not found.
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
    """Compare every object, dataset and attribute of a file with those of its copy.

    Parameters
    ----------
    file : file object or Path
        HDF5 file; its path where virtual datasets have sources beside it.
    name : str
        How messages call it.
    copy : Path
        The copy.

    Returns
    -------
    str
        How many were compared.

    Raises
    ------
    UserError
        If anything differs; the first difference is named.
    """
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


def list_objects(one: h5py.File, other: h5py.File) -> list[str]:
    """Return the paths of all objects, after comparing the links to them.

    Parameters
    ----------
    one, other : h5py.File
        Open files.

    Returns
    -------
    list of str
        Paths, each object once.

    Raises
    ------
    UserError
        If the files do not have the same links.
    """
    links = [dict(_iterate_links(file)) for file in (one, other)]
    if links[0] != links[1]:
        differing = sorted(
            key for key in {*links[0], *links[1]} if links[0].get(key) != links[1].get(key)
        )
        raise _differ(differing[0], "link")
    names = ["/"]
    one.visit(names.append)
    return names


def _iterate_links(file: h5py.File) -> Iterator[tuple[str, tuple[str, ...]]]:
    def visit(name: str, link: Any) -> None:
        found.append((name, (type(link).__name__, *_targets(link))))

    found: list[tuple[str, tuple[str, ...]]] = []
    file.visititems_links(visit)
    yield from found


def _targets(link: Any) -> tuple[str, ...]:
    names = ("filename", "path")
    return tuple(str(getattr(link, name)) for name in names if hasattr(link, name))


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
    """Cut a dataset along its first dimension, into slabs of some tens of MB.

    Parameters
    ----------
    dataset : h5py.Dataset
        Any.

    Yields
    ------
    slice or tuple
        What to select.
    """
    if not dataset.shape:
        yield ()
        return
    row_nbytes = max(1, dataset.size // max(1, dataset.shape[0]) * dataset.dtype.itemsize)
    deep = dataset.chunks[0] if dataset.chunks else 1
    step = max(deep, _SLAB_NBYTES // row_nbytes // deep * deep)
    for start in range(0, dataset.shape[0], step):
        yield slice(start, start + step)


def are_equal(one: Any, other: Any, files: tuple[h5py.File, h5py.File]) -> bool:
    """Compare values bit by bit; references by the paths that they lead to.

    Parameters
    ----------
    one, other : array or value
        As h5py reads them.
    files : tuple of h5py.File
        Where references lead.

    Returns
    -------
    bool
        Whether they are the same.
    """
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
