"""Pictures of published figures and ours: what is drawn where, in which colour."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from helpers.findings import Finding
from runner import claim_plots
from runner.published import RESPECTS, PublishedClaim

ALIKE = dict.fromkeys(RESPECTS, "alike")
CLAIMS = {
    "faster": PublishedClaim(
        study="a", says="it is faster", at_least=8, at_most=12, no_effect=1, alike_in=ALIKE
    ),
    "any": PublishedClaim(study="a", says="it has no size", alike_in=ALIKE),
    "open": PublishedClaim(study="a", says="it was not measured", at_least=2, alike_in=ALIKE),
}
FINDINGS = {
    "faster": {"x/y": Finding(10.0, 9.0, 11.0), "x/z": Finding(2.0, 1.5, 2.5)},
    "any": {"x/y": Finding(3.0, 2.0, 4.0)},
}


@pytest.mark.parametrize(("name", "size"), [("faster", math.sqrt(96)), ("open", 2.0)])
def test_a_claim_without_a_published_figure_is_drawn_at_its_bounds(name: str, size: float) -> None:
    """The middle of both, or the one that there is."""
    assert claim_plots.find_size(CLAIMS[name]) == pytest.approx(size)


def test_claims_without_size_or_figure_are_not_drawn() -> None:
    """A logarithmic axis shows neither."""
    assert math.isnan(claim_plots.find_size(CLAIMS["any"]))
    assert claim_plots.list_drawn(CLAIMS, FINDINGS) == ["faster"]


def test_a_dot_has_the_colour_of_its_verdict() -> None:
    """One figure inside the bounds, and one between no effect and the claim."""
    fig = claim_plots.draw_claims(CLAIMS, FINDINGS)
    ax = fig.axes[0]
    dots = {
        round(float(line.get_xdata()[0]), 3): to_hex(line.get_color())  # type: ignore[index, arg-type]
        for line in ax.get_lines()
        if line.get_marker() == "o"
    }
    size = math.sqrt(96)
    colours = claim_plots.VERDICT_COLOURS
    assert dots[round(10 / size, 3)] == colours["same"]
    assert dots[round(2 / size, 3)] == colours["weaker here"]


def test_a_strip_has_a_panel_for_what_is_compared() -> None:
    """Theirs hollow and ours filled, at the same places."""
    ratios = pd.DataFrame(
        {
            "what": ["NetCDF", "NetCDF", "nworkers == 2"],
            "over": ["Zarr Group", "Zarr Group", "nworkers == 1"],
            "at": ["4", "1", "Zarr Group"],
            "published": [3.0, 4.0, 0.5],
            "ours": [2.0, 1.5, 0.6],
            "low": [1.8, 1.2, 0.5],
            "high": [2.2, 1.9, 0.7],
        }
    )
    fig = claim_plots.draw_strip(ratios)
    titles = [ax.get_title().replace("\n", " ") for ax in fig.axes]
    assert titles == ["NetCDF over Zarr Group", "over 1 worker"]
    assert [label.get_text() for label in fig.axes[0].get_xticklabels()] == ["1", "4"]
    assert [label.get_text() for label in fig.axes[1].get_xticklabels()] == ["2 workers"]


def test_growth_of_the_repetition_is_read() -> None:
    """Of Zarr and netCDF, from one worker on."""
    rates = claim_plots.read_our_rates()
    assert {*rates["reader"]} == {"Zarr", "netCDF"}
    growth = claim_plots.compute_growth(rates[rates["reader"] == "Zarr"])
    assert growth["growth"].iloc[0] == 1 and growth["growth"].is_monotonic_increasing
