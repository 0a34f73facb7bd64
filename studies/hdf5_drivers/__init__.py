"""How long reading HDF5 files from object storage takes, by driver and layout."""

from collections.abc import Callable, Mapping
from typing import Any

from helpers.book.studies import Study, Threshold, later
from helpers.errors import UserError


def _set_up(say: Callable[[str], None]) -> None:
    """Build HDF5 with ROS3 if it can be; the pages say so where it is absent."""
    from studies.hdf5_drivers import ros3

    try:
        ros3.build_ros3(say)
    except UserError as error:
        say(f"going on without it: {error}")


def _at_most(bound: float, key: str, name: str, how: str) -> Threshold:
    return Threshold(key=key, name=f"HDF5: {name}", bound=bound, is_least=False, how=how)


def count_work(values: Mapping[str, Any]) -> tuple[float, float]:
    """Count reads, and reads times photons: requests grow with the first, bytes with the second.

    Examples
    --------
    >>> drivers = {"drivers": ["a", "b"], "file_layouts": ["x"], "more_drivers": [], "more_layouts": []}
    >>> count_work({**drivers, "n_blocks": 5, "n_photons": 1000})
    (10, 10000)
    """
    pairs = (("drivers", "file_layouts"), ("more_drivers", "more_layouts"))
    n_reads = sum(len(values[one]) * len(values[other]) for one, other in pairs)
    n_reads *= values["n_blocks"]
    return n_reads, n_reads * values["n_photons"]


_EXACT = "deterministic caches, median"

STUDY = Study(
    name="hdf5-drivers",
    headline="headline",
    set_up=_set_up,
    # what the published case asks for, scaled
    expect=later("advisors.costs.page_tables", "expect_like", "hdf5-drivers/in-region", count_work),
    fragments={
        "hdf5-score.md": later("advisors.hdf5.scoring", "render_score"),
        "hdf5-sizes.md": later("studies.hdf5_drivers.sizes", "render_sizes"),
        "hdf5-granules.md": later("studies.hdf5_drivers.granules", "render_granules"),
        "hdf5-sizes.svg": later("studies.hdf5_drivers.sizes", "draw_sizes"),
    },
    thresholds=(
        Threshold(
            key="gain-both",
            name="HDF5: tuned and repacked over untuned and as written",
            bound=20,
            is_least=True,
            how="a file object without a cache on the file as written over tuned settings on the repack that suits them best; its page says what the rest waits for",
        ),
        _at_most(
            5,
            "target-requests-to-open",
            "requests to open a repacked file",
            "by tuned settings on the repack that suits them best, counted by the proxy",
        ),
        _at_most(
            15,
            "replay-error-time",
            "error of replayed times (%)",
            "tuned drivers predicted from the trace of the untuned one and a calibration, median",
        ),
        _at_most(2, "replay-error-requests", "error of replayed requests (%)", _EXACT),
        _at_most(2, "replay-error-bytes", "error of replayed bytes (%)", _EXACT),
        _at_most(
            20,
            "advisor-worst-error",
            "error of the advisor's gain, one gridded file (%)",
            "as netCDF4-python, ncgen and h5repack write it, each first byte at its mean, the largest",
        ),
        _at_most(
            20,
            "score-worst-error",
            "error of the advisor's gain, by the wall clock (%)",
            "files of several producers, the largest; repacked they take few requests, whose drawn delays scatter",
        ),
    ),
)
