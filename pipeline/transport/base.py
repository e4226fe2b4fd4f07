"""The contract of transports: addresses, who answers, and how a request is carried."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, final, runtime_checkable

import jax

Role = Literal["graph", "evaluation", "parameter", "ledger", "host", "process", "driver"]

WHOLE_PROCESS: tuple[Role, ...] = ("process", "driver")
"""Roles of those who speak for a process, whatever lives in it."""

Waiting = Literal["sender", "receiver", "nobody"]
"""Who goes on when a post is there: "sender", for whom its answer is wanted at once; "receiver", who needs it at once,
while an acknowledgement may take some milliseconds; "nobody": post and acknowledgement may both wait for others to travel
with."""

Then = Callable[[float, Exception | None], None]
"""Told what has become of a post: how many seconds ago it was delivered, or why it cannot be, which also ends the run."""


@final
@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """Who a server is.

    Attributes:
        role: what kind of server.
        index: which of that kind, from 0.
    """

    role: Role
    index: int


@runtime_checkable
class RequestHandler(Protocol):
    """Who answers requests."""

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        """Answers one request.

        A request may be delivered more than once, also while an earlier delivery is still being answered: a repeat must
        change nothing.

        Args:
            kind: what is asked.
            payload: a pytree; its arrays are never written to afterwards, by neither side.
            sender: who asks.

        Returns:
            The reply, a pytree.
        """
        ...


@runtime_checkable
class Transport(Protocol):
    """What carries requests between servers."""

    def register(self, address: Address, handler: RequestHandler) -> None:
        """Says who answers at an address from now on, also instead of another."""
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
        """Delivers a request, at least once, and returns the reply.

        Args:
            sender: who asks.
            receiver: who is asked.
            kind: as `RequestHandler.handle` takes it.
            payload: likewise.
            num_bytes: how much is sent.
            order: the same for a repeat of the same request and unlike that of any other between the two: breaks ties
                and seeds latencies on the virtual clock.

        Raises:
            LookupError: nobody is registered there.
            ConnectionError: it is unknown whether the request was delivered; it may be made again.
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
        """Has a request delivered while its sender goes on, and made again where it may have been lost.

        Args:
            sender: as of `request`.
            receiver: likewise.
            kind: likewise; the reply says nothing.
            payload: likewise.
            num_bytes: likewise.
            order: likewise.
            waiting: for whom it is urgent.
            then: called once, on the loop, when the request was delivered.

        Raises:
            LookupError: nobody is registered there; may also come later, to `then`.
        """
        ...


@runtime_checkable
class HostTransport(Transport, Protocol):
    """A transport between processes, which may be lost.

    Attributes:
        endpoint: where others reach this process.
    """

    endpoint: str

    @property
    def generation(self) -> int:
        """Of the run, -1 before the first. Requests of others are not answered, unless a whole process is asked."""
        ...

    @property
    def sent(self) -> Mapping[str, tuple[int, int]]:
        """By kind of request what left this process: messages, and bytes; "answer" for replies."""
        ...

    def renew(self, generation: int) -> None:
        """Begins a new generation: what was registered, asked, and being answered in the last one is forgotten.

        Only those who speak for a whole process stay (`WHOLE_PROCESS`).

        Args:
            generation: above the last.
        """
        ...

    def connect(self, peers: Mapping[Address, str]) -> None:
        """Says at which endpoints the addresses of other processes are; hangs up where nobody is any more."""
        ...

    def close(self) -> None:
        """Ends all connections; what was not sent is lost. A second call does nothing."""
        ...


def payload_bytes(payload: Any) -> int:
    """Bytes of the arrays in a pytree."""
    if payload is None:
        return 0
    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in jax.tree.leaves(payload))
