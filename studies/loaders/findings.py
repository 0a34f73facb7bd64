"""What loaders deliver: samples a second, bytes a sample, and how long the first batch takes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from helpers.arrays.stores import StoredArray
from helpers.benchmark import statistics
from helpers.benchmark.statistics import Comparison, judge, paired_ratio
from helpers.findings import Claim, Finding
from helpers.plotting import palette
from helpers.plotting.tables import trace_of
from studies.loaders.loaders import BASELINE, LOADERS
from wire.bed.networks import Profile

GAINS = {
    "processes-gain": (BASELINE, "processes"),
    "batch-gain": (BASELINE, "batch"),
    "processes-batch-gain": ("processes", "processes-batch"),
    "chunks-gain": (BASELINE, "chunks"),
    "chunks-over-batch": ("batch", "chunks"),
    "cache-gain": (BASELINE, "cache"),
    "cache-filled-gain": (BASELINE, "cache-filled"),
    "insitubatch-gain": (BASELINE, "insitubatch"),
    "insitubatch-over-xbatcher": ("xbatcher-threads", "insitubatch"),
    "insitubatch-over-chunks": ("chunks", "insitubatch"),
}
"""Loaders that are compared: the slower one as expected, over the faster one."""

PUBLISHED = {"published-over-xbatcher": 8.0, "published-over-xbatcher-fat": 25.0}
"""By how many times insitubatch was faster than a tuned pool of xbatcher on real S3, and with chunks
of many samples, as its author published in July 2026."""


def predict_rate(stored: StoredArray, network: Profile) -> pd.DataFrame:
    """Predict the samples a second that arrive one after the other, each with its chunk, without CPU time.

    A chunk takes the median latency and its bytes over one connection.
    """
    chunk_nbytes = stored.stored_nbytes["zarr"] / stored.n_chunks
    latency_s = network.first_byte_s.median_s if network.first_byte_s else 0.0
    rate = network.stream_mb_per_s
    sample_s = latency_s + (chunk_nbytes / 1e6 / rate if rate else 0.0)
    line = {"chunk_mb": chunk_nbytes / 1e6, "latency_s": latency_s, "sample_s": sample_s}
    line["samples_per_s"] = 1 / sample_s if sample_s else math.inf
    return pd.DataFrame([line], index=pd.Index([LOADERS[BASELINE].label], name="loader"))


def prepare_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the measured rows with samples a second, MB a sample and seconds to the first batch.

    A sample is the bytes of the array over their number, which the check of a row states.
    """
    measured_rows = statistics.measured(rows)
    n_samples = measured_rows["check"].str.extract(r"of (\d+) samples")[0].astype(int)
    return measured_rows.assign(
        samples_per_s=n_samples / measured_rows["read_s"],
        mb_per_sample=measured_rows["wire_nbytes"] / n_samples / 1e6,
        requests_per_sample=measured_rows["n_requests"] / n_samples,
        first_batch_s=trace_of(measured_rows)["first_batch_s"] / measured_rows["dilation"],
    )


def _in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in the order of `LOADERS`, without those of the second copy."""
    places = {name: number for number, name in enumerate(LOADERS)}
    originals = rows[rows["control_of"] == ""]
    return originals.sort_values("contender", key=lambda names: names.map(places))


def tabulate_loaders(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate what each loader delivers, medians over the blocks."""
    heads = {
        "samples_per_s": "samples a second",
        "mb_per_sample": "MB a sample",
        "requests_per_sample": "requests a sample",
        "open_s": "to start (s)",
        "first_batch_s": "to the first batch (s)",
        "client_s": "CPU (s)",
    }
    table = _in_order(rows).groupby("contender", sort=False)[[*heads]].median()
    table.index = pd.Index([LOADERS[str(name)].label for name in table.index], name="loader")
    return table.rename(columns=heads)


def compare_loaders(rows: pd.DataFrame) -> dict[str, Comparison]:
    """Compare the loaders of `GAINS` that were measured: seconds of an epoch of the first over the second."""
    measured_names = {*rows["contender"]}
    comparisons = {}
    for key, (slow, fast) in GAINS.items():
        if {slow, fast} <= measured_names:
            ratio = paired_ratio(rows, slow, fast)
            comparisons[key] = judge(ratio, ratio.noise)
    return comparisons


