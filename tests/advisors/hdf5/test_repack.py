"""What the metadata say is so, and repacked copies hold the same content in another layout."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from advisors.hdf5 import advice
from advisors.hdf5.cli import advise
from advisors.hdf5.comparison import ask_tools, check_equal, check_sources
from advisors.hdf5.copying import copy_file
from advisors.hdf5.inspection import Variable, inspect_file, merge_spans
from advisors.hdf5.prediction import record_repacked
from advisors.hdf5.recording import LoggedFile, list_tree, open_hdf5, open_source, record_reads
from advisors.hdf5.repack import (
    Repack,
    apply_repack,
    choose_chunk_shape,
    find_tool,
    list_repacks,
)
from helpers.errors import UserError
from helpers.netem.profiles import get_profile

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
    assert "made by h5py; 14 datasets" in apply_repack(str(made), repack, out)
    assert made.read_bytes() == before
    with open_source(str(out)) as file, h5py.File(out) as copy:
        report = inspect_file(file, "out")
        assert report.page_nbytes == repack.page_nbytes
        for name, chunk_shape in repack.chunk_shapes:
            assert copy[name].chunks == chunk_shape
        assert copy[copy["g/v0"].attrs["DIMENSION_LIST"][0][0]].name == "/rows"
        assert copy["again"] == copy["g/v1"]
        if repack.metadata_block_nbytes:
            assert report.metadata_end <= MIB
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("repack", REPAIRS, ids=lambda repack: repack.label)
def test_model_says_what_the_copy_will_be_asked(made: Path, tmp_path: Path, repack: Repack) -> None:
    """Raw data lie in the copy where the model has them, as far as chunks stay as they are."""
    variables, out = ["g/v3", "loose"], tmp_path / "out.h5"
    with open_source(str(made)) as file:
        predicted = record_repacked(file, "made", repack, variables)
    apply_repack(str(made), repack, out)
    with open_source(str(out)) as file:
        found = record_reads(file, "out", variables)
    raw = [
        [read.nbytes for read in recording.reads if read.phase == "read" and not read.is_metadata]
        for recording in (predicted, found)
    ]
    assert raw[0] == raw[1]
    assert len(predicted.reads) == pytest.approx(len(found.reads), rel=0.1)
    assert predicted.file_nbytes == pytest.approx(found.file_nbytes, rel=0.1)


_NAMES = ("units", "long_name", "description", "_FillValue", "valid_min", "a", "b", "c", "d")


@given(st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(["m", 1.0, np.bytes_("x" * 300)])))
def test_attributes_lie_in_their_order(
    tmp_path_factory: pytest.TempPathFactory, attributes: dict[str, Any]
) -> None:
    """Without `h5repack` too: a header that is continued elsewhere moves some of its attributes."""
    folder = tmp_path_factory.mktemp("attributes")
    with h5py.File(folder / "in.h5", "w") as file:
        group = file.create_group("g")
        group.attrs.update(attributes)
        for name, how in (("a", {"chunks": (100,), "compression": "gzip"}), ("b", {})):
            group.create_dataset(name, data=np.arange(900.0), **how).attrs.update(attributes)
    told = apply_repack(str(folder / "in.h5"), REPAIRS[1], folder / "out.h5", tool="h5py")
    assert "are equal" in told


def test_recorded_reads_are_those_of_the_library(made: Path) -> None:
    """The library asks for the chunks that the metadata name, in this order, and for nothing else."""
    variables = ["g/v3", "nan", "loose", "letters"]
    with open_source(str(made)) as file:
        recording = record_reads(file, "made", variables)
        log = LoggedFile(file)
        with open_hdf5(log, "made") as opened:
            list_tree(opened)
            for variable in variables:
                opened[variable][...]
    assert [(read.offset, read.nbytes) for read in recording.reads] == log.spans


def test_report_counts_what_is_there(made: Path) -> None:
    """Chunks, bytes, filters and the places of metadata are those of the file."""
    with open_source(str(made)) as file:
        report = inspect_file(file, "made")
    assert (report.userblock_nbytes, report.page_nbytes) == (0, 0)
    assert report.strategy == "free-space managers and aggregators"
    found = report.variable("/g/v0")
    assert found.n_chunks == 6 * 6 and found.filters == ("deflate",)
    assert sum(report.chunk_counts) == sum(variable.n_chunks for variable in report.variables)
    assert sum(report.chunk_nbytes) == sum(v.stored_nbytes for v in report.variables)
    assert report.variable("loose").n_chunks == 1, "what was never written is not stored"
    assert 0 < report.metadata_nbytes < report.file_nbytes - sum(report.chunk_nbytes)
    assert report.n_metadata_spans > 3 and report.metadata_end > report.file_nbytes // 2
    assert find_tool(report) == "h5py", "strings of variable length"
    labels = [repack.label for repack in list_repacks(report)]
    assert labels[0] == "metadata at the front" and len(labels) == 5


def test_user_block_keeps_pages_away(tmp_path: Path) -> None:
    """HDF5 refuses pages behind a user block, so they are not advised; offsets count from the start."""
    path, out = tmp_path / "user.h5", tmp_path / "out.h5"
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("x", data=np.arange(9000.0), chunks=(100,))
    with open_source(str(path)) as file:
        report = inspect_file(file, "user")
        [chunk] = [r for r in record_reads(file, "user", ["x"]).reads if not r.is_metadata][:1]
    with path.open("rb") as file:
        file.seek(chunk.offset)
        assert file.read(chunk.nbytes) == np.arange(100.0).tobytes()
    [repack] = list_repacks(report)
    assert report.userblock_nbytes == 512 and not repack.page_nbytes
    assert "1 datasets" in apply_repack(str(path), repack, out)


def test_blosc_is_left_to_h5py(tmp_path: Path) -> None:
    """h5repack does not have the filters of plugins; a copy by h5py keeps their chunks as they are."""
    path, out = tmp_path / "blosc.h5", tmp_path / "out.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(9000.0), chunks=(1000,), **hdf5plugin.Blosc())
    assert "made by h5py" in apply_repack(str(path), Repack(page_nbytes=4 * MIB), out)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (0, ", for h5diff too"),
        (2, ""),  # it has no filter of a plugin, for one
    ],
)
def test_h5diff_is_asked_where_it_is(
    code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDF5's own tool compares too; what it cannot read it does not judge."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_tools(tmp_path / "a", tmp_path / "b", nbytes=9) == ""
    put_h5diff(tmp_path, code)
    assert ask_tools(tmp_path / "a", tmp_path / "b", nbytes=9) == told


def test_what_h5diff_finds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that it finds different is not kept, in one line."""
    monkeypatch.setenv("PATH", str(tmp_path))
    put_h5diff(tmp_path, 1)
    with pytest.raises(UserError, match="^apply: the copy differs .*dataset: </x>[^\n]*$"):
        ask_tools(tmp_path / "a", tmp_path / "b", nbytes=9)


