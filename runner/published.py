"""What others published next to what is measured here, claims and ratios, and a record of one's own next to the reference."""

from __future__ import annotations

import hashlib
import html
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd
import yaml
from matplotlib.axes import Axes
from scipy import stats

from helpers.benchmark.record import read_published, read_records
from helpers.benchmark.statistics import (
    Interval,
    check_finite,
    counts_cpu,
    measured,
    pool_copies,
    ratio_interval,
)
from helpers.findings import Finding, as_finding, read_findings
from helpers.paths import ROOT
from helpers.plotting.figures import number_axis
from helpers.plotting.tables import format_digits, show, trace_of
from runner.cases import find_case, write_changed
from runner.pages import NOTEBOOKS, list_cases
from studies.chunk_shape.findings import mean_later_reads
from wire.costs.bill import REDIS_MB_PER_S
from wire.costs.published import compare_published
from wire.errors import UserError, cut, name_file
from wire.files import check_file
from wire.models.access import balanced_chunk_shape

FOLDER = ROOT / "results" / "published"
REFERENCE = ROOT / "results" / "reference"
VERDICTS = FOLDER / "verdicts.csv"
RATIOS = FOLDER / "against-real.csv"
BOUNDS = FOLDER / "bounds.json"
"""Of each claim the digest of what decides it, and what was said of changes when it was frozen."""
RATIOS_SOURCE = FOLDER / "ratios.yaml"
ARITHMETIC = "arithmetic"
"""What decides a claim that only its own tables are summed for, in the place of a case."""

_TASKS_A_CHUNK = 3  # of Dask: to open, to read and to store it

Verdict = Literal["same", "weaker here", "contradicted", "not comparable", "not decided"]
"""What is said of a claim: four words, and *not decided* where rows say none of them.

**Same**: our whole interval lies between its bounds. **Weaker here**: the direction holds and the
size does not. **Contradicted**: the whole interval lies outside. **Not comparable**: our set-up
cannot reach what the claim speaks of.
"""
VERDICT_WORDS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A published number: the median of a column over rows of a table, or the ratio of two."""

    table: str
    over: str  # which rows, as `DataFrame.query` takes it
    column: str
    divisor: str = ""  # of a ratio, the rows or the column that divide
    divisor_column: str = ""
    factor: float = 1.0  # to the unit of the claim

    def read(self) -> float:
        """Read it from its table."""
        rows = read_published(self.table)
        value = self.factor * self._median(rows, self.over, self.column)
        if not (self.divisor or self.divisor_column):
            return value
        which, column = self.divisor or self.over, self.divisor_column or self.column
        return value / self._median(rows, which, column)

    def _median(self, rows: pd.DataFrame, which: str, column: str) -> float:
        values = rows.query(which, engine="python")[column].dropna()
        if values.empty:
            raise UserError(self.table, f"no row where {which}", "rows of the table")
        return float(values.median())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A figure of ours: a finding of a case by its key, or the ratio of two selections of its record."""

    case: str
    key: str = ""
    quantity: str = ""  # of what that finding has to be, as it says itself
    is_counted: bool = False  # so that it decides without an interval
    over: str = ""  # which rows, as `DataFrame.query` takes it
    divisor: str = ""  # without it the median of `over` is counted
    value: str = "read_s"  # as `DataFrame.eval` takes it
    unlike: str = ""  # in which respects this case is not as theirs, besides those of the claim

    def read(self) -> Finding | None:
        """Read it; None where the case has not found it by now."""
        path = REFERENCE / f"{self.case}.csv"
        if self.key:
            finding = read_findings(path).get(self.key)
            return exact(finding.value) if finding and self.is_counted else finding
        if not path.exists():
            return None
        rows = self._read_rows()
        over = rows.query(self.over, engine="python")
        if not self.divisor:
            return None if over.empty else exact(float(self._evaluate(over).median()))
        divisor = rows.query(self.divisor, engine="python")
        blocks, divided = (
            self._evaluate(part).groupby(part["block"]).mean() for part in (over, divisor)
        )
        ratios = (blocks / divided).dropna()
        return None if ratios.empty else as_finding(ratio_interval(np.log(ratios.to_numpy())))

    def counts_cpu_in_full(self) -> bool:
        """Decide whether the rows of a ratio count CPU time as much as that of the network.

        They do where CPUs were slowed down as the network was, and where it ran in real time.
        """
        rows = self._read_rows()
        chosen = (rows.query(which, engine="python") for which in (self.over, self.divisor))
        divided = pd.concat(chosen)
        return counts_cpu(divided)

    def _read_rows(self) -> pd.DataFrame:
        """Read the measured rows of the record."""
        path = REFERENCE / f"{self.case}.csv"
        return _read_measured(path, path.stat().st_mtime_ns)

    def _evaluate(self, rows: pd.DataFrame) -> pd.Series[float]:
        """Compute `value`, a column or an expression of columns, of each row."""
        return cast("pd.Series[float]", rows.eval(self.value))


