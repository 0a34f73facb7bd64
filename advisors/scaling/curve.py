"""A scaling curve as three numbers: the cycle of a chunk, a start, and a ceiling.

The discrete simulation of `helpers.models.transfer` has the same three; it takes some 50 ms
for thousands of chunks, and a fit with intervals asks for some ten thousand curves. So the fit uses its closed form,
which agrees with it wherever one of the three decides, and rounds the corner between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from helpers.errors import UserError, show

Array = npt.NDArray[np.float64]
LawName = Literal["transfer", "amdahl", "usl"]
LAWS: tuple[LawName, ...] = get_args(LawName)

# Of the logarithm of seconds: the scatter of one run, and the degrees of freedom of Student's
# distribution, whose long tails keep one bad run from deciding the fit.
_SCATTER, _FREEDOM = 0.05, 2.0
_CORNER = 2.0  # how sharply work gives way to the ceiling; infinite would be a kink
_REACH = 100.0  # a ceiling is sought up to so many times the largest measured cluster
_N_STEPS, _N_OFFSETS = 33, 13  # of the table: along each shape parameter, and along the cycle
_CUT = 1.921  # of the log likelihood for 95 %: half of chi-squared, one degree of freedom
# A link carries headers too: a ceiling that comes so near the stated rate is the link's.
_IS_LINK = 0.85


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval of 95 %."""

    value: float
    low: float
    high: float

    def scale(self, factor: float) -> Estimate:
        """Return the same in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class _Points:
    """Where a curve is asked for; each one number a point."""

    n_workers: Array
    n_chunks: Array
    slots: Array  # chunks in the making at once, as an average over the read

    @classmethod
    def place(cls, n_workers: Array, n_chunks: Array | None, cores_per_worker: float) -> _Points:
        """Count the slots in use: the last wave of chunks leaves half of them idle.

        Waves of equal chunks are `ceil(n_chunks / slots)`; chunks that differ smear the steps,
        and half a wave is what the ceiling adds in the mean.
        """
        slots = n_workers * cores_per_worker
        if n_chunks is None:
            return cls(n_workers, np.ones_like(slots), slots)
        waves = np.maximum(1.0, n_chunks / slots + 0.5 * np.maximum(0.0, 1 - 1 / slots))
        return cls(n_workers, n_chunks, n_chunks / waves)


@dataclass(frozen=True, slots=True)
class _Table:
    """Curves of one law with different parameters, and how well the runs agree with each."""

    law: LawName
    cycle_s: Array
    # start in s and ceiling in chunks/s; of the other laws, contention and coherence
    first: Array
    second: Array
    log_likelihood: Array

    def seconds(self, points: _Points) -> Array:
        """Compute the seconds of each curve (rows) at each point (columns)."""
        return _compute(self.law, (self.cycle_s, self.first, self.second), points)

    @property
    def is_likely(self) -> npt.NDArray[np.bool_]:
        """Which curves the runs do not reject, by the profile likelihood."""
        return np.asarray(self.log_likelihood >= self.log_likelihood.max() - _CUT)

    def estimate(
        self, values: Array, link: Callable[[Array], Array], back: Callable[[float], float]
    ) -> Estimate:
        """Weigh values by their likelihood, averaged after `link`; the interval is the profile's."""
        weights = np.exp(self.log_likelihood - self.log_likelihood.max())
        mean = back(float(weights @ link(values) / weights.sum()))
        likely = values[self.is_likely]
        return Estimate(mean, float(likely.min()), float(likely.max()))


def _compute(law: LawName, parameters: tuple[Array, Array, Array], points: _Points) -> Array:
    cycle_s, first, second = (values[:, None] for values in parameters)
    if law == "transfer":
        work_s, least_s = cycle_s / points.slots, 1 / second
        return np.asarray(
            first + points.n_chunks * (work_s**_CORNER + least_s**_CORNER) ** (1 / _CORNER)
        )
    n = points.n_workers
    growth = (1 + first * (n - 1) + second * n * (n - 1)) / n
    return np.asarray(points.n_chunks * cycle_s * growth)


