"""Reads from a store that fails: how each of them ended, and what that took."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import numpy as np
import pandas as pd

from helpers.arrays import readers, reads
from helpers.arrays.readers import READERS, Reader
from helpers.arrays.stores import StoredArray
from helpers.benchmark.loop import deadline
from helpers.netem.profiles import FAULTS, Faults, Profile
from helpers.netem.proxy import Request
from helpers.objectstore import locations
from helpers.objectstore.testbed import Testbed

N_READS: Mapping[float, int] = {0.1: 6, 0.01: 18}
"""Reads at each probability of a fault, so many that each meets some."""

DEADLINE_S = 60.0
STALL_S = 600.0  # far beyond any time-out
_MOST = 90  # characters of a message in the table

SOUND = Profile("sound")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a read ended."""

    how: Literal["right", "refused", "found wrong"]
    said: str  # what the user sees; empty of a read that is right
    seconds: float
    trace: Sequence[Request]

    @property
    def n_failed(self) -> int:
        """Requests that were not answered whole; what is not there is an answer."""
        return sum(
            one.status != 404 and (not 200 <= one.status < 300 or one.is_cut) for one in self.trace
        )


@contextmanager
def impatient_clients() -> Iterator[None]:
    """Let clients repeat a request after a second or two, where they would wait for 15 or 30."""
    with mock.patch.multiple(locations, SILENCE_S=1, REQUEST_S=2):
        readers.forget_clients({})
        yield
    readers.forget_clients({})


def read_once(testbed: Testbed, stored: StoredArray, reader: Reader) -> Ended:
    """Read an array as one worker does, and check it."""
    readers.forget_data(dict(reader.zarr_config))
    testbed.take_trace()
    start, how, said = time.monotonic(), "right", ""
    try:
        with deadline(DEADLINE_S):
            array = reads.open_array(
                stored.seen_from(testbed.far), reader, n_connections=4, chunks_per_task=2
            )
            sink = reads.read_into_sink(array, stored.chunk_shape)
            sums = np.asarray(sink.compute(scheduler="threads", num_workers=4))
        reads.check_values(sums, stored)
    except reads.WrongValuesError as error:
        how, said = "found wrong", str(error)
    except Exception as error:
        how, said = "refused", f"{type(error).__name__}: {error}"
    return Ended(how, clean(said), time.monotonic() - start, testbed.take_trace())


def clean(said: str) -> str:
    """Leave of a message what is the same in each run, and cut it to a line.

    Examples
    --------
    >>> clean("OSError: http://127.0.0.1:4/a: 7 of 12 chunks in 1.5ms")
    'OSError: URL N of N chunks in N'
    """
    text = re.sub(r"https?://[^\s'\",]+", "URL", " ".join(said.split()))
    text = re.sub(r"\b\d[\d.]*(?:[mµn]?s)?\b", "N", text)
    return text if len(text) <= _MOST else f"{text[:_MOST].rpartition(' ')[0]} ..."


def tabulate(
    testbed: Testbed,
    stored: StoredArray,
    say: Callable[[str], None],
    *,
    n_reads: Mapping[float, int] = N_READS,
) -> pd.DataFrame:
    """Read by every reader, under every fault, at every probability."""
    lines = []
    with impatient_clients():
        for reader in READERS.values():
            say(reader.name)
            testbed.emulate(SOUND)
            sound = read_once(testbed, stored, reader)
            if sound.how != "right":
                raise RuntimeError(f"{reader.name} fails without a fault: {sound.said}")
            for fault in FAULTS:
                for rate, n in n_reads.items():
                    testbed.emulate(make_profile(**{fault: rate}))
                    ended = [read_once(testbed, stored, reader) for _ in range(n)]
                    what = {"reader": reader.name, "fault": fault, "rate": rate}
                    lines.append(what | summarise(ended, n_sound=len(sound.trace)))
    return pd.DataFrame(lines)


def make_profile(**rates: float) -> Profile:
    """Make a network without limits on which requests fail at these rates."""
    return Profile("faulty", faults=Faults(stall_s=STALL_S, **rates))


def summarise(ended: Sequence[Ended], *, n_sound: int) -> dict[str, Any]:
    """Count how reads ended; a read without faults takes `n_sound` requests."""
    hows = Counter(one.how for one in ended)
    said = Counter(one.said for one in ended if one.said)
    right = [one for one in ended if one.how == "right"]
    return {
        "n_reads": len(ended),
        "n_right": hows["right"],
        "n_refused": hows["refused"],
        "n_found_wrong": hows["found wrong"],
        "n_requests": sum(len(one.trace) for one in ended),
        "n_failed_requests": sum(one.n_failed for one in ended),
        "n_retries": sum(max(0, len(one.trace) - n_sound) for one in right),
        "longest_s": round(max(one.seconds for one in ended), 1),
        "saw": said.most_common(1)[0][0] if said else "",
    }
