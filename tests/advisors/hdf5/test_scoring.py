"""Predicted gains are held against the wall clock; heaps are where the model has them."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from advisors.hdf5 import scoring
from advisors.hdf5.advice import advise
from advisors.hdf5.cli import hdf5
from advisors.hdf5.inspection import inspect_file
from advisors.hdf5.prediction import LibraryCosts, record_repacked
from advisors.hdf5.recording import open_source, record_reads
from advisors.hdf5.repack import Repack, apply_repack, find_tool
from advisors.hdf5.scoring import find_files, render_score, score_files
from helpers.errors import UserError
from helpers.netem.profiles import get_profile
from helpers.netem.proxy import open_proxy
from helpers.objectstore.testbed import Server, Testbed
from tests.advisors.hdf5 import producers
from tests.stores import make_location

MIB = 2**20


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make a file by each producer."""
    return producers.make_all(tmp_path_factory.mktemp("producers"))


def test_there_are_eight_producers(made: dict[str, Path]) -> None:
    """At least eight files, of five tools or more."""
    assert len(made) >= 8


@pytest.mark.parametrize("repack", [Repack(metadata_block_nbytes=2 * MIB), Repack(4 * MIB)],
                         ids=lambda repack: repack.label)  # fmt: skip
@pytest.mark.parametrize("name", producers.PRODUCERS)
def test_model_has_heaps_where_the_copy_has_them(
    made: dict[str, Path], name: str, repack: Repack, tmp_path: Path
) -> None:
    """Heaps of attributes and of values are as many bytes, in as many 8 MiB blocks, as predicted."""
    if name not in made:
        pytest.skip("its tool is not here")
    path, out = str(made[name]), tmp_path / "out.h5"
    with open_source(path) as file:
        variables = [variable.name for variable in inspect_file(file, name).variables]
        predicted = record_repacked(file, name, repack, variables)
    if "made by h5repack" in apply_repack(path, repack, out):
        pytest.skip("ours does not keep the order of attributes here, and h5repack scatters heaps")
    with open_source(str(out)) as file:
        found = record_reads(file, "out", variables)
    heaps = [[read for read in one.reads if read.is_heap] for one in (predicted, found)]
    assert sum(r.nbytes for r in heaps[0]) == pytest.approx(
        sum(r.nbytes for r in heaps[1]), rel=0.1
    )
    blocks = [{(r.phase, r.offset // (8 * MIB)) for r in one.reads} for one in (predicted, found)]
    assert blocks[0] == blocks[1]


def test_heaps_are_told_from_metadata(tmp_path: Path) -> None:
    """Of a heap above 4 KiB both reads are heaps; without variable length there are none."""
    path = tmp_path / "heaps.h5"
    with h5py.File(path, "w") as file:
        file.attrs["long"] = "x" * 30_000
        file.create_dataset("x", data=np.arange(3))
    with open_source(str(path)) as file:
        heaps = [read for read in record_reads(file, "heaps", ["x"]).reads if read.is_heap]
        report = inspect_file(file, "heaps")
    assert len(heaps) == 2 and heaps[1].offset == heaps[0].offset + heaps[0].nbytes
    assert not any(read.is_metadata for read in heaps)
    assert report.n_heap_spans == 1 and report.heap_nbytes > 30_000
    assert find_tool(report) == "h5py", "h5repack scatters the heaps of attributes"


def test_values_of_variable_length_are_predicted(tmp_path: Path) -> None:
    """What the library asks for to read texts is noted, heaps and all; far too many are not read."""
    path = tmp_path / "texts.h5"
    with h5py.File(path, "w") as file:
        texts = np.array([f"text number {n}" for n in range(5000)], object)
        file.create_dataset("texts", data=texts, dtype=h5py.string_dtype(), chunks=(1000,))
        file.create_dataset("many", (10**6,), h5py.string_dtype(), chunks=(1000,))[0] = "one"
    with open_source(str(path)) as file:
        reads = record_reads(file, "texts", ["texts", "many"]).reads
        report = inspect_file(file, "texts")
    read = [one for one in reads if one.phase == "read"]
    assert sum(one.nbytes for one in read if one.is_heap) > 5000 * 12
    assert sum(not one.is_heap and not one.is_metadata for one in read) == 5 + 1
    assert report.variable("texts").has_known_heaps
    assert not report.variable("many").has_known_heaps
    output = CliRunner().invoke(hdf5, ["advise", str(path)]).output
    assert "too many to predict their heaps: many" in output


def test_decoding_and_listing_count(made: dict[str, Path]) -> None:
    """A slower library takes longer before and after, so that it lowers the gain."""
    gains = []
    for factor in (0.0, 1.0, 10.0):
        library = LibraryCosts(factor=factor)
        advised = advise(str(made["h5py"]), get_profile("in-region"), library_costs=library)
        gains.append(advised.advice[0].gain)
        assert bool(advised.present.decode_s) == bool(factor)
    assert gains[0] > gains[1] > gains[2]


def test_scores_are_of_every_file(
    made: dict[str, Path], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is read before and after over the network; errors are of the gains, median and worst.

    A repack that cannot be done gives way to the next.
    """
    refused: list[str] = []

    def refuse_the_first(source: str, repack: Repack, out: Path) -> str:
        if not refused:
            refused.append(repack.label)
            raise UserError("apply: refused")
        return apply_repack(source, repack, out)

    monkeypatch.setattr(scoring, "apply_repack", refuse_the_first)
    near = make_location(server, "scores")
    paths = [made["ncgen"], made["xarray"]] if "ncgen" in made else [made["xarray"], made["h5py"]]
    express = get_profile("express")
    with open_proxy(server.endpoint_url, profile=express, seed=1) as proxy:
        testbed = Testbed(near, near.through(proxy.endpoint_url), proxy)
        found = score_files(paths, express, testbed, n_reads=1)
    assert [one.file for one in found.scores] == [path.name for path in paths]
    assert found.scores[0].repack not in refused
    told = found.to_mapping()
    for one, row in zip(found.scores, told["scores"], strict=True):
        assert min(one.before_s, one.after_s, one.predicted_after_s, one.start_s) > 0
        assert row["error"] == pytest.approx(row["predicted_gain"] / row["gain"] - 1)
    errors = sorted(abs(row["error"]) for row in told["scores"])
    assert told["worst_error"] == errors[-1] and errors[0] <= told["median_error"] <= errors[-1]
    assert told["request_s"] > 0
    assert json.dumps(told)
    found.write(tmp_path / "new" / "score.csv")
    page = render_score(tmp_path / "new" / "score.csv")
    assert [f"| `{path.stem}` | " in page for path in paths] == [True, True]
    assert f"Of 2 files it is {100 * told['median_error']:.0f} % in the median and {100 * errors[-1]:.0f} % at worst" in page  # fmt: skip


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    """One line names the folder."""
    (tmp_path / "text.h5").write_text("no HDF5")
    for folder in (tmp_path, tmp_path / "none", tmp_path / "text.h5"):
        with pytest.raises(UserError, match="^folder: .*; allowed: a folder with"):
            find_files(folder)
