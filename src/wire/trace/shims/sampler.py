"""Write down which line of the program each thread is at, and which line asked for what.

A thread looks every 10 ms at what the threads of this process run, and each request of Python's own
clients (`http.client`, which urllib3, requests and botocore are built on, aiohttp, httpcore) is
noted with the line that asked for it. All of it goes to one file a process, a record a line:

- ``begin PID PARENT FOLDER``: the process, the one that it is a fork or child of, its working folder.
- ``site NUMBER {...}``: a line of the program, as `wire.trace.lines.read_samples` has it.
- ``at SECONDS THREAD NUMBERS BEFORE``: from this sample on a thread is at these lines, or at none;
  at the sample before, of BEFORE, it was still where it had been.
- ``gap SECONDS SECONDS``: between these two samples nothing was seen.
- ``asks SECONDS NUMBER METHOD PATH``: a line asked for a path, whose query is left out.
- ``child SECONDS PID NUMBER``: a line started a process.
- ``connects SECONDS NUMBER HOST PORT``: a line opened a connection that does not go to the gateway.
- ``serves SECONDS PORT``: the process listens at a port.
- ``full SECONDS``: nothing was written from then on.

Python imports this before the program, whatever version from 3.8 on it is, and nothing that it does
may fail the program: names of the standard library may be those of the program's modules, so that
only modules are used that Python has built in or has imported by now.
"""

# mypy: ignore-errors
# ruff: noqa: S110 (nothing here may fail the program)

import _thread
import contextlib
import os
import sys
import time

INTERVAL_S = 0.01
BUSY = 0.01  # the most of a processor that looking may take
FREE_S = 0.05  # of looking: lines that are met first take longer
MOST_PAUSE_S = 0.25
GAP_S = 0.05  # between samples: what was at a line meanwhile is not known
MOST_NBYTES = 64 << 20  # of a process's file
SLOWER_NBYTES = 8 << 20  # with each of these written the interval doubles
MOST_FRAMES = 500
MOST_TASKS = 200
MOST_SITES = 50_000
MOST_SOURCE = 500  # characters
MOST_PATH = 2000

_SEP = os.sep
_LIBRARY_PARTS = (_SEP + "site-packages" + _SEP, _SEP + "dist-packages" + _SEP)
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + _SEP
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + _SEP
_PROGRAMS = os.path.dirname(os.path.abspath(sys.executable or os.__file__)) + _SEP

LIBRARY, USER, NAMELESS = 0, 1, 2


