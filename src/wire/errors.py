"""What leaves the process in words: the one error that users see as a line, the one function that prints, no credential.

Credentials are blacked out of every text here, the one place that knows how. What is known to be
secret is found plain, percent-encoded once or escaped. What is not known is recognised by where it
stands: in an address, behind a name that says so, or by its own form.
"""

from __future__ import annotations

import csv
import errno
import functools
import html
import io
import json
import os
import re
import reprlib
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

_SHOWN_LENGTH = 80  # characters of a value in a message


class UserError(ValueError):
    """Something the user asked for cannot be done.

    The command line prints it in one line without a traceback, and no credential is in it.

    Parameters
    ----------
    where : str
        The option, parameter, file or program that is refused.
    value : object
        What stood there, or what is wrong with it.
    allowed : object
        What may stand there instead; empty where nothing else would do.

    Examples
    --------
    >>> print(UserError("n_workers", 0, "at least 1"))
    n_workers: 0; allowed: at least 1
    """

    def __init__(self, where: str, value: object, allowed: object = "") -> None:
        self.where, self.allowed = redact(where), redact(str(allowed))
        # together, for a name may be what says that its value is secret
        pair = redact(f"{self.where}: {value}")
        self.value = pair.removeprefix(f"{self.where}: ")
        super().__init__(self.where, self.value, self.allowed)

    def __str__(self) -> str:
        """Write the one sentence in which every refusal is printed."""
        subject = ": ".join(filter(None, (self.where, self.value)))
        text = f"{subject}; allowed: {self.allowed}" if self.allowed else subject
        return _LONG.sub(_shorten, printable(redact(text)).replace("\n", r"\n"))

    def within(self, place: str) -> UserError:
        """Return the same refusal of something inside `place`, such as a field of a file."""
        return type(self)(": ".join(filter(None, (place, self.where))), self.value, self.allowed)


_LONG = re.compile(r"\S{301,}")  # such as a path that somebody made to fill the screen


def _shorten(word: re.Match[str]) -> str:
    return f"{word[0][:100]}...{word[0][-100:]}"


def say(text: object = "", *, err: bool = False) -> None:
    """Print to the terminal, without credentials and without what would steer it.

    Names of files and fields of records may come from a stranger.
    """
    print(printable(redact(str(text))), file=sys.stderr if err else sys.stdout, flush=True)


def printable(text: str) -> str:
    """Escape what is not printed, but for the ends of lines."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def convert_system_error(error: OSError) -> UserError:
    """Return what the system did not allow, and where, as a refusal."""
    where = cut(str(error.filename)) if error.filename else ""
    return UserError(
        where, describe_system_error(error), "a folder that can be written and has room"
    )


def describe_refusal(error: OSError) -> str:
    """Describe in one line what the system did not allow, and where."""
    return str(convert_system_error(error))


def describe_system_error(error: OSError) -> str:
    """Say in our words what a system refuses, whatever its own are.

    Examples
    --------
    >>> describe_system_error(FileNotFoundError(2, "No such file or directory"))
    'nothing is there'
    """
    name = errno.errorcode.get(error.errno or 0, "")
    for names, words in _SYSTEM.items():
        if name in names.split():
            return words
    if isinstance(error, TimeoutError):
        return "no answer came in time"
    return f"the system refuses it ({name})" if name else cut(" ".join(str(error).split()))


_SYSTEM = {
    "ENOENT": "nothing is there",
    "EACCES EPERM": "you may not",
    "EISDIR": "it is a folder",
    "ENOTDIR": "a part of its path is no folder",
    "EEXIST": "it is there already",
    "ENOTEMPTY": "the folder is not empty",
    "ENOSPC EDQUOT": "no space is left",
    "EROFS": "it may only be read",
    "ENAMETOOLONG": "its name is too long",
    "ELOOP": "its links lead in a circle",
    "EMFILE ENFILE": "too many files are open",
    "ENOEXEC": "it is no program for this machine",
    "EIO": "its disk cannot read or write it",
    "ENODEV ENXIO": "its device is not there",
    "ETXTBSY EBUSY": "it is in use",
    "EFBIG": "it would be too large",
    "EXDEV": "it lies on another disk",
    "EADDRINUSE": "its port is taken",
    "ECONNREFUSED": "nobody listens there",
    "ECONNRESET EPIPE ECONNABORTED": "the connection was closed",
    "EHOSTUNREACH ENETUNREACH": "no way leads there",
    "ETIMEDOUT": "no answer came in time",
}
"""What errors of the system mean to a user, by their names."""


def convert_validation_error(error: Any, *, depth: int | None = None) -> UserError:
    """Return what pydantic says in four lines as a refusal in one: the first field, its value and what is allowed.

    A field is named by its whole place, or by the first `depth` parts of it.
    """
    first = error.errors(include_url=False)[0]
    kind, context = first["type"], first.get("ctx", {})
    where = ".".join(map(str, first["loc"][:depth]))
    if kind in ("value_error", "assertion_error"):  # of a check of our own, in its own words
        own = context.get("error")
        if not where:
            return own if isinstance(own, UserError) else UserError("", own or "another value")
        return UserError(where, show(first["input"]), own or "another value")
    if kind.startswith("missing"):
        return UserError(where, "is missing", "stated")
    if kind in ("extra_forbidden", "unexpected_keyword_argument", "no_such_attribute"):
        problem = f"{show(first['input'])}; no such name"
        return UserError(where, problem, "names that are documented")
    words = _WORDS.get(kind) or next(
        (text for family, text in _FAMILIES.items() if f"{kind}_".startswith(f"{family}_")),
        "another value",
    )
    return UserError(where, show(first["input"]), words.format(**context))


_WORDS = {
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "above {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "below {lt}",
    "multiple_of": "multiples of {multiple_of}",
    "too_short": "at least {min_length} in the list",
    "too_long": "at most {max_length} in the list",
    "string_pattern_mismatch": "text like {pattern}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_not_ascii": "text in ASCII",
    "finite_number": "a finite number",
    "int_parsing_size": "a whole number of fewer digits",
    "date_past": "a date in the past",
    "date_future": "a date in the future",
    "datetime_past": "a time in the past",
    "datetime_future": "a time in the future",
    "invalid_key": "names that are text",
    "url_scheme": "an address that begins with {expected_schemes}",
    "decimal_max_digits": "at most {max_digits} digits",
    "decimal_max_places": "at most {decimal_places} digits after the point",
    "decimal_whole_digits": "at most {whole_digits} digits before the point",
}
"""What pydantic's kinds of errors allow."""

