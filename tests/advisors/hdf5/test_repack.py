"""Repacked copies hold the same content in another layout, and appear only if they do."""

from __future__ import annotations

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
from advisors.hdf5.copying import Repack
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
