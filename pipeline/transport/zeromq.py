"""The transport between processes: requests over the sockets of `dorylax.net`, between servers that hold the run's secret.

Each process has a bound socket for requests to it and a connected one per peer; `frames` defines the messages. A request
lost with a connection is repeated under the same number and handled once (`Inbox`). The clock's loop serves the sockets, so
that a message waits for no other thread.

A message costs more than its bytes, because it wakes three threads: one on each side and one in ZeroMQ. Therefore one
turn of the loop sends one bundle per peer. Messages that are not urgent (`base.Waiting`) wait some milliseconds for another
message to the same peer: small posts, and empty replies, which become acknowledgements. A peer that both sends requests and
receives them gets replies and requests through one socket.
"""

from __future__ import annotations

import asyncio
import functools
import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

from dorylax.net import frames
from dorylax.net.errors import Refusals, WireError
from dorylax.net.keys import CLUSTER, Kind, RunKeys
from dorylax.net.sockets import Socket, Sockets
from dorylax.pipeline.transport.base import WHOLE_PROCESS, Address, RequestHandler, Spawn, Then, Waiting
from dorylax.pipeline.transport.codec import Codec
from dorylax.pipeline.transport.delivery import Inbox
from dorylax.pipeline.transport.first_step import Begun, begin, finished

TakeAnswer = Callable[[frames.Message | None, float], None]
"""Callback for the reply to a letter (None if empty) and its age in seconds."""

ASK_AGAIN_SECONDS = 20.0
"""Delay before an unanswered request is repeated, because a broken connection may have lost it or its reply."""