_FAMILIES = {
    "none": "nothing",
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "complex": "a number",
    "fraction": "a number",
    "bool": "true or false",
    "string": "text",
    "bytes": "text",
    "datetime": "a date and time, such as 2026-01-31T12:00:00",
    "date": "a date, such as 2026-01-31",
    "time_delta": "a duration",
    "timezone": "a time with its zone as asked for",
    "time": "a time, such as 12:00:00",
    "url": "an address",
    "uuid": "an identifier",
    "json": "JSON",
    "list": "a list",
    "tuple": "a list",
    "named_tuple": "a list",
    "set": "a list",
    "frozen_set": "a list",
    "deque": "a list",
    "iterable": "a list",
    "iteration": "a list",
    "arguments": "a list",
    "recursion": "values that do not hold themselves",
    "dict": "names with values",
    "frozen_dict": "names with values",
    "ordered_dict": "names with values",
    "counter": "names with values",
    "mapping": "names with values",
    "model": "names with values",
    "dataclass": "names with values",
    "union": "one of the kinds that are documented",
    "frozen": "as it was",
}
"""What all kinds allow whose names begin so, where none of their own is above."""


def format_size(value: float) -> str:
    """Write bytes in the unit that reads best.

    Examples
    --------
    >>> format_size(1_048_576), format_size(40)
    ('1.05 MB', '40 bytes')
    """
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{float(f'{value / size:.3g}'):,.15g} {unit}"
    return f"{value:.0f} bytes"


def show(value: object) -> str:
    """Write a value for a message: in one line, however long, nested or odd it is.

    Credentials go before it is cut, for the rest of one would be recognised no more.

    Examples
    --------
    >>> show("zarr"), show([1, 2, 3]), show({"password": "hunter-2"})
    ("'zarr'", '[1, 2, 3]', "{'password': '***'}")
    """
    shorter = reprlib.Repr(maxlist=12, maxdict=12, maxset=12, maxtuple=12)
    shorter.maxstring = shorter.maxlong = shorter.maxother = 1000
    try:
        text = shorter.repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        text = "a number of thousands of digits"
    return cut(redact(text))


def name_file(path: Path) -> str:
    """Give the name of a file for a message; credentials go first, for a name has no scheme that tells them.

    Examples
    --------
    >>> name_file(Path("s3://me:hunter22@bucket")), name_file(Path("/a/b.csv"))
    ('***@bucket', 'b.csv')
    """
    return cut(redact(str(path)).rpartition("/")[2])


def cut(text: str) -> str:
    """Cut a text to the length that a message shows, and escape what is not printed."""
    text = text[: 2 * _SHOWN_LENGTH]
    escaped = printable(text).replace("\n", r"\n")
    return escaped if len(escaped) <= _SHOWN_LENGTH else escaped[: _SHOWN_LENGTH - 3] + "..."