@cache
def _read_measured(path: Path, _changed_ns: int) -> pd.DataFrame:
    """Read the measured rows of a record, with a column for each number of the trace, once for all ratios."""
    rows = measured(read_records([path]))
    s_per_mb = rows["read_s"] / rows["array_nbytes"] * 1e6
    rows = rows.assign(total_s=rows["open_s"] + rows["read_s"], s_per_mb=s_per_mb)
    trace = trace_of(rows)
    if "box_s" in trace:
        box_s = trace["box_s"].dropna()
        trace["mean_box_s"] = box_s.map(mean_later_reads)
    return rows.join(trace[trace.columns.difference(rows.columns)])


Likeness = Literal["alike", "unlike", "no matter"]
RESPECTS = ("threads", "bytes", "medium", "variant", "CPUs")
"""In which a claim says whether ours is as theirs; without a word for each it is not decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedClaim:
    """What a source claims, and between which bounds of ours it counts as held."""

    study: str  # key of the bibliography
    says: str
    unit: str = ""
    published: Figure | None = None  # None where the source gives no figure
    at_least: float = -math.inf
    at_most: float = math.inf
    no_effect: float = math.nan  # below `at_least`: what it would be if the claim were void
    is_comparable: bool = True  # False where our set-up cannot reach what the claim speaks of
    alike_in: Mapping[str, Likeness] = field(default_factory=dict)
    unlike: str = ""  # in which respects ours is not as theirs
    changed: str = ""  # what of bounds or figures was changed after rows were seen
    reproductions: tuple[Reproduction, ...] = ()

    def __post_init__(self) -> None:
        """Refuse two figures of one case, and words on likeness that say nothing.

        Each figure is shown and judged by its case, so one of two would be lost.
        """
        if strange := {*self.alike_in} - {*RESPECTS} or {*self.alike_in.values()} - {
            *get_args(Likeness)
        }:
            allowed = f"of {', '.join(RESPECTS)} each {', '.join(get_args(Likeness))}"
            raise UserError(f"{cut(self.says)}, alike_in", ", ".join(map(str, strange)), allowed)
        if "unlike" in self.alike_in.values() and not self.describe_unlike():
            raise UserError(f"{cut(self.says)}, unlike", "nothing", "how ours is not as theirs")
        cases = [figure.case for figure in self.reproductions]
        if twice := [case for case in cases if cases.count(case) > 1]:
            raise UserError(
                cut(self.says),
                f"ours has {twice[0]} twice",
                "each case once, and a claim of its own for another figure",
            )

    def describe_unlike(self, case: str = "") -> str:
        """Describe in which respects ours is not as theirs: in a case, or in all, each by its name."""
        own = {figure.case: figure.unlike for figure in self.reproductions if figure.unlike}
        if case:
            texts = [self.unlike, own.get(case, "")]
        else:
            texts = [self.unlike, *(f"{name}: {text}" for name, text in own.items())]
        return "; ".join(filter(None, texts))

    def is_alike(self) -> bool:
        """Decide whether it says of each respect how ours compares, and one that matters is alike."""
        words = {*self.alike_in.values()}
        return {*self.alike_in} == {*RESPECTS} and ("alike" in words or words == {"no matter"})

    def list_respects(self, word: Likeness) -> list[str]:
        """List the respects of which it says this word."""
        return [respect for respect in RESPECTS if self.alike_in.get(respect) == word]

    def describe_alike(self) -> str:
        """Describe in which of the respects that matter ours is as theirs."""
        if {*self.alike_in.values()} == {"no matter"}:
            return "a sum of theirs"
        return ", ".join(self.list_respects("alike"))

    def digest(self) -> str:
        """Compute the digest of what decides it: its bounds, its published figure and where ours is."""
        decisive = [self.at_least, self.at_most, self.no_effect, self.is_comparable]
        figures = [self.published, *self.reproductions]
        texts = [repr(asdict(figure)) for figure in figures if figure is not None]
        return hashlib.sha256(repr([*decisive, *texts]).encode()).hexdigest()[:16]

    def answer(self) -> dict[str, Finding]:
        """Read our figures, by case."""
        read = ((figure.case, figure.read()) for figure in self.reproductions)
        return {case: finding for case, finding in read if finding is not None}


def read_claims(path: Path = FOLDER / "claims.yaml") -> dict[str, PublishedClaim]:
    """Read the claims of all sources, by name."""
    claims = {}
    for name, fields in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        reproductions = tuple(Reproduction(**figure) for figure in fields.pop("reproductions", ()))
        published = Figure(**fields.pop("published")) if "published" in fields else None
        claims[name] = PublishedClaim(**fields, published=published, reproductions=reproductions)
    return claims


def freeze_bounds(
    claims: Mapping[str, PublishedClaim], frozen: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Freeze what decides each claim; refuse a change since it was frozen that `changed` does not say."""
    lines = {}
    for name, claim in claims.items():
        lines[name] = {"digest": claim.digest(), "changed": claim.changed}
        before = frozen.get(name, lines[name])
        if before["digest"] != claim.digest() and before["changed"] == claim.changed:
            where = f"claims.yaml, {name}"
            problem = "bounds or figures that are not those frozen in bounds.json"
            raise UserError(where, problem, "a new text of `changed` that says what was changed")
    return lines