def tabulate_gains(comparisons: Mapping[str, Comparison]) -> pd.DataFrame:
    """Tabulate how many times faster a loader is than another, with 95 % intervals."""
    lines = [
        (
            *(LOADERS[name].label for name in reversed(GAINS[key])),
            comparison.ratio.centre,
            comparison.ratio.low,
            comparison.ratio.high,
        )
        for key, comparison in comparisons.items()
    ]
    heads = ["loader", "over", "times faster", "low", "high"]
    return pd.DataFrame(lines, columns=heads).set_index("loader")


def summarize(rows: pd.DataFrame, *, samples_per_chunk: int) -> dict[str, Finding]:
    """Return samples a second, bytes a sample and seconds to the first batch, as findings.

    `n-samples-per-chunk` is how many times a loader that keeps nothing reads each chunk.
    """
    findings = {key: Finding(value) for key, value in PUBLISHED.items()}
    findings["n-samples-per-chunk"] = Finding(float(samples_per_chunk), noise=0.0)
    for name, part in _in_order(rows).groupby("contender", sort=False):
        rate, first_s = part["samples_per_s"].median(), part["first_batch_s"].median()
        findings[f"{name}-samples-per-s"] = Finding(float(rate), unit="samples/s")
        findings[f"{name}-mb-per-sample"] = Finding(
            float(part["mb_per_sample"].median()), unit="MB"
        )
        findings[f"{name}-first-batch-s"] = Finding(float(first_s), unit="s")
    return findings


def list_claims(comparisons: Mapping[str, Comparison], rows: pd.DataFrame) -> dict[str, Claim]:
    """List what pages say: which loaders gain, and that the comparison may be made at all."""
    claims = {
        f"{key}s": Claim(comparison.verdict == "slower", of=key)
        for key, comparison in comparisons.items()
        if key in ("processes-gain", "batch-gain", "chunks-gain", "cache-gain")
    }
    bytes_read = rows.groupby("contender")["mb_per_sample"].median()
    if {BASELINE, "batch"} <= {*bytes_read.index}:
        ratio = bytes_read["batch"] / bytes_read[BASELINE]
        claims["batch-reads-as-much"] = Claim(
            bool(0.9 < ratio < 1.1), of=("batch-mb-per-sample", f"{BASELINE}-mb-per-sample")
        )
    if "chunks-over-batch" in comparisons:
        claims["chunks-beat-batch"] = Claim(
            comparisons["chunks-over-batch"].verdict == "slower", of="chunks-over-batch"
        )
    if comparisons:
        key = next(iter(comparisons))
        claims["ranks"] = Claim(statistics.can_rank(rows), of=key)
    return claims


def draw_loaders(axes: tuple[Axes, Axes], rows: pd.DataFrame) -> None:
    """Draw samples a second and MB a sample of each loader: medians over the blocks, and lines over all of them."""
    ordered = _in_order(rows)
    names = [*dict.fromkeys(ordered["contender"])]
    for ax, column in zip(axes, ("samples_per_s", "mb_per_sample"), strict=True):
        for place, name in enumerate(names):
            values = ordered.loc[ordered["contender"] == name, column]
            ax.hlines(place, values.min(), values.max(), color=palette.BLUE, linewidth=2)
            ax.plot(values.median(), place, "o", color=palette.BLUE, markersize=5)
        ax.set_yticks(range(len(names)), [LOADERS[str(name)].label for name in names])
        ax.invert_yaxis()
    axes[0].set(xscale="log", xlabel="samples a second")
    axes[1].set(xlim=(0, None), xlabel="MB fetched per sample")
    axes[1].tick_params(labelleft=False)


def find_noise(rows: pd.DataFrame, control: str) -> float:
    """Compute the A/A ratio of the seconds of an epoch, less 1; NaN where there is no second copy."""
    if control not in {*rows["contender"]}:
        return math.nan
    return statistics.noise_ratio(rows, control) - 1
