"""What the format of an array and the client that reads it decide, each as it is usually read."""

from helpers.book.studies import Study, Threshold

STUDY = Study(
    name="formats",
    headline="fastest-installable",
    thresholds=(
        Threshold(
            key="share-of-ceiling",
            name="formats: best installable client over the ceiling",
            bound=0.95,
            is_least=True,
            how="stored bytes per second of the fastest client that can be installed, opening left out, over raw reads of the same objects with as many requests in flight",
        ),
        Threshold(
            key="median-prediction-error",
            name="formats: prediction error (%)",
            bound=20,
            is_least=False,
            how="predicted against measured time of opening and reading, median over contenders and accesses; nothing that is predicted is used for the fit",
        ),
    ),
)
