"""The planted cause is the first finding, and what is not slow has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.stores import make_location
from tests.wire.trace.programs import HEADS, NEAR, PROGRAMS, SEVERAL
from tests.wire.trace.watched import watch, write_store
from wire.bed.locations import Location
from wire.bed.testbed import Server
from wire.models.transfer import Network
from wire.trace import cli, findings, render
from wire.trace.causes import REGISTRY
from wire.trace.causes.clients import CLIENTS
from wire.trace.rows import Bypass, Run, TracedRequest
from wire.trace.whatif import Edit, EditedRequest, Trace, keep, split


@pytest.fixture(scope="module")
def near(server: Server) -> Location:
    """Store what the programs read."""
    location = make_location(server, "arrays")
    write_store(location)
    return location


@pytest.mark.slow
def test_planted_causes_come_first(near: Location) -> None:
    """Of thirty programs with one cause each it is the first finding in 27, and six that are fine have none."""
    missed, alarmed = [], []
    for number, program in enumerate(PROGRAMS):
        run = watch(program.text, near, program.network)
        names = [finding.name for finding in findings.find(run)]
        if program.cause and names[:1] != [program.cause]:
            missed.append((number, program.cause, program.client, names))
        if not program.cause and names:
            alarmed.append((number, program.client, names))
    print("missed:", *missed, "false alarms:", *alarmed, sep="\n")
    assert len(missed) <= 3, missed
    assert not alarmed


@pytest.mark.slow
def test_every_phase_of_a_program_has_its_cause(near: Location) -> None:
    """Of programs with two or three causes on lines of their own all are found, but in one."""
    missed = []
    for client, causes, body in SEVERAL:
        run = watch(HEADS[client] + body, near, NEAR)
        names = {finding.name for finding in findings.find(run)}
        if not causes <= names:
            missed.append((client, causes - names, names))
    print("missed:", *missed, sep="\n")
    assert len(missed) <= 1, missed


def chain(
    n: int, *, key: str = "/b/f{i}", wait_s: float = 0.1, think_s: float = 0.0, **more: object
) -> list[TracedRequest]:
    """Make requests one after the other, each with its number in the key."""
    step_s = wait_s + think_s
    return [
        TracedRequest(step_s * i, step_s * i + wait_s, step_s * i + wait_s, method="GET", key=key.format(i=i), status=200, nbytes=1000, **more)  # type: ignore[arg-type]
        for i in range(n)
    ]  # fmt: skip


def run_of(rows: Sequence[TracedRequest], wall_s: float = 0.0, **more: object) -> Run:
    """Make the run of some requests, which began with the first."""
    return Run(rows, wall_s or max(row.end_s for row in rows), 0.0, 0, **more)  # type: ignore[arg-type]


ROWS = chain(10, wait_s=0.1, think_s=0.01)
CASES = [
    # as it was: ten waits and nine pauses
    (Edit(keep(ROWS)), 1.09),
    # every second one: its pause stays
    (Edit(keep(ROWS, range(1, 10, 2))), 0.58),
    # all but the first at once, after the first: but what was computed in between is computed in turn
    (Edit(keep(ROWS), frozenset(range(1, 10))), 0.21),
    # five at a time
    (Edit(keep(ROWS), frozenset(range(10)), 5), 0.22),
    # two as one, of a wait: the pause between them stays, but for the 5 ms of the client
    (Edit([EditedRequest((2 * i, 2 * i + 1), 0.0) for i in range(5)]), 0.565),
    # first bytes sooner
    (Edit(keep(ROWS), less_s=0.05), 0.59),
]


@pytest.mark.parametrize(("edit", "seconds"), CASES)
def test_edits_take_what_arithmetic_says(edit: Edit, seconds: float) -> None:
    """Ten requests of 100 ms with 10 ms between two, and what they take if asked otherwise."""
    assert Trace(run_of(ROWS)).seconds(edit, Network()) == pytest.approx(seconds, abs=1e-3)


def test_a_body_in_parts_takes_a_tenth() -> None:
    """Ten streams bring ten times as much; eleven parts are two waves."""
    row = TracedRequest(0.0, 0.1, 1.1, method="GET", key="/b/f", status=200, nbytes=100_000)
    network = Network(stream_nbytes_per_s=100_000)
    times = [
        Trace(run_of([row])).seconds(Edit(split(keep([row]), [0], n)), network)
        for n in (10_000, 9_100)
    ]
    assert times == pytest.approx([0.2, 0.1 + 2 / 11 + 0.1], abs=1e-3)


def test_a_joined_body_begins_slowly() -> None:
    """Two bodies of 40 kB as one of 80: windows of 15, 29 and 36 kB, the last two a round trip later each."""
    rows = chain(2, is_first=True, handshake_s=0.2)
    found_s = Trace(run_of(rows)).seconds(Edit([EditedRequest((0, 1), 80_000)]), Network())
    assert found_s == pytest.approx(0.1 + 2 * 0.1)


def test_a_gain_that_the_trace_does_not_tell_is_one_at_most() -> None:
    """One stream does not show whether the link carries several; eight that flowed at full rate do."""
    alone = TracedRequest(0.0, 0.1, 4.1, method="GET", key="/b/f", status=200, nbytes=40_000_000)
    (found,) = findings.find(run_of([alone]))
    assert (found.name, found.is_bound) == ("one-stream", True)
    small = [
        replace(alone, key=f"/b/s{i}", nbytes=2_000_000, start_s=5, first_byte_s=5.1, end_s=5.3)
        for i in range(8)
    ]
    found = findings.find(run_of([alone, *small]))[0]
    assert (found.name, found.is_bound) == ("one-stream", False)


def test_chunks_of_a_shard_in_turn_are_found() -> None:
    """Twenty parts of one shard, each after the other; its index, which comes first, is waited for."""
    rows = chain(21, key="/b/a/c/0/0")
    for i, row in enumerate(rows):
        row.range_start, row.range_nbytes = 10_000_000 - 100_000 * i, 1000
    (found,) = findings.find(run_of(rows))
    assert (found.name, found.count) == ("in-turn", 21)
    assert found.seconds == pytest.approx(0.3, abs=0.01)
    # parts of a file may need one another: it gains so much at most
    (found,) = findings.find(run_of([replace(row, key="/b/f.nc") for row in rows]))
    assert (found.name, found.is_bound, found.least_gain) == ("parts-in-turn", True, 0.0)


def test_a_refusal_takes_its_back_off_with_it() -> None:
    """Without the refusal the request comes at once."""
    rows = [
        *chain(1, key="/b/f"),
        TracedRequest(1.1, 1.2, 1.2, method="GET", key="/b/f", status=200),
    ]
    rows[0].status = 503
    assert Trace(run_of(rows)).seconds(Edit(keep(rows, [0])), Network()) == pytest.approx(0.1)


def test_on_another_network_both_times_are_predicted() -> None:
    """Ten waits of 100 ms are ten of a second there, and the half second after them stays."""
    run = run_of(chain(10), wall_s=1.5)
    found = findings.report(run, ("slow", Network(1.0, 1.0)))
    assert found.predicted_s == pytest.approx(10.5)
    assert found.findings[0].name == "in-turn"
    assert found.findings[0].seconds == pytest.approx(1.5)


def test_a_wrong_result_comes_before_all_else() -> None:
    """Chunks that were refused are said first, unless the program failed too."""
    rows = chain(20, key="/b/a/c/{i}")
    rows[3].status = 403
    assert [one.name for one in findings.find(run_of(rows))] == ["failed", "in-turn"]
    failed = Run(rows, 2.0, 0.0, 1)
    assert [one.name for one in findings.find(failed)] == ["in-turn"]
    # asked again, and answered
    again = TracedRequest(2.0, 2.1, 2.1, method="GET", key="/b/a/c/3", status=200)
    assert [one.name for one in findings.find(run_of([*rows, again]))] == ["in-turn"]


def test_credentials_sought_past_the_gateway_are_found() -> None:
    """A client that asks the metadata service of a machine waits for nobody that the gateway sees."""
    past = [Bypass(1, "python", "169.254.169.254:80")]
    rows = chain(2)
    rows[1].start_s, rows[1].first_byte_s, rows[1].end_s = 4.0, 4.1, 4.1
    assert findings.find(run_of(rows, bypassed=past))[0].name == "credentials"


def test_the_line_is_that_of_the_client() -> None:
    """What s3fs is told is a setting of s3fs, which can be tried."""
    rows = chain(40, user_agent="aiobotocore/3.10.0")
    for number, row in enumerate(rows):
        row.key, row.method = f"/b/f{number // 2}", "GET" if number % 2 else "HEAD"
    found = {one.name: one for one in findings.find(run_of(rows))}
    assert found["looks"].setting == "max_concurrency=1"
    assert found["looks"].gain == pytest.approx(2.0, rel=0.05)


AGENTS = [
    ("aiobotocore/3.10.0", "/b/f{i}", ["s3fs"]),
    ("aiobotocore/3.10.0", "/b/a/c/{i}", ["zarr", "s3fs"]),
    ("Boto3/1.43.1", "/b/f{i}", ["boto3"]),
    ("Botocore/1.43.1", "/b/f{i}", ["boto3"]),
    ("object_store/0.12.0", "/b/a/c/{i}", ["zarr", "obstore"]),
    ("tensorstore/0.1", "/b/a/c/{i}", ["tensorstore"]),
    ("GDAL/3.12.0", "/b/a/c/{i}", ["gdal"]),
    ("duckdb/v1.4.0", "/b/f{i}.parquet", ["duckdb"]),
    ("aws-sdk-cpp/1.11", "/b/f{i}.parquet", ["arrow"]),
    ("python-httpx/0.28.1", "/b/f{i}", ["httpx"]),
    ("python-requests/2.33", "/b/f{i}", ["requests"]),
    ("curl/8.5.0", "/b/f{i}", ["curl"]),
    ("Go-http-client/1.1", "/b/f{i}", ["go"]),
    ("", "/b/f{i}", [""]),
    ("", "/b/a/c/{i}", ["zarr", ""]),
    ("SomethingNew/1.0", "/b/f{i}", [""]),
]


@pytest.mark.parametrize(("agent", "key", "clients"), AGENTS)
def test_a_remedy_is_in_the_words_of_its_client(agent: str, key: str, clients: list[str]) -> None:
    """What reads objects in turn is told what it can change, and nothing of another client."""
    rows = chain(20, key=key, user_agent=agent)
    assert findings.find_clients(rows) == clients
    (found,) = findings.find(run_of(rows))
    assert found.line == REGISTRY["in-turn"].remedy_for("", clients).text
    assert not found.setting  # no setting makes concurrent what a program asks for in turn


def test_settings_that_are_offered_can_be_tried() -> None:
    """Each is known, is no default, and acts on the client to which it is offered."""
    for name, cause in REGISTRY.items():
        assert not cause.remedy.setting, name
        for client, remedy in {**cause.clients, **cause.calls}.items():
            if remedy.setting:
                cli.refuse_default(remedy.setting, cli.read_setting(remedy.setting))
                agent = CLIENTS.get(client, ("aiobotocore/",))[0]
                run = run_of(chain(1, user_agent=f"{agent}1"))
                assert not findings.explain_no_effect(run, remedy.setting), (name, client)


def test_defaults_are_those_of_the_libraries() -> None:
    """What is refused as a default is one, in the versions that are installed."""
    import inspect

    import zarr
    from botocore.endpoint import MAX_POOL_CONNECTIONS
    from s3fs import S3FileSystem

    options = inspect.signature(S3FileSystem.__init__).parameters
    assert {
        "max_concurrency": str(options["max_concurrency"].default),
        "cache": options["default_cache_type"].default,
        "block_size": str(S3FileSystem.default_block_size),
        "pool": str(MAX_POOL_CONNECTIONS),
        # not what it is set to, which readers of other tests change
        "concurrency": str(zarr.config.defaults[0]["async"]["concurrency"]),
    } == cli.DEFAULTS


def test_a_gain_that_hangs_on_bandwidth_is_a_range() -> None:
    """It is not said to be at most so much: what no request shows can be better than what was assumed."""
    alone = TracedRequest(0.0, 0.1, 4.1, method="GET", key="/b/f", status=200, nbytes=40_000_000)
    found = findings.report(run_of([alone]))
    assert 0 < found.findings[0].least_gain < found.findings[0].gain
    text = "\n".join(render.render(found, ["x"]))
    assert (
        "x faster for these requests, for the trace does not show enough" in text
        and "at most 1 " in text
        and "at most 1x" not in text
    )