def put_h5diff(folder: Path, code: int) -> None:
    """Put a tool of that name into a folder, which ends with a code."""
    tool = folder / "h5diff"
    tool.write_text(f"#!/bin/sh\necho 'dataset: </x>'\necho '3 differences'\nexit {code}\n")
    tool.chmod(0o755)


@pytest.mark.skipif(not shutil.which("h5repack"), reason="h5repack is not on PATH")
def test_h5repack_does_it_where_it_can(tmp_path: Path) -> None:
    """The command line that is printed is what is run, and its result has the layout."""
    path, out = tmp_path / "plain.h5", tmp_path / "out.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.arange(9000.0), chunks=(100,), compression="gzip")
    repack = Repack(8 * MIB, 0, (("x", (4500,)),))
    assert repack.command("a", "b") == "h5repack -S PAGE -G 8388608 -l x:CHUNK=4500 a b"
    assert "made by h5repack; 1 datasets" in apply_repack(str(path), repack, out)
    with h5py.File(out) as copy:
        assert copy["x"].chunks == (4500,)
        assert copy.id.get_create_plist().get_file_space_page_size() == 8 * MIB


def _change_value(file: h5py.File) -> None:
    file["nan"][0] = 0.0


def _change_attribute(file: h5py.File) -> None:
    file["g/v3"].attrs["units"] = "k"


def _add_attribute(file: h5py.File) -> None:
    file["g"].attrs["more"] = 1


def _remove_link(file: h5py.File) -> None:
    del file["again"]


def _change_reference(file: h5py.File) -> None:
    references = file["g/v0"].attrs["DIMENSION_LIST"]
    references[0][0] = file["nan"].ref
    file["g/v0"].attrs["DIMENSION_LIST"] = references


