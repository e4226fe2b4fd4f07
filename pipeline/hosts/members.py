"""The servers in a host's process: graph servers with their intervals, and parameter servers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, final

import numpy as np

from dorylax.clock import Clock
from dorylax.machine import cores
from dorylax.pipeline.asynchrony import Asynchrony
from dorylax.pipeline.context import HostContext
from dorylax.pipeline.counters import Counters
from dorylax.pipeline.driver import Driver
from dorylax.pipeline.evaluation import EvaluationHost
from dorylax.pipeline.gate import Gate
from dorylax.pipeline.hosts.checkpoint_parts import read_buffers, seen, write_buffers
from dorylax.pipeline.hosts.messages import (
    Assembly,
    Beginning,
    Evaluate,
    News,
    Report,
    Standing,
    Told,
    Weights,
    Worked,
)
from dorylax.pipeline.hosts.news import LEDGER, Listener, Reporter
from dorylax.pipeline.hosts.spec import MemberSpec, RunSpec
from dorylax.pipeline.interval_data import MASKS, ROWS, row_name, stored_values
from dorylax.pipeline.parameters import ParameterServers
from dorylax.pipeline.parameters.records import Applied
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.resources import Resources
from dorylax.pipeline.saved import Saved, restore_buffers, restore_controller, save_controller, save_known
from dorylax.pipeline.server_counts import EpochCounts
from dorylax.pipeline.setup import Beginnings, graph_host, parameter_servers, prices_for
from dorylax.pipeline.stages import StageSizes
from dorylax.pipeline.staleness import Allowance, Ledger
from dorylax.pipeline.tensor_calls import make_backend
from dorylax.pipeline.timeline import Span
from dorylax.pipeline.transport.base import Address, HostTransport
from dorylax.pipeline.transport.window import Window
from dorylax.store.servers import ServerMetrics, to_dict

T = TypeVar("T")


def host_address(role: str, index: int, servers: int) -> Address:
    """Return the address of a server for the driver: graph servers first, then parameter servers."""
    return Address("host", index if role == "graph" else servers + index)


class Member(ABC):
    """Base class of servers in hosts. Created on the loop of its clock.

    Args:
        spec: Kind and number of the server.
        run: Settings shared by all hosts.
        assembly: Servers of the generation.
        clock: Clock of the generation.
        transport: Transport to the other servers.

    Attributes:
        address: Address for the driver.
        built: Whether the server accepts requests other than "build".
    """

    def __init__(
        self, spec: MemberSpec, run: RunSpec, assembly: Assembly, clock: Clock, transport: HostTransport
    ) -> None:
        config = run.config
        self._spec, self._run, self._clock, self._transport = spec, run, clock, transport
        self._epoch, self._fills_ghosts = assembly.epoch, assembly.fills_ghosts
        self._prepared = run.prepared
        self.address = host_address(spec.role, spec.number, config.servers)
        self.built = False
        self._cleanup = contextlib.ExitStack()
        self._spans: list[Span] = []
        self._worked: tuple[Any, ...] = (-1,)
        labels = {step.index: step.label for step in self._prepared.plan.steps}
        self._recorder = Recorder(labels, self._spans.append if run.traces else None)
        self._context = HostContext(
            plan=self._prepared.plan,
            sizes=StageSizes(*run.sizes),
            edge_chunk=config.edge_chunk,
            homes=run.shards.homes,
            parameter_servers=config.parameter_servers,
            one_at_a_time=config.mode == "no-pipe",
            copies_rows=not config.synchronous,
            asynchrony=Asynchrony.of(config),
            transport=transport,
            clock=clock,
            times=None,
            window=Window(),
        )
        self._answered = 0
        self._answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        transport.register(self.address, self)

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        """See `RequestHandler`."""
        match kind:
            case "build":
                self._build()
                self.built = True
                return None
            case "begin":
                return self._begin(payload)
            case "report":
                return self.report()
            case "traffic":
                return {kind: list(sent) for kind, sent in self._transport.sent.items()}
            case "clock":
                return self._clock.now()
            case "worked":
                if payload > self._worked[0]:  # otherwise a repeat, because the reply was lost
                    spans, self._spans[:] = list(self._spans), []
                    self._worked = payload, json.dumps(spans), to_dict(self._metrics(payload)), self.report()
                return Worked(self._clock.now(), *self._worked[1:])
        return await self._handle(kind, payload, sender)

    def _forget(self, book: EpochCounts[Any], counts: Mapping[str, Any]) -> None:
        """Drop counters and spans of the setup, which an earlier process of the run has reported."""
        self._spans.clear()
        self._recorder.counters = Counters()
        book.restore(self._epoch, counts)

    def _driver(self, constants: Sequence[Any]) -> Driver:
        values = dict(zip(self._prepared.driver.constants, constants, strict=True))
        streams = self._run.parts.streams
        return Driver(self._prepared.plan, self._prepared.driver, values, streams=streams, seed=self._run.seed)

    @abstractmethod
    def _build(self) -> None:
        """Create the receivers of other servers' messages."""

    @abstractmethod
    def _begin(self, beginning: Beginning) -> None:
        """Start training."""

    @abstractmethod
    def _metrics(self, epoch: int) -> ServerMetrics:
        """Return the server's metrics of a finished epoch."""

    @abstractmethod
    def report(self) -> Report:
        """Return the counters."""

    async def _once(self, number: int, make: Callable[[], Awaitable[T]]) -> T:
        """Run a numbered request once, and return its result also for late repeats."""
        if number > self._answered:
            self._answered, self._answer = number, asyncio.ensure_future(make())
        found: T = await asyncio.shield(self._answer)
        return found

    @abstractmethod
    async def _handle(self, kind: str, payload: Any, sender: Address) -> Any:
        """Handle the requests of this kind of server."""

    def close(self) -> None:
        """Close all resources."""
        self._cleanup.close()


