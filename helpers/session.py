"""What every notebook does around its question: parameters, store, network, record, findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, Self

import pandas as pd

from helpers.arrays import services
from helpers.arrays.readers import Codec, Layout
from helpers.arrays.stores import StoredArray, open_or_make_array
from helpers.benchmark import loop, provenance, ranking, statistics
from helpers.benchmark.contender import Contender
from helpers.benchmark.record import Record
from helpers.findings import Claim, Claims, Finding, Findings, write_findings
from helpers.parameters import AUTO, Parameters
from helpers.plotting import figures, palette, tables
from helpers.plotting.tables import show
from wire.bed.locations import Location, credentials
from wire.bed.networks import Profile, get_profile, of_one_process
from wire.bed.testbed import Testbed, open_testbed
from wire.errors import UserError

if TYPE_CHECKING:
    from helpers.arrays.clusters import Cluster

__all__ = [
    "Claim",
    "Contender",
    "Finding",
    "Session",
    "figures",
    "palette",
    "ranking",
    "show",
    "statistics",
    "tables",
]


class Session:
    """One run of a notebook, from its parameters to its findings.

    The parameters are validated here, before anything is written or measured, and the time budget
    of the case begins. What is opened through the session ends with `close`, with `finish`, with
    the ``with`` block where there is one, and with the process in any case.

    Parameters
    ----------
    model : type of Parameters
        The study's model, which names the study and says which parameters it takes.
    namespace : mapping
        The parameters by name, as ``globals()`` of a notebook; names that are none are passed over.

    Examples
    --------
    >>> Session(Parameters, {"n_blocks": 0})
    Traceback (most recent call last):
    ...
    wire.errors.UserError: parameters: n_blocks: 0; allowed: at least 1
    """

    def __init__(self, model: type[Parameters], namespace: Mapping[str, Any]) -> None:
        self.settings = model.read(namespace)
        self.budget = loop.Budget(self.settings["time_budget_s"])
        self.findings = Findings()
        self.claims = Claims(self.findings)
        self.network = get_profile(self.settings["profile"])
        self._model = model
        self._stack = ExitStack()
        self._testbed: Testbed | None = None
        self._services: dict[str, Testbed] = {}
        self._record: Record | None = None
        self._is_emulated = False
        tables.set_style()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dilation(self) -> float:
        """Real seconds in one of the network; 1 where time is real, and while ``auto`` is not chosen."""
        value = self.settings.get("dilation", 1.0)
        return 1.0 if value == AUTO else float(value)

    @property
    def network_of_this_process(self) -> Profile:
        """The network of the case as this process sees it: the link of a worker is that of all."""
        return of_one_process(self.network)

    @property
    def testbed(self) -> Testbed:
        """The store, once it is open."""
        if self._testbed is None:
            raise UserError("session", "no store is open", "after session.open_store()")
        return self._testbed

    @property
    def record(self) -> Record:
        """The record that receives every row; it is opened with the first measurement."""
        if self._record is None:
            self._record = Record(
                self.settings["record"],
                study=self._model.study,
                provenance=provenance.describe(self.settings, but=self._model.not_measured),
                secrets=self._testbed.far.secrets if self._testbed else (),
            )
        return self._record

    def open[T](self, context: AbstractContextManager[T]) -> T:
        """Enter a context that ends with the session, and return what it gives."""
        return self._stack.enter_context(context)

    def open_store(
        self,
        needed_nbytes: int = 0,
        *,
        network: Profile | None = None,
        is_emulated: bool = False,
        with_credentials: bool = False,
    ) -> Testbed:
        """Open the store of the case, with room for `needed_nbytes`.

        `network` is what `measure` reads over, where it is not that of the case. It is emulated
        from the first measured block on, so that data are written and reads calibrated at full
        speed, or from now on if `is_emulated`. Where clients take credentials from the
        environment alone, `with_credentials` puts those of the store there.
        """
        self.network = network or self.network
        self._is_emulated = is_emulated
        self._testbed = self.open(
            open_testbed(
                self.settings["store"],
                self.network if is_emulated else get_profile("loopback"),
                seed=self.settings["seed"],
                needed_nbytes=needed_nbytes,
                dilation=self.dilation,
                tls=self.network.tls,
            )
        )
        if with_credentials:
            self.open(credentials(self._testbed.near))
        return self._testbed

    def open_services(
        self, names: Collection[str], place: Location, keys: Iterable[str]
    ) -> Mapping[str, Testbed]:
        """Open services of other providers, with copies of objects of the store under the same keys.

        The network before each is that of the store, at any time. What is needed of each study,
        its own function lists.
        """
        self._services |= self.open(
            services.open_services(
                names,
                place,
                keys,
                self.network if self._is_emulated else get_profile("loopback"),
                seed=self.settings["seed"],
                dilation=self.dilation,
            )
        )
        return self._services

    def array(
        self,
        shape: Sequence[int],
        chunk_shape: Sequence[int],
        *,
        codec: Codec,
        layouts: Sequence[Layout] = ("zarr",),
        dataset: str = "enlarged-ocean-temperature",
    ) -> StoredArray:
        """Find an array in the store, or write it: an entry of catalog.yml, enlarged to `shape`.

        Shapes are in elements, as time, depth, y, x; each of `layouts` gets the same values.
        """
        return open_or_make_array(
            dataset,
            self.testbed.near,
            shape=tuple(shape),
            chunk_shape=tuple(chunk_shape),
            codec=codec,
            layouts=layouts,
            seed=self.settings["seed"],
        )

    def open_folder(self) -> Path:
        """Make a folder that ends with the session, for what lies on the local disk."""
        return Path(self.open(TemporaryDirectory()))

    def open_cluster(self) -> Cluster:
        """Start the Dask cluster that the parameters ask for, or connect to it; no worker is there yet."""
        from helpers.arrays import clusters  # Dask's scheduler, for few notebooks

        return self.open(
            clusters.open_cluster(
                self.settings["cluster_kind"],
                address=self.settings["cluster_address"] or None,
                options=self.settings["cluster_options"],
                threads_per_worker=self.settings["threads_per_worker"],
            )
        )

    def emulate(
        self, network: Profile | str | None = None, *, dilation: float | None = None
    ) -> None:
        """Emulate the network of the measurement from now on, or another one, and another dilation.

        A text is the name of a profile that ships, such as ``loopback``.
        """
        if isinstance(network, str):
            network = get_profile(network)
        for testbed in (self.testbed, *self._services.values()):
            testbed.emulate(network or self.network, dilation=dilation or self.dilation)
        self._is_emulated = True

    def calibrate(
        self,
        contenders: Sequence[Contender],
        *,
        n_warm_ups: int = 1,
        enter_group: Callable[[str], None] = lambda _group: None,
    ) -> pd.DataFrame:
        """Read once with each contender, before `measure`, for a prediction; return the record."""
        return self._measure(
            contenders, "calibration", n_blocks=1, n_warm_ups=n_warm_ups, enter_group=enter_group
        )

    def measure(
        self,
        contenders: Sequence[Contender],
        *,
        n_warm_ups: int = 0,
        dilation: float | Mapping[str, float] | None = None,
        enter_group: Callable[[str], None] = lambda _group: None,
    ) -> pd.DataFrame:
        """Measure each contender once a block over the network of the case; return the record.

        Blocks repeat as `loop.measure_blocks` says: `n_blocks` of them, or until the time budget
        of the case ends. Where groups have dilations of their own, `enter_group` emulates.
        """
        if self._testbed is not None and not (self._is_emulated or isinstance(dilation, Mapping)):
            self.emulate(dilation=dilation if isinstance(dilation, float | int) else None)
        return self._measure(
            contenders,
            "measured",
            n_blocks=self.settings["n_blocks"],
            n_warm_ups=n_warm_ups,
            dilation=dilation,
            enter_group=enter_group,
        )

    def count_trials(
        self, contenders: Sequence[Contender], *, n_most: int, budget_s: float
    ) -> pd.DataFrame:
        """Run trials, which are counted and not timed: at most `n_most` blocks, with a time budget of their own."""
        return self._measure(
            contenders,
            "trial",
            n_blocks=min(n_most, self.settings["n_blocks"]),
            budget=loop.Budget(budget_s),
        )

    def _measure(
        self,
        contenders: Sequence[Contender],
        phase: Literal["measured", "calibration", "trial"],
        *,
        n_blocks: int,
        n_warm_ups: int = 0,
        dilation: float | Mapping[str, float] | None = None,
        enter_group: Callable[[str], None] = lambda _group: None,
        budget: loop.Budget | None = None,
    ) -> pd.DataFrame:
        return loop.measure_blocks(
            contenders,
            self.record,
            phase=phase,
            seed=self.settings["seed"],
            n_blocks=n_blocks,
            n_warm_ups=n_warm_ups,
            budget=budget or self.budget,
            dilation=self.dilation if dilation is None else dilation,
            cpus=self.settings["processors"],
            enter_group=enter_group,
        )

    def count_rows(self) -> pd.DataFrame:
        """Count the blocks and rows of the record by phase, and say what ended the measurement."""
        return tables.count_rows(self.record.to_frame(), stopped_by=self.record.stopped_by)

    def close(self) -> None:
        """End the server, the emulated network and whatever else was opened; once is enough."""
        self._stack.close()

    def finish(self, *, noise: float = math.nan) -> pd.DataFrame:
        """Close the session, write findings and claims next to the record, and return their table.

        `noise` is the A/A ratio less 1 of what the page judges, NaN where it is unknown.
        """
        self.close()
        blocks = {row.block for row in self.record.rows if row.phase == "measured"}
        return write_findings(
            self.record.path, self.findings, self.claims, noise=noise, n_blocks=len(blocks)
        )
