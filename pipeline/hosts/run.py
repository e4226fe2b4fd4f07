"""A run whose hosts live in processes of their own: the driver starts them, says how far to go, and asks for results."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, final

import numpy as np

from dorylax.clock import Clock
from dorylax.pipeline.counters import Counters
from dorylax.pipeline.evaluation import Evaluated
from dorylax.pipeline.hosts.clocks import RemoteClock
from dorylax.pipeline.hosts.launcher import Launched, Launcher
from dorylax.pipeline.hosts.members import host_address
from dorylax.pipeline.hosts.messages import Beginning, Evaluate, Report, Weights, Worked
from dorylax.pipeline.hosts.news import LEDGER
from dorylax.pipeline.hosts.spec import HostSpec, RunSpec, spread
from dorylax.pipeline.recorder import Trace
from dorylax.pipeline.run import PipelineRun
from dorylax.pipeline.saved import Saved, part_name
from dorylax.pipeline.setup import Beginnings
from dorylax.pipeline.timeline import Span
from dorylax.pipeline.transport.base import Address
from dorylax.pipeline.transport.zeromq import ZeroMqTransport
from dorylax.program.model.base import Tree
from dorylax.runs.checkpoint_places import trial_name
from dorylax.runs.parts import Part
from dorylax.runs.servers import ServerMetrics, from_dict
from dorylax.settings.errors import ConfigError
from dorylax.storage.choose import open_storage
from dorylax.storage.errors import StorageError

T = TypeVar("T")

_DRIVER = Address("driver", 0)
_CLOCK_READINGS = 8  # of each host, at the start


@final
class HostsRun(PipelineRun):
    """See `PipelineRun`. Hosts go on between calls of `run_epoch`, as far as they may.

    Args:
        spec: what all hosts know.
        start: what training begins with.
        launcher: where hosts live.
        trace: called with the spans of tasks, epoch after epoch.
        cleanup: what is closed with the run; taken over.
        others: as of `PipelineRun`.

    Raises:
        HostError: a host could not be started.
    """

    def __init__(
        self,
        spec: RunSpec,
        start: Beginnings,
        launcher: Launcher,
        *,
        clock: Clock,
        trace: Trace | None,
        cleanup: contextlib.ExitStack,
        **others: Any,
    ) -> None:
        super().__init__(clock=clock, begun=0.0, seconds_before=0.0, **others)  # as `_start` finds them
        self._trace, self._cleanup = trace, cleanup
        self._barriers: list[int] = []
        config = spec.config
        hosts = spread(config.servers, config.parameter_servers, config.num_hosts)
        specs = [HostSpec(spec, members) for members in hosts]
        self._graph = [host_address("graph", server, config.servers) for server in range(config.servers)]
        self._parameters = [
            host_address("parameter", server, config.servers) for server in range(config.parameter_servers)
        ]
        self._hosts = [*self._graph, *self._parameters]
        self._evaluations, self._saves = itertools.count(), itertools.count(1)
        self._clocks = {address: RemoteClock() for address in self._hosts}
        self._before = Counters()
        if start.saved is not None:
            self._before.restore(start.saved.record["counters"])
        self._launched: Launched | None = None
        try:
            clock.run(self._start(spec, specs, start, launcher))
        except BaseException:
            cleanup.close()
            raise

    async def _start(self, spec: RunSpec, specs: Sequence[HostSpec], start: Beginnings, launcher: Launcher) -> None:
        self._transport = ZeroMqTransport(
            spec.keys,
            spec.transport,
            host=spec.host,
            folder=spec.sockets,
            codec=spec.codec(),
            spawn=self._clock.spawn,
        )
        self._cleanup.callback(self._transport.close)
        launched = self._launched = await launcher.launch(
            [one.name for one in specs], [one.to_bytes() for one in specs]
        )
        self._cleanup.callback(launched.close)
        peers: dict[Address, str] = {}
        for one, endpoint in zip(specs, launched.endpoints, strict=True):
            for role, index in one.members:
                peers[Address(role, index)] = peers[host_address(role, index, spec.config.servers)] = endpoint
                if role == "graph":
                    peers[Address("evaluation", index)] = endpoint
        peers[LEDGER] = peers[self._parameters[0]]
        self._transport.connect(peers)
        book = [(address.role, address.index, endpoint) for address, endpoint in peers.items()]
        await self._during(self._ask_all(self._hosts, "join", book))
        await self._during(self._read_clocks())
        await self._during(self._ask_all(self._hosts, "build"))
        self._seconds_before = -self._clock.now()  # as in one process: what is compiled is not on the bill
        constants = (await self._during(self._ask_all(self._graph, "prepare")))[0]
        saved = start.saved
        arrays, record = ({}, None) if saved is None else (saved.arrays, saved.record)
        parts = {} if saved is None else saved.parts
        assert isinstance(parts, Mapping)
        if record is not None:
            self._seconds_before = float(record["clock"]) - self._clock.now()
        counts = {} if record is None else record.get("servers", {})
        for server, address in enumerate(self._parameters):
            mine = {name: array for name, array in arrays.items() if name.startswith("parameter servers/")}
            counted = counts["parameter"][server] if counts else {}
            beginning = Beginning(constants, start.params, start.opt_state, start.state, mine, None, record, counted)
            await self._during(self._ask(address, "begin", beginning))
        for server, address in enumerate(self._graph):
            mine = {name: array for name, array in arrays.items() if name.startswith(f"server {server}/")}
            part = parts.get(part_name(server))
            controller = None if record is None else record["controllers"][server]
            counted = counts["graph"][server] if counts else {}
            beginning = Beginning(constants, None, None, None, mine, part, controller, counted)
            await self._during(self._ask(address, "begin", beginning))

    def barrier(self, epoch: int) -> None:
        """See `PipelineRun`. Hosts are told when the next epoch is run."""
        self._barriers.append(epoch)

    def _finish(self, epoch: int) -> tuple[float, Weights, list[ServerMetrics]]:
        barriers, self._barriers = self._barriers, []
        weights = self._run(self._ask(LEDGER, "run", (epoch, barriers)))
        assert isinstance(weights, Weights)
        servers = []
        for address, worked in zip(self._hosts, self._run(self._all_worked(epoch)), strict=True):
            servers.append(from_dict(worked.metrics))
            if self._trace is not None:
                later = self._clocks[address].offset + self._seconds_before
                for span in json.loads(worked.spans):
                    self._trace(Span(*span).later(later))
        return weights.loss, weights, servers

    def drain(self) -> int:
        """See `PipelineRun`."""
        return int(self._run(self._ask(LEDGER, "drain")))

    def synchronise(self) -> int:
        """See `PipelineRun`."""
        return int(self._run(self._ask(LEDGER, "synchronise")))

    def save(self) -> Saved | None:
        """See `PipelineRun`."""
        standing, synchronous, switched = self._run(self._ask(LEDGER, "standing"))
        if standing is None:
            return None
        rest = self._run(self._ask_all(self._parameters, "rest"))
        if not all(settled for settled, _ in rest) or len({version for _, version in rest}) > 1:
            return None
        number = next(self._saves)
        saved = self._run(self._ask_all(self._graph, "save", standing))
        known = self._run(self._ask_all(self._parameters, "save", (number, standing)))
        record = self._record(
            self._counted(),
            version=rest[0][1],
            synchronous=switched and not self._config.synchronous,
            controllers=[controller for controller, _ in saved],
            servers={"graph": [counts for _, counts in saved], "parameter": [counts for _, counts in known]},
        )
        if synchronous:
            return Saved({}, record)
        return Saved(known[0][0], record, _Parts(lambda place: self._write_parts(number, place)))

    def check_checkpoints(self, place: str) -> None:
        """See `PipelineRun`."""
        if self._config.synchronous:  # their hosts write nothing
            return
        name, content = trial_name(), secrets.token_hex(8)
        with contextlib.closing(open_storage(place)) as storage:
            storage.put(name, content.encode())
            try:
                found = self._run(self._ask_all(self._graph, "sees", (place, name)))
            finally:
                storage.delete(name)
        for server, seen in enumerate(found):
            if seen != content:
                raise ConfigError.of(
                    "train.checkpoints",
                    f"must be a place that all hosts see: graph server {server} does not find what was written to {place} "
                    f"({seen}); set train.checkpoints=s3://bucket/prefix, or a path that all of them share",
                )

    def _write_parts(self, number: int, place: str) -> dict[str, Part]:
        """Has every graph server write its buffers, which stand still."""
        parts = {}
        for server, found in enumerate(self._run(self._ask_all(self._graph, "write", (number, place)))):
            if not isinstance(found, Part):
                raise StorageError(f"graph server {server}: {found}")
            parts[part_name(server)] = found
        return parts

    def _counted(self) -> Counters:
        total = Counters()
        total.add(self._before)
        for report in self._run(self._ask_all(self._hosts, "report")):
            assert isinstance(report, Report)
            found = Counters()
            found.restore(report.counters)
            found.relaunches += report.relaunched
            total.add(found)
        return total

    def evaluate(self, params: Tree, state: Tree) -> Evaluated:
        """What is reported of a version (`RunSpec.sums`), by all graph servers where their rows lie.

        Args:
            params: parameters.
            state: the model's other state.
        """
        question = Evaluate(next(self._evaluations), params, state, outputs=False)
        return Evaluated.of(self._run(self._ask_all(self._graph, "evaluate", question)))

    def outputs(self, params: Tree, state: Tree) -> list[np.ndarray]:
        """Leaves of the model's output of a version, row i of the data set's row i; arguments as of `evaluate`."""
        question = Evaluate(next(self._evaluations), params, state, outputs=True)
        found = self._run(self._ask_all(self._graph, "evaluate", question))
        place = np.argsort(np.concatenate([rows for rows, _ in found]), kind="stable")
        leaves = zip(*(leaves for _, leaves in found), strict=True)
        return [parts[0] if not parts[0].ndim else np.concatenate(parts)[place] for parts in leaves]

    def close(self) -> None:
        """See `PipelineRun`."""
        self._cleanup.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._clock.run(self._during(work))

    async def _during(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for something, as long as all hosts live."""
        assert self._launched is not None
        task, failed = asyncio.ensure_future(work), self._launched.failed
        both: list[asyncio.Future[Any]] = [task, failed]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                failed.result()
            return task.result()
        finally:
            task.cancel()

    async def _read_clocks(self) -> None:
        """Compares each host's clock with the driver's while it has nothing else to do."""
        for address in self._hosts:
            for _ in range(_CLOCK_READINGS):
                asked = self._clock.now()
                there = await self._ask(address, "clock")
                self._clocks[address].heard(asked, there, self._clock.now())

    async def _all_worked(self, epoch: int) -> list[Worked]:
        return list(await asyncio.gather(*(self._worked(address, epoch) for address in self._hosts)))

    async def _worked(self, address: Address, epoch: int) -> Worked:
        asked = self._clock.now()
        worked = await self._ask(address, "worked", epoch)
        assert isinstance(worked, Worked)
        self._clocks[address].heard(asked, worked.seconds, self._clock.now())
        return worked

    async def _ask_all(self, addresses: Sequence[Address], kind: str, payload: Any = None) -> list[Any]:
        return list(await asyncio.gather(*(self._ask(address, kind, payload) for address in addresses)))

    async def _ask(self, address: Address, kind: str, payload: Any = None) -> Any:
        return await self._transport.request(_DRIVER, address, kind, payload, num_bytes=0, order=())


@final
class _Parts:
    """See `PartsWriter`; until the next epoch is run."""

    def __init__(self, write: Callable[[str], Mapping[str, Part]]) -> None:
        self._write = write

    def write(self, place: str) -> Mapping[str, Part]:
        """See `PartsWriter`."""
        return self._write(place)
