"""A network in virtual time that loses, doubles, delays and reorders messages, and whose links can be cut."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

import numpy as np

from dorylax.clock import Clock
from dorylax.pipeline.transport.base import WHOLE_PROCESS, Address, RequestHandler, Then, Waiting
from dorylax.pipeline.transport.delivery import Inbox
from dorylax.pipeline.transport.first_step import Begun, begin, finished
from support.transports import posted

ASK_AGAIN_SECONDS = 0.5


class Message(NamedTuple):
    """A request or, without a kind, an answer."""

    source: str
    generation: int
    number: int
    oldest: int
    sender: Address | None
    receiver: Address | None
    kind: str | None
    payload: Any


class Weather(NamedTuple):
    """What becomes of messages.

    Attributes:
        loss, doubling: of a message, probabilities.
        delay: its mean, seconds; exponentially distributed, so messages overtake each other.
    """

    loss: float
    doubling: float
    delay: float


@final
class Halted:
    """Processes that stand still, and what waits until they go on."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def __contains__(self, endpoint: str) -> bool:
        return endpoint in self._waiting

    def begin(self, endpoint: str) -> None:
        """Halts a process."""
        self._waiting.setdefault(endpoint, [])

    def end(self, endpoint: str) -> None:
        """Lets it go on."""
        for go in self._waiting.pop(endpoint, []):
            go()

    def then(self, endpoint: str, go: Callable[[], None]) -> None:
        """Does something once a process goes on that is halted now."""
        self._waiting[endpoint].append(go)

    async def passed(self, endpoint: str) -> None:
        """Waits until a process is not halted."""
        while endpoint in self._waiting:
            gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.then(endpoint, functools.partial(_go, gone))
            await gone


