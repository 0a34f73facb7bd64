"""Whether a copy of an HDF5 file holds the same content: by h5py, and by the tools that are there."""

from __future__ import annotations

import collections
import itertools
import shutil
import subprocess
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from advisors.hdf5.copying import get_token, list_attributes, read_stored
from advisors.hdf5.inspection import list_sources, refuse_external
from advisors.hdf5.recording import (
    LIBRARY_ERRORS,
    iterate_blocks,
    iterate_chunks,
    list_datasets,
    open_hdf5,
    shorten_error,
)
from helpers.errors import UserError, cut


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


@dataclass(frozen=True, slots=True)
class _Tree:
    """The links of a file, in the order in which its groups give them."""

    file: h5py.File
    # by path: the kind of a link, and where it leads; of a hard link, the first path to its object
    links: dict[str, tuple[str, ...]] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)  # the first path to each object

    def walk(self, group: h5py.Group, prefix: str = "") -> None:
        self.paths.setdefault(get_token(group.id), prefix or "/")
        for key in group:
            link, path = group.get(key, getlink=True), f"{prefix}/{key}"
            if not isinstance(link, h5py.HardLink):
                places = (getattr(link, part, "") for part in ("filename", "path"))
                self.links[path] = (type(link).__name__, *map(str, places))
                continue
            found = group[key]
            first = self.paths.setdefault(get_token(found.id), path)
            self.links[path] = (type(found).__name__, first)
            if first == path and isinstance(found, h5py.Group):
                self.walk(found, path)

    def name_type(self, found: Any) -> str:
        """Return the path to a type that has one."""
        return (
            self.paths.get(get_token(found), "a type without a link") if found.committed() else ""
        )

    def follow(self, reference: h5py.Reference) -> Any:
        """Say what a reference leads to: an object, or a region of it."""
        if not reference:
            return None
        path = self.paths.get(get_token(self.file[reference].id), "an object without a link")
        if isinstance(reference, h5py.RegionReference):
            return path, h5py.h5r.get_region(reference, self.file.id).encode()
        return path


def check_equal(path: Any, name: str, copy: Path, *, rechunked: Collection[str] = ()) -> str:
    """Compare all that a file says with what its copy says, from the folder of each.

    Compared are links and their order, attributes and theirs, types, extents, fill values,
    filters, chunks but for those of datasets that were `rechunked`, and every value.
    """
    with open_hdf5(path, name) as source, open_hdf5(copy, str(copy)) as made:
        pair = _Pair(_Tree(source), _Tree(made), frozenset(one.strip("/") for one in rechunked))
        for tree in (pair.one, pair.other):
            tree.walk(tree.file)
        n_datasets, n_attributes = pair.compare()
    return f"{n_datasets} datasets and {n_attributes} attributes are equal"


