"""Each kind of damage to a copy is found, and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from advisors.hdf5.copying import Repack, copy_file
from advisors.hdf5.repack import check_equal
from helpers.errors import UserError

Edit = Callable[[h5py.File], None]


def write(path: Path) -> None:
    """Write a file with one of everything."""
    text = h5py.string_dtype("ascii", 4)
    with h5py.File(path, "w", track_order=True) as f:
        f.attrs["zulu"], f.attrs["alpha"] = 1, "two"
        f["cloud_t"] = h5py.enum_dtype({"clear": 0, "rain": 1}, "u1")
        f.create_dataset("cloud", (3,), f["cloud_t"])[:] = [0, 1, 0]
        f.create_dataset("x", data=np.arange(10.0)).make_scale("x")
        v = f.create_dataset(
            "v", (4, 10), "f4", chunks=(2, 5), maxshape=(None, 10), fillvalue=-9, shuffle=True,
            compression="gzip", track_order=True,
        )  # fmt: skip
        v[:] = np.arange(40).reshape(4, 10)
        v.attrs["units"], v.attrs["axis"] = "m", np.float32(1)
        v.dims[1].attach_scale(f["x"])
        f.copy("v", "w", without_attrs=True)
        f["full"], f["enum"] = (
            np.array([b"full", b"gaps"], text),
            np.array([0, 1], f["cloud_t"].dtype),
        )
        lists = f.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))
        lists[0], lists[1] = [1, 2, 3], [4]
        f["words"] = ["a", "bb"]
        group = f.create_group("g", track_order=True)
        group["b"], group["a"] = 1, 2
        f["hard"], f["soft"] = f["v"], h5py.SoftLink("/v")
        f["away"] = h5py.ExternalLink("other.h5", "/v")
        f["refs"] = np.array([f["v"].ref, f["x"].ref], h5py.ref_dtype)
        f["pairs"] = np.array([(1, 2.0)], [("n", "i4"), ("x", "f8")])


def again(f: h5py.File, name: str, *, data: Any = None, dtype: Any = None, **changed: Any) -> None:
    """Make a dataset again with something changed, in its place and with its attributes."""
    old = f[name]
    given = dict(
        chunks=old.chunks, maxshape=old.maxshape, fillvalue=old.fillvalue, shuffle=old.shuffle,
        compression=old.compression, compression_opts=old.compression_opts, track_order=True,
    ) if old.chunks else {}  # fmt: skip
    values = old[...] if data is None else data
    new = f.create_dataset("new", data=values, dtype=dtype or old.dtype, **{**given, **changed})
    for key in old.attrs:
        kind = old.attrs.get_id(key)
        made = h5py.h5a.create(new.id, key.encode(), kind.get_type(), kind.get_space())
        values = np.empty(kind.shape, kind.dtype)
        kind.read(values)
        made.write(values)
    del f[name]
    f.move("new", name)


def set_item(name: str, at: Any, value: Any) -> Edit:
    """Give an edit of a value."""

    def edit(f: h5py.File) -> None:
        f[name][at] = value

    return edit


def set_text(at: int, value: bytes) -> Edit:
    """Give an edit of a text that fills its field."""

    def edit(f: h5py.File) -> None:
        values = f["full"][...]
        values[at] = value
        f["full"].id.write(h5py.h5s.ALL, h5py.h5s.ALL, values, mtype=f["full"].id.get_type())

    return edit


def reorder_attributes(name: str) -> Edit:
    """Give an edit that writes the first attribute again, as the last."""

    def edit(f: h5py.File) -> None:
        key, value = next(iter(f[name].attrs.items()))
        del f[name].attrs[key]
        f[name].attrs[key] = value

    return edit


def relink(name: str, link: Any) -> Edit:
    """Give an edit that lets a name lead elsewhere."""

    def edit(f: h5py.File) -> None:
        found = f[link[1:]] if link in ("=v", "=x") else link
        names = list(f)
        del f[name]
        f[name] = found
        for after in names[names.index(name) + 1 :]:  # the order stays
            f.move(after, "moved")
            f.move("moved", after)

    return edit


def detach_scale(f: h5py.File) -> None:
    """Take a dimension scale from its variable."""
    f["v"].dims[1].detach_scale(f["x"])


def set_reference(f: h5py.File) -> None:
    """Let a scale's list of variables lead to another object."""
    values = f["v"].attrs["DIMENSION_LIST"]
    values[1][0] = f["lists"].ref
    f["v"].attrs.modify("DIMENSION_LIST", values)


def break_reference(f: h5py.File) -> None:
    """Take away what a reference leads to, and put something else under its name."""
    f["refs"][0] = f["g/a"].ref
    del f["g/a"]
    f["g/a"] = 2


def untracked(f: h5py.File) -> None:
    """Make a group again without its order."""
    f.move("g", "old")
    f.create_group("g", track_order=False)
    for name in f["old"]:
        f.copy(f["old"][name], f["g"], name)
    del f["old"]


def reorder_links(f: h5py.File) -> None:
    """Let the first link of a group be its last."""
    f["g"].move("b", "c")
    f["g"].move("c", "b")


def as_plain_enum(f: h5py.File) -> None:
    """Take the name from the type of a variable, which readers of netCDF go by."""
    again(f, "cloud", dtype=f["cloud_t"].dtype)


