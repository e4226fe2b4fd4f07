"""How a graph server talks to the parameter servers."""

from __future__ import annotations

from typing import final

from dorylax.pipeline.parameters.endpoint import PULL, PUSH
from dorylax.pipeline.parameters.messages import Pulled, Push, Sums
from dorylax.pipeline.transport.base import Address, Transport, Waiting, payload_bytes
from dorylax.pipeline.transport.delivery import deliver


@final
class ParameterClient:
    """Pulls and pushes for the intervals of one graph server.

    Interval k is bound to parameter server k mod P, which holds its stash. An interval pulls once or more often in an epoch,
    pushes once for every stage, and has all its pushes answered before it pulls for the next epoch.

    Args:
        home: of the graph server.
        num_servers: P ≥ 1.
        transport: to the parameter servers.
    """

    def __init__(self, home: Address, num_servers: int, transport: Transport) -> None:
        self._home, self._num_servers, self._transport = home, num_servers, transport

    async def pull(self, interval: int, epoch: int) -> Pulled:
        """The version that an interval computes an epoch with: the same for every call.

        Raises:
            StashError: its gradient of that epoch is complete, or that of an earlier one is not.
            ConnectionError: the server cannot be reached.
        """
        pulled = await self._ask(interval, "pull", (interval, epoch), (epoch, PULL, interval))
        assert isinstance(pulled, Pulled)
        return pulled

    async def push(self, interval: int, epoch: int, stage: int, sums: Sums, waiting: Waiting = "sender") -> None:
        """Gives what a stage of an interval adds to the gradient, and returns when it has come.

        Args:
            interval: k.
            epoch: of the interval.
            stage: one of those that push.
            sums: name → array; never written to afterwards.
            waiting: for whom it is urgent.

        Raises:
            ValueError: a stage that pushes no gradient.
            StashError: the interval has pulled no weights for this epoch.
            ConnectionError: the server cannot be reached.
        """
        push = Push(interval, epoch, stage, sums)
        order = (epoch, PUSH, interval, stage)
        await self._ask(interval, "push", push, order, num_bytes=payload_bytes(dict(sums)), waiting=waiting)

    async def _ask(
        self,
        interval: int,
        kind: str,
        payload: object,
        order: tuple[int, ...],
        *,
        num_bytes: int = 0,
        waiting: Waiting = "sender",
    ) -> object:
        server = Address("parameter", interval % self._num_servers)
        return await deliver(
            self._transport, self._home, server, kind, payload, num_bytes=num_bytes, order=order, waiting=waiting
        )
