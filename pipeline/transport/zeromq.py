"""The transport between processes: requests over ZeroMQ, encrypted with the run's keys on networks.

Each process has a ROUTER socket for requests to it and a DEALER socket per peer; `frames` defines the messages. A request
lost with a connection is repeated under the same number and handled once (`inbox`). The clock's loop serves the sockets, so
that a message waits for no other thread.

A message costs more than its bytes, because it wakes three threads: one on each side and one in ZeroMQ. Therefore one
turn of the loop sends one parcel per peer, and posts of one kind form one letter with one number. Messages that are not
urgent (`base.Waiting`) wait some milliseconds for another message to the same peer: small posts, and empty replies, which
become acknowledgements. A peer that both sends requests and receives them gets replies and requests through one socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import zmq

from dorylax.pipeline.transport import frames
from dorylax.pipeline.transport.base import WHOLE_PROCESS, Address, RequestHandler, Spawn, Then, Waiting
from dorylax.pipeline.transport.codec import Codec
from dorylax.pipeline.transport.delivery import Inbox
from dorylax.pipeline.transport.first_step import Begun, all_of, begin, finished
from dorylax.serverless.data import admission
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.socket_folder import make_socket_folder

Socket = zmq.Socket[bytes]

TakeAnswer = Callable[[frames.Message | None, float], None]
"""Callback for the reply to a letter (None if empty, as for several requests) and its age in seconds."""

ASK_AGAIN_SECONDS = 20.0
"""Delay before an unanswered request is repeated, because a broken connection may have lost it or its reply."""

HELD_SECONDS = 0.01
"""Longest delay of a message that is not urgent is between one and two times this."""

_HEARTBEAT_MS = 5_000
# As numbers: combining and looking up members of enumerations costs more than the calls.
_NOBLOCK, _MORE, _EVENTS, _POLLIN = (int(one) for one in (zmq.NOBLOCK, zmq.SNDMORE, zmq.EVENTS, zmq.POLLIN))


class Traffic(NamedTuple):
    """Messages sent by a process, and the bytes of their frames."""

    messages: int
    bytes: int


@final
class ZeroMqTransport:
    """Delivers requests at least once, to handlers in this process or in others.

    The thread of one loop creates, uses and closes it.

    Args:
        keys: The servers' copy of the run's keys.
        kind: "ipc" between processes of this machine, or "tcp" with encryption.
        host: For tcp: address of the interface to listen on, at which other processes reach this one.
        folder: For ipc: folder of the socket file; its creator removes it. None: a new folder, removed by `close`.
        codec: Codec of payloads.
        spawn: Starts tasks.

    Attributes:
        endpoint: Address at which other processes reach this one.
        bytes_sent: Bytes of arrays in requests and replies.
        sent: Traffic by kind of request; "answer" for replies.
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
        self._process, self._number = secrets.randbits(64), 0  # of this process, of the next letter
        self._inbox = Inbox()
        self._by_name: dict[bytes, _Peer] = {}
        self._all: list[_Peer] = []
        self._asked: dict[int, _Asked] = {}  # letters that are not answered, by number
        self._answering: dict[tuple[int, int], asyncio.Task[None]] = {}  # what waits for somebody here
        self._due: set[_Peer] = set()  # those to whom something goes at the end of this turn of the loop
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
        self._listen(self._router, lambda found: self._take(found[0].bytes, found[1:]))
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
        self._asked = {number: asked for number, asked in self._asked.items() if asked.whole}
        self._peers.clear()
        for peer in self._all:
            peer.posts.clear()
            peer.letters.clear()
            peer.done.clear()
        for asked in self._asked.values():  # the letter may have been dropped just above
            self._send_again(asked)

    def connect(self, peers: Mapping[Address, str]) -> None:
        """See `HostTransport`."""
        for endpoint in self._by_endpoint.keys() - set(peers.values()):
            self._hang_up(self._by_endpoint.pop(endpoint))
        for address, endpoint in peers.items():
            if endpoint == self.endpoint:
                continue
            if endpoint not in self._by_endpoint:
                socket = self._dealer(endpoint)
                self._by_endpoint[endpoint] = self._made(socket)
                self._listen(socket, lambda found: self._take(None, found))
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
        """See `Transport`. It waits without a limit, because heartbeats detect dead peers elsewhere.

        Raises:
            LookupError: The receiver is not registered.
            RunError: The payload has an unsupported type.
        """
        if receiver in self._handlers:
            return await self._handlers[receiver].handle(kind, payload, sender)
        peer = self._peer(receiver, kind)
        answered: asyncio.Future[frames.Message | None] = self._loop.create_future()

        def answer(message: frames.Message | None, _: float) -> None:
            if not answered.done():
                answered.set_result(message)

        number = self._ask(peer, (kind, True), [(sender, receiver, payload)], answer)
        self._send_soon(peer)
        try:
            message = await answered
        finally:
            self._asked.pop(number, None)
        return None if message is None else self._codec.decode(message.document, message.arrays)[0]

    def post(
        self,
        sender: Address,
        receiver: Address,
        kind: str,
        payload: Any,
        *,
        num_bytes: int,
        order: tuple[int, ...],  # noqa: ARG002
        waiting: Waiting,
        then: Then,
    ) -> None:
        """See `Transport`.

        Raises:
            LookupError: The receiver is not registered.
        """
        if receiver in self._handlers:
            self._call(self._handlers[receiver].handle(kind, payload, sender), then)
            return
        peer = self._peer(receiver, kind)
        peer.posts[kind, waiting == "sender"].append(_Post(sender, receiver, payload, then))
        if waiting == "nobody" and num_bytes < frames.COPIED_BYTES:
            self._hold()
        else:
            self._send_soon(peer)

    def close(self) -> None:
        """Close all sockets and drop unsent messages. A second call does nothing."""
        self._again.cancel()
        if self._held is not None:
            self._held.cancel()
        for socket in list(self._readers):
            self._close(socket)
        self._context.term()
        if self._folder is not None:
            self._folder.remove()

    def _hang_up(self, peer: _Peer) -> None:
        """Disconnect from a process."""
        assert peer.socket is not None
        self._close(peer.socket)
        self._all.remove(peer)
        self._due.discard(peer)
        self._by_name = {name: other for name, other in self._by_name.items() if other is not peer}

    def _close(self, socket: Socket) -> None:
        del self._readers[socket]
        if not self._loop.is_closed():
            self._loop.remove_reader(socket.fileno())
        socket.close(linger=0)

    def _socket(self, kind: int) -> Socket:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = 0  # intervals wait for replies, which bounds the bytes in flight
        socket.heartbeat_ivl = _HEARTBEAT_MS
        return socket

    def _dealer(self, endpoint: str) -> Socket:
        socket = self._socket(zmq.DEALER)
        admission.identify(socket, self._keys, endpoint)
        socket.connect(endpoint)
        return socket

    def _listen(self, socket: Socket, take: Callable[[list[zmq.Frame]], None]) -> None:
        """Call `take` on the loop for each message. ZeroMQ's descriptor is edge-triggered, so each event reads all."""

        def read() -> None:
            while not socket.closed:
                try:
                    found = [socket.recv(_NOBLOCK, copy=False)]
                except zmq.Again:
                    return
                while found[-1].more:
                    found.append(socket.recv(_NOBLOCK, copy=False))
                take(found)

        self._loop.add_reader(socket.fileno(), read)
        self._readers[socket] = read
        self._loop.call_soon(read)

    def _send(self, socket: Socket, parts: Sequence[Any]) -> None:
        last = len(parts) - 1
        # Without a connection ZeroMQ drops the message; the request is repeated later.
        with contextlib.suppress(zmq.Again):
            for place, frame in enumerate(parts):
                more = 0 if place == last else _MORE
                socket.send(frame, _NOBLOCK | more, copy=len(frame) < frames.COPIED_BYTES)
        # Sending may have consumed the event of the descriptor.
        if int(socket.getsockopt(_EVENTS)) & _POLLIN:
            self._loop.call_soon(self._readers[socket])

    def _made(self, socket: Socket | None) -> _Peer:
        self._all.append(_Peer(socket))
        return self._all[-1]

    def _peer(self, receiver: Address, kind: str) -> _Peer:
        try:
            return self._peers[receiver]
        except KeyError:
            raise LookupError(
                f"nobody is registered as {receiver.role} server {receiver.index} to answer {kind!r}"
            ) from None

    def _call(self, handling: Coroutine[Any, Any, Any], then: Then) -> None:
        """Let a handler in this process handle a post."""
        begun = begin(handling)
        if begun.rest is None:
            then(0.0, None)
            return

        async def wait() -> None:
            await finished(begun)
            then(0.0, None)

        self._spawn(wait())

    def _ask(
        self,
        peer: _Peer,
        what: tuple[str, bool],
        requests: Sequence[tuple[Address, Address, Any]],
        answer: TakeAnswer,
    ) -> int:
        """Put requests into a letter, and return its number.

        Args:
            peer: The receiving process.
            what: Kind of all requests, and whether to acknowledge them immediately.
            requests: Sender, receiver and payload of each.
            answer: Callback for the reply.
        """
        number, self._number = self._number, self._number + 1
        ways = [(sender.role, sender.index, to.role, to.index) for sender, to, _ in requests]
        payloads = [payload for _, _, payload in requests]
        letter = self._letter(what[0], number, (*what, ways), payloads)
        whole = requests[0][1].role in WHOLE_PROCESS
        self._asked[number] = _Asked(answer, peer, letter, self._loop.time(), whole=whole)
        peer.letters.append(letter)
        return number

    def _letter(self, kind: str, number: int, who: Sequence[Any], payloads: Sequence[Any]) -> frames.Letter:
        document, arrays = self._codec.encode(payloads)
        letter = frames.letter(number, who, document, arrays)
        self.bytes_sent += sum(array.nbytes for array in arrays)
        self._count(kind, len(payloads), letter.num_bytes)
        return letter

    def _count(self, kind: str, messages: int, num_bytes: int) -> None:
        before = self.sent[kind]
        self.sent[kind] = Traffic(before.messages + messages, before.bytes + num_bytes)

    def _send_soon(self, peer: _Peer) -> None:
        """Send all messages for one process at the end of this turn of the loop."""
        if not self._due:
            self._loop.call_soon(self._send_due)
        self._due.add(peer)

    def _send_due(self) -> None:
        due, self._due = self._due, set()
        for peer in due:
            self._send_all(peer)

    def _hold(self) -> None:
        if self._held is None:
            self._held = self._loop.call_later(HELD_SECONDS, self._release)

    def _release(self) -> None:
        """Send the messages held since the previous call; newer ones wait for the next."""
        self._held = None
        for peer in self._all:
            if peer.posts or peer.done:
                if peer.overdue:
                    self._send_all(peer)
                else:
                    peer.overdue = True
                    self._hold()

    def _send_all(self, peer: _Peer) -> None:
        """Send all pending messages to a process."""
        posts = peer.posts
        if posts:
            peer.posts = defaultdict(list)
            for what, given in posts.items():
                self._ask(peer, what, [(post.sender, post.receiver, post.payload) for post in given], _tell(given))
        letters, done = peer.letters, peer.done
        gone = self._router.closed if peer.socket is None else peer.socket.closed
        if gone or not (letters or done):
            return
        peer.letters, peer.done, peer.overdue = [], [], False
        if done:
            self._count("answer", len(done), frames.acknowledgement_bytes(len(done)))
        now = self._loop.time()
        self._send_parcel(peer, letters, [(number, now - since) for number, since in done])

    def _send_parcel(self, peer: _Peer, letters: Sequence[frames.Letter], done: Sequence[tuple[int, float]]) -> None:
        # `_asked` is in order of creation.
        oldest = next(iter(self._asked), self._number)
        parcel = frames.parcel(letters, done, frames.Sender(self._process, self.generation, oldest))
        if peer.socket is not None:
            self._send(peer.socket, parcel)
        else:
            self._send(self._router, [peer.name, *parcel])

    def _ask_again(self) -> None:
        now = self._loop.time()
        for number, asked in self._asked.items():
            if now - asked.since >= ASK_AGAIN_SECONDS:
                self._asked[number] = asked._replace(since=now)
                self._send_again(asked)
        self._again = self._loop.call_later(ASK_AGAIN_SECONDS, self._ask_again)

    def _send_again(self, asked: _Asked) -> None:
        if asked.peer.socket is None or not asked.peer.socket.closed:  # otherwise the peer is gone
            self._send_parcel(asked.peer, [asked.letter], [])

    def _admit(self, found: list[zmq.Frame]) -> None:
        reply, _ = admission.answer([frame.bytes for frame in found], self._keys)
        self._door.send_multipart(reply)

    def _take(self, name: bytes | None, found: Sequence[zmq.Frame]) -> None:
        """Process a received parcel.

        Args:
            name: Name of the sending socket; None for a socket that receives only replies.
            found: Frames of the parcel.
        """
        parcel = frames.opened(found)
        self._inbox.forget(parcel.sender.process, parcel.sender.oldest)
        for number, ago in parcel.acknowledged:
            self._answered(number, None, ago)
        for message in parcel.messages:
            if not message.who:
                self._answered(message.number, message, 0.0)
            elif name is not None:
                self._asked_for(name, parcel.sender, message)

    def _asked_for(self, name: bytes, asker: frames.Sender, message: frames.Message) -> None:
        _, urgent, ways = message.who
        role = ways[0][2]
        if self._inbox.refuses(asker.generation, role):
            return
        question = _Question(self._known(name, _address(*ways[0][:2])), asker.process, message.number, urgent)
        begun = self._inbox.begin(asker.process, message.number)
        if begun is True:
            self._answer(question, message)
        elif begun:
            self._reply(question, begun.reply)

    def _answer(self, question: _Question, message: frames.Message) -> None:
        kind, _, ways = message.who
        payloads = self._codec.decode(message.document, message.arrays)
        begun = []
        for way, payload in zip(ways, payloads, strict=True):
            sender, receiver = _address(*way[:2]), _address(*way[2:])
            begun.append(begin(self._handlers[receiver].handle(kind, payload, sender)))
        if any(one.rest is not None for one in begun):
            task = self._answering[question.key] = self._spawn(self._reply_later(question, begun))
            task.set_name(ways[0][2])
        else:
            self._reply(question, [one.value for one in begun])

    def _known(self, name: bytes, sender: Address) -> _Peer:
        """Return the process behind a socket name, given the sender of its request."""
        peer = self._by_name.get(name)
        if peer is None or peer.socket is None:
            peer = self._by_name[name] = self._peers.get(sender) or peer or self._made(None)
            peer.name = name
        return peer

    async def _reply_later(self, question: _Question, begun: Sequence[Begun[Any]]) -> None:
        try:
            replies = await all_of([finished(one) for one in begun])
        finally:
            self._answering.pop(question.key, None)
        self._reply(question, replies)

    def _reply(self, question: _Question, replies: Sequence[Any]) -> None:
        peer, _, number, urgent = question
        self._inbox.answer(*question.key, replies)
        if len(replies) == 1 and replies[0] is not None:
            peer.letters.append(self._letter("answer", number, (), replies))
            self._send_soon(peer)
            return
        peer.done.append((number, self._loop.time()))
        if urgent:
            self._send_soon(peer)
        else:
            self._hold()

    def _answered(self, number: int, answer: frames.Message | None, ago: float) -> None:
        asked = self._asked.pop(number, None)
        if asked is not None:  # otherwise this is a second reply
            asked.answer(answer, ago)