def answer_claims(claims: Mapping[str, PublishedClaim]) -> dict[str, dict[str, Finding]]:
    """Read our figures of all claims by case, and do the sums of those that published tables decide."""
    most, costs = claims["most-in-region"].published, compare_published()
    slides = read_published("rew2013_chunk_shape_examples")
    shapes = [balanced_chunk_shape((98128, 277, 349), 4, n) for n in slides["max_chunk_bytes"]]
    names = [" x ".join(map(str, shape)) for shape in shapes]
    prose = read_published("abernathey2020_narrative").set_index("quantity")["value"]
    practice = read_published("practitioners").set_index("quantity")["value"]
    task_s = 1e-3 * practice["time_per_task_high"]
    points = read_published("abernathey2020_figure_digitised").query("panel == 'GCS Zarr'")
    is_knee = points["ncores"].between(
        0.8 * prose["gcs_zarr_knee_ncores"], 1.2 * prose["gcs_zarr_knee_ncores"]
    )
    knee_s = prose["array_nbytes"] / 1e6 / points.loc[is_knee, "throughput_mb_per_s"].median()
    sums = {
        "petabyte": 1e6 / most.read() / 3600 if most else math.nan,
        "knee-by-task-graph": _TASKS_A_CHUNK * prose["n_chunks_array"] * task_s / knee_s,
        "cost-model": (costs["published"] - costs["by_its_rules"]).abs().max(),
        "computing-cost": compute_computing_usd(),
        "rewriting-pays": compute_payback(),
        "time-per-task": 1e3 * practice["time_of_a_slow_start"] / practice["tasks_of_a_slow_start"],
        "balance-rule": sum(a == b for a, b in zip(names, slides["result_shape"], strict=True)),
    }
    done = {name: {ARITHMETIC: exact(value)} for name, value in sums.items()}
    done["redis-node"] = {ARITHMETIC: count_published_nodes(claims["metadata-size"].answer())}
    return {name: done.get(name) or claim.answer() for name, claim in claims.items()}


