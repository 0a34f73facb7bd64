"""Parameters that no study can run with are refused in one line, and their copies are in step."""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import annotated_types
import jsonschema
import nbformat
import papermill
import pytest
import yaml
from pydantic.fields import FieldInfo

from helpers.book import cases, pages, studies
from helpers.book.studies import OneOf, find_studies, find_study
from helpers.errors import UserError
from helpers.paths import ROOT

STUDIES = find_studies()
CASES = sorted((ROOT / "parameters").glob("*/*/*.yaml"))
WHERE = "parameters/laptop/study/mine.yaml"

REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    # Names and values as people mistype them.
    ("cluster-scaling", {"n_worker": [1]}, ["n_worker", "[1]", "no such parameter", "n_workers"]),
    ("cluster-scaling", {"n_workers": "4"}, ["n_workers", "'4'", "a list"]),
    ("cluster-scaling", {"n_workers": [1, "2"]}, ["n_workers", "'2'", "a whole number"]),
    ("cluster-scaling", {"n_workers": [0]}, ["n_workers", "0", "at least 1"]),
    ("cluster-scaling", {"n_workers": []}, ["n_workers", "[]", "at least 1 in the list"]),
    ("cluster-scaling", {"n_blocks": 2.5}, ["n_blocks", "2.5", "whole number"]),  # half a block
    ("cluster-scaling", {"n_blocks": True}, ["n_blocks", "True", "a whole number"]),
    ("cluster-scaling", {"time_budget_s": False}, ["time_budget_s", "False", "a number"]),
    ("cluster-scaling", {"time_budget_s": 0}, ["time_budget_s", "0", "above 0"]),
    ("cluster-scaling", {"time_budget_s": math.inf}, ["time_budget_s", "inf", "a finite number"]),
    ("cluster-scaling", {"target_width": math.inf}, ["target_width", "inf", "a finite number"]),
    ("cluster-scaling", {"target_width": math.nan}, ["target_width", "nan", "a finite number"]),
    ("cluster-scaling", {"seed": -1}, ["seed", "-1", "at least 0"]),
    ("cluster-scaling", {"seed": 2**32}, ["seed", "4294967296", "below 4294967296"]),
    ("cluster-scaling", {"seed": None}, ["seed", "None", "a whole number"]),
    ("cluster-scaling", {"profile": "moon"}, ["profile", "'moon'", "loopback", "in-region"]),
    ("cluster-scaling", {"store": 7}, ["store", "7", "text"]),
    ("cluster-scaling", {"record": "../away.csv"}, ["record", "'../away.csv'", ".csv"]),
    ("cluster-scaling", {"record": "away.txt"}, ["record", "'away.txt'", ".csv"]),
    ("cluster-scaling", {"dilation": 0.5}, ["dilation", "0.5", "at least 1"]),
    ("cluster-scaling", {"dilation": math.nan}, ["dilation", "nan", "a finite number"]),
    ("cluster-scaling", {"dilation": math.inf}, ["dilation", "inf", "a finite number"]),
    ("cluster-scaling", {"dilation": "ten"}, ["dilation", "'ten'", "a number"]),
    (
        "cluster-scaling",
        {"profile": "wide-area", "dilation": 10.0},
        ["profile", "'wide-area'", "in-region", "a link for each worker"],
    ),
    # Every worker is a process: 4096 take 1.1 TB, and 8 that hold 96 GB each do not fit either.
    (
        "cluster-scaling",
        {"n_workers": [1, 4096]},
        ["n_workers", "4096; each takes 0.26 GB and the rest 1, which are", "at most"],
    ),
    (
        "cluster-scaling",
        {
            "n_workers": [8],
            "array_shape": [2, 2000, 1000, 2000],
            "chunk_shape": [1, 1000, 1000, 2000],
        },
        ["n_workers", "8; each takes 96 GB", "at most 0, or smaller chunks"],
    ),
    # A store of one's own has its own network, and its own time.
    (
        "cluster-scaling",
        {"store": "s3://mine/x", "profile": "loopback", "dilation": 10.0},
        ["dilation", "10", "1, because time is real"],
    ),
    (
        "cluster-scaling",
        {"store": "s3://mine/x", "profile": "loopback", "dilation": "auto"},
        ["dilation", "auto", "1, because time is real"],
    ),
    (
        "cluster-scaling",
        {"profile": "wide-area", "dilation": "auto"},
        ["profile", "'wide-area'", "'auto'", "in-region"],
    ),
    (
        "cluster-scaling",
        {"store": "s3://mine/x", "profile": "in-region"},
        ["profile", "'in-region'", "loopback"],
    ),
    # Cluster scaling.
    ("cluster-scaling", {"contenders": ["zarr"]}, ["contenders", "'zarr'", "zarr-obstore, "]),
    ("cluster-scaling", {"codec": "gzip"}, ["codec", "'gzip'", "none, blosc-lz4, blosc-zstd"]),
    ("cluster-scaling", {"cluster_kind": "pbs"}, ["cluster_kind", "'pbs'", "local, gateway"]),
    ("cluster-scaling", {"dataset": "nothing"}, ["dataset", "'nothing'", "enlarged-ocean"]),
    ("cluster-scaling", {"array_shape": [4, 4, 4]}, ["array_shape", "[4, 4, 4]", "at least 4"]),
    ("cluster-scaling", {"array_shape": [1] * 5}, ["array_shape", "at most 4 in the list"]),
    (
        "cluster-scaling",
        {"chunk_shape": [1, 5, 999, 240]},
        ["chunk_shape", "[1, 5, 999, 240]", "array_shape"],
    ),
    ("cluster-scaling", {"chunk_shape": [1, 0, 10, 10]}, ["chunk_shape", "0", "at least 1"]),
    (  # workers that cannot reach the store
        "cluster-scaling",
        {"cluster_kind": "gateway", "cluster_address": "https://hub.example.org/gateway"},
        ["store", "'embedded'", "hub.example.org", "s3://BUCKET/PREFIX"],
    ),
    (
        "cluster-scaling",
        {"cluster_kind": "address", "cluster_address": "tcp://10.0.0.7:8786"},
        ["store", "10.0.0.7"],
    ),
    # Names of other registries, and bounds that keep a case from taking a week.
    ("chunk-shape", {"media": ["tape"]}, ["media", "'tape'", "hdf5, zarr, sharded"]),
    ("chunk-shape", {"extras": ["speed"]}, ["extras", "'speed'", "rewriting, codecs"]),
    ("hdf5-drivers", {"drivers": ["s3"]}, ["drivers", "'s3'", "fsspec-none, "]),
    ("hdf5-drivers", {"file_layouts": ["zip"]}, ["file_layouts", "'zip'", "original, "]),
    ("hdf5-drivers", {"tasks": ["all"]}, ["tasks", "'all'", "variables"]),
    (
        "caching-costs",
        {"caches": ["memcached"]},
        ["caches", "'memcached'", "none, as-shipped, lru"],
    ),
    ("caching-costs", {"maps": ["flat"]}, ["maps", "'flat'", "single-4mib"]),
    # What no machine has, and no user waits for.
    ("cluster-scaling", {"dilation": 1e300}, ["dilation", "1e+300", "at most 10000"]),
    ("cluster-scaling", {"threads_per_worker": 10**18}, ["threads_per_worker", "at most 256"]),
    ("cluster-scaling", {"n_workers": [10**6]}, ["n_workers", "at most 4096"]),
    ("caching-costs", {"n_requests": 10**12}, ["n_requests", "at most 10000000"]),
    # What takes no time to read, or for ever.
    (
        "cluster-scaling",
        {"array_shape": [1, 1, 1, 1], "chunk_shape": [1, 1, 1, 1]},
        ["array_shape", "[1, 1, 1, 1]", "from 10000 to"],
    ),
    ("cluster-scaling", {"array_shape": [10**12] * 4}, ["array_shape", "from 10000 to"]),
    # Combinations of which nothing can be told.
    ("caching-costs", {"caches": ["lru"]}, ["caches", "['lru']", "a list with 'none'"]),
    ("caching-costs", {"maps": ["broken"]}, ["maps", "another than 'broken'"]),
    ("caching-costs", {"caches": ["none", "none"]}, ["caches", "'none' twice", "each name once"]),
    ("caching-costs", {"sweep_users": [], "sweep_rates": []}, ["sweep_users", "at least one load"]),
    ("cluster-scaling", {"steps_per_worker": -1}, ["steps_per_worker", "-1", "at least 0"]),
    ("cluster-scaling", {"n_workers": [2, 2]}, ["n_workers", "2 twice", "each number once"]),
    # Options of Slurm elsewhere, or that it has not; readers over S3 of a folder.
    ("cluster-scaling", {"cluster_options": ["queue=a"]}, ["cluster_options", "none but with"]),
    (
        "cluster-scaling",
        {"cluster_kind": "slurm", "cluster_options": ["colour=red"]},
        ["cluster_options", "colour=red"],
    ),
    (
        "cluster-scaling",
        {"store": "file:///scratch/me", "profile": "loopback", "contenders": ["zarr-s3fs"]},
        ["contenders", "'zarr-s3fs' with store ", "zarr-obstore"],
    ),
    # Formats: what all are made from is in memory, and text takes most of it.
    ("formats", {"contenders": ["csv"]}, ["contenders", "'csv'", "csv-pandas"]),
    ("formats", {"contenders": []}, ["contenders", "at least 1 in the list"]),
    ("formats", {"accesses": ["step"]}, ["accesses", "a list with 'whole'"]),
    ("formats", {"n_requests": 0}, ["n_requests", "0", "at least 1"]),
    (
        "formats",
        {"array_shape": [100, 100, 1000, 1000]},
        ["array_shape", "of 40 GB", "at most 8 GB"],
    ),
    (
        "formats",
        {"contenders": ["zarr-direct"]},
        ["contenders", "zarr-direct can run here", "at least one that anybody can install"],
    ),
    (
        "formats",
        {"array_shape": [10, 50, 1000, 1000]},
        ["contenders", "csv-pandas of 500000000 values, some 6 GB of text that take 80 s"],
    ),
    (
        "formats",
        {"memory_limit_mb": 0.5},
        ["memory_limit_mb", "0.5", "at least 0.768", "values of one row group"],
    ),
    ("formats", {"memory_limit_mb": -1.0}, ["memory_limit_mb", "-1", "at least 0"]),
    (
        "formats",
        {"contenders": ["netcdf-dask-unaligned"], "chunk_shape": [1, 10, 120, 160]},
        ["chunk_shape", "[1, 10, 120, 160]", "an extent above 1 and below"],
    ),
    ("formats", {"chunk_shape": [9, 5, 120, 160]}, ["chunk_shape", "[9, 5, 120, 160]", "1"]),
]


