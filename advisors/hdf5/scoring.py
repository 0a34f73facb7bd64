"""How well predicted gains hold: files read over the emulated network before and after their repack."""

from __future__ import annotations

import csv
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import obstore

from advisors.hdf5.advice import Advice, advise
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
_ENOUGH_S = (
    10.0  # of reading a file, after which none is begun: the scatter of many requests is small
)
_N_STARTS = 8  # reads that tell what a start takes now
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
    start_s: float = 0.0  # what a client took to start, fitted just before

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
    request_s: float  # of client for a request, as fitted on this machine without a network
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
    take is fitted on a file of our own and without a network, so that no file that is scored has
    been seen before: a request's once, and before each file anew what a start and the library
    take, for processors share their machine and are not as fast at all times. A repack leaves a
    handful of requests, whose drawn delays move the median of five reads by a fifth, so short
    files are read more often than that.
    """
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "calibration.h5"
        _write_sample(sample)
        request_s = _fit_request(testbed, sample, n_reads)
        scorer = _Scorer(testbed, profile, sample, request_s, n_reads)
        return Scores(profile.name, request_s, tuple(map(scorer.score, paths)))


@dataclass(frozen=True, slots=True)
class _Scorer:
    testbed: Testbed
    profile: Profile
    sample: Path  # the file of our own
    request_s: float
    n_reads: int

    def score(self, path: Path) -> Score:
        costs, library_costs = self.fit()
        advised = advise(str(path), self.profile, costs=costs, library_costs=library_costs)
        out = self.sample.with_name(f"repacked-{path.name}")
        made, page_nbytes = self.repack(path, advised.advice, out)
        self.testbed.emulate(self.profile)
        read = partial(_measure, self.testbed, n_reads=self.n_reads)
        # the short one first, soon after the fit
        after = read(out, TUNED, advised.variables, page_nbytes)
        before = read(path, UNTUNED, advised.variables, advised.report.page_nbytes)
        out.unlink()
        predicted = advised.present.seconds, made.prediction.seconds
        took = before.seconds, after.seconds
        return Score(path.name, made.label, *predicted, *took, costs.start_s)

    def fit(self) -> tuple[ClientCosts, LibraryCosts]:
        """Fit what a start and the library take, as fast as the processors are now."""
        with open_source(str(self.sample)) as file:
            report = inspect_file(file, self.sample.name)
        assumed, names = LibraryCosts(), [variable.name for variable in report.variables]
        near = [timed(partial(_read_near, self.sample))[1] for _ in range(self.n_reads)]
        near_s, library_s = statistics.median(near), assumed.listing_s(report)
        library_s += assumed.decode_s(report, names)
        self.testbed.emulate(get_profile("loopback"))
        n_reads = min(self.n_reads, _N_STARTS)
        found = _measure(self.testbed, self.sample, TUNED, names, 0, n_reads)
        start_s = found.asked_s - near_s - found.n_requests * self.request_s
        costs = ClientCosts(self.request_s, max(0.0, start_s))
        return costs, replace(assumed, factor=near_s / library_s)

    def repack(self, path: Path, advice: Sequence[Advice], out: Path) -> tuple[Advice, int]:
        """Do the best repack that can be done here; return what was advised of it, and its pages."""
        failed = list[UserError]()
        for one in advice:
            if one.repack is None:
                continue
            try:
                apply_repack(str(path), one.repack, out)
            except UserError as error:
                failed.append(error)
            else:
                return one, one.repack.page_nbytes
        raise failed[0]


@dataclass(frozen=True, slots=True)
class _Measured:
    """What reading a file took, medians in s, and how many requests."""

    seconds: float
    served_s: float  # in which requests waited for the server
    n_requests: int

    @property
    def asked_s(self) -> float:
        """Time of client and library alone.

        What the server takes is within the time to the first byte of a network, of those that are
        emulated as of others, so it is no cost beside that.
        """
        return self.seconds - self.served_s


def _measure(
    testbed: Testbed,
    path: Path,
    settings: Settings,
    variables: Sequence[str],
    page_nbytes: int,
    n_reads: int,
) -> _Measured:
    """Read a file from the store, again and again until `_ENOUGH_S` are spent on it."""
    obstore.put(testbed.near.obstore(), path.name, path)
    times_s, served_s, n_requests = list[float](), list[float](), 0
    read = partial(read_file, testbed.far / path.name, settings, variables, page_nbytes=page_nbytes)
    while len(times_s) < n_reads and sum(times_s) < _ENOUGH_S:
        testbed.take_trace()
        times_s.append(timed(read)[1])
        trace = testbed.take_trace()
        served_s.append(sum(request.first_byte_s - request.start_s for request in trace))
        n_requests = len(trace)
    obstore.delete(testbed.near.obstore(), path.name)
    return _Measured(statistics.median(times_s), statistics.median(served_s), n_requests)


def _fit_request(testbed: Testbed, sample: Path, n_reads: int) -> float:
    """Fit what the client takes for a request (s), on reads of a file of many and of few requests."""
    with h5py.File(sample) as file:
        names = list_datasets(file)
    testbed.emulate(get_profile("loopback"))
    _measure(testbed, sample, TUNED, names, 0, 1)  # imports, and what libraries make once
    found = [_measure(testbed, sample, how, names, 0, n_reads) for how in (UNTUNED, TUNED)]
    return fit_costs([(one.n_requests, one.asked_s) for one in found]).request_s


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
    pairs = {"before (s)": ("before_s", "predicted_before_s"),
             "after (s)": ("after_s", "predicted_after_s"), "gain": ("gain", "predicted_gain")}  # fmt: skip
    lines = [
        [f"`{Path(row['file']).stem}`", row["repack"]]
        + [f"{float(row[one]):.3g} ({float(row[other]):.3g})" for one, other in pairs.values()]
        + [f"{100 * float(row['error']):+.0f} %"]
        for row in rows
    ]
    like = (
        " Where a name begins with `like-`, the file has the structure of a published product: its groups, variables, chunks, filters and file space, as far as they are published; of several beams it has one."
        if any("`like-" in line[0] for line in lines)
        else ""
    )
    machine, versions = json.loads(rows[0]["machine"]), json.loads(rows[0]["versions"])
    return (
        f"{write_table(['file, by its producer', 'repack', *pairs, 'error'], lines)}\n"
        "Measured, and in brackets predicted; the error is that of the predicted gain."
        f" Of {len(rows)} files it is {statistics.median(errors):.0f} % in the median and {max(errors):.0f} % at worst;"
        f" {sum(error <= 20 for error in errors)} of them err by at most 20 %."
        f" Wall time, start included, over the network {rows[0]['profile']}, a scale model, on {machine['n_cores']} cores"
        f" ({machine['cpu']}), with h5py {versions['h5py']}.{like}\n"
    )
