"""Whether the advisor's chunks are the best: arrays that many have, scaled down, in several shapes.

`python -m studies.chunk_shape.ready` measures for some three quarters of an hour, and less where
it is told which checks. It writes the record that the page on chunk shape shows: the advisor's
answer, the shapes that tools pick by themselves, the best shape for each access alone, and the
advisor's proportions in more and in fewer bytes. What chunks and bytes cost this machine is fitted first,
with no network, as `wire calibrate` does it for whoever has a store.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import zarr
from numpy.typing import NDArray
from zarr.storage import ObjectStore

from advisors.chunks.answers import parse_access
from advisors.chunks.beside import pick_by_tools
from advisors.chunks.candidates import predict_seconds
from advisors.chunks.examples import EXAMPLES
from advisors.chunks.problem import Access, AccessPattern, Bounds, Recommendation
from advisors.chunks.search import MODEL_ERROR, best_chunk_shape
from helpers.arrays.chunks import Shape, balanced_chunk_shape, chunks_touched, count_chunks
from helpers.arrays.reads import WrongValuesError
from helpers.benchmark.loop import timed
from helpers.benchmark.provenance import machine
from helpers.benchmark.statistics import Interval, ratio_interval
from helpers.book.studies import write_table
from helpers.models.access import IoCounts, Observation, Store, fit_store
from helpers.netem.profiles import Profile, get_profile, network_of, take_scatter_out
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Testbed, open_testbed
from helpers.paths import ROOT
from helpers.plotting.tables import digits, tell_interval

RECORD = ROOT / "results" / "reference" / "ready-checks.csv"
SCATTERED = get_profile("in-region")
"""The network of the cases."""

PROFILE = take_scatter_out(SCATTERED)
"""The same; its delays do not scatter, for that of few reads would hide a shape."""

BAR = 0.05
"""How much longer than the best measured shape the recommended one may take."""

OURS = "the advisor's answer"
N_CONNECTIONS = 10
"""Requests in flight, zarr's default."""

_LEAST_NBYTES = 100_000  # as the command assumes
# of the chunks that costs are fitted in
_CALIBRATING_NBYTES = (100_000, 400_000, 1_600_000, 6_400_000)
_N_CALIBRATING = 4  # reads of each access in each of these
_MOST_TIMES, _MOST_OBJECTS = 4.0, 4000  # beyond which a shape is predicted and not measured
_ROUNDS_S, _MOST_ROUNDS = 45.0, 12  # predicted seconds of reads of an array, at most
# Where delays scatter, rounds are many, and shapes beyond so many times are left out.
_N_SCATTERED, _NEAR_TIMES = 400, 1.15


@dataclass(frozen=True, slots=True)
class Check:
    """An example of the advisor's, with fewer elements: what is read at once keeps its size where it can."""

    shape: Shape
    accesses: tuple[str, ...]


CHECKS: Mapping[str, Check] = {
    "era5": Check((19_644, 40, 81), ("series", "slice")),
    "sentinel-2": Check(
        (36, 4, 1024, 1024), ("1x4x256x256@aligned:8", "36x4x1x1", "36x4x512x512@aligned")
    ),
    "light-sheet": Check(
        (1, 256, 768, 768), ("1x1x768x768:4", "1x128x128x128@aligned:4", "1x256x1x768")
    ),
    "point-cloud": Check((24_000_000, 3), ("1000000x3:9", "24000000x1")),
}
"""Arrays of some 300 MB, in the proportions of the examples."""


def make_values(
    shape: Shape, dtype: np.dtype[Any], ratio: float, *, seed: int = 0
) -> NDArray[np.generic]:
    """Make noise that compresses about so many times: as many of its bits are random."""
    bits = min(round(8 * dtype.itemsize / ratio), 23 if dtype.kind == "f" else 8 * dtype.itemsize)
    made = np.random.default_rng(seed).integers(0, 2**bits, shape, dtype=f"u{dtype.itemsize}")
    if dtype.kind != "f":
        return made.astype(dtype, copy=False)
    made <<= np.uint32(23 - bits)
    made |= np.uint32(0x3F800000)  # the bits of 1.0, so that values lie between 1 and 2
    return made.view(dtype)


def make_pattern(name: str, check: Check, store: Store) -> AccessPattern:
    """Describe how a check is read from a store."""
    parsed = [parse_access(text, check.shape) for text in check.accesses]
    accesses, weights = zip(*parsed, strict=True)
    itemsize = np.dtype(EXAMPLES[name].dtype).itemsize
    bounds = Bounds(min_chunk_nbytes=_LEAST_NBYTES)
    return AccessPattern(check.shape, itemsize, accesses, weights, store, bounds)


