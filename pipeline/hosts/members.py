"""The servers in a host's process: graph servers with their intervals, and parameter servers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, final

import numpy as np

from dorylax.clock import Clock
from dorylax.machine import cores
from dorylax.pipeline.evaluation import EvaluationHost
from dorylax.pipeline.hosts.messages import (
    LEDGER,
    AllowanceUpdate,
    Assembly,
    EpochReport,
    Evaluate,
    HostState,
    MemberSpec,
    host_address,
)
from dorylax.pipeline.hosts.spec import RunSpec
from dorylax.pipeline.hosts.status import LedgerHandler, Listener, Reporter
from dorylax.pipeline.interval_data import MASKS, ROWS, row_name, stored_values
from dorylax.pipeline.member import Member
from dorylax.pipeline.recorder import Counters, EpochCounts
from dorylax.pipeline.resources import Resources
from dorylax.pipeline.saved import (
    InitialState,
    Saved,
    read_buffers,
    save_known,
    seen,
    write_buffers,
)
from dorylax.pipeline.stages import StageSizes
from dorylax.pipeline.staleness import Allowance, Gate
from dorylax.pipeline.timeline import Span
from dorylax.pipeline.transport.base import Address, HostTransport
from dorylax.pipeline.transport.delivery import Window
from dorylax.store.servers import to_dict

T = TypeVar("T")


class HostMember(Member, ABC):
    """Base class of servers in hosts, which execute messages of the driver. Created on the loop of its clock.

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
        self._spans: list[Span] = []
        super().__init__(
            run,
            run.prepared,
            run.shards.homes,
            StageSizes(*run.sizes),
            clock=clock,
            transport=transport,
            trace=self._spans.append if run.traces else None,
            window=Window(),
        )
        self._spec, self._run, self._clock, self._transport = spec, run, clock, transport
        self._epoch, self._fills_ghosts = assembly.epoch, assembly.fills_ghosts
        self.address = host_address(spec.role, spec.number, run.config.servers)
        self.built = False
        self._cleanup = contextlib.ExitStack()
        self._worked: tuple[Any, ...] = (-1,)
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
                    self._worked = payload, json.dumps(spans), to_dict(*self.metrics(payload)), self.report()
                return EpochReport(self._clock.now(), *self._worked[1:])
        return await self._handle(kind, payload, sender)

    def _forget(self, book: EpochCounts[Any], counts: Mapping[str, Any]) -> None:
        """Drop counters and spans of the setup, which an earlier process of the run has reported."""
        self._spans.clear()
        self.recorder.counters = Counters()
        book.restore(self._epoch, counts)

    def report(self) -> dict[str, Any]:
        """Return the counters."""
        return dataclasses.asdict(self.counted())

    @abstractmethod
    def _build(self) -> None:
        """Create the receivers of other servers' messages."""

    @abstractmethod
    def _begin(self, initial: HostState) -> None:
        """Start training."""

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
class GraphMember(HostMember):
    """A graph server."""

    def _build(self) -> None:
        run, config = self._run, self._run.config
        shard, rows = run.shards.shard(self._spec.number)
        functions = self.prepared.functions(self.context.sizes, of_workers=config.runs_stages)
        self._backend = self.open_backend(Resources.of_host(config, cores()), functions)
        self._cleanup.callback(self._backend.close)
        self._reporter = Reporter(self.address, self._transport, self._clock.spawn)
        # Closed until the ledger's first allowance.
        self._gate = Gate(Allowance(self._epoch - 1, self._epoch, 0, None, None), self._reporter)
        self._newest_update = 0
        self._files = self._clock.workers("files", 1)
        num_training = run.shards.summary.masks[0]
        values = stored_values(self.prepared, rows, shard, num_training)
        self._host = self.serve_graph(shard, values, self._gate, self._reporter)
        self._server = self._host.server
        self._rows = rows[ROWS]
        self._evaluation: EvaluationHost | None = None
        if run.sums is not None:
            self._evaluation = EvaluationHost(
                self._server,
                run.evaluation,
                stored_values(run.evaluation, rows, shard, num_training),
                labels=rows[row_name("labels", "labels")],
                masks=rows[MASKS],
                sums=run.sums,
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
                return self.constants()
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
                return self.save_graph(payload)[0]
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

    def _allow(self, update: AllowanceUpdate) -> None:
        if update.number > self._newest_update:
            self._newest_update = update.number
            self._gate.allow(update.allowance)

    def _begin(self, initial: HostState) -> None:
        if initial.record is not None:
            self._forget(self.recorder.graph[self._spec.number], initial.counts)
            arrays = initial.arrays if initial.part is None else read_buffers(initial.part)
            self.restore(Saved(arrays, {"controllers": [initial.record]}))
        self._host.begin(self.driver(initial.constants), self._epoch)


@final
class ParameterMember(HostMember):
    """A parameter server. The first one also holds the ledger."""

    def _build(self) -> None:
        """Do nothing, because the server needs weights first."""

    def _begin(self, initial: HostState) -> None:
        config, epoch, run_state = self._run.config, self._epoch, initial.run_state
        saved = None if initial.record is None else Saved(initial.arrays, initial.record)
        if saved is not None:
            self._forget(self.recorder.parameters[self._spec.number], initial.counts)
        start = InitialState(initial.params, initial.opt_state, initial.state, saved, epoch)
        if run_state is not None:
            saved = Saved(run_state.known, {"version": run_state.version})
            start = InitialState(run_state.params, run_state.opt_state, run_state.state, saved, epoch, run_state.due)
        synchronous_from = None if run_state is None else run_state.synchronous_from
        progress = None
        if self._spec.number == 0:
            progress = self.ledger(epoch, fills_ghosts=self._fills_ghosts, synchronous_from=synchronous_from)
        driver = self.driver(initial.constants)
        self._servers = self.serve_parameters(driver, start, progress, [self._spec.number])
        if progress is not None:
            hosts = [host_address("graph", server, config.servers) for server in range(config.servers)]
            listener = Listener(progress, hosts, self._transport, self._clock.spawn)
            self._transport.register(LEDGER, LedgerHandler(progress, listener, self._servers))
            if saved is not None and saved.record.get("synchronous"):
                progress.synchronise(self._servers.synchronise)
            if synchronous_from is not None and not config.synchronous:
                self._servers.synchronise(synchronous_from)

    async def _handle(self, kind: str, payload: Any, sender: Address) -> Any:
        match kind:
            case "rest":
                return self._servers.settled, self._servers.newest().version
            case "save":
                number, epoch = payload
                return await self._once(number, lambda: self._save(epoch))
        raise ValueError(f"parameter server {self._spec.number} cannot answer {kind!r} from {sender}")

    async def _save(self, epoch: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        known = save_known(self._servers.newest())
        self._servers.forget()  # as in a run that resumes from this state
        return known, self._servers.save_counts(epoch)[0]
