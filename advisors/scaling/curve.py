"""A scaling curve as three numbers: the cycle of a chunk, a start, and a ceiling.

The discrete simulation of `helpers.models.transfer` has the same three. It takes some 50 ms for
thousands of chunks, and a fit with intervals asks for some ten thousand curves, so the fit uses
a closed form: it agrees where one of the three decides, and rounds the corner between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
_REACH = 100.0  # a ceiling is sought up to so many times the largest measured cluster
_N_STEPS, _N_OFFSETS = 33, 13  # of the table: along each shape parameter, and along the cycle
_FEWEST_SHAPES = 30  # likely ones, below which the steps would decide the interval
_CUT = 1.921  # of the log likelihood for 95 %: half of chi-squared, one degree of freedom
# A link carries headers too: a ceiling that comes so near the stated rate is the link's.
_IS_LINK = 0.85


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval of 95 %."""

    value: float
    low: float
    high: float

    def invert(self) -> Estimate:
        """Return one over this number, infinite over 0."""
        return Estimate(*(1 / x if x else math.inf for x in (self.value, self.high, self.low)))


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
    first: Array  # start in s, or contention
    second: Array  # seconds a chunk at the ceiling, or coherence
    log_likelihood: Array

    def seconds(self, points: _Points) -> Array:
        """Compute the seconds of each curve (rows) at each point (columns)."""
        cycle_s, first, second = (x[:, None] for x in (self.cycle_s, self.first, self.second))
        if self.law == "transfer":
            return first + points.n_chunks * np.hypot(cycle_s / points.slots, second)
        n = points.n_workers
        growth = (1 + first * (n - 1) + second * n * (n - 1)) / n
        return np.asarray(points.n_chunks * cycle_s * growth)

    def estimate(self, values: Array, *, is_ratio: bool = False) -> Estimate:
        """Weigh values, or logarithms of ratios, by likelihood; the interval is the profile's."""
        weights = np.exp(self.log_likelihood - self.log_likelihood.max())
        mean = float(weights @ (np.log(values) if is_ratio else values) / weights.sum())
        likely = values[self.log_likelihood >= self.log_likelihood.max() - _CUT]
        return Estimate(
            math.exp(mean) if is_ratio else mean, float(likely.min()), float(likely.max())
        )


def _tabulate(law: LawName, points: _Points, seconds: Array, least_s: float) -> _Table:
    """Tabulate curves around the measured one, finer where the runs allow few of them."""
    axes = _axes(law, points)
    for _ in range(6):  # each makes the steps smaller
        shapes = [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]
        table = _fill(law, shapes, points, seconds, least_s)
        best = table.log_likelihood.reshape(_N_OFFSETS, -1).max(axis=0)
        if (best >= best.max() - _CUT).sum() >= _FEWEST_SHAPES:
            break
        # twice as many as are enough, for the likely ones lie along a ridge that steps cross
        chosen = np.argsort(best)[-2 * _FEWEST_SHAPES :]
        axes = [_refine(axis, shape[chosen]) for axis, shape in zip(axes, shapes, strict=True)]
    return table


def _axes(law: LawName, points: _Points) -> list[Array]:
    """List both shape parameters of a law, times in units of the cycle."""

    def steps(low: float, high: float, n: int = _N_STEPS) -> Array:
        return np.concatenate(([0.0], np.geomspace(low, high, n)))

    sizes = points.slots if law == "transfer" else points.n_workers
    small, large = float(sizes.min()), float(sizes.max())
    if law == "transfer":
        starts = steps(1e-3 / large, 1 / small) * float(np.median(points.n_chunks))
        return [starts, steps(1 / (_REACH * large), 1 / small)]
    if law == "usl":
        return [steps(1e-3 / large, 1.0), steps(1e-4 / large**2, 1 / large)]
    return [steps(1e-3 / large, 1.0, _N_STEPS**2), np.zeros(1)]


def _refine(axis: Array, likely: Array) -> Array:
    """Divide an axis anew, from the last step before what is likely to the first after it."""
    low, high = np.searchsorted(axis, [likely.min(), likely.max()])
    ends = axis[max(low - 1, 0)], axis[min(high + 1, len(axis) - 1)]
    return axis if len(axis) == 1 else np.linspace(*ends, len(axis))


