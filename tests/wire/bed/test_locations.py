"""Locations are read from addresses and environment, keep their secrets and say what is wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import obstore
import pytest
from click.testing import CliRunner

from tests.refusals import refused
from tests.stores import Handler, make_location, serve
from wire.bed import locations
from wire.bed.locations import Location, parse_location
from wire.bed.testbed import Server
from wire.calibrate.cli import calibrate
from wire.decide.cli import decide
from wire.errors import UserError
from wire.hdf5.cli import advise

SETTINGS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
SECRET = Location(
    "s3", "b", "p", "http://127.0.0.1:1", "KEY-7", "SECRET-7", session_token="TOKEN-7"
)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each test without settings of the user's own."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("url", ["s3://arrays", "s3://arrays/woa/v1", "gs://cmip6/GFDL_CM2_6"])
def test_parses(url: str) -> None:
    """An address gives scheme, bucket and prefix; nothing set means anonymous."""
    for location in (parse_location(url), parse_location(f"{url}/")):
        assert (location.url, location.secrets) == (url, ())
        assert not location.bucket.count("/") and not location.prefix.startswith("/")


@pytest.mark.parametrize("name", ["/a b", "/a %41 #b", "/a?b/c", "/a {x} $b/é"])
def test_a_folder_is_named_by_its_path(name: str) -> None:
    """As fsspec takes it: nothing in it is decoded, and nothing is cut off."""
    location = parse_location(f"file://{name}")
    assert (location.path, location.url) == (name, f"file://{name}")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        *((url, repr(url)) for url in ("", "arrays/woa", "/folder", "file://host/folder")),
        *((url, repr(url)) for url in ("https://host/bucket", "s3://", "s3:///woa")),
        # a password would stand in records and messages
        ("s3://key:hunter-2@bucket/prefix", r"s3://\*\*\*@bucket"),
    ],
)
def test_refuses_address(url: str, shown: str) -> None:
    """What is no address of a bucket is refused with what is allowed."""
    with refused("store", f"^{shown}$", "^embedded, s3://") as refusal:
        parse_location(url)
    assert "hunter" not in str(refusal.value)


class Full(Handler):
    """A store that has no room, and a pod's server of credentials."""

    role: ClassVar = {"AccessKeyId": "K-2", "SecretAccessKey": "S-2", "Token": "T-2"}

    def do_PUT(self) -> None:
        """Say that it is full."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(507, Content_Length="0")

    def do_GET(self) -> None:
        """Give the keys of a role."""
        keys = json.dumps({**self.role, "Expiration": "2999-01-01T00:00:00Z"}).encode()
        self.answer(200, keys, Content_Length=str(len(keys)))


@pytest.fixture(scope="module")
def full() -> Iterator[str]:
    """Serve it."""
    with serve(Full) as url:
        yield url


def test_a_full_store_is_one_line(full: str) -> None:
    """Whatever a client makes of its answer; anything else stays what it is."""
    location = Location("s3", "b", "p", full, "k", "secret")
    client = location.botocore(retries={"total_max_attempts": 1})
    with refused("store", "^s3://b/p: is full$"), location.writing():
        obstore.put(location.obstore({"max_retries": 0}), "x", b"1")
    with refused("store", "^s3://b/p: is full$"), location.writing():
        client.put_object(Bucket="b", Key="x", Body=b"1")
    with pytest.raises(KeyError), location.writing():
        raise KeyError


def test_profiles_and_roles_are_as_good_as_keys(
    full: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file with profiles, and a server that gives the keys of a pod's role; else nobody signs."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    assert parse_location("s3://a").access_key is None
    (tmp_path / "keys").write_text("[lab]\naws_access_key_id=K-1\naws_secret_access_key=S-1\n")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert parse_location("s3://a").secrets == ("K-1", "S-1")
    monkeypatch.setenv("AWS_PROFILE", "typo")
    with refused("store", r"^its credentials .*\(typo\)", "keys in"):
        parse_location("s3://a")
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", full)
    assert parse_location("s3://a").secrets == ("K-2", "S-2", "T-2")


def test_environment_is_for_s3_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endpoint, region and credentials come from the environment, but not for Google's store."""
    for name in SETTINGS:
        monkeypatch.setenv(name, f"http://{name}")
    s3, gs = parse_location("s3://a/b"), parse_location("gs://a/b")
    assert s3.endpoint_url == "http://AWS_ENDPOINT_URL"
    assert s3.region == "http://AWS_REGION"
    assert set(s3.secrets) == {f"http://{name}" for name in SETTINGS[:3]}
    assert gs == Location("gs", "a", "b")
    monkeypatch.delenv("AWS_REGION")
    assert parse_location("s3://a").region == "http://AWS_DEFAULT_REGION", "its older name"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with refused("store", "only one of AWS_ACCESS_KEY_ID and") as refusal:
        parse_location("s3://arrays")
    assert "http" not in str(refusal.value)


def test_secrets_are_not_shown() -> None:
    """No text of a location, nor of its clients, holds what records are searched for."""
    hidden = [each.name for each in dataclasses.fields(Location) if not each.repr]
    assert {getattr(SECRET, name) for name in hidden} == set(SECRET.secrets)
    for one in (SECRET, SECRET / "more", SECRET.through("http://127.0.0.1:2")):
        text = f"{one!r} {one} {one.url} {one.path} {one.obstore()!r} {one.fsspec()!r}"
        assert not any(secret in text for secret in SECRET.secrets)