# What only the model knows: parameters together, what a catalogue holds, and sums.
NOT_EARLY = {"dilation", "store", "dataset", "chunk_shape", "chunks_per_task", "cluster_options"}
IN_PART = {"array_shape", "contenders", "memory_limit_mb", "n_workers", "profile", "sweep_users"}
IN_PART |= {"target_width"}


def read_schema(study: str) -> dict[str, Any]:
    """Read the schema of a study's cases."""
    return dict(json.loads((ROOT / "parameters" / f"{study}.schema.json").read_text()))


@pytest.mark.parametrize(
    ("study", "overrides", "words"), REFUSED, ids=lambda value: str(value)[:40]
)
def test_bad_values_are_named(study: str, overrides: dict[str, Any], words: list[str]) -> None:
    """One line has file, parameter, value and what is allowed; most are found without the model."""
    with pytest.raises(UserError) as caught:
        find_study(study).parameters.check(overrides, WHERE)
    message = str(caught.value)
    assert message.startswith(f"{WHERE}: ") and "\n" not in message
    assert "allowed" in message
    assert all(word in message for word in words), message
    early = ""
    try:
        studies.check_early(read_schema(study), overrides, WHERE)
    except UserError as error:
        early = str(error)
    is_late = words[0] in NOT_EARLY | IN_PART
    assert early.startswith(f"{WHERE}: {words[0]}: ") or is_late, "the schema knows it"
    assert "\n" not in early


