"""A photon granule as real producers write it, and its files in a store.

The files of ICESat-2's ATL03 product are the field's standard case of an HDF5 file that is
slow to read from object storage. This one has their shape: six beams, photon
heights in chunks of ten thousand elements, dozens of small variables and hundreds of
attributes, appended in rounds, so that the indices of chunks, the headers of objects and the
data lie between one another in the file. It is stored in every layout asked for, made once
and named by what made it.
"""

from __future__ import annotations

import functools
import json
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import obstore
import virtualizarr
import yaml
from numpy.typing import NDArray
from virtualizarr.parsers import HDFParser

from helpers.arrays import stores
from helpers.arrays.readers import expected_warning, make_registry
from studies.hdf5_drivers.drivers import (
    CONVERTED,
    ONE_VARIABLE,
    SIX_VARIABLES,
    TWELVE_VARIABLES,
    VARIABLES,
    Answer,
    Tree,
    prove,
    read_all,
)
from wire.bed.locations import Location
from wire.errors import UserError
from wire.hdf5.files import list_datasets
from wire.hdf5.prediction import MIB

_CONTENT_GENERATION = 2  # raise it when the same arguments make other bytes

BEAMS = ("gt1l", "gt1r", "gt2l", "gt2r", "gt3l", "gt3r")
# Strong beams carry four times the energy of weak ones; the published study read a strong one.
_WEIGHTS = (4, 1, 4, 1, 4, 1)

THREE_VARIABLES = ("gt1l/heights/h_ph", "gt1l/heights/lat_ph", "gt1l/heights/lon_ph")
"""The photon variables whose reading the published study timed."""

PHOTON_CHUNK = 10_000  # elements, as the producer has it
_SEGMENT_CHUNK = 2_000
_ROUND = 4 * PHOTON_CHUNK  # photons that a beam appends in one round
PHOTONS_PER_SEGMENT = 60
_DEFLATE_LEVEL = 6


@dataclass(frozen=True, slots=True)
class Granule:
    """What a granule is made of."""

    n_photons: int  # of all six beams, at least 6000; ten million make some 220 MB
    seed: int = 0  # of the values

    def photons_of(self, beam: str) -> int:
        """Count the photons of a beam."""
        return self.n_photons * _WEIGHTS[BEAMS.index(beam)] // sum(_WEIGHTS)


@functools.cache
def _read_product() -> dict[str, Any]:
    """Read the names of the product's variables and groups."""
    return dict(yaml.safe_load(Path(__file__).with_name("product.yaml").read_text("utf-8")))


