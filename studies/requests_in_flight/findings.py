"""What a page of requests in flight finds, as numbers and frames."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from helpers.benchmark import ranking, statistics
from helpers.benchmark.record import read_published
from helpers.benchmark.statistics import Interval
from helpers.findings import read_findings
from helpers.paths import ROOT
from helpers.plotting.tables import trace_of
from studies.requests_in_flight.workload import Setting
from wire.bed.networks import Profile
from wire.errors import UserError

# emulated networks by the case that reads over each, and s3fs as it was on S3 and as it is today
_FAKES = {
    "our proxy": "many-requests",
    "our proxy, CPU time counted": "real-s3",
    "a fixed delay": "fixed-delay",
    "one pipe": "one-pipe",
}
_ASKS = {"one request": "zarr-s3fs-one-get", "today": "zarr-s3fs"}


def add_rates(rows: pd.DataFrame, profile: Profile) -> pd.DataFrame:
    """Add `mb_per_s` over the wire, its `share` of the link, `s_per_gb`, and the `refused` part.

    Where no link is emulated, as on a store of one's own, the share is that of the quickest
    setting's median. Refused is what the store answered 503 or left unanswered, over all requests.
    """
    trace = trace_of(rows)
    out = rows.assign(
        mb_per_s=rows["wire_nbytes"] / rows["read_s"] / 1e6,
        s_per_gb=1e9 * rows["read_s"] / rows["wire_nbytes"],
        refused=trace["n_failed_requests"] / rows["n_requests"],
        asked_per_s=rows["n_requests"] / rows["read_s"],
        in_flight=trace.get("mean_in_flight"),
    )
    link = profile.aggregate_mb_per_s
    if link is None:
        link = float(statistics.measured(out).groupby("contender")["mb_per_s"].median().max())
    return out.assign(share=out["mb_per_s"] / link)


def find_safe(
    rows: pd.DataFrame, expected: pd.DataFrame, settings: Sequence[Setting]
) -> list[Setting]:
    """List the settings that were refused nothing, and that a long read lets ask no faster than allowed.

    A short read may fit the burst that the store allows, so that nothing is refused of it.
    """
    worst = statistics.measured(rows).groupby("contender")["refused"].max()
    is_over = expected.set_index("contender")["is_over_rate"]
    return [
        setting for setting in settings if worst[setting.name] == 0 and not is_over[setting.name]
    ]


def choose(
    rows: pd.DataFrame, safe: Sequence[Setting], *, control: str
) -> tuple[Setting | None, ranking.Ranking | None]:
    """Choose what to copy: of the quickest that are safe the one with the fewest requests in flight.

    Quickest are the best and those that cannot be told apart from it; of equals the one of
    fewer threads is taken. None if no setting is safe.
    """
    by_name = {setting.name: setting for setting in safe}
    if not by_name:
        return None, None
    measured = statistics.measured(rows)
    copied = str(measured.loc[measured["contender"] == control, "control_of"].iloc[0])
    if copied not in by_name:
        raise UserError("control", f"of {copied}, which was refused", "of a safe setting")
    ranked = ranking.rank(
        measured[measured["contender"].isin([*by_name, control])], control=control, value="s_per_gb"
    )
    equals = [by_name[name] for name in ranked.fastest if name in by_name]
    return min(equals, key=lambda setting: (setting.in_flight, setting.n_threads)), ranked


def tabulate(
    rows: pd.DataFrame, expected: pd.DataFrame, settings: Sequence[Setting]
) -> pd.DataFrame:
    """Tabulate each setting: what it read and asked, and what was refused, measured and predicted."""
    measured = statistics.measured(rows).groupby("contender")
    table = pd.DataFrame(
        [(setting.name, setting.n_threads, setting.concurrency) for setting in settings],
        columns=["contender", "threads", "concurrency"],
    ).set_index("contender")
    table = table.join(measured[["mb_per_s", "share", "asked_per_s"]].median())
    table = table.join(measured["refused"].mean()).join(expected.set_index("contender"))
    return table.assign(share=100 * table["share"], refused=100 * table["refused"])


HEADS = {
    "mb_per_s": "read (MB/s)",
    "predicted_mb_per_s": "read, predicted (MB/s)",
    "share": "share of the link (%)",
    "asked_per_s": "requests (a second)",
    "asks_per_s": "requests, predicted (a second)",
    "refused": "refused, measured (% of requests)",
    "is_refused": "refused, predicted",
    "is_over_rate": "refused in a long read, predicted",
    "fits_burst": "cannot be refused",
}
"""What a page calls the columns of `tabulate`."""


def compare_clients(
    rows: pd.DataFrame, clients: Sequence[str]
) -> dict[tuple[str, float], Interval]:
    """Compute the lead of the first client over each other one: their times, paired, by megabytes of a chunk.

    The noise is the largest of the clients' second copies, or where there is none the first one's
    own spread over blocks, which is rather more than that of a ratio of medians.
    """
    leads = {}
    for mb in sorted(rows["chunk_mb"].unique()) if "chunk_mb" in rows else ():
        part = rows[rows["chunk_mb"] == mb]
        seconds = statistics.measured(part[part["contender"] == clients[0]])["read_s"]
        spread = float(np.exp(np.log(seconds).std(ddof=1)))
        for name in [name for name in clients[1:] if not name.startswith("control")]:
            lead = statistics.paired_ratio(part, name, clients[0])
            noise = spread if np.isnan(lead.noise) else lead.noise
            leads[name, float(mb)] = replace(lead, noise=noise)
    return leads


def compare_ends(
    rows: pd.DataFrame, client: str, first: str, leads: Mapping[tuple[str, float], Interval]
) -> Interval:
    """Compute by how much the lead of the first client falls from the smallest chunks to the largest."""
    times = statistics.measured(rows).pivot_table("read_s", ["block", "chunk_mb"], "contender")
    logs = (times[client] / times[first]).map(np.log).unstack().dropna()
    fall = statistics.ratio_interval((logs.iloc[:, 0] - logs.iloc[:, -1]).to_numpy())
    quantity = "lead at the smallest chunks over that at the largest, read_s"
    noise = max(interval.noise for (name, _), interval in leads.items() if name == client)
    return replace(fall, quantity=quantity, noise=noise)


def can_rank_clients(rows: pd.DataFrame, clients: Sequence[str]) -> bool:
    """Judge whether rows rank clients at every size of a chunk."""
    names = [name for name in clients if not name.startswith("control")]
    return all(statistics.can_rank(part, *names) for _, part in rows.groupby("chunk_mb"))


def tabulate_flight(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Tabulate what each client did by chunk: throughput, requests in flight, and waves of `most`.

    And what it computed, its busiest thread and all of it at most, in percent of the network's seconds.
    """
    if "chunk_mb" not in rows:
        return pd.DataFrame()
    read = statistics.measured(rows[rows["control_of"] == ""])
    n_chunks = (read["array_nbytes"] / read["chunk_mb"] / 1e6).round()
    named = read.assign(waves=n_chunks / most, read_mb_per_s=read["mb_per_s"])
    grouped = named.groupby(["contender", "chunk_mb"])
    table = grouped[["read_mb_per_s", "in_flight", "waves"]].median()
    of = {
        "busiest thread (%)": statistics.thread_share,
        "all CPU time, at most (%)": statistics.client_share,
    }
    shares = {
        (name, mb): {column: 100 * share(part, name) for column, share in of.items()}
        for mb, part in rows.groupby("chunk_mb")
        for name in read["contender"].unique()
    }
    computed = pd.DataFrame(shares).T
    return table.assign(**{column: computed[column] for column in of})


