"""A parameter server on the network: messages in, computation, messages out.

What there is to do is decided in `server` and `sequencer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, final, runtime_checkable

from dorylax.pipeline.parameters.messages import Applied, Arrived, Finish, Pulled, ServerState, Tree, Update
from dorylax.pipeline.parameters.prediction import Prediction
from dorylax.pipeline.parameters.sequencer import Numbered, Sequencer
from dorylax.pipeline.parameters.server import ParameterServer, Whole
from dorylax.pipeline.parameters.stability import StabilityGate
from dorylax.pipeline.parameters.update import OptimizerStep
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.transport.base import Address, Transport, payload_bytes
from dorylax.pipeline.transport.delivery import deliver

T = TypeVar("T")

# What the second number (of `order`) of a message or a computation says it is, after the epoch or the version.
PULL, PUSH, FINISH, ARRIVED, UPDATES, APPLY, PREDICT = range(7)

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Makes a task of a coroutine, and stops the run if it fails: `Clock.spawn`."""


@runtime_checkable
class Compute(Protocol):
    """Where parameter servers compute: in place, on threads, or for as long as a model of their cost says."""

    async def __call__(
        self, server: int, kind: str, work: Callable[[], T], num_bytes: int, order: tuple[int, ...], *, epoch: int
    ) -> T:
        """Does some work of a parameter server.

        Args:
            server: which one.
            kind: "finish" (an interval's complete gradient), "update" (an optimizer step) or "predict" (weights to come).
            work: what to compute; touches nothing that others change.
            num_bytes: of the parameters.
            order: unlike that of any other work of the server: `(epoch, FINISH, interval)`, `(version, APPLY)`,
                `(version, PREDICT, ahead)`.
            epoch: for which it is done.

        Returns:
            What `work` returns.
        """
        ...


async def in_place(
    server: int,  # noqa: ARG001
    kind: str,  # noqa: ARG001
    work: Callable[[], T],
    num_bytes: int,  # noqa: ARG001
    order: tuple[int, ...],  # noqa: ARG001
    *,
    epoch: int,  # noqa: ARG001
) -> T:
    """Computes at once, on the event loop."""
    return work()


