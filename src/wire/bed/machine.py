"""Processors that are slowed down as the network is: `python -m wire.bed.machine FD`.

With time dilation alone a client computes as many times faster than the network that it reads over
(Gupta et al., 2006), so that a client of one Python thread looks better than it is. Here the
emulated machine has n processors of this machine's speed, each 1/k as fast at a dilation of k
(Gupta et al., 2008, *DieCast: testing distributed systems with an accurate scale model*).

The governor is a process of its own. It reads what the threads of the client have computed and stops
all of them (SIGSTOP) for as long as they are ahead of their processors, then lets them go on
(SIGCONT). A quota of a control group cannot say this: n/k processors may be n/k threads at full
speed, and one thread must never have more than 1/k. Nor does it need any right that a user lacks.
Waits are not slowed: who waits owes nothing.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf, nan
from multiprocessing.connection import Connection
from pathlib import Path

from wire.children import open_python
from wire.errors import UserError

TICK_S = 0.01
"""How often a machine that runs is looked at: each stop costs time, of each thread and of what goes on after it."""

CREDIT_S = 0.0002
"""What is kept of a stop that was longer than its debt, and the shortest stop, in real seconds."""

_STOP_S = 2e-5  # that a thread computes when it is stopped, and as much when it goes on (measured)
_LATE_S = 0.01  # after which the kernel has counted what a thread computes, once a tick
_OWED_S = 0.1  # most that this machine owes

_THREADS_S, _PROCESSES_S, _OWNER_S = 0.05, 0.5, 1.0  # how often each are looked for


def check_processors(n_processors: float, dilation: float, *, n_machines: int = 1) -> None:
    """Refuse processors that this machine cannot give: one core is for the server and the proxy."""
    if sys.platform != "linux":
        raise UserError(
            "processors",
            f"{n_processors:g}",
            f"none on {sys.platform}, because what a thread has computed is read from /proc",
        )
    free = max(1, len(os.sched_getaffinity(0)) - 1)
    if n_machines * n_processors / dilation > free:
        raise UserError(
            "processors",
            (
                f"{n_processors:g} in each of {n_machines} at dilation {dilation:g} are "
                f"{n_machines * n_processors / dilation:.3g} of this machine"
            ),
            f"at most {free}, or a dilation of at least {n_machines * n_processors / free:g}",
        )


@dataclass(slots=True)
class Account:
    """How far a client is ahead of its processors, in real seconds for which it has to stop.

    What it computes pays for as long as that took, the queue for a processor of this machine
    included; who waits for anything else pays nothing by it.

    Examples
    --------
    At a dilation of 5, of 1 ms that was computed 4 are left, of which half was stopped already:

    >>> account = Account()
    >>> account.charge(0.005, 0.001)
    >>> account.pay(0.002, 0.0)
    >>> round(account.debt_s, 6)
    0.002
    """

    debt_s: float = 0.0

    def charge(self, charged_s: float, ready_s: float) -> None:
        """Charge for what was computed by who ran or was in the queue for so long."""
        self.debt_s = max(self.debt_s + charged_s - ready_s, -_OWED_S)

    def pay(self, stopped_s: float, credit_s: float) -> None:
        """Take off a stop, of which no more than a credit is kept."""
        self.debt_s = max(self.debt_s - stopped_s, min(self.debt_s, -credit_s))


class _Thread:
    """What one thread has computed, which the kernel counts when it leaves a processor, or now and then."""

    def __init__(self, path: str, *, is_new: bool) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._seen_s = (0.0, 0.0) if is_new else self._read_s()
        self.account, self.used_s = Account(), 0.0

    def _read_s(self) -> tuple[float, float]:
        """Read the seconds on a processor, and those in which it could have used one that was taken."""
        used, delayed, _ = os.pread(self._file, 64, 0).split()
        return 1e-9 * int(used), 1e-9 * int(delayed)

    def look(self, dilation: float) -> float:
        """Charge what was computed since the last look; return what it was delayed."""
        before_s, self._seen_s = self._seen_s, self._read_s()
        more_s, delayed_s = (now - then for now, then in zip(self._seen_s, before_s, strict=True))
        self.used_s += more_s
        self.account.charge(more_s * dilation, more_s + delayed_s)
        return delayed_s

    def close(self) -> None:
        """Close its file."""
        os.close(self._file)


class _Process:
    """What one process has computed, all its threads together."""

    def __init__(self, pid: int, *, is_new: bool) -> None:
        self.pid, self._clock = pid, (~pid << 3) | 2  # as <linux/posix-timers_types.h> has it
        self._seen_s = 0.0 if is_new else time.clock_gettime(self._clock)
        self.is_stopped = False
        self.threads = dict[str, _Thread]()
        self.busiest_s = 0.0  # seconds of the busiest thread, of those that have ended too
        self.find_threads(is_new=is_new)

    def find_threads(self, *, is_new: bool = True) -> None:
        """Look for threads that are new or have ended."""
        folder, names = f"/proc/{self.pid}/task", set[str]()
        with suppress(OSError):  # it has ended
            names = {*os.listdir(folder)}
        for name in names - self.threads.keys():
            with suppress(OSError):
                self.threads[name] = _Thread(f"{folder}/{name}/schedstat", is_new=is_new)
        for name in self.threads.keys() - names:
            self.threads.pop(name).close()

    def look(
        self, dilation: float, stopped_s: float, credit_s: float
    ) -> tuple[float, float, float]:
        """Return the seconds computed since the last look, those delayed, and the largest debt of a thread."""
        now_s = time.clock_gettime(self._clock)
        more_s, self._seen_s = now_s - self._seen_s, now_s
        debt_s, delayed_s = -inf, 0.0
        for thread in self.threads.values():
            with suppress(OSError):  # it has ended
                delayed_s += thread.look(dilation)
                if stopped_s:
                    thread.account.pay(stopped_s, credit_s)
                debt_s = max(debt_s, thread.account.debt_s)
                self.busiest_s = max(self.busiest_s, thread.used_s)
        return more_s, delayed_s, debt_s

    def close(self) -> None:
        """Close the files of its threads."""
        for thread in self.threads.values():
            thread.close()
        self.threads.clear()

    def signal(self, number: signal.Signals) -> None:
        """Stop it or let it go on."""
        with suppress(OSError):  # it has ended
            os.kill(self.pid, number)
        self.is_stopped = number == signal.SIGSTOP


@dataclass(slots=True)
class Spent:
    """What a client has computed, in seconds of this machine's processors; NaN where none can tell."""

    client_s: float = nan  # all processes
    thread_s: float = nan  # the busiest thread, of those that were seen
    stopped_s: float = 0.0  # real seconds for which it was stopped


