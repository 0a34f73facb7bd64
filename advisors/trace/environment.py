"""The variables by which a program finds the gateway and trusts it: which client needs which."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from advisors.trace.rows import METADATA_SERVICES
from helpers.errors import UserError
from helpers.netem.certificates import BUNDLE_VARIABLES

TOKEN = "WIRE_TRACE"  # noqa: S105
"""Variable by which processes of the program are known."""

SHIMS = Path(__file__).with_name("shims")

# Options of fsspec's filesystems, which are JSON and may be the user's own.
_SESSIONS = {
    "FSSPEC_HTTP_CLIENT_KWARGS": {"trust_env": True},
    "FSSPEC_HTTPS_CLIENT_KWARGS": {"trust_env": True},
    "FSSPEC_GCS_SESSION_KWARGS": {"trust_env": True},
    "FSSPEC_GS_SESSION_KWARGS": {"trust_env": True},
}


def check_proxies(environment: Mapping[str, str]) -> None:
    """Refuse a proxy of the user's own that the gateway cannot ask."""
    for name in ("https_proxy", "http_proxy", "all_proxy"):
        for variable in (name, name.upper()):
            url = environment.get(variable, "")
            if "://" in url and urlsplit(url).scheme != "http":
                raise UserError(f"{variable} is {url}; allowed with wire trace is http://HOST:PORT")


def make_environment(
    given: Mapping[str, str], *, port: int, bundle: Path, token: str
) -> dict[str, str]:
    """Return the variables of a program whose requests go through the gateway.

    What the program reaches directly now, by `NO_PROXY`, it reaches through the gateway too.
    """
    url = f"http://127.0.0.1:{port}"
    names = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")
    found = {**given, TOKEN: token, **dict.fromkeys(names, url)}
    found |= dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(METADATA_SERVICES))
    found |= dict.fromkeys(BUNDLE_VARIABLES, os.fspath(bundle))
    for name, session in _SESSIONS.items():
        try:
            found[name] = json.dumps({**json.loads(given.get(name, "{}")), **session})
        except (ValueError, TypeError):
            continue  # it is for fsspec to say what is wrong with it
    host, number = "127.0.0.1", str(port)
    found |= {"TILEDB_VFS_S3_PROXY_HOST": host, "TILEDB_VFS_S3_PROXY_PORT": number}
    found["TILEDB_VFS_S3_PROXY_SCHEME"] = "http"
    places = [os.fspath(SHIMS), given.get("PYTHONPATH", "")]
    found["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    return found
