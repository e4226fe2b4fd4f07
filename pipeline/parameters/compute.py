"""The workers of parameter servers: the event loop, or one thread each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, final, runtime_checkable

from dorylax.clock import Clock, Duration
from dorylax.cost import TimeModel
from dorylax.pipeline.parameters.records import ServerState
from dorylax.pipeline.places import note_place
from dorylax.pipeline.recorder import Recorder

T = TypeVar("T")


@runtime_checkable
class Compute(Protocol):
    """Runs the computations of parameter servers: in place, on threads, or in virtual time."""

    async def __call__(
        self, server: int, kind: str, work: Callable[[], T], num_bytes: int, order: tuple[int, ...], *, epoch: int
    ) -> T:
        """Run a computation of a parameter server, and return its result.

        Args:
            server: The number of the server.
            kind: "finish" (a complete gradient), "update" (an optimizer step) or "predict" (later weights).
            work: The computation. It must not use data that other tasks change.
            num_bytes: The bytes of the parameters.
            order: A key that is unique on the server, of `endpoint`: `(epoch, FINISH, interval)`, `(version, APPLY)` or
                `(version, PREDICT, ahead)`.
            epoch: The epoch that the computation belongs to.
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
    """Run the computation on the event loop."""
    return work()


@final
class ParameterWorkers:
    """One worker of the clock per server: a thread, or virtual time from a cost model. See `Compute`.

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
        """See `Compute`."""
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
