"""What a page of requests in flight says in words: computed, formatted, glued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from helpers.benchmark import ranking, statistics
from helpers.errors import UserError
from helpers.netem.profiles import RATES, Profile
from helpers.plotting.tables import (
    describe_profile,
    digits,
    tell_interval,
    tell_measuring,
    trace_of,
)
from studies.requests_in_flight.workload import Setting, find_link

NONE_SAFE = "none: the store refused requests of each"


def tabulate_rates(profile: Profile) -> pd.DataFrame:
    """Tabulate the rates of a network: of a stream, of this process and of all, and of requests."""
    rates = {name: getattr(profile, name) for name in RATES}
    return pd.Series(rates, dtype=object, name="at most").to_frame()


def add_rates(rows: pd.DataFrame, profile: Profile) -> pd.DataFrame:
    """Add `mb_per_s` over the wire, its `share` of the link, `s_per_gb`, and the `refused` part.

    Where no link is emulated, as on a store of one's own, the share is that of the quickest
    setting's median. Refused is what the store answered 503 or left unanswered, over all requests.
    """
    out = rows.assign(
        mb_per_s=rows["wire_nbytes"] / rows["read_s"] / 1e6,
        s_per_gb=1e9 * rows["read_s"] / rows["wire_nbytes"],
        refused=trace_of(rows)["n_failed_requests"] / rows["n_requests"],
    )
    link = find_link(profile)
    if link is None:
        link = float(statistics.measured(out).groupby("contender")["mb_per_s"].median().max())
    return out.assign(share=out["mb_per_s"] / link)


def find_safe(rows: pd.DataFrame, settings: Sequence[Setting]) -> list[Setting]:
    """List the settings of which no request was refused, in any block."""
    worst = statistics.measured(rows).groupby("contender")["refused"].max()
    return [one for one in settings if worst[one.name] == 0]


def choose(
    rows: pd.DataFrame, safe: Sequence[Setting], *, control: str
) -> tuple[Setting | None, ranking.Ranking | None]:
    """Choose what to copy: of the quickest that are safe the one with the fewest requests in flight.

    Quickest are the best and those that cannot be told apart from it; of equals the one of
    fewer threads, without a pool, is taken. None if no setting is safe.
    """
    by_name = {one.name: one for one in safe}
    if not by_name:
        return None, None
    measured = statistics.measured(rows)
    copied = str(measured.loc[measured["contender"] == control, "control_of"].iloc[0])
    if copied not in by_name:
        raise UserError(f"control: of {copied}, which was refused; allowed: of a safe setting")
    found = ranking.rank(
        measured[measured["contender"].isin([*by_name, control])], control=control, value="s_per_gb"
    )
    equals = [by_name[name] for name in found.fastest if name in by_name]
    return min(equals, key=lambda one: (one.in_flight, one.n_threads, one.pool)), found


def tabulate(rows: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """Tabulate each setting: what it read, what was predicted, how often it asked and was refused."""
    measured = statistics.measured(rows)
    medians = measured.groupby("contender", sort=False)[["mb_per_s", "share"]].median()
    refused = 100 * measured.groupby("contender")["refused"].mean()
    table = expected.set_index("contender").join(medians).join(refused)
    table = table.assign(share=100 * table["share"])
    names = {
        "mb_per_s": "MB/s",
        "share": "% of the link",
        "predicted_mb_per_s": "predicted MB/s",
        "limit": "limited by",
        "asks_per_s": "would ask a second",
        "refused": "% refused",
    }
    return table[[*names]].rename(columns=names).rename_axis("threads x concurrency")


def tell_code(one: Setting) -> str:
    """Write a setting as the lines that a user copies."""
    lines = [
        f'zarr.config.set({{"async.concurrency": {one.concurrency}}})',
        f'dask.config.set(scheduler="threads", num_workers={one.n_threads})',
    ]
    if one.pool:
        lines.append(f"store = LimitedStore(store, n_connections={one.pool})")
    return "\n".join(lines)


def tell_quickest(medians: pd.Series, rows: pd.DataFrame) -> str:
    """Name the setting with the highest median, and what the store refused of it."""
    name = str(medians.idxmax())
    refused = count_refusals(rows)[name]
    return f"{name}, of which {digits(100 * refused)} % was refused" if refused else name


def find_all(
    rows: pd.DataFrame,
    expected: pd.DataFrame,
    safe: Sequence[Setting],
    chosen: Setting | None,
    *,
    profile: Profile,
    control: str,
) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them."""
    measured = statistics.measured(rows)
    own = measured[measured["contender"] != control]
    medians = own.groupby("contender")["mb_per_s"].median()
    noise = statistics.noise_ratio(measured, control, value="s_per_gb")
    predicted = expected.set_index("contender")["predicted_mb_per_s"]
    errors = (predicted / medians - 1).abs()
    kept = errors[[one.name for one in safe]]  # the model is never refused
    most = max(count_refusals(own).values())
    found = {
        "profile": describe_profile(profile),
        "setting-to-copy": chosen.tell() if chosen else NONE_SAFE,
        "safe-settings": f"{len(safe)} of {len(medians)}",
        "most-in-flight-safe": str(max((one.in_flight for one in safe), default=0)),
        "quickest": tell_quickest(medians, rows),
        "most-refused": f"{digits(100 * most)} % ({digits(100 * own['refused'].max())} % in its worst block)",
        "refusals": tell_refusals(rows, expected),
        "median-prediction-error": f"{digits(100 * kept.median())} %" if len(kept) else "untold",
        **tell_measuring(measured, noise),
    }
    found["verdict"] = f"The setting to copy is {found['setting-to-copy']}."
    if chosen:
        share = 100 * own.loc[own["contender"] == chosen.name, "share"]
        found["share-to-copy"] = f"{tell_interval(statistics.median_interval(share))} %"
        found["in-flight-to-copy"] = str(chosen.in_flight)
        found["verdict"] += (
            f" It fills {found['share-to-copy']} of the link, and the store refused it nothing."
        )
    return found


