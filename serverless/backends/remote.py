"""Backend for remote sandboxes: offers a task's operands, invokes the handler, and collects the results.

Sandboxes exchange rows with the graph server's endpoint. They exchange weights and gradients with the parameter server's
endpoint. The `Invoker` decides where the handler runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from dorylax.clock import Clock
from dorylax.errors import RunError
from dorylax.net.errors import TaskFailedError, WireError
from dorylax.net.server import DataServer, Endpoint
from dorylax.program.artefact.stage_file import StageReference
from dorylax.program.tasks.stage_calls import cut
from dorylax.serverless.backends.base import Invoker
from dorylax.serverless.task import TaskKey, TensorResult, TensorTask, parts_of
from dorylax.serverless.wire import names
from dorylax.serverless.wire.event import Answer, Event

Arrays = tuple[np.ndarray, ...]

_ARRIVAL_SECONDS = 30.0
"""Timeout for acknowledged results to arrive from the data thread. They normally take milliseconds."""


@final
class RemoteBackend:
    """Backend whose handlers fetch and deliver tensors over the network.

    The operands of a task stay available until its last attempt ends, so a retry reads identical rows and weights. The
    first complete result counts, regardless of the attempt.

    Args:
        run: Id of the run.
        invoker: Invoker that calls the handler.
        data: Data server with the endpoints. `close` closes it.
        references: Reference from each stage to its artefact, keyed by stage number.
        artefacts: Artefact contents by SHA-256. The graph servers offer them.
        clock: Real-time clock.
        num_servers: Number of graph servers.
        num_parameter_servers: Number of parameter servers P; interval k belongs to server k mod P.
        timeout: Time limit per call in seconds.
        streaming: Whether to send rows in two halves.
        locate: Function that maps the SHA-256 of an artefact to a URL, or None if sandboxes fetch artefacts from the graph
            server.
    """

    def __init__(
        self,
        *,
        run: str,
        invoker: Invoker,
        data: DataServer,
        references: Mapping[int, StageReference],
        artefacts: Mapping[str, bytes],
        clock: Clock,
        num_servers: int,
        num_parameter_servers: int,
        timeout: float,
        streaming: bool,
        locate: Callable[[str], str] | None = None,
    ) -> None:
        self._run, self._invoker, self._data, self._clock = run, invoker, data, clock
        self._references, self._locate = references, locate
        self._timeout, self._streaming = timeout, streaming
        self._graph = [data.open(f"graph {k}") for k in range(num_servers)]
        self._parameters = [data.open(f"parameters {k}") for k in range(num_parameter_servers)]
        for sha256, content in artefacts.items():
            for endpoint in self._graph:
                endpoint.offer(names.artefact(sha256), [np.frombuffer(content, np.uint8)])
        self._open: dict[TaskKey, _Exchange] = {}
        self._weights: dict[
            tuple[Endpoint, str], int
        ] = {}  # (endpoint, name) -> number of exchanges that use these weights

    async def run(self, task: TensorTask, attempt: int) -> TensorResult:
        """See `Backend`."""
        exchange = self._open.get(task.key)
        if exchange is None:
            exchange = self._open[task.key] = self._begin(task)
        exchange.attempts += 1
        start = self._clock.now()
        try:
            error = await self._invoke(task, attempt, exchange)
            if not exchange.complete and error is None:
                # The sandbox had its acknowledgement, so the result is only in transit from the data thread.
                error = await self._arrival(task, exchange)
            if not exchange.complete:
                assert error is not None
                raise error
            values = exchange.values(task)
        finally:
            exchange.attempts -= 1
            if not exchange.attempts:
                self._end(task, exchange)
        return TensorResult(values, start, self._clock.now())

    async def warm(self) -> int | None:
        """See `Backend`."""
        try:
            return await self._invoker.warm()
        except TaskFailedError as error:
            if error.reason != "died":
                raise
            # Retry: a cluster may start workers on a lost node until it detects the loss, which it has done by now.
            return await self._invoker.warm()

    def close(self) -> None:
        """Close the sandboxes and the endpoints."""
        self._invoker.close()
        self._data.close()

    async def _invoke(self, task: TensorTask, attempt: int, exchange: _Exchange) -> Exception | None:
        """Call the handler and return its failure, or None after success."""
        event = Event(
            run=self._run,
            key=task.key,
            attempt=attempt,
            reference=self._references[task.key.stage],
            size=exchange.size,
            parts=exchange.parts,
            operands=task.sources,
            results=task.targets,
            version=task.version,
            ahead=task.ahead,
            graph=exchange.graph.address,
            parameters=exchange.parameters.address,
            artefact=None if self._locate is None else self._locate(self._references[task.key.stage].sha256),
        )
        encoded = event.encode()  # outside the try, because a retry would fail too
        try:
            answer = Answer.decode(await self._invoker.invoke(encoded, self._timeout))
        except (TaskFailedError, WireError) as error:
            return TaskFailedError(f"{_named(task)}: {error}", getattr(error, "reason", "failed"))
        problem = " ".join((answer.error or "").split())  # join the lines
        if answer.refused:
            return TaskFailedError(f"{_named(task)} was refused by its sandbox: {problem}")
        if (answer.run, answer.key, answer.attempt) != (self._run, task.key, attempt):
            return TaskFailedError(f"{_named(task)}: the answer is to {answer.key}, attempt {answer.attempt}")
        if answer.error is None:
            return None
        text = f"{_named(task)} failed in its sandbox: {problem}"
        return TaskFailedError(text) if answer.retry else RunError(text)

    async def _arrival(self, task: TensorTask, exchange: _Exchange) -> Exception | None:
        try:
            await asyncio.wait_for(exchange.all_there(), _ARRIVAL_SECONDS)
        except TimeoutError:
            return TaskFailedError(f"{_named(task)}: it was answered, but its results have not come")
        return None

    def _begin(self, task: TensorTask) -> _Exchange:
        """Offer the task's operands and register its expected results."""
        graph = self._graph[task.server]
        parameters = self._parameters[task.key.interval % len(self._parameters)]
        size, parts = parts_of(task, streaming=self._streaming)
        loop = asyncio.get_running_loop()
        exchange = _Exchange(graph, parameters, size, parts, loop)
        first = 0
        for part, count in enumerate(parts):
            rows = [
                cut(value, source.axis, source.factor, first, first + count)
                for value, source in zip(task.operands, task.sources, strict=True)
                if source.source == "rows"
            ]
            self._offer(exchange, graph, names.rows(task.key, part), rows)
            first += count
        free = _chosen(task, "free")
        self._offer(exchange, graph, names.free(task.key), free)
        if _chosen(task, "weights"):
            key = (parameters, names.weights(task.version, task.ahead))
            count = self._weights.get(key, 0)
            if not count:
                parameters.offer(key[1], [np.asarray(leaf) for leaf in task.weights])
            self._weights[key] = count + 1
        targets = {target.target for target in task.targets}
        for kind, endpoint, name in (
            ("rows", graph, names.result_rows(task.key)),
            ("sums", parameters, names.result_sums(task.key)),
        ):
            if kind in targets or (kind == "rows" and "free" in targets):
                exchange.expect(kind, endpoint, name)
        return exchange

    def _offer(self, exchange: _Exchange, endpoint: Endpoint, name: str, arrays: Sequence[Any]) -> None:
        if arrays:
            endpoint.offer(name, [np.asarray(array) for array in arrays])
            exchange.offered.append((endpoint, name))

    def _end(self, task: TensorTask, exchange: _Exchange) -> None:
        del self._open[task.key]
        for endpoint, name in exchange.offered:
            endpoint.withdraw(name)
        for endpoint, name in exchange.expected:
            endpoint.forget(name)
        if _chosen(task, "weights"):
            key = (exchange.parameters, names.weights(task.version, task.ahead))
            self._weights[key] -= 1
            if not self._weights[key]:
                del self._weights[key]
                exchange.parameters.withdraw(key[1])


