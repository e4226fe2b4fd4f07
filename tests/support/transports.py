"""A transport that writes down what is asked of it, and loses the first requests."""

from __future__ import annotations

from typing import Any

from dorylax.pipeline.transport import Address, RequestHandler, Waiting


class LossyTransport:
    """Loses the first `lost` requests and answers all later ones with `reply`; all are in `asked`."""

    def __init__(self, reply: Any, lost: int = 0) -> None:
        self.reply, self.lost = reply, lost
        self.asked = list[Any]()

    def register(self, address: Address, handler: RequestHandler) -> None:
        raise NotImplementedError

    async def request(
        self,
        sender: Address,
        receiver: Address,
        kind: str,
        payload: Any,
        *,
        num_bytes: int,
        order: tuple[int, ...],
        waiting: Waiting = "sender",
    ) -> Any:
        self.asked.append((sender, receiver, kind, payload, num_bytes, order))
        if len(self.asked) <= self.lost:
            raise ConnectionError("lost")
        return self.reply
