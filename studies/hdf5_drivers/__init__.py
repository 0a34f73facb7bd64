"""How long reading HDF5 files from object storage takes, by driver and layout."""

from collections.abc import Callable

from helpers.book.studies import Study, Threshold
from helpers.errors import UserError


def _set_up(say: Callable[[str], None]) -> None:
    """Build HDF5 with ROS3 if it can be; the pages say so where it is absent."""
    from studies.hdf5_drivers import ros3

    try:
        ros3.build_ros3(say)
    except UserError as error:
        say(f"going on without it: {error}")


STUDY = Study(
    name="hdf5-drivers",
    headline="headline",
    set_up=_set_up,
    thresholds=(
        Threshold(
            key="ratio-untuned-original-to-best",
            name="HDF5: tuned and repacked over untuned and as written",
            bound=20,
            is_least=True,
            how="time of the slowest driver and layout over that of the fastest; its page says what the rest waits for",
        ),
        Threshold(
            key="requests-to-open-best",
            name="HDF5: requests to open a repacked file",
            bound=5,
            is_least=False,
            how="counted by the proxy",
        ),
        Threshold(
            key="replay-error-time",
            name="HDF5: error of replayed times (%)",
            bound=15,
            is_least=False,
            how="tuned drivers predicted from the trace of the untuned one and a calibration, median",
        ),
        Threshold(
            key="replay-error-requests",
            name="HDF5: error of replayed requests (%)",
            bound=2,
            is_least=False,
            how="deterministic caches, median",
        ),
        Threshold(
            key="replay-error-bytes",
            name="HDF5: error of replayed bytes (%)",
            bound=2,
            is_least=False,
            how="deterministic caches, median",
        ),
        Threshold(
            key="advisor-worst-error",
            name="HDF5: error of the advisor's gain (%)",
            bound=20,
            is_least=False,
            how="on three files that it was not developed on, the largest",
        ),
    ),
)
