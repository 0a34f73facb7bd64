"""Intervals cover, equals are called equal, and true differences are found."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest

from helpers.benchmark import statistics
from helpers.benchmark.ranking import rank
from helpers.benchmark.statistics import (
    Floats,
    Interval,
    add_throughputs,
    can_rank,
    client_share,
    compare_contenders,
    judge,
    log_noise,
    median_interval,
    noise_ratio,
    paired_ratio,
    processor_share,
    ratio_interval,
    summarise,
    thread_share,
)
from tests.refusals import refused

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


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_value_and_no_number_are_refused(values: list[float]) -> None:
    """Skipping what is not a number would hide a failure; two values span their interval."""
    found = median_interval([1.0, 2.0])
    assert (found.centre, found.low, found.high, found.n) == (1.5, 1.0, 2.0, 2)
    with refused("values", allowed="at least one, all finite"):
        median_interval(values)


def test_summary_has_a_line_for_each_contender_and_point() -> None:
    """Points of the x-axis are not thrown together, order is kept, and warm-ups never count."""
    table = make_table(b=[1.0, 2.0, 3.0], a=[4.0, 4.0, 4.0])
    table.loc[table["block"] == 2, "point"] = '{"n_workers": 2}'
    warm_up = make_table(a=[100.0], b=[1.0]).assign(phase="warm-up")
    found = summarise(pd.concat([warm_up, table]))
    assert found["contender"].tolist() == ["b", "b", "a", "a"]
    assert found["n"].tolist() == [2, 1, 2, 1]
    assert found["median"].tolist() == [1.5, 3.0, 4.0, 4.0]
    assert found["low"].isna().tolist() == [False, True, False, True]


def test_paired_ratio_against_the_textbook() -> None:
    """Logs 0.1, 0.2, 0.3: mean 0.2, standard error 0.0577, t of two degrees 4.303."""
    found = paired_ratio(make_table(a=list(np.exp([0.1, 0.2, 0.3])), b=[1.0] * 3), "a", "b")
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert found.centre == pytest.approx(math.exp(0.2))
    assert (found.low, found.high) == pytest.approx((math.exp(0.2 - half), math.exp(0.2 + half)))


@pytest.mark.parametrize(
    ("table", "where", "value"),
    [
        (make_table(a=[1.0]), "contender", "^'b' was not measured"),
        (make_table(a=[1.0], b=[0.0]), "a, b", "no block holds both"),  # a time of zero is no time
        (pd.concat([make_table(a=[1.0], b=[1.0])] * 2), "a", "more than once a block"),
    ],
)
def test_bad_pairs_are_refused(table: pd.DataFrame, where: str, value: str) -> None:
    """One line says why there is no ratio."""
    with refused(where, value):
        paired_ratio(table, "a", "b")


def test_noise_is_bias_and_uncertainty() -> None:
    """A copy that is always 10 % slower shows that bias; a perfect copy shows none."""
    assert noise_ratio(make_table(a=[1.0] * 5, a_again=[1.1] * 5), "a again") == pytest.approx(1.1)
    assert noise_ratio(make_table(a=[1.0] * 5, a_again=[1.0] * 5), "a again") == 1.0
    assert math.isnan(noise_ratio(make_table(a=[1.0], a_again=[1.0]), "a again"))
    with refused("control", "^'b'", "a again"):
        noise_ratio(make_table(a=[1.0], b=[1.0], a_again=[1.0]), "b")


def test_processors_share_is_that_of_the_slowest() -> None:
    """What is fast may be bound by processors; unknown seconds give no share."""
    table = make_table(a=[1.0] * 3, b=[4.0, 5.0, 6.0]).assign(
        real_open_s=0.0, trace='{"busy_s": 1}'
    )
    assert processor_share(table.assign(real_read_s=table["read_s"])) == pytest.approx(0.2)
    assert math.isnan(processor_share(table.assign(real_read_s=table["read_s"], trace="{}")))


@pytest.mark.parametrize(
    ("client_s", "dilation", "cpus", "share", "ranks"),
    [
        ((0.4, 0.4, 0.4), 3.0, 0, 0.4, True),  # the network makes the time
        ((0.4, 0.4, 0.6), 3.0, 0, 0.6, False),  # of one read it may not
        ((1.12, 1.12, 1.12), 3.0, 0, 1.12, False),  # longer than the read takes
        ((1.12, 1.12, 1.12), 1.0, 0, 1.12, True),  # CPU time counts as it is
        ((1.12, 1.12, 1.12), 3.0, 2, 1.12, True),  # and here, as CPUs are slowed down as well
        ((0.4, 0.4, math.nan), 3.0, 0, math.nan, False),  # nobody counted
    ],
)
def test_readers_are_ranked_where_their_cpu_time_does_not_decide(
    client_s: tuple[float, ...], dilation: float, cpus: int, share: float, ranks: bool
) -> None:
    """All CPU time counts, of the busier of two and its second copy, in the read that has most."""
    table = make_table(a=[1.0] * 3, a_again=[1.0] * 3, b=[1.0] * 3, c=[1.0] * 3)
    busy = {"a": client_s, "a again": client_s, "b": (0.1,) * 3, "c": (9.0,) * 3}
    spent = [busy[row.contender][row.block] for row in table.itertuples()]
    table = table.assign(open_s=0.0, dilation=dilation, cpus=cpus, client_s=spent, thread_s=0.01)
    assert client_share(table, "a", "b") == pytest.approx(share, nan_ok=True)
    assert can_rank(table, "a", "b") is ranks
    assert math.isnan(client_share(table, "a", "d")) and client_share(table, "c") == 9.0
    assert thread_share(table, "a", "b") == 0.01


@pytest.mark.parametrize(
    ("ratio", "noise", "verdict"),
    [
        (Interval(0.5, 0.4, 0.6, 5), 1.1, "faster"),
        (Interval(2.0, 1.8, 2.2, 5), 1.1, "slower"),
        (Interval(1.3, 0.9, 1.9, 5), 1.0, "indistinguishable"),
        (Interval(1.08, 1.06, 1.10, 5), 1.1, "indistinguishable"),
        (Interval(0.92, 0.91, 0.94, 5), 1.1, "indistinguishable"),
        (Interval(0.5, math.nan, math.nan, 1), 1.1, "indistinguishable"),
        (Interval(0.5, 0.4, 0.6, 5), math.nan, "indistinguishable"),
    ],
)
def test_verdicts(ratio: Interval, noise: float, verdict: str) -> None:
    """Different needs both: an interval that excludes 1 and a ratio outside the noise."""
    assert judge(ratio, noise).verdict == verdict


def gaussian(rng: np.random.Generator, n: int) -> Floats:
    """Log-normal times: 5 % in the logarithm."""
    return rng.normal(0, 0.05, n)


def heavy_tailed(rng: np.random.Generator, n: int) -> Floats:
    """Student's t with 3 degrees, scaled to 5 %."""
    return 0.05 * rng.standard_t(3, n) / math.sqrt(3)


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