def _grid(law: LawName, points: _Points) -> tuple[Array, Array]:
    """List the shapes of a law, both parameters relative to the time of one slot."""

    def steps(low: float, high: float) -> Array:
        return np.concatenate(([0.0], np.geomspace(low, high, _N_STEPS)))

    sizes = points.slots if law == "transfer" else points.n_workers
    small, large = float(sizes.min()), float(sizes.max())
    if law == "transfer":
        axes = steps(1e-3 / large, 1 / small), steps(1 / (_REACH * large), 1 / small)
    else:
        coherence = steps(1e-4 / large**2, 1 / large) if law == "usl" else np.zeros(1)
        axes = steps(1e-3 / large, 1.0), coherence
    first, second = np.meshgrid(*axes, indexing="ij")
    return first.ravel(), second.ravel()


def _tabulate(law: LawName, points: _Points, seconds: Array, most: float) -> _Table:
    """Tabulate the curves of a law around the measured one; no ceiling is above `most`."""
    first, second = _grid(law, points)
    with np.errstate(divide="ignore"):
        shape = (np.ones_like(first), first, second)
        if law == "transfer":
            shape = (shape[0], first * float(np.median(points.n_chunks)), 1 / second)
        centre = _centre(np.log(seconds) - np.log(_compute(law, shape, points)))
        offsets = np.linspace(-4, 4, _N_OFFSETS) * _SCATTER / math.sqrt(len(seconds))
        cycle_s = np.exp(centre + offsets[:, None]).ravel()
        first, second = np.tile(shape[1], _N_OFFSETS), np.tile(shape[2], _N_OFFSETS)
    if law == "transfer":  # both times are in units of the cycle so far
        first, second = first * cycle_s, np.minimum(second / cycle_s, most)
    residuals = np.log(seconds) - np.log(_compute(law, (cycle_s, first, second), points))
    return _Table(law, cycle_s, first, second, _likelihood(residuals))


def _likelihood(residuals: Array) -> Array:
    """Sum the log likelihood of each row under Student's distribution, up to a constant."""
    terms = np.log1p((residuals / _SCATTER) ** 2 / _FREEDOM)
    return np.asarray(-(_FREEDOM + 1) / 2 * terms.sum(axis=1))


def _centre(residuals: Array) -> Array:
    """Find the centre of each row under Student's distribution, by weights that follow it."""
    centre = np.median(residuals, axis=1)
    for _ in range(8):  # more changes nothing beside the steps of the table
        weights = 1 / (1 + ((residuals - centre[:, None]) / _SCATTER) ** 2 / _FREEDOM)
        centre = (weights * residuals).sum(axis=1) / weights.sum(axis=1)
    return np.asarray(centre)


