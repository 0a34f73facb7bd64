"""Parameters that no study can run with are refused in one line, and their copies are in step."""

from __future__ import annotations

import ast
import json
import math
import re
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import papermill
import pytest
import yaml
from pydantic import Field
from pydantic.fields import FieldInfo

from helpers import parameters
from helpers.parameters import ArrayShape, Contains, DilationOrAuto, OneOf
from helpers.paths import ROOT
from runner import cases
from runner.cases import find_parameters, find_studies, find_study, list_studies
from tests.refusals import refused

MODELS = {name: find_parameters(name) for name in list_studies()}
CASES = sorted((ROOT / "parameters").glob("*/*/*.yaml"))
WHERE = "parameters/laptop/study/mine.yaml"


class Made(parameters.Parameters):
    """What fields of studies are made of."""

    names: Annotated[list[Annotated[str, OneOf(("a", "b"))]], Field(min_length=1), Contains("a")] = Field(["a"], description="x")  # fmt: skip
    others: Annotated[list[str], Contains("a", is_other=True)] = Field(["b"], description="x")
    sizes: list[Annotated[int, Field(ge=1, le=9)]] = Field([1], description="x")
    array_shape: ArrayShape = Field([1, 1, 100, 100], description="x")
    dilation: DilationOrAuto = Field(1.0, description="x")
    options: list[str] = Field([], description="x")


REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"store": "s3://key:PASSWORD@b/p"}, ["store", "***@b/p", "an address alone"]),
    ({"store": "https://b.s3.amazonaws.com/x?X-Amz-Signature=abcdef0123"}, ["store", "an address alone"]),
    ({"size": [1]}, ["size: [1]", "no such parameter", "sizes"]),
    ({"sizes": "4"}, ["sizes", "'4'", "a list"]),
    ({"sizes": [1, "2"]}, ["sizes", "'2'", "a whole number"]),
    ({"sizes": [0]}, ["sizes", "0", "at least 1"]),
    ({"sizes": [10]}, ["sizes", "10", "at most 9"]),
    ({"sizes": [2, 2]}, ["sizes", "2 twice", "each number once"]),
    ({"names": []}, ["names", "[]", "at least 1 in the list"]),
    ({"names": ["c"]}, ["names", "'c'", "'a' or 'b'"]),
    ({"names": ["b"]}, ["names", "['b']", "a list with 'a'"]),
    ({"names": ["a", "a"]}, ["names", "'a' twice", "each name once"]),
    ({"others": ["a"]}, ["others", "another than 'a'"]),
    ({"n_blocks": 2.5}, ["n_blocks", "2.5", "whole number"]),  # half a block
    ({"n_blocks": True}, ["n_blocks", "True", "a whole number"]),
    ({"time_budget_s": 0}, ["time_budget_s", "0", "above 0"]),
    ({"time_budget_s": math.inf}, ["time_budget_s", "inf", "a finite number"]),
    ({"seed": 2**32}, ["seed", "4294967296", "below 4294967296"]),
    ({"seed": None}, ["seed", "None", "a whole number"]),
    ({"store": 7}, ["store", "7", "text"]),
    ({"record": "../away.csv"}, ["record", "'../away.csv'", ".csv"]),
    ({"profile": "moon"}, ["profile", "'moon'", "loopback", "in-region", "or a profile's file"]),
    ({"array_shape": [4, 4, 4]}, ["array_shape", "[4, 4, 4]", "at least 4"]),
    ({"array_shape": [1] * 5}, ["array_shape", "at most 4 in the list"]),
    ({"array_shape": [1, 1, 1, 1]}, ["array_shape", "from 10000 to"]),  # takes no time to read
    ({"dilation": 0.5}, ["dilation", "0.5", "at least 1"]),
    ({"dilation": "ten"}, ["dilation", "'ten'"]),
    # A store of one's own has its own network, and its own time.
    ({"store": "s3://mine/x", "profile": "in-region"}, ["profile", "'in-region'", "loopback"]),
    ({"store": "s3://mine/x", "profile": "loopback", "dilation": 10.0}, ["dilation", "time is real"]),
    # What is refused shows no password.
    ({"options": {"password": "hunter-2"}}, ["options", "{'password': '***'}"]),
    ({"options": ["password=hunter-2", "password=hunter-2"]}, ["options", "password=***"]),
    ({"seed": f"s3://key:{60 * 'hunter-2'}@bucket"}, ["seed", "'s3://***@bucket'"]),
]  # fmt: skip