@final
@dataclasses.dataclass(eq=False)
class _Exchange:
    """Offers and expected results at the endpoints for one task."""

    graph: Endpoint
    parameters: Endpoint
    size: int
    parts: tuple[int, ...]
    loop: asyncio.AbstractEventLoop
    attempts: int = 0
    offered: list[tuple[Endpoint, str]] = dataclasses.field(default_factory=list)
    expected: list[tuple[Endpoint, str]] = dataclasses.field(default_factory=list)
    results: dict[str, asyncio.Future[Arrays]] = dataclasses.field(default_factory=dict)

    def expect(self, kind: str, endpoint: Endpoint, name: str) -> None:
        future: asyncio.Future[Arrays] = self.loop.create_future()
        self.results[kind] = future
        self.expected.append((endpoint, name))

        def set_result(arrays: Arrays) -> None:
            if not future.done():
                future.set_result(arrays)

        def deliver(arrays: Arrays) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has closed with the run
                self.loop.call_soon_threadsafe(set_result, arrays)

        endpoint.expect(name, deliver)

    @property
    def complete(self) -> bool:
        return all(future.done() for future in self.results.values())

    async def all_there(self) -> None:
        for future in self.results.values():
            await asyncio.shield(future)

    def values(self, task: TensorTask) -> Arrays:
        """Return the results in the order of the stage's outputs.

        Raises:
            TaskFailedError: If the number of results or rows differs from the stage's.
        """
        kinds = ["sums" if target.target == "sums" else "rows" for target in task.targets]
        for kind, future in self.results.items():
            found, expected = len(future.result()), kinds.count(kind)
            if found != expected:
                raise TaskFailedError(f"{_named(task)}: {found} arrays of {kind} have come, it has {expected}")
        arrays = {kind: iter(future.result()) for kind, future in self.results.items()}
        values = tuple(next(arrays[kind]) for kind in kinds)
        for value, target in zip(values, task.targets, strict=True):
            if target.target != "rows":
                continue
            length = value.shape[target.axis] if value.ndim > target.axis else 0
            if length != task.count * target.factor:
                raise TaskFailedError(
                    f"{_named(task)}: {length} rows have come in a result of {task.count * target.factor}"
                )
        return values


def _chosen(task: TensorTask, kind: str) -> list[Any]:
    return [value for value, source in zip(task.operands, task.sources, strict=True) if source.source == kind]


def _named(task: TensorTask) -> str:
    key = task.key
    return f"tensor task of stage {key.stage}, interval {key.interval}, epoch {key.epoch}"