def _go(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


@final
class Network:
    """Carries messages between processes, which are known by their endpoints.

    Args:
        clock: of the simulation.
        rng: draws.
        weather: as above.

    Attributes:
        stopped: processes in which nothing happens: what they send and are sent waits.
        stalled: processes that answer, but whose threads get no further.
        events: a hash of all that has happened.
        count: how many messages were sent.
    """

    def __init__(self, clock: Clock, rng: np.random.Generator, weather: Weather) -> None:
        self._clock, self._rng, self._weather = clock, rng, weather
        self._nodes: dict[str, SimulatedTransport] = {}
        self._cut: set[tuple[str, str]] = set()
        self.stopped, self.stalled = Halted(), Halted()
        self.events, self.count = hashlib.sha256(), 0

    def join(self, node: SimulatedTransport) -> None:
        """Has a process reached at its endpoint."""
        self._nodes[node.endpoint] = node

    def leave(self, node: SimulatedTransport) -> None:
        """Nothing that it sends or is sent arrives any more."""
        self._nodes.pop(node.endpoint, None)

    def note(self, *what: Any) -> None:
        """Adds something to the hash."""
        self.events.update(repr((round(self._clock.now(), 9), *what)).encode())

    def cut(self, one: str, other: str) -> None:
        """Lets nothing pass from one process to another."""
        self._cut.add((one, other))

    def heal(self, one: str, other: str) -> None:
        """Lets it pass again."""
        self._cut.discard((one, other))

    def send(self, node: SimulatedTransport, endpoint: str, message: Message) -> None:
        """Sends a message."""
        if node.endpoint not in self._nodes:
            return
        if node.endpoint in self.stopped:
            self.stopped.then(node.endpoint, lambda: self.send(node, endpoint, message))
            return
        copies = 1 + int(self._rng.random() < self._weather.doubling)
        self.count += 1
        for _ in range(copies):
            lost, delay = self._rng.random() < self._weather.loss, self._rng.exponential(self._weather.delay)
            if not lost:
                asyncio.get_running_loop().call_later(delay, self._arrive, node, endpoint, message)

    def _arrive(self, node: SimulatedTransport, endpoint: str, message: Message) -> None:
        receiver = self._nodes.get(endpoint)
        if receiver is None or (node.endpoint, endpoint) in self._cut:
            return
        if endpoint in self.stopped:
            self.stopped.then(endpoint, lambda: self._arrive(node, endpoint, message))
            return
        self.note(message.source, endpoint, message.generation, message.number, message.kind)
        receiver.take(message)


@final
class SimulatedTransport:
    """See `HostTransport`: the contract of the one over ZeroMQ, on a network that breaks its promises.

    Args:
        network: carries messages.
        spawn: makes tasks of this process.
        clock: of the process.
        endpoint: unlike any other that there was.
        on_stale: told where a message of another generation reaches a handler.
    """

    def __init__(self, network: Network, clock: Clock, *, endpoint: str, on_stale: Callable[[str], None]) -> None:
        self._network, self._clock, self.endpoint = network, clock, endpoint
        self._on_stale = on_stale
        self._handlers: dict[Address, tuple[RequestHandler, int]] = {}
        self._peers: dict[Address, str] = {}
        self._number = 0
        self._inbox = Inbox()
        self._asked: dict[int, tuple[asyncio.Future[Any], str, Message]] = {}
        self._answering: dict[tuple[str, int], asyncio.Task[None]] = {}
        self.sent: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        network.join(self)
        clock.spawn(self._ask_again(), name=f"{endpoint} asks again")

    @property
    def generation(self) -> int:
        """See `HostTransport`."""
        return self._inbox.generation

    def register(self, address: Address, handler: RequestHandler) -> None:
        """See `Transport`."""
        self._handlers[address] = handler, self.generation

    def renew(self, generation: int) -> None:
        """See `HostTransport`."""
        self._inbox.generation = generation
        self._handlers = {one: found for one, found in self._handlers.items() if one.role in WHOLE_PROCESS}
        for key, task in list(self._answering.items()):
            if task.get_name() not in WHOLE_PROCESS:
                del self._answering[key]
                self._inbox.give_up(*key)
                task.cancel()
        for number, (answer, _, message) in list(self._asked.items()):
            assert message.receiver is not None
            if message.receiver.role not in WHOLE_PROCESS:
                del self._asked[number]
                answer.cancel()
        self._peers.clear()

    def connect(self, peers: Mapping[Address, str]) -> None:
        """See `HostTransport`."""
        self._peers.update(peers)

    async def request(
        self, sender: Address, receiver: Address, kind: str, payload: Any, *, num_bytes: int, order: tuple[int, ...]
    ) -> Any:
        """See `Transport`."""
        if receiver in self._handlers:
            return await self._handlers[receiver][0].handle(kind, payload, sender)
        if receiver not in self._peers:
            raise LookupError(f"nobody is registered as {receiver.role} server {receiver.index} to answer {kind!r}")
        number, endpoint, oldest = self._number, self._peers[receiver], self._oldest
        self._number += 1
        message = Message(self.endpoint, self.generation, number, oldest, sender, receiver, kind, payload)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer, endpoint, message
        try:
            self._network.send(self, endpoint, message)
            return await answer
        finally:
            self._asked.pop(number, None)

    def post(
        self,
        sender: Address,
        receiver: Address,
        kind: str,
        payload: Any,
        *,
        num_bytes: int,
        order: tuple[int, ...],
        waiting: Waiting,
        then: Then,
    ) -> None:
        """See `Transport`."""
        request = posted(self, sender, receiver, kind, payload, num_bytes=num_bytes, order=order, then=then)
        self._clock.spawn(request, name=f"{kind} from {sender.role} server {sender.index}")

    def take(self, message: Message) -> None:
        """Takes what has arrived."""
        if message.kind is None:
            if (asked := self._asked.get(message.number)) is not None and not asked[0].done():
                asked[0].set_result(message.payload)
            return
        assert message.receiver is not None
        role = message.receiver.role
        if self._inbox.refuses(message.generation, role):
            return
        key = (message.source, message.number)
        self._inbox.forget(message.source, message.oldest)
        begun = self._inbox.begin(*key)
        if begun is True:
            self._handle(key, message)
        elif begun:
            self._reply(message, begun.reply)

    def close(self) -> None:
        """Leaves the network."""
        self._network.leave(self)

    def _handle(self, key: tuple[str, int], message: Message) -> None:
        assert message.receiver is not None
        assert message.sender is not None
        role = message.receiver.role
        handler, generation = self._handlers[message.receiver]
        if role not in WHOLE_PROCESS and generation != message.generation:
            self._on_stale(f"{message.kind} of generation {message.generation} was taken in generation {generation}")
        begun = begin(handler.handle(str(message.kind), message.payload, message.sender))
        if begun.rest is None:
            self._answer(key, message, begun.value)
        else:
            self._answering[key] = self._clock.spawn(self._answer_later(key, message, begun), name=role)

    async def _answer_later(self, key: tuple[str, int], message: Message, begun: Begun[Any]) -> None:
        try:
            reply = await finished(begun)
        finally:
            self._answering.pop(key, None)
        self._answer(key, message, reply)

    def _answer(self, key: tuple[str, int], message: Message, reply: Any) -> None:
        self._inbox.answer(*key, reply)
        self._reply(message, reply)

    def _reply(self, message: Message, reply: Any) -> None:
        answer = Message(self.endpoint, self.generation, message.number, self._oldest, None, None, None, reply)
        self._network.send(self, message.source, answer)

    @property
    def _oldest(self) -> int:
        return next(iter(self._asked), self._number)

    async def _ask_again(self) -> None:
        for turn in itertools.count():
            await self._clock.sleep(ASK_AGAIN_SECONDS, (turn,))
            for answer, endpoint, message in list(self._asked.values()):
                if not answer.done():
                    self._network.send(self, endpoint, message)
