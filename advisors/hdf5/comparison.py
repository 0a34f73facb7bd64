"""Whether a copy of an HDF5 file holds the same content: by h5py, and by the tools that are there."""

from __future__ import annotations

import collections
import itertools
import shutil
import subprocess
from collections.abc import Collection, Sequence
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


_LOSSLESS = (1, 2, 3)  # deflate, shuffle, fletcher32, as HDF5 registers them


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

    def describe(self, found: Any, *, is_rechunked: bool, is_refiltered: bool) -> dict[str, Any]:
        """Say what a copy has to keep of an object, but for the values of a dataset."""
        told: dict[str, Any] = {" (attributes)": set(found.attrs)}
        told[" (order of attributes)"] = list_attributes(found)
        for key in found.attrs:
            attribute = found.attrs.get_id(key)
            kind, extents = attribute.get_type(), _describe_space(attribute.get_space())
            told[f"@{key} (type)"] = self.describe_type(kind), extents
            told[f"@{key} (value)"] = extents and self.make_plain(_read(attribute))
        if isinstance(found, h5py.Datatype):
            return told | {" (type)": self.describe_type(found.id)}
        plist = found.id.get_create_plist()
        told[" (order of attributes lost)"] = plist.get_attr_creation_order()
        if isinstance(found, h5py.Group):
            return told | {" (order of links lost)": plist.get_link_creation_order()}
        filters = [plist.get_filter(number)[:3] for number in range(plist.get_nfilters())]
        if is_rechunked:  # options of some filters name the bytes of a chunk
            filters = [given[:2] for given in filters]
        if is_rechunked and is_refiltered:  # which keeps the values
            filters = [given for given in filters if given[0] not in _LOSSLESS]
        return told | {
            " (layout)": plist.get_layout(),
            " (chunks)": None if is_rechunked else found.chunks,
            " (filters)": filters,
            " (type)": self.describe_type(found.id.get_type()),
            " (shape or limits)": _describe_space(found.id.get_space()),
            " (fill value)": (plist.fill_value_defined(), self.make_plain(found.fillvalue)),
            " (sources)": found.is_virtual and [
                (part.file_name, part.dset_name, *map(_encode_mapping, (part.vspace, part.src_space)))
                for part in found.virtual_sources()
            ],
        }  # fmt: skip

    def describe_type(self, found: Any) -> Any:
        """Describe a type as it is in the file, and what it is called there."""
        told: list[Any] = [type(found).__name__, found.get_size()]
        if found.committed():
            told.append(self.paths.get(get_token(found)))
        if isinstance(found, h5py.h5t.TypeCompoundID):
            for n in range(found.get_nmembers()):
                told += [found.get_member_name(n), found.get_member_offset(n)]
                told.append(self.describe_type(found.get_member_type(n)))
        elif isinstance(found, h5py.h5t.TypeEnumID):
            members = range(found.get_nmembers())
            told += [(found.get_member_name(n), found.get_member_value(n)) for n in members]
            told.append(self.describe_type(found.get_super()))
        elif isinstance(found, h5py.h5t.TypeArrayID):
            told += [found.get_array_dims(), self.describe_type(found.get_super())]
        elif isinstance(found, h5py.h5t.TypeVlenID):
            told.append(self.describe_type(found.get_super()))
        elif isinstance(found, h5py.h5t.TypeStringID):
            told += [found.is_variable_str(), found.get_cset(), found.get_strpad()]
        elif isinstance(found, h5py.h5t.TypeReferenceID):
            told.append(h5py.check_ref_dtype(found.dtype))
        else:  # its third byte holds the version of the encoding as well
            code = found.encode()
            told += [code[2] & 0xF, code[3:]]
        return told

    def make_plain(self, value: Any) -> Any:
        """Turn values into what compares bit by bit; references into what they lead to."""
        if isinstance(value, h5py.Reference):
            return self.follow(value)
        if value is None or isinstance(value, (str, bytes, h5py.Empty)):
            return value
        values = np.asarray(value)
        if not values.dtype.hasobject:
            return values.shape, values.dtype, values.tobytes()
        if values.dtype.fields:
            return [self.make_plain(values[key]) for key in values.dtype.fields]
        return values.shape, [self.make_plain(one) for one in values.ravel().tolist()]

    def follow(self, reference: h5py.Reference) -> Any:
        """Say what a reference leads to: an object, or a region of it."""
        if not reference:
            return None
        path = self.paths.get(get_token(self.file[reference].id), "an object without a link")
        if isinstance(reference, h5py.RegionReference):
            return path, h5py.h5r.get_region(reference, self.file.id).encode()
        return path