def compute_computing_usd() -> float:
    """Compute what their requests cost a month at their price, if each took their quickest response.

    A function answers one request at a time and is paid for its memory as long as it does.
    """
    costs = read_published("tile_caching_costs").set_index("item")["value"].astype(float)
    runs = read_published("tile_caching_locust").query("failure_count == 0")
    response_s = 1e-3 * runs["min_response_ms"].min()
    gb_s = costs["max_daily_requests"] * 30 * response_s * costs["lambda_memory"]
    return float(gb_s * costs["lambda_runtime_price"])


def compute_payback() -> float:
    """Compute after how many of Rew's reads, half time series and half maps, rewriting has paid.

    On his disk, by nccopy into chunks of 4 MiB, from the file without chunks whose series are
    fastest.
    """
    times = read_published("rew2013_access_times").query("medium == 'disk 7200 rpm'")
    layout = times["layout"]
    before_s = times.loc[layout == "contiguous time fastest", "time_s"].mean()
    after_s = times.loc[times["chunk_kb_nominal"] == 4096, "time_s"].mean()
    rewrite = Figure(
        table="rew2013_rechunking_minutes",
        over="tool == 'nccopy' and medium == 'disk' and chunk_kb_nominal == 4096",
        column="time_min",
        factor=60,
    )
    return float(rewrite.read() / (before_s - after_s))


def count_published_nodes(entries: Mapping[str, Finding]) -> Finding:
    """Count the Redis nodes that keep up with their requests: by their bytes of metadata, and by ours."""
    costs = read_published("tile_caching_costs").set_index("item")["value"].astype(float)
    theirs_mb = 1e3 * costs["metadata_size"]
    sizes_mb = [theirs_mb, *(finding.value for finding in entries.values())]
    per_s = float(costs["max_requests_per_s"])
    nodes = [per_s * float(size_mb) / REDIS_MB_PER_S for size_mb in sizes_mb]
    return Finding(nodes[0], min(nodes), max(nodes))


def tabulate_verdicts() -> pd.DataFrame:
    """Tabulate all claims, a line for each figure of ours: published, ours with its interval, and verdicts.

    `verdict` is of the claim, `verdict_of_case` of the line, and `unlike` says in which respects
    ours is not as theirs.
    """
    claims, lines = read_claims(), []
    for name, answers in answer_claims(claims).items():
        claim, verdict = claims[name], judge(claims[name], answers)
        published = claim.published.read() if claim.published else math.nan
        for case, answer in (answers or {"": Finding()}).items():
            interval = (answer.value, answer.low, answer.high)
            of_case = judge_case(claim, answer) if case else ""
            likeness = (claim.describe_alike(), claim.describe_unlike(case), claim.changed)
            verdict_cells = (verdict, case, of_case, *likeness)
            lines.append((name, claim.study, published, *interval, *verdict_cells))
    names = ["claim", "study", "published", "ours", "low", "high"]
    names += ["verdict", "case", "verdict_of_case", "alike_in", "unlike", "changed"]
    return pd.DataFrame(lines, columns=names)


def exact(value: float) -> Finding:
    """Take what was counted or computed, and not measured: its interval is itself."""
    return Finding(float(value), float(value), float(value))


