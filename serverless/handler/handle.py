"""The handler: decodes an event, fetches operands, computes, delivers results, and returns a summary.

It is the same in a worker process, on a Ray cluster, in the emulator and on Lambda. It delivers the results to the servers
before it returns.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import wait
from typing import Literal, final

import numpy as np

from dorylax.net.errors import TaskFailedError, WireError
from dorylax.serverless.handler.compute import Inputs, Results, compute_part
from dorylax.serverless.handler.sandbox import Arrays, Sandbox
from dorylax.serverless.wire import names
from dorylax.serverless.wire.event import Answer, Event

_log = logging.getLogger("dorylax.handler")

Phase = Literal["pull", "compute", "push"]


def handle(event: bytes, sandbox: Sandbox) -> bytes:
    """Run the task of an event. Never raises.

    Args:
        event: Encoded `wire.Event`.
        sandbox: State between calls.

    Returns:
        Encoded `wire.Answer`. It describes errors, with `retry` for lost data. Errors of the stage or the event are final.
    """
    try:
        decoded = Event.decode(event)
    except WireError as error:
        _log.warning("an event is refused: %s", error)
        return Answer.unread(f"the event is refused: {error}").encode()
    call = _Call(decoded, sandbox)
    failure, retry = None, False
    cold = sandbox.first_call()
    try:
        call.run()
    except Exception as error:
        retry = isinstance(error, TaskFailedError)
        failure = str(error) if retry else f"{type(error).__name__}: {error}"
    return Answer(
        run=decoded.run,
        key=decoded.key,
        attempt=decoded.attempt,
        error=failure,
        retry=retry,
        cold=cold,
        pull_seconds=call.seconds["pull"],
        compute_seconds=call.seconds["compute"],
        push_seconds=call.seconds["push"],
        bytes_in=call.bytes_in,
        bytes_out=call.bytes_out,
    ).encode()


@final
class _Call:
    """One call of the handler with the times of its phases. Fetching during a computation takes no extra time."""

    def __init__(self, event: Event, sandbox: Sandbox) -> None:
        self._event, self._sandbox = event, sandbox
        self.seconds: dict[Phase, float] = {"pull": 0.0, "compute": 0.0, "push": 0.0}
        self.bytes_in = self.bytes_out = 0

    def run(self) -> None:
        event, sandbox = self._event, self._sandbox
        weights: Arrays = ()
        free: Arrays = ()
        with self._timed("pull"):
            stage, nbytes = sandbox.stage(event.graph, event.reference.sha256, event.artefact)
            self.bytes_in += nbytes
            if self._reads("weights"):
                weights, nbytes = sandbox.weights(event.parameters, event.version, event.ahead)
                self.bytes_in += nbytes
            if self._reads("free"):
                free = self._took(sandbox.data.get(event.graph, names.free(event.key)))
        results = Results(event.results)
        with contextlib.closing(self._rows()) as parts:
            for count in event.parts:
                with self._timed("pull"):
                    rows = next(parts)
                with self._timed("compute"):
                    results.add(compute_part(event, stage, Inputs(count, rows, free, weights)), count)
        with self._timed("push"):
            # Rows first, because other tasks wait for them; gradients can wait until the end of the epoch.
            self._put(event.graph, names.result_rows(event.key), results.of_graph_server())
            self._put(event.parameters, names.result_sums(event.key), results.of_parameter_server())

    def _reads(self, kind: str) -> bool:
        return any(source.source == kind for source in self._event.operands)

    def _rows(self) -> Generator[Arrays, None, None]:
        """Yield the rows of each part, and fetch the next part while the caller computes."""
        event, data = self._event, self._sandbox.data
        if not self._reads("rows"):
            yield from [()] * len(event.parts)
            return
        arrays = data.get(event.graph, names.rows(event.key, 0))
        for part in range(1, len(event.parts)):
            ahead = self._sandbox.get_ahead(event.graph, names.rows(event.key, part))
            try:
                yield self._took(arrays)
            finally:
                # Also after a failure: no transfer of this call may overlap with the next call.
                wait([ahead])
            arrays = ahead.result()
        yield self._took(arrays)

    def _took(self, arrays: Arrays) -> Arrays:
        self.bytes_in += sum(array.nbytes for array in arrays)
        return arrays

    def _put(self, address: str, name: str, arrays: Sequence[np.ndarray]) -> None:
        if arrays:
            self._sandbox.data.put(address, name, arrays)
            self.bytes_out += sum(array.nbytes for array in arrays)

    @contextlib.contextmanager
    def _timed(self, phase: Phase) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start