def check_equal(
    path: Any,
    name: str,
    copy: Path,
    *,
    rechunked: Collection[str] = (),
    is_refiltered: bool = False,
) -> str:
    """Compare all that a file says with what its copy says, from the folder of each.

    Compared are links and their order, attributes and theirs, types, extents, fill values,
    filters, chunks but for those of datasets that were `rechunked`, and every value. Where
    these were `is_refiltered` too, they may have deflate, shuffle and checksum, or none.
    """
    n_datasets = n_attributes = 0
    with open_hdf5(path, name) as source, open_hdf5(copy, str(copy)) as made:
        one, other = _Tree(source), _Tree(made)
        for tree in (one, other):
            tree.walk(tree.file)
        _compare_links(one.links, other.links)
        for at in one.paths.values():
            try:
                is_rechunked = at.strip("/") in rechunked
                anew = {"is_rechunked": is_rechunked, "is_refiltered": is_refiltered}
                _compare_objects(one, other, at, **anew)
            except UserError:
                raise
            except LIBRARY_ERRORS as error:
                raise differ(f"{at.strip('/')} ({shorten_error(error)})") from error
            n_attributes += len(source[at].attrs)
            n_datasets += isinstance(source[at], h5py.Dataset)
    return f"{n_datasets} datasets and {n_attributes} attributes are equal"


def _compare_links(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    if different := ours.items() ^ theirs.items():
        raise differ(f"{min(different)[0].strip('/')} (link)")
    for one, other in zip(ours, theirs, strict=True):
        if one != other:
            raise differ(f"{one.strip('/')} (order of links)")


def _compare_objects(one: _Tree, other: _Tree, path: str, **anew: bool) -> None:
    ours, theirs, shown = one.file[path], other.file[path], path.strip("/") or "/"
    told, found = one.describe(ours, **anew), other.describe(theirs, **anew)
    for what, value in told.items():
        if what not in found or value != found[what]:
            raise differ(f"{shown}{what}")
    if not isinstance(ours, h5py.Dataset) or ours.shape is None or _are_stored_equal(ours, theirs):
        return
    for region in iterate_blocks(ours, theirs):
        parts = read_stored(ours, region), read_stored(theirs, region)
        if one.make_plain(parts[0]) != other.make_plain(parts[1]):
            raise differ(f"{shown} (values)")


def _describe_space(found: Any) -> tuple[Any, ...]:
    """Give the extents of a space and their limits; nothing for the space of no values."""
    kind = found.get_simple_extent_type()
    if kind == h5py.h5s.NULL:
        return ()
    return kind, found.get_simple_extent_dims(), found.get_simple_extent_dims(True)


def _encode_mapping(found: Any) -> bytes:
    """Encode what a virtual dataset maps; where it has no limit, the extent is what was there last."""
    space, limits = found.copy(), found.get_simple_extent_dims(True)
    dims = zip(found.get_simple_extent_dims(), limits, strict=True)
    space.set_extent_simple(tuple(0 if top == h5py.h5s.UNLIMITED else n for n, top in dims), limits)
    return bytes(space.encode())


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


def differ(where: str) -> UserError:
    """Say where a copy differs, and in what."""
    return UserError(
        f"apply: the copy differs from the input at {where}, and was not kept;"
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
        raise differ(f"some object (h5diff: {' '.join(done.stdout.split())[:200]})")
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
        raise differ(f"some object (ncdump: {cut(lines_told)})")
    return True