PUBLISHED = "s3fs on S3, 2025"


def read_published_rates() -> pd.DataFrame:
    """Read the medians (MB/s) that were published for S3: a row for each `chunk_mb`, a column for each client."""
    rows = read_published("earthmover_tensor_storage_s3")
    rows = rows[rows["operation"] == "read"].assign(chunk_mb=rows["chunk_bytes"] / 1e6)
    return rows.groupby(["chunk_mb", "method"])["throughput_mb_per_s"].median().unstack().loc[:20]


def read_published_leads(client: str = "zarr-s3fs") -> pd.DataFrame:
    """Read the leads of obstore over another client that were published for S3: median over median."""
    rates = read_published_rates()
    lead = (rates["zarr-obstore"] / rates[client]).rename("lead")
    return lead.reset_index().assign(client=PUBLISHED)


def compare_fakes() -> pd.DataFrame:
    """Compare the lead of obstore over s3fs on S3 with that over each emulated network.

    Returns
    -------
    DataFrame
        A row for each `s3fs` (one request a chunk, as on S3 then, or its defaults of today),
        `network` and `chunk_mb`: `lead`, and the 95 % interval `low` to `high`, NaN on S3.
    """
    published = read_published_leads().assign(low=np.nan, high=np.nan, network="real S3, 2025")
    published, lines = published.assign(s3fs="one request"), []
    for network, case in _FAKES.items():
        findings = read_findings(
            ROOT / "results" / "reference" / "requests-in-flight" / f"{case}.csv"
        )
        for (s3fs, key), mb in itertools.product(_ASKS.items(), published["chunk_mb"]):
            lead = findings[f"lead-{key}-{mb:.2g}-mb"]
            lines.append([s3fs, network, mb, lead.value, lead.low, lead.high])
    columns = ["s3fs", "network", "chunk_mb", "lead", "low", "high"]
    return pd.concat([published[columns], pd.DataFrame(lines, columns=columns)], ignore_index=True)


def write_code(setting: Setting) -> str:
    """Write a setting as the lines that a user copies."""
    return (
        f'zarr.config.set({{"async.concurrency": {setting.concurrency}}})\n'
        f'dask.config.set(scheduler="threads", num_workers={setting.n_threads})'
    )
