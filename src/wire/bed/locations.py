"""Where a store is: endpoint, bucket, credentials, and the clients that reach it."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies_environment

import botocore.config
import botocore.exceptions
import botocore.session
import obstore.store
from botocore.parsers import ResponseParserError
from fsspec import AbstractFileSystem, filesystem

from wire.children import environment
from wire.deadline import deadline
from wire.errors import UserError, find_secrets, redact, show

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

# After so many seconds, real ones, a client gives a request up and repeats it; these are the
# libraries' own of today, stated so that records can tell them.
CONNECT_S = 5
SILENCE_S = 15  # without a byte: s3fs
REQUEST_S = 30  # for the whole request: obstore
_LEADS = ("leads elsewhere, where keys would go too", "the store's own address")
_ANSWER_S = 30.0  # for the first answer of a store, which may come a byte at a time


@dataclass(frozen=True, slots=True)
class Location:
    """A folder in object storage, with all that a client needs to read it."""

    scheme: Literal["s3", "gs", "abfs", "file"]
    bucket: str  # empty for a folder of a file system
    prefix: str = ""  # path inside the bucket, without slashes at its ends
    endpoint_url: str | None = None  # address of the server; None for the provider's own
    # credentials, never shown; None for anonymous access
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    region: str = "us-east-1"  # that requests are signed for
    session_token: str | None = field(default=None, repr=False)  # of credentials that expire

    def __repr__(self) -> str:
        """Show the place, and of the endpoint's address no credential."""
        return redact(f"Location({self.url!r}, {self.endpoint_url!r}, {self.region!r})")

    def __truediv__(self, name: str) -> Location:
        """Return the location of `name` below this one."""
        return replace(self, prefix=f"{self.prefix}/{name}".strip("/"))

    def through(self, endpoint_url: str | None) -> Location:
        """Return the same place, reached by another address, such as a proxy's."""
        return replace(self, endpoint_url=endpoint_url)

    def reached_as(self, other: Location) -> Location:
        """Return the same bucket and prefix, reached as `other` is: its server, interface and keys."""
        return replace(other, bucket=self.bucket, prefix=self.prefix)

    @property
    def path(self) -> str:
        """Bucket and prefix, as fsspec names a place."""
        return f"{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def url(self) -> str:
        """Address with scheme, such as ``s3://arrays/woa``."""
        return f"{self.scheme}://{self.path}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must appear in no record, notebook or trace."""
        texts = (self.access_key, self.secret_key, self.session_token)
        return (*(text for text in texts if text), *find_secrets(self.endpoint_url))

    def fsspec_options(self) -> dict[str, Any]:
        """Return the options with which fsspec makes a client, otherwise at its defaults."""
        if self.scheme == "gs":
            emulator = {"endpoint_url": self.endpoint_url, "project": "any"}
            return {"token": "anon"} | (emulator if self.endpoint_url else {})
        if self.scheme == "abfs":
            return {"connection_string": self.connection_string}
        if self.scheme == "file":
            return {}
        config: dict[str, Any] = {"connect_timeout": CONNECT_S, "read_timeout": SILENCE_S}
        return {
            "config_kwargs": config | ({"proxies": {}} if is_here(self.endpoint_url) else {}),
            "key": self.access_key,
            "secret": self.secret_key,
            "token": self.session_token,
            "anon": self.access_key is None,
            "endpoint_url": self.endpoint_url,
            "client_kwargs": {"region_name": self.region},
        }

    def fsspec(self, **options: Any) -> AbstractFileSystem:
        """Make an fsspec client; `options` go to it beside our own.

        That of an emulator of Google is the class that gcsfs has for ordinary buckets: the one that
        `gs://` opens asks by gRPC first which kind a bucket is, which no emulator answers.
        """
        if self.scheme == "gs" and self.endpoint_url:
            from gcsfs.core import GCSFileSystem  # an extra that not everyone has

            google: AbstractFileSystem = GCSFileSystem(**self.fsspec_options(), **options)
            return google
        return filesystem(self.scheme, **self.fsspec_options(), **options)

    @property
    def connection_string(self) -> str:
        """What leads a client of Azure to a server, with the keys of its account."""
        account = f"AccountName={self.access_key};AccountKey={self.secret_key}"
        endpoint = f"BlobEndpoint={self.endpoint_url}/{self.access_key}"
        return f"DefaultEndpointsProtocol=http;{account};{endpoint};"

    def obstore(
        self, retry_config: RetryConfig | None = None
    ) -> (
        obstore.store.S3Store
        | obstore.store.GCSStore
        | obstore.store.AzureStore
        | obstore.store.LocalStore
    ):
        """Make a new obstore client for this folder, otherwise at its defaults."""
        if self.scheme == "file":
            return obstore.store.LocalStore(self.path, mkdir=True)
        if self.scheme in ("gs", "abfs"):
            return _make_store_elsewhere(self, retry_config)
        token = self.session_token or None
        if not token and self.access_key and {"AWS_SESSION_TOKEN", "AWS_TOKEN"} & os.environ.keys():
            token = ""  # keeps out that of other credentials, which obstore takes from there
        options = {
            "endpoint": self.endpoint_url,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "session_token": token,
        }
        # It has no switch that keeps out proxies or stays with the host that is named: it takes them
        # from the environment, and follows an answer that leads to another host with the token of a
        # session. So all hosts but this one are sent to a proxy that is not there, unless one leads out.
        patience: ClientConfig = {
            "allow_http": True,
            "connect_timeout": f"{CONNECT_S} seconds",
            "timeout": f"{REQUEST_S} seconds",
        }
        host = urlsplit(self.endpoint_url or "").hostname or ""
        if host and (is_here(self.endpoint_url) or not getproxies_environment()):
            patience |= {"proxy_url": "http://127.0.0.1:9", "proxy_excludes": host}
        return obstore.store.S3Store(
            self.bucket,
            prefix=self.prefix or None,
            region=self.region,
            skip_signature=self.access_key is None,
            client_options=patience,
            retry_config=retry_config,
            **{name: value for name, value in options.items() if value is not None},  # type: ignore[arg-type]
        )

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Refuse in one line a write for which the store has no room."""
        try:
            yield
        except Exception as error:  # each client has errors of its own
            if not re.search(r"\b507\b|Insufficient ?Storage|No space left", str(error), re.I):
                raise
            raise UserError("store", f"{self.url}: is full", "one with room") from error

    def clear(self) -> None:
        """Remove all that lies here."""
        client = self.obstore()
        for page in obstore.list(client):
            obstore.delete(client, [entry["path"] for entry in page])

    def _icechunk_options(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the options by which Icechunk reaches the server, and those by which it signs."""
        server = {
            "region": self.region,
            "endpoint_url": self.endpoint_url,
            "allow_http": (self.endpoint_url or "").startswith("http:"),
        }
        keys = {
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "session_token": self.session_token or None,
        }
        return server, keys

    def icechunk_storage(self) -> Any:
        """Return where a repository lies, as Icechunk wants it."""
        import icechunk  # an extra that not everyone has

        server, keys = self._icechunk_options()
        is_path = bool(self.endpoint_url)
        where: Any = {"bucket": self.bucket, "prefix": self.prefix, "force_path_style": is_path}
        return icechunk.s3_storage(**where, **server, **keys)

    def icechunk_virtual_chunks(self) -> dict[str, Any]:
        """Allow an Icechunk repository chunks of files in this bucket, through its endpoint of now."""
        import icechunk  # an extra that not everyone has

        bucket, config = f"s3://{self.bucket}/", icechunk.RepositoryConfig.default()
        (server, keys), is_path = self._icechunk_options(), bool(self.endpoint_url)
        reached = icechunk.s3_store(s3_compatible=is_path, force_path_style=is_path, **server)
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(bucket, reached))
        chunk_credentials: Any = icechunk.s3_anonymous_credentials()
        if self.access_key:
            chunk_credentials = icechunk.s3_static_credentials(**keys)
        allowed = icechunk.containers_credentials({bucket: chunk_credentials})
        return {"config": config, "authorize_virtual_chunk_access": allowed}

    def botocore(self, **settings: Any) -> Any:
        """Make a botocore client, for what the readers' clients cannot do."""
        config = botocore.config.Config(
            signature_version="s3v4" if self.access_key else botocore.UNSIGNED,
            s3={"addressing_style": "path" if self.endpoint_url else "auto"},
            proxies={} if is_here(self.endpoint_url) else None,
            **settings,
        )
        client = botocore.session.get_session().create_client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            aws_session_token=self.session_token,
            config=config,
        )
        if self.endpoint_url:  # a store that is not Amazon's leads nowhere else
            # botocore follows no redirect then: it would ask for the region, and be led elsewhere, for ever
            client.meta.events.register_last(
                "before-parameter-build.s3",
                lambda context, **_: context["s3_redirect"].update(redirected=True),
            )
        return client

    def refuse_redirects(self, within_s: float | None = None) -> tuple[int, int]:
        """Refuse a store that leads elsewhere, before a client asks that would follow with its credentials.

        The clients send the token of a session wherever an answer leads: obstore to another port,
        s3fs anywhere. So what they ask first is asked here, by a client that follows nothing. A
        store that is Amazon's leads to Amazon's, and without credentials nothing is lost. Returns
        how many requests this took, and how many bytes came. Each may take `within_s`; without it
        the deadline of the caller holds.
        """
        if self.scheme != "s3" or not self.endpoint_url or self.access_key is None:
            return 0, 0
        patience = {"connect_timeout": 5, "read_timeout": 10, "retries": {"total_max_attempts": 1}}
        client, n_requests, nbytes = self.botocore(**patience), 0, 0
        place = {"Bucket": self.bucket, "Key": self.prefix or "-"}
        for ask in (client.head_object, partial(client.get_object, Range="bytes=0-0")):
            n_requests += 1
            try:
                with deadline(within_s) if within_s else contextlib.nullcontext():
                    answer = ask(**place)
                    if "Body" in answer:
                        with contextlib.closing(answer["Body"]) as body:
                            nbytes += len(body.read(1))
            except botocore.exceptions.ClientError as error:
                if 300 <= error.response["ResponseMetadata"]["HTTPStatusCode"] < 400:
                    raise UserError("store", f"{self.url}: {_LEADS[0]}", _LEADS[1]) from error
            except (botocore.exceptions.BotoCoreError, ResponseParserError, ValueError, OSError):
                break  # what else is wrong the clients find out themselves
        return n_requests, nbytes

    def check(self) -> None:
        """Ask the server for the bucket, and say in one line what is wrong if it is."""
        if self.scheme == "file" and not (
            os.path.isdir(self.path) and os.access(self.path, os.W_OK)
        ):
            raise UserError("store", self.url, "a folder that is there and may be written to")
        if self.scheme != "s3":
            return
        patience = {"connect_timeout": 5, "read_timeout": 10, "retries": {"total_max_attempts": 2}}
        try:
            # not HEAD: its answer has no body, so a wrong key can look like a missing bucket
            with deadline(_ANSWER_S):
                self.botocore(**patience).list_objects_v2(Bucket=self.bucket, MaxKeys=1)
        except botocore.exceptions.ClientError as error:
            code = error.response["Error"]["Code"]
            problem, allowed = f"refused ({code})", "credentials that may read the bucket"
            allowed += " (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
            if code == "NoSuchBucket":
                problem, allowed = f"no bucket {self.bucket!r} there", "a bucket that exists"
            if 300 <= error.response["ResponseMetadata"]["HTTPStatusCode"] < 400:
                problem, allowed = _LEADS
            raise UserError("store", f"{self.url}: {problem}", allowed) from error
        except botocore.exceptions.ParamValidationError as error:
            raise UserError("store", self.url, "a bucket name as S3 has them") from error
        except (
            botocore.exceptions.BotoCoreError,
            ResponseParserError,
            ValueError,
            TimeoutError,
        ) as error:
            raise UserError(
                "store",
                f"endpoint {self.endpoint_url or 'of AWS'} does not answer for {self.url}",
                "the address of a running S3 server (AWS_ENDPOINT_URL)",
            ) from error