class Machine:
    """A process and its descendants, which share so many processors, each 1 / `dilation` as fast."""

    def __init__(
        self, root: int, but: Collection[int], *, n_processors: float = inf, dilation: float = 1.0
    ) -> None:
        self._root, self._but = root, but
        self._n_processors, self._dilation = n_processors, dilation
        self.spent = Spent(0.0, 0.0)
        self._account, self._stop_s, self._open_s = Account(), 0.0, 0.0
        self.processes = dict[int, _Process]()
        self.find(is_new=False)
        self._seen_s = self._processes_s = self._threads_s = self.due_s = time.perf_counter()

    def find(self, *, is_new: bool = True) -> set[int]:
        """Look for processes that are new; return these."""
        new_processes = find_tree(self._root, self._but) - self.processes.keys()
        for pid in new_processes:
            with suppress(OSError):
                self.processes[pid] = _Process(pid, is_new=is_new)
        return new_processes

    def look(self, credit_s: float = CREDIT_S, *, is_stopped: bool = False) -> float:
        """Charge what was computed since the last look; return the largest debt, in real seconds.

        Not charged is what a stop takes all threads, nor as much again for its end.
        """
        now_s = time.perf_counter()
        passed_s, self._seen_s = now_s - self._seen_s, now_s
        stopped_s = passed_s if is_stopped else 0.0
        self._open_s = min(self._open_s + passed_s - stopped_s, _LATE_S)
        used_s, delayed_s, debt_s = 0.0, 0.0, -inf
        for pid, process in [*self.processes.items()]:
            try:
                more_s, later_s, most_s = process.look(self._dilation, stopped_s, credit_s)
            except OSError:  # it has ended
                self.processes.pop(pid).close()
                continue
            used_s, delayed_s, debt_s = used_s + more_s, delayed_s + later_s, max(debt_s, most_s)
            self.spent.thread_s = max(self.spent.thread_s, process.busiest_s)
        if is_stopped:
            n_threads = sum(len(process.threads) for process in self.processes.values())
            self._stop_s = min(used_s, _STOP_S * n_threads)
            used_s -= self._stop_s
        else:
            ending_s, self._stop_s = min(self._stop_s, used_s), 0.0
            used_s -= ending_s
        self.spent.client_s += used_s
        # threads ran or queued side by side: for as long as it can have been
        ready_s = min(used_s + delayed_s, self._open_s)
        self._open_s -= ready_s
        self._account.charge(used_s * self._dilation / self._n_processors, ready_s)
        if is_stopped:
            self._account.pay(stopped_s, credit_s)
        return max(self._account.debt_s, debt_s)

    def govern(self, now_s: float) -> set[int]:
        """Stop what is ahead of its processors, or let it go on; return processes that are new."""
        if now_s < self.due_s:
            return set()
        is_stopped = any(process.is_stopped for process in self.processes.values())
        self.spent.stopped_s += is_stopped * (now_s - self._seen_s)
        credit_s = CREDIT_S + is_stopped * (now_s - self.due_s)
        debt_s = self.look(credit_s, is_stopped=is_stopped)
        order = signal.SIGSTOP if debt_s > 0 else signal.SIGCONT
        for process in self.processes.values():
            if process.is_stopped != (debt_s > 0):
                process.signal(order)
        members = set[int]()
        if now_s - self._threads_s > _THREADS_S:
            self._threads_s = now_s
            for process in self.processes.values():
                process.find_threads()
        if now_s - self._processes_s > _PROCESSES_S:
            self._processes_s, members = now_s, self.find()
        self.due_s = now_s + (max(debt_s, CREDIT_S) if debt_s > 0 else TICK_S)
        return members

    def free(self) -> None:
        """Let all go on."""
        for process in self.processes.values():
            process.signal(signal.SIGCONT)

    def close(self) -> None:
        """Close the files of all threads: each read of a record opens them anew."""
        for process in self.processes.values():
            process.close()


