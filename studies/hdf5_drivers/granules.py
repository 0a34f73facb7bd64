"""Several granules at once: as many processes as granules, behind one link.

`python -m studies.hdf5_drivers.granules` writes the record that the page shows. HDF5 lets in one
thread at a time, so that programs which read several files at once have a process for each, as the
workers of Dask are. Time is dilated, for the processors of one machine stand for those of several.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from helpers.benchmark.contender import CheckError
from helpers.benchmark.loop import timed
from helpers.benchmark.provenance import write_rows
from helpers.benchmark.statistics import paired_ratio
from helpers.book.studies import write_table
from helpers.netem.profiles import get_profile, get_recorded_profile, network_of
from helpers.objectstore.testbed import Testbed, open_testbed
from helpers.paths import ROOT
from helpers.plotting.tables import digits
from studies.hdf5_drivers.drivers import DRIVERS, Driver
from studies.hdf5_drivers.files import Granule, StoredFile, prepare_granule
from studies.hdf5_drivers.findings import DEFAULT, ORIGINAL, TUNED
from studies.hdf5_drivers.session import Session, open_session
from studies.hdf5_drivers.tasks import Answer

RECORD = ROOT / "data" / "hdf5" / "granules.csv"
COUNTS = (1, 2, 4)
"""Granules at once."""

WAYS: Mapping[tuple[str, str], str] = {
    (DEFAULT, ORIGINAL): "s3fs as it is, as written",
    (TUNED, ORIGINAL): "tuned, as written",
    (TUNED, "rechunked-4mib"): "tuned, repacked",
    ("obstore-whole", ORIGINAL): "whole file, as written",
    ("references-rechunked", "references-rechunked"): "references to the repacked file",
}
"""Drivers and layouts, and what they are called."""

_PROFILE = "in-region"
_PACKAGES = ("python", "h5py", "s3fs", "obstore", "virtualizarr", "zarr")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    n_photons: int = 1_000_000  # of a granule
    n_blocks: int = 5
    dilation: float = 4.0  # real seconds in one of the network
    seed: int = 2018  # of order, values and delays
    profile: str = _PROFILE
    counts: tuple[int, ...] = COUNTS
    ways: tuple[tuple[str, str], ...] = tuple(WAYS)

    def order(self) -> Iterator[tuple[int, str, str, int]]:
        """Go through all ways and counts, anew in random order in each block."""
        rng = random.Random(self.seed)
        for block in range(self.n_blocks):
            asked = [(*way, n) for way in self.ways for n in self.counts]
            rng.shuffle(asked)
            yield from ((block, *each) for each in asked)


def measure_granules(
    testbed: Testbed, sessions: Sequence[Session], plan: Plan
) -> list[dict[str, Any]]:
    """Read granules at once, an interpreter for each: a row a block, way and number of granules."""
    layouts = [layout for _, layout in plan.ways]
    granules = [Granule(plan.n_photons, plan.seed + at) for at in range(max(plan.counts))]
    stored = [prepare_granule(each, testbed.near, layouts=layouts) for each in granules]
    for name, layout in plan.ways:  # what libraries make once
        _read_at_once(testbed, sessions, stored, DRIVERS[name], layout)
    testbed.emulate(get_profile(plan.profile))
    rows = []
    for block, name, layout, n in plan.order():
        testbed.take_trace()
        seconds = _read_at_once(testbed, sessions[:n], stored[:n], DRIVERS[name], layout)
        trace = testbed.take_trace()
        row = {"block": block, "driver": name, "layout": layout, "n_granules": n}
        told = {"seconds": seconds / plan.dilation, "requests": len(trace)}
        nbytes = sum(request.nbytes for request in trace)
        rows.append({**row, **told, "nbytes": nbytes, "profile": plan.profile})
    return [{**row, "dilation": plan.dilation, "n_photons": plan.n_photons} for row in rows]


def _read_at_once(
    testbed: Testbed,
    sessions: Sequence[Session],
    stored: Sequence[StoredFile],
    driver: Driver,
    layout: str,
) -> float:
    """Open and read the variables of every granule, each in its interpreter; return real seconds."""

    def read(session: Session, file: StoredFile) -> Answer:
        session.open(driver, file.seen_from(testbed.far).at(layout))
        return session.run(file.tasks["variables"])

    for session in sessions:
        session.forget()
    with ThreadPoolExecutor(len(stored)) as pool:
        answers, seconds = timed(lambda: list(pool.map(read, sessions, stored)))
    if answers != [file.answers["variables"] for file in stored]:
        raise CheckError(f"{driver.name} on {layout}: {answers} are not what was written")
    return seconds


def render_granules(path: Path = RECORD) -> str:
    """Write what reading at once takes, beside one after the other and what the link allows."""
    if not path.exists():
        return "Not measured yet: `python -m studies.hdf5_drivers.granules` does it.\n"
    rows = pd.read_csv(path)
    network = network_of(get_recorded_profile(rows["profile"].iloc[0]))
    counts = sorted({*rows["n_granules"]})
    lines = []
    for (name, layout), part in rows.groupby(["driver", "layout"], sort=False):
        medians = part.groupby("n_granules")[["seconds", "nbytes"]].median()
        most, one_s = counts[-1], medians["seconds"][counts[0]]
        named = part.assign(contender=part["n_granules"].astype(str), control_of="")
        found = paired_ratio(named, str(counts[0]), str(most), value="seconds")
        shown = " to ".join(digits(most * end) for end in (found.low, found.high))
        link_s = medians["nbytes"][most] / network.aggregate_nbytes_per_s
        allowed = min(most, most * one_s / link_s)
        gains = [f"{digits(most * found.centre)} ({shown})", digits(allowed)]
        times = [digits(medians["seconds"][n]) for n in counts]
        lines.append((WAYS[str(name), str(layout)], [*times, *gains]))
    titles = ["granules at once", *(f"{n} (s)" for n in counts)]
    titles += [f"{counts[-1]} at once over one after the other", "at most, by processes and link"]
    return (
        f"{write_table(titles, [[title, *told] for title, told in lines])}\n"
        f"Medians of {rows['block'].nunique()} blocks over {rows['profile'].iloc[0]} as a scale model, with a 95 % interval;"
        f" time is dilated {rows['dilation'].iloc[0]:g} times.\n"
    )


def main(plan: Plan) -> None:
    """Measure as planned, and write the record."""
    n = max(plan.counts)
    room = {"seed": plan.seed, "needed_nbytes": 300 * plan.n_photons * n}
    with ExitStack() as stack:
        before = open_testbed("embedded", get_profile("loopback"), dilation=plan.dilation, **room)
        testbed = stack.enter_context(before)
        sessions = [stack.enter_context(open_session(testbed.far, None)) for _ in range(n)]
        rows = measure_granules(testbed, sessions, plan)
    write_rows(RECORD, rows, _PACKAGES)
    print(render_granules())


if __name__ == "__main__":
    main(Plan())
