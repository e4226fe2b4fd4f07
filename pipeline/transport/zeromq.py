"""The transport between processes: requests over ZeroMQ, encrypted by the run's keys where they leave the machine.

Every process has one socket that answers (ROUTER) and one for each process that it asks (DEALER). A message is

    number of the request, 8 bytes | JSON: what is asked, of whom, and the shapes of its arrays | array …

and so is its reply. What is lost on a broken connection is asked again, with the same number, which the receiver does not
begin twice. Sockets are served by the loop of the clock: a message that has come waits for no other thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import zmq

from dorylax.pipeline.transport.base import Address, RequestHandler
from dorylax.pipeline.transport.codec import Codec
from dorylax.serverless.data import admission
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.socket_folder import make_socket_folder
from dorylax.serverless.wire.tensors import TensorSpec, bytes_of, spec_of, travelling

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Makes a task of a coroutine, and stops the run if it fails: `Clock.spawn`."""

Socket = zmq.Socket[bytes]

ASK_AGAIN_SECONDS = 20.0
"""After which a request without an answer is sent again: it, or its answer, may have gone down with a connection."""

_HEARTBEAT_MS = 5_000
_NUMBER_BYTES = 8
_COPIED_BYTES = 1 << 16  # below this ZeroMQ copies an array: cheaper than keeping it alive


