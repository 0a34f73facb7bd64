"""A scaling curve: what is fitted comes back, what was not seen is not told, one line refuses the rest."""

from __future__ import annotations

import csv
import json
import math
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers.paths import ROOT
from tests.refusals import refused
from wire.models.transfer import ClientModel, Network, simulate
from wire.scaling import fit, fit_curve

SIZES = [1, 2, 4, 8, 16, 32]


def simulate_curve(
    n_chunks: int, *, start_s: float = 0.0, link: float = math.inf, sizes: Sequence[int] = SIZES
) -> list[float]:
    """Simulate reads of two connections a worker that take about 0.51 s for a chunk of 1 MB."""
    network = Network(0.4, 0.6, stream_nbytes_per_s=10e6, aggregate_nbytes_per_s=link)
    client = ClientModel(1e6, connections_per_worker=2)
    return [
        start_s + simulate(network, client, n_chunks, n_workers=n, n_cores=1e3, seed=n)
        for n in sizes
    ]


@pytest.mark.parametrize("start_s", [0.0, 2.0, 20.0])
@pytest.mark.parametrize("link", [math.inf, 40e6, 20e6])
def test_what_was_simulated_comes_back(start_s: float, link: float) -> None:
    """Cycle, start and ceiling of the discrete simulation, and its reads with larger clusters."""
    fit = fit_curve(SIZES, simulate_curve(4000, start_s=start_s, link=link), 4000, 2)
    assert fit.cycle_s == pytest.approx(0.51, rel=0.06)
    if math.isinf(
        link
    ):  # a start cannot be told from a ceiling that all reads of a plateau have reached
        assert fit.start_s == pytest.approx(start_s, abs=1)
    measured = simulate_curve(4000, start_s=start_s, link=link, sizes=[64, 128])
    for found, seconds in zip(fit.predict([64, 128]), measured, strict=True):
        assert found.low <= seconds <= found.high


@pytest.mark.parametrize("seconds", [[100, 140, 190], [100, 50, 50], [190, 100, 101]])
def test_a_cluster_that_is_not_faster_any_more(seconds: list[float]) -> None:
    """Where the largest is no faster, one more doubling promises nothing, and nor does a prediction."""
    fit = fit_curve([1, 2, 4], seconds)
    assert fit.is_slower
    for found in fit.predict([4, 8, 64]):
        assert found.low <= seconds[-1] <= found.high


def test_chunks_are_extrapolated_and_may_run_out() -> None:
    """Ten times the chunks take the start once; with fewer chunks than slots more workers gain nothing."""
    fit = fit_curve(SIZES, simulate_curve(1000, start_s=5), 1000, 2)
    (found,), (seconds,) = fit.predict([8], n_chunks=10_000), simulate_curve(10_000, start_s=5, sizes=[8])  # fmt: skip
    assert found.low <= seconds <= found.high and seconds < 10 * fit.predict([8])[0].value
    alone, more = fit_curve([1, 2, 4], [20, 10, 5], 20).predict([40, 4000])
    assert alone.value == pytest.approx(more.value, rel=0.05)


def test_a_stated_link() -> None:
    """A stated link bounds what is predicted, and one below a measured rate is refused."""
    given = [1, 2, 4], [1000, 500, 250], 1000
    free = fit_curve(*given, nbytes=1e9)
    bound = fit_curve(*given, link=8e6, nbytes=1e9)
    assert bound.predict([64])[0].value == pytest.approx(125, rel=0.05)
    assert free.predict([64])[0].value < bound.predict([64])[0].value
    with refused("link", "^3 MB/s, of which 4 were read", "at least"):
        fit_curve(*given, link=3e6, nbytes=1e9)


def test_one_bad_run_does_not_decide() -> None:
    """A run that took four times as long moves the cycle by little, in whatever order runs come."""
    sizes = [1, 1, 2, 2, 4, 4, 8, 8]
    seconds = [100 / n for n in sizes]
    seconds[3] *= 4
    fit = fit_curve(sizes, seconds, 100)
    assert fit.cycle_s == pytest.approx(1, rel=0.05)
    pairs = random.Random(0).sample([*zip(sizes, seconds, strict=True)], len(sizes))
    again = fit_curve(*map(list, zip(*pairs, strict=True)), 100)  # type: ignore[arg-type]
    assert again.cycle_s == pytest.approx(fit.cycle_s, rel=1e-6)