_STARS = "***"
# values of switches, in whose names "token" stands
_SWITCHES = {"true", "false", "none", "null", "auto"}
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
        r"\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*",  # a token of JSON, which begins with {" in base64
        r"(?P<before>;jsessionid=)[^;/?#\s]+",
    )
]


# what any of the sights needs, which most texts have not
_HINT = re.compile(r"[=:@]|%3D|%40|bearer|AKIA|ASIA|gh[a-z]_|github_pat_|eyJ", re.IGNORECASE)
_BETWEEN = r"(?:^|[/?&;,]|%2F|%3F|%26|%3B|%2C)"
_IN_PATH = re.compile(
    rf"(?P<before>{_BETWEEN}(?:{_FIELD})(?:=|%3D))(?:(?!{_BETWEEN}).)+", re.IGNORECASE | re.DOTALL
)
_OPTION_NAME = re.compile(
    rf"(?:[\w-]*(?:{_NAME})[\w-]*|[\w-]*cookies?|(?:proxy-)?user|pass|pw|auth|authorization|oauth2-bearer|pin|key)",
    re.IGNORECASE,
)
# of curl and openssl: a password behind a certificate or a kind of source
_CERTIFICATES = ("-E", "--cert", "--proxy-cert", "-passin", "-passout")
_QUERY = re.compile(
    r"(?P<before>\b[a-z][a-z0-9+.-]{1,20}://[^\s?#\"'<>]*)[?#][^\s\"'<>]+", re.IGNORECASE
)
_NO_SECRET_FIELDS = {"accept", "accept-encoding", "cache-control", "content-type", "host", "range", "user-agent"}  # fmt: skip


def redact_path(path: str) -> str:
    """Black out credentials in the path of a URL: parameters and parts of it that are named so.

    Examples
    --------
    >>> redact_path("/b/f.nc;sig=abcdef/token=ghijkl/0.0"), redact_path("/b/%74oken%3Dghijkl")
    ('/b/f.nc;sig=***/token=***/0.0', '/b/token=***')
    """
    return redact_paths([path])[0]


def redact_paths(paths: Sequence[str], secrets: Iterable[str] = ()) -> list[str]:
    """Black out credentials in many paths at once, as `redact_path` does in one."""
    secrets = (*secrets,)
    clean = _redact_parts(paths, secrets)
    encoded = [place for place, path in enumerate(paths) if "%" in path]
    decoded = _redact_parts([unquote(paths[place]) for place in encoded], secrets)
    for place, path in zip(encoded, decoded, strict=True):
        if unquote(clean[place]) != path:
            clean[place] = quote(path, safe="/;&?,*=:@")
    return clean


def _redact_parts(paths: Iterable[str], secrets: Iterable[str]) -> list[str]:
    """Black out addresses and parameters in paths, then what else stands in a part of one."""
    parts = [_IN_PATH.sub(_star, _SIGHTS[0].sub(_star, path)).split("/") for path in paths]
    return ["/".join(words) for words in redact_tree(parts, secrets)]


def redact_command(words: Sequence[str]) -> list[str]:
    """Black out credentials in a command line: values of options that hold one, and of headers.

    What a word means is for its program to say, so too much goes rather than too little: the value of
    `-p` is a password here, and a port elsewhere. Commands inside a word, as of `sh -c`, are read too.

    Examples
    --------
    >>> redact_command(["curl", "-u", "me:secret", "-H", "X-Key: abc", "--proxy-user=me:secret", "URL"])
    ['curl', '-u', 'me:***', '-H', 'X-Key: ***', '--proxy-user=***', 'URL']
    >>> redact_command(["curl", "-E", "cert.pem:secret", "http://h/x?key=1#2"])
    ['curl', '-E', 'cert.pem:***', 'http://h/x?***']
    """
    clean, option = list[str](), ""
    for word in words:
        is_option = word.startswith("-") and len(word) > 1
        name, equals, value = word.partition("=")
        if option and not (is_option and option in _SHORT):
            clean.append(_redact_value(option, word))
        elif is_option and equals and name.startswith("--"):
            clean.append(f"{name}={_redact_value(name, value)}")
        elif is_option and word[:2] in _SHORT and len(word) > 2 and not word.startswith("--"):
            clean.append(word[:2] + _redact_value(word[:2], word[2:]))
        else:
            clean.append(_redact_word(word))
        is_awaited = is_option and not option and not equals and _is_secret_option(word)
        option = word if is_awaited else ""
    return clean


_MOST_SPLIT = 20_000  # characters of a word that is read as a command
_SHORT = ("-u", "-U", "-p", "-b", "-H")  # of curl, wget, mysql and others


