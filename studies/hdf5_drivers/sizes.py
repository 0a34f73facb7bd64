"""What settings and a repack gain by the size of a file, replayed up to granules that nobody measures here.

`python -m studies.hdf5_drivers.sizes` writes the record that the page shows, without a network and
without values: the library lays out granules whose chunks are holes of the right length, and what
it asks for of these is replayed through the caches of each driver.
"""

from __future__ import annotations

import io
import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import matplotlib.style
import pandas as pd
from matplotlib.figure import Figure

from advisors.hdf5.copying import SparseFile
from advisors.hdf5.inspection import inspect_variable
from advisors.hdf5.prediction import TYPICAL_LIBRARY, record_repacked
from advisors.hdf5.recording import (
    Recording,
    iterate_chunks,
    list_datasets,
    open_hdf5,
    record_reads,
)
from helpers.benchmark.record import read_records
from helpers.book.studies import write_table
from helpers.models import caches
from helpers.models.replay import Replay, order_reads, replay
from helpers.models.transfer import TYPICAL_COSTS, ClientCosts, Network
from helpers.netem.profiles import get_profile, network_of
from helpers.paths import ROOT
from helpers.plotting.figures import label_ends, number_axis
from helpers.plotting.palette import RULE, STYLE, find_look
from helpers.plotting.tables import digits
from studies.hdf5_drivers.drivers import DRIVERS
from studies.hdf5_drivers.file_layouts import FILE_LAYOUTS, choose_repack
from studies.hdf5_drivers.files import (
    PHOTONS_PER_SEGMENT,
    THREE_VARIABLES,
    Beam,
    Granule,
    write_granule,
)
from studies.hdf5_drivers.findings import (
    DEFAULT,
    ORIGINAL,
    TUNED,
    UNTUNED,
    WHOLE,
    block_cache_nbytes,
    measured,
)
from studies.hdf5_drivers.prediction import Recorded, fit_all, predict_drivers

RECORD = ROOT / "data" / "hdf5" / "sizes.csv"
PROFILE, PAGED, REPACKED = "in-region", "paged-4mib", "rechunked-4mib"
_RECORDS = ROOT / "results" / "reference" / "hdf5-drivers"
CASES = ("layouts", "in-region", "above-the-cache")
"""Cases that measured some of what is replayed."""

_FITTED, _FITTED_PHOTONS = "in-region", 2_000_000  # the case that costs are fitted on
N_PHOTONS = (400_000, _FITTED_PHOTONS, 9_600_000, 13_600_000, 28_500_000, 90_000_000, 317_000_000)
"""Photons of the granules: three are those of the cases, the last has some 7 GB."""

WAYS = (
    *((name, ORIGINAL) for name in (UNTUNED, DEFAULT, TUNED, WHOLE)),
    (TUNED, PAGED),
    *((name, REPACKED) for name in (DEFAULT, TUNED, WHOLE)),
)
"""Drivers and layouts that are replayed."""

_SAMPLE_PHOTONS = 600_000  # of the granule that tells how long chunks are