def read_curves() -> Iterator[tuple[str, int | None, Mapping[float, list[float]], float]]:
    """Read the published curves of four sizes and more: name, chunks, seconds by workers, threads."""
    curves: dict[tuple[str, int | None, float], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))  # fmt: skip

    def rows(name: str) -> Iterator[dict[str, str]]:
        path = ROOT / "results" / "published" / f"{name}.csv"
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)

    for row in rows("abernathey2020_figure_digitised"):
        key = (f"abernathey2020, {row['panel']}", 2400, 2.0)
        curves[key][float(row["nworkers"])].append(466.56e3 / float(row["throughput_mb_per_s"]))
    for row in rows("green2022_figures_digitised"):  # bytes are not stated: seconds of 1 GB
        key = (f"green2022 {row['figure']}, {row['format']}", None, 2.0)  # type: ignore[assignment]
        curves[key][float(row["nworkers"])].append(1e3 / float(row["mean_throughput_mb_per_s"]))
    for row in rows("green2022_throughput_tables"):
        if row["first_row_is_warm_up"] != "yes" and row["chunk_bytes"]:
            n_chunks = round(float(row["nbytes"]) / float(row["chunk_bytes"]))
            threads = float(row["nthreads"]) / float(row["nworkers"])
            key = (f"green2022 {row['run']}, {row['format']}", n_chunks, threads)
            curves[key][float(row["nworkers"])].append(float(row["mean_runtime_s"]))
    for (name, n_chunks_or_none, cores), runs in curves.items():
        if len(runs) >= 4:
            yield name, n_chunks_or_none, runs, cores


# Curves on which the corner and the widths of the intervals were chosen; all others were held back.
CHOSEN_ON = (
    "abernathey2020, GCS", "abernathey2020, Wasabi", "abernathey2020, ECCO", "green2022 speeds.png",
    "green2022 speedTest1.png", "green2022 aws_slurm, NetCDF", "green2022 local_cluster, Zarr Array",
)  # fmt: skip


@pytest.mark.parametrize("is_held_back", [False, True])
def test_intervals_hold_the_larger_half_of_published_curves(is_held_back: bool) -> None:
    """Fitted to the smaller half of its sizes, 85 % of a curve's larger half lie in the 90 % intervals."""
    inside, widths = [], []
    for name, n_chunks, runs, cores in read_curves():
        if name.startswith(CHOSEN_ON) == is_held_back:
            continue
        sizes = sorted(runs)
        small, large = sizes[: (len(sizes) + 1) // 2], sizes[(len(sizes) + 1) // 2 :]
        fit = fit_curve([n for n in small for _ in runs[n]], [s for n in small for s in runs[n]], n_chunks, cores)  # fmt: skip
        found = fit.predict(large)
        inside += [one.low <= s <= one.high for n, one in zip(large, found, strict=True) for s in runs[n]]  # fmt: skip
        widths += [math.log(one.high / one.low) for one in found]
        assert (
            found[-1].high / found[-1].low >= found[0].high / found[0].low * 0.999 or fit.is_slower
        )
    assert sum(inside) >= 0.85 * len(inside) and len(inside) > 60
    assert sorted(widths)[len(widths) // 2] < 0.7  # a factor of two from end to end


@pytest.mark.parametrize(
    ("sizes", "chunks", "helps"),
    [
        # arrays that grow with the cluster: ten waves at every size
        ([1, 2, 4, 8], [20, 40, 80, 160], "one of 8 workers with 20 chunks"),
        # sizes that hardly differ
        ([10, 11], [100, 100], "one of 10 workers with 330 chunks"),
        # fewer chunks than slots: one wave each
        ([40, 80], [20, 20], "one of 40 workers with 240 chunks"),
    ],
)
def test_runs_that_tell_no_law_are_refused(
    sizes: list[float], chunks: list[float], helps: str
) -> None:
    """One line says which run would help; with that, a law is fitted."""
    seconds = [0.5 + chunk / size / 4 for size, chunk in zip(sizes, chunks, strict=True)]
    with refused("n_chunks", " in every run, ", helps) as caught:
        fit_curve(sizes, seconds, chunks, 2)
    words = caught.value.allowed.rpartition("one of ")[2].split()
    size, chunk = float(words[0]), float(words[3])
    fit_curve([*sizes, size], [*seconds, 0.5 + chunk / size / 4], [*chunks, chunk], 2)


GOOD: dict[str, object] = {"n_workers": [1, 2, 4], "seconds": [4.0, 2.0, 1.0]}


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"n_workers": [2, 2, 2]}, "n_workers"),  # one size
        ({"n_workers": [7, 8, 9]}, "n_workers"),  # sizes that hardly differ
        ({"cores_per_worker": math.nan}, "cores_per_worker"),
        ({"seconds": [4.0, math.inf, 1.0]}, "seconds"),
        ({"seconds": [4.0, 2.0]}, "seconds"),
        ({"n_chunks": 0}, "n_chunks"),
        ({"n_chunks": [10, 10]}, "n_chunks"),
        ({"link": 1e6}, "link"),  # of unknown bytes
        ({"link": 0, "nbytes": 1e6}, "link"),
    ],
)
def test_bad_curves_are_one_line(changed: dict[str, object], name: str) -> None:
    """What cannot be fitted is named with what is allowed."""
    with refused(name, ".", "."):
        fit_curve(**(GOOD | changed))  # type: ignore[arg-type]