HELD_SECONDS = 0.01
"""Longest delay of a message that is not urgent is between one and two times this."""


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
        sent: Traffic by kind of request; "answer" for replies.
        refusals: Refused peers and messages.
    """

    def __init__(
        self,
        keys: RunKeys,
        kind: Kind,
        *,
        host: str = "127.0.0.1",
        folder: Path | None = None,
        codec: Codec,
        spawn: Spawn,
    ) -> None:
        self._codec, self._spawn = codec, spawn
        self._loop = asyncio.get_running_loop()
        self._handlers: dict[Address, RequestHandler] = {}
        self._peers: dict[Address, _Peer] = {}
        self._by_endpoint: dict[str, _Peer] = {}
        self._by_name: dict[bytes, _Peer] = {}
        self._all: list[_Peer] = []
        self._process, self._number = secrets.randbits(64), 0  # of this process, of the next letter
        self._inbox = Inbox()
        self._asked: dict[int, _Asked] = {}  # unanswered letters, by number
        self._answering: dict[tuple[int, int], asyncio.Task[None]] = {}  # handlers that wait, by process and number
        self._due: set[_Peer] = set()  # peers that get a bundle at the end of this turn of the loop
        self._held: asyncio.TimerHandle | None = None
        self.sent: dict[str, Traffic] = defaultdict(lambda: Traffic(0, 0))
        self.refusals = Refusals()
        self._sockets = Sockets(keys, CLUSTER, kind, host=host, folder=folder, loop=self._loop, refusals=self.refusals)
        self._router, self.endpoint = self._sockets.bind("host", f"{os.getpid():x}", self._take)
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
                self._by_endpoint[endpoint] = self._made(self._sockets.connect(endpoint, self._take))
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

        number = self._ask(peer, kind, sender, receiver, payload, urgent=True, answer=answer)
        self._send_soon(peer)
        try:
            message = await answered
        finally:
            self._asked.pop(number, None)
        return None if message is None else self._codec.decode(message.document, message.arrays)

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
        urgent = waiting == "sender"
        self._ask(peer, kind, sender, receiver, payload, urgent=urgent, answer=lambda _, ago: then(ago, None))
        if waiting == "nobody" and num_bytes < frames.COPIED_BYTES:
            self._hold()
        else:
            self._send_soon(peer)

    def close(self) -> None:
        """Close all sockets and drop unsent messages. A second call does nothing."""
        self._again.cancel()
        if self._held is not None:
            self._held.cancel()
        self._sockets.close()

    def _hang_up(self, peer: _Peer) -> None:
        """Disconnect from a process."""
        assert peer.socket is not None
        self._sockets.drop(peer.socket)
        self._all.remove(peer)
        self._due.discard(peer)
        self._by_name = {name: other for name, other in self._by_name.items() if other is not peer}

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
        kind: str,
        sender: Address,
        receiver: Address,
        payload: Any,
        *,
        urgent: bool,
        answer: TakeAnswer,
    ) -> int:
        """Add a request to the unsent letters, and return its number.

        Args:
            peer: The receiving process.
            kind: Kind of the request.
            sender: Its sender.
            receiver: Its receiver.
            payload: Its payload.
            urgent: Whether to acknowledge it immediately.
            answer: Callback for the reply.
        """
        number, self._number = self._number, self._number + 1
        who = (kind, urgent, sender.role, sender.index, receiver.role, receiver.index)
        letter = self._letter(kind, number, who, payload)
        whole = receiver.role in WHOLE_PROCESS
        self._asked[number] = _Asked(answer, peer, letter, self._loop.time(), whole=whole)
        peer.letters.append(letter)
        return number

    def _letter(self, kind: str, number: int, who: Sequence[Any], payload: Any) -> frames.Letter:
        document, arrays = self._codec.encode(payload)
        letter = frames.letter(number, who, document, arrays)
        self._count(kind, 1, letter.num_bytes)
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
            if peer.letters or peer.done:
                if peer.overdue:
                    self._send_all(peer)
                else:
                    peer.overdue = True
                    self._hold()

    def _send_all(self, peer: _Peer) -> None:
        """Send all pending messages to a process."""
        letters, done = peer.letters, peer.done
        if not (letters or done):
            return
        peer.letters, peer.done, peer.overdue = [], [], False
        if done:
            self._count("answer", len(done), frames.acknowledgement_bytes(len(done)))
        now = self._loop.time()
        self._send_bundle(peer, letters, [(number, now - since) for number, since in done])

    def _send_bundle(self, peer: _Peer, letters: Sequence[frames.Letter], done: Sequence[tuple[int, float]]) -> None:
        # `_asked` is in order of creation.
        oldest = next(iter(self._asked), self._number)
        bundle = frames.bundle(letters, done, frames.Sender(self._process, self.generation, oldest))
        socket = self._router if peer.socket is None else peer.socket
        if not socket.closed:  # otherwise the peer is gone
            self._sockets.send(socket, bundle if peer.socket is not None else [peer.name, *bundle])

    def _ask_again(self) -> None:
        now = self._loop.time()
        for number, asked in self._asked.items():
            if now - asked.since >= ASK_AGAIN_SECONDS:
                self._asked[number] = asked._replace(since=now)
                self._send_again(asked)
        self._again = self._loop.call_later(ASK_AGAIN_SECONDS, self._ask_again)

    def _send_again(self, asked: _Asked) -> None:
        self._send_bundle(asked.peer, [asked.letter], [])

    def _take(self, name: bytes, found: Sequence[frames.Buffer]) -> None:
        """Process a received bundle.

        Args:
            name: Name of the sending socket; empty for a socket that receives only replies.
            found: Frames of the bundle.

        Raises:
            WireError: The frames are no bundle.
        """
        bundle = frames.opened(found)
        self._inbox.forget(bundle.sender.process, bundle.sender.oldest)
        for number, ago in bundle.acknowledged:
            self._answered(number, None, ago)
        for message in bundle.messages:
            if not message.who:
                self._answered(message.number, message, 0.0)
            elif name:
                self._asked_for(name, bundle.sender, message)

    def _asked_for(self, name: bytes, asker: frames.Sender, message: frames.Message) -> None:
        if len(message.who) != 6:
            raise WireError(f"a request must name its kind, urgency, sender and receiver, got {str(message.who)[:80]}")
        _, urgent, *way = message.who
        sender, receiver = _address(*way[:2]), _address(*way[2:])
        if self._inbox.refuses(asker.generation, receiver.role):
            return
        question = _Question(self._known(name, sender), asker.process, message.number, urgent)
        begun = self._inbox.begin(asker.process, message.number)
        if begun is True:
            self._answer(question, message, sender, receiver)
        elif begun:
            self._reply(question, begun.reply)

    def _answer(self, question: _Question, message: frames.Message, sender: Address, receiver: Address) -> None:
        payload = self._codec.decode(message.document, message.arrays)
        begun = begin(self._handlers[receiver].handle(message.who[0], payload, sender))
        if begun.rest is None:
            self._reply(question, begun.value)
        else:
            task = self._answering[question.key] = self._spawn(self._reply_later(question, begun))
            task.set_name(receiver.role)

    def _known(self, name: bytes, sender: Address) -> _Peer:
        """Return the process behind a socket name, given the sender of its request."""
        peer = self._by_name.get(name)
        if peer is None or peer.socket is None:
            peer = self._by_name[name] = self._peers.get(sender) or peer or self._made(None)
            peer.name = name
        return peer

    async def _reply_later(self, question: _Question, begun: Begun[Any]) -> None:
        try:
            reply = await finished(begun)
        finally:
            self._answering.pop(question.key, None)
        self._reply(question, reply)

    def _reply(self, question: _Question, reply: Any) -> None:
        peer, _, number, urgent = question
        self._inbox.answer(*question.key, reply)
        if reply is not None:
            peer.letters.append(self._letter("answer", number, (), reply))
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
        letters: Unsent letters.
        done: Numbers of its letters to acknowledge, and the time of each reply.
        overdue: Whether messages have been held for one period already.
    """

    def __init__(self, socket: Socket | None) -> None:
        self.socket = socket
        self.name = b""
        self.letters: list[frames.Letter] = []
        self.done: list[tuple[int, float]] = []
        self.overdue = False


_address = functools.lru_cache(4096)(Address)
