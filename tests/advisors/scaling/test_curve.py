"""A scaling curve: what is fitted comes back, what was not seen is said to be unseen."""

from __future__ import annotations

import math
import random

import pytest

from advisors.scaling import curve
from advisors.scaling.curve import LAWS, CurveFit, Estimate, fit_curve
from helpers.errors import UserError
from helpers.models.transfer import Client, Network, simulate

SIZES = [1, 2, 4, 8, 16, 32]
CHUNK_NBYTES = 1e6


def holds(estimate: Estimate, value: float, within: float = 0.02) -> bool:
    """Tell whether a value lies in an interval, or beside it by less than a table's step."""
    return estimate.low * (1 - within) <= value <= estimate.high * (1 + within)


def simulate_curve(
    n_chunks: int, *, start_s: float = 0.0, link: float = math.inf, sizes: list[int] = SIZES
) -> list[float]:
    """Simulate reads of two connections a worker that take about 0.5 s for a chunk."""
    network = Network(0.4, 0.6, stream_nbytes_per_s=10e6, aggregate_nbytes_per_s=link)
    client = Client(CHUNK_NBYTES, connections_per_worker=2, start_s=start_s)
    return [simulate(network, client, n_chunks, n_workers=n, n_cores=1e3, seed=n) for n in sizes]


@pytest.mark.parametrize("start_s", [0.0, 2.0, 20.0])
@pytest.mark.parametrize("link", [math.inf, 40e6, 10e6])
def test_what_was_simulated_comes_back(start_s: float, link: float) -> None:
    """Cycle, start and ceiling of the discrete simulation lie in the intervals of the closed form."""
    fit = fit_curve(SIZES, simulate_curve(2000, start_s=start_s, link=link), 2000, 2)
    assert holds(fit.cycle_s, 0.51, 0.05)
    assert holds(fit.start_s, start_s)
    assert fit.is_knee_seen == math.isfinite(link)
    if math.isfinite(link):
        # the simulated corner is sharp, the fitted one round: near it the ceiling looks higher
        within = 0.1 if link == 10e6 else 0.35
        assert holds(fit.ceiling, link / CHUNK_NBYTES, within)
        assert holds(fit.knee_workers, 0.51 * link / CHUNK_NBYTES / 2, within)
    else:
        assert fit.ceiling.high == math.inf and fit.ceiling.low > 32 / 0.51


@pytest.mark.parametrize("link", [math.inf, 20e6])
def test_larger_clusters_are_predicted(link: float) -> None:
    """Four and eight times the fitted clusters lie in the interval, once the knee was seen or is far."""
    fit = fit_curve(SIZES, simulate_curve(4000, start_s=2, link=link), 4000, 2)
    measured = simulate_curve(4000, start_s=2, link=link, sizes=[64, 128])
    for found, seconds in zip(fit.predict([64, 128]), measured, strict=True):
        assert holds(found, seconds)
        assert found.low < found.value < found.high


def test_chunks_are_extrapolated() -> None:
    """Ten times the chunks take the cycle ten times as often and the start once."""
    fit = fit_curve(SIZES, simulate_curve(1000, start_s=5), 1000, 2)
    (found,) = fit.predict([8], n_chunks=10_000)
    (seconds,) = simulate_curve(10_000, start_s=5, sizes=[8])
    assert holds(found, seconds) and seconds < 10 * fit.predict([8])[0].value


def test_runs_may_have_different_chunks() -> None:
    """Clusters that grow with the array show the cycle as well."""
    chunks = [100 * n for n in SIZES]
    seconds = [3 + n_chunks * 0.5 / n for n, n_chunks in zip(SIZES, chunks, strict=True)]
    fit = fit_curve(SIZES, seconds, chunks)
    assert holds(fit.cycle_s, 0.5) and holds(fit.start_s, 3)


def test_few_chunks_leave_slots_idle() -> None:
    """Where chunks have run out, more workers gain nothing."""
    fit = fit_curve([1, 2, 4], [20, 10, 5], 20)
    alone, more = fit.predict([40, 4000])
    assert alone.value == pytest.approx(more.value, rel=0.05)
    assert alone.value >= fit.cycle_s.low


def test_a_known_link_bounds_the_ceiling() -> None:
    """Who states the link gets no ceiling beyond it, seen or not."""
    seconds, nbytes = [1000 / n for n in [1, 2, 4]], 1000 * CHUNK_NBYTES
    free = fit_curve([1, 2, 4], seconds, 1000, nbytes=nbytes)
    bound = fit_curve([1, 2, 4], seconds, 1000, link=8e6, nbytes=nbytes)
    assert not free.is_knee_seen and not bound.is_knee_seen
    assert bound.ceiling.high == pytest.approx(8)
    assert bound.predict([64])[0].low >= 1000 / 8 * math.exp(-0.2)
    assert free.predict([64])[0].value < bound.predict([64])[0].value


