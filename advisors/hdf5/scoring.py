"""How well predicted gains hold: files read over the emulated network before and after their repack."""

from __future__ import annotations

import csv
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import obstore

from advisors.hdf5.advice import advise
from advisors.hdf5.inspection import inspect_file
from advisors.hdf5.prediction import TUNED, UNTUNED, LibraryCosts, Settings, read_file
from advisors.hdf5.recording import list_datasets, list_tree, open_hdf5, open_source
from advisors.hdf5.repack import apply_repack
from helpers.benchmark.loop import timed
from helpers.benchmark.provenance import write_rows
from helpers.errors import UserError
from helpers.models.transfer import ClientCosts, fit_costs
from helpers.netem.profiles import Profile, get_profile
from helpers.netem.proxy import open_proxy
from helpers.objectstore.locations import Location
from helpers.objectstore.testbed import Testbed, open_server
from helpers.paths import ROOT

RECORD = ROOT / "data" / "hdf5" / "score.csv"
_PACKAGES = ("python", "h5py", "hdf5plugin", "fsspec", "obstore")
_BUCKET = "arrays"
_LONG_S = 5.0  # of a read above which one is enough: many requests, whose scatter is averaged out
_SAMPLE = (40, 12, 40, 50)  # variables of the file that calibrates, and the shape of each


@dataclass(frozen=True, slots=True)
class Score:
    """What was predicted of a file and of its best repack, and what was measured; medians, in s."""

    file: str
    repack: str  # label of the repack
    predicted_before_s: float
    predicted_after_s: float
    before_s: float
    after_s: float

    @property
    def predicted_gain(self) -> float:
        """Time before over time after, as predicted."""
        return self.predicted_before_s / self.predicted_after_s

    @property
    def gain(self) -> float:
        """Time before over time after, as measured."""
        return self.before_s / self.after_s

    @property
    def error(self) -> float:
        """Relative error of the predicted gain.

        Examples
        --------
        >>> round(Score("a.h5", "paged", 12, 1, 20, 2).error, 3)
        0.2
        """
        return self.predicted_gain / self.gain - 1


@dataclass(frozen=True, slots=True)
class Scores:
    """All files of a folder."""

    profile: str
    costs: ClientCosts  # as fitted on this machine without a network
    library_costs: LibraryCosts
    scores: tuple[Score, ...]

    @property
    def median_error(self) -> float:
        """Median of the absolute errors."""
        return statistics.median(abs(score.error) for score in self.scores)

    @property
    def worst_error(self) -> float:
        """Largest of the absolute errors."""
        return max(abs(score.error) for score in self.scores)

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        gains = [
            {"predicted_gain": one.predicted_gain, "gain": one.gain, "error": one.error}
            for one in self.scores
        ]
        rows = [asdict(one) | more for one, more in zip(self.scores, gains, strict=True)]
        errors = {"median_error": self.median_error, "worst_error": self.worst_error}
        return asdict(self) | {"scores": rows} | errors

    def write(self, path: Path) -> None:
        """Write a row for each file, with its origin, as CSV."""
        rows = [{**row, "profile": self.profile} for row in self.to_mapping()["scores"]]
        write_rows(path, rows, _PACKAGES)


def find_files(folder: Path) -> list[Path]:
    """Find the HDF5 files of a folder, in alphabetical order."""
    if not folder.is_dir():
        raise UserError(f"folder: {folder} is none; allowed: a folder with HDF5 files")
    found = [path for path in sorted(folder.iterdir()) if path.is_file() and h5py.is_hdf5(path)]
    if not found:
        raise UserError(f"folder: {folder} has no HDF5 file; allowed: a folder with some")
    return found


def score_files(
    paths: Sequence[Path], profile: Profile, testbed: Testbed, *, n_reads: int = 20
) -> Scores:
    """Predict the gain of the best repack of each file, do it, and measure it by the wall clock.

    The network is the one that is emulated, as a scale model. What client, server and library
    take is fitted first, on a file of our own and without a network, so that no file that is
    scored has been seen before. A repack leaves a handful of requests, whose drawn delays move the
    median of five reads by a fifth, so short files are read more often than that.
    """
    with tempfile.TemporaryDirectory() as folder:
        costs, library_costs = fit_machine(testbed, Path(folder), n_reads=n_reads)
        scorer = _Scorer(testbed, profile, costs, library_costs, Path(folder), n_reads)
        return Scores(profile.name, costs, library_costs, tuple(map(scorer.score, paths)))


@dataclass(frozen=True, slots=True)
class _Scorer:
    testbed: Testbed
    profile: Profile
    costs: ClientCosts
    library_costs: LibraryCosts
    folder: Path
    n_reads: int

    def score(self, path: Path) -> Score:
        advised = advise(
            str(path), self.profile, costs=self.costs, library_costs=self.library_costs
        )
        label, repack = advised.best_repack()
        after = next(one.prediction for one in advised.advice if one.label == label)
        out = self.folder / f"repacked-{path.name}"
        apply_repack(str(path), repack, out)
        self.testbed.emulate(self.profile)
        page_nbytes = advised.report.page_nbytes
        before_s = self.measure_s(path, UNTUNED, advised.variables, page_nbytes)
        after_s = self.measure_s(out, TUNED, advised.variables, repack.page_nbytes)
        out.unlink()
        predicted = advised.present.seconds, after.seconds
        return Score(path.name, label, *predicted, before_s, after_s)

    def measure_s(
        self, path: Path, settings: Settings, variables: Sequence[str], page_nbytes: int
    ) -> float:
        """Read a file over the network, more than once where that is short."""
        return _measure(self.testbed, path, settings, variables, page_nbytes, self.n_reads)[0]


