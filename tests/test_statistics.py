"""Intervals cover, equals are called equal, and true differences are found."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.errors import UserError
from helpers.measurement.statistics import (
    Interval,
    add_throughputs,
    compare,
    instability,
    judge,
    log_noise,
    measured,
    median_interval,
    noise_ratio,
    paired_ratio,
    ratio_interval,
    relative_widths,
    summarise,
)
from helpers.measurement.statistics.intervals import Floats

N_BLOCKS = 5
Noise = Callable[[np.random.Generator, int], Floats]


def make_table(**seconds: list[float]) -> pd.DataFrame:
    """Return a record with the read times of each contender, block by block."""
    rows = [
        {
            "case": "c",
            "phase": "measured",
            "block": block,
            "contender": name.replace("_", " "),
            "point": "{}",
            "control_of": name.removesuffix("_again") if name.endswith("_again") else "",
            "read_s": value,
        }
        for name, values in seconds.items()
        for block, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("values", "centre", "low", "high"),
    [
        ([2.0, 1.0, 3.0, 5.0, 4.0], 3.0, 1.0, 5.0),  # five values: the interval spans them
        ([7.0, 7.0, 7.0, 7.0, 7.0], 7.0, 7.0, 7.0),  # no spread, no width
        ([1.0, 2.0], 1.5, 1.0, 2.0),
    ],
)
def test_median_interval(values: list[float], centre: float, low: float, high: float) -> None:
    """Small samples have intervals one can work out by hand."""
    found = median_interval(values)
    assert (found.centre, found.low, found.high, found.n) == (centre, low, high, len(values))


def test_one_value_has_no_interval() -> None:
    """One value says so, and shows no interval of width zero."""
    found = median_interval([3.0])
    assert found.centre == 3.0 and found.n == 1
    assert math.isnan(found.low) and math.isnan(found.high)
    assert found.note == "one value, no interval"


@pytest.mark.parametrize(("n", "note"), [(3, "covers 75%"), (4, "covers 88%"), (5, "")])
def test_few_values_say_that_they_cover_less(n: int, note: str) -> None:
    """Below five values a 95 % interval does not exist, and the note says so."""
    found = median_interval(np.arange(n) + 1.0)
    assert note in found.note and bool(found.note) == bool(note)


def test_median_interval_covers_the_median() -> None:
    """Ten log-normal values: the interval holds the true median in about 95 %."""
    rng = np.random.default_rng(1)
    samples = rng.lognormal(0, 0.3, (150, 10))
    found = [median_interval(sample) for sample in samples]
    assert np.mean([one.low <= 1 <= one.high for one in found]) >= 0.9


def test_median_interval_is_repeatable() -> None:
    """The bootstrap is seeded: the same values give the same figure."""
    values = np.random.default_rng(2).lognormal(size=9)
    assert median_interval(values) == median_interval(values)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_value_and_no_number_are_refused(values: list[float]) -> None:
    """Skipping what is not a number would hide a failure."""
    with pytest.raises(UserError, match="at least one, all finite"):
        median_interval(values)


def test_warm_ups_never_count() -> None:
    """A slow warm-up moves neither median nor ratio."""
    table = make_table(a=[1.0] * 5, b=[2.0] * 5)
    warm_up = make_table(a=[100.0], b=[1.0]).assign(phase="warm-up")
    both = pd.concat([warm_up, table])
    assert len(measured(both)) == 10
    assert summarise(both)["median"].tolist() == [1.0, 2.0]
    assert paired_ratio(both, "a", "b").centre == 0.5


def test_summary_has_a_line_for_each_contender_and_point() -> None:
    """Points of the x-axis are not thrown together, and order is kept."""
    table = make_table(b=[1.0, 2.0, 3.0], a=[4.0, 4.0, 4.0])
    table.loc[table["block"] == 2, "point"] = '{"n_workers": 2}'
    found = summarise(table)
    assert found["contender"].tolist() == ["b", "b", "a", "a"]
    assert found["n"].tolist() == [2, 1, 2, 1]
    assert found["median"].tolist() == [1.5, 3.0, 4.0, 4.0]
    assert found["note"].iloc[1] == "one value, no interval"
    assert (found["unstable"] != "").all()


def test_relative_widths() -> None:
    """Width over median; unknown for one value."""
    widths = relative_widths(make_table(a=[9.0, 10.0, 11.0, 10.0, 10.0], b=[1.0]))
    assert widths.iloc[0] == pytest.approx(0.2)
    assert math.isnan(widths.iloc[1])


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([10.0, 10.1, 9.9, 10.0, 10.2], ""),
        ([10.0, 10.1, 9.9, 10.0], "only 4 of at least 5 blocks"),
        ([10.0, 12.0, 8.0, 11.5, 8.5], "standard deviation is 18 %"),
        ([1.0] * 20 + [1.6], "largest is 56 % above"),  # one outlier, small deviation
        ([1.0] * 30 + [0.4], "smallest is 59 % below"),
    ],
)
def test_unstable_results_say_so(values: list[float], told: str) -> None:
    """Each reason is named; a stable result is silent."""
    assert told in instability(values)
    assert bool(instability(values)) == bool(told)


def test_paired_ratio_cancels_the_block() -> None:
    """Blocks up to nine times slower leave the ratio alone, because both are in them."""
    slow = np.array([1.0, 3.0, 9.0, 2.0, 5.0])
    found = paired_ratio(make_table(a=list(slow * 2), b=list(slow)), "a", "b")
    assert found.centre == pytest.approx(2)
    assert (found.low, found.high) == pytest.approx((2, 2))
    assert found.n == 5


def test_paired_ratio_against_the_textbook() -> None:
    """Logs 0.1, 0.2, 0.3: mean 0.2, standard error 0.0577, t of two degrees 4.303."""
    found = paired_ratio(make_table(a=list(np.exp([0.1, 0.2, 0.3])), b=[1.0] * 3), "a", "b")
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert found.centre == pytest.approx(math.exp(0.2))
    assert (found.low, found.high) == pytest.approx((math.exp(0.2 - half), math.exp(0.2 + half)))


def test_incomplete_blocks_are_left_out() -> None:
    """A block that holds only one of the two gives no pair."""
    found = paired_ratio(make_table(a=[1.0, 1.0, 50.0], b=[2.0, 2.0]), "a", "b")
    assert (found.centre, found.n) == (0.5, 2)


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=8), st.floats(0.1, 10))
@settings(max_examples=40, deadline=None)
def test_ratio_turns_with_its_sides_and_ignores_the_unit(times: list[float], unit: float) -> None:
    """The ratio of b to a is the inverse of a to b; milliseconds give the ratio of seconds."""
    logs = np.log(np.asarray(times))
    there, back = ratio_interval(logs), ratio_interval(-logs)
    assert there.low * back.high == pytest.approx(1)
    assert there.centre * back.centre == pytest.approx(1)
    scaled = make_table(a=[unit * t for t in times], b=[unit] * len(times))
    assert paired_ratio(scaled, "a", "b").centre == pytest.approx(there.centre)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (make_table(a=[1.0]), "contender: 'b' was not measured; allowed: a"),
        (make_table(a=[1.0], b=[0.0]), "no block holds both"),  # a time of zero is no time
        (pd.concat([make_table(a=[1.0], b=[1.0])] * 2), "more than once a block"),
    ],
)
def test_bad_pairs_are_refused(table: pd.DataFrame, told: str) -> None:
    """One line says why there is no ratio."""
    with pytest.raises(UserError, match=told):
        paired_ratio(table, "a", "b")


def test_noise_is_bias_and_uncertainty() -> None:
    """A copy that is always 10 % slower shows that bias; a perfect copy shows none."""
    assert noise_ratio(make_table(a=[1.0] * 5, a_again=[1.1] * 5), "a again") == pytest.approx(1.1)
    assert noise_ratio(make_table(a=[1.0] * 5, a_again=[1.0] * 5), "a again") == 1.0
    assert math.isnan(noise_ratio(make_table(a=[1.0], a_again=[1.0]), "a again"))
    with pytest.raises(UserError, match="control: 'b'; allowed: a again"):
        noise_ratio(make_table(a=[1.0], b=[1.0], a_again=[1.0]), "b")


@pytest.mark.parametrize(
    ("ratio", "noise", "verdict", "reason"),
    [
        (Interval(0.5, 0.4, 0.6, 5), 1.1, "faster", "outside"),
        (Interval(2.0, 1.8, 2.2, 5), 1.1, "slower", "outside"),
        (Interval(1.3, 0.9, 1.9, 5), 1.0, "indistinguishable", "includes 1"),
        (Interval(1.08, 1.06, 1.10, 5), 1.1, "indistinguishable", "inside the A/A noise"),
        (Interval(0.92, 0.91, 0.94, 5), 1.1, "indistinguishable", "inside the A/A noise"),
        (Interval(0.5, math.nan, math.nan, 1), 1.1, "indistinguishable", "one block"),
        (Interval(0.5, 0.4, 0.6, 5), math.nan, "indistinguishable", "one block"),
    ],
)
def test_verdicts(ratio: Interval, noise: float, verdict: str, reason: str) -> None:
    """Different needs both: an interval that excludes 1 and a ratio outside the noise."""
    found = judge(ratio, noise)
    assert found.verdict == verdict and reason in found.reason


def test_compare_reads_the_record() -> None:
    """The verdict on a record uses its own control, and is about the first contender."""
    table = make_table(
        a=[1.00, 2.02, 0.99, 1.01, 4.0],
        b=[1.50, 3.00, 1.52, 1.49, 6.1],
        a_again=[1.01, 2.0, 1.0, 1.0, 4.05],
    )
    found = compare(table, "a", "b", control="a again")
    assert found.verdict == "faster" and found.ratio.centre == pytest.approx(0.667, abs=0.01)
    assert compare(table, "b", "a", control="a again").verdict == "slower"
    assert compare(table, "a", "a again", control="a again").verdict == "indistinguishable"


def gaussian(rng: np.random.Generator, n: int) -> Floats:
    """Log-normal times: 5 % in the logarithm."""
    return rng.normal(0, 0.05, n)


def heavy_tailed(rng: np.random.Generator, n: int) -> Floats:
    """Student's t with 3 degrees, scaled to 5 %."""
    return 0.05 * rng.standard_t(3, n) / math.sqrt(3)