def write_granule(granule: Granule, path: Path) -> None:
    """Write a granule as one HDF5 file in the format's oldest version, the library's default."""
    with h5py.File(path, "w") as file:
        _write_descriptions(file)
        beams = [Beam(file, granule, beam) for beam in BEAMS]
        n_rounds = -(-max(granule.photons_of(beam) for beam in BEAMS) // _ROUND)
        for index in range(n_rounds):
            for beam in beams:
                beam.append(index, n_rounds)
        for beam in beams:
            beam.describe()


def _write_descriptions(file: h5py.File) -> None:
    """Write what a granule says of itself: attributes, and scalars one by one."""
    for name in ("Conventions", "title", "institution", "history", "references", "license"):
        file.attrs[name] = f"{name} of a photon granule, as long as such texts are: " + name * 8
    product = _read_product()
    for name in product["ancillary"]:
        text = f"{name}: 2018-11-20T18:21:{len(name):02d}.000000Z"
        file.create_dataset(f"ancillary_data/{name}", data=[text], dtype=h5py.string_dtype())
        file[f"ancillary_data/{name}"].attrs["long_name"] = name.replace("_", " ")
    for name in product["metadata"]:
        group = file.create_group(f"METADATA/{name}")
        for part in range(12):
            group.attrs[f"part{part:02d}"] = f"{name} {part} " + "of the product's lineage " * 4


class Beam:
    """One beam in a file: where its arrays grow, round by round."""

    def __init__(self, file: h5py.File, granule: Granule, beam: str) -> None:
        self.name, self.n_photons = beam, granule.photons_of(beam)
        self.rng = np.random.default_rng([granule.seed, BEAMS.index(beam)])
        self.group, self.height_m, self.n_done = file.create_group(beam), 100.0, 0
        self.group.attrs["groundtrack_id"] = beam
        self.product = _read_product()
        for name, kind in self.product["photons"].items():
            extent = (5,) if name == "signal_conf_ph" else ()
            _create(self.group, f"heights/{name}", kind, chunk=(PHOTON_CHUNK, *extent))
        for group, names in self.product["segments"].items():
            for name in names:
                kind = "f8" if "delta_time" in name or name.endswith(("lat", "lon")) else "f4"
                _create(self.group, f"{group}/{name}", kind, chunk=(_SEGMENT_CHUNK,))

    def append(self, index: int, n_rounds: int) -> None:
        """Append the photons and segments of one round."""
        stop = self.n_photons * (index + 1) // n_rounds
        n, start = stop - self.n_done, self.n_done
        self.n_done = stop
        for name, values in self._photons(start, n).items():
            _append(self.group[f"heights/{name}"], values)
        n_segments = stop // PHOTONS_PER_SEGMENT - start // PHOTONS_PER_SEGMENT
        for group, names in self.product["segments"].items():
            for name in names:
                _append(self.group[f"{group}/{name}"], self._segments(name, n_segments))

    def describe(self) -> None:
        """Write, last of all, what is known at the end: ranges of the values."""
        for name in self.product["photons"]:
            dataset = self.group[f"heights/{name}"]
            dataset.attrs["n_valid"] = dataset.shape[0]
            dataset.attrs["comment"] = f"{name} of {self.name}, {dataset.shape[0]} photons"

    def _photons(self, start: int, n: int) -> dict[str, NDArray[Any]]:
        """Make the photons of a round: a surface, a canopy above it, noise all around."""
        rng, track = self.rng, (start + np.arange(n)) / max(1, self.n_photons)
        steps = np.cumsum(rng.normal(0, 0.05, n))
        surface, self.height_m = self.height_m + steps, self.height_m + float(steps[-1:].sum())
        is_signal = rng.random(n) < 0.7
        spread = np.where(is_signal, rng.normal(0, 0.3, n), rng.uniform(-60, 60, n))
        confidence = np.where(is_signal, 4, 0)[:, None] * np.array([1, 1, 0, 0, 1])
        pulse = start + np.arange(n)
        values: dict[str, NDArray[Any]] = {
            "h_ph": surface + spread,
            "lat_ph": 59.5 + 20 * track + rng.normal(0, 5e-6, n),
            "lon_ph": -44.6 - 6 * track + rng.normal(0, 5e-6, n),
            "delta_time": 2.8e7 + 300 * track,
            "dist_ph_along": 20 * rng.random(n),
            "dist_ph_across": 3000 + rng.normal(0, 2, n),
            "quality_ph": rng.random(n) < 0.01,
            "signal_conf_ph": confidence,
            "ph_id_channel": rng.integers(1, 120, n),
            "ph_id_pulse": pulse // 3 % 200,
            "pce_mframe_cnt": pulse // 600,
            "weight_ph": np.where(is_signal, 200, 20) + rng.integers(0, 40, n),
        }
        kinds = self.product["photons"].items()
        return {name: np.asarray(values[name], kind) for name, kind in kinds}

    def _segments(self, name: str, n: int) -> NDArray[Any]:
        """Make the values of a small variable: smooth, as corrections and angles are."""
        base = zlib.crc32(name.encode()) % 1000
        return np.asarray(base + np.cumsum(self.rng.normal(0, 0.01, n)))


def _create(group: h5py.Group, name: str, kind: str, *, chunk: tuple[int, ...]) -> None:
    """Make an empty variable that grows, with the attributes that each of them has."""
    dataset = group.create_dataset(
        name,
        shape=(0, *chunk[1:]),
        maxshape=(None, *chunk[1:]),
        dtype=kind,
        chunks=chunk,
        shuffle=True,
        compression="gzip",
        compression_opts=_DEFLATE_LEVEL,
    )
    label = name.rpartition("/")[2]
    dataset.attrs["long_name"] = label.replace("_", " ")
    dataset.attrs["units"] = "meters" if label.startswith("h") else "1"
    dataset.attrs["description"] = f"{label}: " + "how it is derived, from which inputs. " * 3
    dataset.attrs["source"] = "Section 3.2 of the product's theoretical basis"
    dataset.attrs["contentType"] = "physicalMeasurement"
    dataset.attrs["valid_min"] = -1.0e4


def _append(dataset: h5py.Dataset, values: NDArray[Any]) -> None:
    """Append values to a variable that grows."""
    n = dataset.shape[0]
    dataset.resize(n + len(values), axis=0)
    dataset[n:] = values


@dataclass(frozen=True, slots=True)
class FileProperties:
    """What a file takes in the store, and each of its arrays."""

    file_nbytes: int  # bytes of the file
    stored_nbytes: Mapping[str, int]  # bytes that each variable takes in the file, without metadata


def read_properties(file: h5py.File) -> FileProperties:
    """Read the properties of an open file from the file itself, never from its name."""
    stored = {name: int(file[name].id.get_storage_size()) for name in list_datasets(file)}
    return FileProperties(int(file.id.get_filesize()), stored)


RECHUNKED = 100_000  # elements of a chunk, as the field's guidance for photon data has it
_SMALL = 50_000  # elements up to which a variable keeps its chunks when rechunked

FILE_LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "original": {},  # as the producer writes it: metadata between the data
    "front": {"meta_block_size": 8 * MIB},  # all metadata in one block
    "paged-8mib": {"fs_strategy": "page", "fs_page_size": 8 * MIB},
    "rechunked-8mib": {"fs_strategy": "page", "fs_page_size": 8 * MIB},
    "paged-4mib": {"fs_strategy": "page", "fs_page_size": 4 * MIB},
    "rechunked-4mib": {"fs_strategy": "page", "fs_page_size": 4 * MIB},
}
"""Arrangements of one HDF5 file, and how h5py makes each; in the rechunked ones long variables get longer chunks."""

