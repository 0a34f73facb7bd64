"""Repacked copies hold the same content in another layout, and appear only if they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from advisors.hdf5.advice import choose_chunk_shape, list_repacks
from advisors.hdf5.cli import advise
from advisors.hdf5.copying import Repack, copy_file
from advisors.hdf5.files import open_source
from advisors.hdf5.inspection import Variable, inspect_file
from advisors.hdf5.prediction import record_repacked
from advisors.hdf5.repack import apply_repack, check_equal, check_sources
from helpers.errors import UserError

MIB = 2**20


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Make a file with everything that a copy can get wrong."""
    path, rng = tmp_path / "made.h5", np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.attrs["title"] = "text of variable length"
        file.attrs["full"] = np.bytes_("fills its field")
        file.attrs["none"] = h5py.Empty("f4")
        group = file.create_group("g", track_order=True)
        for number in range(6):
            made = group.create_dataset(
                f"v{number}", data=rng.normal(size=(40, 500)), chunks=(7, 90), compression="gzip"
            )
            made.attrs["units"] = "m"
        file["rows"] = np.arange(40)
        file["rows"].make_scale("row")
        file["g/v0"].dims[0].attach_scale(file["rows"])  # references both ways
        file["nan"] = np.array([np.nan, -0.0, 1.0], ">f4")
        file["text"] = ["a", "bb" * 40, ""]
        file["letters"] = np.array([b"a", b"b"], "S1")
        file["pair"] = np.array([(1, 2.0)], [("n", "i4"), ("x", "f8")])
        file["scalar"] = 3
        file["empty"] = np.zeros((0, 4))
        file["again"] = file["g/v1"]  # a second name of the same dataset
        file["soft"] = h5py.SoftLink("/g/v2")
        file["type"] = np.dtype("f4")
        file.create_dataset("loose", shape=(1000, 1000), dtype="f4", chunks=(100, 1000))[3] = 1.0
    return path


REPAIRS = (
    Repack(page_nbytes=65536),
    Repack(metadata_block_nbytes=MIB),
    Repack(65536, 0, (("g/v0", (20, 500)), ("g/v5", (40, 250)))),
)


@pytest.mark.parametrize("repack", REPAIRS, ids=lambda repack: repack.label)
def test_copy_is_equal_in_the_layout_asked_for(made: Path, tmp_path: Path, repack: Repack) -> None:
    """Values, attributes, types, links and references are kept; the input is not touched."""
    before, out = made.read_bytes(), tmp_path / "out.h5"
    assert "14 datasets" in apply_repack(str(made), repack, out)
    assert made.read_bytes() == before
    with open_source(str(out)) as file, h5py.File(out) as copy:
        report, recording = inspect_file(file, "out")
        assert report.page_nbytes == repack.page_nbytes
        for name, chunk_shape in repack.chunk_shapes:
            assert copy[name].chunks == chunk_shape
        assert copy[copy["g/v0"].attrs["DIMENSION_LIST"][0][0]].name == "/rows"
        assert copy["again"] == copy["g/v1"]
        if repack.metadata_block_nbytes:
            assert recording.metadata[-1][1] <= MIB
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


_NAMES = ("units", "long_name", "description", "_FillValue", "valid_min", "a", "b", "c", "d")


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(["m", 1.0, np.bytes_("x" * 300)])))
def test_attributes_lie_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, attributes: dict[str, Any]
) -> None:
    """A header that is continued elsewhere would move some of its attributes."""
    folder = tmp_path_factory.mktemp("attributes")
    with h5py.File(folder / "in.h5", "w") as file:
        group = file.create_group("g")
        group.attrs.update(attributes)
        for name, how in (("a", {"chunks": (100,), "compression": "gzip"}), ("b", {})):
            group.create_dataset(name, data=np.arange(900.0), **how).attrs.update(attributes)
    told = apply_repack(str(folder / "in.h5"), REPAIRS[1], folder / "out.h5")
    assert "are equal" in told


def _large_attribute(file: h5py.File) -> None:
    file.create_dataset("x", data=np.arange(9000.0), chunks=(100,)).attrs["big"] = np.zeros(3 * 10**6)  # fmt: skip


def _blosc(file: h5py.File) -> None:
    file.create_dataset("x", data=np.arange(9000.0), chunks=(1000,), **hdf5plugin.Blosc())


def _plain(file: h5py.File) -> None:
    file.create_dataset("x", data=np.arange(9000.0), chunks=(100,))