@final
class ParameterEndpoint:
    """Answers "pull", "push", "arrived" and "updates".

    A push is answered as soon as it has come: what follows from it goes on in tasks of its own.

    Args:
        index: which parameter server this is.
        num_servers: how many there are.
        server: its state.
        sequencer: on server 0, who numbers; None on the others.
        step: the optimizer.
        prediction: of the weights of intervals that run ahead; None where they get the newest.
        gate: decides when intervals may run ahead; None if they always may.
        finish: makes the complete gradient of an interval.
        transport: to the other servers.
        compute: where to compute.
        spawn: makes tasks.
        on_applied: told of applied gradients, on server 0.
        recorder: told of what is done.

    Attributes:
        address: where it is reached.
        server: its state.
        sequencer: likewise.
    """

    def __init__(
        self,
        index: int,
        num_servers: int,
        server: ParameterServer,
        sequencer: Sequencer | None,
        *,
        step: OptimizerStep,
        prediction: Prediction | None,
        gate: StabilityGate | None,
        finish: Finish,
        transport: Transport,
        compute: Compute,
        spawn: Spawn,
        on_applied: Callable[[Applied], None],
        recorder: Recorder,
    ) -> None:
        self.server, self.sequencer = server, sequencer
        self._index, self.address = index, Address("parameter", index)
        self._peers = [Address("parameter", peer) for peer in range(num_servers) if peer != index]
        self._step, self._finish_with, self._transport = step, finish, transport
        self._prediction = prediction
        self._gate = gate
        self._predicting = asyncio.Lock()
        self._predicted: dict[tuple[int, int], Tree] = {}  # (version, ahead) -> parameters, of one version
        self._compute, self._spawn, self._on_applied = compute, spawn, on_applied
        self._num_bytes = payload_bytes(server.state.params)
        self._recorder = recorder
        self._pulled_bytes = self._num_bytes + payload_bytes(server.state.state)
        self._turn = asyncio.Condition()

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        """See `RequestHandler`.

        Raises:
            ValueError: an unknown kind.
        """
        match kind:
            case "pull":
                return await self._pull(*payload)
            case "push":
                self._recorder.push(self._index, payload.epoch, sum(int(one.nbytes) for one in payload.sums.values()))
                whole = self.server.push(payload)
                if whole is not None:
                    self._spawn(self._finish(whole))
            case "arrived":
                self._arrived(payload)
            case "updates":
                self.server.receive(payload)
                await self._reach(payload[-1].number)
            case _:
                raise ValueError(f"parameter server {self._index} cannot answer {kind!r} from {sender}")
        return None

    async def _pull(self, interval: int, epoch: int) -> Pulled:
        if not self.server.may_pull(interval, epoch):
            async with self._turn:
                await self._turn.wait_for(lambda: self.server.may_pull(interval, epoch))
        newest, ahead = self.server.state, self.server.ahead(epoch)
        offered: Pulled | None = None
        if self._prediction is not None and newest.remembered is not None and ahead:
            params = await self._predict(self._prediction, newest, ahead, epoch)
            offered = Pulled(newest.version, params, newest.state, ahead)
        pulled = self.server.pull(interval, epoch, offered)
        stashes = self.server.live_stashes
        self._recorder.pull(self._index, epoch, held=pulled.exact, num_bytes=self._pulled_bytes, stashes=stashes)
        return pulled

    async def _predict(self, prediction: Prediction, newest: ServerState, ahead: int, epoch: int) -> Tree:
        """Computes what several intervals will ask for once."""
        key = (newest.version, ahead)
        async with self._predicting:
            if key not in self._predicted:
                order = (newest.version, PREDICT, ahead)
                params = await self._compute(
                    self._index,
                    "predict",
                    lambda: prediction.predict(newest, ahead),
                    self._num_bytes,
                    order,
                    epoch=epoch,
                )
                same = {(v, n): tree for (v, n), tree in self._predicted.items() if v == newest.version}
                self._predicted = same | {key: params}
            return self._predicted[key]

    async def _finish(self, whole: Whole) -> None:
        interval, epoch = whole.pair
        order = (epoch, FINISH, interval)
        complete = await self._compute(
            self._index, "finish", lambda: whole.finish(self._finish_with), self._num_bytes, order, epoch=epoch
        )
        arrived = Arrived(interval, epoch, complete)
        if self.sequencer is not None:
            self._arrived(arrived)
        else:
            first, size = Address("parameter", 0), payload_bytes(complete)
            order = (epoch, ARRIVED, interval)
            self._recorder.passed_on(self._index, epoch, size)
            await deliver(self._transport, self.address, first, "arrived", arrived, num_bytes=size, order=order)

    def _arrived(self, arrived: Arrived) -> None:
        if self.sequencer is None:
            raise ValueError(f"parameter server {self._index} does not number gradients: server 0 does")
        for numbered in self.sequencer.add(arrived):
            if isinstance(numbered, Applied):
                self._on_applied(numbered)
                continue
            self.server.receive([numbered.update])
            forwards = [self._spawn(self._forward(peer, numbered.forward)) for peer in self._peers if numbered.forward]
            self._spawn(self._apply(self.sequencer, numbered, forwards))

    async def _apply(self, sequencer: Sequencer, numbered: Numbered, forwards: Sequence[asyncio.Task[None]]) -> None:
        await self._reach(numbered.update.number)
        if numbered.everywhere:
            await asyncio.gather(*forwards)
        for applied in sequencer.confirm(numbered.update.number):
            self._on_applied(applied)

    async def _forward(self, peer: Address, updates: tuple[Update, ...]) -> None:
        size = payload_bytes([(update.gradients, update.statistics) for update in updates])
        order = (updates[-1].number, UPDATES)
        self._recorder.passed_on(self._index, updates[-1].epoch, size)
        await deliver(self._transport, self.address, peer, "updates", updates, num_bytes=size, order=order)

    async def _reach(self, version: int) -> None:
        """Applies updates up to a version, waiting for those that have not come."""
        async with self._turn:
            while self.server.state.version < version:
                update = self.server.next_update()
                if update is None:
                    await self._turn.wait()
                    continue
                self.server.advance(await self._computed(update))
                self._turn.notify_all()

    async def _computed(self, update: Update) -> ServerState:
        last, prediction, gate = self.server.state, self._prediction, self._gate

        def work() -> ServerState:
            new = self._step(last, update)
            if prediction is not None:
                new = new._replace(remembered=prediction.remembered(last, update))
            if gate is not None and last.stability is not None:
                stability = gate.after(last.stability, last.params, update.gradients, new.params)
                new = new._replace(stability=stability)
            return new

        order = (update.number, APPLY)
        return await self._compute(self._index, "update", work, self._num_bytes, order, epoch=update.epoch)
