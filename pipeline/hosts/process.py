"""The process of a host, which `processes` or `ray` starts.

A plain process reads its spec from its standard input, writes a line with its endpoint to its standard output, and ends with
status 0 at the driver's request. An error is another line. The end of the input ends the process too: the driver is gone, or
has closed the run. The process then has some seconds to remove its files, whatever it computes. The driver copies
its standard error, with the host's name before each line. SIGTERM is the notice that the host will vanish: its servers leave
it between two epochs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, final

from dorylax.errors import DorylaxError
from dorylax.pipeline.hosts.launcher import HostError
from dorylax.pipeline.places import place_of
from dorylax.processes import begin, call_this_process, leave_with_owner, private_streams

LENGTH_BYTES = 8
"""Of the number that says how long the spec is."""


def main() -> None:
    """Run the host that the standard input describes."""
    begin("dorylax host")
    requests, answers = private_streams()
    content = requests.read(int.from_bytes(requests.read(LENGTH_BYTES), "big"))
    gone: Future[None] = Future()
    leave_with_owner(requests.fileno(), lambda: gone.set_result(None))

    def say(**line: Any) -> None:
        answers.write(json.dumps(line).encode() + b"\n")
        answers.flush()

    try:
        live(content, lambda endpoint: say(endpoint=endpoint), gone=gone)
    except BaseException as error:
        say(error=dataclasses.asdict(Failure.of(error)))
        os._exit(1)  # without waiting for threads, which may compute
    os._exit(0)


@final
@dataclasses.dataclass(frozen=True)
class Failure:
    """The description of the error that ends a host.

    Attributes:
        text: the error, in one line.
        place: its place (`note_place`); None where only the host is known.
        user_error: see `HostError`.
        frames: the traceback; None where there was no exception.
    """

    text: str
    place: str | None = None
    user_error: bool = False
    frames: str | None = None

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The description of an uncaught exception."""
        ours = isinstance(error, DorylaxError)
        text = " ".join(str(error).split())
        return cls(
            text if ours else f"{type(error).__name__}: {text}",
            place_of(error),
            bool(getattr(error, "user_error", ours and isinstance(error, ValueError))),
            "".join(traceback.format_exception(error)),
        )

    def error(self, name: str, where: str = "") -> HostError:
        """The error for the driver.

        Args:
            name: of the host.
            where: its node, such as " on node 10.0.0.1".
        """
        place = self.place or name
        return HostError(f"{place}{where}: {self.text}", user_error=self.user_error, frames=self.frames)


def live(
    content: bytes, ready: Callable[[str], None], *, host: str | None = None, gone: Future[None] | None = None
) -> None:
    """Run a host until its end.

    Args:
        content: result of `HostSpec.to_bytes`.
        ready: called with the endpoint when the host listens.
        host: the address of its node, if that is not the driver's.
        gone: done when the driver is gone; None where something else ends the process then.
    """
    # Late: these take a second to import, and the end of the driver must be seen meanwhile.
    from dorylax.clock import RealClock
    from dorylax.machine import cores
    from dorylax.pipeline.hosts.host import Host
    from dorylax.pipeline.hosts.spec import HostSpec
    from dorylax.pipeline.resources import cores_of_host

    spec = HostSpec.from_bytes(content)
    if gone is not None:
        call_this_process(f"dorylax host {spec.number}")
    run = spec.run if host is None else dataclasses.replace(spec.run, host=host)
    logging.basicConfig()
    logging.getLogger("dorylax").setLevel(run.log_level)
    with RealClock(one_core=cores_of_host(run.config, cores()) == 1) as clock:

        async def life() -> None:
            transport = run.open_transport(clock)
            with contextlib.ExitStack() as cleanup:
                cleanup.callback(transport.close)
                lives = Host(spec.number, dataclasses.replace(spec, run=run), clock, transport)
                cleanup.callback(lives.close)
                if gone is not None:
                    # The agent of a preemptible node sends SIGTERM after a notice.
                    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lives.notice)
                    gone.add_done_callback(_in_loop(asyncio.get_running_loop(), lives.end))
                ready(transport.endpoint)
                await lives.ended

        clock.run(life())


@final
class RayHost:
    """A host in a Ray actor. `begin` starts it; `run` returns at its end, with a `Failure` as a dictionary or None."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._problem: dict[str, Any] | None = None

    def begin(self, name: str, content: bytes) -> tuple[str, dict[str, Any] | None]:
        """Start the host; return its endpoint and a failure.

        Args:
            name: Name of the host in the node's logs.
            content: Result of `HostSpec.to_bytes`.
        """
        from dorylax.ray_cluster.connection import node_address

        # Into the node's log, which several hosts share.
        logging.basicConfig(format=f"{name}: {logging.BASIC_FORMAT}")
        told: queue.SimpleQueue[str] = queue.SimpleQueue()

        def life() -> None:
            try:
                live(content, told.put, host=node_address())
            except BaseException as error:
                self._problem = dataclasses.asdict(Failure.of(error))
            self._ended.set()
            told.put("")

        threading.Thread(target=life, name="host", daemon=True).start()
        endpoint = told.get()
        return endpoint, None if endpoint else self._problem or {"text": "it ended"}

    def run(self) -> dict[str, Any] | None:
        """Wait for the end of the host."""
        self._ended.wait()
        return self._problem


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> Callable[[Future[None]], None]:
    """A callback that makes a call in a loop, from another thread, unless the loop has ended."""

    def callback(_: Future[None]) -> None:
        with contextlib.suppress(RuntimeError):  # a host that fails while its driver goes: its loop is closed
            loop.call_soon_threadsafe(call)

    return callback