def _make_store_elsewhere(
    location: Location, retry_config: RetryConfig | None
) -> obstore.store.GCSStore | obstore.store.AzureStore:
    """Make a client of obstore for Google, without credentials, or for Azure."""
    more: Any = {"prefix": location.prefix or None, "retry_config": retry_config}
    if location.endpoint_url:
        more["client_options"] = {"allow_http": True}
    if location.scheme == "abfs":
        more["endpoint"] = f"{location.endpoint_url}/{location.access_key}"
        keys: Any = {"account_name": location.access_key, "account_key": location.secret_key}
        return obstore.store.AzureStore(location.bucket, **keys, **more)
    if location.endpoint_url:  # the library takes the address of an emulator from a key alone
        key = {"gcs_base_url": location.endpoint_url, "disable_oauth": True}
        empty = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        more["service_account_key"] = json.dumps(key | empty)
    return obstore.store.GCSStore(location.bucket, skip_signature=True, **more)


def is_here(endpoint_url: str | None) -> bool:
    """Return whether an address is of this machine, to which no proxy leads."""
    return urlsplit(endpoint_url or "").hostname in ("localhost", "127.0.0.1", "::1")


def split_address(address: str) -> SplitResult:
    """Split an address into its parts, or refuse one that has none."""
    try:
        return urlsplit(address)
    except ValueError as error:  # of a bracket that is open, as of an address of IPv6
        raise UserError("store", show(address), "an address such as s3://BUCKET/PREFIX") from error  # fmt: skip


