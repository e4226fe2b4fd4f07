"""The driver's side of hosts: starts them, sends requests, and recovers from losses.

The driver receives the weights after every epoch. Recovery is therefore the same for every loss, of one graph or parameter
server or of all: a new generation of servers starts with the last version and repeats the interrupted epoch. The policy
(`pipeline.recovery`) decides on which hosts, and whether a checkpoint replaces the last version. The repeated epoch is
synchronous, which fills the buffers. In synchronous training it equals the lost one bit for bit; in asynchronous training
the servers drop gradients that the version already contains.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, final

from dorylax.clock import Clock
from dorylax.clock.scope import ClockScope
from dorylax.pipeline.hosts.clocks import RemoteClock
from dorylax.pipeline.hosts.heartbeat import BEATS, Heartbeat
from dorylax.pipeline.hosts.launcher import HostError, Launched, Launcher
from dorylax.pipeline.hosts.messages import (
    DRIVER,
    LEDGER,
    Assembly,
    EpochReport,
    HostState,
    MemberSpec,
    RunState,
    host_address,
)
from dorylax.pipeline.hosts.spec import HostSpec, RunSpec
from dorylax.pipeline.recorder import Counters
from dorylax.pipeline.recovery.base import Decision, EpochEnded, Event, Fleet, Joined, Lost, Noticed
from dorylax.pipeline.recovery.catalogue import POLICIES
from dorylax.pipeline.saved import InitialState, part_name
from dorylax.pipeline.transport.base import Address, HostTransport
from dorylax.store.servers import Loss

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds between attempts to start a replacement

_CLOCK_READINGS = 8  # of each host, at the start


class Members(NamedTuple):
    """Addresses of the servers, for requests of the driver.

    Attributes:
        graph: graph servers.
        parameters: parameter servers.
    """

    graph: list[Address]
    parameters: list[Address]

    @property
    def all(self) -> list[Address]:
        """Graph servers, then parameter servers."""
        return [*self.graph, *self.parameters]


@final
class Coordinator:
    """All hosts of a run from start to end, with recovery from losses. Used on the loop of the clock.

    Args:
        run: Settings shared by all hosts.
        home: Servers of each host at the start of the run.
        start: Initial state of training.
        launcher: Starts the hosts.
        clock: Clock of the driver.
        transport: Transport to the hosts.
        on_loss: Called for each loss after its recovery.

    Attributes:
        members: Addresses of the current servers.
        clocks: Clock readings of each server.
        before: Counters of earlier processes and generations.
        losses: Losses with their cost.
        run_state: State for a recovery; None before the end of the first epoch.
        generation: Current generation of the run.
        held: Generation that received each held epoch; -1: none.
        begun: Clock seconds at the start of the run. The bill excludes earlier compilation.
    """

    def __init__(
        self,
        run: RunSpec,
        home: tuple[tuple[MemberSpec, ...], ...],
        start: InitialState,
        launcher: Launcher,
        *,
        clock: Clock,
        transport: HostTransport,
        on_loss: Callable[[Loss], None],
    ) -> None:
        config = run.config
        self._start, self._config = start, config
        names = [", ".join(member.name for member in members) for members in home]
        self._specs = [HostSpec(run, number, name) for number, name in enumerate(names)]
        self._policy, self._fleet = POLICIES[config.recovery], Fleet(home, home, frozenset())
        self._joining = ClockScope(clock)  # starts of replacements in the background
        self._checkpoint: RunState | None = None
        self._next = start.epoch  # that the driver has not received yet
        self._launcher, self._clock, self._transport, self._on_loss = launcher, clock, transport, on_loss
        self.members = Members(
            [host_address("graph", server, config.servers) for server in range(config.servers)],
            [host_address("parameter", server, config.servers) for server in range(config.parameter_servers)],
        )
        self._processes = [Address("process", number) for number in range(len(home))]
        self.clocks: dict[Address, RemoteClock] = {}
        self.before = Counters()
        self.losses: list[Loss] = []
        if start.saved is not None:
            self.before = Counters.of(start.saved.record["counters"])
            self.losses += [Loss(**one) for one in start.saved.record.get("losses", [])]
        self._reports: dict[Address, dict[str, Any]] = {}
        self.run_state: RunState | None = None
        self.finished: dict[int, float] = {}
        self.held: dict[int, int] = {}
        self._synchronous_from: int | None = None
        self.generation = -1
        self.begun = 0.0
        self._in_a_row = 0
        self._since = clock.now()  # end of the previous epoch
        self._training = False
        self._launched: Launched | None = None
        self._lost: dict[int, HostError] = {}
        self._accused: dict[int, set[int]] = {}
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heartbeat = Heartbeat(DRIVER, transport, clock, config.host_timeout, self._silent)
        transport.register(DRIVER, self)

    # Requests of the driver.

    async def begin(self) -> None:
        """Start all hosts and their computations before the first epoch.

        Raises:
            HostError: A host could not be started.
        """
        self._launched = await self._launcher.launch(self._specs, self._ended)
        self._fleet = self._fleet._replace(alive=frozenset(range(len(self._specs))))
        try:
            await self._during(self._assemble())
        except HostError as error:
            await self._recover_from(error)
        self._since = self._clock.now()

    async def lasting(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run requests, and repeat them after every loss.

        Raises:
            HostError: The code of a host failed, or too many hosts are lost.
        """
        while True:
            try:
                return await self._during(ask())
            except HostError as error:
                await self._recover_from(error)

    async def ask(self, address: Address, kind: str, payload: Any = None) -> Any:
        """Send a request to one server."""
        return await self._transport.request(DRIVER, address, kind, payload, num_bytes=0, order=())

    async def ask_all(self, addresses: Sequence[Address], kind: str, payload: Any = None) -> list[Any]:
        """Send the same request to several servers."""
        return list(await asyncio.gather(*(self.ask(address, kind, payload) for address in addresses)))

    @contextlib.contextmanager
    def training(self) -> Any:
        """Context of waiting for an epoch; a loss within it costs the unfinished epoch."""
        self._training = True
        try:
            yield
        finally:
            self._training = False

    async def train(self, epoch: int) -> None:
        """Train until every interval has finished an epoch, and record the new state for a recovery."""
        if epoch not in self.finished:
            new = [held for held, told in self.held.items() if told < self.generation and held >= epoch]
            self.held |= dict.fromkeys(new, self.generation)
            loss, run_state = await self.ask(LEDGER, "run", (epoch, sorted(new)))
            self.run_state = run_state
            self.finished = {epoch: loss} | dict(run_state.losses)
            self._in_a_row, self._since = 0, self._clock.now()
        self._next = max(self._next, epoch + 1)

    def has_worked(self, address: Address, worked: EpochReport, asked: float) -> None:
        """Record a server's counters and a reading of its clock, requested at time `asked`."""
        self._reports[address] = worked.report
        self.clocks[address].heard(asked, worked.seconds, self._clock.now())

    def has_synchronised(self, epoch: int) -> None:
        """Record that this epoch and all later ones are synchronous."""
        self._synchronous_from = epoch

    def has_saved(self) -> None:
        """Record that the run can begin again from its current state, which only the policy restart does."""
        if self._config.recovery == "restart":
            self._checkpoint = self.run_state

    async def rebalance(self) -> None:
        """Move servers between two epochs by the decision of the policy."""
        decision = self._decide(EpochEnded())
        if decision.action == "move":
            await self._reassemble(decision, self._next)
        else:
            self._start_later(decision)

    def close(self) -> None:
        """Stop all hosts. A second call does nothing."""
        self._heartbeat.stop()
        self._joining.cancel()
        if self._launched is not None:
            self._launched.close()

    # Notifications from hosts.

    async def handle(self, kind: str, payload: Any, sender: Address) -> None:
        """See `RequestHandler`."""
        if kind not in ("silent", "notice"):
            raise ValueError(f"the driver cannot answer {kind!r} from {sender}")
        generation, number = payload
        if kind == "notice":
            if generation == self.generation and number in self._fleet.alive - self._fleet.leaving:
                self._fleet = self._fleet._replace(leaving=self._fleet.leaving | {number})
                _LOG.warning("%s: a notice that its host will vanish", self._specs[number].name)
                self._start_later(self._decide(Noticed((number,), math.inf)))  # SIGTERM gives no time
            return
        if generation == self.generation and sender.index not in self._lost and number in self._fleet.alive:
            if not self._accused:
                self._clock.spawn(self._judge(generation), name="silence among hosts")
            self._accused.setdefault(number, set()).add(sender.index)

    async def _judge(self, generation: int) -> None:
        """Declare the process lost that most others report as silent. One without a network reports all others, too."""
        await self._clock.sleep(self._config.host_timeout / BEATS, (generation,))
        accused, self._accused = self._accused, {}
        if generation != self.generation or not accused:
            return
        number = max(accused, key=lambda one: (len(accused[one]), one))
        self._silent(number, f" to {', '.join(self._specs[other].name for other in sorted(accused[number]))}")

    def _silent(self, number: int, others: str = "") -> None:
        name, seconds = self._specs[number].name, self._config.host_timeout
        text = f"{name}: no answer{others} for {seconds:g} s (pipeline.host_timeout)"
        self._ended(number, HostError(text, lost=True))

    def _ended(self, number: int, error: HostError) -> None:
        if error.lost and not self._fleet.assigned[number]:  # no server waits for it
            self._drop({number})
            self._start_later(self._decide(Lost((number,))))
            return
        if error.lost:
            self._lost.setdefault(number, error)
        if self._trouble.done() and not error.lost:
            known = self._trouble.exception()
            if isinstance(known, HostError) and known.lost:  # the failure of a host's code matters more
                self._trouble = asyncio.get_running_loop().create_future()
        if not self._trouble.done():
            self._trouble.set_exception(error)
            self._trouble.exception()  # without a waiting caller asyncio would warn

    # Recovery.

    async def _during(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine while all hosts live."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                trouble = self._trouble
                both: list[asyncio.Future[Any]] = [task, trouble]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if trouble is self._trouble and trouble.done() and not task.done():
                    trouble.result()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def _recover_from(self, error: HostError) -> None:
        """Replace lost hosts and assemble the next generation, and repeat this if more hosts are lost meanwhile.

        Raises any other error.
        """
        if not error.lost:
            raise error
        begin, repeats = self._clock.now(), self._training
        wasted = begin - self._since if repeats else 0.0
        lost: dict[int, HostError] = {}
        servers: dict[int, Sequence[Any]] = {}
        until = self._next
        while True:
            lost |= self._lost
            servers = {number: self._fleet.assigned[number] for number in self._lost} | servers
            self._drop(self._lost)
            self._lost.clear()
            self._accused.clear()
            self._trouble = asyncio.get_running_loop().create_future()
            if self._in_a_row == self._config.max_losses:
                raise self._given_up(lost)
            self._in_a_row += 1
            decision = self._decide(Lost(tuple(sorted(lost.keys() - self._fleet.alive))))
            if decision.since == "checkpoint":
                self.run_state = self._checkpoint
                self.finished = {} if self._checkpoint is None else dict(self._checkpoint.losses)
            epoch = self._epoch
            try:
                await self._during(self._reassemble(decision, until))
                break
            except HostError as another:
                if not another.lost:
                    raise
        now = self._clock.now()
        loss = Loss(
            generation=self.generation,
            servers=[MemberSpec(*member).name for number in sorted(lost) for member in servers[number]],
            causes=list(dict.fromkeys(str(lost[number]) for number in sorted(lost))),
            epoch=epoch,
            repeats=repeats,
            wasted_seconds=wasted,
            recovery_seconds=now - begin,
        )
        self._since = now
        self.losses.append(loss)
        self._on_loss(loss)

    def _given_up(self, lost: Mapping[int, HostError]) -> HostError:
        causes = "; ".join(str(lost[number]) for number in sorted(lost))
        most = self._config.max_losses
        if not most:
            return HostError(causes)
        return HostError(
            f"{causes}: that is more than {most} loss{'es' * (most > 1)} in a row, with no epoch finished between them "
            "(pipeline.max_losses); the run can be resumed from its newest checkpoint"
        )

    def _decide(self, event: Event) -> Decision:
        self._fleet = self._fleet._replace(
            training=self._training,
            synchronous=self._config.synchronous,
            checkpoint=self._checkpoint is not None or self._start.saved is not None,
        )
        decision = self._policy.decide(self._fleet, event)
        _LOG.debug("%s: %s: %s", type(event).__name__, decision.action, decision.reason)
        return decision

    async def _reassemble(self, decision: Decision, until: int) -> None:
        """Carry out "move", and repeat the epochs before `until` that the state lacks."""
        assert self._launched is not None
        self._heartbeat.stop()
        self._fleet = self._fleet._replace(assigned=decision.assigned)
        if decision.wait:
            self._joining.cancel()
            self._fleet = self._fleet._replace(starting=frozenset())
            self._drop(decision.start)
            try:
                await self._launched.replace(decision.start)
            except HostError as error:
                if error.lost:
                    self._lost |= dict.fromkeys(decision.start, error)
                raise
            self._fleet = self._fleet._replace(alive=self._fleet.alive.union(decision.start))
        fleet = self._fleet
        self._drop(number for number in fleet.leaving if not fleet.assigned[number])
        self._start_later(decision._replace(start=self._fleet.vacant))
        await self._assemble()
        for epoch in range(self._epoch, until):
            await self.train(epoch)
            await self.ask_all(self.members.all, "worked", epoch)

    def _drop(self, hosts: Iterable[int]) -> None:
        """Regard hosts as gone; the start of a replacement ends those that run."""
        gone = frozenset(hosts)
        self._fleet = self._fleet._replace(alive=self._fleet.alive - gone, leaving=self._fleet.leaving - gone)

    def _start_later(self, decision: Decision) -> None:
        """Start hosts in the background for which a decision does not wait."""
        new = [] if decision.wait else [number for number in decision.start if number not in self._fleet.starting]
        self._fleet = self._fleet._replace(starting=self._fleet.starting.union(new))
        for number in new:
            self._joining.spawn(self._join(number), name=f"replacement of host {number}")

    async def _join(self, number: int) -> None:
        assert self._launched is not None
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._launched.replace([number])
                break
            except HostError as error:
                _LOG.warning(
                    "no replacement for %s yet, next attempt in %g s: %s", self._specs[number].name, pause, error
                )
            await self._clock.sleep(pause, (number,))
            pause = min(2 * pause, _LONGEST_PAUSE)
        fleet = self._fleet
        self._fleet = fleet._replace(alive=fleet.alive | {number}, starting=fleet.starting - {number})
        self._start_later(self._decide(Joined((number,))))

    @property
    def _epoch(self) -> int:
        """Next epoch to train."""
        return self._start.epoch if self.run_state is None else self.run_state.epoch

    async def _assemble(self) -> None:
        assert self._launched is not None
        self.generation += 1
        self._transport.renew(self.generation)
        peers: dict[Address, str] = {}
        alive = sorted(self._fleet.alive)
        processes = [self._processes[number] for number in alive]
        for number in alive:
            endpoint = self._launched.endpoints[number]
            peers[self._processes[number]] = endpoint
            for role, index in self._fleet.assigned[number]:
                peers[Address(role, index)] = peers[host_address(role, index, self._config.servers)] = endpoint
                if role == "graph":
                    peers[Address("evaluation", index)] = endpoint
        peers[LEDGER] = peers[self.members.parameters[0]]
        self._transport.connect(peers)
        self._heartbeat.watch(alive)
        book = [(address.role, address.index, endpoint) for address, endpoint in peers.items()]
        book.append((DRIVER.role, DRIVER.index, self._transport.endpoint))
        saved = self._start.saved
        fills = self.run_state is not None or saved is None or not saved.holds_buffers
        assigned = tuple(tuple(MemberSpec(*server) for server in servers) for servers in self._fleet.assigned)
        assembly = Assembly(self.generation, book, assigned, self._epoch, fills)
        for reports in await self.ask_all(processes, "assemble", assembly):
            self._reports |= {
                Address(role, index): report for role, index, report in reports
            }  # new hosts have no counters
        for report in self._reports.values():
            self.before.add(Counters.of(report))
        self._reports.clear()
        await self._read_clocks()
        await self.ask_all(self.members.all, "build")
        if not self.generation and saved is None:
            self.begun = self._clock.now()
        constants = (await self.ask_all(self.members.graph, "prepare"))[0]
        if not self.generation and saved is not None:  # an earlier process paid for the setup
            self.begun = self._clock.now()
        await self._begin(constants)
        await self.ask_all(processes, "begun")

    async def _begin(self, constants: list[Any]) -> None:
        if (run_state := self.run_state) is not None:
            if self._synchronous_from is not None:
                run_state = run_state._replace(synchronous_from=self._synchronous_from)
            initial = HostState(constants, None, None, None, {}, None, None, {}, run_state)
            await self.ask_all(self.members.parameters, "begin", initial)
            await self.ask_all(self.members.graph, "begin", initial._replace(run_state=None))
            return
        start, saved = self._start, self._start.saved
        arrays, record = ({}, None) if saved is None else (saved.arrays, saved.record)
        parts = {} if saved is None else saved.parts
        assert isinstance(parts, Mapping)
        counts = {} if record is None else record.get("servers", {})
        for server, address in enumerate(self.members.parameters):
            mine = {name: array for name, array in arrays.items() if name.startswith("parameter servers/")}
            counted = counts["parameter"][server] if counts else {}
            initial = HostState(constants, start.params, start.opt_state, start.state, mine, None, record, counted)
            await self.ask(address, "begin", initial)
        for server, address in enumerate(self.members.graph):
            mine = {name: array for name, array in arrays.items() if name.startswith(f"server {server}/")}
            part = parts.get(part_name(server))
            controller = None if record is None else record["controllers"][server]
            counted = counts["graph"][server] if counts else {}
            await self.ask(address, "begin", HostState(constants, None, None, None, mine, part, controller, counted))
        if self._synchronous_from is not None:
            await self.ask(LEDGER, "synchronise")

    async def _read_clocks(self) -> None:
        """Compare each host's clock with the driver's while the hosts are idle."""
        self.clocks = {address: RemoteClock() for address in self.members.all}
        for address, clock in self.clocks.items():
            for _ in range(_CLOCK_READINGS):
                asked = self._clock.now()
                there = await self.ask(address, "clock")
                clock.heard(asked, there, self._clock.now())
