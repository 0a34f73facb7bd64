"""What goes wrong is said in our words, whatever a library or the system calls it."""

from __future__ import annotations

import errno
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic_core import PydanticKnownError
from pydantic_core._pydantic_core import list_all_errors

from wire import cli
from wire.decide.question import DecideOptions
from wire.errors import (
    UserError,
    convert_system_error,
    convert_validation_error,
    describe_system_error,
)

KINDS = {kind["type"]: kind for kind in list_all_errors()}
FOREIGN = re.compile(
    r"[Ii]nput should|[Uu]nable to parse|should have|should be|must be|permitted|Field required"
    r"|\bvalid\b|integer|dictionary|[Dd]atetime|[Uu]nexpected|Error|Errno|instance|\{"
)


class Model(BaseModel):
    """Takes one value, and refuses it for the reason of a test."""

    value: Any

    @field_validator("value")
    @classmethod
    def _refuse(cls, value: Any) -> Any:
        raise value


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_all_kinds_of_refusals_are_said_in_our_words(kind: str) -> None:
    """In one line with the field and what is allowed, for each kind that pydantic has."""
    context = KINDS[kind].get("example_context")
    if context and "expected" in context:
        context = {**context, "expected": "'this' or 'that'"}
    if kind in ("value_error", "assertion_error"):
        refusal: Exception = ValueError("numbers from 1 to 9") if kind == "value_error" else AssertionError("numbers from 1 to 9")  # fmt: skip
    else:
        refusal = PydanticKnownError(kind, context)  # type: ignore[arg-type]
    with pytest.raises(ValidationError) as caught:
        Model(value=refusal)
    # the value is shown as it is, here an error of pydantic's
    said = convert_validation_error(caught.value)
    assert said.where == "value" and said.value and said.allowed
    assert not FOREIGN.search(said.allowed) and "\n" not in str(said)


class Plain(BaseModel):
    """Takes a number and nothing else."""

    model_config = ConfigDict(extra="forbid")
    number: int


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"number": "many"}, ("number", "'many'", "a whole number")),
        ({"number": 1.5}, ("number", "1.5", "a whole number")),
        ({"number": 1, "speed": 2}, ("speed", "2; no such name", "names that are documented")),
        ({}, ("number", "is missing", "stated")),
    ],
)
def test_models_refuse_in_our_words(values: dict[str, Any], said: tuple[str, ...]) -> None:
    """As users meet them, in a case or an option."""
    with pytest.raises(ValidationError) as caught:
        Plain(**values)
    assert convert_validation_error(caught.value).args == said


@pytest.mark.parametrize("value", ["lorem", "1.5", "", [], {}, -1, 1e300, object()])
def test_options_of_decide_are_refused_in_our_words(value: Any) -> None:
    """Whatever is put into one of them, from the command line or by a program."""
    refusals = list[UserError]()
    for name in DecideOptions.model_fields:
        try:
            DecideOptions(**{name.replace("_", "-"): value})
        except ValidationError as error:
            refusals.append(convert_validation_error(error, depth=1))
        except UserError as error:  # of two options together
            refusals.append(error)
    assert refusals
    for said in refusals:
        assert said.allowed and not FOREIGN.search(said.allowed), said


def test_a_refusal_is_one_line_that_fits_a_screen() -> None:
    """Whatever ends of lines and however long paths its values have; what is allowed stays."""
    text = str(UserError("price", f"'a\nb' of /{'x' * 5000}/y.h5", "a number"))
    assert text.startswith(r"price: 'a\nb' of /xxx") and text.endswith("/y.h5; allowed: a number")
    assert len(text) < 300


def test_the_system_refuses_in_our_words() -> None:
    """The class of Python and the words of the system stay away, whatever its number."""
    for code in {number for name, number in vars(errno).items() if name.startswith("E")}:
        error = OSError(code, os.strerror(code), "some/file")
        refusal = convert_system_error(error)
        for text in (describe_system_error(error), str(refusal)):
            assert os.strerror(code) not in text and type(error).__name__ not in text
            assert "Errno" not in text and "\n" not in text
        assert refusal.where == "some/file"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (("n_workers", 0, "at least 1"), "n_workers: 0; allowed: at least 1"),
        (("folder", "is full"), "folder: is full"),
        (("", "nothing is there", "a file"), "nothing is there; allowed: a file"),
    ],
)
def test_a_refusal_is_written_in_one_form(fields: tuple[Any, ...], sentence: str) -> None:
    """From its fields, which stay what they are in another process; no other test looks at the form."""
    refusal = pickle.loads(pickle.dumps(UserError(*fields)))
    assert str(refusal) == sentence
    assert refusal.args == (*map(str, fields), *[""] * (3 - len(fields)))


def test_a_refusal_within_a_place_names_both() -> None:
    """The place before the field, of the same class."""
    inner = UserError("rate", -1, "above 0")
    assert inner.within("profile 'x'").args == ("profile 'x': rate", "-1", "above 0")
    assert UserError("", "is torn").within("a.csv").where == "a.csv"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "none" / "a").read_text(), "nothing is there"),
        (lambda folder: folder.read_text(), "it is a folder"),
        (lambda folder: (folder / "file" / "a").read_text(), "a part of its path is no folder"),
        (lambda folder: (folder / "file").mkdir(), "it is there already"),
        (lambda folder: (folder / ("a" * 300)).read_text(), "its name is too long"),
    ],
)
def test_a_command_that_meets_no_such_path_ends_with_a_line(
    tmp_path: Path, spoil: Any, said: str
) -> None:
    """No traceback: the path, what is wrong with it and what is allowed."""
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended, cli.end_well():
        spoil(tmp_path)
    text = str(ended.value.code)
    assert said in text and str(tmp_path)[:20] in text and "allowed: " in text
    assert "Traceback" not in text and "\n" not in text