def _measure(
    testbed: Testbed,
    path: Path,
    settings: Settings,
    variables: Sequence[str],
    page_nbytes: int,
    n_reads: int,
) -> tuple[float, int]:
    """Read a file from the store; return the median time and the requests of the last read."""
    obstore.put(testbed.near.obstore(), path.name, path)
    times_s, n_requests = list[float](), 0
    while len(times_s) < n_reads and (not times_s or times_s[0] < _LONG_S):
        testbed.take_trace()
        times_s.append(
            timed(
                lambda: read_file(
                    testbed.far / path.name, settings, variables, page_nbytes=page_nbytes
                )
            )[1]
        )
        n_requests = len(testbed.take_trace())
    obstore.delete(testbed.near.obstore(), path.name)
    return statistics.median(times_s), n_requests


def fit_machine(
    testbed: Testbed, folder: Path, *, n_reads: int = 20
) -> tuple[ClientCosts, LibraryCosts]:
    """Fit what the library takes for a file on disk, and client and server for it in the store."""
    path = folder / "calibration.h5"
    _write_sample(path)
    with open_source(str(path)) as file:
        report = inspect_file(file, path.name)
    variables = [variable.name for variable in report.variables]
    near_s = statistics.median(timed(lambda: _read_near(path))[1] for _ in range(n_reads))
    assumed = LibraryCosts()
    library_s = assumed.listing_s(report) + assumed.decode_s(report, variables)
    testbed.emulate(get_profile("loopback"))
    _measure(testbed, path, TUNED, variables, 0, 1)  # imports, and what libraries make once
    measured = []
    for settings in (UNTUNED, TUNED):
        seconds, n_requests = _measure(testbed, path, settings, variables, 0, n_reads)
        measured.append((n_requests, max(1e-3, seconds - near_s)))
    return fit_costs(measured), replace(assumed, factor=near_s / library_s)


def _write_sample(path: Path) -> None:
    """Write variables of noise that compresses, with attributes, in chunks of some kB."""
    n_variables, *shape = _SAMPLE
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for number in range(n_variables):
            made = file.create_dataset(
                f"v{number}",
                data=rng.normal(size=shape).round(1).astype("f4"),
                chunks=(3, *shape[1:]),
                compression="gzip",
                shuffle=True,
            )
            made.attrs["units"], made.attrs["number"] = np.bytes_("m"), number


def _read_near(path: Path) -> None:
    """Open, list and read a file on disk through Python, as it is read from a store."""
    with path.open("rb") as file, open_hdf5(file, path.name) as found:
        list_tree(found)
        for name in list_datasets(found):
            found[name][...]


@contextmanager
def open_own_testbed(profile: Profile, *, seed: int = 0) -> Iterator[Testbed]:
    """Serve an empty folder behind the emulated network, so that no cache of the book is in the way."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open_server(Path(folder) / "store") as server,
        open_proxy(server.endpoint_url, profile=profile, seed=seed) as proxy,
    ):
        keys = server.access_key, server.secret_key
        near = Location("s3", _BUCKET, "", server.endpoint_url, *keys, server.region)
        near.botocore().create_bucket(Bucket=_BUCKET)
        yield Testbed(near, near.through(proxy.endpoint_url), proxy)


def read_scores(path: Path = RECORD) -> tuple[list[dict[str, str]], list[float]]:
    """Read the scores that are kept, and by how much each predicted gain errs, in percent."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return rows, [100 * abs(float(row["error"])) for row in rows]


def render_score(path: Path = RECORD) -> str:
    """Write the scores that are kept as a table and a sentence, for the page."""
    from helpers.book.studies import write_table  # of the book, which the advisor alone is without

    rows, errors = read_scores(path)
    names = ("predicted_before_s", "before_s", "predicted_after_s", "after_s", "predicted_gain", "gain")  # fmt: skip
    titles = ["file, by its producer", "repack", "before, predicted (s)", "before, measured (s)"]
    titles += ["after, predicted (s)", "after, measured (s)"]
    titles += ["gain, predicted", "gain, measured", "error"]
    lines = [
        [f"`{Path(row['file']).stem}`", row["repack"]]
        + [f"{float(row[name]):.3g}" for name in names]
        + [f"{100 * float(row['error']):+.0f} %"]
        for row in rows
    ]
    like = (
        " Where a name begins with `like-`, the file has the structure of a published product: its groups, variables, chunks, filters and file space, as far as they are published."
        if any("`like-" in line[0] for line in lines)
        else ""
    )
    machine, versions = json.loads(rows[0]["machine"]), json.loads(rows[0]["versions"])
    return (
        f"{write_table(titles, lines)}\n"
        f"Error of the predicted gain, of {len(rows)} files: {statistics.median(errors):.0f} % in the median and {max(errors):.0f} % at worst;"
        f" {sum(error <= 20 for error in errors)} of them err by at most 20 %."
        f" Wall time, start included, over the network {rows[0]['profile']}, a scale model, on {machine['n_cores']} cores"
        f" ({machine['cpu']}), with h5py {versions['h5py']}.{like}\n"
    )