def parse_location(url: str) -> Location:
    """Read a location from its address, and credentials from where clients of AWS look for them."""
    parts = split_address(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.strip("/"):
        # of a file system that all nodes see; its path as it is, as fsspec takes it
        return Location("file", "", url.removeprefix("file://").strip("/"))
    allowed = "embedded, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or file:///FOLDER"
    if "@" in parts.netloc:  # what stands before it may be a password, and is not shown
        raise UserError(
            "store",
            f"{parts.scheme}://***@{parts.netloc.rpartition('@')[2]}",
            f"{allowed}, with credentials in the environment or a profile",
        )
    if parts.scheme not in ("s3", "gs") or not parts.netloc:
        raise UserError("store", show(url), allowed)
    bucket, prefix = parts.netloc, parts.path.strip("/")
    if parts.scheme == "gs":  # read anonymously at Google's own address: the settings are for S3
        return Location("gs", bucket, prefix)
    keys = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if (keys[0] is None) != (keys[1] is None):
        raise UserError(
            "store",
            "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set",
            "both, or neither for anonymous access",
        )
    session = botocore.session.get_session()
    endpoint_url = os.environ.get("AWS_ENDPOINT_URL")
    key, secret, token = _find_credentials(session, is_amazon=not endpoint_url)
    region = os.environ.get("AWS_REGION") or session.get_config_variable("region") or "us-east-1"
    return Location("s3", bucket, prefix, endpoint_url, key, secret, region, token)


def open_location(url: str, *, below: str = "") -> Location:
    """Read a location, and refuse one whose server would lead credentials elsewhere.

    Whoever reads a store that no testbed has opened opens it by this; `below` names an object of it
    that is read first.
    """
    location = parse_location(url)
    (location / below if below else location).refuse_redirects()
    return location


def _find_credentials(session: Any, *, is_amazon: bool) -> tuple[str | None, ...]:
    """Find keys and token in the environment, a profile, or the role of a pod or an instance.

    Without any, buckets are read anonymously. Only Amazon's stores know the role of an instance.
    """
    try:
        if not is_amazon:
            session.get_component("credential_provider").remove("iam-role")
        keys = session.get_credentials()
        return tuple(keys.get_frozen_credentials()[:3]) if keys else (None, None, None)
    except botocore.exceptions.BotoCoreError as error:
        reason = " ".join(str(error).split())
        raise UserError(
            "store",
            f"its credentials cannot be had ({reason})",
            "keys in the environment, a profile, a role, or none of these for anonymous access",
        ) from error


def credentials(location: Location) -> contextlib.AbstractContextManager[None]:
    """Put the credentials of a store where clients without arguments look for them."""
    return environment(
        {
            "AWS_ACCESS_KEY_ID": location.access_key or None,
            "AWS_SECRET_ACCESS_KEY": location.secret_key or None,
            "AWS_SESSION_TOKEN": location.session_token or None,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    )
