"""The transport between processes: requests over ZeroMQ, encrypted by the run's keys where they leave the machine.

Every process has one socket that answers (ROUTER) and one for each process that it asks (DEALER); `frames` has what
travels. What is lost on a broken connection is asked again, with the same number, which the receiver handles once (`inbox`).
Sockets are served by the loop of the clock: a message that has come waits for no other thread.

Sending something costs more than what is in it: three threads are woken, on either side and in ZeroMQ. So what nobody waits
for (`base.Waiting`) is held back until something else goes to the same process, some milliseconds at most: small requests,
and answers that say nothing, which become acknowledgements. Those travel with a request to the process that asked, if
there is one, else by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import zmq

from dorylax.pipeline.transport import frames
from dorylax.pipeline.transport.base import WHOLE_PROCESS, Address, RequestHandler, Role, Waiting
from dorylax.pipeline.transport.codec import Codec
from dorylax.pipeline.transport.inbox import Inbox
from dorylax.serverless.data import admission
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.socket_folder import make_socket_folder

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Makes a task of a coroutine, and stops the run if it fails: `Clock.spawn`."""

Socket = zmq.Socket[bytes]

ASK_AGAIN_SECONDS = 20.0
"""After which a request without an answer is sent again: it, or its answer, may have gone down with a connection."""

