"""A run of a pipeline: epoch after epoch, with what may be asked between two of them."""

from __future__ import annotations

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, final

from dorylax.clock import Clock
from dorylax.cost import Bill, Calls, Cluster
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.counters import Counters
from dorylax.pipeline.host import GraphHost
from dorylax.pipeline.parameters import ParameterServers
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.saved import Saved, save_buffers, save_controller, save_known
from dorylax.program.model.base import Tree
from dorylax.runs.servers import Loss, ParameterServerMetrics, ServerMetrics


@final
@dataclasses.dataclass(frozen=True, eq=False)
class PipelineEpoch:
    """An epoch that every interval has finished.

    Attributes:
        epoch: its number.
        loss: Σ weight · loss over all training vertices, each interval with the weights that it had pulled.
        seconds: of the clock, since the epoch before was finished.
        params, opt_state, state: the newest version of the first parameter server; never written to.
        servers: what each server did in it: graph servers, then parameter servers.
    """

    epoch: int
    loss: float
    seconds: float
    params: Tree
    opt_state: Tree
    state: Tree
    servers: Sequence[ServerMetrics]


class Version(Protocol):
    """What is known of a version after an epoch: of `ServerState`."""

    @property
    def params(self) -> Tree:
        """Parameters."""

    @property
    def opt_state(self) -> Tree:
        """The optimizer's state."""

    @property
    def state(self) -> Tree:
        """What else the model keeps."""


class PipelineRun(ABC):
    """Servers, parameter servers and tensor workers, training.

    Args:
        config: how it is run.
        clock: where time comes from.
        prices: what the run is billed as; None where it costs nothing.
        epoch: the first that is trained.
        begun: the clock's seconds when it began: 0 if the time for what is computed once is included.
        seconds_before: spent by earlier processes of this run, less what the clock shows already.
        saved: the state that the run goes on from; None: it begins.

    Attributes:
        prices: as given.
        epochs_ahead: number of epochs that some interval began with the stability gate open; None without a gate.
    """

    def __init__(
        self,
        *,
        config: PipelineConfig,
        clock: Clock,
        prices: Cluster | None,
        epoch: int,
        begun: float,
        seconds_before: float,
        saved: Saved | None = None,
    ) -> None:
        self.prices = prices
        record = {} if saved is None else saved.record
        self.epochs_ahead: int | None = record.get("epochs_ahead", 0) if config.gated else None
        self._synchronous_from = epoch if record.get("synchronous") else None
        self._config, self._clock = config, clock
        self._epoch, self._last, self._seconds_before = epoch, begun, seconds_before

    @abstractmethod
    def barrier(self, epoch: int) -> None:
        """Lets no interval start this epoch before all have finished the one before: where a checkpoint is due, at the end.

        Args:
            epoch: that no interval has started.
        """

    def run_epoch(self) -> PipelineEpoch:
        """Trains until the slowest interval has finished the next epoch.

        Raises:
            TaskFailedError: a task failed too often.
            HostError: the code of a host in another process has failed, or hosts were lost too often.
        """
        clock, epoch = self._clock, self._epoch
        begin = clock.now()
        try:
            loss, newest, servers = self._finish(epoch)
        except BaseException:
            self.close()  # an interval is gone: nobody could ever finish the epoch
            raise
        since = self._last if clock.kind == "virtual" else begin
        seconds = clock.now() - since
        self._last, self._epoch = clock.now(), epoch + 1
        switched = self._synchronous_from is not None and epoch >= self._synchronous_from
        if self.epochs_ahead is not None and not switched:
            pulls = [one for one in servers if isinstance(one, ParameterServerMetrics)]
            self.epochs_ahead += any(one.pulls > one.pulls_held for one in pulls)
        return PipelineEpoch(epoch, loss, seconds, newest.params, newest.opt_state, newest.state, servers)

    @abstractmethod
    def _finish(self, epoch: int) -> tuple[float, Version, list[ServerMetrics]]:
        """Lets an epoch begin, and waits until all intervals have finished it.

        Returns:
            Its loss, the newest version, and what each server did in the epoch.
        """

    @abstractmethod
    def drain(self) -> int:
        """Lets no interval start an epoch that none has started yet; gives that epoch, before which all will stand."""

    def synchronise(self) -> int:
        """Goes on synchronously, with one update per epoch, from the epoch on that is returned."""
        self._synchronous_from = self._synchronise()
        return self._synchronous_from

    @abstractmethod
    def _synchronise(self) -> int:
        """See `synchronise`."""

    @abstractmethod
    def save(self) -> Saved | None:
        """What the next run needs to go on bit for bit (in virtual time); None while intervals are amid their epochs.

        Parts that are yet to be written have to be before the next epoch is run.
        """

    def check_checkpoints(self, place: str) -> None:  # noqa: B027
        """Passes where all who write checkpoints see this place (`open_storage`); to be asked before training.

        Raises:
            ConfigError: one does not.
            OSError: the place cannot be written to.
        """

    @property
    def losses(self) -> Sequence[Loss]:
        """Servers that were lost while it ran, and replaced; there are none in one process."""
        return ()

    @abstractmethod
    def _counted(self) -> Counters:
        """How much all servers have done."""

    def _record(
        self, counted: Counters, *, version: int, synchronous: bool, controllers: list[Any], servers: dict[str, Any]
    ) -> dict[str, Any]:
        """The record of `Saved`."""
        return {
            "version": version,
            "clock": self.seconds,
            "synchronous": synchronous,
            "counters": dataclasses.asdict(counted),
            "controllers": controllers,
            "servers": servers,
            "losses": [dataclasses.asdict(loss) for loss in self.losses],
            "epochs_ahead": self.epochs_ahead,
        }

    def counters(self) -> dict[str, float | int]:
        """How much the run has done: `Counters`, and in virtual time its seconds."""
        found: dict[str, float | int] = dict(self._counted().to_dict())
        if self._clock.kind == "virtual":
            found["virtual_seconds"] = self.seconds
        return found

    def rows_by_lag(self) -> dict[str, int]:
        """How stale the rows were that intervals have read: `Counters.rows_by_lag`, in order."""
        found = self._counted().rows_by_lag
        return {lag: found[lag] for lag in sorted(found, key=int)}

    @property
    def seconds(self) -> float:
        """Since the run began, on its clock, including those of earlier processes of this run."""
        return self._seconds_before + self._clock.now()

    @property
    def calls(self) -> Calls:
        """Of functions, so far."""
        return self._counted().calls

    def bill(self) -> Bill | None:
        """What the run has cost so far, by the prices of its cluster; None where it costs nothing."""
        if self.prices is None:
            return None
        return Bill.of(
            self.prices,
            seconds=self.seconds,
            graph_servers=self._config.servers,
            parameter_servers=self._config.parameter_servers,
            calls=self.calls,
        )

    @abstractmethod
    def close(self) -> None:
        """Ends all coroutines, threads, workers and hosts. A second call does nothing."""