@pytest.mark.parametrize(
    ("change", "value", "allowed"),
    [
        # nobody listens
        ({"endpoint_url": "http://127.0.0.1:1"}, "does not answer", "AWS_ENDPOINT_URL"),
        # no address at all
        ({"endpoint_url": "not an address"}, "does not answer", "AWS_ENDPOINT_URL"),
        # signature of another secret
        (
            {"secret_key": "wrong" * 8},
            r"\(SignatureDoesNotMatch\)$",
            "^credentials that may read",
        ),
        # unknown key
        ({"access_key": "nobody"}, r"\(\w+\)$", "^credentials that may read"),
        # anonymous where that is not allowed
        (
            {"access_key": None, "secret_key": None},
            r"\(AccessDenied\)$",
            "^credentials that may read",
        ),
        ({"bucket": "absent"}, "no bucket 'absent' there", "^a bucket that exists"),
        ({"bucket": "_!"}, "", "^a bucket name"),
    ],
)
def test_check_says_what_is_wrong(
    server: Server, change: dict[str, str], value: str, allowed: str
) -> None:
    """One line names parameter, value and what is allowed, and no secret."""
    location = dataclasses.replace(make_location(server, "locations"), **change)
    with refused("store", value, allowed) as refusal:
        location.check()
    text = str(refusal.value)
    assert location.url in refusal.value.value
    assert not any(secret in text for secret in location.secrets)


def test_clients_of_our_store_need_no_setting(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token of another account and a proxy of the user's have no part in reads of loopback."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-another-account")
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    location = make_location(server, "settings") / "folder"
    store = location.obstore()
    obstore.put(store, "x", b"1234")
    for one in (store, pickle.loads(pickle.dumps(store))):
        assert bytes(obstore.get(one, "x").bytes()) == b"1234"
    assert location.fsspec(skip_instance_cache=True).cat(f"{location.path}/x") == b"1234"
    found = location.botocore().get_object(Bucket=location.bucket, Key=f"{location.prefix}/x")
    assert found["Body"].read() == b"1234"
    location.check()
    assert SECRET.obstore().config["session_token"] == "TOKEN-7"  # one of its own is kept


class Hostile(Handler):
    """A store that leads elsewhere, sends a byte now and then, or more headers than anyone reads."""

    led: ClassVar[list[str]] = []
    elsewhere: ClassVar[str] = ""

    def do_GET(self) -> None:
        """Answer as the bucket is called."""
        bucket = self.path.split("?")[0].strip("/")
        if bucket == "leads":
            self.answer(302, Location=f"{self.elsewhere}/there", Content_Length="0")
        elif bucket == "drips":
            with contextlib.suppress(OSError):
                for byte in b"HTTP/1.1 200 OK\r\nX: " + 50 * b"a":
                    self.wfile.write(bytes([byte]))
                    time.sleep(0.05)
        elif bucket == "tells":
            self.answer(200, **{f"X_{i}": "a" for i in range(120)}, Content_Length="0")
        else:
            self.led.append(self.path)
            self.answer(200, Content_Length="0")


@pytest.mark.parametrize(
    ("bucket", "told", "within_s"),
    [
        ("leads", "leads elsewhere", 20.0),
        ("drips", "does not answer", 1.0),
        ("tells", "does not answer", 20.0),
    ],
)
def test_a_hostile_store_is_refused_in_one_line(
    bucket: str, told: str, within_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No redirect is followed, which would bring the session token to another host, and none waits for ever."""
    monkeypatch.setattr(locations, "_ANSWER_S", within_s)
    with serve(Hostile) as url, serve(Hostile) as other:
        monkeypatch.setattr(Hostile, "elsewhere", other.replace("127.0.0.1", "localhost"))
        with refused("store", told, "."):
            Location("s3", bucket, "", url, "k", "secret", session_token="token").check()
    assert not Hostile.led


class Other(Handler):
    """A server of another origin, which notes the credentials that come."""

    came: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Note them, and have nothing."""
        names = ("authorization", "x-amz-security-token")
        self.came += [name for name in names if name in self.headers]
        self.came += ["in the address"] * ("token" in self.path.lower())
        self.answer(404, Content_Length="0")

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET


class Leading(Other):
    """A store that leads what it is asked elsewhere: everything, or one kind of request."""

    elsewhere = ""
    kinds: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        """Lead on, or have nothing."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command not in self.kinds:
            self.answer(404, Content_Length="0")
            return
        self.answer(307, Location=f"{self.elsewhere}{self.path}", Content_Length="0")

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET


ALL = {"HEAD", "GET", "PUT", "POST", "DELETE"}


@pytest.mark.parametrize(
    ("host", "kinds"),
    [
        ("127.0.0.1", ALL),  # another port
        pytest.param("localhost", ALL, marks=pytest.mark.slow),  # another host
        pytest.param("127.0.0.1", {"GET"}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        (advise, "s3://bucket/a.h5"),
        (decide, "s3://bucket/a.h5"),
        (decide, "s3://bucket/a.zarr"),
        (calibrate, "s3://bucket/a", "--out", "out.yml"),
        (calibrate, "s3://bucket", "--write", "folder", "--out", "out.yml"),
    ],
)
def test_no_credential_follows_where_a_store_leads(
    command: tuple[Any, ...], kinds: set[str], host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Neither a signature nor the token of a session reaches another origin; the user gets a line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Other, "came", [])
    monkeypatch.setattr(Leading, "kinds", kinds)
    for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("SESSION_TOKEN", "lorem-token"), ("EC2_METADATA_DISABLED", "true")):  # fmt: skip
        monkeypatch.setenv(f"AWS_{name}", value)
    with serve(Leading) as url, serve(Other) as other:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setattr(Leading, "elsewhere", other.replace("127.0.0.1", host))
        ended = CliRunner().invoke(command[0], [*command[1:]])
    assert isinstance(ended.exception, UserError)
    assert "leads elsewhere" in str(ended.exception) and "\n" not in str(ended.exception)
    assert not Other.came