@pytest.mark.parametrize(
    ("fill", "how"),
    [
        (_large_attribute, {"libver": "latest"}),  # 24 MB, which no header holds
        (_blosc, {}),  # chunks as they are
        (_plain, {"userblock_size": 512}),
    ],
    ids=["large-attribute", "blosc", "user-block"],
)
def test_rare_files_are_advised_on_and_copied(
    fill: Any, how: dict[str, Any], tmp_path: Path
) -> None:
    """What few files have is kept, and no reason to refuse them."""
    path, out = tmp_path / "rare.h5", tmp_path / "out.h5"
    with h5py.File(path, "w", **how) as file:
        fill(file)
    with path.open("r+b") as raw:
        raw.write(b"told before HDF5 begins" * ("userblock_size" in how))
    with open_source(str(path)) as file:
        repack = list_repacks(inspect_file(file, "rare")[0])[-1]
    assert CliRunner().invoke(advise, [str(path)]).exception is None
    assert "1 datasets" in apply_repack(str(path), repack, out)
    n = how.get("userblock_size", 0)
    assert path.read_bytes()[:n] == out.read_bytes()[:n]
    assert (repack.page_nbytes == 0) == bool(n), "HDF5 refuses pages behind a user block"


def test_another_user_block_is_a_difference(tmp_path: Path) -> None:
    """What stands before the file is compared too."""
    for name, text in (("a.h5", b"one"), ("b.h5", b"two")):
        with h5py.File(tmp_path / name, "w", userblock_size=512) as file:
            _plain(file)
        with (tmp_path / name).open("r+b") as raw:
            raw.write(text)
    with pytest.raises(UserError, match="differs from the input at the user block"):
        check_equal(tmp_path / "a.h5", "a", tmp_path / "b.h5")


