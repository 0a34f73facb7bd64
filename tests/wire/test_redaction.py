"""No password leaves the process, however it is written and wherever it goes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.paths import ROOT
from wire.bed.locations import parse_location
from wire.errors import UserError, copy_redacted, find_secrets, redact, redact_command, redact_path

CANARY = "hunter-2-canary"

# each form of an address that holds the canary
ADDRESSES = [
    f"redis://:{CANARY}@host:6379/0",
    f"redis://user:{CANARY}@host",
    f"redis://user:sla/sh/{CANARY}@host",
    f"redis://user:{CANARY}/sla@sh@host",
    f"redis://{CANARY}@host",
    f"redis://host:6379?password={CANARY}",
    f"redis://host/0?db=1&PASSWORD={CANARY}&x=1",
    f"redis://host/0?access_token={CANARY}",
    f"redis://user:%68%75{quote(CANARY[2:])}@host",
    f"https://host/key?X-Amz-Algorithm=A&X-Amz-Credential={CANARY}%2Fs3&X-Amz-Signature={CANARY}",
    f"https://host/key?X-Amz-Security-Token={CANARY}",
    f"https://host/key?sp=r&sig={CANARY}",
]
# the canary and the encoded forms under which it is searched for
SIGHTS = re.compile("hunter-2-canary|%68%75nter-2-canary", re.IGNORECASE)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "shown", ["{}", "cannot reach '{}', try again", '{{"store": "{}"}}', "<a href='{}'>"]
)
def test_addresses_lose_their_credentials(address: str, shown: str) -> None:
    """In whatever text an address stands, nothing of its credentials stays, and its host does."""
    clean = redact(shown.format(address))
    assert not SIGHTS.search(clean)
    assert "host" in clean and clean.startswith(shown[:1].replace("{", clean[:1]))
    assert redact(clean) == clean
    assert not SIGHTS.search(redact(shown.format(quote(address, safe=""))))


@pytest.mark.parametrize("address", [a for a in ADDRESSES if "sla" not in a])
def test_secrets_of_addresses_are_known_elsewhere(address: str) -> None:
    """A secret of a parameter is blacked out where no address is around it."""
    secrets = find_secrets({"redis_url": [address]})
    text = f"login of {CANARY} failed; {json.dumps({'x': CANARY})}"
    assert redact(text, secrets).count("***") == 2


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer {}",
        "curl -H 'Bearer {}'",
        "password={} refused",
        "redis password: {}",
        "worker_token = '{}'",
        "cluster_options: {{'password': '{}'}}; allowed",
        '{{"api_key": "{}", "n": 1}}',
        "AWS_SECRET_ACCESS_KEY={}",
        "aws_session_token: {}",
        "store: s3://key:{}@bucket",
    ],
)
def test_credentials_are_known_by_what_stands_before_them(text: str) -> None:
    """A header, a variable, a field of a mapping: the value goes, its name stays."""
    clean = redact(text.format(CANARY))
    assert not SIGHTS.search(clean) and "***" in clean
    assert redact(clean) == clean


@pytest.mark.parametrize("token", ["ghp_" + 18 * "a1", "github_pat_" + 30 * "b", "AKIA" + 16 * "A"])
def test_tokens_are_known_by_their_form(token: str) -> None:
    """Those of code forges and clouds, wherever they stand."""
    assert redact(f"with {token}.") == "with ***."


@pytest.mark.parametrize(
    "text",
    [
        "store: only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set",
        "http://127.0.0.1:8080/bucket/key",
        "https://cdn.example.org/npm/vega@5",
        "s3://bucket/prefix; allowed: s3://BUCKET/PREFIX",
        "someone@example.org, see https://example.org/?page=2&n=3#top",
        "tls://127.0.0.1:40123 has 2 workers",
        "token=None, password=getpass.getpass(), secret=os.environ['X']",
        "token: allowed: one of these; Bearer of news",
    ],
)
def test_other_text_is_kept(text: str) -> None:
    """What is no credential stays: a page that is blacked out says nothing."""
    assert redact(text, ("", "1", "true", "none")) == text


@given(st.text(min_size=8, max_size=20), st.sampled_from(["raw", "quoted", "json", "lower"]))
def test_a_known_secret_is_found_in_any_writing(secret: str, writing: str) -> None:
    """Raw, percent-encoded in either case, or escaped for JSON."""
    secret = secret.encode("utf-8", "ignore").decode()
    if len(secret.strip()) < 8:
        return
    quoted = quote(secret, safe="")
    lower = re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), quoted)
    forms = {"raw": secret, "quoted": quoted, "json": json.dumps(secret)[1:-1], "lower": lower}
    assert redact(f"< {forms[writing]} >", (secret,)) == "< *** >"


def test_variables_of_the_environment_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets are told by the names of variables, and by addresses in any; paths are none."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", "abcd-efgh-1234")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:wo/rd-5678@127.0.0.1:9000")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token")
    assert redact("abcd-efgh-1234 wo%2Frd-5678 /var/run/token") == "*** *** /var/run/token"


def test_folders_of_a_shell_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path below the folder in which a command runs is shown as it is."""
    for name in ("PWD", "OLDPWD"):
        monkeypatch.setenv(name, "/data/arrays")
    assert redact("file: /data/arrays/era5.zarr is not there").endswith("era5.zarr is not there")
    assert "***" not in redact("file: /data/arrays/era5.zarr")
    assert redact("s3:/key:PASSWORD@bucket") == "s3:/***@bucket", "as a path writes it"