def judge_case(claim: PublishedClaim, answer: Finding) -> Verdict:
    """Judge a claim in one case: by its whole interval, or not at all.

    A claim that one is faster than another, so with a bound of 1, is not decided inside the noise
    of the record either; one value alone, without an interval, decides nothing, and nothing is
    decided of a claim that does not say in which respects ours is as theirs.
    """
    if not claim.is_comparable:
        return "not comparable"
    if not claim.is_alike():
        return "not decided"
    is_noise = answer.verdict == "indistinguishable"
    if is_noise and 1 in (claim.at_least, claim.at_most):
        return "not decided"
    if claim.at_least <= answer.low and answer.high <= claim.at_most:
        return "same"
    if claim.no_effect < answer.low and not is_noise:
        size = claim.published.read() if claim.published else claim.at_least
        if answer.high < size:
            return "weaker here"
    if answer.high < claim.at_least or answer.low > claim.at_most:
        return "contradicted"
    return "not decided"


def judge(claim: PublishedClaim, answers: Mapping[str, Finding]) -> Verdict:
    """Judge a claim over all cases that speak to it, by their names: the least favourable word counts."""
    if not claim.is_comparable:
        return "not comparable"
    verdicts = {judge_case(claim, finding) for finding in answers.values()}
    worst_first: tuple[Verdict, ...] = ("contradicted", "weaker here", "not decided", "same")
    return next((verdict for verdict in worst_first if verdict in verdicts), "not decided")


def tabulate_claims(
    claims: Mapping[str, PublishedClaim], findings: Mapping[str, Mapping[str, Finding]]
) -> pd.DataFrame:
    """Tabulate claims: what a source says, its figure, ours in each case with its page, the verdict.

    Where cases differ, each figure has its own verdict. The last columns say in which respects
    ours is as theirs, and in which it is not.
    """
    lines = []
    for name, claim in claims.items():
        answers = findings.get(name, {})
        verdicts = [judge_case(claim, answer) for answer in answers.values()]
        differ = len({*verdicts}) > 1
        cases = (
            _link(case, answer) + f", {verdict}" * differ
            for (case, answer), verdict in zip(answers.items(), verdicts, strict=True)
        )
        published = "" if claim.published is None else format_digits(claim.published.read(), n=3)
        unit = f" ({claim.unit})" * bool(claim.unit)
        says, unlike = html.escape(claim.says + unit), html.escape(claim.describe_unlike())
        words = (judge(claim, answers), claim.describe_alike(), unlike)
        lines.append((says, published, "; ".join(cases), *words))
    names = ["claim", "published", "ours", "verdict", "alike in", "unlike theirs"]
    return pd.DataFrame(lines, columns=names)


def tabulate_changes(claims: Mapping[str, PublishedClaim]) -> pd.DataFrame:
    """Tabulate the claims of which bounds or figures of ours were changed after rows were seen."""
    lines = [(claim.says, claim.changed) for claim in claims.values() if claim.changed]
    return pd.DataFrame(lines, columns=["claim", "changed after rows were seen"])


def _link(case: str, answer: Finding) -> str:
    """Write a figure and, where it has one, its interval; it leads to the page of its case, or to all records."""
    ends = f" ({format_digits(answer.low, n=2)} to {format_digits(answer.high, n=2)})"
    text = format_digits(answer.value, n=2) + ends * (answer.low < answer.high)
    if "/" not in case:
        return text
    page = f"{NOTEBOOKS}{case}" if f"{NOTEBOOKS}{case}" in list_cases() else "explorer"
    return f'<a href="{html.escape(page)}.html">{text}</a>'


