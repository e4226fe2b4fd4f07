"""`inline`: tensor tasks run in this process, on separate threads, or in the event loop on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from dorylax.clock import Clock, Duration
from dorylax.cost import TimeModel
from dorylax.cost.machines import WarmPool
from dorylax.cost.time_model import Streamed
from dorylax.program.tasks.stage_calls import call
from dorylax.serverless.task import TensorResult, TensorTask, parts_of


@final
class InlineBackend:
    """Runs tasks in this process.

    Args:
        functions: Function of each stage by its number: `(*operands) -> results`.
        clock: Clock of the run.
        slots: Concurrent tasks per graph server.
        num_servers: Number of graph servers.
        times: Time model of the virtual clock; None on the real clock.
        streaming: On the virtual clock: whether functions compute on the first half of the rows during the second transfer.
    """

    def __init__(
        self,
        functions: Mapping[int, Callable[..., Sequence[Any]]],
        clock: Clock,
        *,
        slots: int,
        num_servers: int,
        times: TimeModel | None,
        streaming: bool = False,
    ) -> None:
        self._functions, self._clock = functions, clock
        self._workers = [clock.workers(f"tensor {server}", slots) for server in range(num_servers)]
        self._times, self._streaming = times, streaming

    async def run(self, task: TensorTask, attempt: int) -> TensorResult:
        """See `Backend`. Only the stage itself can fail."""
        function = self._functions[task.key.stage]
        order = (*task.key, attempt) if attempt else task.key
        seconds: Duration = 0.0
        environments: WarmPool | None = None
        if (times := self._times) is not None:
            if times.machines is not None:
                environments = times.machines.environments(task.server)
            _, (*_, last) = parts_of(task, streaming=self._streaming)
            share = last / task.count if last < task.count else 0.0
            seconds = times.tensor_task(
                order,
                flops=task.flops,
                bytes_in=task.bytes_in,
                bytes_out=task.bytes_out,
                streamed=Streamed(share * task.row_bytes_in, share * task.flops),
                server=task.server,
                requests=task.requests,
                elementwise=task.elementwise,
                cold=environments is not None and environments.begin(self._clock.now()),
            )

        def work() -> tuple[Any, ...]:
            return call(function, task.sources, task.operands, task.count, task.size)

        try:
            timed = await self._workers[task.server].run(work, seconds=seconds, order=order, effort=task.effort)
        finally:
            if environments is not None:
                environments.end(self._clock.now())
        return TensorResult(timed.value, timed.start, timed.end)

    async def warm(self) -> None:
        """See `Backend`; the threads are the clock's."""

    def close(self) -> None:
        """See `Backend`; the threads are the clock's."""
