"""Requests and bytes of files that others write are those that a store counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr
from virtualizarr import open_virtual_dataset
from virtualizarr.parsers import HDFParser, KerchunkJSONParser

from helpers.arrays.readers import make_registry
from tests.wire.hdf5.others import OTHERS, OtherFile
from wire.bed.locations import Location
from wire.bed.networks import get_profile
from wire.bed.store import EmulatedStore, open_store
from wire.hdf5.advice import advise
from wire.hdf5.files import Deadline, open_source
from wire.hdf5.inspection import FileLayout, record_reads, record_xarray
from wire.hdf5.prediction import MIB, ReadMethod, predict_sessions
from wire.models.transfer import network_of

LOOPBACK = network_of(get_profile("loopback"))
XARRAY_FILES = [name for name, other in OTHERS.items() if other.is_netcdf]


@pytest.fixture(scope="module")
def store() -> Iterator[EmulatedStore]:
    """Open a store whose requests are counted."""
    with open_store("loopback", bucket="others") as opened:
        yield opened


def upload(store: EmulatedStore, other: OtherFile, path: Path, scale: int = 1) -> Location:
    """Write a file, put it in the store, and return its place over the network."""
    other.write(path, scale)
    store.direct.fsspec().put(str(path), (store.direct / path.name).path)
    return store.location / path.name


def count(store: EmulatedStore, read: Callable[[], Any]) -> tuple[int, int]:
    """Count the requests and bytes of a read."""
    store.requests()
    read()
    time.sleep(0.05)  # until the end of the last response is in the trace
    requests = store.requests()
    return len(requests), sum(request.nbytes for request in requests)


def split_groups(variables: Sequence[str]) -> dict[str, list[str]]:
    """Split paths into groups and the names in each."""
    groups: dict[str, list[str]] = {}
    for variable in variables:
        group, _, name = variable.rpartition("/")
        groups.setdefault(group, []).append(name)
    return groups


def read_by_h5py(location: Location, variables: Sequence[str], **options: Any) -> None:
    """Read variables by h5py over a file object of s3fs."""
    files = location.fsspec()
    files.invalidate_cache()
    with files.open(location.path, "rb", **options) as file, h5py.File(file) as opened:
        for name in variables:
            opened[name][...]


def read_by_xarray(location: Location, variables: Sequence[str], **options: Any) -> None:
    """Open each group by xarray over a file object of s3fs, and load variables of it."""
    for group, names in split_groups(variables).items():
        files = location.fsspec()
        files.invalidate_cache()
        with (
            files.open(location.path, "rb", **options) as file,
            xarray.open_dataset(file, engine="h5netcdf", group=group or None) as dataset,
        ):
            for name in names:
                dataset[name].load()


def read_by_url(location: Location, variables: Sequence[str]) -> None:
    """Open each group by xarray from a URL, nothing set."""
    for group, names in split_groups(variables).items():
        location.fsspec().invalidate_cache()
        options = location.fsspec_options()
        with xarray.open_dataset(
            location.url, engine="h5netcdf", group=group or None, storage_options=options
        ) as dataset:
            for name in names:
                dataset[name].load()


CACHES = {
    "none": ReadMethod("no cache, as of gcsfs in effect", cache_type="none"),
    "readahead": ReadMethod("read ahead", cache_type="readahead", block_nbytes=MIB // 8),
    "blockcache": ReadMethod("blocks", block_nbytes=MIB // 16),
}


def predict(method: ReadMethod, layouts: Sequence[FileLayout]) -> tuple[int, int]:
    """Predict requests and bytes."""
    predicted = predict_sessions(method, layouts, LOOPBACK)
    return predicted.n_requests, predicted.nbytes


@pytest.mark.filterwarnings("ignore:The 'phony_dims' kwarg")
@pytest.mark.parametrize("name", OTHERS)
def test_requests_and_bytes_are_those_of_the_library(
    name: str, store: EmulatedStore, tmp_path: Path
) -> None:
    """By h5py and by xarray, through each cache in small blocks, so that a file of a MB has many."""
    other = OTHERS[name]
    location = upload(store, other, path := tmp_path / f"{name}.nc")
    with open_source(str(path)) as file:
        by_h5py = (record_reads(file, name, other.variables, groups=()),)
        by_xarray = record_xarray(file, other.variables, Deadline()) if other.is_netcdf else ()
    for method in CACHES.values():
        options = {"cache_type": method.cache_type, "block_size": method.block_nbytes}
        counted = count(store, lambda: read_by_h5py(location, other.variables, **options))  # noqa: B023
        assert predict(method, by_h5py) == counted, ("h5py", method.name)
        if by_xarray:
            counted = count(store, lambda: read_by_xarray(location, other.variables, **options))  # noqa: B023
            assert predict(method, by_xarray) == counted, ("xarray", method.name)


def test_what_xarray_cannot_open_is_reported(tmp_path: Path) -> None:
    """Its ways are left out with the reason; the others are predicted."""
    OTHERS["user-block"].write(path := tmp_path / "block.h5", 1)
    advised = advise(str(path), get_profile("in-region"))
    assert [reason.partition(" (")[2] for reason in advised.not_predicted] == [
        "xarray opens no file behind a user block)"
    ] * 2
    assert {"s3fs.open", "ROS3"} < {advice.label for advice in advised.advice}


def write_references(location: Location, direct: Location, variables: Sequence[str]) -> None:
    """Write a file of references to the chunks of a group next to the file, as its users do."""
    (group,) = split_groups(variables)
    virtual = open_virtual_dataset(
        location.url,
        registry=make_registry(location),
        parser=HDFParser(group=group or None),
        loadable_variables=[],
        decode_times=False,
    )
    references = virtual.vz.to_kerchunk(format="dict")
    with direct.fsspec().open(f"{direct.path.removesuffix('.nc')}.json", "w") as file:
        json.dump(references, file)


def read_references(location: Location, variables: Sequence[str]) -> None:
    """Read variables as virtual Zarr."""
    url = f"{location.url.removesuffix('.nc')}.json"
    manifest = KerchunkJSONParser()(url, make_registry(location))
    group = zarr.open_group(manifest, mode="r", zarr_format=3)
    for name in variables:
        np.asarray(group[name.rpartition("/")[2]])


NOT_VIRTUAL = {"groups", "compact", "texts"}
"""Several groups, arrays whose nameless dimensions differ, and texts: a call of VirtualiZarr has none."""

MOST_FACTOR = 1.5
"""Between predicted and counted, of each; the median is held within 5 %."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OTHERS)
def test_defaults_over_large_files_are_predicted(
    name: str, store: EmulatedStore, tmp_path: Path
) -> None:
    """As the advice has them: the defaults of s3fs and xarray, blocks, and virtual Zarr."""
    other = OTHERS[name]
    location = upload(store, other, path := tmp_path / f"{name}.nc", other.scale)
    advised = advise(str(path), get_profile("in-region"), variables=other.variables, seconds=60)
    reads: dict[str, Callable[[], Any]] = {
        "s3fs.open": lambda: read_by_h5py(location, other.variables),
        "blocks of 8 MiB": lambda: read_by_h5py(
            location, other.variables, cache_type="blockcache", block_size=8 * MIB
        ),
    }
    if other.is_netcdf:
        reads |= {
            "xarray by URL": lambda: read_by_url(location, other.variables),
            "xarray over s3fs.open": lambda: read_by_xarray(location, other.variables),
        }
    if name not in NOT_VIRTUAL:
        write_references(location, store.direct / path.name, other.variables)
        reads["virtual Zarr, 10 concurrent requests"] = lambda: read_references(
            location, other.variables
        )
    predicted = {advice.label: advice.prediction for advice in advised.advice}
    factors = []
    for label, read in reads.items():
        n_requests, nbytes = count(store, read)
        pair = (predicted[label].n_requests / n_requests, predicted[label].nbytes / nbytes)
        factors += [max(ratio, 1 / ratio) for ratio in pair]
        assert max(factors) <= MOST_FACTOR, (label, pair)
    assert sorted(factors)[len(factors) // 2] <= 1.05
