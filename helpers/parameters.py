"""What a notebook declares: its parameters with their bounds, and its study."""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from wire.bed.networks import check_profile, get_profile, profile_names
from wire.errors import UserError, convert_validation_error, cut, show


@dataclass(frozen=True)
class OneOf:
    """What makes a text one of a registry's names: `Annotated[str, OneOf(CODECS)]`."""

    allowed: Collection[str]

    def __get_pydantic_core_schema__(self, source: Any, _next: GetCoreSchemaHandler) -> CoreSchema:
        """Take these texts alone, which editors complete."""
        return core_schema.literal_schema([*self.allowed])


@dataclass(frozen=True)
class Contains:
    """What a list of names must hold for a study to say anything: one name, or another than it."""

    name: str
    is_other: bool = False

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check the list after its items."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: list[str]) -> list[str]:
        if all((item == self.name) == self.is_other for item in value):
            raise ValueError(f"a list with {'another than ' * self.is_other}{self.name!r}")
        return value


_FILES = r"\.ya?ml(@[0-9a-f]{8})?$"  # a profile's file; those of before named its digest


def _known_profile(value: str) -> str:
    """Take the name of a profile that ships, or of a file of one: records are published, so not by an absolute path."""
    if value in profile_names():
        return value
    allowed = f"{', '.join(profile_names())}, or a profile's file"
    if not re.search(_FILES, value):
        raise ValueError(allowed)
    if Path(value).is_absolute():
        raise ValueError("a path that begins at the checkout")
    try:
        get_profile(value)
    except UserError as error:
        raise ValueError(f"{allowed}; {error}") from error
    return value


def _without_credentials(value: str) -> str:
    """Refuse an address with a password or a signature, before anything says where data lie."""
    if "@" in value or "?" in value or "%40" in value:
        raise ValueError("embedded, or an address alone: credentials are read where AWS keeps them")
    return value


_LEAST_ELEMENTS = 10_000  # 40 kB: less takes the time of its requests alone
_MOST_ELEMENTS = 10**12  # 4 TB


def _worth_reading(shape: list[int]) -> list[int]:
    if not _LEAST_ELEMENTS <= math.prod(shape) <= _MOST_ELEMENTS:
        raise ValueError(f"from {_LEAST_ELEMENTS} to {_MOST_ELEMENTS} elements in all")
    return shape


Count = Annotated[int, Field(ge=1, le=10**12)]
Seconds = Annotated[float, Field(gt=0, le=10**6, allow_inf_nan=False)]
# of 10,000, a read of a second takes hours
Dilation = Annotated[float, Field(ge=1, le=10_000, allow_inf_nan=False)]
AUTO = "auto"
DilationOrAuto = Dilation | Literal["auto"]
Shape = Annotated[list[Count], Field(min_length=4, max_length=4)]
ArrayShape = Annotated[Shape, AfterValidator(_worth_reading)]
Profile = Annotated[
    str,
    AfterValidator(_known_profile),
    WithJsonSchema(
        {"type": "string", "anyOf": [{"enum": [*profile_names()]}, {"pattern": _FILES}]}
    ),
]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
RecordName = Annotated[str, Field(pattern=r"^[\w.-]+\.csv$")]

RECORD = "file that receives every row"
SLOWED = "factor by which the network and its time are slowed down"


@dataclass(frozen=True, slots=True)
class OwnNotebook:
    """What the parameter cell of a case's own notebook has otherwise than that of its study."""

    defaults: Mapping[str, Any] = field(default_factory=dict)  # by parameter
    left_out: frozenset[str] = frozenset()  # parameters that it does not take


_CELL_WIDTH = 88  # characters, as notebooks/ruff.toml has it


def _name_type(hint: Any) -> str:
    """Name the type of a parameter in the words of papermill: of a choice, that of its first."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return type(arguments[0]).__name__
    if origin is list:
        return f"list[{_name_type(arguments[0])}]"
    return str(hint.__name__) if origin is None else _name_type(arguments[0])


def _write_literal(value: object) -> str:
    """Write a default as the formatter has it, text in double quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_write_literal, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


