"""Runs of a pipeline: epochs, and requests between two epochs."""

from __future__ import annotations

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

from dorylax.clock import Clock
from dorylax.cost import Bill, Calls, Cluster
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.host import GraphHost
from dorylax.pipeline.member import Member
from dorylax.pipeline.parameters.group import ParameterServers
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.recorder import Counters
from dorylax.pipeline.saved import Saved, save_buffers, save_known
from dorylax.program.model.base import Tree
from dorylax.store.servers import Loss, ParameterServerMetrics, ServerMetrics


@final
@dataclasses.dataclass(frozen=True, eq=False)
class PipelineEpoch:
    """An epoch that every interval has finished.

    Attributes:
        epoch: Number of the epoch.
        loss: Σ weight · loss over all training vertices, where each interval uses the weights it pulled.
        seconds: Clock seconds since the end of the previous epoch.
        params: Parameters in the newest version of the first parameter server; read-only.
        opt_state: State of the optimizer in that version; read-only.
        state: Other state of the model in that version; read-only.
        servers: Metrics of each server in this epoch: graph servers, then parameter servers.
    """

    epoch: int
    loss: float
    seconds: float
    params: Tree
    opt_state: Tree
    state: Tree
    servers: Sequence[ServerMetrics]


class PipelineRun(ABC):
    """A training run with its graph servers, parameter servers and tensor workers.

    Args:
        config: Settings of the pipeline.
        clock: Clock of the run.
        prices: Cluster whose prices apply; None for a free run.
        epoch: First epoch to train.
        begun: Clock seconds at the start; 0 to include the time of the steps before training.
        seconds_before: Seconds of earlier processes of this run, minus the clock's reading.
        saved: State of a resumed run; None for a new run.

    Attributes:
        epochs_ahead: Number of epochs that some interval started with the stability gate open; None without a gate.
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
        """Block this epoch until all intervals have finished the previous one, for a checkpoint or the end of training.

        Args:
            epoch: An epoch that no interval has started.
        """

    def run_epoch(self) -> PipelineEpoch:
        """Train until the slowest interval has finished the next epoch.

        Raises:
            TaskFailedError: A task failed too often.
            HostError: The code of a host in another process failed, or hosts were lost too often.
        """
        clock, epoch = self._clock, self._epoch
        begin = clock.now()
        try:
            loss, trees, servers = self._finish(epoch)
        except BaseException:
            self.close()  # without all intervals, the epoch can never finish
            raise
        since = self._last if clock.kind == "virtual" else begin
        seconds = clock.now() - since
        self._last, self._epoch = clock.now(), epoch + 1
        switched = self._synchronous_from is not None and epoch >= self._synchronous_from
        if self.epochs_ahead is not None and not switched:
            pulls = [one for one in servers if isinstance(one, ParameterServerMetrics)]
            self.epochs_ahead += any(one.pulls > one.pulls_held for one in pulls)
        return PipelineEpoch(epoch, loss, seconds, *trees, servers)

    @abstractmethod
    def _finish(self, epoch: int) -> tuple[float, tuple[Tree, Tree, Tree], list[ServerMetrics]]:
        """Open an epoch, and wait until all intervals have finished it.

        Returns:
            The epoch's loss; the parameters, optimizer state and other state of the newest version; and the metrics of each
            server.
        """

    @abstractmethod
    def drain(self) -> int:
        """Block the first epoch that no interval has started, and return it. All intervals will stop before it."""

    def synchronise(self) -> int:
        """Continue synchronously, with one update per epoch, and return the first synchronous epoch."""
        self._synchronous_from = self._synchronise()
        return self._synchronous_from

    @abstractmethod
    def _synchronise(self) -> int:
        """See `synchronise`."""

    @abstractmethod
    def save(self) -> Saved | None:
        """Return the state for a resumed run, bit for bit in virtual time; None while an interval is inside an epoch.

        Pending checkpoint parts must be written before the next epoch starts.
        """

    def check_checkpoints(self, place: str) -> None:  # noqa: B027
        """Check before training that all processes that write checkpoints can access a storage location (`open_storage`).

        Args:
            place: Storage location of the checkpoints.

        Raises:
            ConfigError: A process cannot access the location.
            OSError: The location is not writable.
        """

    @property
    def losses(self) -> Sequence[Loss]:
        """Servers that were lost and replaced during the run; empty within one process."""
        return ()

    @abstractmethod
    def _counted(self) -> Counters:
        """Return the counters of all servers."""

    def _record(
        self, counted: Counters, *, version: int, synchronous: bool, controllers: list[Any], servers: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the record of `Saved`."""
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
        """Return the run's `Counters`, and its seconds in virtual time."""
        found: dict[str, float | int] = dict(self._counted().to_dict())
        if self._clock.kind == "virtual":
            found["virtual_seconds"] = self.seconds
        return found

    def rows_by_lag(self) -> dict[str, int]:
        """Return the number of rows read for each staleness: `Counters.rows_by_lag` in ascending order."""
        found = self._counted().rows_by_lag
        return {lag: found[lag] for lag in sorted(found, key=int)}

    @property
    def seconds(self) -> float:
        """Clock seconds since the start of the run, including earlier processes of the run."""
        return self._seconds_before + self._clock.now()

    @property
    def calls(self) -> Calls:
        """Function calls of the run so far."""
        return self._counted().calls

    def bill(self) -> Bill | None:
        """Return the cost of the run so far by the prices of its cluster; None for a free run."""
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
        """Stop all coroutines, threads, workers and hosts. A second call does nothing."""


