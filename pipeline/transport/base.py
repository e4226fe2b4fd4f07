"""The contract of transports: addresses, request handlers, requests and posts."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, Protocol, final, runtime_checkable

import jax

Role = Literal["graph", "evaluation", "parameter", "ledger", "host", "process", "driver"]

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Runs a coroutine as a task, and stops the run if it fails: `Clock.spawn`."""

WHOLE_PROCESS: tuple[Role, ...] = ("process", "driver")
"""Roles that represent a whole process rather than one server in it."""

Waiting = Literal["sender", "receiver", "nobody"]
"""The party that a post is urgent for. "sender": deliver and acknowledge immediately. "receiver": deliver immediately; the
acknowledgement may wait some milliseconds. "nobody": both may wait, and share a message with others."""

Then = Callable[[float, Exception | None], None]
"""Callback for the outcome of a post: the seconds since its delivery, or the error that prevents it and ends the run."""


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """The address of a server.

    Attributes:
        role: Kind of server.
        index: Number within the kind, from 0.
    """

    role: Role
    index: int


@runtime_checkable
class RequestHandler(Protocol):
    """Answers requests."""

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        """Answer one request.

        A transport may deliver a request twice, also while the first delivery is being answered. A repeat must change
        nothing.

        Args:
            kind: Kind of request.
            payload: A pytree. Neither side writes to its arrays afterwards.
            sender: Address of the requester.

        Returns:
            The reply, a pytree.
        """
        ...


@runtime_checkable
class Transport(Protocol):
    """Carries requests between servers."""

    def register(self, address: Address, handler: RequestHandler) -> None:
        """Set the handler of an address; replaces an earlier one."""
        ...

    async def request(
        self,
        sender: Address,
        receiver: Address,
        kind: str,
        payload: Any,
        *,
        num_bytes: int,
        order: tuple[int, ...],
    ) -> Any:
        """Deliver a request at least once, and return the reply. The transport repeats the request if it may be lost.

        Args:
            sender: Address of the requester.
            receiver: Address of the handler.
            kind: Kind of request, for `RequestHandler.handle`.
            payload: Payload, for `RequestHandler.handle`.
            num_bytes: Bytes sent.
            order: Unique key of the request between the two addresses; equal for a repeat. It breaks ties and seeds
                latencies on the virtual clock.

        Raises:
            LookupError: The receiver is not registered.
        """
        ...

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
        """Send a request without waiting for its reply, which is empty. The transport repeats it if it may be lost.

        Args:
            sender: See `request`.
            receiver: See `request`.
            kind: See `request`.
            payload: See `request`.
            num_bytes: See `request`.
            order: See `request`.
            waiting: The party that the post is urgent for.
            then: Called once, on the loop, after the delivery.

        Raises:
            LookupError: The receiver is not registered. `then` may receive this error later instead.
        """
        ...


@runtime_checkable
class HostTransport(Transport, Protocol):
    """A transport between processes that may fail.

    Attributes:
        endpoint: Address at which other processes reach this one.
    """

    endpoint: str

    @property
    def generation(self) -> int:
        """Generation of the run, -1 before the first. It ignores others' requests, except to a whole process."""
        ...

    @property
    def sent(self) -> Mapping[str, tuple[int, int]]:
        """Messages and bytes sent by this process, by kind of request; "answer" for replies."""
        ...

    def renew(self, generation: int) -> None:
        """Start a new generation: drop the handlers, requests and unfinished replies of the last one.

        Handlers of whole processes (`WHOLE_PROCESS`) stay.

        Args:
            generation: The new generation, above the last.
        """
        ...

    def connect(self, peers: Mapping[Address, str]) -> None:
        """Set the endpoints of the addresses in other processes, and disconnect from endpoints without an address."""
        ...

    def close(self) -> None:
        """Close all connections and drop unsent messages. A second call does nothing."""
        ...


def payload_bytes(payload: Any) -> int:
    """Return the bytes of the arrays in a pytree."""
    if payload is None:
        return 0
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in jax.tree.leaves(payload))