class _Post(NamedTuple):
    """A request that shares a letter with others of its kind."""

    sender: Address
    receiver: Address
    payload: Any
    then: Then


class _Asked(NamedTuple):
    """An unanswered letter: callback, receiver, time of the last sending, and whether the receiver is a whole process."""

    answer: TakeAnswer
    peer: _Peer
    letter: frames.Letter
    since: float
    whole: bool


class _Question(NamedTuple):
    """A received letter: receiver of its reply, sending process, number, and urgency."""

    peer: _Peer
    process: int
    number: int
    urgent: bool

    @property
    def key(self) -> tuple[int, int]:
        """Unique key of the letter."""
        return self.process, self.number


@final
class _Peer:
    """Another process.

    Attributes:
        socket: Socket to it; None if this process only replies to it.
        name: Name of its socket to this process; empty before its first request.
        posts: Pending posts, by kind and whether to acknowledge them immediately.
        letters: Unsent letters.
        done: Numbers of its letters to acknowledge, and the time of each reply.
        overdue: Whether messages have been held for one period already.
    """

    def __init__(self, socket: Socket | None) -> None:
        self.socket = socket
        self.name = b""
        self.posts: dict[tuple[str, bool], list[_Post]] = defaultdict(list)
        self.letters: list[frames.Letter] = []
        self.done: list[tuple[int, float]] = []
        self.overdue = False


def _tell(posts: Sequence[_Post]) -> TakeAnswer:
    """Return a callback that reports the delivery of posts to their senders."""

    def tell(_: Any, ago: float) -> None:
        for post in posts:
            post.then(ago, None)

    return tell


_address = functools.lru_cache(4096)(Address)
