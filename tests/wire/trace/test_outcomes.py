"""Programs alone and traced: the same output and exit code, whatever they trust and whoever runs them."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.stores import Handler, serve
from tests.wire.trace.stores import open_hosts
from wire.bed.certificates import Authority
from wire.trace import launch

BODY = b"the content\n"


class Site(Handler):
    """A server with TLS, or without, that answers what the path says."""

    context: ssl.SSLContext | None = None
    folder = ""

    def setup(self) -> None:
        """Begin TLS."""
        if self.context is not None:
            try:
                self.request = self.context.wrap_socket(self.request, server_side=True)
            except OSError as error:
                raise ConnectionAbortedError from error
        super().setup()

    def finish(self) -> None:
        """End TLS, which the server that took the connection knows nothing of."""
        super().finish()
        self.request.close()

    def do_GET(self) -> None:
        """Answer with who asked, a file or the content."""
        path = urlsplit(self.path).path
        file = Path(self.folder + path)
        body = file.read_bytes() if path.startswith("/repo.git/") and file.is_file() else BODY
        if path == "/who":
            peer = self.connection.getpeercert() if self.context is not None else None  # type: ignore[attr-defined]
            body = f"{peer['subject'] if peer else 'nobody'}\n".encode()
        status = 404 if path == "/none" or (path.startswith("/repo.git/") and body == BODY) else 200
        self.answer(status, b"" if self.command == "HEAD" else body, Content_Length=str(len(body)))

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        """Answer with what came."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, body, Content_Length=str(len(body)))


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that break off are part of what is tried."""
    monkeypatch.setattr(socketserver.BaseServer, "handle_error", lambda *_: None)


def make_client_certificate(folder: Path) -> None:
    """Write a certificate of a client, signed by itself, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "client.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "client.key").write_bytes(secret)