LAYOUT_LABELS: Mapping[str, str] = {
    "original": "as written",
    "front": "metadata in front",
    "paged-8mib": "pages of 8 MiB",
    "rechunked-8mib": "longer chunks, pages of 8 MiB",
    "paged-4mib": "pages of 4 MiB",
    "rechunked-4mib": "longer chunks, pages of 4 MiB",
}
"""What pages call each of `FILE_LAYOUTS`."""


def arrange(source: Path, target: Path, layout: str) -> None:
    """Write a file anew in another layout: group by group, variable by variable."""
    with h5py.File(source) as old, h5py.File(target, "w", **FILE_LAYOUTS[layout]) as new:
        new.attrs.update(old.attrs)

        def copy(name: str, node: h5py.Group | h5py.Dataset) -> None:
            is_short = not isinstance(node, h5py.Dataset) or node.size <= _SMALL
            if isinstance(node, h5py.Group):
                new.create_group(name).attrs.update(node.attrs)
            elif is_short or not node.chunks or not layout.startswith("rechunked"):
                old.copy(node, new, name)  # chunks as they are stored
            else:
                chunks = (min(RECHUNKED, node.shape[0]), *node.shape[1:])
                new.create_dataset_like(name, node, chunks=chunks)[...] = node[...]
                new[name].attrs.update(node.attrs)

        old.visititems(copy)


def write_references(target: Location, layout: str) -> None:
    """Write, as JSON next to a file in the store, where its photon chunks are."""
    # the references are read as they are; chunks larger than their array could not be put together
    with expected_warning("Numcodecs codecs are not in|.* have a chunk shape larger than"):
        dataset = virtualizarr.open_virtual_dataset(
            f"{target.url}/{layout}.h5",
            registry=make_registry(target),
            parser=HDFParser(group=CONVERTED),
            loadable_variables=[],
            decode_times=False,
        )
        references = dataset.vz.to_kerchunk(format="dict")
    text = json.dumps(references, default=bytes.decode)
    obstore.put(target.obstore(), f"{layout}.json", text.encode())


_PART_NBYTES = 16 * 2**20  # of an upload
_N_PARTS = 2  # in memory at a time
_LAYOUT_GENERATION = (
    8  # raise it when the same arguments make other layouts, or say other things of them
)

