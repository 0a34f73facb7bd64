"""Files of the structure of real products are judged and advised on."""

from __future__ import annotations

import functools
import json
from collections import Counter
from pathlib import Path

import h5py
import pytest
from click.testing import CliRunner

from advisors.hdf5.cli import hdf5
from advisors.hdf5.recording import list_datasets
from studies.hdf5_drivers.files import BEAMS
from tests.advisors.hdf5 import products

# variables of the file, bytes of the metadata at least, and items that fail
EXPECTED: dict[str, tuple[int, int, set[str]]] = {
    "atl03": (1003, 10**6, {"paged-file-space", "variable-length", "chunk-bytes"}),
    "atl08": (70, 10**5, {"paged-file-space"}),
    "gedi": (156, 10**5, {"paged-file-space", "chunk-bytes"}),
    "cmip6": (6, 10**4, {"paged-file-space", "consolidated-metadata", "chunk-bytes"}),
    "gpm": (10, 10**4, {"paged-file-space"}),
    "nisar": (65, 10**4, set()),
}
# a beam is as the product has it, and the others are like it
MAKERS = products.PRODUCTS | {
    "atl08": functools.partial(products.atl08, n_beams=1),
    "gedi": functools.partial(products.gedi, n_beams=1),
}


@pytest.mark.parametrize("name", products.PRODUCTS)
def test_products_are_judged_and_advised_on(name: str, tmp_path: Path) -> None:
    """What fails is what the product is known for; what would help gains, or nothing is left to."""
    path = tmp_path / f"{name}.h5"
    MAKERS[name](path)
    n_variables, least, failing = EXPECTED[name]
    with h5py.File(path) as file:
        assert len(list_datasets(file)) == n_variables
    done = CliRunner().invoke(hdf5, ["check", str(path), "--json"])
    found = {item["name"]: item for item in json.loads(done.output)["items"]}
    assert {key for key, item in found.items() if item["status"] == "failed"} == failing
    assert done.exit_code == bool(failing)
    if name == "atl03":  # a beam of which is advised on among the ordinary files
        return
    advised = json.loads(CliRunner().invoke(hdf5, ["advise", str(path), "--json"]).output)
    assert advised["report"]["metadata_nbytes"] > least
    assert max(one["gain"] for one in advised["advice"]) > 5


def test_atl03_has_the_groups_of_the_product(tmp_path: Path) -> None:
    """Six beams of 98 variables each, and what is told of the granule in the groups beside them."""
    path = tmp_path / "atl03.h5"
    products.atl03(path, n_photons=600)
    with h5py.File(path) as file:
        names = list_datasets(file)
        told = {name for name in file if not name.startswith("gt")}
    assert Counter(name.split("/")[0] for name in names if name.startswith("gt")) == {
        beam: 98 for beam in BEAMS
    }
    assert told == {
        "METADATA", "ancillary_data", "atlas_impulse_response", "ds_surf_type", "ds_xyz",
        "orbit_info", "quality_assessment",
    }  # fmt: skip


def test_a_long_granule_has_the_metadata_of_one_and_no_values(tmp_path: Path) -> None:
    """A hollow file has an entry for each chunk, and reads back as zeros."""
    path = tmp_path / "long.h5"
    products.atl03(path, 1, n_photons=10**6, is_hollow=True)
    with h5py.File(path) as file:
        heights = file["gt1l/heights/h_ph"]
        assert heights.id.get_num_chunks() == 100 and not heights[-20_000:].any()
    assert path.stat().st_size < 3 * 10**6
