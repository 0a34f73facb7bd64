"""What the study says in words: claims judged, bars, and what pages quote."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pandas as pd

from helpers.measurement import statistics
from helpers.storage.hdf5.layouts import FILE_LAYOUTS
from helpers.storage.network import Profile
from helpers.studies.hdf5_drivers.findings import mean_first_byte_s, measured, paired
from helpers.study import describe_profile, digits, network_of, trace_of

UNTUNED, TUNED, ORIGINAL = "fsspec-none", "fsspec-tuned", "original"
NOT_MEASURED = "not measured"
_BAR_GAIN, _BAR_REQUESTS = 20, 5
_CLAIM = ("driver", "against")
_CLAIMS = (
    ("ros3-none", UNTUNED),
    ("ros3-none", TUNED),
    ("ros3", UNTUNED),
    ("ros3", TUNED),
    ("ros3-tuned", TUNED),
)


def judge_claim(rows: pd.DataFrame, *, task: str = "variables") -> pd.DataFrame:
    """Judge on every layout whether ROS3 is faster than a file object of fsspec.

    Both without a cache, both tuned, and at their defaults against each other's settings.
    """
    part, lines = measured(rows, task), []
    noise = control_noise(rows)
    for layout in dict.fromkeys(part["layout"]):
        for a, b in _CLAIMS:
            found = paired(part, (a, layout), (b, layout))
            if found:
                verdict = statistics.judge(found, noise).verdict
                lines.append((layout, a, b, found.centre, found.low, found.high, verdict))
    columns = ["layout", "driver", "against", "time ratio", "low", "high", "verdict"]
    return pd.DataFrame(lines, columns=columns).round(2)


def control_noise(rows: pd.DataFrame) -> float:
    """Compute by which factor a contender differs from its own copy."""
    control = rows[(rows["phase"] == "measured") & (rows["control_of"] != "")]
    if control.empty:
        return float("nan")
    point = control["point"].iloc[0]
    return statistics.noise_ratio(rows[rows["point"] == point], "control")


def find_claims(judged: pd.DataFrame) -> dict[str, str]:
    """Say with which settings ROS3 is faster than fsspec, and with which slower."""

    def where(*, is_below: bool) -> str:
        clear = judged[judged["verdict"] != "indistinguishable"]
        part = clear[(clear["time ratio"] < 1) == is_below]
        told = [
            f"{a} over {b} on {', '.join(same['layout'])}"
            for (a, b), same in part.groupby(list(_CLAIM), sort=False)
        ]
        nowhere = NOT_MEASURED if judged.empty else "with none of these settings"
        return "; ".join(told) or nowhere

    return {
        "ros3-faster": where(is_below=True),
        "ros3-slower": where(is_below=False),
        "ros3-undecided": str(int((judged["verdict"] == "indistinguishable").sum())),
        "claims-judged": str(len(judged)),
    }


def find_bars(rows: pd.DataFrame, best: tuple[str, str], profile: Profile) -> dict[str, str]:
    """Say whether repair and settings gain as much as was hoped, and if not, why not."""
    part = measured(rows, "variables")
    ratio = paired(part, (UNTUNED, ORIGINAL), best)
    keys = list(zip(part["contender"], part["layout"], strict=True))
    trace = trace_of(part).assign(total_s=part["total_s"])
    slow, fast = (
        trace[[key == at for key in keys]].median(numeric_only=True)
        for at in ((UNTUNED, ORIGINAL), best)
    )
    if ratio is None:
        return dict.fromkeys(("bar-gain", "bar-requests-to-open", "headline"), NOT_MEASURED)
    gain = ratio.centre
    n_open = fast["n_open_requests"]
    return {
        "bar-gain": "yes" if gain >= _BAR_GAIN else f"no: {_explain(slow, fast, profile)}",
        "bar-requests-to-open": "yes" if n_open <= _BAR_REQUESTS else f"no: {n_open:.0f}",
        "headline": f"{digits(gain)} times",
    }


def _explain(slow: pd.Series[float], fast: pd.Series[float], profile: Profile) -> str:
    """Say where the time of the fastest goes, and what one stream could gain at most."""
    network = network_of(profile)
    first_byte_s = mean_first_byte_s(network)
    moved_s = fast["all_nbytes"] / network.stream_nbytes_per_s
    needed_s = moved_s / fast["over_read"]
    n_waits = fast["dependency_depth"]
    return (
        f"of its {digits(fast['total_s'])} s the fastest waits {digits(n_waits * first_byte_s)} s"
        f" for {n_waits:.0f} answers one after the other, and its"
        f" {digits(fast['all_nbytes'] / 1e6)} MB take {digits(moved_s)} s of one stream;"
        f" what is needed takes {digits(needed_s)} s, so that one stream gains at most"
        f" {digits(slow['total_s'] / (needed_s + first_byte_s))} times"
    )


def find_decision(rows: pd.DataFrame) -> dict[str, str]:
    """Say what gains how much: settings alone, a new layout alone, and both.

    The layout is the one, of those that are not the original, on which the tuned file object
    is fastest.
    """
    part = measured(rows, "variables")
    medians = part[part["contender"] == TUNED].groupby("layout")["total_s"].median()
    anew = medians.drop(index=ORIGINAL, errors="ignore")
    if anew.empty:
        return {"decision": NOT_MEASURED}
    layout = str(anew.idxmin())

    def gain(contender: str, where: str) -> float:
        found = paired(part, (UNTUNED, ORIGINAL), (contender, where))
        return found.centre if found else float("nan")

    alone = {"settings": gain(TUNED, ORIGINAL), "layout": gain(UNTUNED, layout)}
    both = gain(TUNED, layout)
    is_joint = both > 1.2 * max(alone.values())
    word = (
        "settings and layout together" if is_joint else f"{max(alone, key=alone.__getitem__)} alone"
    )
    return {
        "decision-layout": layout,
        "gain-settings-alone": digits(alone["settings"]),
        "gain-layout-alone": digits(alone["layout"]),
        "gain-both": digits(both),
        "decision": f"{word}: {digits(both)} times faster with both,"
        f" {digits(alone['settings'])} by settings alone, {digits(alone['layout'])} by layout alone",
    }


def find_all(rows: pd.DataFrame, profile: Profile, versions: Mapping[str, str]) -> dict[str, str]:
    """Put the findings of a case into words, by the key under which pages quote them."""
    part = measured(rows, "variables")
    medians = part.groupby(["contender", "layout"])["total_s"].median()
    files = medians[medians.index.get_level_values("layout").isin(FILE_LAYOUTS)]
    best: tuple[str, str] = files.idxmin()  # type: ignore[assignment]
    worst: tuple[str, str] = files.idxmax()  # type: ignore[assignment]
    ratio = paired(part, ("fsspec-none", "original"), best)
    opened = trace_of(part).assign(layout=part["layout"], contender=part["contender"])
    at_best = (opened["layout"] == best[1]) & (opened["contender"] == best[0])
    stored_nbytes = part.loc[part["layout"] == ORIGINAL, "stored_nbytes"]
    machine = json.loads(part["machine"].iloc[0])
    return {
        "profile": describe_profile(profile),
        "best-driver": best[0],
        "best-layout": best[1],
        "best-throughput": f"{digits(part['array_nbytes'].iloc[0] / files.min() / 1e6)} MB/s",
        "best-time": f"{digits(files.min())} s",
        "worst-driver": worst[0],
        "worst-layout": worst[1],
        "worst-time": f"{digits(files.max())} s",
        "ratio-untuned-original-to-best": digits(ratio.centre) if ratio else NOT_MEASURED,
        "requests-to-open-best": digits(opened.loc[at_best, "n_open_requests"].median()),
        "ros3": "built in" if versions["ros3"] == "True" else "not built in",
        "hdf5-version": versions["hdf5"],
        "file-nbytes": f"{digits(stored_nbytes.median() / 1e6)} MB",
        "aa-noise": f"{digits(100 * (control_noise(rows) - 1))} %",
        "n-blocks": str(part["block"].nunique()),
        "machine": f"{machine['n_cores']} cores, {machine['cpu']}",
        **find_claims(judge_claim(rows)),
        **find_bars(rows, best, profile),
        **find_decision(rows),
    }
