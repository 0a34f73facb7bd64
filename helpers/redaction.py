"""Credentials blacked out of every text that leaves the process: the one place that knows how.

What is known to be secret is found plain, percent-encoded once or escaped. What is not known is
recognised by where it stands: in an address, behind a name that says so, or by its own form.
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
from urllib.parse import parse_qsl, quote, unquote

_STARS = "***"
# values of switches, in whose names "token" stands
_WORDS = {"true", "false", "none", "null", "auto"}
_FOLDERS = {"PWD", "OLDPWD"}  # of a shell: no passwords
_LOOSE = 8  # characters from which a secret is looked for inside words too
_SHORTEST = 4  # with fewer, numbers and words would go that have nothing to do with it

_NAME = r"passw(?:or)?d|passphrase|pwd|secret|token|signature|credential|(?:api|access|account|private)[_-]?key"
_SECRET_NAME = re.compile(rf"(?:{_NAME})(?!.*_(?:FILE|PATH|DIR)$)", re.IGNORECASE)
_FIELD = rf"[\w.-]{{0,50}}(?:{_NAME})[\w.-]{{0,50}}|sig|pass|pw|auth|authorization"
# USER:PASSWORD@, where the password may hold slashes, or TOKEN@
_USER = r"(?:[^/\s\"'<>@:]{0,500}(?::|%3A)[^\s\"'<>]{0,2000}|[^/\s\"'<>@]{1,2000})"
_QUOTE = r"\\*[\"']?"
# In code a name stands behind a name: what is called, looked up or itself says that it is secret.
_CODE = rf"[A-Za-z_][\w.]*[\[(]|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\b|[a-z_]*(?:{_NAME})[a-z_]*\b"
_VALUE = rf"(?!\*\*\*|(?:true|false|none|null|auto)\b|{_CODE})[^\s\"',;&\\{{}}()\[\]<>]{{4,}}"
_SIGHTS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<before>:/{{1,2}}(?!/)|%3A(?:%2F){{1,2}}(?!%2F)){_USER}(?P<after>@|%40)",
        rf"(?P<before>(?:[?&;]|%3F|%26)(?:{_FIELD})(?:=|%3D))(?:(?!%26|%23)[^&;#\s\"'<>])+",
        rf"(?P<before>\bauthorization{_QUOTE}\s*[:=]\s*{_QUOTE})[^\"'\r\n\\]+",
        # name=value, "name": "value", and password: value
        rf"(?P<before>(?<![\w.-])[\w.-]{{0,50}}(?:{_NAME})\w{{0,50}}{_QUOTE}\s*(?:=\s*{_QUOTE}|:\s*\\*[\"']))"
        rf"{_VALUE}",
        rf"(?P<before>\b\w{{0,50}}(?:passw(?:or)?d|passphrase|aws_\w*(?:secret|token)\w*):\s*){_VALUE}",
        r"(?P<before>\bBearer\s+)[\w.~+/=-]{8,}",
        r"\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[a-z]_[0-9A-Za-z]{16,}|github_pat_\w{16,})\b",
    )
]


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Black out credentials."""
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
    else:
        rows = json.loads(text) if source.suffix == ".ipynb" else text
    clean = redact_tree(rows)
    if clean == rows:
        return Path(shutil.copyfile(source, target))
    with target.open("w", encoding="utf-8", newline="") as file:
        if source.suffix == ".csv":
            csv.writer(file, lineterminator="\n").writerows(clean)
        else:
            is_notebook = source.suffix == ".ipynb"
            file.write(json.dumps(clean, indent=1, ensure_ascii=False) if is_notebook else clean)
    return target


def find_secrets(values: Any) -> tuple[str, ...]:
    """Find what is secret in variables or parameters: by their names, and in addresses among them."""
    found = [form for text in _iterate_secrets(values) for form in (text, unquote(text))]
    return tuple(dict.fromkeys(found))


def _iterate_secrets(values: Any) -> Iterator[str]:
    if isinstance(values, str):
        yield from _find_in_address(values)
    elif isinstance(values, Mapping):
        for name, value in values.items():
            is_named = name not in _FOLDERS and _SECRET_NAME.search(str(name))
            if isinstance(value, str) and is_named:
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
        if re.fullmatch(_FIELD, field, re.IGNORECASE):
            yield value


def _redact(text: str, known: re.Pattern[str] | None) -> str:
    if known is not None:
        text = known.sub(_STARS, text)
    for sight in _SIGHTS:
        text = sight.sub(_star, text)
    return text


def _star(match: re.Match[str]) -> str:
    around = match.groupdict()
    return f"{around.get('before') or ''}{_STARS}{around.get('after') or ''}"


@functools.lru_cache(maxsize=64)
def _compile(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    """Make a pattern of secrets in all their writings; the longest first."""
    wanted = [one for one in secrets if len(one) >= _SHORTEST and one.lower() not in _WORDS]
    found: dict[str, bool] = {}
    for one in wanted:
        encoded = quote(one.encode("utf-8", "replace"), safe="")
        lower = re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), encoded)
        escaped = (json.dumps(one)[1:-1], repr(one)[1:-1], html.escape(one))
        found |= dict.fromkeys((one, encoded, lower, *escaped), len(one) >= _LOOSE)
    ordered = sorted(found, key=lambda form: (-len(form), form))
    words = (r"(?<![\w.])", r"(?![\w.])")
    parts = [re.escape(form) if found[form] else re.escape(form).join(words) for form in ordered]
    return re.compile("|".join(parts)) if parts else None
