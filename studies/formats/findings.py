"""What a page of formats says in words: computed, formatted, glued."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from helpers.benchmark import ranking as rankings
from helpers.benchmark import statistics
from helpers.book import published
from helpers.book.cases import Case, read_parameters
from helpers.book.studies import write_table
from helpers.netem.profiles import Profile, get_recorded_profile
from helpers.plotting.tables import (
    describe_profile,
    digits,
    tell_interval,
    tell_measuring,
    trace_of,
)
from studies.formats import STUDY, snippets
from studies.formats.clients import CLIENTS
from studies.formats.formats import ACCESSES, FORMATS, Kept, find_values
from studies.formats.memory import Held

CLAIMS: Mapping[str, tuple[str, str]] = {
    "csv-over-parquet": ("csv-pandas", "parquet-pandas"),
    "netcdf-over-zarr": ("netcdf-s3fs", "zarr-s3fs-one-get"),
    "plain-over-consolidated": ("zarr2-plain-s3fs", "zarr2-s3fs"),
    "today-over-one-get": ("zarr-s3fs", "zarr-s3fs-one-get"),
    "s3fs-over-obstore": ("zarr-s3fs", "zarr-obstore"),
    "icechunk-over-obstore": ("icechunk", "zarr-obstore-told"),
    "obstore-over-tensorstore": ("zarr-obstore-told", "zarr-tensorstore"),
    "zarrs-over-zarrs-told": ("zarr-zarrs", "zarr-zarrs-told"),
    "fused-over-batched": ("zarr-obstore-fused", "zarr-obstore-told"),
    "shards-over-chunks": ("shards-obstore", "zarr-obstore-told"),
    "dask-over-one-call": ("zarr-dask", "zarr-obstore"),
    "dask-over-dask-batches": ("zarr-dask", "zarr-dask-batches"),
    "unaligned-over-equal": ("netcdf-dask-unaligned", "netcdf-dask-equal"),
    "multiple-over-equal": ("netcdf-dask-multiple", "netcdf-dask-equal"),
}
"""Pairs that were named before anything was measured: time of the first over that of the second."""

MIXED = ("series", "step")
MIXES: Mapping[str, tuple[str, float]] = {
    "equal-mix": ("as many series as steps (50:50)", 0.5),
    "skewed-mix": ("four series to a step (80:20)", 0.8),
}
"""Access mixes of chunk shape: what each is called, and its share of time series."""

OF_2022: Mapping[str, str] = {
    "parquet-over-csv": "csv-over-parquet",
    "parquet-near-csv": "csv-over-parquet",
    "zarr-far-above-netcdf": "netcdf-over-zarr",
}
"""Claims of the follow-up study that one process can test, with the pair that does."""


def add_totals(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `total_s`, of opening and reading: a format is not read without being opened."""
    return rows.assign(total_s=rows["open_s"] + rows["read_s"])


def select(rows: pd.DataFrame, access: str) -> pd.DataFrame:
    """Choose the measured rows of an access."""
    return rows[(rows["phase"] == "measured") & (rows["access"] == access)]


