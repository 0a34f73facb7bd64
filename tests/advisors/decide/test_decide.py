"""``wire decide``: answers in words and as JSON, and questions that contradict themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from advisors.costs.assumptions import OPTIONS
from advisors.decide.cli import decide
from advisors.decide.question import Question
from advisors.decide.ranking import Answer
from advisors.decide.ranking import decide as find_answer
from helpers.book.studies import find_study
from helpers.errors import UserError

SMALL = {"shape": "8760,100,120"}


def ask(**given: Any) -> Answer:
    """Answer a question about an array of 420 MB, unless another is given."""
    return find_answer(Question.ask(**{**SMALL, **given}))


def run(*options: str) -> str:
    """Run the command and return what it prints."""
    found = CliRunner().invoke(decide, list(options), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_the_command_ranks_and_explains() -> None:
    """Each choice has its layout, times, bill and support; the first its code; JSON holds the same."""
    options = ("--shape", "8760,100,120", "--access", "series:0.8,map:0.2")
    out = run(*options)
    for part in ("1. Zarr", "chunks ", "series (80 %): median", "requests", "storage", "To paste:"):
        assert part in out
    found = json.loads(run(*options, "--json"), parse_constant=pytest.fail)
    assert found["question"]["store"] == "in-region"
    first = found["choices"][0]
    assert f"1. {first['label']}: {first['usd_month']:,.2f} USD a month" in out
    assert {one["access"] for one in first["forecasts"]} == {"series", "map"}
    for choice in found["choices"]:
        for one in choice["forecasts"]:
            assert 0 < one["p50_s"] <= one["p95_s"]
            assert one["n_requests"] >= 1 and one["nbytes"] > 0 and one["limit"]


def test_chunks_follow_the_accesses() -> None:
    """Who reads series alone gets longer chunks than who reads maps alone."""
    lengths = [ask(access=f"{what}:1").choices[0].chunk_shapes[0][0] for what in ("series", "map")]
    assert lengths[0] > lengths[1]


def test_many_objects_come_in_shards() -> None:
    """The array of a reanalysis is sharded, and a copy without shards is no better."""
    found = ask(shape="87600,721,1440", arrays=55)
    best = found.choices[0]
    assert best.shard_shape is not None
    for shard, chunk in zip(best.shard_shape, best.chunk_shapes[0], strict=True):
        assert shard % chunk == 0
    assert "Before zarr 3.3" in best.limits


def test_a_second_copy_has_to_pay() -> None:
    """Where nothing is read, one copy stands first; with as much reading as that, two."""
    seldom, often = ask(reads_per_month=0), ask(reads_per_month=10**12)
    assert seldom.choices[0].n_copies == 1 and often.choices[0].n_copies == 2
    two = next(one for one in seldom.choices if one.n_copies == 2)
    assert "accesses a month on" in two.limits and "e+" not in two.limits
    assert two.usd["storage"] == pytest.approx(2 * seldom.choices[0].usd["storage"])


def test_a_budget_puts_what_is_dearer_last() -> None:
    """Choices above the budget are marked, and stand behind those that fit."""
    usd = sorted(one.usd_month for one in ask().choices)
    found = ask(budget_usd_month=(usd[0] + usd[-1]) / 2).choices
    assert [one.is_over_budget for one in found] == sorted(one.is_over_budget for one in found)
    assert not found[0].is_over_budget and found[-1].is_over_budget
    assert all(one.is_over_budget for one in ask(budget_usd_month=1e-9).choices)


def test_files_that_stay_as_they_are() -> None:
    """Without rewriting, no choice writes: blocks, the whole file, references."""
    found = ask(shape="75000000", access="whole:1", chunks="10000", may_rewrite=False).choices
    assert {one.format for one in found} == {"hdf5", "references"}
    assert all(one.chunk_shapes == ((10000,),) for one in found)
    assert not any("rewritten" in one.label for one in found)
    whole = next(one for one in found if "fetched whole" in one.label)
    blocks = next(one for one in found if "in blocks" in one.label)
    assert whole.seconds < blocks.seconds and whole.n_in_flight > blocks.n_in_flight == 1


def test_hdf5_that_must_stay_may_be_rewritten() -> None:
    """A file that may be written anew gets chunks of its own, and no Zarr."""
    found = ask(must_stay="hdf5", access="series:1", reader="h5py").choices
    assert {one.format for one in found} == {"hdf5"}
    new = next(one for one in found if "rewritten" in one.label)
    assert new.chunk_shapes[0][0] > 1000 and "taken as h5py chooses" not in new.limits


def test_a_file_larger_than_memory_is_not_fetched_whole() -> None:
    """What does not fit in half of the memory is read in blocks."""
    labels = [one.label for one in ask(must_stay="hdf5", memory_gb=0.5).choices]
    assert labels and not any("fetched whole" in label for label in labels)


def test_a_service_is_ranked_by_its_bill() -> None:
    """Each place of a cache is priced, and has the times of a record where there is one."""
    found = ask(
        access="1x50x60@aligned:1", requests_per_s=185, datasets=100, change_every_s=86400
    ).choices
    assert len(found) == len(OPTIONS) and {one.cache for one in found} >= {"Redis", "no cache"}
    assert [one.usd_month for one in found] == sorted(one.usd_month for one in found)
    for one in found:
        assert one.forecasts[0].p50_s is not None and one.support.case and one.n_workers >= 1


@pytest.mark.parametrize("store", ["express", "wide-area"])
def test_a_case_to_run_where_nothing_was_measured(store: str) -> None:
    """Over a network without a record of that kind, a case file says what to run; its study takes it."""
    found = ask(store=store, compression=2).choices[0].support
    if found.confidence == "measured":
        assert found.case_file == ""
        return
    given = yaml.safe_load(found.case_file)
    study = find_study(found.case.partition("/")[0])
    assert study.parameters.check(given, "case")["profile"] == store


def test_a_reader_that_nobody_measured_is_uncertain() -> None:
    """GDAL gets a layout and times, but no support and no code."""
    found = ask(reader="gdal").choices[0]
    assert found.support.confidence == "uncertain" and found.support.case == "" and not found.code
    assert "uncertain" in run("--shape", "8760,100,120", "--reader", "gdal")


def test_the_client_is_one_that_the_reader_has() -> None:
    """What reads by h5py alone is offered no Zarr, and who reads Zarr alone no file object."""
    assert {one.format for one in ask(reader="h5py").choices} == {"hdf5"}
    assert {one.format for one in ask(reader="zarr", may_rewrite=False).choices} == {"references"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "shape: none"),
        (("--shape", "0,10"), r"shape: \[0, 10\]"),
        (("--shape", "ten"), "shape: 'ten'"),
        (("--shape", "10,10", "--type", "float33"), "dtype: 'float33'"),
        (("--shape", "10,10", "--access", "zigzag:1"), "access: 'zigzag'"),
        (("--shape", "10,10", "--access", "20x1:1"), r"access: \[20, 1\]"),  # more than there is
        (("--shape", "10,10", "--access", "2x2x2:1"), r"access: \[2, 2, 2\]"),
        (("--shape", "10,10", "--access", "series:often"), "access: 'series:often'"),
        (("--shape", "10,10", "--access", "series:0,map:0"), r"weights: \[0.0, 0.0\]"),
        (("--shape", "10,10", "--access", "series:-1,map:2"), r"weights: \[-1.0, 2.0\]"),
        (("--shape", "10,10", "--access", "series:nan"), r"weights: \[nan\]"),
        (("--shape", "10,10", "--access", "series:1,series:1"), "access: 'series' is there twice"),
        (("--shape", "10,10", "--access", ""), "access: ''"),
        (("--shape", "10,10", "--store", "moon"), "'moon'"),
        (("--shape", "10,10", "--budget-usd-month", "0"), "budget_usd_month: 0"),
        (("--shape", "10,10", "--budget-usd-month", "-5"), "budget_usd_month: -5"),
        (("--shape", "10,10", "--budget-usd-month", "nan"), "budget_usd_month: nan"),
        (("--shape", "10,10", "--cores", "0"), "cores: 0"),
        (("--shape", "10,10", "--memory", "0"), "memory_gb: 0"),
        (("--shape", "10,10", "--memory", "1e-9"), "memory_nbytes: 1"),
        (("--shape", "10,10", "--compression", "0"), "compression: 0"),
        (("--shape", "10,10", "--reads-per-month", "-1"), "reads_per_month: -1"),
        (("--shape", "10,10", "--reader", "ncview"), "reader: 'ncview'"),
        (("--shape", "10,10", "--chunks", "20,20"), r"chunks: \[20, 20\]"),
        (("--shape", "10,10", "--datasets", "10"), "datasets: 10"),  # of no service
        (("--shape", "10,10", "--requests-per-s", "0"), "requests_per_s: 0"),
        (("--shape", "10,10", "--requests-per-s", "1e9"), "requests_per_s"),
    ],
)  # fmt: skip
def test_bad_questions_are_one_line(options: tuple[str, ...], message: str) -> None:
    """What cannot be asked says what it is, and what is allowed."""
    with pytest.raises(UserError, match=message) as caught:
        CliRunner().invoke(decide, list(options), catch_exceptions=False)
    assert "\n" not in str(caught.value) and "allowed" in str(caught.value)


def test_two_copies_are_read_where_they_serve() -> None:
    """The lines read the access that happens most, from the copy that is cut for it."""
    for access, selection in (("series:9,map:1", "[:, 0, 0]"), ("series:1,map:9", "[0, :, :]")):
        two = next(one for one in ask(access=access).choices if one.n_copies == 2)
        usual = access.partition(":")[0] if access.endswith("1") else "map"
        first = two.label.partition(" a copy for ")[2].partition(" ")[0]
        assert f'values = dataset["field"]{selection}.values' in two.code
        reading = two.code.rpartition("import xarray")[2]
        assert f"copy-{1 if usual == first else 2}.zarr" in reading


def test_no_more_workers_than_chunks() -> None:
    """A read of one chunk keeps one worker busy, however many processors there are."""
    found = ask(access="series:1", cores=64).choices[0]
    assert found.forecasts[0].n_requests < 2.5 and found.n_workers == 1