@dataclass(frozen=True, slots=True)
class _Pair:
    """A file and its copy."""

    one: _Tree
    other: _Tree
    rechunked: frozenset[str]

    def compare(self) -> tuple[int, int]:
        """Compare all objects; give the number of datasets and of attributes."""
        self.compare_links()
        n_datasets = n_attributes = 0
        for path in self.one.paths.values():
            shown = path.strip("/") or "/"
            try:
                ours, theirs = self.one.file[path], self.other.file[path]
                n_attributes += self.compare_attributes(ours, theirs, shown)
                self.compare_objects(ours, theirs, shown)
                n_datasets += isinstance(ours, h5py.Dataset)
            except UserError:
                raise
            except LIBRARY_ERRORS as error:
                raise differ(shown, shorten_error(error)) from error
        return n_datasets, n_attributes

    def compare_links(self) -> None:
        ours, theirs = self.one.links, self.other.links
        if different := ours.items() ^ theirs.items():
            raise differ(min(different)[0].strip("/"), "link")
        for one, other in zip(ours, theirs, strict=True):
            if one != other:
                raise differ(one.strip("/"), "order of links")

    def compare_attributes(self, one: Any, other: Any, path: str) -> int:
        if set(one.attrs) != set(other.attrs):
            raise differ(path, "attributes")
        if list_attributes(one) != list_attributes(other):
            raise differ(path, "order of attributes")
        for key in one.attrs:
            ours, theirs = one.attrs.get_id(key), other.attrs.get_id(key)
            types, spaces = (
                (ours.get_type(), theirs.get_type()),
                (ours.get_space(), theirs.get_space()),
            )
            if not self.are_types_equal(*types) or not _are_spaces_equal(*spaces):
                raise differ(f"{path}@{key}", "type")
            is_empty = spaces[0].get_simple_extent_type() == h5py.h5s.NULL
            if not is_empty and not self.are_equal(_read(ours), _read(theirs)):
                raise differ(f"{path}@{key}", "value")
        return len(one.attrs)

    def compare_objects(self, one: Any, other: Any, path: str) -> None:
        if isinstance(one, h5py.Datatype):
            if not self.are_types_equal(one.id, other.id):
                raise differ(path, "type")
            return
        plists = one.id.get_create_plist(), other.id.get_create_plist()
        kept = _list_kept(
            is_dataset=isinstance(one, h5py.Dataset), is_rechunked=path in self.rechunked
        )
        for what, get in kept.items():
            if get(plists[0]) != get(plists[1]):
                raise differ(path, what)
        if isinstance(one, h5py.Dataset):
            self.compare_datasets(one, other, path)

    def compare_datasets(self, one: h5py.Dataset, other: h5py.Dataset, path: str) -> None:
        if not self.are_types_equal(one.id.get_type(), other.id.get_type()):
            raise differ(path, "type")
        if not _are_spaces_equal(one.id.get_space(), other.id.get_space()):
            raise differ(path, "shape or limits")
        if not self.are_equal(_read_fill(one), _read_fill(other)):
            raise differ(path, "fill value")
        if one.is_virtual and _list_mappings(one) != _list_mappings(other):
            raise differ(path, "sources")
        if one.shape is None or _are_stored_equal(one, other):
            return
        for region in iterate_blocks(one, other):
            if not self.are_equal(read_stored(one, region), read_stored(other, region)):
                raise differ(path, "values")

    def are_types_equal(self, one: Any, other: Any) -> bool:
        """Compare types as they are in the files, and whether they have the same name there."""
        if type(one) is not type(other) or self.one.name_type(one) != self.other.name_type(other):
            return False
        if isinstance(one, h5py.h5t.TypeCompoundID):
            counts = one.get_nmembers(), other.get_nmembers()
            return counts[0] == counts[1] and all(
                one.get_member_name(n) == other.get_member_name(n)
                and one.get_member_offset(n) == other.get_member_offset(n)
                and self.are_types_equal(one.get_member_type(n), other.get_member_type(n))
                for n in range(counts[0])
            )
        if isinstance(one, h5py.h5t.TypeArrayID) and one.get_array_dims() != other.get_array_dims():
            return False
        if isinstance(one, (h5py.h5t.TypeArrayID, h5py.h5t.TypeVlenID)):
            return self.are_types_equal(one.get_super(), other.get_super())
        if isinstance(one, h5py.h5t.TypeStringID):
            return _describe_text(one) == _describe_text(other)
        if isinstance(one, h5py.h5t.TypeReferenceID):
            return h5py.check_ref_dtype(one.dtype) is h5py.check_ref_dtype(other.dtype)
        return bool(one.equal(other))

    def are_equal(self, one: Any, other: Any) -> bool:
        """Compare values bit by bit; references by what they lead to."""
        if isinstance(one, h5py.Reference) and isinstance(other, h5py.Reference):
            return bool(self.one.follow(one) == self.other.follow(other))
        if isinstance(one, (str, bytes)):
            return bool(one == other)
        ours, theirs = np.asarray(one), np.asarray(other)
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return False
        if not ours.dtype.hasobject:
            return ours.tobytes() == theirs.tobytes()
        if ours.dtype.fields:
            return all(self.are_equal(ours[key], theirs[key]) for key in ours.dtype.fields)
        pairs = zip(ours.ravel().tolist(), theirs.ravel().tolist(), strict=True)
        return all(a == b if not _is_nested(a) else self.are_equal(a, b) for a, b in pairs)


def _list_kept(*, is_dataset: bool, is_rechunked: bool) -> dict[str, Callable[[Any], Any]]:
    """List what an object is created with that its copy has to keep."""
    kept: dict[str, Callable[[Any], Any]] = {
        "whether the order of attributes is tracked": lambda p: p.get_attr_creation_order(),
    }
    if not is_dataset:
        kept["whether the order of links is tracked"] = lambda p: p.get_link_creation_order()
        return kept
    kept["layout"] = lambda p: p.get_layout()
    kept["filters"] = lambda p: _list_filters(p, with_options=not is_rechunked)
    if not is_rechunked:
        kept["chunks"] = lambda p: p.get_layout() == h5py.h5d.CHUNKED and p.get_chunk()
    kept["whether a fill value is defined"] = lambda p: p.fill_value_defined()
    return kept


