"""Hosts as plain processes on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any, final

from dorylax.pipeline.hosts.launcher import HostError
from dorylax.pipeline.hosts.process import LENGTH_BYTES, Failure

_MODULE = "dorylax.pipeline.hosts.process"
_READ_BYTES = 1 << 16
_PATIENCE_SECONDS = 5.0  # for a process that was told to end


@final
class ProcessLauncher:
    """See `Launcher`.

    Args:
        threads: that XLA computes with in each host: each would have as many as the machine has cores, which all share.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    async def launch(self, names: Sequence[str], specs: Sequence[bytes]) -> Processes:
        """See `Launcher`."""
        launched = Processes(names, self._threads)
        try:
            await launched.start(specs)
        except BaseException:
            launched.close()
            raise
        return launched


@final
class Processes:
    """See `Launched`."""

    def __init__(self, names: Sequence[str], threads: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._names = names
        self._environment = {"NPROC": str(threads), **os.environ}  # XLA reads it; whoever has set it knows better
        self._processes: list[subprocess.Popen[bytes]] = []
        self._relays: list[threading.Thread] = []
        self._said: list[bytes] = [b""] * len(names)
        self._ready: list[asyncio.Future[str]] = [self._loop.create_future() for _ in names]
        self._closing = False
        self.endpoints: Sequence[str] = ()
        self.failed: asyncio.Future[None] = self._loop.create_future()

    async def start(self, specs: Sequence[bytes]) -> None:
        """Starts them all, and waits until they listen."""
        for number, _ in enumerate(specs):
            try:
                # A session of its own: Ctrl-C in a terminal is the driver's.
                process = subprocess.Popen(
                    [sys.executable, "-m", _MODULE],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                    env=self._environment,
                )
            except OSError as error:
                raise HostError(f"{self._names[number]} cannot be started: {error}") from error
            self._processes.append(process)
            assert process.stdout is not None
            assert process.stderr is not None
            relay = threading.Thread(
                target=_relay, args=(self._names[number], process.stderr), name=self._names[number], daemon=True
            )
            relay.start()
            self._relays.append(relay)
            os.set_blocking(process.stdout.fileno(), False)
            self._loop.add_reader(process.stdout.fileno(), self._hear, number)
        await asyncio.gather(*(asyncio.to_thread(self._give, number, spec) for number, spec in enumerate(specs)))
        while waiting := [future for future in self._ready if not future.done()]:
            both: list[asyncio.Future[Any]] = [*waiting, self.failed]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self.failed.done():
                self.failed.result()
        self.endpoints = [future.result() for future in self._ready]

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self._processes]

    def close(self) -> None:
        """See `Launched`."""
        self._closing = True
        if not self.failed.done():
            self.failed.cancel()
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            if not self._loop.is_closed() and not process.stdout.closed:
                self._loop.remove_reader(process.stdout.fileno())
            process.stdin.close()  # which it takes as its end
        for process in self._processes:
            try:
                process.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        for relay in self._relays:
            relay.join(_PATIENCE_SECONDS)
        self._processes.clear()

    def _give(self, number: int, spec: bytes) -> None:
        pipe = self._processes[number].stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, and says why
            left = memoryview(len(spec).to_bytes(LENGTH_BYTES, "big") + spec)
            while left:
                left = left[pipe.write(left) :]

    def _hear(self, number: int) -> None:
        pipe = self._processes[number].stdout
        assert pipe is not None
        content = os.read(pipe.fileno(), _READ_BYTES)
        *lines, self._said[number] = (self._said[number] + content).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "endpoint" in told:
                self._ready[number].set_result(told["endpoint"])
            else:
                self._fail(Failure(**told["error"]).error(self._names[number]))
        if not content:
            self._loop.remove_reader(pipe.fileno())
            status = self._processes[number].wait()
            self._fail(HostError(f"{self._names[number]}: its process ended with status {status}"))

    def _fail(self, error: HostError) -> None:
        if not self._closing and not self.failed.done():
            self.failed.set_exception(error)


def _relay(name: str, pipe: IO[bytes]) -> None:
    """Passes on what a host writes to its standard error, line by line, with its name before it."""
    with io.BufferedReader(pipe) as lines:  # type: ignore[type-var]
        for line in lines:
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                print(f"{name}: {line.decode(errors='replace').rstrip()}", file=sys.stderr, flush=True)
