"""Children end with their owner, however it ends, and say why they ended early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.refusals import refused
from tests.stores import becomes, listens, lives
from wire.children import start_child

SLEEP = [sys.executable, "-c", "import time; time.sleep(120)"]
# Takes a port, starts a process in another session, says both and stays.
FAMILY = """
import json, socket, subprocess, sys, time
listener = socket.create_server(("127.0.0.1", 0))
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True)
print(json.dumps([listener.getsockname()[1], grandchild.pid]), flush=True)
time.sleep(120)
"""
# An owner that starts FAMILY, does what argv[2] says, says who they are, does argv[3].
# A test run in the background ignores Ctrl-C, and what it starts inherits that.
OWNER = """
import json, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from pathlib import Path
from wire.children import start_child
from tests.stores import becomes, listens, lives
children = []
def start():
    children.append(start_child([sys.executable, "-c", sys.argv[1]], log=Path(sys.argv[4])))
starter = threading.Thread(target=start)
starter.start()
starter.join()
child = children[0]
child.wait_until(lambda: child.last_log_line() != "")
exec(sys.argv[2])
print(json.dumps([child.pid, child.supervisor_pid, *json.loads(child.last_log_line())]), flush=True)
exec(sys.argv[3])
"""
FORK = "if os.fork() == 0: time.sleep(30); os._exit(0)"  # the copy keeps the pipe open
STAY = "time.sleep(120)"
STOP = "child.stop()"
RAISE = "raise RuntimeError"


def start_owner(first: str, then: str, log: Path) -> tuple[subprocess.Popen[str], list[int], int]:
    """Start an owner; return it, the processes under it and the port of its child."""
    argv = [sys.executable, "-c", OWNER, FAMILY, first, then, os.fspath(log)]
    with log.with_suffix(".said").open("w+") as said:
        owner = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=said, text=True)
        assert owner.stdout is not None
        with owner.stdout:
            line = owner.stdout.readline()
        if not line:
            owner.wait()
            said.seek(0)
            pytest.fail(f"the owner ended with {owner.returncode}: {said.read()}")
    child, supervisor, port, grandchild = json.loads(line)
    return owner, [child, supervisor, grandchild], port


@pytest.mark.parametrize(
    ("first", "then", "number"),
    [
        ("", STAY, signal.SIGKILL),  # nothing of the owner's own can run
        ("", STAY, signal.SIGINT),  # Ctrl-C without a context manager
        (FORK, STAY, signal.SIGKILL),  # a copy of the owner holds the pipe
        (FORK, STOP, None),  # stopped in order all the same
        ("", RAISE, None),
    ],
)
def test_nothing_survives_the_owner(
    first: str, then: str, number: int | None, tmp_path: Path
) -> None:
    """No process and no port is left, not even a grandchild in its own session."""
    owner, others, port = start_owner(first, then, tmp_path / "log")
    if number is not None:
        assert all(lives(pid) for pid in others)
        assert listens(port)
        owner.send_signal(number)
    owner.wait(timeout=60)
    assert becomes(lambda: not any(lives(pid) for pid in others))
    assert becomes(lambda: not listens(port))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans to the supervisor")
@pytest.mark.parametrize("is_stopped", [True, False])
def test_orphans_of_the_child_end_too(is_stopped: bool, tmp_path: Path) -> None:
    """What a process in between has started and left is found, whoever ends first."""
    leave = (
        "import subprocess, sys\n"
        "argv = [sys.executable, '-c', 'import time; time.sleep(120)']\n"
        "print(subprocess.Popen(argv, start_new_session=True).pid)"
    )
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.run([sys.executable, '-c', {leave!r}])\n"
        f"time.sleep({120 if is_stopped else 0.5})"
    )
    with start_child([sys.executable, "-c", code], log=tmp_path / "log") as child:
        child.wait_until(lambda: child.last_log_line() != "")
        orphan = int(child.last_log_line())
        if not is_stopped:
            child.wait(timeout_s=120)
    assert not lives(orphan)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent")
def test_the_child_dies_with_its_supervisor(tmp_path: Path) -> None:
    """Killing the supervisor takes the child, and the owner notices."""
    with start_child(SLEEP, log=tmp_path / "log") as child:
        os.kill(child.supervisor_pid, signal.SIGKILL)
        assert becomes(lambda: not lives(child.pid))
        assert becomes(lambda: not child.is_running)


@pytest.mark.parametrize(
    ("handler", "last"),
    [
        ("lambda *_: (print('tidied', flush=True), sys.exit(0))", "tidied"),
        # killed after the grace time, of seconds
        pytest.param("signal.SIG_IGN", "up", marks=pytest.mark.slow),
    ],
)
def test_a_child_may_end_in_order(handler: str, last: str, tmp_path: Path) -> None:
    """On stopping, the child gets SIGTERM first and may write its last words."""
    code = (
        f"import signal, sys, time; signal.signal(15, {handler});"
        "print('up', flush=True); time.sleep(120)"
    )
    with start_child([sys.executable, "-c", code], log=tmp_path / "log") as child:
        child.wait_until(lambda: child.last_log_line() == "up")
    assert child.last_log_line() == last and not lives(child.pid)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        # last line of what it printed, on either stream
        ("import sys; print('one'); print('two'); sys.exit(3)", r"exit code 3 \(two\)"),
        ("import sys; sys.exit('no such thing')", r"exit code 1 \(no such thing\)"),
        # killed by a signal: 128 + its number, as shells count
        ("import os; os.kill(os.getpid(), 9)", r"exit code 137 \(it printed nothing\)"),
    ],
)
def test_an_early_end_is_one_line(code: str, said: str, tmp_path: Path) -> None:
    """The line has the exit code, the last words and the path of the log."""
    log = tmp_path / "a log"
    with (
        start_child([sys.executable, "-c", code], log=log) as child,
        refused(r"\S+", f"^ended with {said}; log: {log}$"),
    ):
        child.wait_until(lambda: False)


def test_the_environment_is_what_was_given(tmp_path: Path) -> None:
    """The child sees it alone, and it is in nobody's arguments; each has a session of its own."""
    secret = "not-for-ps"
    code = "import json, os, time; print(json.dumps(dict(os.environ)), flush=True); time.sleep(120)"
    with start_child(
        [sys.executable, "-c", code], env={"SECRET": secret}, log=tmp_path / "log"
    ) as child:
        child.wait_until(lambda: child.last_log_line() != "")
        seen = json.loads(child.last_log_line())
        shown = [psutil.Process(p).cmdline() for p in (child.pid, child.supervisor_pid)]
        sessions = {os.getsid(pid) for pid in (0, child.pid, child.supervisor_pid)}
    assert len(sessions) == 3  # Ctrl-C in the terminal reaches the owner alone
    assert seen["SECRET"] == secret
    assert set(seen) <= {"SECRET", "LC_CTYPE", "__CF_USER_TEXT_ENCODING"}
    assert secret not in str(shown)


