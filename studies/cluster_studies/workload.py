"""What a case of the studies reads: its sources over their networks, by clusters of several sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.arrays import stores
from helpers.arrays.clusters import Cluster
from helpers.arrays.stores import StoredArray
from helpers.benchmark.contender import Contender, Steps
from helpers.session import Session
from studies.cluster_scaling.findings import take_steps
from studies.cluster_studies import apart, opendap
from studies.cluster_studies.sources import (
    SOURCES,
    TABLES,
    SourceRead,
    find_dilation,
    limit_link,
    make_layouts,
)
from studies.cluster_studies.tables import ROW_NBYTES, cut
from wire.bed.networks import Profile
from wire.bed.testbed import Testbed

CONTROL = "control"


@dataclass(slots=True)
class ClusterWorkload:
    """Sources that are made and reached, and the cluster that reads them."""

    settings: Mapping[str, Any]  # parameters of the case
    cluster: Cluster
    array: StoredArray
    entries: Mapping[str, stores.Entry]  # layouts that these studies make
    testbeds: Mapping[str, Testbed]  # by network
    networks: Mapping[str, Profile]
    tried: Mapping[str, Mapping[str, Any]]  # what `try_entries` found of each entry
    dilations: dict[str, float] = field(default_factory=dict)  # by group of contenders

    def make_contenders(self, read: Callable[[Any], Any] | None) -> list[Contender]:
        """Make a contender of each source and entry at each size of the cluster, and a second copy.

        `read` is what is timed of a source. The second copy is of the first source, at the most
        workers.
        """
        sources, entries = self.settings["contenders"], self.settings["entries"]
        sizes = self.settings["n_workers"]
        most = max(sizes)
        planned = [self._plan_source(name, n, read) for n in sizes for name in sources]
        planned += [self._plan_entry(name, n) for name in entries for n in sizes]
        first = [*sources, *entries][0]
        if sources:
            planned.append(self._plan_source(first, most, read, is_copy=True))
        else:
            planned.append(self._plan_entry(first, most, is_copy=True))
        per_worker = self.settings["dilation_per_worker"]
        for contender in planned:
            self.dilations[contender.group] = find_dilation(contender.group, per_worker)
        return planned

    def _plan_source(
        self, name: str, n_workers: int, read: Callable[[Any], Any] | None, *, is_copy: bool = False
    ) -> Contender:
        source = SOURCES[name]
        n_steps = n_workers * self.settings["steps_per_worker"] or self.array.shape[0]
        steps = SourceRead(
            stored=take_steps(self.array, n_steps),
            reader=source.reader,
            testbed=self.testbeds[source.network],
            cluster=self.cluster,
            source=source,
            entry=self.entries.get(source.layout),
        )
        return self._plan(name, n_workers, source.network, steps, read=read, is_copy=is_copy)

    def _plan_entry(self, name: str, n_workers: int, *, is_copy: bool = False) -> Contender:
        n_chunks = 3 * n_workers * self.settings["threads_per_worker"]
        steps = apart.EntryRead(name, self.tried[name], self.cluster, n_chunks)
        return self._plan(name, n_workers, "entry", steps, is_copy=is_copy)

    def _plan(
        self,
        name: str,
        n_workers: int,
        group: str,
        steps: Steps,
        *,
        read: Callable[[Any], Any] | None = None,
        is_copy: bool = False,
    ) -> Contender:
        return Contender(
            CONTROL if is_copy else name,
            steps,
            read=read,
            point={"n_workers": n_workers},
            group=f"{n_workers} {group}",
            n_machines=n_workers,
            settings={"concurrency": n_workers * self.settings["threads_per_worker"]},
            control_of=name if is_copy else None,
        )

    def enter(self, group: str) -> None:
        """Scale the cluster to a group of contenders, and emulate its network."""
        n_workers, network = group.split()
        self.cluster.scale(int(n_workers))
        if network in self.networks:
            dilation = self.dilations[group]
            self.testbeds[network].emulate(self.networks[network], dilation=dilation)

    def try_parquet(self) -> list[Contender]:
        """Make a contender of one Parquet file, whole and by its groups of rows, under a limit of memory."""
        folder = self.array.location / "tables" / "parquet"
        held_nbytes = ROW_NBYTES * math.prod(cut(self.array)[0])
        return [
            self._plan(
                f"parquet-{part}",
                1,
                "memory",
                apart.ParquetApart(folder, self.entries["parquet"], part, held_nbytes),
            )
            for part in ("whole", "groups")
        ]


def open_workload(session: Session, also: Sequence[str] = ()) -> ClusterWorkload:
    """Open the store and the cluster of a case, make what its sources read, and reach it.

    `also` are layouts that are made for something else. For stores outside the region only the
    link differs: all workers together get as many MB/s of array as a store of 2020 gave. A server
    of OPeNDAP computes, so it is read in real time.
    """
    settings = session.settings
    chosen = [SOURCES[name] for name in settings["contenders"]]
    layouts = {source.layout for source in chosen}
    testbed = session.open_store(30 * math.prod(settings["array_shape"]))
    cluster = session.open_cluster()
    stored = session.array(
        settings["array_shape"],
        settings["chunk_shape"],
        codec=settings["codec"],
        layouts=[layout for layout in ("zarr", "netcdf") if layout in {"zarr", *layouts}],
        dataset=settings["dataset"],
    )
    array = opendap.serve_layout(stored)
    entries = make_layouts(array, sorted({*layouts, *also} & {*TABLES}))
    networks = {
        source.network: limit_link(session.network, array, source.link_mb_per_s)
        for source in chosen
    }
    testbeds = dict.fromkeys(networks, testbed)
    if "opendap" in networks:
        service = opendap.open_service(array, session.network, seed=settings["seed"])
        testbeds["opendap"] = session.open(service)
    tried = apart.try_entries(settings["entries"])
    return ClusterWorkload(settings, cluster, array, entries, testbeds, networks, tried)
