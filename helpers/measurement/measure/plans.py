"""When to stop, and in which order a block runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from helpers.errors import UserError
from helpers.measurement.measure.contenders import Contender
from helpers.measurement.records import PHASES
from helpers.measurement.statistics import relative_widths

StoppedBy = Literal["n_blocks", "target_width", "time_budget"]


class Budget:
    """The time that a case may take, counted from here.

    A case makes one, first of all, and gives it to each of its calls of
    `measure_blocks`: opening a cluster, checking a network and calibrating
    take from it what is then not left for measuring.

    Parameters
    ----------
    seconds : float
        Time allowed, above 0.
    """

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise UserError(f"time_budget_s: {seconds}; allowed: above 0")
        self.seconds = seconds
        self._start = time.perf_counter()

    @property
    def spent_s(self) -> float:
        """Seconds since this was made."""
        return time.perf_counter() - self._start


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """When to stop, stated before the first measurement.

    Parameters
    ----------
    n_blocks : int
        Most blocks, at least 1.
    min_blocks : int
        Blocks before the width is looked at, at least 1.
    target_width : float
        Full width of the 95 % interval of each median read time, over the
        median; when all are as narrow, enough is measured.
    time_budget_s : float
        No block starts that would end later than this after the case began, if
        it took the mean time of the blocks before. The first block of each call
        always runs, so that a case has a result, and one that is continued has
        more; a record continued tomorrow has tomorrow's budget.
    """

    n_blocks: int
    time_budget_s: float
    target_width: float
    min_blocks: int = 5

    def __post_init__(self) -> None:
        """Refuse a rule that would never start or never stop."""
        for name in ("n_blocks", "min_blocks"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: {getattr(self, name)}; allowed: at least 1")
        for name in ("time_budget_s", "target_width"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name}: {getattr(self, name)}; allowed: above 0")

    def reason(
        self, frame: pd.DataFrame, *, n_done: int, spent_s: float, block_s: float
    ) -> StoppedBy | None:
        """Say why to stop before the next block, if there is a reason.

        Parameters
        ----------
        frame : DataFrame
            Measured rows of the blocks done.
        n_done : int
            Measured blocks done.
        spent_s, block_s : float
            Time since the case began; mean time of a block, 0 if none ran in this call.

        Returns
        -------
        str or None
            "n_blocks", "target_width", "time_budget", or None to go on.
        """
        if n_done >= self.n_blocks:
            return "n_blocks"
        if n_done >= self.min_blocks and (relative_widths(frame) <= self.target_width).all():
            return "target_width"
        # A block that is on disk already costs nothing, so it is never refused.
        if n_done >= 1 and block_s > 0 and spent_s + block_s > self.time_budget_s:
            return "time_budget"
        return None


def plan_block(
    contenders: Sequence[Contender], *, seed: int, phase: str, block: int
) -> list[Contender]:
    """Order the contenders of one block.

    Groups are shuffled, then the contenders inside each: what is costly to
    change, such as the size of a cluster, changes once a group, and still no
    contender and no group has a fixed place in time. Contenders to be compared
    with one another belong into one group, where they run closest together.

    Parameters
    ----------
    contenders : sequence of Contender
        All contenders.
    seed, phase, block : int, str, int
        The order depends on these three and on nothing else.

    Returns
    -------
    list of Contender
        The same contenders, in the order to run.
    """
    rng = np.random.default_rng([seed, PHASES.index(phase), block])
    groups = list(dict.fromkeys(contender.group for contender in contenders))
    rng.shuffle(groups)
    order: list[Contender] = []
    for group in groups:
        members = [contender for contender in contenders if contender.group == group]
        order += [members[i] for i in rng.permutation(len(members))]
    return order