def test_what_cannot_be_started_or_waited_for_is_one_line(tmp_path: Path) -> None:
    """A missing program, a log in a folder that is not there, and a child that never gets ready."""
    with refused("/no/such", r"^cannot be started \(nothing is there\)$"):
        start_child(["/no/such"])
    with refused("log .*/no/log", r"^cannot be written \(nothing is there\)$"):
        start_child(SLEEP, log=tmp_path / "no" / "log")
    with start_child(SLEEP) as child, refused("python", r"not ready in 0\.1 s"):
        child.wait_until(lambda: False, timeout_s=0.1)
    child.stop()  # a second time, which does no harm
    assert not child.is_running
    with start_child([sys.executable, "-c", "raise SystemExit(4)"]) as child:
        assert child.wait(timeout_s=120) == 4


# Holds 500 MB, and starts a child that tells its own peak.
LARGE = """
import subprocess, sys
held = b"x" * 500_000_000
source = "import os; from wire.children import peak_nbytes; print(peak_nbytes(os.getpid()))"
subprocess.run([sys.executable, "-c", source], check=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child inherits no peak")
def test_a_child_of_a_large_process_reports_its_own_peak() -> None:
    """What the system's own count inherits over `exec`, this one does not."""
    run = subprocess.run([sys.executable, "-c", LARGE], stdout=subprocess.PIPE, check=True)
    assert 0 < int(run.stdout) < 250e6