def _is_secret_option(word: str) -> bool:
    is_named = bool(_OPTION_NAME.fullmatch(word.lstrip("-")))
    is_header = word.lower() in ("--header", "--proxy-header")
    return word in _SHORT or word in _CERTIFICATES or is_header or is_named


def _redact_value(option: str, value: str) -> str:
    """Black out the value of an option, or the part of it that is secret."""
    name = option.lower()
    before, colon, _ = value.partition(":")
    if option == "-H" or name in ("--header", "--proxy-header"):
        is_harmless = not colon or before.strip().lower() in _NO_SECRET_FIELDS
        return _redact_word(value) if is_harmless else f"{before}: {_STARS}"
    if option in _CERTIFICATES:
        return f"{before}:{_STARS}" if colon else _redact_word(value)
    if option in ("-u", "-U"):  # of Python the option before a script
        return f"{before}:{_STARS}" if colon and "://" not in value else _redact_word(value)
    if option == "-b":  # cookies, or a file of them
        return _STARS if "=" in value else _redact_word(value)
    return (
        _STARS if value and (option == "-p" or _is_secret_option(option)) else _redact_word(value)
    )


def _redact_word(word: str) -> str:
    if len(word) < _MOST_SPLIT and any(map(str.isspace, word)):
        try:
            inner = shlex.split(word)
        except ValueError:
            inner = [word]
        if len(inner) > 1 and (clean := redact_command(inner)) != inner:
            word = shlex.join(clean)
    return _QUERY.sub(
        lambda match: f"{match['before']}?{_STARS}", _IN_PATH.sub(_star, redact(word))
    )


def find_command_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """Find what a command line gives as a password, which may stand in a path or an error too.

    Examples
    --------
    >>> find_command_secrets(["x", "--password", "secret-1", "--token=secret-2", "-u", "me:secret-3", "-p", "80"])
    ('secret-1', 'secret-2', 'secret-3')
    """
    secrets, option = list[str](), ""
    for word in words:
        name, equals, value = word.partition("=")
        if word.startswith("--") and equals:
            option, word = name, value
        if _SECRET_NAME.search(option):
            secrets.append(word)
        elif option in ("-u", "--user", "--proxy-user", *_CERTIFICATES) and ":" in word:
            secrets.append(word.partition(":")[2])
        option = word if word.startswith("-") else ""
    return tuple(secret for secret in secrets if len(secret) >= _LOOSE)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Black out credentials."""
    return str(redact_tree(text, secrets))


def redact_tree(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Black out credentials in every text inside mappings and sequences, as of a notebook."""
    secret_pattern = _compile((*secrets, *find_secrets(os.environ)))

    def walk(part: Any) -> Any:
        if isinstance(part, str):
            part = part if secret_pattern is None else secret_pattern.sub(_STARS, part)
            for sight in _SIGHTS if _HINT.search(part) else ():
                part = sight.sub(_star, part)
            return part
        if isinstance(part, Mapping):
            return {key: walk(item) for key, item in part.items()}
        return [walk(item) for item in part] if isinstance(part, (list, tuple)) else part

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
    forms = [form for text in _iterate_secrets(values) for form in (text, unquote(text))]
    return tuple(dict.fromkeys(forms))


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
    user, sign, _ = rest.rpartition("@")
    name, colon, password = user.partition(":")
    if sign and "/" not in name:
        yield password if colon else name
    for field, value in parse_qsl(rest.partition("?")[2], keep_blank_values=True):
        if re.fullmatch(_FIELD, field, re.IGNORECASE):
            yield value


def _star(match: re.Match[str]) -> str:
    around = match.groupdict()
    return f"{around.get('before') or ''}{_STARS}{around.get('after') or ''}"


@functools.lru_cache(maxsize=64)
def _compile(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    """Make a pattern of secrets in all their writings; the longest first."""
    wanted = [
        secret for secret in secrets if len(secret) >= _SHORTEST and secret.lower() not in _SWITCHES
    ]
    is_long: dict[str, bool] = {}
    for secret in wanted:
        encoded = quote(secret.encode("utf-8", "replace"), safe="")
        lower = re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), encoded)
        escaped = (json.dumps(secret)[1:-1], repr(secret)[1:-1], html.escape(secret))
        is_long |= dict.fromkeys((secret, encoded, lower, *escaped), len(secret) >= _LOOSE)
    ordered = sorted(is_long, key=lambda form: (-len(form), form))
    words = (r"(?<![\w.])", r"(?![\w.])")
    parts = [re.escape(form) if is_long[form] else re.escape(form).join(words) for form in ordered]
    return re.compile("|".join(parts)) if parts else None
