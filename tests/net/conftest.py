"""Bound sockets of both kinds of trust that must leave nothing behind, and a peer that sends arbitrary messages."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zmq
from support import leftovers

from dorylax.net import frames
from dorylax.net.client import DataClient
from dorylax.net.errors import Refusals
from dorylax.net.keys import CLUSTER, WORKERS, Kind, RunKeys, Trust, identify
from dorylax.net.server import DataServer
from dorylax.net.sockets import Sockets

WAIT_MS = 30_000


@pytest.fixture
def nothing_left() -> Iterator[Path]:
    """Gives the folder of temporary files; checks afterwards that nothing is left of the test."""
    with leftovers.nothing_left() as folder:
        yield folder


@pytest.fixture
def keys() -> RunKeys:
    return RunKeys.make()


@pytest.fixture(params=["ipc", "tcp"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture(params=[CLUSTER, WORKERS], ids=["cluster", "workers"])
def trust(request: pytest.FixtureRequest) -> Trust:
    return request.param


@dataclasses.dataclass
class Echo:
    """Sockets on a thread of their own, of which one sends every message back that can be read."""

    keys: RunKeys
    trust: Trust
    sockets: Sockets
    refusals: Refusals
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    address: str
    peers: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack)

    @classmethod
    def start(cls, keys: RunKeys, trust: Trust, kind: Kind) -> Echo:
        loop, refusals = asyncio.new_event_loop(), Refusals()
        sockets = Sockets(keys, trust, kind, host="127.0.0.1", loop=loop, refusals=refusals)

        def take(peer: bytes, message: Sequence[frames.Buffer]) -> None:
            frames.opened(message)
            sockets.send(socket, [peer, *message])

        socket, address = sockets.bind("echo", "0", take)
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        return cls(keys, trust, sockets, refusals, loop, thread, address)

    def peer(self) -> Peer:
        """A peer with the right keys."""
        return self.peers.enter_context(contextlib.closing(Peer(self.keys, self.trust, self.address)))

    def close(self) -> None:
        """A second call does nothing, but for the peers."""
        self.peers.close()
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.sockets.close()
        self.loop.close()


@pytest.fixture
def echoes(nothing_left: Path) -> Iterator[Callable[[RunKeys, Trust, Kind], Echo]]:
    """Makes echoes that are closed after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *given: stack.enter_context(contextlib.closing(Echo.start(*given)))


@pytest.fixture
def echo(echoes: Callable[..., Echo], keys: RunKeys, trust: Trust, kind: Kind) -> Echo:
    return echoes(keys, trust, kind)


class Peer:
    """A connected socket, with the run's keys or without any, that sends what it is told."""

    def __init__(self, keys: RunKeys | None, trust: Trust, address: str) -> None:
        self.context: zmq.Context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        if keys is not None:
            identify(self.socket, keys, trust, address)
        self.socket.connect(address)

    def say(self, number: int = 1, who: Sequence[Any] = ("get",), name: Any = "n", arrays: Sequence = ()) -> None:
        self.send(frames.bundle([frames.letter(number, who, name, arrays)]))

    def send(self, parts: Sequence) -> None:
        with contextlib.suppress(zmq.Again):  # it may have been turned away already
            self.socket.send_multipart(parts, zmq.NOBLOCK)

    def hear(self, wait_ms: int = WAIT_MS) -> frames.Message | None:
        """The next message, or None if none comes."""
        if not self.socket.poll(wait_ms):
            return None
        (message,) = frames.opened(self.socket.recv_multipart()).messages
        return message

    def close(self) -> None:
        self.socket.close()
        self.context.term()


@pytest.fixture
def peers(nothing_left: Path) -> Iterator[Callable[..., Peer]]:
    with contextlib.ExitStack() as stack:
        yield lambda *given: stack.enter_context(contextlib.closing(Peer(*given)))


@pytest.fixture
def servers(nothing_left: Path) -> Iterator[Callable[..., DataServer]]:
    """Makes servers that are closed after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *given, **options: stack.enter_context(DataServer(*given, **options))


@pytest.fixture
def server(servers: Callable[..., DataServer], keys: RunKeys, kind: Kind) -> DataServer:
    return servers(keys, transport=kind)


@pytest.fixture
def client(nothing_left: Path, keys: RunKeys) -> Iterator[DataClient]:
    with DataClient(RunKeys.from_json(keys.to_json()), timeout=30.0) as client:
        yield client
