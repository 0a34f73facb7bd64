"""A repacked copy, which appears where all that it holds is equal to the input."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from advisors.hdf5.copying import (
    MIB,
    Repack,
    copy_file,
    get_token,
    list_attributes,
    read_stored,
    refuse_external,
)
from advisors.hdf5.files import (
    LIBRARY_ERRORS,
    Source,
    get_filters,
    is_near,
    iterate_blocks,
    iterate_chunks,
    list_datasets,
    name_source,
    open_hdf5,
    open_source,
    shorten_error,
)
from advisors.hdf5.inspection import inspect_file, list_sources
from helpers.errors import UserError


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
            path = Path(name)
            if not is_near(source):
                path = Path(folder) / "source.h5"
                file.seek(0)
                with path.open("wb") as fetched:
                    shutil.copyfileobj(file, fetched, 8 * MIB)
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
            copy_file(opened, made, repack)
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


def check_sources(file: h5py.File, name: str, folder: Path | None, out_folder: Path) -> None:
    """Refuse what lies in other files that a file and its copy in another folder do not both find.

    Of a virtual dataset whose sources are gone the library reads fill values, and a relative link
    may lead to another file of that name: both would compare as equal. It
    lies in `folder`, None where it is far away.
    """
    asked = list[tuple[str, str, str]]()  # what asks for a file, its name, and a dataset in it
    for path in list_datasets(file):
        refuse_external(file[path], name)
        sources = dict.fromkeys(list_sources(file[path]))
        who = f"the virtual dataset {path!r}"
        asked += [(who, _first(other), _first(key)) for other, key in sources]
    tree = _Tree(file)
    tree.walk(file)
    for path, (kind, *leads_to) in tree.links.items():
        if kind == h5py.ExternalLink.__name__:
            asked.append((f"the link {path!r}", leads_to[0], ""))
    for who, other, key in asked:
        places = [place and _find(place, other) for place in (folder, out_folder)]
        if not _lead_to_one(places[0], places[1], key):
            what = f"{key!r} in {other!r}" if key else repr(other)
            raise UserError(
                f"file: {name}: {who} leads to {what}, which is not there, or not the same file,"
                f" from {folder or name} and from {out_folder}; allowed: a copy in the folder of the"
                " file, from where all that it leads to is there"
            )


def _first(pattern: str) -> str:
    """Return the first of the names that a pattern of HDF5 stands for."""
    return pattern.replace("%%", "\0").replace("%b", "0").replace("\0", "%")


def _find(folder: Path, name: str) -> Path:
    """Find another file as the library does: where it is said to be, or else by its name here."""
    path = folder / name  # which is `name` where that is absolute
    return path if path.exists() else folder / path.name


def _lead_to_one(ours: Path | None, theirs: Path | None, key: str) -> bool:
    """Tell whether two paths lead to one file, which has a dataset of that name if one is given.

    A link that dangles here may lead somewhere from another folder.
    """
    if ours is None or theirs is None:
        return False
    if not key and not ours.exists():
        return ours.parent.resolve() == theirs.parent.resolve()
    try:
        if not key:
            return ours.samefile(theirs)
        with h5py.File(ours, "r") as file:
            return isinstance(file.get(key), h5py.Dataset) and ours.samefile(theirs)
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

    def describe(self, found: Any, *, is_rechunked: bool) -> dict[str, Any]:
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
        # options of some filters name the bytes of a chunk
        filters = [given[: 2 if is_rechunked else 3] for given in get_filters(found)]
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


def check_equal(path: Path, name: str, copy: Path, *, rechunked: Collection[str] = ()) -> str:
    """Compare all that a file says with what its copy says, from the folder of each.

    Compared are links and their order, attributes and theirs, types, extents, fill values,
    filters, chunks but for those of datasets that were `rechunked`, every value, and the bytes of
    the block before the beginning.
    """
    n_datasets = n_attributes = 0
    with open_hdf5(path, name) as source, open_hdf5(copy, str(copy)) as made:
        if source.userblock_size != made.userblock_size:
            raise differ("the length of the user block")
        with path.open("rb") as ours, copy.open("rb") as theirs:
            if ours.read(source.userblock_size) != theirs.read(source.userblock_size):
                raise differ("the user block")
        one, other = _Tree(source), _Tree(made)
        for tree in (one, other):
            tree.walk(tree.file)
        if different := one.links.items() ^ other.links.items():
            raise differ(f"{min(different)[0].strip('/')} (link)")
        for link, at in zip(one.links, other.links, strict=True):
            if link != at:
                raise differ(f"{link.strip('/')} (order of links)")
        for at in one.paths.values():
            try:
                _compare_objects(one, other, at, is_rechunked=at.strip("/") in rechunked)
            except UserError:
                raise
            except LIBRARY_ERRORS as error:
                raise differ(f"{at.strip('/')} ({shorten_error(error)})") from error
            n_attributes += len(source[at].attrs)
            n_datasets += isinstance(source[at], h5py.Dataset)
    return f"{n_datasets} datasets and {n_attributes} attributes are equal"


def _compare_objects(one: _Tree, other: _Tree, path: str, *, is_rechunked: bool) -> None:
    ours, theirs, shown = one.file[path], other.file[path], path.strip("/") or "/"
    told, found = (
        tree.describe(each, is_rechunked=is_rechunked)
        for tree, each in ((one, ours), (other, theirs))
    )
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