def test_another_link() -> None:
    """A ceiling that is the link goes with the link; another ceiling stays."""
    seconds = simulate_curve(2000, link=10e6)
    nbytes = 2000 * CHUNK_NBYTES
    of_link = fit_curve(SIZES, seconds, 2000, 2, link=10e6, nbytes=nbytes)
    of_store = fit_curve(SIZES, seconds, 2000, 2, nbytes=nbytes)
    (faster,) = of_link.predict([32], link=40e6)
    assert holds(faster, *simulate_curve(2000, link=40e6, sizes=[32]))
    (same,) = of_store.predict([32], link=40e6)
    assert same.value == pytest.approx(of_store.predict([32])[0].value, rel=0.02)
    (slower,) = of_store.predict([32], link=5e6)
    assert holds(slower, *simulate_curve(2000, link=5e6, sizes=[32]), 0.1)


def test_one_bad_run_does_not_decide() -> None:
    """A run that took four times as long moves the cycle by little."""
    sizes = [1, 1, 2, 2, 4, 4, 8, 8]
    seconds = [100 / n for n in sizes]
    seconds[3] *= 4
    assert fit_curve(sizes, seconds, 100).cycle_s.value == pytest.approx(1, rel=0.05)


def test_many_runs_narrow_the_interval() -> None:
    """With many runs the noise decides the interval, and not the steps of a table."""
    rng, sizes = random.Random(1), [1, 2, 4, 8, 16, 32] * 40
    seconds = [(5 + 200 / n) * rng.lognormvariate(0, 0.05) for n in sizes]
    fit = fit_curve(sizes, seconds)
    assert holds(fit.cycle_s, 200, 0) and holds(fit.start_s, 5, 0)
    assert fit.start_s.high / fit.start_s.low < 1.3


def test_the_order_of_runs_does_not_matter() -> None:
    """Runs in any order give the same fit."""
    pairs = [*zip(SIZES, simulate_curve(500), strict=True)]
    shuffled = random.Random(0).sample(pairs, len(pairs))
    found = [fit_curve(*map(list, zip(*each, strict=True)), 500) for each in (pairs, shuffled)]
    assert found[0].cycle_s.value == pytest.approx(found[1].cycle_s.value, rel=1e-9)


@pytest.mark.parametrize("law", LAWS[1:])
def test_each_law_finds_its_own(law: curve.LawName) -> None:
    """A curve of Amdahl's or of the Universal Scalability Law is continued by it."""
    coherence = 0.0 if law == "amdahl" else 1e-3
    sizes = [1, 2, 4, 8, 16, 24, 32]

    def seconds(n: int) -> float:
        return 100 * (1 + 0.05 * (n - 1) + coherence * n * (n - 1)) / n

    fit = fit_curve(sizes, [seconds(n) for n in sizes])
    assert holds(fit.predict([48], law=law)[0], seconds(48))


def test_doubling() -> None:
    """Without start and ceiling, twice the workers are nearly twice as fast; at the ceiling, no faster."""
    free = fit_curve(SIZES, simulate_curve(2000), 2000, 2).double(8)
    capped = fit_curve(SIZES, simulate_curve(2000, link=10e6), 2000, 2).double(32)
    assert free.low <= 2 and free.value == pytest.approx(2, rel=0.05)
    assert capped.value == pytest.approx(1, abs=0.05)


GOOD: dict[str, object] = {"n_workers": [1, 2, 4], "seconds": [4.0, 2.0, 1.0]}


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"n_workers": [1], "seconds": [4.0]}, "n_workers"),  # one point
        ({"n_workers": [], "seconds": []}, "n_workers"),
        ({"n_workers": [2, 2, 2]}, "n_workers"),  # one size
        ({"n_workers": [0, 2, 4]}, "n_workers"),
        ({"n_workers": ["1", 2, 4]}, "n_workers"),
        ({"seconds": [4.0, 0.0, 1.0]}, "seconds"),
        ({"seconds": [4.0, math.nan, 1.0]}, "seconds"),
        ({"seconds": [4.0, math.inf, 1.0]}, "seconds"),
        ({"seconds": [4.0, -2.0, 1.0]}, "seconds"),
        ({"seconds": [4.0, 2.0]}, "seconds"),
        ({"n_chunks": 0}, "n_chunks"),
        ({"n_chunks": [10, 10]}, "n_chunks"),
        ({"cores_per_worker": 0}, "cores_per_worker"),
        ({"link": 1e6}, "link"),  # of unknown bytes
        ({"link": 0, "nbytes": 1e6}, "link"),
        ({"nbytes": math.nan}, "nbytes"),
    ],
)
def test_bad_curves_are_one_line(changed: dict[str, object], name: str) -> None:
    """What cannot be fitted is named with what is allowed."""
    with pytest.raises(UserError, match=f"^{name}: .*; allowed: .*") as caught:
        fit_curve(**(GOOD | changed))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def fit_good() -> CurveFit:
    """Fit a curve without chunks or bytes."""
    return fit_curve([1, 2, 4], [4.0, 2.0, 1.0])


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"n_workers": [0]}, "n_workers"),
        ({"n_workers": [8], "n_chunks": 10}, "n_chunks"),  # the fit counted none
        ({"n_workers": [8], "link": 1e6}, "link"),  # of unknown bytes
        ({"n_workers": [8], "link": 1e6, "law": "usl"}, "law"),
    ],
)
def test_bad_questions_are_one_line(asked: dict[str, object], name: str) -> None:
    """What a fit cannot predict is named with what is allowed."""
    with pytest.raises(UserError, match=f"^{name}: .*; allowed: .*"):
        fit_good().predict(**asked)  # type: ignore[arg-type]