GROWING = "n_workers,seconds,n_chunks\n1,201,100\n2,101,100\n4,51,100\n8,26,100\n"
HEAD = "n_workers,seconds\n"


def run(folder: Path, text: str, *options: str) -> str:
    """Write a file and ask `fit` about it."""
    path = folder / "runs.csv"
    path.write_text(text, encoding="utf-8")
    return CliRunner().invoke(fit, [str(path), *options], catch_exceptions=False).output


def load(folder: Path, text: str, *options: str) -> dict[str, Any]:
    """Ask for JSON, in which nothing is infinite."""
    found: dict[str, Any] = json.loads(run(folder, text, *options, "--json"), parse_constant=pytest.fail)  # fmt: skip
    return found


def test_what_the_command_says(tmp_path: Path) -> None:
    """The interval is first; options reach the fit; that growth has ended is said."""
    sizes = ("--workers", "16", "--workers", "32")
    out = run(tmp_path, GROWING, *sizes).splitlines()
    assert out[0] == "seconds of a read of 100 chunks" and "90 % of runs (s)" in out[1]
    for row, n in zip(load(tmp_path, GROWING, *sizes)["predictions"], (16, 32), strict=True):
        assert row["n_workers"] == n
        assert row["seconds"]["low"] <= 200 / n + 1 <= row["seconds"]["high"]
    assert load(tmp_path, GROWING, "--chunks", "1000")["n_chunks"] == 1000
    with refused("link", "^15.0", "only with nbytes"):
        run(tmp_path, GROWING, "--link", "15e-6")
    with refused("n_chunks", "^10.0", "only after a fit with n_chunks"):
        run(tmp_path, HEAD + "1,4\n2,2\n4,1\n", "--chunks", "10")
    slower = HEAD + "1,100\n2,140\n4,190\n"
    assert "not faster any more at 4 workers" in run(tmp_path, slower)


def test_a_throughput_is_seconds(tmp_path: Path) -> None:
    """Throughput with bytes says the same as seconds, in any order of rows."""
    rows = [f"{n},{1 / seconds},100,1e9" for n, seconds in ((8, 26), (1, 201), (4, 51), (2, 101))]
    text = "\n".join(["n_workers,throughput_gb_per_s,n_chunks,nbytes", *rows])
    found, of_seconds = (load(tmp_path, one) for one in (text, GROWING))
    assert found["cycle_s"] == pytest.approx(of_seconds["cycle_s"])


@pytest.mark.parametrize(
    ("text", "where", "value"),
    [
        ("", ".*", "columns"),  # no names
        ("workers,seconds\n1,2\n2,1\n", ".*", "columns"),  # another name
        ("n_workers,throughput\n1,2\n2,1\n", ".*", "columns"),  # a throughput of no unit
        ("n_workers,seconds,throughput_mb_per_s\n1,2,3\n", ".*", "columns"),  # two times
        (HEAD, "n_workers", r"^\[.*\]$"),  # no row
        (HEAD + "1,2\n2,-1\n", "row 2", "^seconds: '-1'$"),
        (HEAD + "1,2\n1e300,1\n", "row 2", "^n_workers: '1e300'$"),
        ("n_workers,throughput_mb_per_s\n1,1e-14\n2,1\n", "seconds", "^1e"),
        (HEAD + '1,"2\n', ".*", "it is no CSV"),
        (
            HEAD + "1," + 200_000 * "2",
            ".*",
            "it is no CSV",
        ),  # a longer field than the library reads
        (HEAD + "1,2\n2,nan\n", "row 2", "^seconds"),
        (HEAD + "1,2\n2\n", "row 2", "^seconds: None$"),  # a row too short
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str, where: str, value: str) -> None:
    """A file that holds no curve says where, and what is allowed."""
    with refused(where, value, "."):
        run(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """No file, a folder, bytes that are no text and what never ends are refused in one line."""
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00n_workers")
    (tmp_path / "long.csv").write_bytes(b"1\n" * 1_000_000)
    os.mkfifo(tmp_path / "fifo.csv")  # to read it would wait for ever
    for name in ("none.csv", ".", "bytes.csv", "long.csv", "fifo.csv", "/dev/zero"):
        with refused(".*", "^not read: ", "^a CSV file"):
            CliRunner().invoke(fit, [str(tmp_path / name)], catch_exceptions=False)
