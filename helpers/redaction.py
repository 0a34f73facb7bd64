"""Credentials blacked out of every text that leaves the process: the one place that knows how.

What is known to be secret is found in any writing, percent-encoded, escaped
or neither. What is not known is recognised by where it stands in an address.
"""

from __future__ import annotations

import csv
import functools
import html
import io
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_plus

_STARS = "***"
# values of switches, in whose names "token" stands
_WORDS = {"true", "false", "none", "null", "auto"}
_LOOSE = 8  # characters from which a secret is looked for inside words too
_SHORTEST = 4  # with fewer, numbers and words would go that have nothing to do with it

_SECRET_VARIABLE = re.compile(
    r"(?:passw(?:or)?d|passphrase|secret|token|credential|(?:api|access|account|private)_?key)"
    r"(?!.*_(?:FILE|PATH|DIR)$)",
    re.IGNORECASE,
)
_FIELD_NAMES = (
    r"[\w.-]{0,50}(?:passw(?:or)?d|passphrase|pwd|secret|token|signature|credential"
    r"|(?:api|access)[_-]?key)[\w.-]{0,50}|sig|pass|pw|auth|authorization"
)
# USER:PASSWORD@, where the password may hold slashes, or TOKEN@
_USER = r"(?:[^/\s\"'<>@:]{0,500}(?::|%3A)[^\s\"'<>]{0,2000}|[^/\s\"'<>@]{1,2000})"
_SIGHTS = (
    (re.compile(rf"(://|%3A%2F%2F){_USER}(@|%40)", re.IGNORECASE), rf"\1{_STARS}\2"),
    (
        re.compile(
            rf"((?:[?&;]|%3F|%26)(?:{_FIELD_NAMES})(?:=|%3D))(?:(?!%26|%23)[^&;#\s\"'<>])+",
            re.IGNORECASE,
        ),
        rf"\1{_STARS}",
    ),
    (
        re.compile(
            r"(\baws_?(?:secret\w*|session_token)\\*[\"']?\s*[:=]\s*\\*[\"']?)[^\s\"',;&\\]+",
            re.IGNORECASE,
        ),
        rf"\1{_STARS}",
    ),
    (
        re.compile(r"(\bauthorization\\*[\"']?\s*[:=]\s*\\*[\"']?)[^\"'\r\n\\]+", re.IGNORECASE),
        rf"\1{_STARS}",
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), _STARS),
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Black out credentials.

    Examples
    --------
    >>> redact("redis://:pass/word@host:6379 and http://host/a?sig=7Fb&n=1")
    'redis://***@host:6379 and http://host/a?sig=***&n=1'
    """
    return _redact(text, _compile((*secrets, *find_secrets(os.environ))))


def redact_tree(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Black out credentials in every text inside mappings and sequences, as of a notebook."""
    known = _compile((*secrets, *find_secrets(os.environ)))

    def walk(part: Any) -> Any:
        if isinstance(part, str):
            return _redact(part, known)
        if isinstance(part, Mapping):
            return {key: walk(one) for key, one in part.items()}
        return [walk(one) for one in part] if isinstance(part, (list, tuple)) else part

    return walk(value)


def copy_redacted(source: Path, target: Path) -> Path:
    """Copy a notebook, a record or another text without its credentials; unchanged where it has none."""
    text = source.read_bytes().decode("utf-8")
    if source.suffix == ".csv":  # by cells: an address must not reach over a comma
        rows: Any = list(csv.reader(io.StringIO(text, newline="")))
        clean = redact_tree(rows)
    else:
        rows = json.loads(text) if source.suffix == ".ipynb" else text
        clean = redact_tree(rows)
    if clean == rows:
        return Path(shutil.copy(source, target))
    target.write_text(_write(clean, source.suffix), encoding="utf-8", newline="")
    return target


def _write(clean: Any, suffix: str) -> str:
    if suffix == ".csv":
        buffer = io.StringIO(newline="")
        csv.writer(buffer, lineterminator="\n").writerows(clean)
        return buffer.getvalue()
    if suffix == ".ipynb":
        return json.dumps(clean, indent=1, ensure_ascii=False) + "\n"
    return str(clean)


def find_secrets(values: Any) -> tuple[str, ...]:
    """Find what is secret in variables or parameters: by their names, and in addresses among them.

    Examples
    --------
    >>> find_secrets({"redis_url": "redis://:pass%2Fword@host", "n_blocks": 3})
    ('pass%2Fword', 'pass/word')
    """
    found = [raw for text in _iterate_secrets(values) for raw in (text, unquote(text))]
    return tuple(dict.fromkeys(found))


def _iterate_secrets(values: Any) -> Iterator[str]:
    if isinstance(values, str):
        yield from _find_in_address(values)
    elif isinstance(values, Mapping):
        for name, value in values.items():
            if isinstance(value, str) and _SECRET_VARIABLE.search(str(name)):
                yield value
            yield from _iterate_secrets(value)
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _iterate_secrets(value)


def _find_in_address(text: str) -> Iterator[str]:
    scheme, _, rest = text.partition("://")
    if not re.fullmatch(r"[A-Za-z][\w+.-]*", scheme):
        return
    user, at, _ = rest.rpartition("@")
    name, colon, password = user.partition(":")
    if at and "/" not in name:
        yield password if colon else name
    for field, value in parse_qsl(rest.partition("?")[2], keep_blank_values=True):
        if re.fullmatch(_FIELD_NAMES, field, re.IGNORECASE):
            yield value


def _redact(text: str, known: re.Pattern[str] | None) -> str:
    if known is not None:
        text = known.sub(_STARS, text)
    for sight, stars in _SIGHTS:
        text = sight.sub(stars, text)
    return text


@functools.lru_cache(maxsize=64)
def _compile(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    """Make a pattern of secrets however they are written; the longest first."""
    wanted = {form for one in secrets for form in (one, unquote(one), unquote_plus(one))}
    wanted = {one for one in wanted if len(one) >= _SHORTEST and one.lower() not in _WORDS}
    parts = [_any_form(one) for one in sorted(wanted, key=lambda one: (-len(one), one))]
    return re.compile("|".join(parts)) if parts else None


def _any_form(secret: str) -> str:
    writings = "".join(map(_any_writing, secret))
    return writings if len(secret) >= _LOOSE else rf"(?<![\w.]){writings}(?![\w.])"


def _any_writing(character: str) -> str:
    """Match a character as it is, percent-encoded any number of times, or escaped."""
    encoded = "".join(f"%(?:25)*(?i:{byte:02x})" for byte in character.encode("utf-8", "replace"))
    forms = [re.escape(html.escape(character)), re.escape(json.dumps(character)[1:-1]), encoded]
    if character == "\\":
        forms.append(r"\\+")
    elif not character.isalnum():
        forms.append(r"\\*" + re.escape(character))
    else:
        forms.append(character)
    if character == " ":
        forms.append(r"\+")
    return f"(?:{'|'.join(dict.fromkeys(forms))})"
