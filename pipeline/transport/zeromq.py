"""The transport between processes: requests over ZeroMQ, encrypted by the run's keys where they leave the machine.

Every process has one socket that answers (ROUTER) and one for each process that it asks (DEALER); `frames` has what
travels. What is lost on a broken connection is asked again, with the same number, which the receiver does not begin twice.
Answers that say nothing are acknowledgements: those of one turn of the loop travel together. Sockets are served by the loop
of the clock: a message that has come waits for no other thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import zmq

from dorylax.pipeline.transport import frames
from dorylax.pipeline.transport.base import Address, RequestHandler
from dorylax.pipeline.transport.codec import Codec
from dorylax.serverless.data import admission
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.socket_folder import make_socket_folder

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Makes a task of a coroutine, and stops the run if it fails: `Clock.spawn`."""

Socket = zmq.Socket[bytes]

ASK_AGAIN_SECONDS = 20.0
"""After which a request without an answer is sent again: it, or its answer, may have gone down with a connection."""

_HEARTBEAT_MS = 5_000
# As numbers: combining and looking up members of enumerations costs more than the calls.
_NOBLOCK, _MORE, _EVENTS, _POLLIN = (int(one) for one in (zmq.NOBLOCK, zmq.SNDMORE, zmq.EVENTS, zmq.POLLIN))


class Traffic(NamedTuple):
    """What a process has sent: messages, and bytes of their frames."""

    messages: int
    bytes: int