def installable(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out what is this project's own, and copies of it."""
    ours = {name for name, client in CLIENTS.items() if client.is_ours}
    return rows[~rows["contender"].isin(ours) & ~rows["control_of"].isin(ours)]


def tabulate(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate each contender: times, share of the ceiling, requests, bytes, processor time.

    `rows` are those of all accesses. Bytes sent are those over the wire; processor time is
    that of the client, for a gigabyte of values. What reads a part has columns of its own.
    """
    told = rows[rows["control_of"] == ""].assign(
        sent=rows["wire_nbytes"] / 1e6,
        opening=trace_of(rows).get("n_open_requests", 0),
        cpu=trace_of(rows).get("cpu_s", float("nan")) / rows["array_nbytes"] * 1e9,
    )
    columns = {
        "total_s": "seconds",
        "open_s": "of these opening",
        "share_of_ceiling": "share of the ceiling",
        "opening": "requests to open",
        "n_requests": "requests to read",
        "sent": "MB sent",
        "cpu": "processor seconds a GB",
    }
    medians = {
        access: select(told, access).groupby("contender", sort=False)[[*columns]].median()
        for access in ACCESSES
    }
    table = medians["whole"].rename(columns=columns).sort_values("seconds")
    for access in ACCESSES[1:]:
        of_part = {"total_s": f"seconds a {access}", "sent": f"MB sent a {access}"}
        if len(medians[access]):
            table = table.join(medians[access][[*of_part]].rename(columns=of_part))
    return table


def mix(rows: pd.DataFrame, series: float) -> pd.DataFrame:
    """Mix accesses: the mean time of one, where `series` of them are time series and others steps.

    `rows` have `total_s`; the mean is of each block, so that contenders stay paired.
    """
    of_both = [select(rows, access).set_index(["block", "contender"]) for access in MIXED]
    mean_s = series * of_both[0]["total_s"] + (1 - series) * of_both[1]["total_s"]
    return of_both[0].assign(total_s=mean_s, access="mix").dropna(subset="total_s").reset_index()


def rank_mixes(rows: pd.DataFrame, *, control: str) -> dict[str, rankings.Ranking]:
    """Rank what can be installed by the mean time of an access in each mix; none where one lacks."""
    if not {*MIXED} <= {*rows["access"]}:
        return {}
    judged = {"control": control, "value": "total_s"}
    parts = {key: mix(installable(rows), share) for key, (_, share) in MIXES.items()}
    return {key: rankings.rank(part, **judged) for key, part in parts.items()}


def tabulate_mixes(mixes: Mapping[str, rankings.Ranking]) -> list[pd.DataFrame]:
    """Tabulate the others beside the best of each mix, which heads its table."""
    return [found.to_frame().rename_axis(MIXES[key][0]) for key, found in mixes.items()]


def tabulate_costs(
    names: Sequence[str], kept: Kept, written: pd.DataFrame, held: Mapping[str, Held], *, n: int
) -> pd.DataFrame:
    """Tabulate what a contender costs beside its time: to store, to write, in memory, in code.

    References are stored beside the file that they lead to, so they take its bytes too.
    `written` are the rows of writes, one a format, `held` what reads added to the memory of a
    process; a client may have `n` requests in flight.
    """
    writes = written[written["access"] == "write"].groupby("contender")["read_s"].median()
    array_nbytes = kept.stored.nbytes
    lines = []
    for name in names:
        form = CLIENTS[name].format
        added = held[name].added_nbytes
        seconds = writes.get(form, float("nan"))
        code = snippets.count_lines(snippets.show_code(name, n))
        stored = sum(kept.nbytes[one] for one in {form, find_values(form)})
        lines.append((name, form, stored / 1e6, seconds, added / 1e6, added / array_nbytes, code))
    columns = ["contender", "format", "stored MB", "seconds to write"]
    columns += ["memory MB", "memory over values", "lines of code"]
    return pd.DataFrame(lines, columns=columns).set_index("contender")


def tell_costs(costs: pd.DataFrame) -> dict[str, str]:
    """Put into words from where to where costs reach, of those that can be installed, by key.

    Each is one sample, or a count: the ends are what was seen, and no order is read from them.
    """
    costs = costs[[not CLIENTS[name].is_ours for name in costs.index]]
    values = costs[costs["format"].map(find_values) == costs["format"]]  # and no references
    written = values.reset_index().drop_duplicates("format").set_index("format")
    told = {}
    for key, column, unit in (
        ("lines", costs["lines of code"], "lines"),
        ("memory", costs["memory over values"], "times the values"),
        ("write", written["seconds to write"].dropna(), "s"),
    ):
        ends = [
            f"{digits(end)} ({', '.join(map(str, column.index[column == end]))})"
            for end in (column.min(), column.max())
        ]
        told[f"{key}-range"] = f"{' to '.join(ends)} {unit}"
    return told


def tell_limit(held: pd.DataFrame) -> dict[str, str]:
    """Put into words what happened to the Parquet file, by the key under which pages quote it."""
    told = {}
    for name, _, times, most, happened in held.itertuples():
        told[f"{name}-memory"] = f"{digits(times)} times the bytes of the array"
        told[f"{name}-under-limit"] = f"{happened} with at most {digits(most, n=3)} MB"
    return told


def describe_contenders(names: Sequence[str]) -> pd.DataFrame:
    """Tabulate what each contender reads and by whom."""
    lines = []
    for name in names:
        client = CLIENTS[name]
        told = FORMATS[client.format].description, client.description
        lines.append((name, *told))
    columns = ["contender", "format", "client"]
    return pd.DataFrame(lines, columns=columns).set_index("contender")


def compare_pairs(rows: pd.DataFrame, *, control: str) -> dict[str, statistics.Comparison]:
    """Judge the pairs of `CLAIMS` that were measured, each named beforehand."""
    present = set(rows["contender"])
    return {
        key: statistics.compare(rows, *pair, control=control, value="total_s")
        for key, pair in CLAIMS.items()
        if present.issuperset(pair)
    }


def tabulate_pairs(pairs: Mapping[str, statistics.Comparison]) -> pd.DataFrame:
    """Tabulate pairs by the names of both sides: those of one client differ in how it was told."""
    named = {" over ".join(CLAIMS[key]): found for key, found in pairs.items()}
    return rankings.tabulate_comparisons(named, ratio="time ratio", names=("pair",))


def tabulate_ranks(ranking: rankings.Ranking, of_all: rankings.Ranking) -> list[pd.DataFrame]:
    """Tabulate the ranks of what can be installed, and the first of all where others are among these."""
    has_ours = {of_all.best, *of_all.others} != {ranking.best, *ranking.others}
    return [ranking.to_frame(), *([of_all.to_frame().head(_N_FIRST)] if has_ours else [])]


def judge_claims(pairs: Mapping[str, statistics.Comparison]) -> pd.DataFrame:
    """Judge the claims of the follow-up study whose pairs were measured: theirs, ours, the verdict."""
    found = {name: {"one process": pairs[by]} for name, by in OF_2022.items() if by in pairs}
    claims = {name: one for name, one in published.read_claims().items() if name in found}
    table = published.tabulate_claims(claims, found, "green2022")
    return table.set_index("claim")


def tell_comparison(found: statistics.Comparison) -> str:
    """Write a ratio with its interval, and whether the two can be told apart."""
    told = tell_interval(found.ratio)
    return told if found.verdict != "indistinguishable" else f"{told}, which cannot be told apart"


def tell_verdict(ranking: rankings.Ranking, seconds: float) -> str:
    """Say which clients that can be installed are the fastest, and how long the best takes."""
    read = f"it opens and reads the whole array in {digits(seconds)} s"
    return f"Of what can be installed, {ranking.tell_lead(read)}"


def find_all(
    rows: pd.DataFrame,
    errors: pd.DataFrame,
    ranking: rankings.Ranking,
    of_all: rankings.Ranking,
    pairs: Mapping[str, statistics.Comparison],
    *,
    mixes: Mapping[str, rankings.Ranking],
    profile: Profile,
) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them.

    `ranking` is of what can be installed, `of_all` counts this project's own path too, and
    `mixes` are those of `rank_mixes`.
    """
    whole = select(rows, "whole")
    best = whole[whole["contender"] == ranking.best]
    measured = rows[rows["phase"] == "measured"]
    noise = statistics.noise_ratio(whole, "control", value="total_s")
    share = statistics.median_interval(best["share_of_ceiling"])
    # only where a network is emulated is it the one that the threshold means
    of_what = "share-of-ceiling" if profile.first_byte_s else "share-of-raw"
    return {
        "verdict": tell_verdict(ranking, best["total_s"].median()),
        "profile": describe_profile(profile),
        "fastest-installable": ranking.tell(),
        "fastest-of-all": of_all.tell(),
        "best-installable": ranking.best,
        "best-throughput": f"{digits(best['throughput_mb_per_s'].median())} MB/s",
        of_what: tell_interval(share),
        **{key: tell_comparison(found) for key, found in pairs.items()},
        **{f"fastest-{key}": found.tell() for key, found in mixes.items()},
        "median-prediction-error": f"{digits(100 * errors['relative_error'].abs().median())} %",
        **tell_measuring(measured, noise),
    }


def render_ceilings(site: str = "laptop") -> str:
    """Write the best installable client over raw reads, case by case, beside how full these make the link.

    A client can be held to raw reads only where they fill the link: else both wait, and differ by chance.
    """
    [least] = (one.bound for one in STUDY.thresholds if one.key == "share-of-ceiling")
    lines = []
    for record in sorted((published.REFERENCE / "formats").glob("*.csv")):
        case = Case(site, "formats", record.stem)
        found = published.read_findings(case.title)
        link = get_recorded_profile(read_parameters(case)["profile"]).aggregate_mb_per_s
        if (told := found.get("share-of-ceiling")) is None or link is None:
            continue  # no network is emulated
        rows = statistics.measured(pd.read_csv(record, usecols=_OF_LINK))
        raw = rows[rows["is_ceiling"].astype(bool)]
        filled = (raw["wire_nbytes"] / raw["read_s"]).median() / 1e6 / link
        ends = [float(end) for end in re.findall(r"[\d.]+", told)[1:3]]
        is_kept = [end >= least for end in ends]
        verdict = "undecided" if len({*is_kept}) != 1 else "met" if all(is_kept) else "missed"
        name = record.stem.replace("-", " ")
        lines.append((name, digits(filled), found["best-installable"], told, verdict))
    names = ["case", "link filled by raw reads", "best that can be installed"]
    names += ["its throughput over raw reads"]
    return write_table([*names, f"at least {least:g}"], lines)


_OF_LINK = ["phase", "is_ceiling", "wire_nbytes", "read_s"]
_N_FIRST = 8  # of a ranking of everything, which repeats the one before it
