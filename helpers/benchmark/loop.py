"""The one timing loop: blocks, random order, warm-ups apart, and when to stop."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd
import psutil

from helpers.benchmark.contender import CheckError, Contender
from helpers.benchmark.provenance import imported
from helpers.benchmark.record import PHASES, Record, Row
from wire.bed.machine import Governor, check_processors, observed, open_governor
from wire.deadline import deadline
from wire.errors import UserError


def timed[T](do: Callable[[], T], *, dilation: float = 1.0) -> tuple[T, float]:
    """Do something once; return what it returns, and its seconds: the one clock of every row.

    Where the network is emulated `dilation` times slower, seconds are as many times fewer than
    they took. Processors, which are not slowed down, are then as many times as fast.
    """
    start = time.perf_counter()
    result = do()
    return result, (time.perf_counter() - start) / dilation


def busy_s() -> float:
    """Read the processor seconds that this machine has spent, all its processes together."""
    spent = psutil.cpu_times()
    return float(spent.user + spent.system)


LEAST_S, LEAST_REQUESTS = 1.0, 20
"""Real seconds or requests that a read takes at least where something rests on it."""

LEAST_DEADLINE_S = 120.0
"""Seconds of the network that any step may take, however small the budget of its case."""


class Budget:
    """The time that a case may take, in real seconds counted from here.

    Opening a cluster, checking a network and calibrating take from it too.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = time.perf_counter()

    @property
    def spent_s(self) -> float:
        """Seconds since this was made."""
        return time.perf_counter() - self._start


def plan_block(
    contenders: Sequence[Contender], *, seed: int, phase: str, block: int
) -> list[Contender]:
    """Order the contenders of one block: groups are shuffled, then the contenders inside each.

    What is costly to change, such as the size of a cluster, changes once a group, and still none
    has a fixed place in time. What is compared belongs into one group, where it runs closest together.
    """
    rng = np.random.default_rng([seed, PHASES.index(phase), block])
    groups = list(dict.fromkeys(contender.group for contender in contenders))
    rng.shuffle(groups)
    order: list[Contender] = []
    for group in groups:
        members = [contender for contender in contenders if contender.group == group]
        order += [members[i] for i in rng.permutation(len(members))]
    return order


class MeasurementError(UserError):
    """A measurement failed, and what was measured before it is on disk."""


def measure_blocks(
    contenders: Sequence[Contender],
    record: Record,
    *,
    seed: int,
    n_blocks: int,
    budget: Budget,
    dilation: float | Mapping[str, float],
    cpus: int = 0,
    n_warm_ups: int = 1,
    phase: Literal["measured", "calibration", "trial"] = "measured",
    enter_group: Callable[[str], None] = lambda _group: None,
    progress: Callable[[str], None] = lambda _line: None,
) -> pd.DataFrame:
    """Measure every contender once a block, until the stated rule says stop.

    Repetitions are blocks, so that drift of the machine hits all alike. Each row is on disk before
    the next measurement starts; what a record holds already is not measured again, and the order
    stays that of the seed. The rule of stopping is stated beforehand: after `n_blocks`, or before
    a block that would end after `budget`, the time of the whole case, if it took the mean of those
    before. The first block always runs, so that a case has a result, and one that is continued,
    which is warmed up anew, has more. No opening and no reading may take longer than the whole
    case, or two minutes of the network if these are more.

    The clock of every row is `dilation`: real seconds in one of the network, 1 where time is real,
    by group where groups are read over networks of several. While a client opens and reads, each
    of its machines has so many `cpus` that count, its own or those of the case, slowed down as the
    network is; where that is 0 they count for nothing. `enter_group` is called, untimed, with
    each group that the loop enters, and `progress` with one line after each block. What returns is
    the whole record; its `attrs["stopped_by"]` is "n_blocks" or "time_budget".

    Raises
    ------
    MeasurementError
        If a contender fails or reads wrong; rows before it are on disk.
    UserError
        If two contenders are one, one is the copy of none, a group has no dilation, or this machine
        has fewer processors than one asks for; nothing is measured then.
    """
    _refuse(contenders)
    dilations = _find_dilations(dilation, contenders)
    counted = {
        contender.identity: cpus if contender.cpus is None else contender.cpus
        for contender in contenders
    }
    for contender in contenders:
        if n_cpus := counted[contender.identity]:
            k = dilations[contender.group]
            check_processors(n_cpus, k, n_machines=contender.n_machines)
    deadline_s = max(LEAST_DEADLINE_S * max(dilations.values(), default=1.0), budget.seconds)
    loop = _Loop(contenders, record, seed, dilations, counted, deadline_s, enter_group, progress)
    n_done, block_s, warm_ups = 0, 0.0, loop.plan_warm_ups(phase, n_warm_ups)
    record.stopped_by = ""
    with ExitStack() as stack:
        # collections pass over what is here now: before each read, all modules would take 0.2 s
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        if any(counted.values()):
            loop.governor = stack.enter_context(open_governor())
        while not record.stopped_by:
            is_due = bool(loop.pending(phase, n_done))
            if n_done >= n_blocks:
                record.stopped_by = "n_blocks"
            elif is_due and n_done and block_s and budget.spent_s + block_s > budget.seconds:
                record.stopped_by = "time_budget"  # a block that is on disk already costs no time
            elif is_due:
                while warm_ups:
                    loop.run_block("warm-up", warm_ups.pop(0))
                    loop.say_short(phase)
                loop.run_block(phase, n_done)
                block_s = sum(loop.spent_s) / len(loop.spent_s)
            n_done += 1
    return record.to_frame()