@dataclass(frozen=True, slots=True)
class CurveFit:
    """What was fitted to a curve; `predict` asks it for other clusters, chunk counts and links."""

    points: _Points
    tables: Mapping[LawName, _Table]
    cores_per_worker: float
    has_chunks: bool  # whether chunks were counted; else the whole read is one, cut at will
    chunk_nbytes: float | None
    link: float | None  # bytes per second

    @property
    def cycle_s(self) -> Estimate:
        """Seconds that a slot takes for a chunk, while nothing else limits it."""
        table = self.tables["transfer"]
        return table.estimate(table.cycle_s, np.log, math.exp)

    @property
    def start_s(self) -> Estimate:
        """Seconds that no worker shortens."""
        table = self.tables["transfer"]
        return table.estimate(table.first, np.asarray, float)

    @property
    def ceiling(self) -> Estimate:
        """Chunks per second that no cluster exceeds; `high` is infinite where none was seen."""
        table = self.tables["transfer"]
        return table.estimate(table.second, np.reciprocal, _reciprocal)

    @property
    def knee_workers(self) -> Estimate:
        """Workers at which the ceiling is as narrow as the work."""
        table = self.tables["transfer"]
        workers = table.second * table.cycle_s / self.cores_per_worker
        return table.estimate(workers, np.reciprocal, _reciprocal)

    @property
    def is_knee_seen(self) -> bool:
        """Whether the runs themselves show a ceiling, within the clusters that were measured."""
        most, knee = _chunks_per_s(self.link, self.chunk_nbytes), self.knee_workers
        return knee.low <= self.largest and (self.ceiling.high < most or knee.high <= self.largest)

    @property
    def largest(self) -> float:
        """Workers of the largest measured cluster."""
        return float(self.points.n_workers.max())

    @property
    def n_chunks(self) -> float:
        """Chunks of a measured read, the median of them."""
        return float(np.median(self.points.n_chunks))

    def double(self, n_workers: float) -> Estimate:
        """Predict how many times as fast twice the workers read the measured chunks."""
        table, points = self.tables["transfer"], self._place([n_workers, 2 * n_workers], None)
        few_s, many_s = table.seconds(points).T
        return table.estimate(few_s / many_s, np.log, math.exp)

    def predict(
        self,
        n_workers: Sequence[float],
        *,
        n_chunks: float | None = None,
        link: float | None = None,
        law: LawName = "transfer",
    ) -> list[Estimate]:
        """Predict the seconds of a read, each with the interval in which one run is expected.

        Parameters
        ----------
        n_workers : sequence of float
            Cluster sizes to predict.
        n_chunks : float, optional
            Chunks to read; those of the fit unless given.
        link : float, optional
            Bytes per second of another link. A ceiling that was the link of the fit goes with it;
            any other ceiling stays, and the new link is a second one.
        law : {"transfer", "amdahl", "usl"}
            The law that predicts; the other two know no link.

        Raises
        ------
        UserError
            Of a size or count below 1, of chunks where the fit has none, or of a link where the
            fit has no bytes.
        """
        table = self.tables[law] if link is None else self._move(link, law)
        points = self._place(n_workers, n_chunks)
        return [_widen(table, column) for column in table.seconds(points).T]

    def _place(self, n_workers: Sequence[float], n_chunks: float | None) -> _Points:
        sizes = _read("n_workers", n_workers)
        if n_chunks is not None and not self.has_chunks:
            raise UserError(f"n_chunks: {show(n_chunks)}; allowed: only after a fit with n_chunks")
        given = [self.n_chunks if n_chunks is None else n_chunks] * len(sizes)
        chunks = _read("n_chunks", given) if self.has_chunks else None
        return _Points.place(sizes, chunks, self.cores_per_worker)

    def _move(self, link: float, law: LawName) -> _Table:
        """Take every curve to another link."""
        if law != "transfer":
            raise UserError(f"law: {law!r} with a link; allowed: 'transfer'")
        table, most = self.tables[law], _chunks_per_s(_check_link(link), self.chunk_nbytes)
        own = _chunks_per_s(self.link, self.chunk_nbytes)
        moved = np.minimum(table.second, most)
        if self.link is not None:
            moved = np.where(table.second >= _IS_LINK * own, table.second * most / own, moved)
        return _Table(law, table.cycle_s, table.first, moved, table.log_likelihood)


def _widen(table: _Table, seconds: Array) -> Estimate:
    """Add the scatter of one run to the interval of a predicted curve."""
    found = table.estimate(seconds, np.log, math.exp)
    down = math.hypot(math.log(found.value / found.low), 2 * _SCATTER)
    up = math.hypot(math.log(found.high / found.value), 2 * _SCATTER)
    return Estimate(found.value, found.value * math.exp(-down), found.value * math.exp(up))


def _reciprocal(value: float) -> float:
    return 1 / value if value > 0 else math.inf