def _list_filters(plist: Any, *, with_options: bool) -> list[Any]:
    """List filters by number, with their options, which of some name the bytes of a chunk."""
    found = [plist.get_filter(number) for number in range(plist.get_nfilters())]
    return [(code, flags, values if with_options else ()) for code, flags, values, _ in found]


def _describe_text(found: Any) -> tuple[Any, ...]:
    is_variable = found.is_variable_str()
    return is_variable, is_variable or found.get_size(), found.get_cset(), found.get_strpad()


def _are_spaces_equal(one: Any, other: Any) -> bool:
    kind = one.get_simple_extent_type()
    if kind != other.get_simple_extent_type():
        return False
    extents = (
        (found.get_simple_extent_dims(), found.get_simple_extent_dims(True))
        for found in (one, other)
    )
    return kind != h5py.h5s.SIMPLE or next(extents) == next(extents)


def _list_mappings(dataset: h5py.Dataset) -> list[tuple[Any, ...]]:
    """List the parts of a virtual dataset, and what each is a part of."""
    return [
        (found.file_name, found.dset_name, found.vspace.encode(), found.src_space.encode())
        for found in dataset.virtual_sources()
    ]


def _are_stored_equal(one: h5py.Dataset, other: h5py.Dataset) -> bool:
    """Compare chunks as they are stored, which costs no decoding; what is in heaps is not there."""
    if one.chunks is None or one.chunks != other.chunks or one.dtype.hasobject:
        return False
    ours, theirs = ([corner for corner, *_ in iterate_chunks(found)] for found in (one, other))
    return ours == theirs and all(
        one.id.read_direct_chunk(corner) == other.id.read_direct_chunk(corner) for corner in ours
    )


def _read(attribute: Any) -> Any:
    values = np.empty(attribute.shape, attribute.dtype)
    if values.dtype.hasobject:
        attribute.read(values)
    else:  # as stored
        attribute.read(values, mtype=attribute.get_type())
    return values


def _read_fill(dataset: h5py.Dataset) -> Any:
    return None if dataset.is_virtual and dataset.dtype.hasobject else dataset.fillvalue


def _is_nested(value: Any) -> bool:
    return isinstance(value, (h5py.Reference, np.ndarray, np.generic))


def differ(path: str, what: str) -> UserError:
    """Say where a copy differs."""
    return UserError(
        f"apply: the copy differs from the input at {path or '/'} ({what}), and was not kept;"
        " allowed: a file that the tool copies faithfully"
    )


_SHOWN_NBYTES = 10**9  # of values, above which tools that show or compare each one take too long


def ask_tools(file: Path, copy: Path, *, nbytes: int) -> str:
    """Let HDF5's and netCDF's own tools compare as well, where they are and can read the file."""
    is_whole = nbytes <= _SHOWN_NBYTES
    judges = [name for name, ask in (("h5diff", _ask_h5diff), ("ncdump", _ask_ncdump))
              if shutil.which(name) and ask(file, copy, is_whole=is_whole)]  # fmt: skip
    return f", for {' and '.join(judges)} too" if judges else ""


def _ask_h5diff(file: Path, copy: Path, *, is_whole: bool) -> bool:
    """Compare by HDF5's tool; False where it cannot read both, or would take too long."""
    if not is_whole:
        return False
    argv = ["h5diff", str(file), str(copy)]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 1:
        raise differ("some object", f"h5diff: {' '.join(done.stdout.split())[:200]}")
    return done.returncode == 0


def _ask_ncdump(file: Path, copy: Path, *, is_whole: bool) -> bool:
    """Compare the text that netCDF's tool makes of both; False where it cannot read the file."""
    options = [] if is_whole else ["-h"]
    running = [
        subprocess.Popen(
            ["ncdump", *options, "-n", "same", str(path)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace",
        )
        for path in (file, copy)
    ]  # fmt: skip
    with running[0] as one, running[1] as other:
        lines = itertools.zip_longest(one.stdout or (), other.stdout or (), fillvalue="(no line)")
        found = next((pair for pair in lines if pair[0] != pair[1]), None)
        if found:
            other.kill()
            collections.deque(one.stdout or (), maxlen=0)  # to its end: it may yet fail
    if one.returncode:
        return False
    if found or other.returncode:
        lines_told = " / ".join(part.strip() for part in found or ("", "it cannot read the copy"))
        raise differ("some object", f"ncdump: {cut(lines_told)}")
    return True