HELD_SECONDS = 0.002
"""For which something is held back at most, where nobody waits for it."""

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
        self._process = secrets.randbits(64)
        self._number = 0  # of the next request
        self._asked: dict[int, _Request] = {}  # requests that are not answered, by number
        self._inbox = Inbox()
        self._answering: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._done: dict[bytes, list[int]] = {}  # requests that will be acknowledged, by the name of who has asked
        self._hurried: list[bytes] = []  # names of those who get theirs at the end of this turn of the loop
        self._held: asyncio.TimerHandle | None = None
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

    @property
    def generation(self) -> int:
        """See `HostTransport`."""
        return self._inbox.generation

    def register(self, address: Address, handler: RequestHandler) -> None:
        """See `Transport`."""
        self._handlers[address] = handler

    def renew(self, generation: int) -> None:
        """See `HostTransport`."""
        self._inbox.generation = generation
        self._handlers = {one: handler for one, handler in self._handlers.items() if one.role in WHOLE_PROCESS}
        for key, task in list(self._answering.items()):
            if task.get_name() not in WHOLE_PROCESS:
                del self._answering[key]
                self._inbox.give_up(*key)
                task.cancel()
        for number, asked in list(self._asked.items()):
            if asked.role not in WHOLE_PROCESS:
                del self._asked[number]
                asked.answer.cancel()
        self._done.clear()
        self._peers.clear()
        for peer in self._by_endpoint.values():
            peer.letters.clear()

    def connect(self, peers: Mapping[Address, str]) -> None:
        """See `HostTransport`."""
        for endpoint in self._by_endpoint.keys() - set(peers.values()):
            self._hang_up(self._by_endpoint.pop(endpoint).socket)
        for address, endpoint in peers.items():
            if endpoint == self.endpoint:
                continue
            if endpoint not in self._by_endpoint:
                self._by_endpoint[endpoint] = peer = _Peer(self._dealer(endpoint))
                self._listen(peer.socket, self._take)
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
        waiting: Waiting = "sender",
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
        number, self._number = self._number, self._number + 1
        who = (kind, sender.role, sender.index, receiver.role, receiver.index, waiting == "sender")
        letter = self._letter(kind, number, who, payload)
        asked = self._asked[number] = _Request(
            self._loop.create_future(), receiver.role, peer, letter, self._loop.time()
        )
        try:
            peer.letters.append(letter)
            if waiting == "nobody" and letter.num_bytes < frames.COPIED_BYTES:
                self._hold()
            else:
                self._send_letters(peer)
            answer = await asked.answer
        finally:
            self._asked.pop(number, None)
        return None if answer is None else self._codec.decode(answer.document, answer.arrays)

    def close(self) -> None:
        """Closes all sockets; what was not sent is lost. A second call does nothing."""
        self._again.cancel()
        if self._held is not None:
            self._held.cancel()
        for socket in (self._router, self._door, *(peer.socket for peer in self._by_endpoint.values())):
            self._hang_up(socket)
        self._context.term()
        if self._folder is not None:
            self._folder.remove()

    def _hang_up(self, socket: Socket) -> None:
        if not socket.closed:
            if not self._loop.is_closed():
                self._loop.remove_reader(socket.fileno())
            self._readers.pop(socket, None)
            socket.close(linger=0)

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

    def _letter(self, kind: str, number: int, who: Sequence[Any], payload: Any) -> frames.Letter:
        document, arrays = self._codec.encode(payload)
        letter = frames.letter(number, who, document, arrays)
        self.bytes_sent += sum(array.nbytes for array in arrays)
        self._count(kind, letter.num_bytes)
        return letter

    def _count(self, kind: str, num_bytes: int) -> None:
        messages, before = self.sent[kind]
        self.sent[kind] = Traffic(messages + 1, before + num_bytes)

    def _hold(self) -> None:
        if self._held is None:
            self._held = self._loop.call_later(HELD_SECONDS, self._release)

    def _release(self) -> None:
        """Sends all that is held back."""
        self._held = None
        for peer in self._by_endpoint.values():
            if peer.letters:
                self._send_letters(peer)
        for name in list(self._done):
            self._acknowledge(name)

    def _send_letters(self, peer: _Peer) -> None:
        """Sends a process the requests that are held back for it, and with them acknowledgements of its own."""
        letters, peer.letters = peer.letters, []
        self._send(peer.socket, frames.parcel(letters, self._take_done(peer.name), self._sender))

    def _acknowledge(self, name: bytes) -> None:
        if (done := self._take_done(name)) and not self._router.closed:
            self._send(self._router, [name, *frames.parcel([], done, self._sender)])

    def _acknowledge_hurried(self) -> None:
        hurried, self._hurried = self._hurried, []
        for name in hurried:
            self._acknowledge(name)

    @property
    def _sender(self) -> frames.Sender:
        # Requests are kept in the order in which they were made.
        return frames.Sender(self._process, self.generation, next(iter(self._asked), self._number))

    def _take_done(self, name: bytes) -> list[int]:
        """The requests of a process that are now being acknowledged."""
        done = self._done.pop(name, [])
        if done:
            self._count("answer", frames.acknowledgement_bytes(len(done)))
        return done

    def _ask_again(self) -> None:
        now = self._loop.time()
        for number, asked in self._asked.items():
            if now - asked.since >= ASK_AGAIN_SECONDS and not asked.peer.socket.closed:
                self._asked[number] = asked._replace(since=now)
                self._send(asked.peer.socket, frames.parcel([asked.letter], [], self._sender))
        self._again = self._loop.call_later(ASK_AGAIN_SECONDS, self._ask_again)

    def _admit(self, found: list[zmq.Frame]) -> None:
        reply, _ = admission.answer([frame.bytes for frame in found], self._keys)
        self._door.send_multipart(reply)

    def _answer(self, found: list[zmq.Frame]) -> None:
        name, parcel = found[0].bytes, frames.opened(found[1:])
        sender = parcel.sender
        self._inbox.forget(sender.process, sender.oldest)
        for number in parcel.acknowledged:
            self._answered(number, None)
        for message in parcel.messages:
            role = message.who[3]
            if self._inbox.refuses(sender.generation, role):
                continue
            key = sender.process, message.number
            begun = self._inbox.begin(*key)
            if begun is True:
                task = self._answering[key] = self._spawn(self._handle(key, name, message))
                task.set_name(role)
            elif begun:
                self._reply(name, message, begun.reply)

    async def _handle(self, key: tuple[int, int], name: bytes, message: frames.Message) -> None:
        kind, *addresses, _ = message.who
        sender, receiver = Address(*addresses[:2]), Address(*addresses[2:])
        if (peer := self._peers.get(sender)) is not None:
            peer.name = name
        try:
            payload = self._codec.decode(message.document, message.arrays)
            reply = await self._handlers[receiver].handle(kind, payload, sender)
        finally:
            self._answering.pop(key, None)
        self._inbox.answer(*key, reply)
        self._reply(name, message, reply)

    def _reply(self, name: bytes, message: frames.Message, reply: Any) -> None:
        if reply is not None:
            letter = self._letter("answer", message.number, (), reply)
            self._send(self._router, [name, *frames.parcel([letter], self._take_done(name), self._sender)])
            return
        self._done.setdefault(name, []).append(message.number)
        if not message.who[-1]:  # urgent
            self._hold()
            return
        if not self._hurried:  # what comes in one turn of the loop is acknowledged together
            self._loop.call_soon(self._acknowledge_hurried)
        self._hurried.append(name)

    def _take(self, found: list[zmq.Frame]) -> None:
        parcel = frames.opened(found)
        for answer in parcel.messages:
            self._answered(answer.number, answer)
        for number in parcel.acknowledged:
            self._answered(number, None)

    def _answered(self, number: int, answer: frames.Message | None) -> None:
        asked = self._asked.get(number)
        if asked is not None and not asked.answer.done():  # else it was answered twice
            asked.answer.set_result(answer)


class _Request(NamedTuple):
    """A request: who waits for its answer, None where that says nothing; who is asked, what, and when it was sent last."""

    answer: asyncio.Future[frames.Message | None]
    role: Role
    peer: _Peer
    letter: frames.Letter
    since: float


@final
class _Peer:
    """A process that is asked.

    Attributes:
        socket: to it.
        name: of its own socket to this process, by which its requests come; empty before the first.
        letters: requests that are held back.
    """

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.name = b""
        self.letters: list[frames.Letter] = []