UTF8, SHORT = h5py.string_dtype("utf-8", 4), h5py.string_dtype("ascii", 5)
DAMAGES: dict[str, tuple[Edit, str]] = {
    "value": (set_item("v", (1, 1), 0), "v .values"),
    "value of a contiguous variable": (set_item("x", 3, 0), "x .values"),
    "zero of another sign": (set_item("v", (0, 0), -0.0), "v .values"),
    "value of a list": (set_item("lists", 0, [1, 2, 4]), "lists .values"),
    "length of a list": (set_item("lists", 0, [1, 2]), "lists .values"),
    "word": (set_item("words", 1, "b"), "words .values"),
    "last letter of a full field": (set_text(0, b"fulL"), "full .values"),
    "value of an enum": (set_item("enum", 0, 1), "enum .values"),
    "attribute dropped": (lambda f: f["v"].attrs.__delitem__("units"), "v .attributes"),
    "attribute added": (lambda f: f["v"].attrs.__setitem__("more", 1), "v .attributes"),
    "attribute changed": (lambda f: f["v"].attrs.modify("units", "k"), "v@units"),
    "attribute's type": (lambda f: f.attrs.create("zulu", 1, dtype="i2"), "zulu|order of attributes"),
    "attribute's shape": (lambda f: f["v"].attrs.create("axis", [1], dtype="f4"), "axis|order of attr"),
    "attributes reordered": (reorder_attributes("v"), "v .order of attributes"),
    "global attributes reordered": (reorder_attributes("/"), "/ .order of attributes"),
    "type": (lambda f: again(f, "w", dtype="f8"), "w .(type|filters)"),
    "byte order": (lambda f: again(f, "w", dtype=">f4"), "w .type"),
    "name of a type": (as_plain_enum, "cloud .type"),
    "fill value": (lambda f: again(f, "w", fillvalue=0), "w .fill value"),
    "filter dropped": (lambda f: again(f, "w", shuffle=False), "w .filters"),
    "filter's option": (lambda f: again(f, "w", compression_opts=1), "w .filters"),
    "chunks": (lambda f: again(f, "w", chunks=(4, 5)), "w .chunks"),
    "unlimited dimension made fixed": (lambda f: again(f, "w", maxshape=(4, 10)), "w .shape or"),
    "layout": (lambda f: again(f, "full", chunks=(2,)), "full .layout"),
    "encoding of text": (lambda f: again(f, "full", dtype=UTF8, data=f["full"][...].astype(UTF8)), "full .type"),
    "length of text": (lambda f: again(f, "full", dtype=SHORT), "full .type"),
    "dimension scale detached": (detach_scale, "v .attributes|x .attributes"),
    "reference of a scale": (set_reference, "v@DIMENSION_LIST"),
    "reference": (set_item("refs", 0, None), "refs .values"),
    "reference broken": (break_reference, "refs|g/a"),
    "order of links lost": (untracked, "order of links"),
    "order of links": (reorder_links, "g/[ab] .order of links"),
    "dataset missing": (lambda f: f.__delitem__("lists"), "lists .link"),
    "dataset added": (lambda f: f.__setitem__("more", 1), "more .link"),
    "link to another object": (relink("hard", "=x"), "hard .link"),
    "copy instead of a hard link": (lambda f: again(f, "hard"), "hard .link"),
    "kind of link": (relink("soft", "=v"), "soft .link"),
    "soft link's target": (relink("soft", h5py.SoftLink("/x")), "soft .link"),
    "external link's file": (relink("away", h5py.ExternalLink("b.h5", "/v")), "away .link"),
    "external link's path": (relink("away", h5py.ExternalLink("other.h5", "/x")), "away .link"),
}  # fmt: skip


def keep_order(edit: Edit) -> Edit:
    """Move every link of the root after an edit, so that they come in the order that they had."""

    def edited(f: h5py.File) -> None:
        names = list(f)
        edit(f)
        if set(names) == set(f):
            for name in names:
                f.move(name, "moved")
                f.move("moved", name)

    return edited


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found(damage: str, tmp_path: Path) -> None:
    """A copy is equal; damaged, it is not, and the message says where."""
    edit, named = DAMAGES[damage]
    path, copy = tmp_path / "a.h5", tmp_path / "b.h5"
    write(path)
    with h5py.File(path) as source:
        copy_file(source, copy, Repack())
    assert "are equal" in check_equal(path, "a", copy)
    with h5py.File(copy, "r+") as f:
        keep_order(edit)(f)
    with pytest.raises(UserError, match=rf"^apply: the copy differs .*({named})[^\n]*$"):
        check_equal(path, "a", copy)


def test_padding_of_text_is_compared(tmp_path: Path) -> None:
    """A text that ends with a zero is another type than one that is filled with them."""
    for name, padding in (("a.h5", h5py.h5t.STR_NULLPAD), ("b.h5", h5py.h5t.STR_SPACEPAD)):
        kind = h5py.h5t.C_S1.copy()
        kind.set_size(4)
        kind.set_strpad(padding)
        with h5py.File(tmp_path / name, "w") as f:
            h5py.h5d.create(f.id, b"x", kind, h5py.h5s.create_simple((3,)))
    with pytest.raises(UserError, match="x .type"):
        check_equal(tmp_path / "a.h5", "a", tmp_path / "b.h5")


def test_rechunked_datasets_may_have_other_chunks_but_not_other_filters(tmp_path: Path) -> None:
    """Of what is rechunked, chunks are not compared; all else is."""
    path, copy = tmp_path / "a.h5", tmp_path / "b.h5"
    write(path)
    with h5py.File(path) as source:
        copy_file(source, copy, Repack(chunk_shapes=(("w", (4, 10)),)))
    assert "are equal" in check_equal(path, "a", copy, rechunked=["w"])
    with pytest.raises(UserError, match="w .chunks"):
        check_equal(path, "a", copy)
    with h5py.File(copy, "r+") as f:
        keep_order(lambda f: again(f, "w", compression=None, compression_opts=None))(f)
    with pytest.raises(UserError, match="w .filters"):
        check_equal(path, "a", copy, rechunked=["w"])