@final
class ZeroMqTransport:
    """Delivers at least once, to handlers in this process or in others.

    Made, used and closed by the thread of one loop.

    Args:
        keys: of the run; the servers' copy.
        kind: "ipc", between processes of this machine; "tcp", encrypted.
        host: of tcp: the address of the interface that is listened on, by which the others find this process.
        codec: of payloads.
        spawn: makes tasks.

    Attributes:
        endpoint: where others reach this process.
        bytes_sent: of arrays, in requests and replies.
    """

    def __init__(
        self, keys: RunKeys, kind: Literal["ipc", "tcp"], *, host: str = "127.0.0.1", codec: Codec, spawn: Spawn
    ) -> None:
        self._keys, self._codec, self._spawn = keys, codec, spawn
        self._loop = asyncio.get_running_loop()
        self._handlers: dict[Address, RequestHandler] = {}
        self._peers: dict[Address, _Peer] = {}
        self._by_endpoint: dict[str, _Peer] = {}
        self._answering: set[tuple[bytes, bytes]] = set()
        self._readers: dict[Socket, Callable[[], None]] = {}
        self.bytes_sent = 0
        self._folder: Path | None = make_socket_folder() if kind == "ipc" else None
        self._context: zmq.Context[Socket] = zmq.Context()
        self._door = self._context.socket(zmq.ROUTER)
        self._door.bind(admission.ZAP_ADDRESS)
        self._router = self._socket(zmq.ROUTER)
        admission.protect(self._router, keys, kind)
        self._router.bind(f"tcp://{host}:*" if kind == "tcp" else f"ipc://{self._folder}/0")
        self.endpoint = str(self._router.get_string(zmq.LAST_ENDPOINT))
        self._listen(self._door, self._admit)
        self._listen(self._router, self._answer)

    def register(self, address: Address, handler: RequestHandler) -> None:
        """See `Transport`."""
        self._handlers[address] = handler

    def connect(self, peers: Mapping[Address, str]) -> None:
        """Says at which endpoints the addresses of other processes are."""
        for address, endpoint in peers.items():
            if endpoint == self.endpoint:
                continue
            if endpoint not in self._by_endpoint:
                self._by_endpoint[endpoint] = peer = _Peer(self._dealer(endpoint))
                self._listen(peer.socket, peer.take)
            self._peers[address] = self._by_endpoint[endpoint]

    async def request(
        self,
        sender: Address,
        receiver: Address,
        kind: str,
        payload: Any,
        *,
        num_bytes: int,  # noqa: ARG002
        order: tuple[int, ...],  # noqa: ARG002
    ) -> Any:
        """See `Transport`. An answer is waited for as long as the run goes on: whether the peer lives is known elsewhere.

        Raises:
            LookupError: nobody is registered there.
            CodecError: the payload cannot travel.
        """
        if receiver in self._handlers:
            return await self._handlers[receiver].handle(kind, payload, sender)
        try:
            peer = self._peers[receiver]
        except KeyError:
            raise LookupError(
                f"nobody is registered as {receiver.role} server {receiver.index} to answer {kind!r}"
            ) from None
        document, arrays = self._codec.encode(payload)
        who = [kind, sender.role, sender.index, receiver.role, receiver.index]
        message = self._frames(who, document, arrays)
        number = next(peer.numbers).to_bytes(_NUMBER_BYTES, "big")
        answer: asyncio.Future[list[zmq.Frame]] = self._loop.create_future()
        peer.waiting[number] = answer
        try:
            while not answer.done():
                self._send(peer.socket, [number, *message])
                await asyncio.wait([answer], timeout=ASK_AGAIN_SECONDS)
        finally:
            del peer.waiting[number]
        _, document, found = _opened(answer.result())
        return self._codec.decode(document, found)

    def close(self) -> None:
        """Closes all sockets; what was not sent is lost. A second call does nothing."""
        for socket in (self._router, self._door, *(peer.socket for peer in self._by_endpoint.values())):
            if not socket.closed:
                if not self._loop.is_closed():
                    self._loop.remove_reader(socket.fileno())
                socket.close(linger=0)
        self._context.term()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _socket(self, kind: int) -> Socket:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = 0  # intervals wait for their answers, which bounds what is on its way
        socket.heartbeat_ivl = _HEARTBEAT_MS
        return socket

    def _dealer(self, endpoint: str) -> Socket:
        socket = self._socket(zmq.DEALER)
        admission.identify(socket, self._keys, endpoint)
        socket.connect(endpoint)
        return socket

    def _listen(self, socket: Socket, take: Callable[[list[zmq.Frame]], None]) -> None:
        """Has the loop call `take` with every message. ZeroMQ's descriptor tells of changes alone, so all are read."""

        def read() -> None:
            with contextlib.suppress(zmq.Again):
                while not socket.closed:
                    take(socket.recv_multipart(zmq.NOBLOCK, copy=False))

        self._loop.add_reader(socket.fileno(), read)
        self._readers[socket] = read
        self._loop.call_soon(read)

    def _send(self, socket: Socket, frames: Sequence[Any]) -> None:
        last = len(frames) - 1
        with contextlib.suppress(zmq.Again):  # nobody is connected: it is asked again
            for place, frame in enumerate(frames):
                more = 0 if place == last else zmq.SNDMORE
                socket.send(frame, zmq.NOBLOCK | more, copy=len(frame) < _COPIED_BYTES)
        # Sending may have swallowed the change that the descriptor would have told of.
        if int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._loop.call_soon(self._readers[socket])

    def _frames(self, who: Sequence[Any], document: Any, arrays: Sequence[np.ndarray]) -> list[Any]:
        specs = [spec_of(array) for array in arrays]
        self.bytes_sent += sum(array.nbytes for array in arrays)
        header = json.dumps([who, document, [[spec.dtype, spec.shape] for spec in specs]]).encode()
        return [header, *(bytes_of(travelling(array)) for array in arrays)]

    def _admit(self, frames: list[zmq.Frame]) -> None:
        reply, _ = admission.answer([frame.bytes for frame in frames], self._keys)
        self._door.send_multipart(reply)

    def _answer(self, frames: list[zmq.Frame]) -> None:
        peer, number = frames[0].bytes, frames[1].bytes
        if (peer, number) not in self._answering:  # else it is asked again while it is being answered
            self._answering.add((peer, number))
            self._spawn(self._handle(peer, number, frames[1:]))

    async def _handle(self, peer: bytes, number: bytes, frames: list[zmq.Frame]) -> None:
        try:
            who, document, arrays = _opened(frames)
            sender, receiver = Address(who[1], who[2]), Address(who[3], who[4])
            payload = self._codec.decode(document, arrays)
            reply = await self._handlers[receiver].handle(who[0], payload, sender)
            self._send(self._router, [peer, number, *self._frames([], *self._codec.encode(reply))])
        finally:
            self._answering.discard((peer, number))


@final
class _Peer:
    """A process that is asked.

    Attributes:
        socket: to it.
        numbers: of requests.
        waiting: who waits for which answer.
    """

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.numbers = itertools.count()
        self.waiting: dict[bytes, asyncio.Future[list[zmq.Frame]]] = {}

    def take(self, frames: list[zmq.Frame]) -> None:
        answer = self.waiting.get(frames[0].bytes)
        if answer is not None and not answer.done():  # else it was answered twice
            answer.set_result(frames)


def _opened(frames: Sequence[zmq.Frame]) -> tuple[list[Any], Any, list[np.ndarray]]:
    """Who asks whom for what, the document, and its arrays, of a message."""
    who, document, specs = json.loads(frames[1].bytes)
    arrays = []
    for (dtype, shape), frame in zip(specs, frames[2:], strict=True):
        spec = TensorSpec(dtype, tuple(shape))
        arrays.append(np.frombuffer(frame.buffer, np.uint8).view(spec.numpy).reshape(spec.shape))
    return who, document, arrays