def _write_json(value):
    """Write text, numbers and dictionaries of them; `json` may be a module of the program's."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_write_json(k)}:{_write_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, str):
        plain = value.encode("utf-8", "replace").decode()
        escaped = "".join(
            c if " " <= c <= "~" and c not in '"\\' else _escape(ord(c)) for c in plain
        )
        return '"' + escaped + '"'
    return str(int(value))


def _escape(number):
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


class Sampler:
    """Hold what is known of this process, and the file that it is written to."""

    def __init__(self, folder, start_folder, port):
        self.folder, self.start_folder = folder, start_folder
        self.kinds = {}  # of files, by their names
        self.loops = {}  # event loops that run, by thread
        self.work = {}  # the line that handed a thread what it runs, by thread
        self.labels = {}  # names of tasks that threads run, by thread: Dask's, say
        self.led, self.has_hook, self.forked_s = set(), False, 0.0
        self.port = port  # of the gateway
        self.context = None  # the line that began an asyncio task, once contextvars is imported
        self.begin(os.getppid())

    def begin(self, parent):
        """Begin a file of this process's own."""
        self.pid, self.file, self.nbytes, self.interval_s = os.getpid(), -1, 0, INTERVAL_S
        self.sites, self.states, self.is_over = {}, {}, False
        self.looked_s = time.time()  # when the last sample was begun
        self.lock = _thread.allocate_lock()  # of the file
        self.stopping = _thread.allocate_lock()
        self.stopping.acquire()
        self.stopped = None
        self.head = f"begin {self.pid} {parent} {_write_json(self.start_folder)}\n"

    def start(self):
        """Begin to look, in a thread that `threading` does not know."""
        self.stopped = _thread.allocate_lock()
        self.stopped.acquire()
        _thread.start_new_thread(self._run, (self.stopping, self.stopped))

    def stop(self):
        """End looking, and wait for the thread's end."""
        stopped, self.stopped = self.stopped, None
        if stopped is not None:
            try:
                self.stopping.release()
            except RuntimeError:
                return
            stopped.acquire(True, 0.2)
            self.stopping = _thread.allocate_lock()
            self.stopping.acquire()

    @property
    def is_running(self):
        """Tell whether a thread looks."""
        return self.stopped is not None

    # --- the file -----------------------------------------------------------------------------

    def write(self, *lines):
        """Append lines to the file; once it is full, or cannot be written, nothing more."""
        if self.is_over:
            return
        text = "".join(line + "\n" for line in lines)
        with self.lock:
            try:
                if self.file < 0:
                    path = os.path.join(self.folder, str(self.pid))
                    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
                    self.file = os.open(path, flags, 0o600)
                    text = self.head + text
                data = text.encode("ascii", "replace")
                if self.nbytes + len(data) > MOST_NBYTES:
                    data = f"full {time.time():.4f}\n".encode("ascii")
                    self.is_over = True
                self.nbytes += os.write(self.file, data)
                self.interval_s = INTERVAL_S * 2 ** (self.nbytes // SLOWER_NBYTES)
            except OSError:
                self.is_over = True

    # --- samples ------------------------------------------------------------------------------

    def _run(self, stopping, stopped):
        try:
            self._block_signals()
            pid, pause_s = self.pid, self.interval_s
            begin_s, used_s, clock = time.monotonic(), 0.0, time.thread_time
            while not stopping.acquire(True, pause_s):
                if self.is_over or self.pid != pid:
                    return
                now_s = time.time()
                lines = []
                if now_s - self.looked_s > GAP_S:
                    lines.append(f"gap {self.looked_s:.4f} {now_s:.4f}")
                lines += self._look(self.looked_s)
                if lines:
                    self.write(*lines)
                self.looked_s = now_s
                last_s, used_s = used_s, clock()
                pause_s = self.interval_s
                if used_s - FREE_S > BUSY * (time.monotonic() - begin_s):
                    pause_s = min(max(pause_s, (used_s - last_s) / BUSY), MOST_PAUSE_S)
        except BaseException:  # the interpreter ends, or it is a defect of ours
            pass
        finally:
            stopped.release()

    @staticmethod
    def _block_signals():
        """Leave signals to the program's threads."""
        try:
            import _signal  # built in

            _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        except Exception:
            pass

    def _look(self, before_s):
        """Return what has changed since the sample before, which was begun at `before_s`."""
        own, lines, current = _thread.get_ident(), [], set()
        states = self.states
        for thread, frame in sys._current_frames().items():
            if thread == own:
                continue
            current.add(thread)
            numbers = self._numbers_of(thread, frame, lines)
            if states.get(thread, ()) != numbers:
                states[thread] = numbers
                listed = ",".join(map(str, numbers)) or "-"
                lines.append(f"at {time.time():.4f} {thread} {listed} {before_s:.4f}")
        frame = None
        for thread in [thread for thread in states if thread not in current]:
            if states.pop(thread):
                lines.append(f"at {time.time():.4f} {thread} - {before_s:.4f}")
        return lines

    def _numbers_of(self, thread, frame, lines):
        """Return the lines that a thread is at: of an event loop those at which its tasks wait."""
        site, is_in_loop = self.find_site(frame)
        if site is None and is_in_loop:
            numbers = self._numbers_of_tasks(thread, lines)
            if numbers:
                return numbers
            site, _ = self.find_site(frame, is_past_loop=True)
        if site is None:
            number = self.work.get(thread) or self.number_of(None, lines, thread)
            return (number,) if number else ()
        return (self.number_of(site, lines, thread),)

    def _numbers_of_tasks(self, thread, lines):
        loop, asyncio = self.loops.get(thread), sys.modules.get("asyncio")
        if loop is None or asyncio is None:
            return ()
        try:
            tasks = list(asyncio.all_tasks(loop))[:MOST_TASKS]
        except Exception:  # the loop changed them meanwhile: the next sample will do
            return ()
        numbers = set()
        for task in tasks:
            site = self._site_of_task(task)
            if site is not None:
                numbers.add(self.number_of(site, lines, thread))
        return tuple(sorted(numbers)[:20])

    def _site_of_task(self, task):
        coroutine, n = task.get_coro(), 0
        below = None
        frames = []
        while coroutine is not None and n < MOST_FRAMES:
            frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
            frame = frame or getattr(coroutine, "gi_frame", None)
            if frame is not None:
                frames.append(frame)
            coroutine = getattr(coroutine, "cr_await", None) or getattr(
                coroutine, "gi_yieldfrom", None
            )
            n += 1
        for frame in reversed(frames):
            if self.kind_of(frame) == USER:
                return self._site(frame, below)
            below = frame
        return None

    # --- lines --------------------------------------------------------------------------------

    def kind_of(self, frame):
        """Tell whose code a frame runs: a library's, the user's, or text that has no file."""
        name = frame.f_code.co_filename
        kind = self.kinds.get(name)
        if kind is None:
            kind = self._find_kind(name)
            if len(self.kinds) < MOST_SITES:
                self.kinds[name] = kind
        if kind == NAMELESS:
            linecache = sys.modules.get("linecache")
            if name in getattr(linecache, "cache", ()):
                return USER
            return NAMELESS if frame.f_globals.get("__name__") == "__main__" else LIBRARY
        return kind

    def _find_kind(self, name):
        if name.startswith("<"):
            if name.startswith("<ipython-input-"):
                return USER
            return LIBRARY if name.startswith(("<frozen", "<__array_function__")) else NAMELESS
        path = name if os.path.isabs(name) else os.path.join(self.start_folder, name)
        is_library = path.startswith((_STANDARD, _OURS, _PROGRAMS)) or any(
            part in path for part in _LIBRARY_PARTS
        )
        return LIBRARY if is_library else USER

    def find_site(self, frame, is_past_loop=False):
        """Find the user's innermost line in a stack, and whether an event loop lies before it."""
        below = nameless = None
        n = 0
        while frame is not None and n < MOST_FRAMES:
            kind = self.kind_of(frame)
            if kind == USER:
                return self._site(frame, below), False
            if kind == NAMELESS and nameless is None:
                nameless = self._site(frame, below)
                if nameless[3].startswith("multiprocessing."):  # its own words to a child
                    nameless = None
            code = frame.f_code
            if (
                not is_past_loop
                and code.co_name == "run_forever"
                and code.co_filename.endswith("base_events.py")
            ):
                return nameless, nameless is None
            if kind == LIBRARY:
                below = frame
            frame = frame.f_back
            n += 1
        return nameless, False

    def _site(self, frame, below):
        code = frame.f_code
        line = frame.f_lineno or code.co_firstlineno
        if below is None:
            return code, line, frame.f_lasti, "", frame, False
        path, module = below.f_code.co_filename, below.f_globals.get("__name__")
        library = f"{module}.{getattr(below.f_code, 'co_qualname', below.f_code.co_name)}"
        is_standard = path.startswith((_STANDARD, "<frozen")) and not any(
            part in path for part in _LIBRARY_PARTS
        )
        return code, line, frame.f_lasti, library, frame, is_standard

    def number_of(self, site, lines=None, thread=None):
        """Return the number of a line, which is written down when it is met first.

        Where a thread runs a task that has a name, each task has a number of its own; without a
        line, 0 where there is no task either.
        """
        label = self.labels and self.labels.get(thread or _thread.get_ident())
        label = str(label)[:MOST_SOURCE] if label else ""
        if site is None:
            if not label:
                return 0
            key = label
        else:
            code, line, place, library, _, _ = site
            key = code.co_filename, line, code.co_name, place, library, label
        number = self.sites.get(key)
        if number is None:
            if len(self.sites) >= MOST_SITES:
                return 0
            number = self.sites[key] = len(self.sites) + 1
            record = {"task": label} if label else {}
            if site is not None:
                record.update(self._describe(site))
            text = f"site {number} {_write_json(record)}"
            if lines is None:
                self.write(text)
            else:
                lines.append(text)
        return number

    def _describe(self, site):
        code, line, place, library, frame, is_standard = site
        name = code.co_filename
        function = getattr(code, "co_qualname", code.co_name)
        record = {"file": name, "line": line, "function": function, "call": library}
        linecache = sys.modules.get("linecache")
        entry = getattr(linecache, "cache", {}).get(name)
        if not os.path.exists(os.path.join(self.start_folder, name)):
            if entry is not None and len(entry) > 2 and 0 < line <= len(entry[2]):
                record["source"] = entry[2][line - 1].strip()[:MOST_SOURCE]
            cell = self._find_cell(name)
            if cell:
                record["cell"] = cell
        if library:
            record["is_standard"] = is_standard
        if hasattr(code, "co_positions") and (not library or "<locals>" in library):
            positions = [*code.co_positions()][place // 2 : place // 2 + 1]
            if positions and None not in positions[0]:
                first, last, begin, end = positions[0]
                record.update(first=first, last=last, begin=begin, end=end)
            record["names"] = _find_names(code, frame.f_globals)
        return record

    @staticmethod
    def _find_cell(name):
        """Return the number of a notebook's cell: IPython keeps it by the name of its file."""
        if name.startswith("<ipython-input-"):
            return name[len("<ipython-input-") :].partition("-")[0]
        try:
            shell = sys.modules["IPython"].get_ipython()
            return shell.compile._filename_map.get(name)
        except Exception:
            return None

    # --- what asks ----------------------------------------------------------------------------

    def find_asking(self, frame):
        """Return the number of the line on whose behalf the current thread runs, or 0."""
        site, is_in_loop = self.find_site(frame)
        if site is None and self.context is not None:
            number = self.context.get()
            if number:
                return number
        if site is None:
            number = self.work.get(_thread.get_ident())
            if number:
                return number
        if site is None and is_in_loop:
            site, _ = self.find_site(frame, is_past_loop=True)
        return self.number_of(site)

    def note_request(self, frame, method, target):
        """Write down that a request is made."""
        try:
            path = target.decode("latin-1") if isinstance(target, bytes) else str(target)
            path = path.partition("?")[0].partition("#")[0][:MOST_PATH]
            number = self.find_asking(frame)
            method = method.decode("latin-1") if isinstance(method, bytes) else str(method)
            self.write(f"asks {time.time():.4f} {number} {method} {_write_json(path)}")
        except Exception:
            pass

    def note_connection(self, sock, is_server=False):
        """Write down a connection that was made past the gateway, or an address that is served."""
        try:
            if sock.type & 0xF != 1 or len(sock.getsockname()) not in (2, 4):
                return  # no stream, or no address of a network
            host, port = sock.getsockname()[:2] if is_server else sock.getpeername()[:2]
            if is_server:
                self.write(f"serves {time.time():.4f} {port}")
            elif port != self.port:
                number = self.find_asking(sys._getframe(2))
                self.write(f"connects {time.time():.4f} {number} {host} {port}")
        except Exception:
            pass

    def lead(self, name, module):
        """Change what is to be noted of a module, once."""
        if name in LEADS and name not in self.led:
            self.led.add(name)
            LEADS[name](module, self)

    # --- forks --------------------------------------------------------------------------------

    def after_fork_in_parent(self):
        """Look again; from 3.12 on Python warns of threads after this, so that it has to wait."""
        self.forked_s = time.monotonic()
        if not self.has_hook:
            self.has_hook = True
            sys.addaudithook(self._restart)

    def _restart(self, _event, _args):
        if self.stopped is None and self.forked_s and time.monotonic() - self.forked_s > 0.005:
            self.forked_s = 0.0
            with contextlib.suppress(Exception):
                self.start()

    def after_fork_in_child(self, parent):
        """Begin anew in a process that has no thread but this one."""
        self.begin(parent)
        self.forked_s = 0.0
        self.start()

    def end(self):
        """End with the interpreter."""
        self.stop()
        self.forked_s = 0.0


def _find_names(code, variables):
    """Find what the names of a function stand for, as far as they are the module's or Python's."""
    meanings, built_in = {}, sys.modules["builtins"].__dict__
    for name in code.co_names[:200]:
        value = variables.get(name, built_in.get(name))
        kind = type(value)
        if value is None:
            continue
        if kind is type(sys):
            meanings[name] = str(value.__dict__.get("__name__"))
        elif kind is type(len) or kind is type(_find_names) or kind is type:
            meanings[name] = f"{value.__module__}.{value.__qualname__}"
        else:
            meanings[name] = f"{kind.__module__}.{kind.__qualname__}"
    return meanings


# --- libraries ----------------------------------------------------------------------------------


def _as(original, replacement):
    """Have a function look like the one that it stands for."""
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        with contextlib.suppress(AttributeError, TypeError):
            setattr(replacement, name, getattr(original, name))
    replacement.__wrapped__ = original
    return replacement


def _lead_http_client(module, sampler):
    putrequest = module.HTTPConnection.putrequest

    def putrequest_noted(self, method, url, *args, **kwargs):
        sampler.note_request(sys._getframe(1), method, url)
        return putrequest(self, method, url, *args, **kwargs)

    module.HTTPConnection.putrequest = _as(putrequest, putrequest_noted)


def _lead_aiohttp(module, sampler):
    kind = module.ClientRequest
    name = "_send" if "_send" in kind.__dict__ else "send"
    send = kind.__dict__[name]

    def send_noted(self, *args, **kwargs):
        sampler.note_request(sys._getframe(1), self.method, self.url.raw_path)
        return send(self, *args, **kwargs)

    setattr(kind, name, _as(send, send_noted))


def _lead_httpcore(name):
    def lead(module, sampler):
        kind = getattr(module, name)
        handle = kind.__dict__["handle_async_request" if "Async" in name else "handle_request"]

        def handle_noted(self, request):
            sampler.note_request(sys._getframe(1), request.method, request.url.target)
            return handle(self, request)

        setattr(kind, handle.__name__, _as(handle, handle_noted))

    return lead


def _lead_futures(module, sampler):
    kind = module._WorkItem
    initialise, run = kind.__init__, kind.run

    def initialise_noted(self, *args, **kwargs):
        initialise(self, *args, **kwargs)
        try:
            number = sampler.find_asking(sys._getframe(1))
            if number:
                _numbers[id(self)] = number
        except Exception:
            pass

    def run_noted(self, *args, **kwargs):
        number, thread = _numbers.pop(id(self), 0), _thread.get_ident()
        before = sampler.work.get(thread)
        if number:
            sampler.work[thread] = number
        try:
            return run(self, *args, **kwargs)
        finally:
            if number:
                if before is None:
                    sampler.work.pop(thread, None)
                else:
                    sampler.work[thread] = before

    _numbers = {}
    kind.__init__ = _as(initialise, initialise_noted)
    kind.run = _as(run, run_noted)


def _lead_asyncio_loop(module, sampler):
    kind = module.BaseEventLoop
    run_forever, create_task = kind.run_forever, kind.create_task

    def run_forever_noted(self):
        thread = _thread.get_ident()
        before = sampler.loops.get(thread)
        sampler.loops[thread] = self
        try:
            return run_forever(self)
        finally:
            if before is None:
                sampler.loops.pop(thread, None)
            else:
                sampler.loops[thread] = before

    def create_task_noted(self, *args, **kwargs):
        token = _enter(sampler, sys._getframe(1))
        try:
            return create_task(self, *args, **kwargs)
        finally:
            _leave(sampler, token)

    running = module.events._get_running_loop()
    if running is not None:  # it began before
        sampler.loops[_thread.get_ident()] = running
    kind.run_forever = _as(run_forever, run_forever_noted)
    kind.create_task = _as(create_task, create_task_noted)


def _lead_asyncio_tasks(module, sampler):
    run = module.run_coroutine_threadsafe

    def run_coroutine_threadsafe(coro, loop):
        token = _enter(sampler, sys._getframe(1))
        try:
            return run(coro, loop)
        finally:
            _leave(sampler, token)

    module.run_coroutine_threadsafe = _as(run, run_coroutine_threadsafe)
    package = sys.modules.get("asyncio")
    if getattr(package, "run_coroutine_threadsafe", None) is run:  # it was imported before
        package.run_coroutine_threadsafe = run_coroutine_threadsafe


def _enter(sampler, frame):
    """Have what begins now know the line that began it."""
    try:
        if sampler.context is None:
            sampler.context = sys.modules["contextvars"].ContextVar("wire_line", default=0)
        site, _ = sampler.find_site(frame)
        number = sampler.number_of(site) if site is not None else sampler.find_asking(frame)
        return sampler.context.set(number) if number else None
    except Exception:
        return None


def _leave(sampler, token):
    try:
        if token is not None:
            sampler.context.reset(token)
    except Exception:
        pass


def _lead_subprocess(module, sampler):
    execute = module.Popen._execute_child

    def execute_child_noted(self, *args, **kwargs):
        result = execute(self, *args, **kwargs)
        try:
            number = sampler.find_asking(sys._getframe(1))
            sampler.write(f"child {time.time():.4f} {self.pid} {number}")
        except Exception:
            pass
        return result

    module.Popen._execute_child = _as(execute, execute_child_noted)


def _lead_socket(module, sampler):
    kind = module.socket
    connect, connect_ex, listen = kind.connect, kind.connect_ex, kind.listen

    def connect_noted(self, address):
        result = connect(self, address)
        sampler.note_connection(self)
        return result

    def connect_ex_noted(self, address):
        result = connect_ex(self, address)
        if result == 0:
            sampler.note_connection(self)
        return result

    def listen_noted(self, *args):
        result = listen(self, *args)
        sampler.note_connection(self, is_server=True)
        return result

    kind.connect = _as(connect, connect_noted)
    kind.connect_ex = _as(connect_ex, connect_ex_noted)
    kind.listen = _as(listen, listen_noted)


def _lead_asyncio_sockets(module, sampler):
    kind = module.BaseSelectorEventLoop
    sock_connect = kind.sock_connect

    async def sock_connect_noted(self, sock, address):
        result = await sock_connect(self, sock, address)
        sampler.note_connection(sock)
        return result

    kind.sock_connect = _as(sock_connect, sock_connect_noted)


LEADS = {
    "socket": _lead_socket,
    "asyncio.selector_events": _lead_asyncio_sockets,
    "http.client": _lead_http_client,
    "aiohttp.client_reqrep": _lead_aiohttp,
    "httpcore._sync.connection_pool": _lead_httpcore("ConnectionPool"),
    "httpcore._async.connection_pool": _lead_httpcore("AsyncConnectionPool"),
    "httpcore2._sync.connection_pool": _lead_httpcore("ConnectionPool"),
    "httpcore2._async.connection_pool": _lead_httpcore("AsyncConnectionPool"),
    "concurrent.futures.thread": _lead_futures,
    "asyncio.base_events": _lead_asyncio_loop,
    "asyncio.tasks": _lead_asyncio_tasks,
    "subprocess": _lead_subprocess,
}
"""What is changed of a library once it is imported, by the module's name."""