def find_tree(root: int, but: Collection[int]) -> set[int]:
    """Find a process and its descendants, but for some with theirs."""
    children = defaultdict[int, list[int]](list)
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            after = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2]
            children[int(after.split()[1])].append(int(name))
    tree, left = set[int](), [root]
    while left:
        if (pid := left.pop()) not in but:
            tree.add(pid)
            left += children[pid]
    return tree


@contextmanager
def observed(pids: Sequence[int], but: Collection[int] = ()) -> Iterator[Spent]:
    """Count what a client computes, one machine for each of its processes, and slow nothing down.

    A thread that has ended by the end is in `client_s` alone, which bounds the busiest from above.
    """
    can_tell = sys.platform == "linux"
    machines = [Machine(pid, {*but, *pids} - {pid}) for pid in pids if can_tell]
    spent, before = Spent(), resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        yield spent
    finally:
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        for machine in machines:
            for process in machine.processes.values():
                process.find_threads()
            machine.find()
            machine.look()
            machine.close()
        if machines:
            spent.client_s, spent.thread_s = _add(machines)
            spent.client_s += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _add(machines: Sequence[Machine]) -> tuple[float, float]:
    spent = [machine.spent for machine in machines]
    return sum(spent_cpu.client_s for spent_cpu in spent), max(
        spent_cpu.thread_s for spent_cpu in spent
    )


class Governor:
    """The owner's side; made by `open_governor`."""

    def __init__(self, orders: Connection) -> None:
        self._orders = orders

    @contextmanager
    def slowed(
        self,
        pids: Sequence[int],
        but: Collection[int] = (),
        *,
        n_processors: float,
        dilation: float,
    ) -> Iterator[Spent]:
        """Make each of these processes a machine, with its descendants but for some; say at the end what was spent."""
        spent = Spent()
        self._orders.send((pids, n_processors, dilation, {*but}))
        self._orders.recv()
        try:
            yield spent
        finally:
            self._orders.send(None)
            spent.client_s, spent.thread_s, spent.stopped_s = self._orders.recv()


@contextmanager
def open_governor() -> Iterator[Governor]:
    """Start a governor, which ends with the context or with its owner and leaves nothing stopped."""
    with open_python("wire.bed.machine") as (_, orders):
        yield Governor(orders)


def _open_guard() -> int:
    """Fork what lets all go on when this process has ended, however; return where it learns of whom."""
    child_end, own_end = os.pipe()
    if os.fork():
        os.close(child_end)
        return own_end
    os.close(own_end)
    pids = b"".join(iter(lambda: os.read(child_end, 4096), b""))
    for pid in pids.split():
        with suppress(OSError):
            os.kill(int(pid), signal.SIGCONT)
    os._exit(0)


def main(descriptor: str) -> None:
    """Obey the owner until it is gone: machines to govern, or None to let them go on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, who then stops us
    owner, guard, machines = os.getppid(), _open_guard(), list[Machine]()
    orders = Connection(int(descriptor))
    try:
        while os.getppid() == owner:
            next_s = min((machine.due_s for machine in machines), default=inf)
            wait_s = max(0.0, min(_OWNER_S, next_s - time.perf_counter()))
            if select.select([orders], [], [], wait_s)[0]:
                if (order := orders.recv()) is None:
                    for machine in machines:
                        machine.free()
                        machine.look()
                    stopped_s = max(machine.spent.stopped_s for machine in machines)
                    orders.send((*_add(machines), stopped_s))
                    for machine in machines:
                        machine.close()
                    machines = []
                else:
                    pids, n_processors, dilation, but = order
                    but |= {os.getpid(), *pids}
                    options = {"n_processors": n_processors, "dilation": dilation}
                    machines = [Machine(pid, but - {pid}, **options) for pid in pids]
                    for machine in machines:
                        _tell(guard, {*machine.processes})
                    orders.send(True)
            now_s = time.perf_counter()
            for machine in machines:
                _tell(guard, machine.govern(now_s))
    except EOFError:  # the owner has ended
        pass
    finally:
        for machine in machines:
            machine.free()


def _tell(guard: int, pids: Collection[int]) -> None:
    """Tell the guard of processes before any of them is stopped."""
    if pids:
        os.write(guard, b"".join(b"%d\n" % pid for pid in pids))


if __name__ == "__main__":
    main(sys.argv[1])