def _chunks_per_s(link: float | None, chunk_nbytes: float | None) -> float:
    """Turn the rate of a link into chunks per second."""
    if link is None:
        return math.inf
    if chunk_nbytes is None:
        raise UserError(f"link: {link:g}; allowed: only with nbytes, the bytes that cross it")
    return link / chunk_nbytes


def _check_link(link: float) -> float:
    if not 0 < link < math.inf:
        raise UserError(f"link: {show(link)}; allowed: bytes per second above 0, and finite")
    return link


def fit_curve(
    n_workers: Sequence[float],
    seconds: Sequence[float],
    n_chunks: float | Sequence[float] | None = None,
    cores_per_worker: float = 1,
    link: float | None = None,
    nbytes: float | None = None,
) -> CurveFit:
    """Fit a scaling curve: the cycle of a chunk, a start, a ceiling.

    A read takes `start + n_chunks * sqrt((cycle / slots)**2 + (1 / ceiling)**2)`; Amdahl's law
    (1967) and the Universal Scalability Law (Gunther 2007) are fitted beside it by the same rule.
    That rule tabulates the curves of a law and their likelihood, with Student's distribution of
    relative errors. An estimate is the mean over the table, weighted by
    likelihood; an interval is that of the profile likelihood, 95 %.

    Parameters
    ----------
    n_workers, seconds : sequence of float
        Cluster size and duration of each run, in any order; runs of one size stay runs.
    n_chunks : float or sequence of float, optional
        Chunks of all runs, or of each. Without it the read is taken to divide at will.
    cores_per_worker : float
        Chunks that a worker has in the making at once.
    link : float, optional
        Bytes per second that all workers share at most, if that is known.
    nbytes : float, optional
        Bytes of one run, as the link carries them; with several chunk counts, of their median.

    Returns
    -------
    CurveFit
        Estimates with intervals, whether the knee was seen, and `predict`.

    Raises
    ------
    UserError
        Of fewer than two cluster sizes, or of a value that is not positive and finite.

    Examples
    --------
    A hundred chunks of 2 s and a second of start, without a ceiling:

    >>> fit = fit_curve([1, 2, 4, 8], [201, 101, 51, 26], 100)
    >>> round(fit.cycle_s.value, 1), fit.is_knee_seen
    (2.0, False)
    """
    sizes, times = _read("n_workers", n_workers), _read("seconds", seconds, least=0)
    if len(sizes) != len(times):
        raise UserError(f"seconds: {len(times)} values; allowed: {len(sizes)}, one for each run")
    if len(np.unique(sizes)) < 2:
        raise UserError(f"n_workers: {show(sorted({*n_workers}))}; allowed: two or more sizes")
    _read("cores_per_worker", [cores_per_worker])
    chunks = None
    if n_chunks is not None:
        given = [*n_chunks] if isinstance(n_chunks, Sequence) else [n_chunks] * len(sizes)
        chunks = _read("n_chunks", given)
        if len(chunks) != len(sizes):
            raise UserError(f"n_chunks: {len(chunks)} values; allowed: one, or {len(sizes)}")
    points = _Points.place(sizes, chunks, cores_per_worker)
    chunk_nbytes = None
    if nbytes is not None:
        chunk_nbytes = float(_read("nbytes", [nbytes])[0] / np.median(points.n_chunks))
    most = math.inf if link is None else _chunks_per_s(_check_link(link), chunk_nbytes)
    tables = {law: _tabulate(law, points, times, most) for law in LAWS}
    return CurveFit(points, tables, cores_per_worker, chunks is not None, chunk_nbytes, link)


def _read(name: str, values: Sequence[float], least: float = 1) -> Array:
    """Take numbers, or name the first that is none, too small or infinite."""
    for value in values:
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (is_number and value >= least and 0 < value < math.inf):
            what = f"at least {least:g}" if least else "above 0"
            raise UserError(f"{name}: {show(value)}; allowed: numbers, {what} and finite")
    return np.asarray(values, dtype=float)
