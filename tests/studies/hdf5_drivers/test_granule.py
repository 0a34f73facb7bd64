"""Granules, their layouts and what a file says of itself."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from studies.hdf5_drivers import files
from studies.hdf5_drivers.drivers import Tree, prove, read_all
from studies.hdf5_drivers.files import (
    BEAMS,
    FILE_LAYOUTS,
    PHOTON_CHUNK,
    RECHUNKED,
    Granule,
    arrange,
    read_properties,
    write_granule,
)
from tests.stores import make_location
from wire.bed.testbed import Server
from wire.hdf5.files import get_page_nbytes, list_datasets

GRANULE = Granule(240_000, seed=3)  # more than 50 000 photons in strong beams: rechunked
LONG = "gt1l/heights/h_ph"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a granule once."""
    path = tmp_path_factory.mktemp("granule") / "original.h5"
    write_granule(GRANULE, path)
    return path


def test_a_granule_has_the_shape_of_the_product(original: Path) -> None:
    """Six beams, hundreds of variables, filters, texts of variable length."""
    with h5py.File(original) as file:
        variables = {name: file[name] for name in list_datasets(file)}
        assert set(BEAMS) < set(file)
        assert len(variables) > 400
        assert variables[LONG].shape == (GRANULE.photons_of("gt1l"),) == (64_000,)
        assert variables[LONG].chunks == (PHOTON_CHUNK,)
        assert (variables[LONG].compression, variables[LONG].shuffle) == ("gzip", True)
        assert h5py.check_string_dtype(variables["ancillary_data/release"].dtype).length is None
        assert all("long_name" in each.attrs for each in variables.values())


def test_data_and_metadata_lie_between_one_another(original: Path) -> None:
    """Chunks of one variable are far apart, as appending in rounds leaves them."""
    with h5py.File(original) as file:
        chunks = [file[LONG].id.get_chunk_info(i) for i in range(file[LONG].id.get_num_chunks())]
        places = sorted(each.byte_offset for each in chunks)
        assert places[-1] - places[0] > 3 * sum(each.size for each in chunks)


@pytest.mark.parametrize("layout", [name for name in FILE_LAYOUTS if name != "original"])
def test_layouts_are_what_they_say(layout: str, original: Path, tmp_path: Path) -> None:
    """Pages, chunks and the place of metadata are read back from the file; values stay the same."""
    asked, path = FILE_LAYOUTS[layout], tmp_path / "arranged.h5"
    arrange(original, path, layout)
    with h5py.File(path) as new, h5py.File(original) as old:
        found, before = read_properties(new), read_properties(old)
        variables = files.THREE_VARIABLES
        assert get_page_nbytes(new) == asked.get("fs_page_size", 0)
        n_elements = RECHUNKED if "rechunked" in layout else PHOTON_CHUNK
        expected = min(n_elements, new[LONG].shape[0])
        assert new[LONG].chunks == (expected,)
        assert set(found.stored_nbytes) == set(before.stored_nbytes)
        assert prove(read_all(Tree(new), variables)) == prove(read_all(Tree(old), variables))
        assert dict(new["gt1l"].attrs) == dict(old["gt1l"].attrs)
        assert {*new[LONG].attrs} == {*old[LONG].attrs}
        if "meta_block_size" in asked:
            places = [h5py.h5o.get_info(new[name].id).addr for name in list_datasets(new)]
            assert max(places) < asked["meta_block_size"]


def test_files_are_stored_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call writes nothing, and finds the same answers and properties."""
    location = make_location(server, "granules")
    first = files.prepare_granule(Granule(6000), location, layouts=["paged-8mib"])
    monkeypatch.delattr(files, "Maker")
    again = files.prepare_granule(Granule(6000), location, layouts=["paged-8mib"])
    assert again == first
    assert set(first.references_nbytes) == {"original", "paged-8mib"}