def skewed(rng: np.random.Generator, n: int) -> Floats:
    """Delays only ever add time: exponential of 5 %."""
    return 0.05 * rng.exponential(1, n)


def with_hiccups(rng: np.random.Generator, n: int) -> Floats:
    """5 %, and one read in ten takes 30 % longer."""
    return gaussian(rng, n) + math.log(1.3) * (rng.random(n) < 0.1)


def simulate(noise: Noise, *, difference: float, n_runs: int, bias: float = 1.0) -> Counter[str]:
    """Count verdicts on b, `difference` times as slow as a, in blocks that drift together."""
    rng = np.random.default_rng(20260101)
    verdicts: Counter[str] = Counter()
    for _ in range(n_runs):
        drift = np.cumsum(rng.normal(0, 0.2, N_BLOCKS))
        a, b, again = (drift + noise(rng, N_BLOCKS) for _ in range(3))
        b, again = b + math.log(difference), again + math.log(bias)
        verdicts[judge(ratio_interval(b - a), log_noise(a - again)).verdict] += 1
    return verdicts


@pytest.mark.parametrize("noise", [gaussian, heavy_tailed, skewed, with_hiccups])
def test_equals_are_called_equal(noise: Noise) -> None:
    """Over 1000 simulated A/A comparisons of 5 blocks at most 5 % are called different."""
    verdicts = simulate(noise, difference=1.0, n_runs=1000)
    assert verdicts["faster"] + verdicts["slower"] <= 50
    # A rule that never finds anything would pass too: see the test of power.
    assert verdicts["faster"] > 0 and verdicts["slower"] > 0


