"""Lead Python's libraries to the gateway, whatever Python the program runs; nothing here fails it.

Python's `ssl` trusts the gateway's authority besides what it would trust alone, and says so to the
gateway before each connection (`wire.trace.trust`). Other libraries in the process get names of
their own for the file with that authority, by which the gateway knows who has opened it.
DuckDB heeds no variable.

The program's modules may be named as the standard library's: nothing is imported that Python has
not imported by now.
"""

# mypy: ignore-errors

import contextlib
import importlib.machinery
import importlib.util
import os
import sys

_FOLDER = os.environ.get("WIRE_TRACE_FOLDER", "")
_OPEN, _STATEMENTS, _PEERS = (os.path.join(_FOLDER, name) for name in ("open", "said", "peers"))
_NAMES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GDAL_CURL_CA_BUNDLE", "TILEDB_SSL_CA_FILE", "TILEDB_VFS_S3_CA_FILE")  # fmt: skip
_CERTIFI = "certifi"


def _own_path(name):
    """Name the file with the gateway's authority in this process."""
    return os.path.join(_OPEN, f"{os.getpid()}.{name}.pem")


def _is_ours(path):
    try:
        return bool(_FOLDER) and os.path.dirname(os.fsdecode(path)) == _OPEN
    except (TypeError, AttributeError):
        return False


