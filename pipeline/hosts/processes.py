"""Hosts as plain processes on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from subprocess import PIPE
from typing import IO, final

from dorylax.pipeline.hosts.launcher import HostError, OnEnd
from dorylax.pipeline.hosts.process import LENGTH_BYTES, Failure
from dorylax.pipeline.hosts.spec import HostSpec
from dorylax.processes import has_ended, signal_name, start

_MODULE = "dorylax.pipeline.hosts.process"
_PRELOAD = (
    _MODULE,
    *(f"dorylax.pipeline.hosts.{name}" for name in ("host", "spec")),
    "dorylax.serverless.backends.remote",
    "dorylax.serverless.backends.local.pool",
    "flax.nnx",
)
_READ_BYTES = 1 << 16
_PATIENCE_SECONDS = 5.0  # for a process to end


@final
class ProcessLauncher:
    """See `Launcher`.

    Args:
        threads: threads of XLA in each host, by default as many as the machine has cores, which all hosts share.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    async def launch(self, specs: Sequence[HostSpec], on_end: OnEnd) -> Processes:
        """See `Launcher`."""
        launched = Processes(specs, self._threads, on_end)
        try:
            await launched.start(range(len(specs)))
        except BaseException:
            launched.close()
            raise
        return launched


@final
class Processes:
    """See `Launched`."""

    def __init__(self, specs: Sequence[HostSpec], threads: int, on_end: OnEnd) -> None:
        self._names, self._on_end = [one.name for one in specs], on_end
        self._specs = [one.to_bytes() for one in specs]
        self._environment = {"NPROC": str(threads), **os.environ}  # for XLA; a user's value comes first
        self._processes: dict[int, _Process] = {}
        self.endpoints = [""] * len(specs)

    async def start(self, numbers: Sequence[int]) -> None:
        """Start hosts, and wait until all of them listen.

        Raises:
            HostError: a host failed.
        """
        begun = []
        for number in numbers:
            process = _Process(self._names[number], self._environment, self._told_end(number))
            self._processes[number] = process
            begun.append(process)
        await asyncio.gather(
            *(asyncio.to_thread(self._processes[number].give, self._specs[number]) for number in numbers)
        )
        for number, endpoint in zip(
            numbers, await asyncio.gather(*(process.endpoint for process in begun)), strict=True
        ):
            self.endpoints[number] = endpoint

    async def replace(self, numbers: Sequence[int]) -> None:
        """See `Launched`."""
        for number in numbers:
            if (process := self._processes.pop(number, None)) is not None:  # None after a failed start
                process.kill()
        await self.start(numbers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the hosts."""
        return [self._processes[number].pid for number in sorted(self._processes)]

    def close(self) -> None:
        """See `Launched`."""
        processes, self._processes = list(self._processes.values()), {}
        for process in processes:
            process.tell_end()
        for process in processes:
            process.wait_end()

    def _told_end(self, number: int) -> Callable[[HostError], None]:
        return lambda error: self._on_end(number, error)


@final
class _Process:
    """The process of one host.

    Attributes:
        endpoint: its endpoint, once it listens; fails if it ends before.
    """

    def __init__(self, name: str, environment: Mapping[str, str], on_end: Callable[[HostError], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._name, self._on_end = name, on_end
        self._said = b""
        self._ended = False  # or its end is no longer reported
        self.endpoint: asyncio.Future[str] = self._loop.create_future()
        try:
            self._process = start(f"{_MODULE}:main", environment, preload=_PRELOAD, stderr=PIPE)
        except OSError as error:
            raise HostError(f"{name} cannot be started: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._relay = threading.Thread(target=_relay, args=(name, self._process.stderr), name=name, daemon=True)
        self._relay.start()
        os.set_blocking(self._output.fileno(), False)
        self._loop.add_reader(self._output.fileno(), self._hear)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def give(self, spec: bytes) -> None:
        """Write the spec, as fast as the host reads."""
        with contextlib.suppress(BrokenPipeError):  # the host has ended, and has said why
            left = memoryview(len(spec).to_bytes(LENGTH_BYTES, "big") + spec)
            while left:
                left = left[self._input.write(left) :]

    def kill(self) -> None:
        """Kill the host."""
        self._process.kill()
        self.tell_end()
        self.wait_end()

    def tell_end(self) -> None:
        """Ask the host to end, and report its end no more."""
        self._ended = True
        if self.endpoint.done():
            if not self.endpoint.cancelled():
                self.endpoint.exception()  # perhaps without a reader so far
        else:
            self.endpoint.cancel()
        if not self._loop.is_closed() and not self._output.closed:
            self._loop.remove_reader(self._output.fileno())
        self._input.close()  # the sign for it to end

    def wait_end(self) -> None:
        """Wait for its end, and kill the host if that takes too long."""
        if not has_ended(self._process, _PATIENCE_SECONDS):
            self._process.kill()
            self._process.wait()
        self._output.close()
        self._relay.join(_PATIENCE_SECONDS)

    def _hear(self) -> None:
        content = os.read(self._output.fileno(), _READ_BYTES)
        *lines, self._said = (self._said + content).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "endpoint" in told:
                self.endpoint.set_result(told["endpoint"])
            else:
                self._end(Failure(**told["error"]).error(self._name))
        if not content:
            self._loop.remove_reader(self._output.fileno())
            self._end(HostError(f"{self._name}: {_how(self._process.wait())}", lost=True))

    def _end(self, error: HostError) -> None:
        if self._ended:
            return
        self._ended = True
        if self.endpoint.done():
            self._on_end(error)
        else:
            self.endpoint.set_exception(error)


def _how(status: int) -> str:
    """A sentence on the end of a process."""
    return f"its process {f'ended with status {status}' if status >= 0 else f'was ended by {signal_name(-status)}'}"


def _relay(name: str, pipe: IO[bytes]) -> None:
    """Copy the standard error of a host line by line, with its name before each."""
    with io.BufferedReader(pipe) as lines:  # type: ignore[type-var]
        for line in lines:
            with contextlib.suppress(OSError, ValueError):  # the reader has gone
                print(f"{name}: {line.decode(errors='replace').rstrip()}", file=sys.stderr, flush=True)