def test_errors_and_locations_show_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line that a user reads is clean where it is made, and a location knows its endpoint's."""
    with pytest.raises(UserError) as caught:
        raise UserError("redis_url", ADDRESSES[0], "others")
    assert caught.value.args == ("redis_url", "redis://***@host:6379/0", "others")
    assert UserError("aws_secret_key", CANARY).value == "***"
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:{CANARY}@127.0.0.1:9")
    location = parse_location("s3://bucket/x")
    assert CANARY in location.secrets
    with pytest.raises(UserError) as caught:
        location.check()
    assert not SIGHTS.search(str(caught.value))
    assert not SIGHTS.search(repr(location))


def test_copies_without_credentials_are_the_same_bytes(tmp_path: Path) -> None:
    """A reference result of each kind is copied as it is, and the copy of another holds no credential."""
    for path in (next((ROOT / "results" / "reference").rglob(f"*/*{kind}")) for kind in (".csv", ".ipynb")):  # fmt: skip
        assert copy_redacted(path, tmp_path / path.name).read_bytes() == path.read_bytes()
    (tmp_path / "bad.csv").write_text(f'a,b\n"x,{ADDRESSES[0]}",y@z\n')
    copy_redacted(tmp_path / "bad.csv", tmp_path / "good.csv")
    assert (tmp_path / "good.csv").read_text() == 'a,b\n"x,redis://***@host:6379/0",y@z\n'


COMMANDS = [
    (["--password", CANARY], "a value after its name"),
    (["--api-key", CANARY], "of another name"),
    ([f"--password={CANARY}"], "a value in the word of its name"),
    (["-p", CANARY], "a password for short"),
    ([f"-p{CANARY}"], "in one word, as mysql wants it"),
    (["-b", f"sid={CANARY}"], "a cookie"),
    ([f"-bsid={CANARY}"], "a cookie in one word"),
    (["--cookie", f"sid={CANARY}"], "a cookie by name"),
    (["-u", f"me:{CANARY}"], "a user of curl"),
    ([f"-ume:{CANARY}"], "a user in one word"),
    (["--proxy-user", f"me:{CANARY}"], "a user of a proxy"),
    ([f"--proxy-user=me:{CANARY}"], "the same in one word"),
    (["--header", f"Authorization: Basic {CANARY}"], "a header"),
    ([f"--header=X-Secret-Sauce: {CANARY}"], "another header"),
    (["-H", f"X-Api-Key:{CANARY}"], "a header for short"),
    ([f"-HCookie: sid={CANARY}"], "a header in one word"),
    (["--oauth2-bearer", CANARY], "a token of curl"),
    (["sh", "-c", f"curl -u 'me:{CANARY}' https://host/x"], "a command inside a word"),
    (["env", f"AWS_SECRET_ACCESS_KEY={CANARY}", "x"], "a variable"),
    ([f"https://host/f.nc;sig={CANARY}"], "a parameter of a path"),
    ([f"https://host/token={CANARY}/f.nc"], "a part of a path"),
    ([f"https://me:{CANARY}@host/f.nc"], "in an address"),
    ([f"https://host/f.nc?sig={CANARY}"], "a query"),
    ([f"https://host/f.nc?k={CANARY}#{CANARY}"], "any query, for files have none"),
    (["-E", f"cert.pem:{CANARY}"], "a password of a certificate"),
    (["-passin", f"pass:{CANARY}"], "a password as openssl takes it"),
    ([f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{CANARY}"], "a token of JSON"),
]  # fmt: skip


@pytest.mark.parametrize(
    "words", [words for words, _ in COMMANDS], ids=[why for _, why in COMMANDS]
)
def test_command_lines_lose_their_credentials(words: list[str]) -> None:
    """Wherever a program takes a password, the words around it stay, and a second pass changes nothing."""
    clean = redact_command(["program", "-v", *words, "data.nc"])
    assert not SIGHTS.search(" ".join(clean))
    assert clean[:2] == ["program", "-v"] and clean[-1] == "data.nc"
    assert redact_command(clean) == clean


@pytest.mark.parametrize(
    "words",
    [
        ["python", "-u", "script.py", "--year", "2020"],
        ["curl", "-H", "Range: bytes=0-9", "https://host/b/x.nc"],
        ["curl", "-b", "jar.txt", "https://host/b/x.nc"],
        ["sh", "-c", "python 'my script.py' && echo done"],
        ["python", "-c", "print(f(x)[0], 'a b')"],
        ["x", "-u"],
        [],
    ],
)
def test_command_lines_without_credentials_stay(words: list[str]) -> None:
    """What is no credential can be pasted."""
    assert redact_command(words) == words


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("/b/f;sig=abcdef;v=1", "/b/f;sig=***;v=1"),
        ("/b/f;jsessionid=abcdef/x", "/b/f;jsessionid=***/x"),
        ("/u/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdef", "/u/***"),
        ("/b/password=abcdef/f", "/b/password=***/f"),
        ("/b/f%3Bsig%3Dabcdef%26x", "/b/f%3Bsig%3D***%26x"),
        ("/b/%73ig=abcdef", "/b/sig=***"),
        ("/b/year=2020/c/0/0", "/b/year=2020/c/0/0"),
        ("/b/x%20y/c/0/0", "/b/x%20y/c/0/0"),
        ("/b/signal/tokens/0.0", "/b/signal/tokens/0.0"),
    ],
)
def test_paths_lose_their_credentials(path: str, clean: str) -> None:
    """Parameters and parts that are named as secret, encoded or not; all else stays."""
    assert redact_path(path) == clean
    assert redact_path(clean) == clean