@pytest.mark.parametrize("noise", [gaussian, heavy_tailed, with_hiccups])
def test_equals_are_called_equal(noise: Noise) -> None:
    """Over 1000 simulated A/A comparisons of 5 blocks at most 5 % are called different."""
    verdicts = simulate(noise, difference=1.0, n_runs=1000)
    assert verdicts["faster"] + verdicts["slower"] <= 50
    # A rule that never finds anything would pass too: see the test of power.
    assert verdicts["faster"] > 0 and verdicts["slower"] > 0


@pytest.mark.parametrize("noise", [gaussian, heavy_tailed])
@pytest.mark.parametrize(("difference", "verdict"), [(1.2, "slower"), (1 / 1.2, "faster")])
def test_a_true_difference_is_found(noise: Noise, difference: float, verdict: str) -> None:
    """A true 20 % at 5 % noise is found in 95 %, with the right sign, by 5 blocks."""
    verdicts = simulate(noise, difference=difference, n_runs=1000)
    assert verdicts[verdict] >= 950
    assert verdicts.keys() <= {verdict, "indistinguishable"}


def simulate_page(
    rng: np.random.Generator, differences: Sequence[float], sigma: float | Floats = 0.05
) -> pd.DataFrame:
    """Return a page of contenders "0", "1", … that differ by these logarithms, and a copy of "0"."""
    n = len(differences)
    drift = np.cumsum(rng.normal(0, 0.2, N_BLOCKS))
    scatter = np.broadcast_to(sigma, n)
    logs = {
        str(i): drift + d + rng.normal(0, scatter[i], N_BLOCKS) for i, d in enumerate(differences)
    }
    again = drift + differences[0] + rng.normal(0, scatter[0], N_BLOCKS)
    return make_table(
        **{name: list(np.exp(one)) for name, one in logs.items()},
        **{"0_again": list(np.exp(again))},
    )