def _refuse(contenders: Sequence[Contender]) -> None:
    """Refuse what would fail or confuse an hour later."""
    names, identities = {contender.name for contender in contenders}, set[tuple[str, str]]()
    for contender in contenders:
        if contender.identity in identities:
            identity = " ".join(contender.identity)
            raise UserError("contenders", f"{identity} given twice", "once a point")
        identities.add(contender.identity)
        if contender.control_of is not None and contender.control_of not in names:
            raise UserError(
                "control_of",
                f"{contender.control_of!r} of {contender.name}",
                ", ".join(sorted(names)),
            )


def _find_dilations(
    dilation: float | Mapping[str, float], contenders: Sequence[Contender]
) -> dict[str, float]:
    """Find the dilation of the network that each group is measured over."""
    groups = dict.fromkeys(contender.group for contender in contenders)
    by_group = dilation if isinstance(dilation, Mapping) else dict.fromkeys(groups, dilation)
    if lacking := [group for group in groups if group not in by_group]:
        allowed = "one of each group of contenders"
        raise UserError("dilation", f"none of {', '.join(lacking)}", allowed)
    return {group: float(by_group[group]) for group in groups}


@dataclass(slots=True)
class _Loop:
    """What lasts from one block to the next."""

    contenders: Sequence[Contender]
    record: Record
    seed: int
    dilations: Mapping[str, float]
    cpus: Mapping[tuple[str, str], int]  # that count of each machine, by contender
    deadline_s: float
    enter_group: Callable[[str], None]
    progress: Callable[[str], None]
    spent_s: list[float] = field(default_factory=list)
    governor: Governor | None = None  # where processors are charged

    def pending(self, phase: str, block: int) -> list[tuple[int, Contender]]:
        """List what a block still lacks, each with its place in the order."""
        measured_keys = {row.key for row in self.record.rows}
        plan = enumerate(plan_block(self.contenders, seed=self.seed, phase=phase, block=block))
        return [
            (i, contender)
            for i, contender in plan
            if (phase, block, *contender.identity) not in measured_keys
        ]

    def plan_warm_ups(self, phase: str, n_warm_ups: int) -> list[int]:
        """Choose numbers for the warm-up blocks; a record that is continued gets new ones."""
        identities = {contender.identity for contender in self.contenders}
        rows = [row for row in self.record.rows if row.key[2:] in identities]
        if not any(row.phase == phase for row in rows):
            return [*range(n_warm_ups)]
        first = 1 + max((row.block for row in rows if row.phase == "warm-up"), default=-1)
        return [*range(first, first + max(1, n_warm_ups))]

    def say_short(self, phase: str) -> None:
        """Say, before anything is measured, that reads are so short that noise may decide."""
        identities = {
            contender.identity for contender in self.contenders if not contender.is_ceiling
        }
        warm = [
            row for row in self.record.rows if row.phase == "warm-up" and row.key[2:] in identities
        ]
        short_s = [r.real_read_s for r in warm if r.real_read_s < LEAST_S and r.n_requests < LEAST_REQUESTS]  # fmt: skip
        if phase == "measured" and short_s:
            print(
                f"{len(short_s)} of {len(warm)} warm-up reads took less than {LEAST_S:g} s and {LEAST_REQUESTS}"
                f" requests, the shortest {min(short_s):.2g} s: read more, or noise may decide"
            )

    def run_block(self, phase: str, block: int) -> None:
        """Measure what a block lacks and say so in one line."""
        start = time.perf_counter()
        entered: str | None = None
        pending = self.pending(phase, block)
        for order, contender in pending:
            if contender.group != entered:
                with self._step("entering group", contender.group, phase, block):
                    self.enter_group(contender.group)
                entered = contender.group
            self._measure(contender, phase=phase, block=block, order=order)
        if pending:
            self.spent_s.append(time.perf_counter() - start)
            self.progress(
                f"{phase} block {block}: {len(pending)} measurements in "
                f"{self.spent_s[-1]:.1f} s, {sum(self.spent_s):.0f} s spent"
            )

    def _measure(self, contender: Contender, *, phase: str, block: int, order: int) -> None:
        """Measure one contender once, timing its opening and reading alone, and put its row on disk."""
        place = (" ".join(contender.identity), phase, block)
        steps, origin, k = contender.steps, self.record.provenance, self.dilations[contender.group]
        n_cpus = self.cpus[contender.identity]
        with self._step("prepare", *place):
            steps.enter_block(block)
            steps.prepare()
            # Garbage of the contender before is not paid for by this one.
            gc.collect()
        started_utc = datetime.now(UTC).isoformat(timespec="milliseconds")
        machines = steps.find_machines(), steps.find_services()
        counted = observed(*machines)
        if self.governor is not None and n_cpus:
            counted = self.governor.slowed(*machines, n_processors=n_cpus, dilation=k)
        with counted as spent:
            before_s = busy_s()
            with self._step("open", *place), deadline(self.deadline_s, steps.find_dead_process):
                opened, open_s = timed(steps.open, dilation=k)
            with self._step("read", *place), deadline(self.deadline_s, steps.find_dead_process):
                read = partial(contender.read or steps.read, opened)
                result, read_s = timed(read, dilation=k)
            trace: dict[str, Any] = {"busy_s": busy_s() - before_s}
        with self._step("collect", *place):
            trace |= steps.collect()
        with self._step("check", *place):
            if not (check := steps.check(result)):
                raise CheckError("it does not say what it checked")
        with self._step("versions", *place):
            # those at the opening of the record win: nothing is imported twice
            versions = {**imported(), **steps.versions(), **origin.versions}
        settings = {**(contender.settings or {}), "read_deadline_s": self.deadline_s}
        if n_cpus:
            settings["processors"] = n_cpus
            trace["stopped_s"] = spent.stopped_s
        row = Row(
            study=self.record.study,
            case=self.record.case,
            contender=contender.name,
            point=contender.point,
            settings=settings,
            cache_state=str(settings["cache_state"]),
            is_ceiling=contender.is_ceiling,
            control_of=contender.control_of or "",
            seed=self.seed,
            phase=phase,
            block=block,
            order=order,
            started_utc=started_utc,
            open_s=open_s,
            read_s=read_s,
            dilation=k,
            cpus=n_cpus,
            n_machines=float(contender.n_machines),
            array_nbytes=contender.nbytes[0],
            stored_nbytes=contender.nbytes[1],
            wire_nbytes=float(trace.pop("wire_nbytes", math.nan)),
            n_requests=float(trace.pop("n_requests", math.nan)),
            client_s=spent.client_s,
            thread_s=spent.thread_s,
            trace=trace,
            check=check,
            fingerprint=origin.fingerprint,
            machine=origin.machine,
            versions=versions,
            parameters=origin.parameters,
            commit=origin.commit,
            is_dirty=origin.is_dirty,
        )
        self.record.append([row])

    @contextmanager
    def _step(self, step: str, subject: str, phase: str, block: int) -> Iterator[None]:
        """Turn any failure into one line that says where it happened."""
        try:
            yield
        except Exception as error:
            cause = self.record.redact(" ".join(f"{type(error).__name__}: {error}".split()))
            raise MeasurementError(
                f"{subject}, {phase} block {block}", f"{step} failed: {cause[:300]}"
            ) from error