@pytest.mark.parametrize(
    ("noise", "share"),
    # The bar is 95 % for 5 % noise; for the shapes that are not normal we know and keep:
    [(gaussian, 0.95), (heavy_tailed, 0.95), (skewed, 0.94)],
)
@pytest.mark.parametrize(("difference", "verdict"), [(1.2, "slower"), (1 / 1.2, "faster")])
def test_a_true_difference_is_found(
    noise: Noise, share: float, difference: float, verdict: str
) -> None:
    """A true 20 % at 5 % noise is found, with the right sign, by 5 blocks."""
    verdicts = simulate(noise, difference=difference, n_runs=1000)
    assert verdicts[verdict] >= share * 1000
    assert verdicts.keys() <= {verdict, "indistinguishable"}


def test_bias_of_the_instrument_is_not_a_finding() -> None:
    """When a copy is always 8 % slower than itself, a difference of 8 % is rarely believed."""
    verdicts = simulate(gaussian, difference=1.08, bias=1.08, n_runs=1000)
    assert verdicts["indistinguishable"] >= 800


def test_the_whole_way_agrees_with_the_simulation() -> None:
    """Through tables, as the book goes, equals are equal and 20 % is found."""
    rng = np.random.default_rng(5)
    found: Counter[str] = Counter()
    for _ in range(40):
        drift = np.cumsum(rng.normal(0, 0.2, N_BLOCKS))
        a, b, c, again = (np.exp(drift + gaussian(rng, N_BLOCKS)) for _ in range(4))
        table = make_table(a=list(a), b=list(b), c=list(1.2 * c), a_again=list(again))
        found["equal " + compare(table, "a", "b", control="a again").verdict] += 1
        found["apart " + compare(table, "c", "a", control="a again").verdict] += 1
    assert found["equal indistinguishable"] >= 37
    assert found["apart slower"] >= 37


def test_throughputs_say_which_bytes() -> None:
    """Three throughputs, and the share of the ceiling of the same block and point."""
    table = make_table(a=[2.0, 4.0], raw=[1.0, 4.0])
    table = table.assign(array_nbytes=400e6, stored_nbytes=200e6, wire_nbytes=[210e6, math.nan] * 2)
    table["is_ceiling"] = table["contender"] == "raw"
    found = add_throughputs(table)
    assert found["throughput_mb_per_s"].tolist() == [200.0, 100.0, 400.0, 100.0]
    assert found["stored_throughput_mb_per_s"].tolist() == [100.0, 50.0, 200.0, 50.0]
    assert found["wire_throughput_mb_per_s"].iloc[0] == 105.0
    assert math.isnan(found["wire_throughput_mb_per_s"].iloc[1])
    assert found["share_of_ceiling"].tolist() == [0.5, 1.0, 1.0, 1.0]
    lonely = add_throughputs(table[~table["is_ceiling"]])
    assert lonely["share_of_ceiling"].isna().all()
    with pytest.raises(UserError, match="two ceilings"):
        add_throughputs(table.assign(is_ceiling=True))
