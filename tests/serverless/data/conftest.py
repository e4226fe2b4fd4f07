"""Servers that must leave nothing behind, and a peer that sends arbitrary messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import zmq
from support import leftovers

from dorylax.serverless.data import admission, messages
from dorylax.serverless.data.client import DataClient
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.messages import Header, Tensors
from dorylax.serverless.data.server import DataServer

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
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def servers(nothing_left: Path) -> Iterator[Callable[..., DataServer]]:
    """Makes servers that are closed after the test."""
    made: list[DataServer] = []

    def make(keys: RunKeys, **options: object) -> DataServer:
        made.append(DataServer(keys, **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def server(servers: Callable[..., DataServer], keys: RunKeys, transport: str) -> DataServer:
    return servers(keys, transport=transport)


@pytest.fixture
def client(nothing_left: Path, keys: RunKeys) -> Iterator[DataClient]:
    with DataClient(RunKeys.from_json(keys.to_json()), timeout=30.0) as client:
        yield client


class Peer:
    """A socket that has the run's keys and sends what it is told."""

    def __init__(self, keys: RunKeys, address: str) -> None:
        self.run = keys.run
        self.context: zmq.Context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        admission.identify(self.socket, keys, address)
        self.socket.connect(address)

    def say(self, kind: str, text: str, number: int = 1, arrays: Sequence = (), run: str | None = None) -> None:
        outgoing = Tensors.of(arrays, messages.MAX_BYTES)
        head = Header(self.run if run is None else run, kind, number, text, outgoing.specs).encode()
        self.send([head, *outgoing.frames])

    def send(self, parts: Sequence) -> None:
        self.socket.send_multipart(parts)

    def hear(self) -> Header:
        """The header of the next message."""
        assert self.socket.poll(WAIT_MS), "no answer"
        return messages.decode_header(self.socket.recv_multipart()[0])

    def close(self) -> None:
        self.socket.close()
        self.context.term()


@pytest.fixture
def peers(nothing_left: Path) -> Iterator[Callable[[RunKeys, str], Peer]]:
    made: list[Peer] = []

    def make(keys: RunKeys, address: str) -> Peer:
        made.append(Peer(keys, address))
        return made[-1]

    yield make
    for peer in made:
        peer.close()
