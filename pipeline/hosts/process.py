"""A host's process: `python -m dorylax.pipeline.hosts.process`, started by `processes`.

It reads its spec from its standard input, writes a line with its endpoint to its standard output, and ends when the driver
says so, with status 0. What goes wrong is another line. When its input ends, so does it: the driver is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from dorylax.parent_death import end_with_parent

LENGTH_BYTES = 8
"""Of the number that says how long the spec is."""


def main() -> None:
    """Lives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides when it ends; Ctrl-C goes to all processes
    end_with_parent()
    requests, answers = _private_streams()
    content = requests.read(int.from_bytes(requests.read(LENGTH_BYTES), "big"))
    threading.Thread(target=_end_with, args=(requests,), name="driver", daemon=True).start()

    def say(**line: Any) -> None:
        answers.write(json.dumps(line).encode() + b"\n")
        answers.flush()

    try:
        live(content, lambda endpoint: say(endpoint=endpoint))
    except BaseException as error:
        traceback.print_exc()
        say(error=f"{type(error).__name__}: {error}")
        os._exit(1)  # without waiting for threads, which may compute
    os._exit(0)


def live(content: bytes, ready: Callable[[str], None], *, host: str | None = None) -> None:
    """The life of a host, wherever it is.

    Args:
        content: what `HostSpec.to_bytes` gave.
        ready: told of its endpoint when it listens.
        host: of tcp: the address to listen on, where that is another one than the driver's.
    """
    # Late: these take a second to import, and the end of the driver must be seen meanwhile.
    from dorylax.clock import RealClock
    from dorylax.pipeline.hosts.members import GraphMember, Member, ParameterMember
    from dorylax.pipeline.hosts.spec import HostSpec
    from dorylax.pipeline.transport.zeromq import ZeroMqTransport

    spec = HostSpec.from_bytes(content)
    with RealClock() as clock:

        async def life() -> None:
            run = spec.run
            transport = ZeroMqTransport(
                run.keys, run.transport, host=host or run.host, codec=run.codec(), spawn=clock.spawn
            )
            with contextlib.ExitStack() as cleanup:
                cleanup.callback(transport.close)
                members: list[Member] = []
                for one in spec.members:
                    kind = GraphMember if one.role == "graph" else ParameterMember
                    members.append(kind(one, run, clock, transport))
                    cleanup.callback(members[-1].close)
                ready(transport.endpoint)
                for member in members:
                    await member.ended

        clock.run(life())


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for the driver alone; what is printed goes to the standard error."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    sys.stdout.flush()
    os.dup2(2, 1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return requests, answers


def _end_with(requests: BinaryIO) -> None:
    requests.read()
    os._exit(0)


if __name__ == "__main__":
    main()