NEAR = 1.5
"""Factor within which a ratio counts as met."""
CLEAR = 1.3
"""Published ratio above which, either way, there is something to predict: only these are scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Ratios of one table and one case: the time of each of `compared` over that of `base`, at each of `points`."""

    source: str  # key of the bibliography
    table: str
    column: str  # seconds, or with `is_rate` bytes in a second
    is_rate: bool = False
    published_rows: str  # of the table, as `DataFrame.query` takes it, with {name} and {at}
    case: str
    measured_rows: str  # of the record, likewise
    value: str = "read_s"  # of which columns, as `DataFrame.eval` takes it, with {at}
    base: dict[str, str]  # one name of theirs: ours
    compared: dict[str, str]
    points: Mapping[str, str] = field(default_factory=lambda: {"": ""})
    why: str  # in which respects the two are not alike

    def __post_init__(self) -> None:
        """Refuse a series that does not say in which respects the two are not alike."""
        if not self.why.strip():
            where = f"{name_file(RATIOS_SOURCE)}, {self.table} and {self.case}"
            raise UserError(f"{where}, why", "nothing", "in which respects the two are not alike")

    def compare(self) -> Iterator[tuple[object, ...]]:
        """Compare each ratio of the series that both have."""
        ((their_base, our_base),) = self.base.items()
        for their_at, our_at in self.points.items():
            for their_name, our_name in self.compared.items():
                rows = (self.published_rows.format(name=name, at=their_at) for name in (their_name, their_base))  # fmt: skip
                over, divisor = reversed([*rows]) if self.is_rate else rows
                published = Figure(table=self.table, over=over, divisor=divisor, column=self.column).read()  # fmt: skip
                over, divisor = (self.measured_rows.format(name=name, at=our_at) for name in (our_name, our_base))  # fmt: skip
                ratio = Reproduction(
                    case=self.case, over=over, divisor=divisor, value=self.value.format(at=our_at)
                )
                reproduced = ratio.read()
                if reproduced is not None:
                    labels = (self.source, their_name, their_base, their_at)
                    yield (
                        *(*labels, published, reproduced.value, reproduced.low, reproduced.high),
                        *(self.case, self.why, ratio.counts_cpu_in_full()),
                    )


RATIO_COLUMNS = ["source", "what", "over", "at", "published", "ours", "low", "high", "case", "why"]
RATIO_COLUMNS += ["is_charged"]


def compare_ratios(series: list[Series]) -> pd.DataFrame:
    """Compare published ratios of times with ours; charged are those that count CPU time in full."""
    table = pd.DataFrame(
        [line for series_of_ratios in series for line in series_of_ratios.compare()],
        columns=RATIO_COLUMNS,
    )
    table.insert(len(table.columns) - 1, "quotient", table["ours"] / table["published"])
    return table


def write_tables(folder: Path = FOLDER) -> list[Path]:
    """Write what records say of published claims and ratios; return the tables that changed."""
    series = [Series(**arguments) for arguments in yaml.safe_load(RATIOS_SOURCE.read_text("utf-8"))]
    tables = {VERDICTS: tabulate_verdicts(), RATIOS: compare_ratios(series)}
    texts = {
        folder / path.name: table.to_csv(index=False, float_format="%.4g")
        for path, table in tables.items()
    }
    frozen = json.loads(BOUNDS.read_text("utf-8")) if BOUNDS.exists() else {}
    bounds = freeze_bounds(read_claims(), frozen)
    texts[folder / BOUNDS.name] = json.dumps(bounds, indent=1) + "\n"
    return [path for path, text in texts.items() if write_changed(path, text)]