def tell_refusals(rows: pd.DataFrame, expected: pd.DataFrame) -> str:
    """Say how many settings the model takes for too fast, how many were refused, and how fast they asked.

    Asked is what a read asked for in its mean; new are connections that a request was the first of.
    """
    measured = statistics.measured(rows)
    measured = measured[measured["contender"].isin(expected["contender"])]  # and no copy
    asked = (measured["n_requests"] / measured["read_s"]).groupby(measured["contender"]).median()
    new = trace_of(measured)["n_new_connections"] / measured["n_requests"]
    share = new.groupby(measured["contender"]).median()
    refused = {name for name, part in count_refusals(measured).items() if part}
    feared = {*expected.loc[expected["is_refused"], "contender"]}
    in_vain = sorted(feared - refused)
    told = (
        f"The model takes {len(feared)} of {len(expected)} settings for too fast."
        f" Refused were {len(feared & refused)} of these and {len(refused - feared)} of the others."
    )
    if in_vain:
        names = ", ".join(in_vain).replace(" x ", " \N{MULTIPLICATION SIGN} ")
        told += (
            f" Not refused of these: {names}. They asked at most"
            f" {digits(asked[in_vain].max())} times a second; {digits(100 * share[in_vain].min())} %"
            " or more of their requests opened a connection first, which the model leaves out."
        )
    if refused:
        told += (
            f" What was refused asked at least {digits(asked[[*refused]].min())} times a second"
            " in the mean; a moment above the rate is enough."
        )
    return told


def count_refusals(rows: pd.DataFrame) -> Mapping[str, float]:
    """Return the part of the requests of each setting that was refused, over all blocks."""
    means = statistics.measured(rows).groupby("contender")["refused"].mean()
    return {str(name): float(value) for name, value in means.items()}