def _fill(
    law: LawName, shapes: Sequence[Array], points: _Points, seconds: Array, least_s: float
) -> _Table:
    """Compute the likelihood of shapes; at a ceiling, a chunk takes `least_s` or more."""
    first, second = shapes
    table = _Table(law, np.ones_like(first), first, second, first)
    centre = _centre(np.log(seconds) - np.log(table.seconds(points)))
    offsets = np.linspace(-4, 4, _N_OFFSETS) * _SCATTER / math.sqrt(len(seconds))
    cycle_s = np.exp(centre + offsets[:, None]).ravel()
    first, second = np.tile(first, _N_OFFSETS), np.tile(second, _N_OFFSETS)
    if law == "transfer":  # both times are in units of the cycle so far
        first, second = first * cycle_s, np.maximum(second * cycle_s, least_s)
    table = _Table(law, cycle_s, first, second, np.zeros_like(first))
    for i in range(len(seconds)):  # one after another, for the table of all would fill the memory
        point = _Points(points.n_workers[[i]], points.n_chunks[[i]], points.slots[[i]])
        errors = np.log(seconds[i] / table.seconds(point)[:, 0]) / _SCATTER
        table.log_likelihood[:] -= (_FREEDOM + 1) / 2 * np.log1p(errors**2 / _FREEDOM)
    return table


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

    cycle_s: Estimate  # seconds that a slot takes for a chunk, while nothing else limits it
    start_s: Estimate  # seconds that no worker shortens
    # chunks per second that no cluster exceeds, and the workers that would need more; `high` is
    # infinite where none was seen
    ceiling: Estimate
    knee_workers: Estimate
    is_knee_seen: bool  # whether the runs show a ceiling, within the clusters that were measured
    largest: float  # workers of the largest measured cluster
    n_chunks: float  # of a measured read, the median
    has_chunks: bool  # whether chunks were counted; else the whole read is one, cut at will
    cores_per_worker: float
    chunk_nbytes: float | None
    link: float | None  # bytes per second
    tables: Mapping[LawName, _Table]

    def double(self, n_workers: float) -> Estimate:
        """Predict how many times as fast twice the workers read the measured chunks."""
        table, points = self.tables["transfer"], self._place([n_workers, 2 * n_workers], None)
        few_s, many_s = table.seconds(points).T
        return table.estimate(few_s / many_s, is_ratio=True)

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
        table, least_s = self.tables[law], _cross_s(link, self.chunk_nbytes)
        moved = np.maximum(table.second, least_s)
        if self.link is not None:
            own_s = _cross_s(self.link, self.chunk_nbytes)
            moved = np.where(
                table.second <= own_s / _IS_LINK, table.second * least_s / own_s, moved
            )
        return replace(table, second=moved)


def _widen(table: _Table, seconds: Array) -> Estimate:
    """Add the scatter of one run to the interval of a predicted curve."""
    found = table.estimate(seconds, is_ratio=True)
    down = math.hypot(math.log(found.value / found.low), 2 * _SCATTER)
    up = math.hypot(math.log(found.high / found.value), 2 * _SCATTER)
    return Estimate(found.value, found.value * math.exp(-down), found.value * math.exp(up))


def _cross_s(link: float | None, chunk_nbytes: float | None) -> float:
    """Compute the seconds of a chunk on a link that it has for itself; 0 without a link."""
    if link is None:
        return 0.0
    if chunk_nbytes is None:
        raise UserError(f"link: {show(link)}; allowed: only with nbytes, the bytes that cross it")
    return chunk_nbytes / float(_read("link", [link], least=0)[0])


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
    sizes, times, chunks = _read_runs(n_workers, seconds, n_chunks)
    cores = float(_read("cores_per_worker", [cores_per_worker])[0])
    points = _Points.place(sizes, chunks, cores)
    usual = float(np.median(points.n_chunks))
    chunk_nbytes = None if nbytes is None else float(_read("nbytes", [nbytes])[0]) / usual
    least_s = _cross_s(link, chunk_nbytes)
    tables = {law: _tabulate(law, points, times, least_s) for law in LAWS}
    table, largest = tables["transfer"], float(sizes.max())
    ceiling = table.estimate(table.second).invert()
    knee = table.estimate(table.second / table.cycle_s * cores).invert()
    return CurveFit(
        cycle_s=table.estimate(table.cycle_s, is_ratio=True),
        start_s=table.estimate(table.first),
        ceiling=ceiling,
        knee_workers=knee,
        is_knee_seen=knee.low <= largest
        and (ceiling.high * least_s < 0.999 or knee.high <= largest),
        largest=largest,
        n_chunks=usual,
        has_chunks=chunks is not None,
        cores_per_worker=cores,
        chunk_nbytes=chunk_nbytes,
        link=link,
        tables=tables,
    )


def _read_runs(
    n_workers: Sequence[float], seconds: Sequence[float], n_chunks: float | Sequence[float] | None
) -> tuple[Array, Array, Array | None]:
    """Take runs, or refuse what is no curve."""
    sizes, times, chunks = _read("n_workers", n_workers), _read("seconds", seconds, least=0), None
    if n_chunks is not None:
        given = n_chunks if isinstance(n_chunks, Sequence | np.ndarray) else [n_chunks] * len(sizes)
        chunks = _read("n_chunks", given)
    for name, values in (("seconds", times), ("n_chunks", chunks)):
        if values is not None and len(values) != len(sizes):
            raise UserError(f"{name}: {len(values)} values; allowed: {len(sizes)}, as n_workers")
    if len(np.unique(sizes)) < 2:
        raise UserError(f"n_workers: {show(sorted({*n_workers}))}; allowed: two or more sizes")
    return sizes, times, chunks


def _read(name: str, values: Sequence[float], least: float = 1) -> Array:
    """Take numbers, or name the first that is none, too small or infinite."""
    for value in values:
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (is_number and value >= least and 0 < value < math.inf):
            what = f"at least {least:g}" if least else "above 0"
            raise UserError(f"{name}: {show(value)}; allowed: numbers, {what} and finite")
    return np.asarray(values, dtype=float)
