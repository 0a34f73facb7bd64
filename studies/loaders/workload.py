"""One epoch of a loader, in the steps that a measurement needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xxhash

from helpers.arrays.readers import forget_clients
from helpers.arrays.reads import count_requests
from helpers.arrays.stores import StoredArray
from helpers.benchmark.contender import CheckError, Contender, Steps, Traced
from helpers.session import Session
from studies.loaders.loaders import BASELINE, LOADERS, Batch, Epoch, open_array
from wire.bed.testbed import Testbed
from wire.host import installed

CONTROL = "control"


@dataclass(slots=True)
class Drawn:
    """What arrived of an epoch: the hash of each sample by its index, and when the first batch did."""

    hashes: dict[int, int] = field(default_factory=dict)
    n_samples: int = 0
    first_batch_s: float = 0.0  # real seconds from the beginning of the epoch

    @classmethod
    def consume(cls, batches: Iterator[Batch]) -> Drawn:
        """Take all batches, as a training that computes nothing, and keep hashes."""
        drawn, start = cls(), time.perf_counter()
        for indices, values in batches:
            drawn.first_batch_s = drawn.first_batch_s or time.perf_counter() - start
            for index, sample in zip(indices, values, strict=True):
                drawn.hashes[int(index)] = hash_sample(sample)
                drawn.n_samples += 1
        return drawn


def hash_sample(sample: Any) -> int:
    """Return the XXH3 hash of the values of a sample."""
    return xxhash.xxh3_64_intdigest(np.ascontiguousarray(sample, np.float32).tobytes())


@dataclass(slots=True)
class LoaderRead(Steps):
    """An epoch by one loader: its start is the opening, its batches are the read."""

    name: str
    epoch: Epoch
    stored: StoredArray
    testbed: Testbed
    hashes: Sequence[int]  # of each sample, as written
    first_batch_s: float = field(default=0.0, init=False)
    _stack: ExitStack = field(default_factory=ExitStack, init=False)

    def settings(self) -> Mapping[str, Any]:
        """Declare the settings that a comparison has to hold equal."""
        epoch = self.epoch
        return {
            "batch_size": epoch.batch_size,
            "n_processes": epoch.n_processes if "processes" in self.name else 0,
            "cache_state": "cache filled" if self.name == "cache-filled" else "nothing cached",
        }

    def nbytes(self) -> tuple[int, int]:
        """Count the bytes of all samples, and of the array in the store."""
        return self.stored.nbytes, self.stored.stored_nbytes["zarr"]

    def enter_block(self, block: int) -> None:
        """Shuffle each block in another order, the same for all loaders."""
        self.epoch = replace(self.epoch, seed=self.epoch.seed % 2**20 + 2**20 * block)

    def prepare(self) -> None:
        """End what is open, forget every client and empty the trace."""
        self._stack.close()
        forget_clients({})
        self.testbed.take_trace()
        self.testbed.set_tag("open")

    def open(self) -> Iterator[Batch]:
        """Start the loader: open the array, start its processes, fill its cache."""
        batches = LOADERS[self.name].open(self.epoch, self._stack)
        self.testbed.set_tag("read")
        return batches

    def check(self, drawn: Drawn) -> str:
        """Compare every sample with what was written: each arrives once."""
        if drawn.n_samples != len(self.hashes) or len(drawn.hashes) != len(self.hashes):
            raise CheckError(f"{self.name}: {drawn.n_samples} samples, not {len(self.hashes)}")
        wrong = sum(drawn.hashes[index] != value for index, value in enumerate(self.hashes))
        if wrong:
            raise CheckError(f"{self.name}: {wrong} of {len(self.hashes)} samples differ")
        return f"xxh3 of {len(self.hashes)} samples, each once"

    def collect(self) -> Mapping[str, Traced]:
        """Count what passed over the wire in the epoch, and end the loader."""
        counts = count_requests(self.testbed.take_trace(), self.epoch.n_processes)
        self._stack.close()
        return {"n_requests": 0, "wire_nbytes": 0, **counts, "first_batch_s": self.first_batch_s}

    def versions(self) -> Mapping[str, str]:
        """Look up the versions of the extras that the loader needs."""
        return installed(LOADERS[self.name].packages)


Read = Callable[[Iterator[Batch]], Drawn]
"""What is timed after the start of a loader: it takes the batches of an epoch."""


@dataclass(slots=True)
class Loaders:
    """The array of a case, the epoch that is drawn from it, and its loaders as contenders."""

    session: Session
    stored: StoredArray
    epoch: Epoch
    hashes: Sequence[int]

    def make_contenders(self, read: Read) -> list[Contender]:
        """Make a contender of each loader of the case, and a second copy of the first."""
        names = self.session.settings["loaders"]
        contenders = [self._make_contender(name, name, read) for name in names]
        control = self._make_contender(CONTROL, BASELINE, read)
        return [*contenders, replace(control, control_of=BASELINE)]

    def _make_contender(self, name: str, loader: str, read: Read) -> Contender:
        steps = LoaderRead(loader, self.epoch, self.stored, self.session.testbed, self.hashes)
        return Contender(name, steps, read=lambda batches: steps_read(steps, read, batches))


def steps_read(steps: LoaderRead, read: Read, batches: Iterator[Batch]) -> Drawn:
    """Read an epoch, and keep when its first batch arrived for the trace."""
    drawn = read(batches)
    steps.first_batch_s = drawn.first_batch_s
    return drawn


def prepare_epoch(stored: StoredArray, settings: Mapping[str, Any], testbed: Testbed) -> Epoch:
    """Describe the epoch of a case over the network of its testbed."""
    location = stored.seen_from(testbed.far).locate("zarr")
    keys = ("batch_size", "n_processes", "prefetch_factor", "n_window", "seed")
    sizes = stored.shape[0], stored.chunk_shape[0]
    return Epoch(location, stored.variable, *sizes, *(settings[key] for key in keys))


def prepare_loaders(session: Session) -> Loaders:
    """Write the array of the case, and hash each of its samples as written."""
    settings = session.settings
    stored = session.array(
        settings["array_shape"], settings["chunk_shape"], codec="blosc-zstd", layouts=("zarr",)
    )
    epoch = prepare_epoch(stored, settings, session.testbed)
    return Loaders(session, stored, epoch, hash_samples(stored, epoch))


def hash_samples(stored: StoredArray, epoch: Epoch) -> list[int]:
    """Hash each sample of the array, read without the emulated network."""
    array = open_array(replace(epoch, location=stored.locate("zarr")))
    return [hash_sample(array[index]) for index in range(epoch.n_samples)]
