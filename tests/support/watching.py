"""Hooks around a pipeline's servers that tell what happens as plain values: events, for a `support.witness.Witness`."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import numpy as np
import pytest

from dorylax.clock.real import Threads
from dorylax.ops import row_operators
from dorylax.pipeline import member
from dorylax.pipeline.buffers import MergeBuffer, PartsBuffer
from dorylax.pipeline.graph_server import GraphServer
from dorylax.pipeline.host import GraphHost
from dorylax.pipeline.interval_pass import IntervalPass
from dorylax.pipeline.parameters.client import ParameterClient
from dorylax.pipeline.parameters.group import ParameterServers
from dorylax.pipeline.parameters.policies import LateGradients
from dorylax.pipeline.parameters.records import Applied, Pulled, ServerState, Step
from dorylax.pipeline.parameters.server import ParameterServer
from dorylax.pipeline.parameters.stability import Stability, StabilityGate
from dorylax.pipeline.prepare import Prepared
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.steps import RUN
from dorylax.pipeline.transport.base import Address
from dorylax.serverless.task import TaskKey
from support.witness import fingerprint

Tell = Callable[..., None]
"""`(event, *values, **named)`: the name of a method of `Witness`, and what it takes."""

HERE: contextvars.ContextVar[tuple[GraphServer, IntervalPass] | None] = contextvars.ContextVar("HERE", default=None)
CALL: contextvars.ContextVar[TaskKey | None] = contextvars.ContextVar("CALL", default=None)
ANSWERED = ("rows", "sums", "parts", "push")
"""Kinds of messages of an interval without whose answer it has not finished its epoch."""


class Hooks:
    """Tells of everything that is made and done while they are installed.

    Args:
        tell: takes events, also from several threads.

    Attributes:
        parameters: the parameter servers that were made last here.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self.parameters: ParameterServers | None = None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Puts them where they belong."""
        self._around_threads(patch)
        self._around_graph_servers(patch)
        self._around_buffers(patch)
        self._around_parameter_servers(patch)
        self._around_computation(patch)

    def sending(self, kind: str, message: Any) -> Callable[[], None]:
        """A request begins; what is returned is to be called when it was answered."""
        here = HERE.get()
        if here is None or kind not in ANSWERED:
            return lambda: None
        pair = (here[1].number, here[1].epoch)
        self._tell("sends", *pair, message)
        return lambda: self._tell("is_answered", *pair, message)

    def _around_threads(self, patch: pytest.MonkeyPatch) -> None:
        run = Threads.run

        async def runs(threads: Threads, work: Callable[[], Any], **given: Any) -> Any:
            context = contextvars.copy_context()
            return await run(threads, lambda: context.run(work), **given)

        patch.setattr(Threads, "run", runs)

    def _around_graph_servers(self, patch: pytest.MonkeyPatch) -> None:
        tell = self._tell
        make, run, publish, finish = GraphServer.__init__, GraphHost._run, GraphServer.publish, GraphServer.finish
        wait, handle = GraphServer.wait, GraphServer.handle

        def makes(server: GraphServer, *args: Any, **options: Any) -> None:
            make(server, *args, **options)
            shard = server.shard
            facts = {
                "rows": (shard.first, shard.last),
                "ghosts": {direction: np.array(shard.ghosts[direction]) for direction in ("in", "out")},
                "first_interval": server.first_interval,
                "bounds": list(shard.bounds),
                "merge_starts": list(shard.merge().starts),
            }
            tell("serves", shard.server, facts)

        async def runs(host: GraphHost, step: Any, visit: IntervalPass) -> None:
            token = HERE.set((host.server, visit))
            await run(host, step, visit)
            HERE.reset(token)

        async def publishes(server: GraphServer, number: int, visit: IntervalPass) -> None:
            bounds = server.shard.bounds
            count = bounds[visit.interval + 1] - bounds[visit.interval]
            rows = np.array(visit.value(server.context.plan.publications[number].var)[:count])
            tell("publishes", number, visit.number, visit.epoch, rows)
            await publish(server, number, visit)

        async def finishes(server: GraphServer, visit: IntervalPass) -> None:
            tell("walks", visit.number, visit.epoch)
            await finish(server, visit)

        async def waits(server: GraphServer, number: int, visit: IntervalPass) -> None:
            await wait(server, number, visit)
            publication, shard = server.context.plan.publications[number], server.shard
            if visit.epoch <= 0 or publication.constant:
                return
            edges = shard.incoming if publication.direction == "in" else shard.outgoing
            first, last = server.bounds(visit)
            places = np.unique(edges.neighbours[edges.offsets[first] : edges.offsets[last]])
            with server.buffers[number].guard.reading():
                held = server.buffers[number].rows[places]
            pair = (visit.number, visit.epoch)
            direction = publication.direction
            tell("may_read", shard.server, pair, number, direction=direction, places=places, held=held)

        async def handles(server: GraphServer, kind: str, payload: Any, sender: Address) -> None:
            await handle(server, kind, payload, sender)
            if kind == "rows":
                number = payload.publication
                direction = server.context.plan.publications[number].direction
                tell(
                    "receives",
                    server.shard.server,
                    number,
                    direction=direction,
                    interval=payload.interval,
                    epoch=payload.epoch,
                    exact=payload.exact,
                    rows=np.array(payload.rows),
                    held=np.array(server.buffers[number].rows),
                )

        patch.setattr(GraphServer, "__init__", makes)
        patch.setattr(GraphHost, "_run", runs)
        patch.setattr(GraphServer, "publish", publishes)
        patch.setattr(GraphServer, "finish", finishes)
        patch.setattr(GraphServer, "wait", waits)
        patch.setattr(GraphServer, "handle", handles)

    def _around_buffers(self, patch: pytest.MonkeyPatch) -> None:
        tell = self._tell
        merged, totals, run_sum = MergeBuffer.publish, PartsBuffer.totals, RUN["sum"]

        async def merges(merge: MergeBuffer, interval: int, rows: Any, epoch: int) -> None:
            server, visit = _here()
            (step,) = [step for step, one in server.merges.items() if one is merge]
            tell("contributes", step, visit.number, visit.epoch, np.array(rows))
            await merged(merge, interval, rows, epoch)

        async def sums(server: GraphServer, step: Any, visit: IntervalPass) -> None:
            parts = [np.array(visit.value(one.invars[0])) for one in step.equations]
            tell("gives", step.index, visit.number, visit.epoch, parts)
            await run_sum(server, step, visit)

        def adds_up(buffer: PartsBuffer) -> list[np.ndarray]:
            server, visit = _here()
            (step,) = [step for step, one in server.parts.items() if one is buffer]
            held = [np.array(rows) for rows in buffer.rows]
            tell("adds_up", server.shard.server, visit.number, visit.epoch, step, held)
            return totals(buffer)

        patch.setattr(MergeBuffer, "publish", merges)
        patch.setattr(PartsBuffer, "totals", adds_up)
        patch.setitem(RUN, "sum", sums)

    def _around_parameter_servers(self, patch: pytest.MonkeyPatch) -> None:
        tell = self._tell
        pull, advance = ParameterClient.pull, ParameterServer.advance
        serve, push = ParameterServer.pull, ParameterServer.push
        add, applied = LateGradients.add, Progress.applied

        def make(params: Any, *args: Any, **options: Any) -> ParameterServers:
            made = self.parameters = ParameterServers(params, *args, **options)
            state = made.newest()
            tell("begins_with", _leaves((state.params, state.state, state.opt_state)), state.may_be_ahead)
            return made

        async def pulls(client: ParameterClient, interval: int, epoch: int) -> Pulled:
            tell("starts", interval, epoch)
            pulled = await pull(client, interval, epoch)
            params, state = _leaves(pulled.params), _leaves(pulled.state)
            found = {"version": pulled.version, "ahead": pulled.ahead, "exact": pulled.exact}
            tell("pulls", interval, epoch, **found, params=params, state=state)
            return pulled

        def serves(server: ParameterServer, interval: int, epoch: int, offered: Pulled | None = None) -> Pulled:
            pulled = serve(server, interval, epoch, offered)
            tell("stashes", (os.getpid(), id(server)), server.live_stashes)
            return pulled

        def pushes(server: ParameterServer, given: Any) -> Any:
            whole = push(server, given)
            tell("stashes", (os.getpid(), id(server)), server.live_stashes)
            if whole is not None:
                pulled = whole[0]
                leaves = _leaves((pulled.params, pulled.state))
                tell("finishes", given.interval, given.epoch, pulled.version, pulled.ahead, leaves)
            return whole

        def adds(policy: LateGradients, gradient: Step) -> list[Step | Applied]:
            found = add(policy, gradient)
            tell("comes_late", sum(isinstance(one, Applied) for one in found))
            return found

        def advances(server: ParameterServer, state: ServerState) -> None:
            advance(server, state)
            leaves = _leaves((state.params, state.state, state.opt_state))
            calls = int(state.state.get("calls", state.version))
            tell("holds", state.version, leaves, calls, state.may_be_ahead)

        def told(progress: Progress, news: Applied) -> None:
            tell("applies", list(news.pairs))
            applied(progress, news)

        patch.setattr(member, "ParameterServers", make)
        patch.setattr(ParameterClient, "pull", pulls)
        patch.setattr(ParameterServer, "pull", serves)
        patch.setattr(ParameterServer, "push", pushes)
        patch.setattr(ParameterServer, "advance", advances)
        patch.setattr(LateGradients, "add", adds)
        patch.setattr(Progress, "applied", told)

    def _around_computation(self, patch: pytest.MonkeyPatch) -> None:
        functions, operate = Prepared.functions, row_operators.run

        def watched(prepared: Prepared, sizes: Any, *, of_workers: bool) -> dict[int, Any]:
            traced = prepared.plan.program.traced
            inputs = list(zip(traced.step.jaxpr.invars, traced.inputs, strict=True))
            held = [var for role in ("param", "state") for var, entry in inputs if entry.role == role]
            places = {var: k for k, var in enumerate(held)}

            def wrap(index: int, function: Any) -> Any:
                reads = prepared.plan.program.interfaces[index].reads
                read = [(k, places[var]) for k, var in enumerate(reads) if var in places]

                def call(*operands: Any) -> Any:
                    if read:
                        self._computes(index, [(place, operands[k]) for k, place in read])
                    return function(*operands)

                return call

            made = functions(prepared, sizes, of_workers=of_workers)
            if not traced.trains:
                return made
            return {index: wrap(index, function) for index, function in made.items()}

        def operates(name: str, params: Any, operands: Any, rows: Any, *, out: Any = None) -> Any:
            self._reads(operands, rows)
            return operate(name, params, operands, rows, out=out)

        patch.setattr(Prepared, "functions", watched)
        patch.setattr(row_operators, "run", operates)

    def _computes(self, index: int, read: list[tuple[int, Any]]) -> None:
        """A stage reads parameters, or the model's state."""
        call = CALL.get()
        # A call for a worker says whose it is: whoever has it made again may be in another interval's context.
        _, visit = _here()
        pair = (visit.number, visit.epoch) if call is None else (call.interval, call.epoch)
        for place, operand in read:
            self._tell("computes", *pair, index, place, fingerprint(operand))

    def _reads(self, operands: Any, rows: Any) -> None:
        """A graph operator reads; every operand that is a buffer, or a copy of rows of one, is looked at."""
        here = HERE.get()
        if here is None or here[1].epoch < 0:
            return
        server, visit = here
        number, epoch = visit.number, visit.epoch
        used = np.unique(rows.neighbours[rows.offsets[0] : rows.offsets[-1]])
        for operand in operands:
            array = operand if operand.base is None else operand.base
            for publication, buffer in server.changing_buffers():
                direction = server.context.plan.publications[publication].direction
                if array is buffer.rows:
                    places, found = used, array[used]
                elif array is visit.copies.get(publication):
                    places, found = np.array(server.shard.unique_sources(visit.interval)), np.array(array)
                else:
                    continue
                where = server.shard.server, (number, epoch), publication
                self._tell("reads", *where, direction=direction, places=places, rows=found)
            for step, merge in server.merges.items():
                if array is merge.rows:
                    received = used[used >= server.shard.merge().starts[-1]] - server.shard.merge().starts[-1]
                    epochs = merge.received_epochs[received]
                    where = server.shard.server, number, epoch
                    self._tell("reads_sums", *where, step=step, places=used, rows=array[used], epochs=epochs)


def draw_gates(seed: int, share: float, patch: pytest.MonkeyPatch | None = None) -> None:
    """Opens the stability gate of about this share of the versions, drawn by their numbers: the same on every server."""
    measured = StabilityGate.after

    def drawn(gate: StabilityGate, last: Stability, *update: Any) -> Stability:
        new = measured(gate, last, *update)
        return new._replace(open=np.bool_(Random(repr((seed, int(new.seen)))).random() < share))

    (pytest.MonkeyPatch() if patch is None else patch).setattr(StabilityGate, "after", drawn)


def _here() -> tuple[GraphServer, IntervalPass]:
    here = HERE.get()
    assert here is not None
    return here


def _leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
