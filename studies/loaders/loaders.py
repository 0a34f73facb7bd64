"""Loaders of random samples: each iterates over the batches of an epoch, and a sample is one step of time.

PyTorch is too large for the environment of this book, so the loader with processes follows the
protocol of its `DataLoader`: a process gets the indices of a whole batch, keeps the array open,
and has `prefetch_factor` batches ready; batches arrive in order. Their values come back through a
pipe, where PyTorch has shared memory.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import batched
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray
from zarr.experimental.cache_store import CacheStore
from zarr.storage import LocalStore, ObjectStore

from wire.bed.locations import Location

Values = NDArray[np.float32]
Batch = tuple[Sequence[int], Values]
"""Indices of samples, and their values in the same order."""

BASELINE = "naive"
_WAIT_S = 120.0  # for all processes of a pool to have started


@dataclass(frozen=True, slots=True)
class Epoch:
    """An array in a store, and how its samples are drawn once each."""

    location: Location
    variable: str
    n_samples: int
    samples_per_chunk: int
    batch_size: int
    n_processes: int
    prefetch_factor: int
    n_window: int  # chunks among which samples are shuffled
    seed: int

    def shuffle(self) -> list[tuple[int, ...]]:
        """Shuffle all samples, and return the indices of each batch."""
        order = np.random.default_rng(self.seed).permutation(self.n_samples)
        return list(batched(order.tolist(), self.batch_size))

    def open_store(self) -> ObjectStore[Any]:
        """Open the store through obstore."""
        return ObjectStore(self.location.obstore(), read_only=True)


def open_array(epoch: Epoch, store: Any = None) -> Any:
    """Open the array with zarr, from another store where one is given."""
    store = store or epoch.open_store()
    return zarr.open_array(store, path=epoch.variable, mode="r")


def load_in_turn(array: Any, indices: Sequence[int]) -> Values:
    """Load the samples of a batch one after the other, as `__getitem__` does."""
    return np.stack([array[index] for index in indices])


def load_at_once(array: Any, indices: Sequence[int], pool: ThreadPoolExecutor) -> Values:
    """Load the samples of a batch side by side, as `__getitems__` can."""
    return np.stack([*pool.map(array.__getitem__, indices)])


Load = Callable[[Any, Sequence[int]], Values]


def _open_naive(epoch: Epoch, _stack: ExitStack) -> Iterator[Batch]:
    array = open_array(epoch)
    return ((indices, load_in_turn(array, indices)) for indices in epoch.shuffle())


def _open_batch(epoch: Epoch, stack: ExitStack) -> Iterator[Batch]:
    array = open_array(epoch)
    pool = stack.enter_context(ThreadPoolExecutor(epoch.batch_size))
    return ((indices, load_at_once(array, indices, pool)) for indices in epoch.shuffle())


_OPENED: dict[str, Any] = {}  # of a process of a pool: the array, and threads


def _start_process(epoch: Epoch, barrier: Any) -> None:
    """Open the array in a process of a pool, as a `DataLoader` does that keeps its workers."""
    _OPENED["array"] = open_array(epoch)
    _OPENED["pool"] = ThreadPoolExecutor(epoch.batch_size)
    _OPENED["barrier"] = barrier


def _wait_for_all() -> None:
    """Wait in each process of a pool until all have started."""
    _OPENED["barrier"].wait(_WAIT_S)


def _load_in_process(indices: Sequence[int], *, is_at_once: bool) -> Values:
    if is_at_once:
        return load_at_once(_OPENED["array"], indices, _OPENED["pool"])
    return load_in_turn(_OPENED["array"], indices)


def _open_processes(epoch: Epoch, stack: ExitStack, *, is_at_once: bool) -> Iterator[Batch]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(epoch.n_processes)
    pool = stack.enter_context(
        ProcessPoolExecutor(epoch.n_processes, context, _start_process, (epoch, barrier))
    )
    for started in [pool.submit(_wait_for_all) for _ in range(epoch.n_processes)]:
        started.result()
    load = partial(_load_in_process, is_at_once=is_at_once)
    return _keep_ready(pool, load, epoch.shuffle(), epoch.n_processes * epoch.prefetch_factor)


def _keep_ready(
    pool: ProcessPoolExecutor,
    load: Callable[[Sequence[int]], Values],
    batches: Sequence[Sequence[int]],
    n_ready: int,
) -> Iterator[Batch]:
    """Yield batches in order, with so many of them being loaded or ready ahead."""
    pending: deque[tuple[Sequence[int], Future[Values]]] = deque()
    for indices in batches:
        pending.append((indices, pool.submit(load, indices)))
        if len(pending) >= n_ready:
            loaded, future = pending.popleft()
            yield loaded, future.result()
    for loaded, future in pending:
        yield loaded, future.result()


def _open_chunks(epoch: Epoch, stack: ExitStack) -> Iterator[Batch]:
    """Shuffle chunks, read a window of them at once and the next one ahead, and shuffle inside it."""
    array = open_array(epoch)
    readers = stack.enter_context(ThreadPoolExecutor(epoch.n_window))
    ahead = stack.enter_context(ThreadPoolExecutor(1))
    rng = np.random.default_rng(epoch.seed)
    starts = range(0, epoch.n_samples, epoch.samples_per_chunk)
    windows = [*batched(rng.permutation(starts).tolist(), epoch.n_window)]

    def read_window(window: Sequence[int]) -> Batch:
        parts = [slice(start, start + epoch.samples_per_chunk) for start in window]
        values = np.concatenate([*readers.map(array.__getitem__, parts)])
        indices = np.concatenate([np.arange(epoch.n_samples)[part] for part in parts])
        order = rng.permutation(len(indices))
        return indices[order].tolist(), values[order]

    def iterate() -> Iterator[Batch]:
        futures = deque([ahead.submit(read_window, windows[0])])
        for following in [*windows[1:], None]:
            indices, values = futures.popleft().result()
            if following is not None:
                futures.append(ahead.submit(read_window, following))
            for start in range(0, len(indices), epoch.batch_size):
                part = slice(start, start + epoch.batch_size)
                yield indices[part], values[part]

    return iterate()


def _open_cache(epoch: Epoch, stack: ExitStack, *, is_filled: bool) -> Iterator[Batch]:
    """Keep chunks as files of the local disk; one that is filled has been read once before."""
    folder = Path(stack.enter_context(TemporaryDirectory()))
    cached = CacheStore(
        epoch.open_store(), cache_store=LocalStore(folder), max_age_seconds="infinity"
    )
    array = open_array(epoch, cached)
    if is_filled:
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(array.__getitem__, range(0, epoch.n_samples, epoch.samples_per_chunk)))
    return ((indices, load_in_turn(array, indices)) for indices in epoch.shuffle())


def _open_xbatcher(epoch: Epoch, stack: ExitStack, *, n_threads: int) -> Iterator[Batch]:
    """Let xbatcher cut the samples; its batches of one step are loaded by threads, or one by one."""
    import xbatcher

    options: dict[str, Any] = {"mask_and_scale": False, "decode_times": False, "cache": False}
    store: Any = epoch.open_store()
    dataset = xr.open_dataset(store, engine="zarr", chunks=None, **options)
    field = dataset[[epoch.variable]]
    sizes: dict[Any, int] = {name: field.sizes[name] for name in field.dims}
    generator = xbatcher.BatchGenerator(field, {**sizes, next(iter(field[epoch.variable].dims)): 1})
    pool = stack.enter_context(ThreadPoolExecutor(n_threads))

    def load_sample(index: int) -> Values:
        values: Values = generator[index][epoch.variable].to_numpy()[0]
        return values

    return ((indices, np.stack([*pool.map(load_sample, indices)])) for indices in epoch.shuffle())


def _open_insitubatch(epoch: Epoch, _stack: ExitStack) -> Iterator[Batch]:
    import insitubatch

    store = epoch.open_store()
    geometries = insitubatch.open_geometries(store, variables=[epoch.variable])
    manifest = insitubatch.split_by_chunk(geometries[epoch.variable], fractions=(1.0, 0.0, 0.0))
    dataset = insitubatch.InSituDataset(
        store,
        manifest,
        geometries=geometries,
        batch_size=epoch.batch_size,
        block_chunks=epoch.n_window,
        seed=epoch.seed,
    )
    return (
        (batch.sample_indices.tolist(), batch.arrays[epoch.variable]) for batch in dataset.train
    )


Open = Callable[[Epoch, ExitStack], Iterator[Batch]]
"""What starts a loader: it leaves to the stack what ends with the loader."""


@dataclass(frozen=True, slots=True)
class Loader:
    """A way to draw the samples of an epoch."""

    label: str  # on pages
    open: Open
    packages: tuple[str, ...] = ()  # extras that have to be installed


LOADERS: Mapping[str, Loader] = {
    BASELINE: Loader("one sample after the other", _open_naive),
    "processes": Loader("worker processes", partial(_open_processes, is_at_once=False)),
    "batch": Loader("a batch at once, in threads", _open_batch),
    "processes-batch": Loader(
        "worker processes, each a batch at once", partial(_open_processes, is_at_once=True)
    ),
    "chunks": Loader("shuffled chunks, each read once", _open_chunks),
    "cache": Loader("local cache, first epoch", partial(_open_cache, is_filled=False)),
    "cache-filled": Loader("local cache, second epoch", partial(_open_cache, is_filled=True)),
    "xbatcher": Loader("xbatcher", partial(_open_xbatcher, n_threads=1), ("xbatcher",)),
    "xbatcher-threads": Loader(
        "xbatcher in ten threads", partial(_open_xbatcher, n_threads=10), ("xbatcher",)
    ),
    "insitubatch": Loader("insitubatch", _open_insitubatch, ("insitubatch",)),
}
"""Every loader that is compared, by name."""