class World(NamedTuple):
    """Servers, whose URLs are variables, and files of certificates."""

    variables: dict[str, str]
    folder: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Serve with TLS, of which one server demands and one wants certificates, and plainly."""
    folder, authority = tmp_path_factory.mktemp("world"), Authority("a company")
    (folder / "ca.pem").write_bytes(authority.pem)
    make_client_certificate(folder)
    make_repository(folder)
    variables = {"CA": os.fspath(folder / "ca.pem"), "FOLDER": os.fspath(folder)}
    with ExitStack() as stack:
        for number, (name, mode) in enumerate(
            {"URL": None, "WANTS": ssl.CERT_OPTIONAL, "DEMANDS": ssl.CERT_REQUIRED}.items()
        ):
            # one context each: how a server asks is part of it
            context = authority.server_context("127.0.0.1", str(number))
            if mode is not None:
                context.verify_mode = mode
                context.load_verify_locations(folder / "client.pem")
            kind = type("TlsSite", (Site,), {"context": context, "folder": os.fspath(folder)})
            variables[name] = stack.enter_context(serve(kind)).replace("http:", "https:")
        port = urlsplit(variables["URL"]).port or 0
        variables["PIN"] = find_pin(port, folder / "ca.pem")
        variables["PLAIN"] = stack.enter_context(serve(partial(Site)))
        # by its name, behind a proxy of the user's: Go asks no proxy for what is on this machine
        targets = {"store.example": variables["PLAIN"]}
        far = stack.enter_context(open_hosts(folder / "far.pem", targets))
        variables |= {
            "FAR": "https://store.example",
            "PROXY": far["HTTPS_PROXY"],
            "FAR_CA": far["OTHER"],
        }
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            variables["CLOSED"] = f"http://127.0.0.1:{closed.getsockname()[1]}"
            yield World(variables, folder)


def make_repository(folder: Path) -> None:
    """Make a repository that any web server serves."""
    if shutil.which("git") is None:
        return
    run = partial(subprocess.run, check=True, capture_output=True, cwd=folder)
    run(["git", "init", "-q", "-b", "main", "work"])
    user = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    run(["git", "-C", "work", *user, "commit", "-q", "--allow-empty", "-m", "first"])
    run(["git", "clone", "-q", "--bare", "work", "repo.git"])
    run(["git", "-C", "repo.git", "update-server-info"])


def find_pin(port: int, bundle: Path) -> str:
    """Return the digest of a server's certificate."""
    context = ssl.create_default_context(cafile=bundle)
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
    ):
        return hashlib.sha256(sock.getpeercert(binary_form=True) or b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Program:
    """A program, what it needs, and whether its requests are seen."""

    words: tuple[str, ...]  # {NAME} is the variable of that name
    needs: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    seen: int | None = None  # how many requests; None: it may be any number
    fails: bool = False  # alone, too


def shell(line: str, *needs: str, seen: int | None = None, fails: bool = False, **variables: str) -> Program:  # fmt: skip
    """Make a program of a line for a shell."""
    return Program(("sh", "-c", line), ("sh", *needs), tuple(variables.items()), seen, fails)


def python(
    text: str, *options: str, seen: int | None = None, fails: bool = False, needs: tuple[str, ...] = (), **variables: str
) -> Program:  # fmt: skip
    """Make a program of lines for Python."""
    start = "import os, sys, ssl; from os import environ as e\n"
    words = (sys.executable, *options, "-c", start + text)
    return Program(words, needs, tuple(variables.items()), seen, fails)


DAEMON = """
import ctypes, time, urllib.request
done = e["FOLDER"] + "/daemon-" + str(os.getpid())
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        lines = open("/proc/self/stat").read().rpartition(")")[2].split()
        start, end = int(lines[47]), int(lines[48])
        ctypes.memset(start, 0, end - start)   # as those do that write their state there
        try: said = urllib.request.urlopen(e["PLAIN"] + "/whole").read().decode()
        except Exception as error: said = repr(error)
        open(done + ".new", "w").write(said); os.rename(done + ".new", done)
    os._exit(0)
while not os.path.exists(done): time.sleep(0.02)
print(open(done).read())
"""

NODE = "fetch(process.env.URL+'/a').then(r=>r.text()).then(t=>process.stdout.write(t))"

PROGRAMS = {
    # tools, each with a trust of its own
    "git, own file": shell("git -c http.sslCAInfo=$CA ls-remote $URL/repo.git", "git", seen=0),
    "git, variable": shell("git ls-remote $URL/repo.git", "git", GIT_SSL_CAINFO="{CA}", seen=0),
    "git clone": shell("rm -rf $FOLDER/c; git clone -q $URL/repo.git $FOLDER/c && git -C $FOLDER/c log --format=%s", "git", GIT_SSL_CAINFO="{CA}", seen=0),
    "git, system": shell("git ls-remote $URL/repo.git", "git", seen=0, fails=True),
    "wget, own file": shell("wget -qO- --ca-certificate=$CA $URL/a", "wget", seen=0),
    "wget, system": shell("wget -qO- $URL/a", "wget", seen=0, fails=True),
    "wget, unverified": shell("wget -qO- --no-check-certificate $URL/a", "wget", seen=0),
    "wget, plain": shell("wget -qO- $PLAIN/a", "wget", seen=1),
    "curl, variable": shell("curl -sS $URL/a", "curl", CURL_CA_BUNDLE="{CA}", seen=1),
    "curl, two": shell("curl -sS $URL/a $URL/none", "curl", CURL_CA_BUNDLE="{CA}", seen=2),
    "curl, own file": shell("curl -sS --cacert $CA $URL/a", "curl", seen=0),
    "curl, unverified": shell("curl -sSk $URL/a", "curl", seen=0),
    "curl, refused": shell("curl -sS $URL/a", "curl", fails=True),
    "curl, upload": shell("echo abc | curl -sS -T - -H 'Transfer-Encoding:' -H 'Content-Length: 4' $URL/up", "curl", CURL_CA_BUNDLE="{CA}", seen=1),
    "curl, pinned": shell("curl -sS --pinnedpubkey $(openssl s_client -connect ${{URL#https://}} </dev/null 2>/dev/null | openssl x509 -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | openssl base64 | sed s,^,sha256//,) $URL/a", "curl", "openssl", CURL_CA_BUNDLE="{CA}", seen=0),
    "curl, certificate": shell("curl -sS --cert $FOLDER/client.pem --key $FOLDER/client.key $DEMANDS/who", "curl", CURL_CA_BUNDLE="{CA}", seen=0),
    "curl, certificate wanted": shell("curl -sS --cert $FOLDER/client.pem --key $FOLDER/client.key $WANTS/who $WANTS/who", "curl", CURL_CA_BUNDLE="{CA}", seen=0),
    "curl, both ways": shell("for i in 1 2 3; do curl -sS --cacert $CA $URL/a & curl -sS $URL/a & done; wait", "curl", CURL_CA_BUNDLE="{CA}"),
    "openssl": shell("openssl s_client -CAfile $CA -connect ${{URL#https://}} </dev/null 2>/dev/null | grep ^Verification", "openssl"),
    "rclone": shell("rclone --ca-cert $FAR_CA cat :http:a --http-url $FAR/", "rclone", HTTPS_PROXY="{PROXY}", seen=0),
    "rclone, variable": shell("rclone cat :http:a --http-url $FAR/", "rclone", HTTPS_PROXY="{PROXY}", SSL_CERT_FILE="{FAR_CA}"),
    "rclone, S3": shell("rclone cat :s3:abc/d --s3-provider Other --s3-endpoint $FAR --s3-access-key-id a --s3-secret-access-key b --s3-no-head-object", "rclone", HTTPS_PROXY="{PROXY}", SSL_CERT_FILE="{FAR_CA}"),
    "go": Program(("{FOLDER}/../go/program",), ("go",), (("HTTPS_PROXY", "{PROXY}"), ("SSL_CERT_FILE", "{FAR_CA}")), seen=2),
    "go, refused": Program(("{FOLDER}/../go/program",), ("go",), (("HTTPS_PROXY", "{PROXY}"),), seen=0, fails=True),
    "node": shell(f"node -e \"{NODE}\"", "node", NODE_EXTRA_CA_CERTS="{CA}"),
    # Python's own clients
    "urllib, file": python("import urllib.request as u; print(u.urlopen(e['URL'] + '/a', context=ssl.create_default_context(cafile=e['CA'])).read())", seen=1),
    "urllib, data": python("import urllib.request as u; print(u.urlopen(e['URL'] + '/a', context=ssl.create_default_context(cadata=open(e['CA']).read())).read())", seen=1),
    "urllib, variable": python("import urllib.request as u; print(u.urlopen(e['URL'] + '/a').read())", SSL_CERT_FILE="{CA}", seen=1),
    "urllib, refused": python("import urllib.request as u\ntry: u.urlopen(e['URL'] + '/a')\nexcept u.URLError as error: print(error.reason.verify_message)", seen=0),
    "urllib, unverified": python("import urllib.request as u; print(u.urlopen(e['URL'] + '/a', context=ssl._create_unverified_context()).read())", seen=1),
    "http.client": python("import http.client as h\nc = h.HTTPSConnection(e['URL'][8:], context=ssl.create_default_context(cafile=e['CA'])); c.request('GET', '/a'); print(c.getresponse().read())"),
    "requests, file": python("import requests; print(requests.get(e['URL'] + '/a', verify=e['CA']).text)", seen=1, needs=("requests",)),
    "requests, file and not": python("import requests\nprint(requests.get(e['URL'] + '/a', verify=e['CA']).text)\ntry: print(requests.get(e['URL'] + '/a').text)\nexcept requests.exceptions.SSLError as error: print(type(error))", needs=("requests",)),
    "requests, wrong file": python("import requests\ntry: print(requests.get(e['URL'] + '/a', verify=e['FOLDER'] + '/client.pem').text)\nexcept requests.exceptions.SSLError as error: print(type(error))", seen=0, needs=("requests",)),
    "requests, variable": python("import requests; print(requests.get(e['URL'] + '/a').text)", seen=1, needs=("requests",), REQUESTS_CA_BUNDLE="{CA}"),
    "requests, certificate": python("import requests; print(requests.get(e['DEMANDS'] + '/who', verify=e['CA'], cert=(e['FOLDER'] + '/client.pem', e['FOLDER'] + '/client.key')).text)", seen=0, needs=("requests",)),
    "requests, certificate wanted": python("import requests; print(requests.get(e['WANTS'] + '/who', verify=e['CA'], cert=(e['FOLDER'] + '/client.pem', e['FOLDER'] + '/client.key')).text, requests.get(e['WANTS'] + '/who', verify=e['CA']).text)", needs=("requests",)),
    "urllib3, pinned": python("import urllib3; p = urllib3.ProxyManager(e['HTTPS_PROXY'], ca_certs=e['CA'], assert_fingerprint=e['PIN']) if 'HTTPS_PROXY' in e else urllib3.PoolManager(ca_certs=e['CA'], assert_fingerprint=e['PIN']); print(p.request('GET', e['URL'] + '/a').data)", seen=1, needs=("urllib3",)),
    "who is there": python("import http.client as h\nx = ssl.create_default_context(cafile=e['CA']); p = e.get('HTTPS_PROXY', e['URL']).rpartition('/')[2]\nc = h.HTTPSConnection(p, context=x)\n'HTTPS_PROXY' in e and c.set_tunnel(e['URL'][8:]); c.connect(); print(c.sock.getpeercert(), len(c.sock.getpeercert(True)))"),
    "aiohttp": python("import aiohttp, asyncio\nasync def f():\n  async with aiohttp.ClientSession(trust_env=True) as s, s.get(e['URL'] + '/a', ssl=ssl.create_default_context(cafile=e['CA'])) as r: print(await r.text())\nasyncio.run(f())", seen=1, needs=("aiohttp",)),
    "aiohttp, pinned": python("import aiohttp, asyncio\nasync def f():\n  async with aiohttp.ClientSession(trust_env=True) as s, s.get(e['URL'] + '/a', ssl=aiohttp.Fingerprint(bytes.fromhex(e['PIN']))) as r: print(await r.text())\nasyncio.run(f())", seen=1, needs=("aiohttp",)),
    "httpx": python("import httpx; print(httpx.get(e['URL'] + '/a', verify=ssl.create_default_context(cafile=e['CA'])).text)", seen=1, needs=("httpx",)),
    "botocore": python("import botocore.session as b, botocore.config as g\nc = b.get_session().create_client('s3', verify=e['CA'], endpoint_url=e['URL'], region_name='x', aws_access_key_id='a', aws_secret_access_key='b', config=g.Config(s3={'addressing_style': 'path'}))\nprint(c.get_object(Bucket='abc', Key='d')['Body'].read())", seen=1, needs=("botocore",)),
    "botocore, variable": python("import botocore.session as b, botocore.config as g\nc = b.get_session().create_client('s3', endpoint_url=e['URL'], region_name='x', aws_access_key_id='a', aws_secret_access_key='b', config=g.Config(s3={'addressing_style': 'path'}))\nprint(c.get_object(Bucket='abc', Key='d')['Body'].read())", seen=1, needs=("botocore",), AWS_CA_BUNDLE="{CA}"),
    "s3fs": python("import s3fs; print(s3fs.S3FileSystem(key='a', secret='b', endpoint_url=e['URL'], client_kwargs={'verify': e['CA'], 'region_name': 'x'}).cat_file('abc/d'))", needs=("s3fs",)),
    "obstore": python("import obstore.store as s; print(bytes(s.HTTPStore(e['URL']).get('a').bytes()))", seen=1, needs=("obstore",), SSL_CERT_FILE="{CA}"),
    "obstore after requests": python("import requests, obstore.store as s; print(requests.get(e['URL'] + '/a', verify=e['CA']).text)\ntry: print(bytes(s.HTTPStore(e['URL'], retry_config={'max_retries': 0}).get('a').bytes()))\nexcept Exception as error: print(type(error))", needs=("requests", "obstore")),
    "pip": python("import subprocess; print(subprocess.run([sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '--disable-pip-version-check', '--retries', '0', '--cert', e['CA'], '--index-url', e['URL'] + '/simple', 'none-such'], capture_output=True).returncode)", needs=("pip",)),
    # processes
    "no environment": shell("env -i $(command -v python3) -c 'print(1)'", "python3"),
    "path alone": python("import subprocess; subprocess.run([sys.executable, '-c', 'import ssl, urllib.request, certifi; print(certifi.where())'], env={k: e[k] for k in ('PATH', 'PYTHONPATH') if k in e}, check=True)", needs=("certifi",)),
    "isolated": python("import urllib.request as u; print(u.urlopen(e['URL'] + '/a', context=ssl.create_default_context(cafile=e['CA'])).read())", "-I", seen=0),
    "isolated, variable": python("import urllib.request as u; print(u.urlopen(e['URL'] + '/a').read())", "-I", SSL_CERT_FILE="{CA}", seen=1),
    "forked": python("import urllib.request as u\nx = ssl.create_default_context(cafile=e['CA'])\nfor i in range(3):\n  if os.fork() == 0:\n    print(u.urlopen(e['URL'] + '/a', context=x).read(), flush=True); os._exit(0)\n  os.wait()", seen=3),
    "spawned": python("import subprocess; [subprocess.run([sys.executable, '-c', 'import os, ssl, urllib.request as u; print(u.urlopen(os.environ[\"URL\"] + \"/a\", context=ssl.create_default_context(cafile=os.environ[\"CA\"])).read())'], check=True) for _ in range(2)]", seen=2),
    "replaced by curl": python("os.execvp('curl', ['curl', '-sS', e['URL'] + '/a'])", needs=("curl",), CURL_CA_BUNDLE="{CA}", seen=1),
    "daemon": python(DAEMON, seen=1),
    "modules of its own": shell("cd $FOLDER && mkdir -p own && cd own && for m in helpers wire advisors json ssl book psutil; do echo 'import sys; print(\"own\", __name__)' > $m.py; done && $PYTHON -c 'import helpers, wire, json, ssl'"),
    # what does not answer
    "closed port": python("import urllib.request as u\ntry: u.urlopen(e['CLOSED'] + '/a')\nexcept u.URLError as error: print(type(error), type(error.reason), error.reason.errno)"),
    "closed port, http.client": python("import http.client as h\np = e['HTTP_PROXY'][7:] if 'HTTP_PROXY' in e else e['CLOSED'][7:]\nc = h.HTTPConnection(p)\ntry: c.request('GET', e['CLOSED'] + '/a'); c.getresponse()\nexcept ConnectionRefusedError as error: print(error)"),
    "closed port, requests": python("import requests\ntry: requests.get(e['CLOSED'] + '/a')\nexcept requests.exceptions.ConnectionError: print('no connection')", needs=("requests",)),
    "closed port, not caught": python("import requests; print(requests.get(e['CLOSED']).text)", needs=("requests",), fails=True),
    "closed port, TLS": python("import urllib.request as u\ntry: u.urlopen(e['CLOSED'].replace('http', 'https') + '/a')\nexcept u.URLError as error: print('no connection')"),
    "unknown host": python("import urllib.request as u\ntry: u.urlopen('http://none.invalid/a')\nexcept u.URLError as error: print(type(error.reason), error.reason)"),
    "unknown host, httpx": python("import httpx\ntry: httpx.get('http://none.invalid/a')\nexcept httpx.TransportError: print('no connection')", needs=("httpx",)),
    "exit code": shell("exit 7", fails=True),
}  # fmt: skip

GO = """package main
import ("fmt"; "io"; "net/http"; "os")
func main() {
  for i := 0; i < 3; i++ {
    transport := http.DefaultTransport.(*http.Transport).Clone()
    client := &http.Client{Transport: transport}
    response, err := client.Get(os.Getenv("FAR") + "/a")
    if err != nil { fmt.Println(err); os.Exit(1) }
    body, _ := io.ReadAll(response.Body)
    fmt.Print(string(body))
  }
}
"""


@pytest.fixture(scope="module")
def go_program(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Build a program of Go's, where there is Go."""
    folder = world.folder.parent / "go"
    folder.mkdir(exist_ok=True)
    (folder / "main.go").write_text(GO)
    settings = {**os.environ, "GOFLAGS": "-mod=mod", "GOPROXY": "off", "GO111MODULE": "off"}
    subprocess.run(
        ["go", "build", "-o", "program", "main.go"], cwd=folder, env=settings, check=True
    )


_OURS = ("PROXY", "CA_BUNDLE", "SSL_CERT", "CA_CERTS", "CAINFO", "CA_FILE", "PIP_CERT")


def is_lacking(need: str) -> bool:
    """Tell whether neither a program nor a module of this name is here."""
    from importlib.util import find_spec

    return shutil.which(need) is None and find_spec(need) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_it_does_alone(
    name: str, world: World, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """It prints the same and ends with the same code; what cannot be read is named, and what can be is read."""
    program = PROGRAMS[name]
    for need in program.needs:
        if is_lacking(need):
            pytest.skip(f"{need} is not installed")
    if "go" in program.needs:
        request.getfixturevalue("go_program")
    for variable in [*os.environ]:
        if any(word in variable.upper() for word in _OURS):
            monkeypatch.delenv(variable)
    variables = {**world.variables, "PYTHON": sys.executable}
    variables |= {key: value.format(**variables) for key, value in program.variables}
    words = [
        word.replace("{FOLDER}", os.fspath(world.folder)).replace("{{", "{").replace("}}", "}")
        for word in program.words
    ]
    alone = subprocess.run(words, env={**os.environ, **variables}, stdout=subprocess.PIPE, check=False)  # fmt: skip
    assert (alone.returncode != 0) == program.fails
    run = launch.run(words, environment=variables, is_silent=True)
    assert run.exit_code == alone.returncode
    assert run.output_digest == hashlib.sha256(alone.stdout).hexdigest()
    assert program.seen in (None, len(run.rows))
    if program.seen == 0:
        assert run.unread