@final
class GraphMember(Member):
    """A graph server."""

    def _build(self) -> None:
        config, data = self._run.config, self._run.shards
        shard, rows = data.shard(self._spec.number)
        resources = Resources.of_host(config, cores())
        functions = self._prepared.functions(self._context.sizes, of_workers=config.runs_stages)
        self._backend = make_backend(
            config,
            resources,
            self._prepared,
            functions=functions,
            clock=self._clock,
            times=None,
        )
        self._cleanup.callback(self._backend.close)
        self._reporter = Reporter(self.address, self._transport, self._clock.spawn)
        # Closed until the ledger's first allowance.
        self._gate = Gate(Allowance(self._epoch - 1, self._epoch, 0, None, None), self._reporter)
        self._told = 0
        self._files = self._clock.workers("files", 1)
        num_training = data.summary.masks[0]
        self._host = graph_host(
            config,
            self._prepared,
            self._context,
            shard,
            stored_values(self._prepared, rows, shard, num_training),
            resources=resources,
            functions=functions,
            backend=self._backend,
            gate=self._gate,
            recorder=self._recorder,
            report=self._reporter,
            prices=prices_for(config),
        )
        self._server = self._host.server
        self._rows = rows[ROWS]
        self._evaluation: EvaluationHost | None = None
        if self._run.sums is not None:
            prepared = self._run.evaluation
            self._evaluation = EvaluationHost(
                self._context,
                prepared,
                shard,
                stored_values(prepared, rows, shard, num_training),
                labels=rows[row_name("labels", "labels")],
                masks=rows[MASKS],
                sums=self._run.sums,
                workers=self._server.workers,
                controller=self._server.controller,
            )

    async def _handle(self, kind: str, payload: Any, sender: Address) -> Any:
        match kind:
            case "prepare":
                await self._backend.warm()
                evaluation = self._evaluation
                await asyncio.gather(*self._host.prepare())
                if evaluation is not None:  # in turn, so that neighbours' features are held once
                    await asyncio.gather(*evaluation.prepare())
                    evaluation.begin(self._run.parts.streams, self._run.seed)
                free = self._host.free_values()
                return [free[var] for var in self._prepared.driver.constants]
            case "allow":
                self._allow(payload)
            case "stop":
                self._gate.allow(self._gate.allowance._replace(horizon=self._epoch - 1))
                await self._reporter.flush()
            case "evaluate":
                assert isinstance(payload, Evaluate)
                assert self._evaluation is not None
                version = payload.params, payload.state, payload.number
                if payload.outputs:
                    return self._rows, await self._evaluation.outputs(*version)
                return await self._evaluation.evaluate(*version)
            case "save":
                return save_controller(self._server), self._host.save_counts(payload)
            case "sees":
                return await self._aside(lambda: seen(*payload))
            case "write":
                number, place = payload
                return await self._once(number, lambda: self._aside(lambda: write_buffers(self._server, place)))
            case _:
                raise ValueError(f"graph server {self._spec.number} cannot answer {kind!r} from {sender}")
        return None

    async def _aside(self, work: Callable[[], T]) -> T:
        """Run file operations in a thread, so that the loop stays free."""
        return (await self._files.run(work, seconds=0.0, order=(self._spec.number,))).value

    def _allow(self, told: Told) -> None:
        if told.number > self._told:
            self._told = told.number
            self._gate.allow(told.allowance)

    def _begin(self, beginning: Beginning) -> None:
        if beginning.record is not None:
            self._forget(self._recorder.graph[self._spec.number], beginning.counts)
            arrays = beginning.arrays if beginning.part is None else read_buffers(beginning.part)
            restore_buffers(Saved(arrays, {}), [self._server])
            restore_controller(self._server, beginning.record)
        self._host.begin(self._driver(beginning.constants), self._epoch)

    def report(self) -> Report:
        """See `Member`."""
        return Report(dataclasses.asdict(self._recorder.counters), self._server.controller.relaunched)

    def _metrics(self, epoch: int) -> ServerMetrics:
        return self._server.metrics(epoch)


