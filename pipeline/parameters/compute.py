"""Where parameter servers compute: in place, or on a thread each."""

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
                `(version, PREDICT, ahead)` of `endpoint`.
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
class ParameterWorkers:
    """A thread for each server, for as long as the model of its cost says: see `Compute`.

    Args:
        num_servers: how many compute.
        clock: where their workers come from.
        times: how long updates take in virtual time; None on the real clock.
        recorder: told of what was computed.
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
