"""All contenders of a case: layouts, a copy of one for noise, the raw objects, and the extras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import obstore
import xxhash

from helpers.measurement.measure import CheckError, Contender
from helpers.storage.chunkings import Chunking, Medium
from helpers.storage.locations import Location
from helpers.storage.reads import count_requests
from helpers.storage.wires import Wire
from helpers.studies.chunk_shape.decoding import make_adjacents, make_decodings
from helpers.studies.chunk_shape.layouts import make_calibrations
from helpers.studies.chunk_shape.planning import Plan, contend, make_ways, prepare_objects
from helpers.studies.chunk_shape.reading import N_CONNECTIONS, BoxRead
from helpers.studies.chunk_shape.rewriting import make_rewrites

_COPIED = "balanced 1024 KiB"
_N_CALIBRATING = 10  # positions: all predictions rest on them
_EXTRAS = {"rewriting": make_rewrites, "codecs": make_decodings, "chunk-cache": make_adjacents}


def write_calibrations(media: Sequence[Medium], wire: Wire, plan: Plan) -> list[BoxRead]:
    """Write the layouts that calibrate to each medium; positions are drawn with another seed."""
    chosen, ways = make_calibrations(plan.values.shape), []
    for medium in media:
        apart = replace(plan, n_boxes=_N_CALIBRATING, n_blocks=1, draw_seed=plan.seed + 1)
        ways += make_ways(medium, wire, apart, chosen)
    return ways


def write_layouts(
    wire: Wire, plan: Plan, layouts: Mapping[Medium, Sequence[Chunking]]
) -> list[BoxRead]:
    """Write the layouts that are compared to each medium."""
    return [
        way for medium, chosen in layouts.items() for way in make_ways(medium, wire, plan, chosen)
    ]


def keep_fitting(
    plan: Plan, layouts: Mapping[Medium, Sequence[Chunking]]
) -> dict[Medium, list[Chunking]]:
    """Keep the layouts that a medium holds."""
    return {
        medium: [one for one in chosen if plan.holds(medium, one)]
        for medium, chosen in layouts.items()
    }


def contend_all(
    ways: Sequence[BoxRead], wire: Wire, plan: Plan, extras: Sequence[str]
) -> list[Contender]:
    """Make all contenders: of each way, a copy of a layout of each medium, and what is beside."""
    copied = {medium: _copied(medium, ways) for medium in dict.fromkeys(w.medium for w in ways)}
    copies = [
        contend(replace(way), name="control", control_of=way.chunks.name)
        for way in ways
        if way.chunks.name == copied[way.medium]
    ]
    more = [contender for extra in extras for contender in _EXTRAS[extra](plan)]
    return [*map(contend, ways), *copies, *_make_ceilings(ways, wire, plan), *more]


def _copied(medium: Medium, ways: Sequence[BoxRead]) -> str:
    """Choose the layout of which a medium has a second copy."""
    names = [way.chunks.name for way in ways if way.medium == medium]
    return _COPIED if _COPIED in names else names[0]


@dataclass(frozen=True, slots=True)
class RawObjects:
    """The objects of one layout, read as they are, as many at a time as zarr reads.

    Parameters
    ----------
    location : Location
        Folder of the array, over the network.
    sums : dict of str to int
        Checksums of the objects, by key.
    wire : Wire
        What traces.
    """

    location: Location
    sums: Mapping[str, int]
    wire: Wire

    def prepare(self) -> None:
        """Empty the trace."""
        self.wire.take_trace()
        self.wire.set_tag("read")

    def read(self, client: obstore.store.ObjectStore) -> dict[str, int]:
        """Read every object."""

        def read_one(key: str) -> int:
            return xxhash.xxh3_64_intdigest(obstore.get(client, key).bytes())

        with ThreadPoolExecutor(N_CONNECTIONS) as pool:
            return dict(zip(self.sums, pool.map(read_one, self.sums), strict=True))

    def check(self, found: dict[str, int]) -> str:
        """Compare with what is stored."""
        if found != self.sums:
            raise CheckError("other objects were read")
        return f"xxh3 of {len(found)} objects"

    def collect(self) -> dict[str, float]:
        """Count the requests."""
        return count_requests(self.wire.take_trace(), N_CONNECTIONS)


def _make_ceilings(ways: Sequence[BoxRead], wire: Wire, plan: Plan) -> list[Contender]:
    """Make the raw ceiling of the whole array, for each medium of objects."""
    found = {w.medium: w for w in ways if w.medium != "hdf5" and w.chunks.name == _COPIED}
    made = []
    for way in found.values():
        if way.wire is None:
            continue
        place = prepare_objects(way.medium, wire, plan, way.chunks)
        near = (wire.near / place).obstore()
        keys = [o["path"] for page in obstore.list(near, prefix="c") for o in page]
        sums = {k: xxhash.xxh3_64_intdigest(obstore.get(near, k).bytes()) for k in sorted(keys)}
        raw = RawObjects(wire.far / place, sums, way.wire)
        made.append(
            Contender(
                name="raw objects",
                point={"access": "whole", "medium": way.medium},
                group=f"{way.medium} whole",
                settings={"codec": "none", "concurrency": N_CONNECTIONS,
                          "cache_state": "new client, warm server"},
                open=raw.location.obstore,
                read=raw.read,
                check=raw.check,
                prepare=raw.prepare,
                collect=raw.collect,
                array_nbytes=plan.values.nbytes,
                stored_nbytes=plan.values.nbytes,
                is_ceiling=True,
            )
        )  # fmt: skip
    return made
