"""How read throughput grows with the number of workers, and what ends the growth."""

from helpers.book.studies import Study, Threshold


def _render_score() -> str:
    """Write how well the fit of a curve extrapolates; imported when it is asked for."""
    from advisors.scaling.score import render_score

    return render_score()


STUDY = Study(
    name="cluster-scaling",
    headline="best-throughput",
    cover=("in-region", "fig-scaling"),
    minutes=12,
    fragments={"scaling-score.md": _render_score},
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