class Parameters(BaseModel):
    """What every study takes: how long to go on, where data lie, and which network to emulate.

    A study's own model adds its fields, each with a default that makes the
    smallest honest run, a one-line description and, in ``unit``, its unit.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_default=True)

    study: ClassVar[str]  # its name, as in notebooks/NAME.ipynb

    # How long to go on, or where rows and workers are: not what is measured.
    not_measured: ClassVar[frozenset[str]] = frozenset(
        {
            "n_blocks",
            "time_budget_s",
            "record",
            "cluster_address",
            "cluster_options",
        }
    )

    profile: Profile = Field("express", description="network to emulate")
    n_blocks: Count = Field(2, description="most repetitions")
    time_budget_s: Seconds = Field(
        240.0,
        description="time of the whole case after which no block starts",
        json_schema_extra={"unit": "s"},
    )
    processors: Annotated[int, Field(ge=0, le=1024)] = Field(
        0, description="of a reader, slowed down as its network; 0: they do not count"
    )
    seed: Seed = Field(0, description="of values, order and network delays")
    store: Annotated[str, AfterValidator(_without_credentials)] = Field(
        "embedded", description="embedded, or the address of a bucket of your own"
    )
    record: RecordName = Field("record.csv", description=RECORD)

    @model_validator(mode="after")
    def _check_each_once(self) -> Self:
        for name, value in self:
            if not isinstance(value, list) or name.endswith("_shape"):  # lengths may be equal
                continue
            scalars = [item for item in value if isinstance(item, str | int | float)]
            if twice := [item for item in scalars if scalars.count(item) > 1]:
                kind = "name" if isinstance(twice[0], str) else "number"
                raise UserError(name, f"{show(twice[0])} twice", f"each {kind} once")
        return self

    @model_validator(mode="after")
    def _check_network(self) -> Self:
        # only studies whose every clock is that of the timing loop can slow time down
        check_profile(self.store, self.profile, getattr(self, "dilation", 1.0))
        return self

    # notebooks that one case has of its own, by its name
    own_notebooks: ClassVar[Mapping[str, OwnNotebook]] = {}

    @classmethod
    def format_cell(cls, case: str = "") -> str:
        """Write the cell of a notebook that declares its parameters, which papermill replaces.

        A line each has name, type, default and description with its unit, those of the study first.
        A `case` with a notebook of its own has the defaults and the parameters that this declares.
        """
        own = cls.own_notebooks[case] if case else OwnNotebook()
        common = Parameters.model_fields
        names = [*(name for name in cls.model_fields if name not in common), *common]
        defaults = {**{name: cls.model_fields[name].default for name in names}, **own.defaults}
        lines = []
        for name in names:
            if name not in own.left_out:
                info, default = cls.model_fields[name], defaults[name]
                extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
                unit = f" ({extra['unit']})" if "unit" in extra else ""
                head, note = (
                    f"{name}: {_name_type(info.annotation)} = ",
                    f"  # {info.description}{unit}",
                )
                line = f"{head}{_write_literal(default)}{note}"
                if isinstance(default, list) and len(line) > _CELL_WIDTH:
                    items = "".join(f"    {_write_literal(item)},\n" for item in default)
                    line = f"{head}[\n{items}]{note}"
                lines.append(line)
        return "\n".join(lines)

    @classmethod
    def read(cls, namespace: Mapping[str, Any], where: str = "parameters") -> dict[str, Any]:
        """Read a notebook's parameters, and refuse values that its study cannot run with.

        Of the names in `namespace`, those that are no parameter of the study are passed
        over. A refusal names the first parameter that is wrong, its value and what is
        allowed; it begins with `where`, such as the parameter file.
        """
        values = {name: namespace[name] for name in cls.model_fields if name in namespace}
        return cls.check(values, where)

    @classmethod
    def check(cls, overrides: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Put values over the defaults and refuse those that are unknown or out of bounds."""
        for name, value in overrides.items():
            if name not in cls.model_fields:
                shown = cut(name) if isinstance(name, str) and name.isprintable() else show(name)
                raise UserError(
                    where, f"{shown}: {show(value)}; no such parameter", ", ".join(cls.model_fields)
                )
        try:
            return cls.model_validate(dict(overrides)).model_dump()
        except ValidationError as error:
            raise convert_validation_error(error, depth=1).within(where) from error


def write_table(names: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    """Write a table as Markdown has it."""
    rows = [names, ["---"] * len(names), *lines]
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)


@dataclass(frozen=True, slots=True)
class Expected:
    """What a case asks of its store, and what the provider of that bills."""

    n_requests: float
    gb: float  # that leave the store
    usd_in_region: float  # for the requests
    usd_outside: float  # for the requests, and for data that leave the region of the store
    prices: str  # which, and of when


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One question: a notebook, its cases, and what the book needs to know of them."""

    name: str  # of the notebook and of the folders of its cases and results
    headline: str  # key of the finding that the table of cases shows
    headlines: Mapping[str, str] = field(default_factory=dict)  # of cases with their own notebook
    # cases that `run-all` leaves out, so that it ends in half an hour
    by_name: tuple[str, ...] = ()
    least_blocks: int = 5  # of a reference record; fewer where what is measured is counts
    # what a case with these parameters, defaults included, asks of its store
    expect: Callable[[Mapping[str, Any]], Expected] | None = None
    # case and name of the figure that the README shows, if it is one of this study
    cover: tuple[str, str] | None = None
    # text that pages include, by file name below `_generated/`
    fragments: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    # files that the book serves as they are, by their path below `_static/`
    served: Mapping[str, Callable[[], str]] = field(default_factory=dict)


def lazy_import(module: str, name: str, *arguments: Any) -> Callable[..., Any]:
    """Call a function of a module that is imported when it is asked for; `arguments` come first."""
    return lambda *more: getattr(importlib.import_module(module), name)(*arguments, *more)