@pytest.mark.parametrize(("overrides", "words"), REFUSED, ids=lambda value: str(value)[:40])
def test_bad_values_are_named(overrides: dict[str, Any], words: list[str]) -> None:
    """One line has file, parameter, value and what is allowed."""
    with refused(f"{WHERE}.*", allowed=".") as caught:
        Made.check(overrides, WHERE)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "hunter" not in message


FIELDS = [(study, name) for study in MODELS for name in MODELS[study].model_fields]


@pytest.mark.parametrize(("study", "name"), FIELDS, ids=str)
def test_every_field_of_a_study_is_described(study: str, name: str) -> None:
    """It has a default and says what it means, seconds with their unit; None and a mapping are refused."""
    model = MODELS[study]
    one: FieldInfo = model.model_fields[name]
    for value in (None, {}):
        with refused(f"{WHERE}: {name}"):
            model.check({name: value}, WHERE)
    assert not one.is_required() and one.description and "\n" not in one.description
    extra = one.json_schema_extra
    assert not name.endswith("_s") or (isinstance(extra, dict) and extra["unit"] == "s")


@pytest.mark.parametrize("study", MODELS)
def test_what_is_made_of_a_model_is_in_step(study: str) -> None:
    """Papermill reads each parameter with its help out of the cell, and the schema takes the defaults."""
    model = MODELS[study]
    defaults = model().model_dump()
    assert model.read({**defaults, "pandas": object()}) == defaults
    shared = ROOT / "notebooks" / f"{study}.ipynb"
    for source in [shared] if shared.exists() else sorted(shared.parent.glob(f"{study}.*.ipynb")):
        told = papermill.inspect_notebook(str(source))
        if source == shared:
            values = {name: ast.literal_eval(about["default"]) for name, about in told.items()}
            assert values == defaults
        for name in told:
            assert told[name]["help"].startswith(model.model_fields[name].description)
            assert re.fullmatch(
                r"(list\[)*(str|int|float|bool)\]*", told[name]["inferred_type_name"]
            )
    schema = json.loads((ROOT / "parameters" / f"{study}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(defaults, schema)


def test_nothing_is_left_to_derive(tmp_path: Path) -> None:
    """The committed schemas and cells are what `wire derive` writes, and it mends what is not."""
    (tmp_path / "notebooks").mkdir()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = json.loads(path.read_text())
        [cell] = [
            cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", [])
        ]
        cell["source"] = ["n_blocks: int = 3  # of old"]
        (tmp_path / "notebooks" / path.name).write_text(json.dumps(notebook))
    changed = cases.write_derived(tmp_path)
    assert {path.name for path in changed if path.suffix == ".json"} == {
        f"{study}.schema.json" for study in MODELS
    }
    assert {path.stem.partition(".")[0] for path in changed if path.suffix == ".ipynb"} == {*MODELS}
    for path in changed:
        assert path.read_bytes() == (ROOT / path.relative_to(tmp_path)).read_bytes()
    assert cases.write_derived(tmp_path) == []


@pytest.mark.parametrize(
    "title", [f"{study}.{case}" for study in MODELS for case in MODELS[study].own_notebooks]
)
def test_the_notebook_of_a_case_has_defaults_that_its_study_can_run_with(title: str) -> None:
    """They are checked as a case file is."""
    told = papermill.inspect_notebook(str(ROOT / "notebooks" / f"{title}.ipynb"))
    values = {name: ast.literal_eval(about["default"]) for name, about in told.items()}
    MODELS[title.partition(".")[0]].check(values, title)


@pytest.mark.parametrize("path", CASES, ids=lambda path: "/".join(path.parts[-3:]))
def test_cases_are_what_their_study_can_run_with(path: Path) -> None:
    """A case file says first why it exists; editor and runner accept it."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    schema = json.loads((ROOT / "parameters" / f"{path.parts[-2]}.schema.json").read_text())
    jsonschema.validate(yaml.safe_load(text) or {}, schema)
    cases.read_parameters(cases.Case(path.parts[-3], path.parts[-2], path.stem))


@pytest.mark.parametrize("name", list_studies())
def test_a_study_has_one_name(name: str) -> None:
    """That of its folder is that of its results and, from its parameters, that of each row."""
    assert (find_study(name).name, find_parameters(name).study) == (name, name)


def test_a_run_of_all_has_at_most_twelve_cases() -> None:
    """They fit in half an hour; what a study leaves out of it is one of its cases."""
    known = {path.parts[-2:] for path in CASES if path.parts[-3] == "laptop"}
    by_name = {
        (name, f"{one}.yaml") for name, study in find_studies().items() for one in study.by_name
    }
    assert by_name <= known
    assert len(known - by_name) <= 12
