"""Costs that made the times of accesses come back from a fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.models.access import IoCounts, Store
from helpers.models.transfer import Network
from studies.chunk_shape import prediction
from studies.chunk_shape.prediction import Observation, fit_store, predict_median

IN_REGION = Network(0.03, 0.1, 36e6, 200e6, 2200)
COSTS = st.tuples(
    *(st.floats(*each) for each in ((1e-4, 0.1), (1e-5, 1e-2), (1e-10, 1e-8), (1e-4, 1e-2))),
    st.floats(1e-10, 1e-8),
)
POINTS = [
    # chunks, their bytes, shards or seeks, bytes stored
    (1, 1e3, 1, 900), (10, 1e6, 2, 2e5), (100, 1e5, 7, 6e4), (300, 1e4, 4, 100),
    (5, 1e7, 5, 1e7), (40, 1, 40, 1), (60, 1e5, 1, 1e4),
]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(COSTS, st.sampled_from([Store(), Store(IN_REGION, 10), Store(is_file=True)]), st.booleans())
def test_a_fit_finds_what_made_the_times(
    costs: tuple[float, ...], store: Store, is_told: bool
) -> None:
    """Times come back from the costs that made them, whether or not stored bytes are told."""
    made = replace(
        store, **dict(zip(prediction.COSTS, costs if is_told else costs[:4], strict=False))
    )
    loads = [
        IoCounts(n, each, runs, 0, stored if is_told else 0) for n, each, runs, stored in POINTS
    ]
    seen = [Observation(predict_median(made, load), load) for load in loads]
    fitted = fit_store(store, seen)
    assert (fitted.network, fitted.n_connections) == (store.network, store.n_connections)
    assert is_told or fitted.stored_s_per_nbyte == 0
    for each in seen:
        assert predict_median(fitted, each.counts) == pytest.approx(each.seconds, rel=0.01)


def test_the_median_is_over_accesses() -> None:
    """Of three accesses the middle one counts, and what is stored is what it costs to inflate."""
    load = IoCounts([1, 2, 9], 10, stored_nbytes=[5, 4, 1])
    assert predict_median(Store(stored_s_per_nbyte=1.0), load) == 8
    assert predict_median(Store(chunk_s=1.0), load) == 2