def slower(page: pd.DataFrame) -> set[str]:
    """Name those that a page calls slower than its best."""
    others = rank(page, control="0 again").comparisons
    return {name for name, one in others.items() if one.verdict == "slower"}


def test_the_choice_of_the_best_is_allowed_for() -> None:
    """Of pages of six equals at most 5 % call one slower."""
    rng = np.random.default_rng(20260101)
    pages = [simulate_page(rng, [0.0] * 6) for _ in range(200)]
    assert sum(bool(slower(page)) for page in pages) <= 10


@pytest.mark.parametrize(
    "differences", [[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1]]
)
def test_a_true_difference_from_the_best_is_found(differences: list[int]) -> None:
    """Those that are 20 % slower than the best are called so, in nine of ten at least."""
    rng = np.random.default_rng(20260103)
    apart = {str(i) for i, is_slow in enumerate(differences) if is_slow}
    found = [
        slower(simulate_page(rng, [math.log(1.2) * one for one in differences])) & apart
        for _ in range(60)
    ]
    assert sum(map(len, found)) >= 0.9 * 60 * len(apart)


def test_an_interval_holds_its_centre() -> None:
    """Pairs in two groups: their median is far from their mean, whose interval leaves it out."""
    logs = np.array([0.0] * 11 + [1.0] * 9)
    ratio = ratio_interval(logs)
    assert ratio.low == ratio.centre == 1 < ratio.high
    assert ratio_interval(-logs).high == ratio_interval(-logs).centre == 1
    table = make_table(a=list(np.exp(logs + 3)), b=[1.0] * 20, b_again=[1.0] * 20)
    ranked = rank(table, control="b again").comparisons["a"].ratio
    assert ranked.low == ranked.centre < ranked.high and ranked.centre == pytest.approx(np.exp(3))


def test_ranking_against_the_textbook() -> None:
    """Two contenders: Tukey's range of two is Student's t, on the residuals of both."""
    logs = np.array([0.30, 0.34, 0.26, 0.32, 0.28])
    table = make_table(a=list(np.exp(logs)), b=[1.0] * 5, b_again=[1.0] * 5)
    found = rank(table, control="b again")
    assert found.best == "b" and found.fastest == ("b",)
    expected = ratio_interval(logs)
    ratio = found.comparisons["a"].ratio
    assert (ratio.centre, ratio.low, ratio.high) == pytest.approx(
        (expected.centre, expected.low, expected.high), rel=1e-4
    )