def score_ratios(table: pd.DataFrame) -> dict[str, float]:
    """Score the ratios beyond `CLEAR`, where there is something to predict, next to a forecast of always 1.

    Returns
    -------
    dict of str to float
        How many ratios there are in all, and beyond `CLEAR`; of these the median factor between ours
        and theirs, the shares within `NEAR` and in their order, in percent, and the first two of the
        forecast. Without a ratio beyond it what is of them is NaN.

    Examples
    --------
    >>> table = pd.DataFrame({"published": [2.0, 0.5, 1.1], "ours": [1.6, 1.2, 1.1]})
    >>> scores = score_ratios(table)
    >>> scores["n"], scores["n_clear"], round(scores["median_factor"], 2), scores["near_percent"]
    (3, 2, 1.73, 50.0)
    >>> scores["ordered_percent"], scores["always_1_factor"], scores["always_1_near_percent"]
    (50.0, 2.0, 0.0)
    """
    published, reproduced = (np.log(table[name].to_numpy()) for name in ("published", "ours"))
    is_clear = np.abs(published) > np.log(CLEAR)
    published, reproduced = published[is_clear], reproduced[is_clear]
    scores = {"n": len(table), "n_clear": len(published)}
    if not scores["n_clear"]:
        names = ("median_factor", "near_percent", "ordered_percent")
        return scores | dict.fromkeys(
            (*names, "always_1_factor", "always_1_near_percent"), math.nan
        )
    distances, sizes = np.abs(reproduced - published), np.abs(published)
    return {
        **scores,
        "median_factor": float(np.exp(np.median(distances))),
        "near_percent": 100 * float((distances <= np.log(NEAR)).mean()),
        "ordered_percent": 100 * float((np.sign(reproduced) == np.sign(published)).mean()),
        "always_1_factor": float(np.exp(np.median(sizes))),
        "always_1_near_percent": 100 * float((sizes <= np.log(NEAR)).mean()),
    }


def tabulate_scores(table: pd.DataFrame) -> pd.DataFrame:
    """Score each source, and all together."""
    columns = {
        str(source): score_ratios(part) for source, part in table.groupby("source", sort=False)
    }
    scores = pd.DataFrame.from_dict({**columns, "all": score_ratios(table)}, orient="index")
    return scores.astype({"n": int, "n_clear": int}).rename_axis("source")


def draw_ratios(ax: Axes, table: pd.DataFrame) -> None:
    """Draw published ratios and ours on logarithmic axes, those that count CPU time in full filled."""
    for source, part in table.groupby("source", sort=False):
        color = ax.plot([], [], "o", label=source)[0].get_color()
        for is_charged, group in part.groupby("is_charged"):
            ends = [group["ours"] - group["low"], group["high"] - group["ours"]]
            face = color if is_charged else "none"
            ax.errorbar(group["published"], group["ours"], ends, fmt="o", color=color, markerfacecolor=face, elinewidth=0.6)  # fmt: skip
    ends = np.array([0.8, 1.25]) * [table["published"].min(), table["published"].max()]
    ax.plot(ends, ends, color="0.5", linewidth=1)
    ax.fill_between(ends, ends / NEAR, ends * NEAR, color="0.5", alpha=0.15, linewidth=0)
    scores = score_ratios(table)
    share = f"{scores['near_percent']:.0f} % of {scores['n_clear']} ratios above {CLEAR:g}"
    ax.set_title(f"{share} are within {NEAR:g}", x=0)
    ax.set(xscale="log", yscale="log", xlabel="published (log)", ylabel="ours (log)")
    for axis in (ax.xaxis, ax.yaxis):
        number_axis(axis)
    ax.legend(frameon=False)


NOTE = (
    "A/B above 1: A took longer. The records share no block, so the ratios are unpaired: each"
    " interval (Welch's t on logarithms) covers 95 % by itself, and knows nothing of other days."
)


def find_records(names: Sequence[str], site: str) -> tuple[Path, Path]:
    """Find the two records that are meant: files, or those of a case at a site and in the reference."""
    if len(names) == 2:
        return check_file(Path(names[0])), check_file(Path(names[1]))
    if len(names) != 1 or names[0].endswith(".csv"):
        raise UserError("compare", cut(" ".join(names)), "A.csv B.csv, or CASE")
    case = find_case(names[0], site)
    own, reference = case.result(".csv"), case.result(".csv", "reference")
    if not own.exists():
        raise UserError(
            "CASE",
            f"{case.title!r} has no record at site {site}",
            f"after wire run {case.title} --site {site}",
        )
    return own, reference


