"""The ledger and the hosts: status updates one way, allowances the other, in order and exactly once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, final

from dorylax.pipeline.hosts.messages import LEDGER, AllowanceUpdate, RunState, Status
from dorylax.pipeline.messages import Completed, Started
from dorylax.pipeline.parameters.group import ParameterServers
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.saved import save_known
from dorylax.pipeline.staleness import Allowance
from dorylax.pipeline.transport.base import Address, Spawn, Transport


@final
class Reporter:
    """Sends the status of a host's intervals to the ledger. Updates during a transmission share the next message.

    Args:
        home: Address of the host.
        transport: Transport to the ledger.
        spawn: `Clock.spawn`.
    """

    def __init__(self, home: Address, transport: Transport, spawn: Spawn) -> None:
        self._home, self._transport, self._spawn = home, transport, spawn
        self._waiting: list[Started | Completed] = []
        self._number = 0
        self._sending: asyncio.Task[None] | None = None

    def __call__(self, news: Started | Completed) -> None:
        """Queue an update without waiting."""
        self._waiting.append(news)
        if self._sending is None:
            self._sending = self._spawn(self._send())

    async def flush(self) -> None:
        """Wait until the ledger has received all updates."""
        while self._sending is not None:
            await asyncio.shield(self._sending)

    async def _send(self) -> None:
        try:
            while self._waiting:
                self._number += 1
                news, self._waiting = Status(self._number, self._waiting), []
                await self._transport.request(self._home, LEDGER, "news", news, num_bytes=0, order=(0, 0, self._number))
        finally:
            self._sending = None


@final
class Listener:
    """The ledger's side: processes each update once, and sends allowances to hosts.

    Args:
        progress: Processes updates and decides.
        hosts: Addresses of the hosts.
        transport: Transport to the hosts.
        spawn: `Clock.spawn`.
    """

    def __init__(self, progress: Progress, hosts: list[Address], transport: Transport, spawn: Spawn) -> None:
        self._progress = progress
        self._heard = dict.fromkeys(hosts, 0)
        self._senders = [_AllowanceSender(host, transport, spawn) for host in hosts]
        for sender in self._senders:
            progress.join(sender)

    def hear(self, news: Status, sender: Address) -> None:
        """Process an update, unless it is a repeat."""
        if news.number > self._heard[sender]:
            self._heard[sender] = news.number
            for item in news.items:
                self._progress.hear(item)

    @contextlib.asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """Context in which no interval starts an epoch and all started epochs are reported. Allowances resume at its end.

        Allowances are held until all hosts have stopped; otherwise an early host would start epochs meanwhile.
        """
        await asyncio.gather(*(sender.stop() for sender in self._senders))
        yield
        for sender in self._senders:
            sender.go_on()


@final
class _AllowanceSender:
    """Sends the newest allowance to one host and skips superseded ones."""

    def __init__(self, host: Address, transport: Transport, spawn: Spawn) -> None:
        self._host, self._transport, self._spawn = host, transport, spawn
        self._number = 0
        self._newest: Allowance | None = None
        self._sent: Allowance | None = None
        self._sending: asyncio.Task[None] | None = None
        self._stops = 0  # number of active stops

    def __call__(self, allowance: Allowance) -> None:
        self._newest = allowance
        if self._sending is None and not self._stops and allowance != self._sent:
            self._sending = self._spawn(self._tell())

    async def stop(self) -> None:
        self._stops += 1
        while self._sending is not None:
            await asyncio.shield(self._sending)
        self._sent = None
        await self._ask("stop", None)

    def go_on(self) -> None:
        self._stops -= 1
        if self._newest is not None:
            self(self._newest)

    async def _tell(self) -> None:
        try:
            while (newest := self._newest) is not None and not self._stops and newest != self._sent:
                self._sent = newest
                self._number += 1
                await self._ask("allow", AllowanceUpdate(self._number, newest))
        finally:
            self._sending = None

    async def _ask(self, kind: str, payload: Any) -> None:
        order = (0, 1, self._number)
        await self._transport.request(LEDGER, self._host, kind, payload, num_bytes=0, order=order)


@final
class LedgerHandler:
    """Handles reports of hosts to the ledger and the driver's requests to it.

    Args:
        progress: The ledger.
        listener: Receiver of the hosts' reports.
        parameters: Parameter servers of this process, including the first.
    """

    def __init__(self, progress: Progress, listener: Listener, parameters: ParameterServers) -> None:
        self._progress, self._listener, self._parameters = progress, listener, parameters

    async def handle(self, kind: str, payload: Any, sender: Address) -> Any:
        """See `RequestHandler`."""
        progress = self._progress
        match kind:
            case "news":
                assert isinstance(payload, Status)
                self._listener.hear(payload, sender)
                return None
            case "run":
                epoch, holds = payload
                for held in holds:
                    progress.hold(held)
                return await self._run(epoch)
            case "common epoch":
                ledger = progress.ledger
                return ledger.common_epoch, ledger.allowance.synchronous(ledger.min_epoch), ledger.switched
            case "drain":
                async with self._listener.stopped():  # otherwise an interval could be entering the held epoch
                    return progress.drain()
            case "synchronise":
                async with self._listener.stopped():
                    epoch = progress.synchronise(self._parameters.synchronise)
                    if epoch > progress.ledger.newest_started and not progress.ledger.holds(epoch):
                        progress.hold(
                            epoch
                        )  # otherwise hosts could start it before the driver reaches the previous one
                    return epoch
        raise ValueError(f"the ledger cannot answer {kind!r} from {sender}")

    async def _run(self, epoch: int) -> tuple[float, RunState]:
        """Return the loss of an epoch, and the state of the run after it."""
        # One epoch beyond the driver's next, so that hosts neither wait for the driver nor run far ahead.
        ledger = self._progress.ledger
        ledger.limit(epoch + ledger.staleness + 1)
        self._progress.open(epoch)
        loss = await self._progress.finished(epoch)
        return loss, self._run_state()

    def _run_state(self) -> RunState:
        newest, ledger = self._parameters.newest(), self._progress.ledger
        return RunState(
            ledger.min_epoch,
            newest.version,
            newest.params,
            newest.opt_state,
            newest.state,
            save_known(newest),
            self._parameters.due(),
            self._progress.unasked(),
            ledger.allowance.synchronous_from,
        )
