"""Status and allowances between the ledger and hosts, over a transport that delays and repeats."""

from __future__ import annotations

from typing import Any

from dorylax.clock import VirtualClock
from dorylax.pipeline.hosts.messages import LEDGER, AllowanceUpdate, Status
from dorylax.pipeline.hosts.status import Listener, Reporter
from dorylax.pipeline.messages import Completed, Started
from dorylax.pipeline.parameters.records import Applied
from dorylax.pipeline.progress import Progress
from dorylax.pipeline.staleness import Ledger
from dorylax.pipeline.transport.base import Address
from dorylax.pipeline.transport.in_process import InProcessTransport

HOST = Address("host", 0)


class Host:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[AllowanceUpdate] = []
        self.stops = 0

    async def handle(self, kind: str, payload: Any, sender: Address) -> None:
        assert sender == LEDGER
        if kind == "allow":
            self.told.append(payload)
        else:
            self.stops += 1


class Place:
    """A ledger of two intervals, and the host that has both."""

    def __init__(self, clock: VirtualClock, staleness: int = 1) -> None:
        self.host, self.heard = Host(), list[Status]()
        self.transport = InProcessTransport(clock, lambda *_: 1.0)
        self.progress = Progress(Ledger(2, staleness, first_synchronous=False))
        self.listener = Listener(self.progress, [HOST], self.transport, clock.spawn)
        self.reporter = Reporter(HOST, self.transport, clock.spawn)
        self.transport.register(HOST, self.host)
        self.transport.register(LEDGER, self)

    async def handle(self, kind: str, payload: Any, sender: Address) -> None:
        assert kind == "news"
        self.heard.append(payload)
        self.listener.hear(payload, sender)


def test_what_comes_while_news_are_on_their_way_goes_with_the_next() -> None:
    with VirtualClock() as clock:
        place = Place(clock)
        place.reporter(Started(0, 0))
        clock.run(clock.sleep(0.5, (0,)))
        place.reporter(Started(1, 0))
        place.reporter(Completed(0, 0))
        clock.run(place.reporter.flush())
        assert place.heard == [Status(1, [Started(0, 0)]), Status(2, [Started(1, 0), Completed(0, 0)])]
        assert clock.now() == 4.0
        clock.run(place.reporter.flush())  # there is nothing to wait for
        assert clock.now() == 4.0


def test_news_that_come_twice_count_once() -> None:
    with VirtualClock() as clock:
        place = Place(clock)
        place.listener.hear(Status(1, [Started(0, 0)]), HOST)
        place.listener.hear(Status(1, [Started(0, 0)]), HOST)  # else the ledger would refuse a second start
        place.listener.hear(Status(2, [Started(0, 1)]), HOST)
        assert place.progress.ledger.newest_started == 1


def test_a_host_is_told_of_the_newest_allowance_alone() -> None:
    with VirtualClock() as clock:
        place = Place(clock)
        place.progress.open(0)
        clock.run(clock.sleep(0.5, (0,)))
        for interval, epoch in ((0, 0), (1, 0), (0, 1), (1, 1)):
            place.progress.hear(Started(interval, epoch))
            place.progress.hear(Completed(interval, epoch))
            place.progress.applied(Applied(1, ((interval, epoch),), (0.0,)))
        clock.run(clock.sleep(9, (0,)))
        assert [(told.number, told.allowance.horizon) for told in place.host.told] == [(1, 1), (2, 3)]
        place.progress.open(2)  # which changes nothing
        clock.run(clock.sleep(9, (0,)))
        assert len(place.host.told) == 2


def test_a_host_that_was_stopped_is_told_again_what_it_may() -> None:
    with VirtualClock() as clock:
        place = Place(clock)
        place.progress.open(0)

        async def drain() -> int:
            async with place.listener.stopped():
                assert place.host.stops == 1
                assert len(place.host.told) == 1
                return place.progress.drain()

        assert clock.run(drain()) == 0
        clock.run(clock.sleep(9, (0,)))
        assert [told.allowance.horizon for told in place.host.told] == [1, -1]


def test_a_host_that_has_stopped_is_told_nothing_while_others_are_being_stopped() -> None:
    """Else it might start what is held a moment later: the epoch of all moves on meanwhile."""
    with VirtualClock() as clock:
        slow, quick, late = Address("host", 1), Host(), Host()
        progress = Progress(Ledger(2, 1, first_synchronous=False))
        transport = InProcessTransport(clock, lambda sender, receiver, *_: 20.0 if slow in (sender, receiver) else 1.0)
        listener = Listener(progress, [HOST, slow], transport, clock.spawn)
        transport.register(HOST, quick)
        transport.register(slow, late)
        progress.open(0)
        clock.run(clock.sleep(50, (0,)))
        told = len(quick.told)
        for interval in range(2):
            progress.hear(Started(interval, 0))

        async def drain() -> int:
            async with listener.stopped():
                return progress.drain()

        draining = clock.spawn(drain())
        clock.run(clock.sleep(10, (0,)))
        assert quick.stops == 1
        for interval in range(2):
            progress.hear(Completed(interval, 0))
            progress.applied(Applied(1, ((interval, 0),), (0.0,)))
        clock.run(clock.sleep(10, (0,)))
        assert not draining.done()
        assert len(quick.told) == told
        assert clock.run(draining) == 1
        clock.run(clock.sleep(50, (0,)))
        assert quick.told[-1].allowance.horizon == late.told[-1].allowance.horizon == 0