def _say(*words):
    """Write down a line for the gateway: names and numbers alone, and what goes over the network in the clear."""
    line = (repr(words) + "\n").encode("ascii", "backslashreplace")
    file = os.open(os.path.join(_STATEMENTS, str(os.getpid())), os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def _begin(parent=0):
    """Give this process names of its own for the file, and tell the gateway that we are here."""
    with open("/proc/self/stat", "rb") as file:
        start = int(file.read().rpartition(b")")[2].split()[19])
    for name in (*_NAMES, _CERTIFI):
        path = _own_path(name)
        if not os.path.exists(path):
            os.link(os.path.join(_OPEN, f"{name}.pem"), path)
        if _is_ours(os.environ.get(name)):  # else it is the program's own by now
            os.environ[name] = path
    path = os.path.join(_STATEMENTS, str(os.getpid()))
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    _say("begin", start, parent)


def _begin_after_fork(parents):
    parent, parents[0] = parents[0], os.getpid()
    with contextlib.suppress(Exception):  # then it is not seen, and nothing more
        _begin(parent)
    if _SAMPLER is not None:
        with contextlib.suppress(Exception):
            _SAMPLER.after_fork_in_child(parent)


def _before_fork():
    if _SAMPLER is not None:
        with contextlib.suppress(Exception):
            _SAMPLER.stop()


def _after_fork():
    if _SAMPLER is not None:
        with contextlib.suppress(Exception):
            _SAMPLER.after_fork_in_parent()


def _lead_certifi(certifi):  # netCDF4 and others take its file whatever the variables say
    alone = certifi.where
    _ALONE[_CERTIFI] = alone

    def where():
        path = _own_path(_CERTIFI)
        return path if os.path.exists(path) else alone()

    certifi.where = where


_ALONE = {}


def _certificates_alone(ssl, path):
    """Return file and folder that a name for our file stands for where there is no gateway."""
    name = os.path.basename(os.fsdecode(path)).split(".")[-2]
    users = os.environ.get("WIRE_TRACE_" + name)
    if users:
        return users, None
    if _CERTIFI not in _ALONE:
        with contextlib.suppress(Exception):
            importlib.import_module(_CERTIFI)
    if _CERTIFI in _ALONE:
        return _ALONE[_CERTIFI](), None
    return _default_certificates(ssl)


def _default_certificates(ssl):
    paths = ssl.get_default_verify_paths()
    file = os.environ.get("WIRE_TRACE_SSL_CERT_FILE") or paths.openssl_cafile
    folder = os.environ.get("SSL_CERT_DIR") or paths.openssl_capath
    return (file if os.path.isfile(file) else None), (folder if os.path.isdir(folder) else None)


def _lead_ssl(ssl):
    kind = ssl.SSLContext
    load, load_default, load_own = kind.load_verify_locations, kind.set_default_verify_paths, kind.load_cert_chain  # fmt: skip
    wrap_socket, wrap_bio = kind.wrap_socket, kind.wrap_bio
    with open(os.path.join(_FOLDER, "authority.pem")) as file:
        authority = file.read()
    n_written = [0]

    def add(context, *sources):
        """Have a context trust the gateway too, and note what it would trust alone."""
        try:
            if context.protocol != getattr(ssl, "PROTOCOL_TLS_SERVER", None):
                trusted = context.__dict__.setdefault("_wire_sources", [])
                trusted.extend(source for source in sources if source not in trusted)
                if not context.__dict__.get("_wire_is_ours"):
                    load(context, cadata=authority)
                    context.__dict__["_wire_is_ours"] = True
        except Exception:  # then the context is not known to trust us, and what it says is not read
            context.__dict__["_wire_unknown"] = True

    def load_verify_locations(self, cafile=None, capath=None, cadata=None):
        if not _is_ours(cafile):
            load(self, cafile, capath, cadata)
            add(self, *paths_of(cafile, capath, cadata))
            return
        file, folder = _certificates_alone(ssl, cafile)
        load(self, file, folder if capath is None else capath, cadata)
        add(self, None, *paths_of(None, capath, cadata))

    def paths_of(cafile, capath, cadata):
        try:
            paths = [os.path.abspath(os.fsdecode(path)) for path in (cafile, capath) if path]
            if cadata:
                n_written[0] += 1
                paths.append(os.path.join(_FOLDER, "data", f"{os.getpid()}.{n_written[0]}"))
                content = cadata.encode("ascii") if isinstance(cadata, str) else bytes(cadata)
                file = os.open(paths[-1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                try:
                    os.write(file, content)
                finally:
                    os.close(file)
            return paths
        except Exception:
            return [
                os.path.join(_FOLDER, "none")
            ]  # the gateway cannot verify by it, and does not read

    def set_default_verify_paths(self):
        own = os.environ.get("SSL_CERT_FILE")
        if _is_ours(own):
            file, folder = _default_certificates(ssl)
            for arguments in ({"cafile": file}, {"capath": folder}):
                with contextlib.suppress(Exception):  # as OpenSSL does, and where there is none
                    load(self, **arguments)
            add(self, None)
        else:
            load_default(self)
            add(self, *paths_of(own, None, None) if own else (None,))

    def load_cert_chain(self, *args, **kwargs):
        self.__dict__["_wire_unknown"] = True  # a certificate of its own, which we could not show
        return load_own(self, *args, **kwargs)

    def note(context, hostname):
        """Tell the gateway how the context says hello, and that it trusts us."""
        with contextlib.suppress(Exception):
            sources = tuple(context.__dict__.get("_wire_sources", ()))
            is_verifying = context.verify_mode != ssl.CERT_NONE
            if context.__dict__.get("_wire_unknown") or (is_verifying and not sources):
                return
            lists = ssl.VERIFY_CRL_CHECK_LEAF | ssl.VERIFY_CRL_CHECK_CHAIN
            if context.verify_flags & lists:
                return
            state = (os.getpid(), hostname, sources, is_verifying, context.verify_flags,
                     context.options, getattr(context, "minimum_version", 0),
                     getattr(context, "maximum_version", 0), context.__dict__.get("_wire_n_set", 0))  # fmt: skip
            if state in context.__dict__.setdefault("_wire_noted", set()):
                return
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            trial = wrap_bio(context, incoming, outgoing, False, hostname)
            with contextlib.suppress(ssl.SSLWantReadError):
                trial.do_handshake()
            _say("hello", outgoing.read().hex(), is_verifying, int(context.verify_flags), sources)
            context.__dict__["_wire_noted"].add(state)

    def wrap_socket_noted(self, sock, *args, **kwargs):
        is_server = args[0] if args else kwargs.get("server_side", False)
        if not is_server:
            note(self, args[3] if len(args) > 3 else kwargs.get("server_hostname"))
        return wrap_socket(self, sock, *args, **kwargs)

    def wrap_bio_noted(self, incoming, outgoing, *args, **kwargs):
        is_server = args[0] if args else kwargs.get("server_side", False)
        if not is_server:
            note(self, args[1] if len(args) > 1 else kwargs.get("server_hostname"))
        return wrap_bio(self, incoming, outgoing, *args, **kwargs)

    def counted(change):
        def change_counted(self, *args, **kwargs):
            self.__dict__["_wire_n_set"] = self.__dict__.get("_wire_n_set", 0) + 1
            return change(self, *args, **kwargs)

        return change_counted

    def of_server(getpeercert):
        def getpeercert_of_server(self, binary_form=False):
            """Return the certificate of the server, and not the one that the gateway made for it."""
            certificate = getpeercert(self, binary_form)
            try:
                shown = getpeercert(self, True) if certificate else b""
                # two sequences, the version, then the number: an integer and its length
                number = shown[15 : 15 + shown[14]].hex() if shown else ""
                path = os.path.join(_PEERS, number + ".pem")
                if not number or not os.path.exists(path):
                    return certificate
                if not binary_form:
                    return ssl._ssl._test_decode_cert(path)
                with open(path) as file:
                    return ssl.PEM_cert_to_DER_cert(file.read())
            except Exception:
                return certificate

        return getpeercert_of_server

    for change in ("set_ciphers", "set_alpn_protocols", "set_ecdh_curve"):
        setattr(kind, change, _as(getattr(kind, change), counted(getattr(kind, change))))
    for sock in (ssl.SSLSocket, ssl.SSLObject):
        sock.getpeercert = _as(sock.getpeercert, of_server(sock.getpeercert))
    kind.load_verify_locations = _as(load, load_verify_locations)
    kind.set_default_verify_paths = _as(load_default, set_default_verify_paths)
    kind.load_cert_chain = _as(load_own, load_cert_chain)
    kind.wrap_socket = _as(wrap_socket, wrap_socket_noted)
    kind.wrap_bio = _as(wrap_bio, wrap_bio_noted)


def _as(original, replacement):
    """Have a function look like the one that it stands for."""
    replacement.__name__, replacement.__doc__ = original.__name__, original.__doc__
    replacement.__qualname__ = getattr(original, "__qualname__", original.__name__)
    replacement.__wrapped__ = original
    return replacement


def _why_unreachable(socket, port):
    """Return the error that a connection without a gateway would have met, if it could not be made."""
    path = os.path.join(_FOLDER, "unreachable", str(port))
    try:
        with open(path) as file:
            is_of_name, number, words = eval(file.read(), {})  # noqa: S307, the gateway wrote it
        error = (socket.gaierror if is_of_name else OSError)(number, words)
        error._wire_is_unreachable = True
        return error
    except Exception:
        return None


def _lead_http_client(module):
    getresponse = module.HTTPConnection.getresponse

    def getresponse_explained(self):
        try:
            port = self.sock.getsockname()[1]
        except Exception:
            port = 0
        try:
            return getresponse(self)
        except module.RemoteDisconnected:
            error = _why_unreachable(module.socket, port) if port else None
            if error is None:
                raise
            self.close()
            raise error from None

    module.HTTPConnection.getresponse = _as(getresponse, getresponse_explained)


def _lead_urllib(module):
    do_open = module.AbstractHTTPHandler.do_open

    def do_open_explained(self, *args, **kwargs):
        try:
            return do_open(self, *args, **kwargs)
        except OSError as error:
            if getattr(error, "_wire_is_unreachable", False):
                raise module.URLError(error) from None
            raise

    module.AbstractHTTPHandler.do_open = _as(do_open, do_open_explained)


def _lead_duckdb(duckdb):  # it heeds no variable
    connect = duckdb.connect

    def lead(connection):
        connection.execute("SET http_proxy = '{}'".format(os.environ["HTTP_PROXY"]))
        query = "SELECT 1 FROM duckdb_extensions() WHERE extension_name = 'httpfs' AND installed"
        if not connection.execute(query).fetchall():
            return  # to set what is that extension's would fetch it
        connection.execute(f"SET GLOBAL ca_cert_file = '{_own_path(_CERTIFI)}'")
        checks = (
            "SELECT value FROM duckdb_settings() WHERE name LIKE 'enable_%server_cert_verification'"
        )
        if connection.execute(checks).fetchall() == [("false",)]:
            _say("unverified")  # one that verifies nothing reads no file

    def connect_through(*args, **kwargs):
        connection = connect(*args, **kwargs)
        with contextlib.suppress(Exception):
            lead(connection)
        return connection

    duckdb.connect = connect_through
    lead(duckdb)


_LEADS = {
    "ssl": _lead_ssl,
    "certifi": _lead_certifi,
    "http.client": _lead_http_client,
    "urllib.request": _lead_urllib,
    "duckdb": _lead_duckdb,
}


class _Leader:
    """Find these modules as they are found without us, and change them once they are imported."""

    def __init__(self):
        self._finding = set()  # by threads that look further

    def find_spec(self, name, path=None, target=None):
        key = name, _thread_number()
        if not _is_led(name) or key in self._finding:
            return None
        self._finding.add(key)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding.discard(key)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                _lead(name, module)

            spec.loader.exec_module = exec_module
        return spec


def _is_led(name):
    return name in _LEADS or (_SAMPLER is not None and name in _SAMPLING.LEADS)


def _lead(name, module):
    """Change a module, once: to the gateway, and so that the lines that use it are known."""
    if name in _LEADS and name not in _LED:
        _LED.add(name)
        with contextlib.suppress(Exception):  # then it is not seen, and nothing more
            _LEADS[name](module)
    if _SAMPLER is not None:
        with contextlib.suppress(Exception):
            _SAMPLER.lead(name, module)


_LED = set()
_SAMPLER = _SAMPLING = None


def _begin_sampling():
    """Have a thread of this process write down at which lines its threads are."""
    global _SAMPLER, _SAMPLING
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sampler.py")
    samples = os.path.join(_FOLDER, "samples")
    if not os.path.isdir(samples):
        return
    spec = importlib.util.spec_from_file_location("_wire_sampler", path)
    _SAMPLING = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(_SAMPLING)
    port = int(os.environ.get("HTTP_PROXY", "").rpartition(":")[2].strip("/") or 0)
    _SAMPLER = _SAMPLING.Sampler(samples, os.getcwd(), port)
    _SAMPLER.start()
    import atexit  # built in

    atexit.register(_SAMPLER.end)


def _thread_number():
    import _thread  # built in: no module of the program's has its name

    return _thread.get_ident()


if _FOLDER:
    with contextlib.suppress(
        Exception
    ):  # the folder is gone, say: the program runs as it would without us
        _begin()
        sys.meta_path.insert(0, _Leader())
        with contextlib.suppress(Exception):
            _begin_sampling()
        for _name in [name for name in sys.modules if _is_led(name)]:  # imported before this one
            _lead(_name, sys.modules[_name])
        if hasattr(os, "register_at_fork"):
            _forks = [os.getpid()]
            os.register_at_fork(
                before=_before_fork,
                after_in_parent=_after_fork,
                after_in_child=lambda: _begin_after_fork(_forks),
            )