class HollowBeam(Beam):
    """A beam whose chunks have the length of real ones, and no values."""

    def __init__(self, stored: Mapping[str, int], *given: Any) -> None:
        super().__init__(*given)
        self.stored = stored  # bytes of a full chunk of each variable of a beam
        self.datasets = {name: self.group[name] for name in stored}
        self.lengths = {name: one.chunks[0] for name, one in self.datasets.items()}
        self.done = dict.fromkeys(stored, 0)

    def append(self, index: int, n_rounds: int) -> None:
        """Append the chunks that a round completes; the last round, what is left."""
        stop = self.n_photons * (index + 1) // n_rounds
        is_last = index + 1 == n_rounds
        for name in self.product["photons"]:
            self._fill(f"heights/{name}", stop, is_last=is_last)
        for group, names in self.product["segments"].items():
            for name in names:
                self._fill(f"{group}/{name}", stop // PHOTONS_PER_SEGMENT, is_last=is_last)

    def _fill(self, name: str, stop: int, *, is_last: bool) -> None:
        dataset, length, done = self.datasets[name], self.lengths[name], self.done[name]
        if not is_last and stop // length == done // length:
            return
        self.done[name] = stop
        dataset.resize(stop, axis=0)
        for at in range(done // length * length, stop, length):
            if at + length <= stop or is_last:
                share = min(length, stop - at) / length
                data = bytes(max(1, round(share * self.stored[name])))
                dataset.id.write_direct_chunk((at, *(0 for _ in dataset.shape[1:])), data)


def count_stored(path: Path) -> dict[str, int]:
    """Count the bytes of a full chunk of each variable of a beam, on average over a granule."""
    with h5py.File(path) as file:
        beam = file[Path(THREE_VARIABLES[0]).parts[0]]
        return {name: _mean_nbytes(beam[name]) for name in list_datasets(beam)}


def _mean_nbytes(dataset: h5py.Dataset) -> int:
    length, n = dataset.chunks[0], dataset.shape[0]
    shares = [(size, min(length, n - at[0]) / length) for at, _, size in iterate_chunks(dataset)]
    return round(float(sum(size for size, _ in shares) / sum(share for _, share in shares)))


def write_hollow(granule: Granule, path: Path, stored: Mapping[str, int]) -> None:
    """Write a granule whose chunks are holes: a small file of any length, with real metadata."""
    with SparseFile(path) as file:
        write_granule(granule, file, partial(HollowBeam, stored))


def record_sizes(path: Path) -> dict[str, tuple[Recorded, float]]:
    """Note what the library asks of a granule and of its repacks, and estimate what it decodes (s)."""
    with path.open("rb") as file:
        with open_hdf5(file, path.name) as opened:
            made = {at: choose_repack(opened, FILE_LAYOUTS[at]) for at in (PAGED, REPACKED)}
            variables = [inspect_variable(opened[name]) for name in THREE_VARIABLES]
        decode_s = sum(map(TYPICAL_LIBRARY.of_variable, variables))
        how = {"is_listed": False}
        found = {ORIGINAL: record_reads(file, path.name, THREE_VARIABLES, **how)} | {
            at: record_repacked(file, path.name, repack, THREE_VARIABLES, **how)
            for at, repack in made.items()
        }
    return {layout: (_as_recorded(each), decode_s) for layout, each in found.items()}


def _as_recorded(found: Recording) -> Recorded:
    reads = tuple(
        caches.Read(each.offset, each.nbytes, is_metadata=each.is_metadata) for each in found.reads
    )
    chunks = tuple(sorted(each.offset for each in found.reads if not each.is_metadata))
    lengths = found.file_nbytes, found.page_nbytes
    return Recorded(caches.Reading(reads), 1, *lengths, found.n_first_past, chunks)


def predict_way(
    name: str, recorded: Recorded, network: Network, costs: Mapping[str, ClientCosts]
) -> Replay:
    """Replay a driver; of the one that fetches the whole file, its ranges."""
    if name != WHOLE:
        found = predict_drivers(DRIVERS[name], recorded, network, costs)
        assert found is not None  # all of `WAYS` have a model
        return found
    part, n = int(DRIVERS[WHOLE].settings["part_nbytes"]), recorded.file_nbytes
    parts = tuple(caches.Read(at, min(part, n - at)) for at in range(0, n, part))
    steps = order_reads(caches.Reading(parts), n_connections=DRIVERS[WHOLE].in_flight)
    cost = costs["fsspec"]
    return replay(steps, network, request_s=cost.request_s, rest_s=cost.start_s)


def replay_sizes(n_photons: Sequence[int] = N_PHOTONS, *, seed: int = 2018) -> pd.DataFrame:
    """Replay every way on granules of so many photons: a row a granule and way."""
    costs = read_costs()
    network, lines = network_of(get_profile(PROFILE)), []
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "sample.h5"
        write_granule(Granule(_SAMPLE_PHOTONS, seed), sample)
        stored = count_stored(sample)
        for n in n_photons:
            path = Path(folder) / f"{n}.h5"
            write_hollow(Granule(n, seed), path, stored)
            recorded = record_sizes(path)
            path.unlink()
            file_nbytes = recorded[ORIGINAL][0].file_nbytes
            for name, layout in WAYS:
                one, decode_s = recorded[layout]
                found = predict_way(name, one, network, costs)
                # what is fitted holds the decoding of the first granule
                more_s = decode_s * (1 - min(n, _FITTED_PHOTONS) / n)
                told = (found.seconds + more_s, found.n_requests, found.nbytes)
                lines.append((n, file_nbytes, name, layout, *told))
    names = ["n_photons", "file_nbytes", "driver", "layout", "seconds", "requests", "nbytes"]
    return pd.DataFrame(lines, columns=names)


def read_costs(folder: Path = _RECORDS) -> dict[str, ClientCosts]:
    """Fit what the client takes beside the network on the record of its case, if there is one."""
    path = folder / f"{_FITTED}.csv"
    return fit_all(read_records([path])) if path.exists() else {"fsspec": TYPICAL_COSTS}


def read_measured(folder: Path = _RECORDS) -> pd.DataFrame:
    """Read the median times of cases that are measured, in the form of the replay."""
    names = ["file_nbytes", "driver", "layout", "seconds"]
    lines = []
    for path in (folder / f"{case}.csv" for case in CASES):
        if path.exists():
            part = measured(read_records([path]), "variables")
            nbytes = float(part.loc[part["layout"] == ORIGINAL, "stored_nbytes"].median())
            times = part.groupby(["contender", "layout"])["total_s"].median()
            lines += [(nbytes, *way, float(times[way])) for way in WAYS if way in times.index]
    return pd.DataFrame(lines, columns=names)


def pivot(rows: pd.DataFrame, value: str = "seconds") -> pd.DataFrame:
    """Turn rows into times, or another value, a row a length of file, a column a way."""
    table = rows.pivot_table(index="file_nbytes", columns=["driver", "layout"], values=value)
    return table[[way for way in WAYS if way in table]]


_NAMES = {UNTUNED: "no cache", DEFAULT: "s3fs as it is", TUNED: "tuned", WHOLE: "whole file"}
_SHORT = {ORIGINAL: "as written", PAGED: "in pages", REPACKED: "repacked"}
_SAME = 0.03  # relative difference of lines that lie on one another
_DASHES: Mapping[str, Any] = {ORIGINAL: (0, (3, 1.5)), PAGED: "dotted", REPACKED: "solid"}


def render_sizes(path: Path = RECORD, folder: Path = _RECORDS) -> str:
    """Write times by length of file, replayed and measured, and what they say of settings."""
    replayed, found = pivot(pd.read_csv(path)), pivot(read_measured(folder))
    at = replayed.index.get_indexer(found.index, method="nearest")
    near = found.set_axis(replayed.index[at])
    # what others take for the repack is in the figure
    ways = [way for way in WAYS if way[1] == ORIGINAL or way[0] == TUNED]
    titles = [_NAMES[name] + f", {_SHORT[at]}" * (at != ORIGINAL) for name, at in ways]
    rows = [
        [digits(float(str(nbytes)) / 1e6)]
        + [digits(line[way]) + _tell_measured(near, nbytes, way) for way in ways]
        for nbytes, line in replayed.iterrows()
    ]
    moved = pivot(pd.read_csv(path), "nbytes")
    return (
        f"{write_table(['file (MB)', *titles], rows)}\n"
        "Seconds, replayed; in brackets what a case measured. Where no layout is named, the file is read as it is written.\n"
        f"{tell_sizes(replayed, found)}{tell_pages(moved)}"
    )


def _tell_measured(found: pd.DataFrame, nbytes: Any, way: tuple[str, str]) -> str:
    """Write what was measured in brackets, if it was."""
    is_there = nbytes in found.index and way in found and math.isfinite(found.loc[nbytes, way])
    return f" ({digits(found.loc[nbytes, way])})" if is_there else ""


def tell_sizes(replayed: pd.DataFrame, found: pd.DataFrame) -> str:
    """Say what settings and repack gain below and above the cache, and how far the replay errs."""
    limit = block_cache_nbytes()
    untuned = replayed[UNTUNED, ORIGINAL]
    alone, paged, both = (untuned / replayed[TUNED, at] for at in (ORIGINAL, PAGED, REPACKED))
    over_default = replayed[DEFAULT, ORIGINAL] / replayed[TUNED, REPACKED]

    def tell(gains: pd.Series[float]) -> str:
        below, above = (gains[part] for part in (gains.index <= limit, gains.index > limit))
        ends = [digits(end) for part in (below, above) for end in (part.min(), part.max())]
        return "{} to {} of files that fit in the cache, {} to {} of larger ones".format(*ends)

    errors = (replayed.reindex(found.index, method="nearest") / found - 1).abs().stack([0, 1])
    told = (
        f"Gain over no cache, replayed: settings alone {tell(alone)}.\n"
        f"Settings with pages, chunks as they were: {tell(paged)}.\n"
        f"Settings with a repack: {tell(both)}.\n"
        f"Both over what `s3fs.open(path)` returns on the file as it is written: {tell(over_default)}.\n"
    )
    if not len(errors):
        return told
    return (
        f"{told}Where cases measured the same, the replay errs by {100 * errors.median():.0f} % in the median"
        f" and {100 * errors.max():.0f} % at worst, over {len(errors)} medians.\n"
    )


def tell_pages(moved: pd.DataFrame) -> str:
    """Say what pages, which are fetched whole, move over the file as written."""
    share = moved[TUNED, PAGED] / moved[TUNED, ORIGINAL]
    ends = zip(share.iloc[[0, -1]], share.index[[0, -1]], strict=True)
    first, last = (f"{digits(one)} times at {digits(nbytes / 1e6)} MB" for one, nbytes in ends)
    return (
        "Pages are fetched whole, full or not: tuned reads of the file in pages move,"
        f" over those of it as written, {first} and {last}.\n"
    )


def draw_sizes(path: Path = RECORD, folder: Path = _RECORDS) -> str:
    """Draw the gain over a file object without a cache against the length of the file, as SVG text."""
    replayed, found = pivot(pd.read_csv(path)), pivot(read_measured(folder))
    with matplotlib.style.context(list(STYLE)):
        figure = Figure(figsize=(7.2, 4))
        ax, ends = figure.subplots(), dict[tuple[str, str], float]()
        for name, layout in WAYS[1:]:
            look, base = find_look(name, "driver"), (UNTUNED, ORIGINAL)
            gains = replayed[base] / replayed[name, layout]
            megabytes = [nbytes / 1e6 for nbytes in gains.index]
            ax.plot(megabytes, gains, color=look.color, linestyle=_DASHES[layout])
            ends[name, layout] = float(gains.iloc[-1])
            if base in found and (name, layout) in found:
                seen = (found[base] / found[name, layout]).dropna()
                ax.plot(seen.index / 1e6, seen, linestyle="", marker=look.marker, color=look.color)
        ax.axvline(block_cache_nbytes() / 1e6, color=RULE, linewidth=0.8)
        ax.axhline(1, color=RULE, linewidth=0.8)
        ax.set(xscale="log", yscale="log", xlabel="length of the file as written (MB)")
        ax.set(ylabel="gain over no cache, as written")
        number_axis(ax.xaxis)
        number_axis(ax.yaxis)
        label_ends(ax, name_ends(ends), at=megabytes[-1])
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return file.getvalue()


def name_ends(ends: Mapping[tuple[str, str], float]) -> list[tuple[str, float, str]]:
    """Name the ends of lines; those of one driver that lie on one another share a name.

    Examples
    --------
    >>> [(name, at) for name, at, _ in name_ends({(WHOLE, ORIGINAL): 20.0, (WHOLE, REPACKED): 20.1})]
    [('whole file', 20.0)]
    """
    found: dict[tuple[str, float], list[str]] = {}
    for (name, layout), at in ends.items():
        same = (key for key in found if key[0] == name and abs(at / key[1] - 1) < _SAME)
        found.setdefault(next(same, (name, at)), []).append(_SHORT[layout])
    n_lines = Counter(name for name, _ in ends)
    told = {
        (name, at): f", {' or '.join(on)}" if len(on) < max(2, n_lines[name]) else ""
        for (name, at), on in found.items()
    }
    return [
        (f"{_NAMES[name]}{on}", at, find_look(name, "driver").color)
        for (name, at), on in told.items()
    ]


if __name__ == "__main__":
    replay_sizes().round(4).to_csv(RECORD, index=False, lineterminator="\n")
    print(render_sizes())