@final
class ZeroMqTransport:
    """Delivers at least once, to handlers in this process or in others.

    Made, used and closed by the thread of one loop.

    Args:
        keys: of the run; the servers' copy.
        kind: "ipc", between processes of this machine; "tcp", encrypted.
        host: of tcp: the address of the interface that is listened on, by which the others find this process.
        folder: of ipc: where the socket's file comes, under a name of this process; removed by whoever has made it. None: a
            new one, which `close` removes.
        codec: of payloads.
        spawn: makes tasks.

    Attributes:
        endpoint: where others reach this process.
        bytes_sent: of arrays, in requests and replies.
        sent: by kind of request what left this process; "answer" for replies.
    """

    def __init__(
        self,
        keys: RunKeys,
        kind: Literal["ipc", "tcp"],
        *,
        host: str = "127.0.0.1",
        folder: Path | None = None,
        codec: Codec,
        spawn: Spawn,
    ) -> None:
        self._keys, self._codec, self._spawn = keys, codec, spawn
        self._loop = asyncio.get_running_loop()
        self._handlers: dict[Address, RequestHandler] = {}
        self._peers: dict[Address, _Peer] = {}
        self._by_endpoint: dict[str, _Peer] = {}
        self._answering: set[tuple[bytes, int]] = set()
        self._done: dict[bytes, list[int]] = {}  # requests that will be acknowledged at the end of this turn
        self._readers: dict[Socket, Callable[[], None]] = {}
        self.bytes_sent = 0
        self.sent: dict[str, Traffic] = defaultdict(lambda: Traffic(0, 0))
        self._folder = make_socket_folder() if kind == "ipc" and folder is None else None
        if self._folder is not None:
            folder = self._folder.path
        self._context: zmq.Context[Socket] = zmq.Context()
        self._door = self._context.socket(zmq.ROUTER)
        self._door.bind(admission.ZAP_ADDRESS)
        self._router = self._socket(zmq.ROUTER)
        admission.protect(self._router, keys, kind)
        self._router.bind(f"tcp://{host}:*" if kind == "tcp" else f"ipc://{folder}/{os.getpid():x}")
        self.endpoint = str(self._router.get_string(zmq.LAST_ENDPOINT))
        self._listen(self._door, self._admit)
        self._listen(self._router, self._answer)
        self._again = self._loop.call_later(ASK_AGAIN_SECONDS, self._ask_again)

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
        who = (kind, sender.role, sender.index, receiver.role, receiver.index)
        number = next(peer.numbers)
        message = self._message(kind, number, who, document, arrays)
        waiting = peer.waiting[number] = _Waiting(self._loop.create_future(), message, self._loop.time())
        try:
            self._send(peer.socket, message)
            answer = await waiting.answer
        finally:
            del peer.waiting[number]
        return self._codec.decode(answer.document, answer.arrays)

    def close(self) -> None:
        """Closes all sockets; what was not sent is lost. A second call does nothing."""
        self._again.cancel()
        for socket in (self._router, self._door, *(peer.socket for peer in self._by_endpoint.values())):
            if not socket.closed:
                if not self._loop.is_closed():
                    self._loop.remove_reader(socket.fileno())
                socket.close(linger=0)
        self._context.term()
        if self._folder is not None:
            self._folder.remove()

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
            while not socket.closed and int(socket.getsockopt(_EVENTS)) & _POLLIN:
                found = [socket.recv(_NOBLOCK, copy=False)]
                while found[-1].more:
                    found.append(socket.recv(_NOBLOCK, copy=False))
                take(found)

        self._loop.add_reader(socket.fileno(), read)
        self._readers[socket] = read
        self._loop.call_soon(read)

    def _send(self, socket: Socket, parts: Sequence[Any]) -> None:
        last = len(parts) - 1
        # Nobody is connected, or no longer, in which case ZeroMQ drops it: it is asked again.
        with contextlib.suppress(zmq.Again):
            for place, frame in enumerate(parts):
                more = 0 if place == last else _MORE
                socket.send(frame, _NOBLOCK | more, copy=len(frame) < frames.COPIED_BYTES)
        # Sending may have swallowed the change that the descriptor would have told of.
        if int(socket.getsockopt(_EVENTS)) & _POLLIN:
            self._loop.call_soon(self._readers[socket])

    def _message(self, kind: str, number: int, who: Sequence[Any], document: Any, arrays: Sequence[Any]) -> list[Any]:
        message = frames.message(number, who, document, arrays)
        self.bytes_sent += sum(array.nbytes for array in arrays)
        self._count(kind, message)
        return message

    def _count(self, kind: str, message: Sequence[Any]) -> None:
        messages, num_bytes = self.sent[kind]
        self.sent[kind] = Traffic(messages + 1, num_bytes + sum(map(len, message)))

    def _ask_again(self) -> None:
        now = self._loop.time()
        for peer in self._by_endpoint.values():
            for number, waiting in peer.waiting.items():
                if now - waiting.since >= ASK_AGAIN_SECONDS:
                    peer.waiting[number] = waiting._replace(since=now)
                    self._send(peer.socket, waiting.message)
        self._again = self._loop.call_later(ASK_AGAIN_SECONDS, self._ask_again)

    def _admit(self, found: list[zmq.Frame]) -> None:
        reply, _ = admission.answer([frame.bytes for frame in found], self._keys)
        self._door.send_multipart(reply)

    def _answer(self, found: list[zmq.Frame]) -> None:
        peer, message = found[0].bytes, frames.opened(found[1:])
        (number,) = message.numbers
        if (peer, number) not in self._answering:  # else it is asked again while it is being answered
            self._answering.add((peer, number))
            self._spawn(self._handle(peer, number, message))

    async def _handle(self, peer: bytes, number: int, message: frames.Message) -> None:
        try:
            kind, *addresses = message.who
            sender, receiver = Address(*addresses[:2]), Address(*addresses[2:])
            payload = self._codec.decode(message.document, message.arrays)
            reply = await self._handlers[receiver].handle(kind, payload, sender)
        finally:
            self._answering.discard((peer, number))
        if reply is not None:
            document, arrays = self._codec.encode(reply)
            self._send(self._router, [peer, *self._message("answer", number, (), document, arrays)])
            return
        if not self._done:
            self._loop.call_soon(self._acknowledge)
        self._done.setdefault(peer, []).append(number)

    def _acknowledge(self) -> None:
        done, self._done = self._done, {}
        if self._router.closed:
            return
        for peer, numbers in done.items():
            message = [frames.acknowledgement(numbers)]
            self._count("answer", message)
            self._send(self._router, [peer, *message])


class _Waiting(NamedTuple):
    """A request: who waits for its answer, its frames, and when it was sent last."""

    answer: asyncio.Future[frames.Message]
    message: Sequence[Any]
    since: float


@final
class _Peer:
    """A process that is asked.

    Attributes:
        socket: to it.
        numbers: of requests.
        waiting: what it has not answered, by number.
    """

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.numbers = itertools.count()
        self.waiting: dict[int, _Waiting] = {}

    def take(self, found: list[zmq.Frame]) -> None:
        message = frames.opened(found)
        for number in message.numbers:
            waiting = self.waiting.get(number)
            if waiting is not None and not waiting.answer.done():  # else it was answered twice
                waiting.answer.set_result(message)
