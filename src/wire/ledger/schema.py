"""Schema of what `wire ledger check --json` prints; ``python -m wire.ledger.schema`` writes its file anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wire.ledger.check import REPORT_VERSION, CheckReport
from wire.schemas import DIALECT, make_dataclass_schema

SCHEMA = Path(__file__).with_name("check.schema.json")


def make_report_schema() -> dict[str, Any]:
    """Make the schema of a report."""
    schema = make_dataclass_schema(CheckReport)
    properties = schema["properties"] | {"version": {"const": REPORT_VERSION}}
    title = f"Report of wire ledger check, version {REPORT_VERSION}"
    required = [*properties]
    return {
        "$schema": DIALECT,
        **schema,
        "title": title,
        "properties": properties,
        "required": required,
    }


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(make_report_schema(), indent=2) + "\n", encoding="utf-8")