@final
class InlineRun(PipelineRun):
    """All of them in this process.

    Between calls of `run_epoch` all coroutines stand still, those of an asynchronous run in the middle of later epochs.

    Args:
        hosts: of the graph servers, in order.
        parameters: the parameter servers.
        progress: what has been done, and what may be.
        recorder: what was counted.
        cleanup: what is closed with the run.
        others: as of `PipelineRun`.
    """

    def __init__(
        self,
        *,
        hosts: Sequence[GraphHost],
        parameters: ParameterServers,
        progress: Progress,
        recorder: Recorder,
        cleanup: contextlib.ExitStack,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self._hosts, self._parameters, self._progress, self._recorder = hosts, parameters, progress, recorder
        self._cleanup = cleanup

    def barrier(self, epoch: int) -> None:
        """See `PipelineRun`."""
        self._progress.hold(epoch)

    def _finish(self, epoch: int) -> tuple[float, Version, list[ServerMetrics]]:
        self._progress.open(epoch)
        loss = self._clock.run(self._progress.finished(epoch))
        graph = [host.server.metrics(epoch) for host in self._hosts]
        return loss, self._parameters.newest(), [*graph, *self._parameters.metrics(epoch)]

    def drain(self) -> int:
        """See `PipelineRun`."""
        return self._progress.drain()

    def _synchronise(self) -> int:
        """See `PipelineRun`."""
        return self._progress.synchronise(self._parameters.synchronise)

    def save(self) -> Saved | None:
        """See `PipelineRun`."""
        ledger = self._progress.ledger
        if ledger.standing is None or not self._parameters.settled:
            return None
        synchronous = ledger.allowance.synchronous(ledger.min_epoch)
        drain_calls(self._clock, self._hosts)
        servers = [host.server for host in self._hosts]
        newest = self._parameters.newest()
        record = self._record(
            self._counted(),
            version=newest.version,
            synchronous=ledger.switched and not self._config.synchronous,
            controllers=[save_controller(server) for server in servers],
            servers={
                "graph": [host.save_counts(ledger.standing) for host in self._hosts],
                "parameter": self._parameters.save_counts(ledger.standing),
            },
        )
        # Synchronous epochs read nothing that they have not written.
        arrays = {} if synchronous else save_buffers(servers) | save_known(newest)
        self._parameters.forget()  # as the run does that goes on from what is saved
        return Saved(arrays, record)

    def _counted(self) -> Counters:
        counters = self._recorder.counters
        return dataclasses.replace(
            counters,
            relaunches=counters.relaunches + sum(host.server.controller.relaunched for host in self._hosts),
        )

    def close(self) -> None:
        """See `PipelineRun`."""
        self._cleanup.close()


def drain_calls(clock: Clock, hosts: Sequence[GraphHost]) -> None:
    """On the virtual clock, waits for late calls: they hold slots, which a run that goes on from here would not know."""
    if clock.kind == "virtual":
        for host in hosts:
            clock.run(host.server.controller.drain())