LATE = """
import sys
from pathlib import Path
from helpers.book.cases import Case, read_parameters
from helpers.errors import UserError
try:
    read_parameters(Case("laptop", "cluster-scaling", "bad", Path(sys.argv[1])))
except UserError as error:
    print(error)
heavy = {"botocore", "dask", "distributed", "intake", "numpy", "obstore", "pandas", "xarray", "zarr"}
print(sorted(heavy & {*sys.modules}))
"""


def test_a_refusal_imports_nothing_heavy(tmp_path: Path) -> None:
    """Whoever mistypes a name knows it before any library of a study is there."""
    for name in ("notebooks/cluster-scaling.ipynb", "parameters/cluster-scaling.schema.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    path = tmp_path / "parameters" / "laptop" / "cluster-scaling" / "bad.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("n_worker: [2]\n")
    told = subprocess.run(
        [sys.executable, "-c", LATE, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True
    )
    refusal, heavy = told.stdout.splitlines()
    assert "n_worker: [2]; no such parameter" in refusal
    assert heavy == "[]"


def bad_values(field: FieldInfo) -> list[Any]:
    """List values that a field must refuse, from its type and bounds."""
    found: list[Any] = [None, {}, *_bad(field.annotation, field.metadata)]
    return found


def _bad(annotation: Any, metadata: list[Any]) -> list[Any]:
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        return _bad(annotation, [*inner, *metadata])
    bounds = [each for every in metadata for each in _flat(every)]
    if get_origin(annotation) is list:
        items = [[value] for value in _bad(get_args(annotation)[0], [])]
        short = [[] for each in bounds if isinstance(each, annotated_types.MinLen)]
        return ["text", 7, [None], *items, *short]
    if annotation is str:
        return [7, True, ["text"], *(["no such name"] if _is_bounded_text(bounds) else [])]
    wrong_type = [True, "7", [7]] + ([2.5] if annotation is int else [math.nan])
    return wrong_type + [value for each in bounds for value in _beyond(each)]


def _flat(every: Any) -> list[Any]:
    return [*every.metadata] if isinstance(every, FieldInfo) else [every]


def _is_bounded_text(bounds: list[Any]) -> bool:
    return any(isinstance(each, OneOf) or getattr(each, "pattern", None) for each in bounds)


def _beyond(bound: Any) -> list[Any]:
    """Give the first values beyond a bound."""
    match bound:
        case annotated_types.Ge(ge=least):
            return [least - 1]
        case annotated_types.Gt(gt=below):
            return [below]
        case annotated_types.Le(le=most):
            return [most + 1]
        case annotated_types.Lt(lt=above):
            return [above]
    return []


FIELDS = [
    (study.name, name) for study in STUDIES.values() for name in study.parameters.model_fields
]


@pytest.mark.parametrize(("study", "name"), FIELDS, ids=lambda value: str(value))
def test_every_field_refuses_what_is_out_of_its_type_or_bounds(study: str, name: str) -> None:
    """Whatever a model declares of a field is what holds it."""
    model = find_study(study).parameters
    for value in bad_values(model.model_fields[name]):
        with pytest.raises(UserError, match=f"^{WHERE}: {name}: "):
            model.check({name: value}, WHERE)


@pytest.mark.parametrize("study", STUDIES)
def test_defaults_are_accepted(study: str) -> None:
    """The smallest honest run is one, and a whole namespace of a notebook is read for it."""
    model = find_study(study).parameters
    defaults = model().model_dump()
    assert model.read({**defaults, "pandas": object()}) == defaults
    assert list(defaults) == [*model.model_fields]


@pytest.mark.parametrize("study", STUDIES)
def test_every_field_says_what_it_means(study: str) -> None:
    """A parameter has a default and a line of description, and a number of seconds its unit."""
    for name, field in find_study(study).parameters.model_fields.items():
        assert not field.is_required() and field.description and "\n" not in field.description
        extra = field.json_schema_extra
        if name.endswith("_s"):
            assert isinstance(extra, dict) and extra["unit"] == "s"


def test_a_study_without_a_folder_is_refused() -> None:
    """The studies that there are, are named."""
    with pytest.raises(UserError, match=f"'moon'; allowed: {', '.join(STUDIES)}"):
        find_study("moon")


# What is made from the models.


@pytest.mark.parametrize("study", STUDIES)
def test_the_cell_of_a_notebook_is_that_of_its_model(study: str) -> None:
    """Exactly one cell is tagged, its text is what the model gives, and it has the defaults."""
    model = find_study(study).parameters
    [cell] = [
        cell
        for cell in nbformat.read(ROOT / "notebooks" / f"{study}.ipynb", as_version=4).cells
        if "parameters" in cell.metadata.get("tags", [])
    ]
    assert cell.source == studies.write_cell(model)
    given = {line.target.id: ast.literal_eval(line.value) for line in ast.parse(cell.source).body}
    assert given == model().model_dump()


@pytest.mark.parametrize("study", STUDIES)
def test_papermill_tells_the_descriptions(study: str) -> None:
    """`papermill --help-notebook` prints what the model says of each parameter."""
    told = papermill.inspect_notebook(str(ROOT / "notebooks" / f"{study}.ipynb"))
    fields = find_study(study).parameters.model_fields
    assert set(told) == set(fields)
    for name, field in fields.items():
        assert told[name]["help"].startswith(field.description)
        assert re.fullmatch(r"(list\[)*(str|int|float)\]*", told[name]["inferred_type_name"])


def test_nothing_is_left_to_derive(tmp_path: Path) -> None:
    """The committed cells and schemas are what `wire derive` writes, and it mends what is not."""
    (tmp_path / "notebooks").mkdir()
    for study in STUDIES:
        source = ROOT / "notebooks" / f"{study}.ipynb"
        (tmp_path / "notebooks" / source.name).write_bytes(source.read_bytes())
    changed = cases.write_derived(tmp_path)
    assert sorted(path.name for path in changed) == sorted(
        f"{study}.schema.json" for study in STUDIES
    )
    for path in changed:
        assert path.read_bytes() == (ROOT / "parameters" / path.name).read_bytes()
    assert cases.write_derived(tmp_path) == []


@pytest.mark.parametrize("study", STUDIES)
def test_a_schema_is_one(study: str) -> None:
    """Editors get a schema that is valid itself and describes every field."""
    schema = read_schema(study)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert all(field["description"] for field in schema["properties"].values())


@pytest.mark.parametrize("path", CASES, ids=lambda path: "/".join(path.parts[-3:]))
def test_cases_keep_to_their_schema(path: Path) -> None:
    """What an editor accepts and what the runner accepts is the same for every committed case."""
    schema, given = read_schema(path.parts[-2]), yaml.safe_load(path.read_text())
    jsonschema.validate(given, schema)
    studies.check_early(schema, given, WHERE)
    studies.check_early(schema, find_study(path.parts[-2]).parameters().model_dump(), WHERE)
    cases.read_parameters(cases.Case(path.parts[-3], path.parts[-2], path.stem))


@pytest.mark.parametrize(
    ("study", "overrides"),
    [
        ("cluster-scaling", {"n_worker": [1]}),
        ("cluster-scaling", {"n_workers": [0]}),
        ("cluster-scaling", {"profile": "moon"}),
        ("cluster-scaling", {"array_shape": [4, 4, 4]}),
        ("chunk-shape", {"media": []}),
        ("hdf5-drivers", {"block_mib": [0.5]}),
        ("caching-costs", {"map_scale": 2}),
    ],
)
def test_schemas_refuse_what_models_refuse(study: str, overrides: dict[str, Any]) -> None:
    """An editor underlines what the runner would refuse."""
    model = find_study(study).parameters
    with pytest.raises(UserError):
        model.check(overrides, WHERE)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(overrides, studies.case_schema(model, study))


def test_the_table_of_a_page_has_every_parameter() -> None:
    """Each has a line with its default, what is allowed and what it means."""
    model = STUDIES["cluster-scaling"].parameters
    lines = pages.render_parameters(model).splitlines()
    assert len(lines) == 2 + len(model.model_fields)
    assert "| `n_workers` | `[1, 2]` | list of: integer, at least 1, at most 4,096 |" in "\n".join(
        lines
    )
    assert "after which no block starts (s)" in "\n".join(lines)
