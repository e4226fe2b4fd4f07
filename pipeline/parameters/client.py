"""How a graph server talks to the parameter servers."""

from __future__ import annotations

from typing import final

from dorylax.pipeline.parameters.endpoint import PULL, PUSH
from dorylax.pipeline.parameters.records import Pulled, Push, Sums
from dorylax.pipeline.transport.base import Address, Then, Transport, Waiting, payload_bytes
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
            RunError: its gradient of that epoch is complete, or that of an earlier one is not.
            ConnectionError: the server cannot be reached.
        """
        order, server = (epoch, PULL, interval), self._server(interval)
        pulled = await deliver(self._transport, self._home, server, "pull", (interval, epoch), num_bytes=0, order=order)
        assert isinstance(pulled, Pulled)
        return pulled

    def push(self, interval: int, epoch: int, stage: int, sums: Sums, *, waiting: Waiting, then: Then) -> None:
        """Gives what a stage of an interval adds to the gradient, while the interval goes on.

        Args:
            interval: k.
            epoch: of the interval.
            stage: one of those that push.
            sums: name → array; never written to afterwards.
            waiting: for whom it is urgent.
            then: as of `Transport.post`. What it may be told: a ValueError, the stage pushes no gradient; a RunError, the
                interval has pulled no weights for this epoch; a ConnectionError, the server cannot be reached.
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
