"""What `wire trace` writes is what its schemas say, for programs that read it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from tests.wire.trace.test_findings import run_of
from tests.wire.trace.test_har import LINE
from tests.wire.trace.test_report import look_before_each
from wire.trace import findings, schemas, stored
from wire.trace.rows import Bypass, Run, Tunnel

jsonschema = pytest.importorskip("jsonschema")


def read_schema(name: str) -> Any:
    """Read a schema as the wheel has it."""
    return json.loads((resources.files("wire.trace.schemas") / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", schemas.SCHEMAS)
def test_files_are_what_the_classes_say(name: str) -> None:
    """A field that was added needs `python -m wire.trace.schemas`, one that went a new version too."""
    text = (resources.files("wire.trace.schemas") / name).read_text(encoding="utf-8")
    assert text == schemas.format_schema(name), "run python -m wire.trace.schemas"


def make_run() -> Run:
    """Make a run in which everything is there."""
    rows = look_before_each(10)
    rows[-1].status = 503
    return replace(
        run_of(rows, wall_s=3.0, processor_s=[(0.0, 0.0), (3.0, 0.5)], remarks=["gone"]),
        sites=[LINE if number % 3 else None for number in range(len(rows))],
        bypassed=[Bypass(1, "java", "h:443")],
        unread=[Tunnel("h:443", "its own authority", 1.0, 2.0, 30)],
    )


def test_a_report_fits_its_schema() -> None:
    """As `--json` prints it; what is left out is refused."""
    schema, report = read_schema("report.schema.json"), findings.report(make_run())
    table = json.loads(json.dumps(report.to_json()))
    assert table["findings"]
    jsonschema.validate(table, schema)
    for name in table:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({key: table[key] for key in table if key != name}, schema)


def test_a_stored_run_fits_its_schema() -> None:
    """The JSON and the columns of the table."""
    run = make_run()
    jsonschema.validate(json.loads(stored.write_run(run, ["x"])), read_schema("trace.schema.json"))
    columns = next(csv.reader(io.StringIO(stored.write_csv(run))))
    fields = read_schema("trace.csv.schema.json")["fields"]
    assert columns == [field["name"] for field in fields]