@final
class InlineRun(PipelineRun):
    """A run with all servers in this process.

    Between calls of `run_epoch` all coroutines are paused; in an asynchronous run they may be inside later epochs.

    Args:
        member: All servers.
        parameters: The parameter servers.
        progress: Progress of the intervals, with the ledger.
        cleanup: Resources to close with the run.
        others: Arguments of `PipelineRun`.
    """

    def __init__(
        self,
        member: Member,
        parameters: ParameterServers,
        progress: Progress,
        *,
        cleanup: contextlib.ExitStack,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self._member, self._parameters, self._progress, self._cleanup = member, parameters, progress, cleanup

    def barrier(self, epoch: int) -> None:
        """See `PipelineRun`."""
        self._progress.hold(epoch)

    def _finish(self, epoch: int) -> tuple[float, tuple[Tree, Tree, Tree], list[ServerMetrics]]:
        self._progress.open(epoch)
        loss = self._clock.run(self._progress.finished(epoch))
        newest = self._parameters.newest()
        return loss, (newest.params, newest.opt_state, newest.state), self._member.metrics(epoch)

    def drain(self) -> int:
        """See `PipelineRun`."""
        return self._progress.drain()

    def _synchronise(self) -> int:
        """See `PipelineRun`."""
        return self._progress.synchronise(self._parameters.synchronise)

    def save(self) -> Saved | None:
        """See `PipelineRun`."""
        ledger = self._progress.ledger
        if ledger.common_epoch is None or not self._parameters.settled:
            return None
        synchronous = ledger.allowance.synchronous(ledger.min_epoch)
        drain_calls(self._clock, self._member.hosts)
        graph = self._member.save_graph(ledger.common_epoch)
        newest = self._parameters.newest()
        record = self._record(
            self._counted(),
            version=newest.version,
            synchronous=ledger.switched and not self._config.synchronous,
            controllers=[controller for controller, _ in graph],
            servers={
                "graph": [counts for _, counts in graph],
                "parameter": self._parameters.save_counts(ledger.common_epoch),
            },
        )
        # Synchronous epochs read only rows of the same epoch.
        servers = [host.server for host in self._member.hosts]
        arrays = {} if synchronous else save_buffers(servers) | save_known(newest)
        self._parameters.forget()  # as in a run that resumes from this state
        return Saved(arrays, record)

    def _counted(self) -> Counters:
        return self._member.counted()

    def close(self) -> None:
        """See `PipelineRun`."""
        self._cleanup.close()


def drain_calls(clock: Clock, hosts: Sequence[GraphHost]) -> None:
    """On the virtual clock, wait for late calls, whose occupied slots would be missing from a resumed run."""
    if clock.kind == "virtual":
        for host in hosts:
            clock.run(host.server.controller.drain())
