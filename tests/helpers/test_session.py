"""A notebook's session: parameters at the door, one record, what it opened ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.benchmark.contender import Contender, Steps
from helpers.benchmark.record import read_rows
from helpers.findings import Claim, Finding, read_findings
from helpers.parameters import Parameters
from helpers.session import Session
from tests.refusals import refused
from wire.bed.locations import Location
from wire.bed.networks import Profile


class Made(Parameters):
    """Parameters of no study of the book."""

    study = "made"


class Made64(Steps):
    """Reads 64 bytes of nothing."""

    def settings(self) -> dict[str, Any]:
        return {"cache_state": "none"}

    def nbytes(self) -> tuple[int, int]:
        return 64, 64

    def read(self, _opened: None, /) -> int:
        return 64

    def check(self, result: int, /) -> str:
        return f"{result} bytes counted"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.chdir(tmp_path)
    return Session(Made, {"n_blocks": 2, "pandas": object()})


CONTENDERS = [Contender("a", Made64()), Contender("b", Made64(), control_of="a")]


def test_rows_and_findings_lie_next_to_each_other(session: Session) -> None:
    """Calibration, blocks and what was found are those of one case."""
    session.calibrate(CONTENDERS[:1], n_warm_ups=0)
    rows = session.measure(CONTENDERS)
    session.findings["reads"] = len(rows)
    session.claims["some"] = Claim(len(rows) > 1, of="reads")
    shown = session.finish(noise=0.01)
    phases = [(row.study, row.phase, row.block) for row in read_rows(Path("record.csv"))]
    assert sorted(phases) == sorted(
        [("made", "calibration", 0), *[("made", "measured", n) for n in (0, 0, 1, 1)]]
    )
    found = read_findings(Path("record.csv"))
    assert found["reads"].value == 5 and found["some"].value == 1 and found["n-blocks"].value == 2
    assert shown.loc["some", "value"] == "holds"
    assert session.count_rows().loc["measured", "ended by"] == "blocks"


def test_what_it_opened_ends_with_it(session: Session) -> None:
    """Whichever way it ends, last opened first, and once."""
    ended = []

    @contextmanager
    def open_one(name: str) -> Iterator[str]:
        yield name
        ended.append(name)

    with pytest.raises(ZeroDivisionError), session:
        assert [session.open(open_one(name)) for name in "ab"] == ["a", "b"]
        _ = 1 / 0
    session.close()
    assert ended == ["b", "a"]


class Seeded(Made):
    """Parameters with what a store needs."""

    seed: int = 7


class Network:
    """A testbed that notes what it emulates."""

    def __init__(self) -> None:
        self.near = self.far = Location("s3", "bucket")
        self.profiles: list[str] = []

    def emulate(self, profile: Profile, *, dilation: float) -> None:
        self.profiles.append(f"{profile.name} {dilation:g}")


def test_services_have_the_network_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They open as the store did, and whatever is emulated later is emulated before each."""
    monkeypatch.chdir(tmp_path)
    store, opened_with = Network(), list[Any]()
    networks = {"google": Network(), "azure": Network()}

    @contextmanager
    def open_store(*_: Any, **__: Any) -> Iterator[Network]:
        yield store

    @contextmanager
    def open_services(names: list[str], *rest: Any, **__: Any) -> Iterator[dict[str, Network]]:
        opened_with.append(rest[-1].name)
        yield {name: networks[name] for name in names}

    monkeypatch.setattr("helpers.session.open_testbed", open_store)
    monkeypatch.setattr("helpers.session.services.open_services", open_services)
    with Session(Seeded, {"profile": "in-region"}) as session:
        session.open_store()
        assert {*session.open_services(["google"], store.near, [])} == {"google"}
        assert {*session.open_services(["azure"], store.near, [])} == {"google", "azure"}
        assert opened_with == ["loopback", "loopback"]  # until something is measured
        session.emulate(dilation=2)
    assert store.profiles == ["in-region 2"]
    assert [network.profiles for network in networks.values()] == [store.profiles] * 2


def test_parameters_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """No record and no store is there."""
    with refused("parameters: n_blocks", "^0$"):
        Session(Made, {"n_blocks": 0, "record": str(tmp_path / "x.csv")})
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("value", ["fast", None, True, [1.0], {"value": 1}])
def test_a_finding_is_a_number_or_what_statistics_return(session: Session, value: Any) -> None:
    """Another value is refused by key where it is assigned, by `|=` too."""
    with refused("findings: gain"):
        session.findings["gain"] = value
    findings = session.findings
    with refused("findings: gain"):
        findings |= {"gain": value}


def test_a_claim_is_of_findings_that_were_assigned(session: Session) -> None:
    """An unknown key is refused where it is assigned, and so is what neither holds nor does not."""
    session.findings["gain"] = Finding(2.0)
    session.claims["helps"] = Claim(True, of="gain")
    with refused("claims: hurts", "^of loss"):
        session.claims["hurts"] = Claim(True, of="loss")
    with refused("claims: helps", "^2"):
        session.claims["helps"] = 2