def list_candidates(
    pattern: AccessPattern, found: Recommendation, dtype: np.dtype[Any]
) -> dict[Shape, str]:
    """List the shapes that are compared, each with all its names; the advisor's comes first."""
    ours, n_long = found.best.chunk_shape, sum(n > 1 for n in pattern.shape)

    def resize(times: float) -> Shape:
        pairs = zip(ours, pattern.shape, strict=True)
        return tuple(min(n, max(1, round(c * times ** (1 / n_long)))) for c, n in pairs)

    alone = {
        f"best for {access.name} alone": min(
            found.front, key=lambda choice: choice.seconds[access.name]
        ).chunk_shape
        for access in pattern.accesses
    }
    named = {
        OURS: ours,
        "the fastest predicted": found.fastest.chunk_shape,
        "the best of clearly other shapes": found.second.chunk_shape,
        **pick_by_tools(pattern.shape, dtype),
        **alone,
        "ours in a quarter of the bytes": resize(1 / 4),
        "ours in four times the bytes": resize(4),
    }
    names: dict[Shape, list[str]] = {}
    for name, shape in named.items():
        names.setdefault(shape, []).append(name)
    return {shape: ", ".join(each) for shape, each in names.items()}


def draw_box(access: Access, shape: Shape, rng: np.random.Generator) -> tuple[slice, ...]:
    """Draw where an access lies: anywhere, or on its own grid."""
    starts = [
        int(rng.integers(0, n // e)) * e if access.is_aligned else int(rng.integers(0, n - e + 1))
        for e, n in zip(access.extent, shape, strict=True)
    ]
    return tuple(slice(at, at + e) for at, e in zip(starts, access.extent, strict=True))


def write_layout(place: Location, values: NDArray[np.generic], chunk_shape: Shape) -> None:
    """Write values in chunks of a shape, each an object, shuffled and compressed."""
    codec = zarr.codecs.BloscCodec(
        cname="zstd", clevel=1, shuffle="shuffle", typesize=values.dtype.itemsize
    )
    # one that an interrupted measurement left there is replaced
    how: dict[str, Any] = {"chunks": chunk_shape, "compressors": codec, "overwrite": True}
    made = zarr.create_array(
        ObjectStore(place.obstore()), shape=values.shape, dtype=values.dtype, **how
    )
    made[...] = values


def open_layout(place: Location) -> Any:
    """Open an array that was written, by a new client."""
    return zarr.open_array(ObjectStore(place.obstore(), read_only=True), mode="r")


def count_box(box: tuple[slice, ...], chunk_shape: Shape, itemsize: int) -> IoCounts:
    """Count the chunks that a box touches, each an object."""
    return IoCounts(chunks_touched(box, chunk_shape), itemsize * math.prod(chunk_shape))


def calibrate(
    near: Location,
    values: NDArray[np.generic],
    accesses: Sequence[Access],
    shapes: Sequence[Shape],
    bare: Store,
    *,
    n_each: int = _N_CALIBRATING,
    seed: int = 0,
) -> Store:
    """Fit what a read, chunks and bytes cost this machine, from boxes in some shapes, with no network.

    Boxes of each access are read so many times in each shape, after one that connects. The store
    comes without these costs: its requests in flight, and how far it is compressed.
    """
    rng, seen = np.random.default_rng(seed), list[Observation]()
    for shape in shapes:
        write_layout(near / "calibrating", values, shape)
        array = open_layout(near / "calibrating")
        for access in accesses:
            boxes = [draw_box(access, values.shape, rng) for _ in range(1 + n_each)]
            times = [read_once(array, box, values) for box in boxes]
            asked = [count_box(box, shape, values.dtype.itemsize) for box in boxes]
            seen += list(map(Observation, times, asked))[1:]
        (near / "calibrating").clear()
    return fit_store(bare, seen)


def measure_check(
    name: str,
    check: Check,
    testbed: Testbed,
    *,
    profile: Profile = PROFILE,
    most_times: float = _MOST_TIMES,
    n_rounds: int | None = None,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """Measure a check: a row a read, and one without a time for each shape that is predicted only.

    In a round every shape is read at the same places, in random order, each by a new client.
    """
    dtype, ratio = np.dtype(EXAMPLES[name].dtype), EXAMPLES[name].compression_ratio
    values, rng = make_values(check.shape, dtype, ratio, seed=seed), np.random.default_rng(seed)
    bare = Store(n_connections=N_CONNECTIONS, compression_ratio=ratio)
    accesses = make_pattern(name, check, bare).accesses
    costs = calibrate(testbed.near, values, accesses, _calibrating(check.shape, dtype), bare)
    pattern = make_pattern(name, check, replace(costs, network=network_of(profile)))
    found = best_chunk_shape(pattern, tolerance=MODEL_ERROR)
    candidates = list_candidates(pattern, found, dtype)
    seconds = predict_seconds(pattern, np.asarray([*candidates]))
    scores = dict(zip(candidates, map(float, pattern.score(seconds)), strict=True))
    least_s = scores[found.best.chunk_shape]
    rows: dict[Shape, dict[str, Any]] = {
        shape: {
            "example": name,
            "network": profile.name,
            "shape": "x".join(map(str, check.shape)),
            "chunk_ms": 1e3 * costs.chunk_s,
            "decode_ms_per_mb": 1e9 * costs.decode_s_per_nbyte,
            "layout": layout,
            "chunk_shape": "x".join(map(str, shape)),
            "chunk_nbytes": math.prod(shape) * dtype.itemsize,
            "n_objects": count_chunks(check.shape, shape),
            "predicted_s": scores[shape],
        }
        for shape, layout in candidates.items()
    }
    kept = [
        shape
        for shape in candidates
        if scores[shape] <= most_times * least_s and rows[shape]["n_objects"] <= _MOST_OBJECTS
    ]
    yield from (row for shape, row in rows.items() if shape not in kept)
    places = {shape: f"ready-{name}-{at}" for at, shape in enumerate(kept)}
    for shape, place in places.items():
        write_layout(testbed.near / place, values, shape)
    round_s = sum(scores[shape] for shape in kept) * len(pattern.accesses)
    for number in range(n_rounds or max(4, min(_MOST_ROUNDS, int(_ROUNDS_S / round_s)))):
        boxes = [draw_box(access, check.shape, rng) for access in pattern.accesses]
        for at in rng.permutation(len(kept)):
            array = open_layout(testbed.far / places[kept[at]])
            times = [read_once(array, box, values) for box in boxes]
            read_s = float(pattern.shares @ np.asarray(times))
            yield {**rows[kept[at]], "round": number, "read_s": read_s}
    for place in places.values():
        (testbed.near / place).clear()


def _calibrating(shape: Shape, dtype: np.dtype[Any]) -> list[Shape]:
    """List the shapes that costs are fitted in: by the rule, of several sizes."""
    axis = max(range(len(shape)), key=shape.__getitem__)
    sizes = [min(n, math.prod(shape) * dtype.itemsize) for n in _CALIBRATING_NBYTES]
    return [balanced_chunk_shape(shape, dtype.itemsize, n, axis=axis) for n in sizes]


def read_once(array: Any, box: tuple[slice, ...], values: NDArray[np.generic]) -> float:
    """Read a box, check it, and return the seconds."""
    found, seconds = timed(lambda: array[box])
    if not np.array_equal(found, values[box]):
        raise WrongValuesError(f"{array.chunks}: {box} reads other values")
    return seconds


def measure(name: str, check: Check) -> pd.DataFrame:
    """Measure a check over the emulated network, with delays that are steady, and that scatter.

    Where none does, one request more than there are connections waits for a whole round, which no
    network makes it do: that shows far shapes in few reads, and tells near ones apart by chance.
    """
    rows: list[dict[str, Any]] = []
    needed_nbytes = 16 * math.prod(check.shape) * np.dtype(EXAMPLES[name].dtype).itemsize
    with open_testbed("embedded", PROFILE, needed_nbytes=needed_nbytes) as testbed:
        rows += measure_check(name, check, testbed)
    how: dict[str, Any] = {"n_rounds": _N_SCATTERED, "most_times": _NEAR_TIMES}
    with open_testbed("embedded", SCATTERED, needed_nbytes=needed_nbytes) as testbed:
        rows += measure_check(name, check, testbed, profile=SCATTERED, **how)
    return pd.DataFrame(rows)


def compare_best(rows: pd.DataFrame) -> tuple[str, Interval, str]:
    """Compare the advisor's shape with the best of one example: its name, the ratio, the verdict.

    The best has the least mean logarithm of all, ours among them, so that chance is on its side.
    The bar is met where the whole interval lies below it, and missed where all lies above.
    """
    times = rows.dropna(subset="read_s").pivot(index="round", columns="layout", values="read_s")
    logs = times.map(math.log)
    best, ours = (
        str(logs.mean().idxmin()),
        next(name for name in logs if str(name).startswith(OURS)),
    )
    if best == ours:
        return best, Interval(1.0, 1.0, 1.0, len(logs)), "met"
    ratio = ratio_interval((logs[ours] - logs[best]).to_numpy())
    if ratio.high <= 1 + BAR:
        return best, ratio, "met"
    return best, ratio, "missed" if ratio.low > 1 + BAR else "undecided"


def render_ready(path: Path = RECORD) -> str:
    """Write each check as a table, and its verdict; what was measured where, at the end."""
    if not path.exists():
        return "Not measured yet; `python -m studies.chunk_shape.ready` does it.\n"
    rows = pd.read_csv(path)
    checks = rows.groupby(["example", "network"], sort=False)
    return "\n".join(_render_check(str(name), part) for (name, _), part in checks)


def _spell(layout: str) -> str:
    """Write a shape, or the name of a layout that has one in it, as it is read."""

    def write(found: re.Match[str]) -> str:
        return " \u00d7 ".join(f"{int(n):,}" for n in found[0].split("x"))

    return re.sub(r"\d+(?:x\d+)+", write, layout).replace("@aligned", ", aligned,")


def _render_check(name: str, rows: pd.DataFrame) -> str:
    best, ratio, verdict = compare_best(rows)
    read = rows.dropna(subset="read_s")
    measured = read.groupby("layout")["read_s"].median()
    first = rows.iloc[0]
    is_steady = first["network"] == PROFILE.name
    lines = []
    for layout, part in (rows if is_steady else read).groupby("layout", sort=False):
        one = part.iloc[0]
        seconds = digits(measured[layout], n=3) if layout in measured else "not measured"
        mb = np.format_float_positional(one["chunk_nbytes"] / 1e6, 2, fractional=False, trim="-")
        size = mb, one["n_objects"]
        shape, told = _spell(one["chunk_shape"]), _spell(str(layout))
        lines.append(
            (one["predicted_s"], [told, shape, *size, digits(one["predicted_s"], n=3), seconds])
        )
    titles = ["chunks", "shape", "MB", "objects", "predicted (s)", "measured (s)"]
    table = write_table(titles, [line for _, line in sorted(lines, key=lambda line: line[0])])
    told = f"takes {tell_interval(ratio)} times as long as the best measured, {_spell(best)},"
    told = "is the best measured" if best.startswith(OURS) else told
    head = f"**{name}**, where delays scatter, in the shapes that are near:"
    predicted = read.groupby("layout")["predicted_s"].first()
    error = float(np.std(np.log(measured / predicted), ddof=1))
    judged = (
        f"; at most {1 + BAR:g} times as long is the target: {verdict}.\nBeside one another their"
        f" predictions err by {digits(100 * error, n=2)} %, one standard deviation."
    )
    if is_steady:  # where all shapes are compared, and near ones told apart by chance
        rank = f"{predicted.corr(measured, method='spearman'):.2f}"
        head = f"**{name}**, {_spell(first['shape'])} elements: {EXAMPLES[name].what}."
        judged = f".\nPredicted and measured times have a rank correlation of {rank}."
    return (
        f"{head}\n\n{table}\nThe advisor's answer {told} in {ratio.n} rounds{judged}\n"
        f"Measured on {first['measured']} over the network {first['network']}, on {first['machine']},"
        f" with zarr {first['zarr']}; fitted before: {digits(first['chunk_ms'])} ms a chunk and"
        f" {digits(first['decode_ms_per_mb'])} ms a megabyte of array.\n"
    )


def stamp(rows: pd.DataFrame) -> pd.DataFrame:
    """Tell in each row on what machine, when and with which zarr it was measured."""
    here = machine()
    told = {"machine": f"{here['n_cores']} cores, {here['cpu']}", "zarr": zarr.__version__}
    return rows.round(6).assign(**told, measured=datetime.now(UTC).date().isoformat())


def main(names: Sequence[str]) -> None:
    """Measure the named checks, or all; each takes the place of its rows in the record when it ends."""
    if strangers := [name for name in names if name not in CHECKS]:
        raise SystemExit(f"error: {', '.join(strangers)}; allowed: {', '.join(CHECKS)}")
    for name in names or CHECKS:
        found = stamp(measure(name, CHECKS[name]))
        if RECORD.exists():
            kept = pd.read_csv(RECORD)
            found = pd.concat([kept[kept["example"] != name], found])
        found["at"] = found["example"].map([*CHECKS].index)
        found = found.sort_values("at", kind="stable").drop(columns="at")
        found.to_csv(RECORD, index=False, lineterminator="\n")
        print(name, file=sys.stderr)
    print(render_ready())


if __name__ == "__main__":
    main(sys.argv[1:])
