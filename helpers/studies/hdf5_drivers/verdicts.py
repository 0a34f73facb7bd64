"""What the study says in words: claims judged, bars, and what pages quote."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pandas as pd

from helpers.measurement import statistics
from helpers.storage.hdf5.layouts import FILE_LAYOUTS
from helpers.storage.network import Profile
from helpers.studies.cluster_scaling import describe_profile, digits
from helpers.studies.hdf5_drivers.findings import measured, paired
from helpers.study import trace_of

UNTUNED, TUNED, ORIGINAL = "fsspec-none", "fsspec-tuned", "original"
_BAR_GAIN, _BAR_REQUESTS = 20, 5
_CLAIM = ("layout", "driver", "against")


def judge_claim(rows: pd.DataFrame, *, task: str = "variables") -> pd.DataFrame:
    """Judge on every layout whether ROS3 is faster than a file object of fsspec.

    Both untuned, both tuned, and untuned ROS3 against tuned fsspec.
    """
    part, lines = measured(rows, task), []
    pairs = (("ros3", "fsspec-none"), ("ros3-tuned", "fsspec-tuned"), ("ros3", "fsspec-tuned"))
    noise = control_noise(rows)
    for layout in dict.fromkeys(part["layout"]):
        for a, b in pairs:
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
        told = [f"{a} over {b} on {layout}" for layout, a, b in part[list(_CLAIM)].to_numpy()]
        return "; ".join(told) or "with none of these settings"

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
    trace = trace_of(part)
    slow, fast = (
        trace[[key == at for key in keys]].median(numeric_only=True)
        for at in ((UNTUNED, ORIGINAL), best)
    )
    gain = ratio.centre if ratio else float("nan")
    moved_s = fast["all_nbytes"] / 1e6 / (profile.stream_mb_per_s or float("inf"))
    reason = (
        f"no: the original takes {slow['all_requests']:.0f} requests and the best"
        f" {fast['all_requests']:.0f}, whose bytes alone take {digits(moved_s)} s of a stream"
    )
    n_open = fast["n_open_requests"]
    return {
        "bar-gain": "yes" if gain >= _BAR_GAIN else reason,
        "bar-requests-to-open": "yes" if n_open <= _BAR_REQUESTS else f"no: {n_open:.0f}",
        "headline": f"{digits(gain)} times",
    }


def find_decision(rows: pd.DataFrame) -> dict[str, str]:
    """Say what gains how much: settings alone, a new layout alone, and both.

    The layout is the one, of those that are not the original, on which the tuned file object
    is fastest.
    """
    part = measured(rows, "variables")
    medians = part[part["contender"] == TUNED].groupby("layout")["total_s"].median()
    anew = medians.drop(index=ORIGINAL, errors="ignore")
    if anew.empty:
        return {"decision": "not measured"}
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
        "ratio-untuned-original-to-best": digits(ratio.centre) if ratio else "not measured",
        "requests-to-open-best": digits(opened.loc[at_best, "n_open_requests"].median()),
        "ros3": "built in" if versions["ros3"] == "True" else "not built in",
        "hdf5-version": versions["hdf5"],
        "aa-noise": f"{digits(100 * (control_noise(rows) - 1))} %",
        "n-blocks": str(part["block"].nunique()),
        "machine": f"{machine['n_cores']} cores, {machine['cpu']}",
        **find_claims(judge_claim(rows)),
        **find_bars(rows, best, profile),
        **find_decision(rows),
    }