def _change_text(file: h5py.File) -> None:
    file["text"][1] = "b"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_change_value, "nan"),
        (_change_attribute, "g/v3@units"),
        (_add_attribute, "at g "),
        (_remove_link, "again"),
        (_change_reference, "DIMENSION_LIST"),
        (_change_text, "text"),
    ],
)
def test_a_difference_is_found(made: Path, tmp_path: Path, change: Any, named: str) -> None:
    """One value, attribute, link or reference that differs is an error that names it."""
    copy = tmp_path / "copy.h5"
    shutil.copy(made, copy)
    with open_source(str(made)) as file:
        assert "are equal" in check_equal(file, "made", copy)
        with h5py.File(copy, "r+") as changed:
            change(changed)
        with pytest.raises(UserError, match=named):
            check_equal(file, "made", copy)


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
        report = inspect_file(file, "secret")
    with pytest.raises(UserError, match=r"'x' needs the filter .*305.*plugins"):
        report.variable("x").check_filters()
    with pytest.raises(UserError, match="305"):
        apply_repack(str(path), Repack(65536), tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_no_permission_is_told(made: Path) -> None:
    """A file that may not be read is named."""
    made.chmod(0)
    with pytest.raises(UserError, match="no permission"), open_source(str(made)):
        pass


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=15))
def test_merged_spans_cover_the_same_bytes(found: list[tuple[int, int]]) -> None:
    """Merging keeps every byte once, and leaves gaps between spans."""
    spans = [(start, start + nbytes) for start, nbytes in found]
    merged = merge_spans(spans)
    covered = {byte for span in spans for byte in range(*span)}
    assert covered == {byte for span in merged for byte in range(*span)}
    assert sum(stop - start for start, stop in merged) == len(covered)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(merged))


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


# values in other files


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
        assert inspect_file(file, "x").variable("x").other_files == (str(tmp_path / "data.bin"),)
        record_repacked(file, "x", Repack(65536), ["x", "y"])  # a model has no values at all
    for tool in (None, "h5py"):
        with pytest.raises(UserError, match=r"^file: .*'/x'.*data\.bin.*; allowed: ") as caught:
            apply_repack(str(path), Repack(65536), out, tool=tool)
        assert "\n" not in str(caught.value)
    said = CliRunner().invoke(advise, [str(path)])
    assert "values in other files, not predicted: x" in said.output
    assert (tmp_path / "data.bin").read_bytes() == before
    assert not out.exists()


def test_a_copy_itself_refuses_external_files(tmp_path: Path) -> None:
    """Whoever copies a file with values elsewhere is refused before a byte is written there."""
    path = _make_external(tmp_path)
    with h5py.File(path) as source, pytest.raises(UserError, match=r"data\.bin"):
        copy_file(source, tmp_path / "out.h5")
    assert (tmp_path / "data.bin").stat().st_size == 200


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


def _sources_gone(folder: Path) -> Path:
    return folder / "out.h5"


def _dataset_gone(folder: Path) -> Path:
    _make_rows(folder / "rows.h5", n_rows=1)
    return folder / "out.h5"


def _copy_elsewhere(folder: Path) -> Path:
    _make_rows(folder / "rows.h5")
    return folder / "other" / "out.h5"


def _others_there(folder: Path) -> Path:
    _make_rows(folder / "other" / "rows.h5", start=7)
    return _copy_elsewhere(folder)


@pytest.mark.parametrize(
    ("arrange", "named"),
    [
        (_sources_gone, r"rows\.h5"),  # fill values would equal fill values
        (_dataset_gone, "row1"),  # the same, for one dataset of a source
        (_copy_elsewhere, r"rows\.h5.*other"),  # the copy does not find what the file finds
        (_others_there, "differs from the input at x"),  # it finds something else
    ],
)
def test_virtual_dataset_without_its_sources_is_refused(
    tmp_path: Path, arrange: Any, named: str
) -> None:
    """Where a file or its copy would read fill values, nothing can be compared: one line."""
    (tmp_path / "other").mkdir()
    path, out = _make_virtual(tmp_path, "virtual.h5", "rows.h5"), arrange(tmp_path)
    with pytest.raises(UserError, match=named) as caught:
        apply_repack(str(path), Repack(65536), out)
    assert "\n" not in str(caught.value)
    assert not out.exists()
    assert [made.name for made in out.parent.iterdir() if made.name.startswith(".")] == []


