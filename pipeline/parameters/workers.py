"""Where parameter servers compute: a thread for each, for as long as the model of their cost says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, final

from dorylax.clock import Clock, Duration
from dorylax.cost import TimeModel
from dorylax.pipeline.parameters.messages import ServerState
from dorylax.pipeline.places import note_place
from dorylax.pipeline.recorder import Recorder

T = TypeVar("T")


@final
class ParameterWorkers:
    """See `endpoint.Compute`.

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
        """See `endpoint.Compute`."""
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