def test_missing_filter_is_named(tmp_path: Path) -> None:
    """A dataset whose filter is not here can be inspected, and not repacked."""
    path = tmp_path / "secret.h5"
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((10,))
        plist.set_filter(305, h5py.h5z.FLAG_OPTIONAL, ())  # a number that no plugin here has
        space = h5py.h5s.create_simple((20,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, dcpl=plist)
    with open_source(str(path)) as file:
        report, _ = inspect_file(file, "secret")
    with pytest.raises(UserError, match=r"'x' needs the filter .*305.*plugins"):
        report.variable("x").check_filters()
    with pytest.raises(UserError, match="305"):
        apply_repack(str(path), Repack(65536), tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.parametrize(
    ("shape", "chunk_shape", "n_chunks", "chosen"),
    [
        # one dimension: doubled to 4 MiB of 8-byte elements
        ((10_000_000,), (1_000,), 10_000, (512_000,)),
        # the dimension with the smallest share grows first
        ((1000, 100, 100), (1, 100, 100), 1000, (32, 100, 100)),
        # never beyond the array
        ((3000,), (1000,), 3, (3000,)),
        # large enough, or alone, or not chunked
        ((4_000_000,), (500_000,), 8, (500_000,)),
        ((100,), (1000,), 1, (1000,)),
        ((100,), (), 1, ()),
    ],
)
def test_chunks_are_enlarged(
    shape: tuple[int, ...], chunk_shape: tuple[int, ...], n_chunks: int, chosen: tuple[int, ...]
) -> None:
    """Small chunks come near to 4 MiB, others stay."""
    nbytes = 8 * int(np.prod(shape))
    variable = Variable("x", shape, "f8", chunk_shape, n_chunks, 1, nbytes, (), (), False, ())
    assert choose_chunk_shape(variable) == chosen


# what lies in other files


def _make_external(folder: Path) -> Path:
    """Make a file of which one dataset has its values in another file, shorter than the dataset."""
    (folder / "data.bin").write_bytes(np.arange(25, dtype="f8").tobytes())
    path = folder / "external.h5"
    with h5py.File(path, "w") as file:
        where = [(str(folder / "data.bin"), 0, h5py.h5f.UNLIMITED)]
        file.create_dataset("x", shape=(50,), dtype="f8", external=where)
        file["y"] = np.arange(3)
    return path


def test_external_files_are_never_written(tmp_path: Path) -> None:
    """A copy would keep the names of external files, and fill them: it is refused in one line."""
    path, out = _make_external(tmp_path), tmp_path / "out.h5"
    before = (tmp_path / "data.bin").read_bytes()
    with open_source(str(path)) as file:
        report, _ = inspect_file(file, "x")
        assert report.variable("x").other_files == (str(tmp_path / "data.bin"),)
        record_repacked(file, "x", Repack(65536), ["x", "y"])  # a model has no values at all
    with pytest.raises(UserError, match=r"^file: .*'/x'.*data\.bin[^\n]*; allowed: [^\n]*$"):
        apply_repack(str(path), Repack(65536), out)
    said = CliRunner().invoke(advise, [str(path)])
    assert "values in other files, not predicted: x" in said.output
    assert (tmp_path / "data.bin").read_bytes() == before
    assert not out.exists()


def _make_virtual(folder: Path, name: str, source: str) -> Path:
    """Make a file with a virtual dataset over two sources, of which one is made beside it."""
    layout = h5py.VirtualLayout((2, 4), "f8")
    for row in range(2):
        layout[row] = h5py.VirtualSource(source, f"row{row}", (4,))
    with h5py.File(folder / name, "w") as file:
        for row in range(2):
            if source == ".":
                file[f"row{row}"] = np.arange(4.0) + row
        file.create_virtual_dataset("x", layout, fillvalue=-9)
        file["y"] = np.arange(3)
    return folder / name


def _make_rows(path: Path, *, n_rows: int = 2, start: float = 0) -> None:
    with h5py.File(path, "w") as file:
        for row in range(n_rows):
            file[f"row{row}"] = np.arange(4.0) + row + start


def test_virtual_dataset_whose_sources_are_found_is_kept(tmp_path: Path) -> None:
    """A copy beside the file finds the same sources, and so does one in another folder by full paths."""
    _make_rows(tmp_path / "rows.h5")
    (tmp_path / "other").mkdir()
    apply_repack(
        str(_make_virtual(tmp_path, "beside.h5", "rows.h5")), Repack(65536), tmp_path / "1.h5"
    )
    whole = _make_virtual(tmp_path, "whole.h5", str(tmp_path / "rows.h5"))
    apply_repack(str(whole), Repack(65536), tmp_path / "other" / "2.h5")
    own = _make_virtual(tmp_path, "own.h5", ".")
    apply_repack(str(own), Repack(65536), tmp_path / "other" / "3.h5")
    for made in ("1.h5", "other/2.h5", "other/3.h5"):
        with h5py.File(tmp_path / made) as copy:
            assert copy["x"].is_virtual
            assert copy["x"][:].tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("rows", "out", "named"),
    [
        ({}, "out.h5", r"rows\.h5"),  # fill values would equal fill values
        ({"rows.h5": {"n_rows": 1}}, "out.h5", "row1"),  # the same, for one dataset of a source
        # the copy does not find what the file finds
        ({"rows.h5": {}}, "other/out.h5", r"rows\.h5.*other"),
        # it finds something else
        ({"rows.h5": {}, "other/rows.h5": {"start": 7}}, "other/out.h5", r"rows\.h5.*other"),
    ],
)
def test_virtual_dataset_without_its_sources_is_refused(
    tmp_path: Path, rows: dict[str, Any], out: str, named: str
) -> None:
    """Where a file or its copy would read fill values, nothing can be compared: one line."""
    (tmp_path / "other").mkdir()
    for name, how in rows.items():
        _make_rows(tmp_path / name, **how)
    path = _make_virtual(tmp_path, "virtual.h5", "rows.h5")
    with pytest.raises(UserError, match=named) as caught:
        apply_repack(str(path), Repack(65536), tmp_path / out)
    assert "\n" not in str(caught.value)
    left = {found.name for found in tmp_path.rglob("*")}
    assert left == {"virtual.h5", "other", *(Path(name).name for name in rows)}


def test_virtual_dataset_of_a_remote_file_is_refused(tmp_path: Path) -> None:
    """Sources of a file in object storage are not on this disk, whatever lies there."""
    _make_rows(tmp_path / "rows.h5")
    path = _make_virtual(tmp_path, "virtual.h5", "rows.h5")
    with h5py.File(path) as file, pytest.raises(UserError, match=r"rows\.h5.*s3://bucket"):
        check_sources(file, "s3://bucket/virtual.h5", None, tmp_path)


@pytest.mark.parametrize(
    ("link", "out", "is_kept"),
    [
        ("b.h5", "near.h5", True),  # next to the file
        ("gone.h5", "near.h5", True),  # it dangles from there too
        ("b.h5", "other/far.h5", False),  # another file has that name there
        ("gone.h5", "other/far.h5", False),  # or may have
        ("FOLDER/b.h5", "other/far.h5", True),
        ("FOLDER/gone/b.h5", "other/far.h5", False),  # found by its name where the file lies
    ],
)
def test_external_links_lead_where_they_led(
    link: str, out: str, is_kept: bool, tmp_path: Path
) -> None:
    """A copy in another folder whose relative link would lead to another file is refused."""
    (tmp_path / "other").mkdir()
    for number, folder in enumerate((tmp_path, tmp_path / "other")):
        with h5py.File(folder / "b.h5", "w") as file:
            file["x"] = number
    with h5py.File(tmp_path / "a.h5", "w") as file:
        _plain(file)
        file["away"] = h5py.ExternalLink(link.replace("FOLDER", str(tmp_path)), "/x")
    if is_kept:
        assert "equal" in apply_repack(str(tmp_path / "a.h5"), Repack(65536), tmp_path / out)
        return
    with pytest.raises(UserError, match=r"^file: .*the link '/away' leads to [^\n]*; allowed: "):
        apply_repack(str(tmp_path / "a.h5"), Repack(65536), tmp_path / out)
    assert not (tmp_path / out).exists()


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