def test_a_reader_and_its_copy_get_one_verdict() -> None:
    """By chance the copy is clear of b and its reader is not: both count, for both alike."""
    b = [1.0, 1.0, 1.0, 1.0, 1.0]
    table = make_table(
        a=[1.06, 1.00, 1.20, 1.02, 1.16], b=b, a_again=[1.09, 1.10, 1.10, 1.11, 1.10]
    )
    noise = noise_ratio(table, "a again")
    apart = {judge(paired_ratio(table, name, "b"), noise).verdict for name in ("a", "a again")}
    assert apart == {"slower", "indistinguishable"}  # each by itself
    one, copy = (
        compare_contenders(table, name, "b", control="a again") for name in ("a", "a again")
    )
    assert one == copy
    assert compare_contenders(table, "b", "a", control="a again") == compare_contenders(
        table, "b", "a again", control="a again"
    )
    assert (
        compare_contenders(table, "a", "a again", control="a again").verdict == "indistinguishable"
    )
    swapped = make_table(
        a=[1.09, 1.10, 1.10, 1.11, 1.10], b=b, a_again=[1.06, 1.00, 1.20, 1.02, 1.16]
    )
    assert rank(table, control="a again") == rank(swapped, control="a again")


def make_steps(**seconds: list[list[float]]) -> pd.DataFrame:
    """Return a record at 1, 2, 4, … workers, block by block, with a copy of a at the last."""
    parts = [
        make_table(**{name: steps[i]}).assign(n_workers=2**i)
        for name, steps in seconds.items()
        for i in range(len(steps))
    ]
    last = make_table(a_again=[1.01 * t for t in seconds["a"][-1]])
    return pd.concat([*parts, last.assign(n_workers=2 ** (len(seconds["a"]) - 1))])


def test_gains_are_paired_within_blocks() -> None:
    """Blocks up to nine times slower leave the gain of a doubling alone."""
    slow = np.array([1.0, 3.0, 9.0, 2.0, 5.0])
    table = make_steps(a=[list(2.0 * slow), list(slow)], b=[list(slow), list(slow)])
    ours = table[table["contender"] == "a"]
    found = paired_ratio(ours, 1, 2, column="n_workers")
    assert (found.centre, found.low, found.high, found.n) == pytest.approx((2, 2, 2, 5))
    with refused("n_workers", "^4 was not measured", "1, 2"):
        paired_ratio(ours, 1, 4, column="n_workers")


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
    with refused("is_ceiling", "two ceilings"):
        add_throughputs(table.assign(is_ceiling=True))


VACCINE = [
    (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619),
    (33, 5036, 47, 5761), (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892),
    (29, 7470, 45, 7232), (17, 1699, 65, 1600), (186, 50448, 141, 27197), (5, 2493, 3, 2338),
    (27, 16886, 29, 17825),
]  # fmt: skip
"""Ill and well among vaccinated and others, of 13 trials: Colditz et al. 1994, JAMA 271:698."""


def test_effects_are_combined_as_published() -> None:
    """The trials of a vaccine, as the manual of metafor combines them (REML, test="knha")."""
    ill, well, ill_others, well_others = np.array(VACCINE, dtype=np.float64).T
    treated, others = ill + well, ill_others + well_others
    effects = np.log((ill / treated) / (ill_others / others))
    variances = 1 / ill - 1 / treated + 1 / ill_others - 1 / others
    mean, error = statistics.combine_effects(effects, variances)
    assert (mean, error) == (pytest.approx(-0.7145, abs=1e-4), pytest.approx(0.1808, abs=2e-4))


def test_records_that_differ_widen_the_interval() -> None:
    """Three disjoint intervals give one that holds them; agreement gives none narrower than chance."""
    apart = [(15.3, 14.9, 16.0), (14.2, 13.9, 14.6), (13.4, 13.2, 13.8)]
    over = statistics.random_effects_interval([statistics.Interval(*ends, 5) for ends in apart])
    assert over.low < 13.2 and over.high > 15.3 and over.n == 3
    same = [statistics.Interval(2.0, 1.9, 2.1, 5)] * 3
    over = statistics.random_effects_interval(same)
    assert over.centre == pytest.approx(2) and over.low < 1.96 and over.high > 2.04
    with refused("records", "1", "at least two"):
        statistics.random_effects_interval(same[:1])
    with refused("intervals", "nan", "all finite"):
        statistics.random_effects_interval([*same, statistics.Interval(2.0, np.nan, np.nan, 1)])
