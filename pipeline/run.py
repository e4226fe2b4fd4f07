"""A run of a pipeline: epoch after epoch, with what may be asked between two of them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import final

from dorylax.clock import Clock
from dorylax.cost import Bill, Cluster
from dorylax.pipeline.config import PipelineConfig
from dorylax.pipeline.host import GraphHost
from dorylax.pipeline.parameters import ParameterServers
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.saved import Saved, save_buffers, save_controller, save_known
from dorylax.program.model.base import Tree


@final
@dataclasses.dataclass(frozen=True, eq=False)
class PipelineEpoch:
    """An epoch that every interval has finished.

    Attributes:
        epoch: its number.
        loss: Σ weight · loss over all training vertices, each interval with the weights that it had pulled.
        seconds: of the clock, since the epoch before was finished.
        params, opt_state, state: the newest version of the first parameter server; never written to.
    """

    epoch: int
    loss: float
    seconds: float
    params: Tree
    opt_state: Tree
    state: Tree


@final
class PipelineRun:
    """Servers, parameter servers and tensor workers of this process, training.

    Between calls of `run_epoch` all coroutines stand still, those of an asynchronous run in the middle of later epochs.

    Args:
        config: how it is run.
        clock: where time comes from.
        hosts: of the graph servers, in order.
        parameters: the parameter servers.
        progress: what has been done, and what may be.
        recorder: what was counted.
        prices: what the run is billed as; None where it costs nothing.
        epoch: the first that is trained.
        begun: the clock's seconds when it began: 0 if the time for what is computed once is included.
        seconds_before: spent by earlier processes of this run, less what the clock shows already.
        cleanup: what is closed with the run.

    Attributes:
        prices: as given.
    """

    def __init__(
        self,
        *,
        config: PipelineConfig,
        clock: Clock,
        hosts: Sequence[GraphHost],
        parameters: ParameterServers,
        progress: Progress,
        recorder: Recorder,
        prices: Cluster | None,
        epoch: int,
        begun: float,
        seconds_before: float,
        cleanup: contextlib.ExitStack,
    ) -> None:
        self.prices = prices
        self._config, self._clock, self._hosts = config, clock, hosts
        self._parameters, self._progress, self._recorder = parameters, progress, recorder
        self._epoch, self._last, self._seconds_before = epoch, begun, seconds_before
        self._cleanup = cleanup

    def barrier(self, epoch: int) -> None:
        """Lets no interval start this epoch before all have finished the one before: where a checkpoint is due, at the end.

        Args:
            epoch: that no interval has started.
        """
        self._progress.hold(epoch)

    def run_epoch(self) -> PipelineEpoch:
        """Trains until the slowest interval has finished the next epoch.

        Raises:
            TaskFailedError: a task failed too often.
        """
        clock, epoch, ledger = self._clock, self._epoch, self._progress.ledger
        if ledger.holds(epoch):  # until now the run could be saved there
            self._progress.release(epoch)
        if ledger.allowance.synchronous(epoch + 1) and not ledger.holds(epoch + 1):
            self.barrier(epoch + 1)  # else intervals would begin it now, beside what the caller does between epochs
        begin = clock.now()
        try:
            loss = clock.run(self._progress.finished(epoch))
        except BaseException:
            self.close()  # an interval is gone: nobody could ever finish the epoch
            raise
        since = self._last if clock.kind == "virtual" else begin
        seconds = clock.now() - since
        self._last, self._epoch = clock.now(), epoch + 1
        newest = self._parameters.newest()
        return PipelineEpoch(epoch, loss, seconds, newest.params, newest.opt_state, newest.state)

    def drain(self) -> int:
        """Lets no interval start an epoch that none has started yet; gives that epoch, before which all will stand."""
        return self._progress.drain()

    def synchronise(self) -> int:
        """Goes on synchronously, with one update per epoch, from the epoch on that is returned."""
        return self._progress.synchronise(self._parameters.synchronise)

    def save(self) -> Saved | None:
        """What the next run needs to go on bit for bit (in virtual time); None while intervals are amid their epochs."""
        ledger = self._progress.ledger
        if ledger.standing is None or not self._parameters.settled:
            return None
        synchronous = ledger.allowance.synchronous(ledger.min_epoch)
        drain_calls(self._clock, self._hosts)
        servers = [host.server for host in self._hosts]
        done = self.counters()
        record = {
            "version": self._parameters.newest().version,
            "clock": self.seconds,
            "synchronous": ledger.switched and not self._config.synchronous,
            "counters": dataclasses.asdict(self._recorder.counters)
            | {name: done[name] for name in ("relaunches", "pulls_held")},
            "controllers": [save_controller(server) for server in servers],
        }
        # Synchronous epochs read nothing that they have not written.
        arrays = {} if synchronous else save_buffers(servers) | save_known(self._parameters.newest())
        self._parameters.forget()  # as the run does that goes on from what is saved
        return Saved(arrays, record)

    def counters(self) -> dict[str, float | int]:
        """How much the run has done: `Counters`, and in virtual time its seconds."""
        counters = self._recorder.counters
        found: dict[str, float | int] = dict(counters.to_dict())
        found["relaunches"] = counters.relaunches + sum(host.server.controller.relaunched for host in self._hosts)
        found["pulls_held"] = counters.pulls_held + self._parameters.pulls_held
        if self._clock.kind == "virtual":
            found["virtual_seconds"] = self.seconds
        return found

    def rows_by_lag(self) -> dict[str, int]:
        """How stale the rows were that intervals have read: `Counters.rows_by_lag`, in order."""
        found = self._recorder.counters.rows_by_lag
        return {lag: found[lag] for lag in sorted(found, key=int)}

    @property
    def seconds(self) -> float:
        """Since the run began, on its clock, including those of earlier processes of this run."""
        return self._seconds_before + self._clock.now()

    def bill(self) -> Bill | None:
        """What the run has cost so far, by the prices of its cluster; None where it costs nothing."""
        if self.prices is None:
            return None
        return Bill.of(
            self.prices,
            seconds=self.seconds,
            graph_servers=self._config.servers,
            parameter_servers=self._config.parameter_servers,
            calls=self._recorder.counters.calls,
        )

    def close(self) -> None:
        """Ends all coroutines, threads and workers. A second call does nothing."""
        self._cleanup.close()


def drain_calls(clock: Clock, hosts: Sequence[GraphHost]) -> None:
    """On the virtual clock, waits for late calls: they hold slots, which a run that goes on from here would not know."""
    if clock.kind == "virtual":
        for host in hosts:
            clock.run(host.server.controller.drain())
