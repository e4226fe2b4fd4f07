"""How a graph server talks to the parameter servers."""

from __future__ import annotations

from typing import final

from dorylax.pipeline.parameters.records import PULL, PUSH, Pulled, Push, Sums
from dorylax.pipeline.transport.base import Address, Then, Transport, Waiting, payload_bytes


@final
class ParameterClient:
    """Pulls and pushes for the intervals of one graph server.

    Parameter server k mod P holds the stash of interval k. In each epoch, an interval pulls at least once and pushes once
    per stage. All its pushes must be acknowledged before it pulls for the next epoch.

    Args:
        home: The address of the graph server.
        num_servers: P ≥ 1.
        transport: Carries messages to the parameter servers.
    """

    def __init__(self, home: Address, num_servers: int, transport: Transport) -> None:
        self._home, self._num_servers, self._transport = home, num_servers, transport

    async def pull(self, interval: int, epoch: int) -> Pulled:
        """Return the weights of an interval for an epoch. Every pull of that epoch returns the same weights.

        Raises:
            RunError: The gradient of that epoch is complete, or that of an earlier epoch is not.
        """
        order, server = (epoch, PULL, interval), self._server(interval)
        pulled = await self._transport.request(self._home, server, "pull", (interval, epoch), num_bytes=0, order=order)
        assert isinstance(pulled, Pulled)
        return pulled

    def push(self, interval: int, epoch: int, stage: int, sums: Sums, *, waiting: Waiting, then: Then) -> None:
        """Send the sums of one stage of an interval without waiting for the reply.

        Args:
            interval: k.
            epoch: The epoch of the interval.
            stage: A stage that pushes a gradient.
            sums: Name → array. The caller must not write to them afterwards.
            waiting: Whose wait makes the push urgent.
            then: The `Transport.post` argument of that name. It receives a ValueError if the stage pushes no gradient, and
                a RunError if the interval has pulled no weights for this epoch.
        """
        self._transport.post(
            self._home,
            self._server(interval),
            "push",
            Push(interval, epoch, stage, sums),
            num_bytes=payload_bytes(dict(sums)),
            order=(epoch, PUSH, interval, stage),
            waiting=waiting,
            then=then,
        )

    def _server(self, interval: int) -> Address:
        return Address("parameter", interval % self._num_servers)
