"""How read throughput grows with the number of workers, and what ends the growth."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from helpers.book.studies import Study, Threshold

_RECORDS = Path(__file__).resolve().parents[2] / "results" / "reference" / "cluster-scaling"


def _render(room: str, name: str, *given: object) -> Callable[[], str]:
    """Write a part of the page on scaling out, by a room that is imported when it is asked for."""
    return lambda: str(getattr(import_module(f"advisors.scaling.{room}"), name)(*given))


STUDY = Study(
    name="cluster-scaling",
    headline="best-throughput",
    cover=("in-region", "fig-scaling"),
    minutes=12,
    fragments={
        "scaling-score.md": _render("score", "render_score"),
        "scale-out-petabyte.md": _render("scale_out", "render_petabyte"),
        "scale-out-petabyte.svg": _render("figures", "draw_petabyte"),
        "scale-out-slots.svg": _render("figures", "draw_shares"),
        "scale-out-tails.md": _render("scale_out", "render_tails"),
        "scale-out-tails.svg": _render("figures", "draw_tails"),
        "scale-out-validation.md": _render("validation", "render_validation", _RECORDS),
        "scale-out-knee.md": _render("validation", "render_knee"),
        "scale-out-scheduler.md": _render("scheduler", "render_scheduler"),
        "scale-out-stores.md": _render("synthetic", "render_stores"),
    },
    thresholds=(
        Threshold(
            key="median-prediction-error",
            name="cluster scaling: prediction error (%)",
            bound=20,
            is_least=False,
            how="predicted against measured read time, median over contenders and points; nothing that is predicted is used for the fit",
        ),
    ),
)
