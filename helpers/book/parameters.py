"""Parameters: one pydantic model a study, from which everything said about them comes.

A notebook's cell tagged ``parameters`` (and so papermill's help text), the
table on its page, the JSON Schema by which editors complete a case file, and
the refusals are all made from the model; `write_cell` and `case_schema` keep
the committed copies in step. papermill accepts any name in silence, so unknown
names are refused here, before anything runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from helpers.errors import UserError, cut, show
from helpers.netem.profiles import profile_names
from helpers.objectstore.testbed import check_profile


@dataclass(frozen=True, slots=True)
class OneOf:
    """What makes a text one of a registry's names: `Annotated[str, OneOf(CODECS)]`."""

    allowed: Collection[str]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Check the name after its type."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """List the names, so that editors complete them."""
        return {"type": "string", "enum": [*self.allowed]}

    def _check(self, value: str) -> str:
        if value not in self.allowed:
            raise ValueError(", ".join(self.allowed))
        return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a finite number")
    return value


Count = Annotated[int, Field(ge=1, le=10**12)]
Positive = Annotated[float, Field(gt=0), AfterValidator(_finite)]
Seconds = Annotated[float, Field(gt=0, le=10**6), AfterValidator(_finite)]
Dilation = Annotated[float, Field(ge=1), AfterValidator(_finite)]
Shape = Annotated[list[Count], Field(min_length=4, max_length=4)]
Profile = Annotated[str, OneOf(profile_names())]


_PAGE = 88  # characters of a code line that a page shows without scrolling


class Parameters(BaseModel):
    """What every study takes: how long to go on, where data lie, and which network to emulate.

    A study's own model adds its fields, each with a default that makes the
    smallest honest run, a one-line description and, in ``unit``, its unit.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_default=True)

    # How long to go on, or where rows and workers are: not what is measured.
    not_measured: ClassVar[frozenset[str]] = frozenset(
        {"n_blocks", "time_budget_s", "target_width", "record", "cluster_address"}
    )

    profile: Profile = Field("express", description="network to emulate")
    n_blocks: Count = Field(2, description="most repetitions")
    time_budget_s: Seconds = Field(
        240.0,
        description="time of the whole case after which no block starts",
        json_schema_extra={"unit": "s"},
    )
    target_width: Positive = Field(
        0.05, description="relative width of 95 % intervals at which to stop early"
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        0, description="of values, order and network delays"
    )
    store: str = Field("embedded", description="embedded, or the address of a bucket of your own")
    record: Annotated[str, Field(pattern=r"^[\w.-]+\.csv$")] = Field(
        "record.csv", description="file that receives every row"
    )

    @model_validator(mode="after")
    def _check_network(self) -> Self:
        # only studies whose every clock is the loop's can slow it down
        check_profile(self.store, self.profile, getattr(self, "dilation", 1.0))
        return self

    @classmethod
    def read(cls, namespace: Mapping[str, Any], where: str = "parameters") -> dict[str, Any]:
        """Read a notebook's parameters, and refuse values that its study cannot run with.

        Parameters
        ----------
        namespace : mapping
            Values by name; what is no parameter of the study is passed over.
        where : str
            What a refusal begins with, such as the parameter file.

        Returns
        -------
        dict
            Every parameter of the study, in the order of its model.

        Raises
        ------
        UserError
            Naming the first parameter that is wrong, its value and what is allowed.
        """
        values = {name: namespace[name] for name in cls.model_fields if name in namespace}
        return cls.check(values, where)

    @classmethod
    def check(cls, overrides: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Put values over the defaults and refuse those that are unknown or out of bounds."""
        for name, value in overrides.items():
            if name not in cls.model_fields:
                raise UserError(
                    f"{where}: {_name(name)}: {show(value)}; no such parameter;"
                    f" allowed: {', '.join(cls.model_fields)}"
                )
        try:
            return cls.model_validate(dict(overrides)).model_dump()
        except ValidationError as error:
            raise UserError(f"{where}: {_explain(error)}") from error


def _explain(error: ValidationError) -> str:
    """Say in one line what pydantic says in four."""
    first = error.errors(include_url=False)[0]
    context = first.get("ctx", {})
    if not first["loc"]:  # of several parameters together, in their own words
        return str(context.get("error", first["msg"]))
    words = _WORDS.get(first["type"], "{error}" if "error" in context else first["msg"])
    return f"{first['loc'][0]}: {show(first['input'])}; allowed: {words.format(**context)}"


_WORDS = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "above {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
    "too_short": "at least {min_length} in the list",
    "too_long": "at most {max_length} in the list",
    "string_pattern_mismatch": "text like {pattern}",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "list_type": "a list",
}


def _name(name: object) -> str:
    """Write the name of a parameter, which in a file may be anything."""
    return cut(name) if isinstance(name, str) and name.isprintable() else show(name)


def list_fields(model: type[Parameters]) -> dict[str, FieldInfo]:
    """List the fields of a study's model: its own before those that every study has."""
    common = Parameters.model_fields
    own = {name: field for name, field in model.model_fields.items() if name not in common}
    return own | {name: model.model_fields[name] for name in common}


def write_cell(model: type[Parameters]) -> str:
    """Write the parameter cell of a notebook; papermill reads its help text from the comments."""
    lines = []
    for name, field in list_fields(model).items():
        start = f"{name}: {_type_name(field.annotation)} = "
        line = f"{start}{_write(field.default)}  # {_describe(field)}"
        if len(line) > _PAGE and isinstance(field.default, list):
            items = "".join(f"    {_write(item)},\n" for item in field.default)
            line = f"{start}[\n{items}]  # {_describe(field)}"
        lines.append(line)
    return "\n".join(lines)


def _write(value: Any) -> str:
    """Write a default as Python does, with the quotes of its formatter."""
    return json.dumps(value, ensure_ascii=False)


def _describe(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    unit = extra.get("unit") if isinstance(extra, dict) else None
    return f"{field.description} ({unit})" if unit else str(field.description)


def _type_name(annotation: Any) -> str:
    """Write a type as plain Python, without its bounds."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is list:
        return f"list[{_type_name(get_args(annotation)[0])}]"
    return str(annotation.__name__)


def case_schema(model: type[Parameters], study: str) -> dict[str, Any]:
    """Make the JSON Schema of a case file: every parameter may be left out, no other may stand."""
    schema = model.model_json_schema()
    schema.pop("description", None)
    for field in schema["properties"].values():
        field.pop("title", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"a case of {study}",
    }


def render_parameters(model: type[Parameters]) -> str:
    """Write the parameters of a study as a table for its page."""
    schema = case_schema(model, "")
    lines = ["| parameter | default | allowed | meaning |", "| --- | --- | --- | --- |"]
    for name, field in list_fields(model).items():
        default = json.dumps(field.default, ensure_ascii=False)
        allowed = _allowed(schema["properties"][name])
        lines.append(f"| `{name}` | `{default}` | {allowed} | {_describe(field)} |")
    return "\n".join(lines) + "\n"


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}


def _allowed(schema: Mapping[str, Any]) -> str:
    """Say in words what a property of a JSON Schema allows."""
    if schema["type"] == "array":
        return f"list of: {_allowed(schema['items'])}"
    if "enum" in schema:
        return ", ".join(f"`{name}`" for name in schema["enum"])
    bounds = [f"{word} {schema[key]:g}" for key, word in _BOUNDS.items() if key in schema]
    return ", ".join([schema["type"], *bounds])