@final
class ParameterMember(Member):
    """A parameter server. The first one also holds the ledger."""

    def _build(self) -> None:
        """Do nothing, because the server needs weights first."""

    def _begin(self, beginning: Beginning) -> None:
        config, epoch, standing = self._run.config, self._epoch, beginning.standing
        saved = None if beginning.record is None else Saved(beginning.arrays, beginning.record)
        if saved is not None:
            self._forget(self._recorder.parameters[self._spec.number], beginning.counts)
        begins = Beginnings(beginning.params, beginning.opt_state, beginning.state, saved, epoch)
        if standing is not None:
            saved = Saved(standing.known, {"version": standing.version})
            begins = Beginnings(standing.params, standing.opt_state, standing.state, saved, epoch, standing.due)
        progress = None
        if self._spec.number == 0:
            ledger = Ledger(
                len(self._run.shards.homes),
                config.staleness or 0,
                first=epoch,
                first_synchronous=self._fills_ghosts,
                synchronous=config.synchronous,
                synchronous_from=None if standing is None else standing.synchronous_from,
            )
            progress = Progress(ledger)
        self._parameters = parameter_servers(
            config,
            self._prepared,
            self._run.optimizer,
            self._driver(beginning.constants),
            begins,
            context=self._context,
            recorder=self._recorder,
            on_applied=_nobody if progress is None else progress.applied,
            here=[self._spec.number],
        )
        if progress is not None:
            hosts = [host_address("graph", server, config.servers) for server in range(config.servers)]
            listener = Listener(progress, hosts, self._transport, self._clock.spawn)
            self._transport.register(LEDGER, LedgerHandler(progress, listener, self._parameters))
            if saved is not None and saved.record.get("synchronous"):
                progress.synchronise(self._parameters.synchronise)
            if standing is not None and standing.synchronous_from is not None and not config.synchronous:
                self._parameters.synchronise(standing.synchronous_from)

    async def _handle(self, kind: str, payload: Any, sender: Address) -> Any:
        match kind:
            case "rest":
                return self._parameters.settled, self._parameters.newest().version
            case "save":
                number, standing = payload
                return await self._once(number, lambda: self._save(standing))
        raise ValueError(f"parameter server {self._spec.number} cannot answer {kind!r} from {sender}")

    async def _save(self, standing: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        known = save_known(self._parameters.newest())
        self._parameters.forget()  # as in a run that resumes from this state
        return known, self._parameters.save_counts(standing)[0]

    def report(self) -> Report:
        """See `Member`."""
        return Report(dataclasses.asdict(self._recorder.counters), 0)

    def _metrics(self, epoch: int) -> ServerMetrics:
        return self._parameters.metrics(epoch)[0]


@final
class LedgerHandler:
    """Handles reports of hosts to the ledger and the driver's requests to it.

    Args:
        progress: The ledger.
        listener: Receiver of the hosts' reports.
        parameters: Parameter servers of this process, including the first.
    """

    def __init__(self, progress: Progress, listener: Listener, parameters: ParameterServers) -> None:
        self._progress, self._listener, self._parameters = progress, listener, parameters

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        """See `RequestHandler`."""
        progress = self._progress
        match kind:
            case "news":
                assert isinstance(payload, News)
                self._listener.hear(payload, sender)
                return None
            case "run":
                epoch, holds = payload
                for held in holds:
                    progress.hold(held)
                return await self._run(epoch)
            case "standing":
                ledger = progress.ledger
                return ledger.standing, ledger.allowance.synchronous(ledger.min_epoch), ledger.switched
            case "drain":
                async with self._listener.stopped():  # otherwise an interval could be entering the held epoch
                    return progress.drain()
            case "synchronise":
                async with self._listener.stopped():
                    epoch = progress.synchronise(self._parameters.synchronise)
                    if epoch > progress.ledger.newest_started and not progress.ledger.holds(epoch):
                        progress.hold(
                            epoch
                        )  # otherwise hosts could start it before the driver reaches the previous one
                    return epoch
        raise ValueError(f"the ledger cannot answer {kind!r} from {sender}")

    async def _run(self, epoch: int) -> Weights:
        # One epoch beyond the driver's next, so that hosts neither wait for the driver nor run far ahead.
        ledger = self._progress.ledger
        ledger.limit(epoch + ledger.staleness + 1)
        self._progress.open(epoch)
        loss = await self._progress.finished(epoch)
        return Weights(epoch, loss, self._standing())

    def _standing(self) -> Standing:
        newest, ledger = self._parameters.newest(), self._progress.ledger
        return Standing(
            ledger.min_epoch,
            newest.version,
            newest.params,
            newest.opt_state,
            newest.state,
            save_known(newest),
            self._parameters.due(),
            self._progress.unasked(),
            ledger.allowance.synchronous_from,
        )


def _nobody(applied: Applied) -> None:
    """Ignore applied gradients: only the first parameter server reports them."""
