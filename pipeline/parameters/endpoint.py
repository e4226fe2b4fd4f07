"""A parameter server on the network: messages in, computation, messages out.

The decisions are in `server` and `sequencer`; this module carries them out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar, final

from dorylax.clock import Clock, Duration
from dorylax.cost import TimeModel
from dorylax.pipeline.parameters.prediction import Prediction
from dorylax.pipeline.parameters.records import (
    APPLY,
    ARRIVED,
    FINISH,
    PREDICT,
    UPDATES,
    Applied,
    Finish,
    Pulled,
    Push,
    ServerState,
    Step,
    Sums,
    Tree,
)
from dorylax.pipeline.parameters.sequencer import Sequencer
from dorylax.pipeline.parameters.server import ParameterServer
from dorylax.pipeline.parameters.stability import StabilityGate
from dorylax.pipeline.parameters.update import OptimizerStep
from dorylax.pipeline.places import note_place
from dorylax.pipeline.recorder import Recorder
from dorylax.pipeline.transport.base import Address, Spawn, Transport, payload_bytes

T = TypeVar("T")

Compute = Callable[..., Coroutine[Any, Any, Any]]
"""Runs a computation of a parameter server: `ParameterWorkers.__call__`."""


@final
class ParameterWorkers:
    """One worker of the clock per parameter server: a thread, or virtual time from a cost model.

    Args:
        num_servers: P, the number of servers.
        clock: Provides the workers.
        times: Gives the duration of updates in virtual time; None on the real clock.
        recorder: Records each computation.
    """

    def __init__(self, num_servers: int, clock: Clock, times: TimeModel | None, recorder: Recorder) -> None:
        self._workers = [clock.workers(f"parameters {server}", 1) for server in range(num_servers)]
        self._times, self._recorder = times, recorder

    async def __call__(
        self, server: int, kind: str, work: Callable[[], T], num_bytes: int, order: tuple[int, ...], *, epoch: int
    ) -> T:
        """Run a computation of a parameter server, and return its result.

        Args:
            server: The number of the server.
            kind: "finish" (a complete gradient), "update" (an optimizer step) or "predict" (later weights).
            work: The computation. It must not use data that other tasks change.
            num_bytes: The bytes of the parameters.
            order: A key that is unique on the server: `(epoch, FINISH, interval)`, `(version, APPLY)` or
                `(version, PREDICT, ahead)`.
            epoch: The epoch that the computation belongs to.
        """
        seconds: Duration = 0.0 if self._times is None else self._times.update((server, *order), bytes=num_bytes)
        try:
            timed = await self._workers[server].run(work, seconds=seconds, order=order)
        except Exception as error:
            of = f"interval {order[-1]}" if kind == "finish" else f"version {order[0]}"
            note_place(error, f"parameter server {server}, {of}, epoch {epoch}, {kind}")
            raise
        times = (timed.start, timed.end)
        if kind == "update":
            assert isinstance(timed.value, ServerState)
            made = timed.value
            gate = None if made.stability is None else "open" if made.may_be_ahead else "closed"
            self._recorder.update(server, epoch, order[0], times, gate)
        elif kind == "predict":
            self._recorder.predict(server, epoch, order[0], times)
        else:
            self._recorder.finish(server, order[-1], epoch, times)
        return timed.value


@final
class ParameterEndpoint:
    """Answers "pull", "push", "arrived" and "updates".

    Pushes are acknowledged on arrival. The gradient and the update are then computed in separate tasks.

    Args:
        index: The number of this parameter server, from 0.
        num_servers: P, the number of parameter servers.
        server: The state of this server.
        sequencer: Numbers the updates, on server 0; None on the others.
        step: The optimizer.
        prediction: Predicts the weights of intervals that run ahead; None gives them the newest weights.
        gate: Decides when intervals may run ahead; None if they always may.
        finish: Computes the complete gradient of an interval.
        transport: Carries messages to the other servers.
        compute: Runs a computation on this server.
        spawn: Starts a task.
        on_applied: Called on server 0 with the gradients that an update has applied.
        recorder: Counts pulls, pushes and bytes.

    Attributes:
        address: The address of this server.
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
        """Answer a message, as a `RequestHandler`.

        Raises:
            ValueError: The kind is unknown.
        """
        match kind:
            case "pull":
                return await self._pull(*payload)
            case "push":
                self._recorder.push(self._index, payload.epoch, sum(int(one.nbytes) for one in payload.sums.values()))
                whole = self.server.push(payload)
                if whole is not None:
                    self._spawn(self._finish(payload, *whole))
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
        """Predict once for all intervals that pull this version equally far ahead."""
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

    async def _finish(self, push: Push, pulled: Pulled, sums: Mapping[int, Sums]) -> None:
        interval, epoch = push.interval, push.epoch

        def work() -> Step:
            return Step.of(interval, epoch, self._finish_with(pulled.params, pulled.state, epoch, sums))

        order = (epoch, FINISH, interval)
        gradient = await self._compute(self._index, "finish", work, self._num_bytes, order, epoch=epoch)
        if self.sequencer is not None:
            self._arrived(gradient)
        else:
            first, size = Address("parameter", 0), _size(gradient)
            order = (epoch, ARRIVED, interval)
            self._recorder.passed_on(self._index, epoch, size)
            await self._transport.request(self.address, first, "arrived", gradient, num_bytes=size, order=order)

    def _arrived(self, gradient: Step) -> None:
        if self.sequencer is None:
            raise ValueError(f"parameter server {self._index} does not number gradients: server 0 does")
        for found in self.sequencer.add(gradient):
            if isinstance(found, Applied):
                self._on_applied(found)
                continue
            step, forward = found
            self.server.receive([step])
            forwards = [self._spawn(self._forward(peer, forward)) for peer in self._peers if forward]
            self._spawn(self._apply(self.sequencer, step, forwards))

    async def _apply(self, sequencer: Sequencer, step: Step, forwards: Sequence[asyncio.Task[None]]) -> None:
        await self._reach(step.number)
        if step.closes:  # then its gradients count as applied only when all servers have applied it
            await asyncio.gather(*forwards)
        for applied in sequencer.confirm(step.number):
            self._on_applied(applied)

    async def _forward(self, peer: Address, steps: tuple[Step, ...]) -> None:
        size, order = sum(map(_size, steps)), (steps[-1].number, UPDATES)
        self._recorder.passed_on(self._index, steps[-1].epoch, size)
        await self._transport.request(self.address, peer, "updates", steps, num_bytes=size, order=order)

    async def _reach(self, version: int) -> None:
        """Apply steps up to a version, and wait for those that have not arrived."""
        async with self._turn:
            while self.server.state.version < version:
                step = self.server.next_step()
                if step is None:
                    await self._turn.wait()
                    continue
                self.server.advance(await self._computed(step))
                self._turn.notify_all()

    async def _computed(self, step: Step) -> ServerState:
        last, prediction, gate = self.server.state, self._prediction, self._gate

        def work() -> ServerState:
            new = self._step(last, step)
            if prediction is not None:
                new = new._replace(remembered=prediction.remembered(last, step))
            if gate is not None and last.stability is not None:
                stability = gate.after(last.stability, last.params, step.gradients, new.params)
                new = new._replace(stability=stability)
            return new

        order = (step.number, APPLY)
        state: ServerState = await self._compute(self._index, "update", work, self._num_bytes, order, epoch=step.epoch)
        return state


def _size(step: Step) -> int:
    """Return the bytes that a step takes on the network."""
    return payload_bytes([step.gradients, step.statistics])