def unpaired_ratio(numerator: Iterable[float], denominator: Iterable[float]) -> Interval:
    """Compute the ratio of durations that share no block, as of two records of one case.

    The centre is the ratio of medians. Nothing takes out what a block has in common, so each side
    keeps its own scatter: the interval is Welch's t on the logarithms. It knows what varied within
    each record, and not what another day on the same machine would have changed.
    """
    sides = [
        check_finite(values, name)
        for name, values in (("numerator", numerator), ("denominator", denominator))
    ]
    if min(map(min, sides)) <= 0:
        raise UserError("numerator, denominator", "a duration of 0 or less", "above 0")
    log_numerators, log_denominators = map(np.log, sides)
    n, centre = (
        min(len(log_numerators), len(log_denominators)),
        float(np.exp(np.median(log_numerators) - np.median(log_denominators))),
    )
    if n == 1:
        return Interval(centre, np.nan, np.nan, n)
    low, high = np.exp(
        stats.ttest_ind(log_numerators, log_denominators, equal_var=False).confidence_interval()
    )
    return Interval(centre, float(low), float(high), n)


def compare_records(a: Path, b: Path) -> tuple[pd.DataFrame, dict[str, tuple[Any, Any]]]:
    """Tabulate the read times of A over those of B, and list what differs in origin.

    A row is a contender at a point; copies count together with their original.
    """
    sides = [measured(read_records([path])) for path in (a, b)]
    for path, side in zip((a, b), sides, strict=True):
        if side.empty:
            raise UserError(name_file(path), "no measured row", "a record with at least one")
    names = ["/".join(side[["study", "case"]].iloc[0]) for side in sides]
    if names[0] != names[1]:
        raise UserError(a.name, f"of {names[0]}, {b.name} of {names[1]}", "two records of one case")
    first, second = map(_times, sides)
    lines = []
    for name, point in (key for key in first if key in second):
        with np.errstate(all="ignore"):  # of forged durations it is beyond floats
            ratio = unpaired_ratio(first[name, point], second[name, point])
        place = ", ".join(f"{key} {value}" for key, value in json.loads(point).items())
        blocks = f"{len(first[name, point])}, {len(second[name, point])}"
        lines.append((name, place, ratio.centre, ratio.low, ratio.high, blocks))
    if not lines:
        raise UserError(f"{a.name} and {b.name}", "no contender at a point in common", "one")
    table = pd.DataFrame(lines, columns=["contender", "point", "A/B", "low", "high", "blocks"])
    left, right = map(_describe_origin, sides)
    # what one side does not name it did not import, or does not have
    differs = [name for name in left if left[name] != right.get(name, left[name])]
    return show(table), {name: (left[name], right[name]) for name in differs}


def _times(rows: pd.DataFrame) -> dict[tuple[str, str], list[float]]:
    """List the durations by contender and point, a block each."""
    return {
        (str(name), str(point)): times["read_s"].tolist()
        for point, part in rows.groupby("point", sort=False)
        for name, times in pool_copies(part, "read_s").groupby("contender", sort=False)
    }


def _describe_origin(rows: pd.DataFrame) -> dict[str, Any]:
    """List machine, versions, parameters, settings and commits, each by its kind and name."""
    facts: dict[str, Any] = {"commit": ", ".join(sorted(rows["commit"].str[:8].unique()))}
    for kind in ("machine", "versions", "parameters"):
        for text in rows[kind].unique():
            facts |= {f"{kind}: {name}": value for name, value in json.loads(text).items()}
    for (name, text), _ in rows.groupby(["contender", "settings"], sort=False):
        facts |= {
            f"settings of {name}: {key}": value for key, value in json.loads(str(text)).items()
        }
    return facts