@pytest.mark.parametrize("is_there", [True, False])
def test_virtual_dataset_of_numbered_sources(tmp_path: Path, is_there: bool) -> None:
    """A pattern of names is found if its first file is; there may be any number of them."""
    if is_there:
        _make_rows(tmp_path / "part0%.h5")
    space = h5py.h5s.create_simple((2, 4), (h5py.h5s.UNLIMITED, 4))
    space.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), (1, 1), (1, 4))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_virtual(space, b"part%b%%.h5", b"row0", h5py.h5s.create_simple((4,)))
    with h5py.File(tmp_path / "many.h5", "w") as file:
        whole = h5py.h5s.create_simple((2, 4), (h5py.h5s.UNLIMITED, 4))
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_DOUBLE, whole, dcpl=plist)
    out = tmp_path / "out.h5"
    if is_there:
        apply_repack(str(tmp_path / "many.h5"), Repack(65536), out)
        with h5py.File(out) as copy:
            assert copy["x"][:].tolist() == [[0, 1, 2, 3]]
    else:
        with pytest.raises(UserError, match="part0%.h5"):
            apply_repack(str(tmp_path / "many.h5"), Repack(65536), out)


def test_virtual_dataset_of_a_remote_file_is_refused(tmp_path: Path) -> None:
    """Sources of a file in object storage are not on this disk, whatever lies there."""
    _make_rows(tmp_path / "rows.h5")
    path = _make_virtual(tmp_path, "virtual.h5", "rows.h5")
    with h5py.File(path) as file, pytest.raises(UserError, match=r"rows\.h5.*s3://bucket"):
        check_sources(file, "s3://bucket/virtual.h5", (None, tmp_path))


def make_model_output(path: Path) -> None:
    """Make a file that names its variable, as those of CMIP do."""
    values = np.random.default_rng(0).normal(size=(60, 50, 60)).round(2).astype("f4")
    with h5py.File(path, "w") as file:
        file.attrs["variable_id"] = np.bytes_("pr")
        file.create_dataset("pr", data=values, chunks=(1, 50, 60), compression="gzip")
        file.create_dataset("time", data=np.arange(60.0), chunks=(1,), maxshape=(None,))


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("echo no room >&2; exit 1", "cmip7repack failed (no room)"),
        ('cp OTHER "$1_cmip7repack"', "the copy differs from the input at pr"),
    ],
)
def test_what_cmip7repack_plans_is_done_and_compared(
    does: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its chunks are among the repacks; what it cannot do, or not faithfully, is done by h5py."""
    path, other, out = (tmp_path / name for name in ("pr.nc", "other.nc", "out.nc"))
    make_model_output(path)
    with h5py.File(other, "w") as file:
        file["time"], file["pr"] = np.arange(60.0), np.zeros((60, 50, 60), "f4")
        file.attrs["variable_id"] = np.bytes_("pr")
    plan = "h5repack --metadata_block_size=4096  -f /pr:GZIP=4 -l /pr:CHUNK=30x50x60 'a b' 'c'"
    program = tmp_path / "cmip7repack"
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -x ] && {{ echo "t: repack command: {plan}"; echo "t: dry-run"; exit; }}\n'
        f"{does.replace('OTHER', str(other))}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    label, repack = advice.advise(str(path), get_profile("in-region")).find_repack("cmip7repack")
    assert (label, repack.chunk_shapes) == ("cmip7repack", (("pr", (30, 50, 60)),))
    told = apply_repack(str(path), repack, out)
    assert f"made by h5py (not by cmip7repack: {why}" in told
    with h5py.File(out) as file:
        assert file["pr"].chunks == (30, 50, 60)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "cmip7repack", "other.nc", "out.nc", "pr.nc",
    ]  # fmt: skip
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(UserError, match="repack: 'cmip7repack'; allowed: "):
        advice.advise(str(path), get_profile("in-region")).find_repack("cmip7repack")


@pytest.mark.skipif(
    not shutil.which("cmip7repack"), reason="no cmip7repack: pip install cmip7-repack"
)
def test_cmip7repack_itself_repacks(tmp_path: Path) -> None:
    """The program that people install makes an equal copy in the chunks that it chose."""
    path, out = tmp_path / "pr.nc", tmp_path / "out.nc"
    make_model_output(path)
    _, repack = advice.advise(str(path), get_profile("in-region")).find_repack("cmip7repack")
    assert "made by cmip7repack; 2 datasets and 1 attributes are equal" in apply_repack(
        str(path), repack, out
    )
    with h5py.File(out) as file:
        assert {name: file[name].chunks for name, _ in repack.chunk_shapes} == dict(
            repack.chunk_shapes
        )