_OF_A_BEAM = tuple(f"{CONVERTED}/{name}" for name in _read_product()["photons"])

TASKS: Mapping[str, tuple[str, ...]] = {
    VARIABLES: THREE_VARIABLES,
    ONE_VARIABLE: THREE_VARIABLES[:1],
    SIX_VARIABLES: _OF_A_BEAM[:6],
    TWELVE_VARIABLES: _OF_A_BEAM,
}
"""Variables that each task reads whole, one after the other."""


class Maker:
    """What makes the layouts of a granule, each of which must read as the original does.

    They are made in a folder on local disk, and then stored.
    """

    def __init__(self, granule: Granule, target: Location, folder: Path) -> None:
        self.target, self.folder, self.original = target, folder, folder / "original.h5"
        write_granule(granule, self.original)
        self.answers = _read(self.original)

    def make(self, layout: str) -> dict[str, Any]:
        """Make a layout, check it, upload it with references to it; return what it holds."""
        path = self.folder / f"{layout}.h5"
        if path != self.original:
            arrange(self.original, path, layout)
            if _read(path) != self.answers:
                raise UserError("layouts", f"{layout} made by h5py {h5py.__version__} reads wrong")
        with h5py.File(path) as file:
            properties = asdict(read_properties(file))
        store, n = self.target.obstore(), _N_PARTS
        obstore.put(store, f"{layout}.h5", path, chunk_size=_PART_NBYTES, max_concurrency=n)
        write_references(self.target, layout)
        if path != self.original:
            path.unlink()
        answers = {name: asdict(answer) for name, answer in self.answers.items()}
        nbytes = int(obstore.head(store, f"{layout}.json")["size"])
        return {"properties": properties, "answers": answers, "references_nbytes": nbytes}


def _read(path: Path) -> dict[str, Answer]:
    with h5py.File(path) as file:
        return {task: prove(read_all(Tree(file), names)) for task, names in TASKS.items()}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A granule in a store, in one or more layouts, and what must be read of it."""

    location: Location  # folder that holds the layouts, and references to each
    # what each task must answer, as computed from the original on local disk
    answers: Mapping[str, Answer]
    properties: Mapping[str, FileProperties]  # what each file says of itself
    references_nbytes: Mapping[str, int]  # bytes of references to each

    def locate(self, layout: str) -> Location:
        """Return where the file of a layout lies."""
        return self.location / f"{layout}.h5"

    def seen_from(self, location: Location) -> StoredFile:
        """Return the same file, reached as `location` is: its server, its interface and its keys."""
        return replace(self, location=self.location.reached_as(location))

    def needed_nbytes(self, layout: str, task: str) -> int:
        """Count the stored bytes of the variables that a task reads, without metadata."""
        return sum(self.properties[layout].stored_nbytes[name] for name in TASKS[task])


def prepare_granule(granule: Granule, location: Location, *, layouts: Sequence[str]) -> StoredFile:
    """Store a granule in each layout asked for, with references, unless it is there already.

    Every layout is read back whole from local disk and compared with the original before
    its entry is written, which comes last. The original is always among them; all lie in a
    folder of their own below `location`.
    """
    made_by = [_LAYOUT_GENERATION, _CONTENT_GENERATION, asdict(granule)]
    target = location / f"granule-{stores.hash_recipe(made_by)}"
    facts: dict[str, Mapping[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        start = functools.cache(lambda: Maker(granule, target, Path(folder)))
        for name in (layout for layout in FILE_LAYOUTS if layout in {"original", *layouts}):

            def write(_place: Location, name: str = name) -> dict[str, Any]:
                return start().make(name)

            keys = [f"{name}.h5", f"{name}.json"]
            facts[name] = stores.prepare(
                target, made_by, write, name=f"{name}.entry", prefixes=keys
            ).facts
    answers = facts["original"]["answers"]
    return StoredFile(
        target,
        {name: Answer(**answer) for name, answer in answers.items()},
        {name: FileProperties(**fact["properties"]) for name, fact in facts.items()},
        {name: fact["references_nbytes"] for name, fact in facts.items()},
    )
