"""A run on hosts in separate processes: the driver starts them, sets their horizon, and collects results."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, final

import numpy as np

from dorylax.clock import Clock
from dorylax.metrics.evaluation import Evaluated
from dorylax.pipeline.hosts.coordinator import Coordinator
from dorylax.pipeline.hosts.launcher import Launcher
from dorylax.pipeline.hosts.messages import LEDGER, EpochReport, Evaluate
from dorylax.pipeline.hosts.spec import RunSpec, spread
from dorylax.pipeline.recorder import Counters, Trace
from dorylax.pipeline.run import PipelineRun
from dorylax.pipeline.saved import InitialState, Saved, part_name
from dorylax.pipeline.timeline import Span
from dorylax.pipeline.transport.base import Address, HostTransport
from dorylax.program.model.base import Tree
from dorylax.settings.errors import ConfigError
from dorylax.store.arrays import Part
from dorylax.store.base import StorageError
from dorylax.store.checkpoint import trial_name
from dorylax.store.places import open_storage
from dorylax.store.servers import Loss, ServerMetrics, from_dict

T = TypeVar("T")

_LOG = logging.getLogger(__name__)


@final
class HostsRun(PipelineRun):
    """See `PipelineRun`. Hosts continue between calls of `run_epoch` up to their horizon.

    Args:
        spec: Settings shared by all hosts.
        start: Initial state of training.
        launcher: Starts the hosts.
        make_transport: Creates the transport to hosts, on the loop of the clock.
        trace: Called with the spans of each epoch's tasks.
        cleanup: Resources closed with the run, which takes ownership.
        others: Further arguments of `PipelineRun`.

    Raises:
        HostError: A host could not be started.
    """

    def __init__(
        self,
        spec: RunSpec,
        start: InitialState,
        launcher: Launcher,
        *,
        clock: Clock,
        make_transport: Callable[[], HostTransport],
        trace: Trace | None,
        cleanup: contextlib.ExitStack,
        **others: Any,
    ) -> None:
        super().__init__(clock=clock, begun=0.0, seconds_before=0.0, saved=start.saved, **others)  # set by `_start`
        self._trace, self._cleanup = trace, cleanup
        config = spec.config
        self._home = tuple(spread(config.servers, config.parameter_servers, config.num_hosts))
        self._evaluations, self._saves = itertools.count(), itertools.count(1)
        try:
            clock.run(self._start(spec, start, launcher, make_transport))
        except BaseException:
            cleanup.close()
            raise

    async def _start(
        self, spec: RunSpec, start: InitialState, launcher: Launcher, make_transport: Callable[[], HostTransport]
    ) -> None:
        transport = make_transport()
        self._cleanup.callback(transport.close)
        self._hosts = Coordinator(
            spec, self._home, start, launcher, clock=self._clock, transport=transport, on_loss=self._on_loss
        )
        self._cleanup.callback(self._hosts.close)
        await self._hosts.begin()
        before = 0.0 if start.saved is None else float(start.saved.record["clock"])
        self._seconds_before = before - self._hosts.begun

    def barrier(self, epoch: int) -> None:
        """See `PipelineRun`. Hosts receive it with the next epoch."""
        self._hosts.held[epoch] = -1

    def _finish(self, epoch: int) -> tuple[float, tuple[Tree, Tree, Tree], list[ServerMetrics]]:
        self._run(self._hosts.rebalance)
        with self._hosts.training():
            worked = self._run(lambda: self._train(epoch))
        run_state = self._hosts.run_state
        assert run_state is not None
        self._hosts.held = {held: told for held, told in self._hosts.held.items() if held > epoch}
        servers = []
        for address, found in worked.items():
            servers.append(from_dict(found.metrics))
            if self._trace is not None:
                later = self._hosts.clocks[address].offset + self._seconds_before
                for span in json.loads(found.spans):
                    self._trace(Span(*span).later(later))
        return self._hosts.finished[epoch], (run_state.params, run_state.opt_state, run_state.state), servers

    async def _train(self, epoch: int) -> dict[Address, EpochReport]:
        hosts = self._hosts
        await hosts.train(epoch)
        found = await asyncio.gather(*(self._worked(address, epoch) for address in hosts.members.all))
        return dict(zip(hosts.members.all, found, strict=True))

    def drain(self) -> int:
        """See `PipelineRun`."""
        epoch = int(self._run(lambda: self._hosts.ask(LEDGER, "drain")))
        self._hosts.held[epoch] = self._hosts.generation
        return epoch

    def _synchronise(self) -> int:
        """See `PipelineRun`."""
        epoch = int(self._run(lambda: self._hosts.ask(LEDGER, "synchronise")))
        self._hosts.has_synchronised(epoch)
        return epoch

    def save(self) -> Saved | None:
        """See `PipelineRun`."""
        return self._run(self._saved)

    async def _saved(self) -> Saved | None:
        hosts, members = self._hosts, self._hosts.members
        epoch, synchronous, switched = await hosts.ask(LEDGER, "common epoch")
        if epoch is None:
            return None
        rest = await hosts.ask_all(members.parameters, "rest")
        if not all(settled for settled, _ in rest) or len({version for _, version in rest}) > 1:
            return None
        number = next(self._saves)
        saved = await hosts.ask_all(members.graph, "save", epoch)
        known = await hosts.ask_all(members.parameters, "save", (number, epoch))
        record = self._record(
            await self._all_counted(),
            version=rest[0][1],
            synchronous=switched and not self._config.synchronous,
            controllers=[controller for controller, _ in saved],
            servers={"graph": [counts for _, counts in saved], "parameter": [counts for _, counts in known]},
        )
        hosts.has_saved()
        if synchronous:
            return Saved({}, record)
        generation = hosts.generation
        return Saved(known[0][0], record, lambda place: self._write_parts(number, place, generation))

    def check_checkpoints(self, place: str) -> None:
        """See `PipelineRun`."""
        if self._config.synchronous:  # their hosts write no files
            return
        name, content = trial_name(), secrets.token_hex(8)
        with contextlib.closing(open_storage(place)) as storage:
            storage.put(name, content.encode())
            try:
                members = self._hosts.members.graph
                found = self._run(lambda: self._hosts.ask_all(members, "sees", (place, name)))
            finally:
                storage.delete(name)
        for server, seen in enumerate(found):
            if seen != content:
                raise ConfigError.of(
                    "train.checkpoints",
                    f"must be a place that all hosts see: graph server {server} does not find what was written to {place} "
                    f"({seen}); set train.checkpoints=s3://bucket/prefix, or a path that all of them share",
                )

    def _write_parts(self, number: int, place: str, generation: int) -> dict[str, Part]:
        """Let every graph server write its buffers, which do not change; return nothing if a server was lost meanwhile."""
        parts = {}
        members = self._hosts.members.graph
        for server, found in enumerate(self._run(lambda: self._hosts.ask_all(members, "write", (number, place)))):
            if not isinstance(found, Part):
                raise StorageError(f"graph server {server}: {found}")
            parts[part_name(server)] = found
        return parts if generation == self._hosts.generation else {}

    def _counted(self) -> Counters:
        return self._run(self._all_counted)

    async def _all_counted(self) -> Counters:
        total = Counters()
        total.add(self._hosts.before)
        for report in await self._hosts.ask_all(self._hosts.members.all, "report"):
            total.add(Counters.of(report))
        return total

    def evaluate(self, params: Tree, state: Tree) -> Evaluated:
        """Evaluate a version on all graph servers, and return its reported sums (`RunSpec.sums`).

        Args:
            params: Parameters of the model.
            state: Other state of the model.
        """
        return Evaluated.of(self._evaluated(params, state, outputs=False))

    def outputs(self, params: Tree, state: Tree) -> list[np.ndarray]:
        """Return the leaves of the model's output, in the order of the data set's rows; arguments as for `evaluate`."""
        found = self._evaluated(params, state, outputs=True)
        place = np.argsort(np.concatenate([rows for rows, _ in found]), kind="stable")
        leaves = zip(*(leaves for _, leaves in found), strict=True)
        return [parts[0] if not parts[0].ndim else np.concatenate(parts)[place] for parts in leaves]

    def _evaluated(self, params: Tree, state: Tree, *, outputs: bool) -> list[Any]:
        def ask() -> Coroutine[Any, Any, list[Any]]:
            question = Evaluate(next(self._evaluations), params, state, outputs=outputs)
            return self._hosts.ask_all(self._hosts.members.graph, "evaluate", question)

        return self._run(ask)

    @property
    def losses(self) -> Sequence[Loss]:
        """See `PipelineRun`."""
        return self._hosts.losses

    def _on_loss(self, loss: Loss) -> None:
        again = f"epoch {loss.epoch} is run again" if loss.repeats else f"it goes on with epoch {loss.epoch}"
        if self._trace is not None:
            graph = [int(server.rpartition(" ")[2]) for server in loss.servers if server.startswith("graph")]
            end = self.seconds
            begin = end - loss.recovery_seconds
            name = f"lost: {', '.join(loss.servers)}"
            self._trace(Span(name, "recovery", min(graph, default=0), -1, loss.epoch, begin, end))
        _LOG.warning("%s: back within %.1f s, %s", "; ".join(loss.causes), loss.recovery_seconds, again)

    def close(self) -> None:
        """See `PipelineRun`."""
        self._cleanup.close()

    def _run(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._clock.run(self._hosts.lasting(ask))

    async def _worked(self, address: Address, epoch: int) -> EpochReport:
        asked = self._clock.now()
        worked = await self._hosts.ask(address, "worked", epoch)
        assert isinstance(worked, EpochReport)
        self._hosts.has_worked(address, worked, asked)
        return worked
