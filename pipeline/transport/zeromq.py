"""The transport between processes: requests over ZeroMQ, encrypted by the run's keys where they leave the machine.

Every process has one socket that answers (ROUTER) and one for each process that it asks (DEALER); `frames` has what
travels. What is lost on a broken connection is asked again, with the same number, and is handled once (`inbox`).
Sockets are served by the loop of the clock: a message that has come waits for no other thread.

Sending something costs more than what is in it: three threads are woken, on either side and in ZeroMQ. So all that one turn
of the loop leaves for a process travels together, and posts of one kind are one letter, with one number. What nobody waits
for (`base.Waiting`) is held back until something else goes to the same process, some milliseconds at most: small posts, and
answers that say nothing, which become acknowledgements. A process that is asked and asks gets answers by the same socket as
requests.
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

from dorylax.pipeline.concurrent import all_of
from dorylax.pipeline.transport import frames
from dorylax.pipeline.transport.base import WHOLE_PROCESS, Address, RequestHandler, Then, Waiting
from dorylax.pipeline.transport.codec import Codec
from dorylax.pipeline.transport.first_step import Begun, begin, finished
from dorylax.pipeline.transport.inbox import Inbox
from dorylax.serverless.data import admission
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.socket_folder import make_socket_folder

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Makes a task of a coroutine, and stops the run if it fails: `Clock.spawn`."""

Socket = zmq.Socket[bytes]

TakeAnswer = Callable[[frames.Message | None, float], None]
"""Takes the answer to a letter, None where that says nothing, as of several requests; and how many seconds ago it was so."""

ASK_AGAIN_SECONDS = 20.0
"""After which a request without an answer is sent again: it, or its answer, may have gone down with a connection."""

HELD_SECONDS = 0.01
"""After which what nobody waits for goes by itself, or after twice as long."""

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
        for asked in self._asked.values():  # it may have been among the letters
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
        """See `Transport`. An answer is waited for as long as the run goes on: whether the peer lives is known elsewhere.

        Raises:
            LookupError: nobody is registered there.
            CodecError: the payload cannot travel.
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
            LookupError: nobody is registered there.
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
        """Closes all sockets; what was not sent is lost. A second call does nothing."""
        self._again.cancel()
        if self._held is not None:
            self._held.cancel()
        for socket in list(self._readers):
            self._close(socket)
        self._context.term()
        if self._folder is not None:
            self._folder.remove()

    def _hang_up(self, peer: _Peer) -> None:
        """A process is there no longer."""
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
        # Nobody is connected, or no longer, in which case ZeroMQ drops it: it is asked again.
        with contextlib.suppress(zmq.Again):
            for place, frame in enumerate(parts):
                more = 0 if place == last else _MORE
                socket.send(frame, _NOBLOCK | more, copy=len(frame) < frames.COPIED_BYTES)
        # Sending may have swallowed the change that the descriptor would have told of.
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
        """Has somebody in this process handle something."""
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
        """Puts requests into a letter, and returns its number.

        Args:
            peer: where it goes.
            what: kind of all requests, and whether they are to be acknowledged at once.
            requests: from whom, to whom, payload.
            answer: takes the answer.
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
        """What is for one process in one turn of the loop travels together."""
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
        """Sends what was held back the last time, too: what is held back now has been so for less."""
        self._held = None
        for peer in self._all:
            if peer.posts or peer.done:
                if peer.overdue:
                    self._send_all(peer)
                else:
                    peer.overdue = True
                    self._hold()

    def _send_all(self, peer: _Peer) -> None:
        """Sends a process what there is for it."""
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
        # Letters are kept in the order in which they were made.
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
        if asked.peer.socket is None or not asked.peer.socket.closed:  # else nobody is there any more
            self._send_parcel(asked.peer, [asked.letter], [])

    def _admit(self, found: list[zmq.Frame]) -> None:
        reply, _ = admission.answer([frame.bytes for frame in found], self._keys)
        self._door.send_multipart(reply)

    def _take(self, name: bytes | None, found: Sequence[zmq.Frame]) -> None:
        """Takes a parcel.

        Args:
            name: of the socket from which it has come; None where that has only answers.
            found: its frames.
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
        """The process from whose socket of this name a request of this sender has come."""
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
        if asked is not None:  # else it was answered twice
            asked.answer(answer, ago)


class _Post(NamedTuple):
    """A request that will travel with others of its kind."""

    sender: Address
    receiver: Address
    payload: Any
    then: Then


class _Asked(NamedTuple):
    """A letter that is not answered: what takes the answer, to whom it went, when last, and whether to a whole process."""

    answer: TakeAnswer
    peer: _Peer
    letter: frames.Letter
    since: float
    whole: bool


class _Question(NamedTuple):
    """A letter that has come: where its answer goes, from which process, its number, and whether it is urgent."""

    peer: _Peer
    process: int
    number: int
    urgent: bool

    @property
    def key(self) -> tuple[int, int]:
        """Unlike that of any other letter."""
        return self.process, self.number


@final
class _Peer:
    """Another process.

    Attributes:
        socket: to it; None where it is only answered.
        name: of its own socket to this process, from which its requests come; empty before the first.
        posts: requests to come that nobody awaits, by kind and whether they are to be acknowledged at once.
        letters: those that have not been sent.
        done: numbers of its letters that will be acknowledged, and since when they could be.
        overdue: whether something has been held back for a while.
    """

    def __init__(self, socket: Socket | None) -> None:
        self.socket = socket
        self.name = b""
        self.posts: dict[tuple[str, bool], list[_Post]] = defaultdict(list)
        self.letters: list[frames.Letter] = []
        self.done: list[tuple[int, float]] = []
        self.overdue = False


def _tell(posts: Sequence[_Post]) -> TakeAnswer:
    """Tells all senders that these were delivered."""

    def tell(_: Any, ago: float) -> None:
        for post in posts:
            post.then(ago, None)

    return tell


_address = functools.lru_cache(4096)(Address)
