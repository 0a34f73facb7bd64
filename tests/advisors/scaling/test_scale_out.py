"""What the page on scaling out shows is what the simulation of today finds."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from advisors.scaling import scale_out, validation


def test_every_read_is_kept() -> None:
    """No more and no fewer, each of its own size."""
    kept, reads = scale_out.read_simulated(), scale_out.list_reads()
    assert {name: [one.n_workers for one in found] for name, found in kept.items()} == {
        name: [read.n_workers for read in asked] for name, asked in reads.items()
    }


@pytest.mark.parametrize("label", scale_out.list_reads())
def test_kept_reads_are_those_of_the_simulation(label: str) -> None:
    """`wire simulate --derive` would not change the first that is large enough to be limited."""
    reads = scale_out.list_reads()[label]
    place = 0 if label in scale_out.TAILS else scale_out.SIZES.index(100)
    kept, found = (asdict(one) for one in (scale_out.read_simulated()[label][place], reads[place].simulate()))  # fmt: skip
    for name in ("shares", "chunk_s"):
        assert found.pop(name) == pytest.approx(kept.pop(name), rel=1e-6), "run `wire simulate --derive`"  # fmt: skip
    assert found == pytest.approx(kept, rel=1e-6), "run `wire simulate --derive`"


def test_kept_checks_are_of_every_curve() -> None:
    """Each published curve is there, and the first is as the simulation has it."""
    curves, kept = validation.list_curves(), validation.check_published()
    assert [*kept] == [kind.name for kind in curves]
    kind, runs = next(iter(curves.items()))
    for one, found in zip(kept[kind.name], validation.check_curve(kind, runs), strict=True):
        assert one.predicted_s == pytest.approx(found.predicted_s, rel=1e-6), "run `wire simulate --derive`"  # fmt: skip
        assert (one.n_workers, one.measured_s) == (found.n_workers, found.measured_s)
