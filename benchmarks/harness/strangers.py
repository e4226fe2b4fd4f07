"""Strangers at the data endpoints of a run: `python strangers.py KIND COUNT NAME ADDRESS …`, its keys in the first line.

They say "ready" when they are at it, and go on until their input ends, or for two minutes. `KINDS` has them all.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import zmq

from dorylax.serverless.data import admission, protocol
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.wire import frames

_SECONDS = 120.0
_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(15) + b"\x00" + bytes(31)
_HALF_A_FRAME = b"\x06" + protocol.MAX_FRAME_BYTES.to_bytes(8, "big") + bytes(100_000)
"""The head of a long command, and its first bytes."""


class Target(NamedTuple):
    """Whom they visit.

    Attributes:
        addresses: of the endpoints, `tcp://…`.
        name: of something that the first one offers.
        keys: of the run.
        count: how many strangers there are.
    """

    addresses: Sequence[str]
    name: str
    keys: RunKeys
    count: int


Visit = Callable[[Target], Iterator[None]]
"""What strangers do, in steps of some milliseconds; they are at it when the first has been taken."""


def _hold(speech: Callable[[], bytes], *, slowly: bool = False) -> Visit:
    """Connections that say something, all at once or a byte in each step, and nothing more; those that are cut come back."""

    def visit(target: Target) -> Iterator[None]:
        poll, sockets, left = select.poll(), dict[int, socket.socket](), dict[int, bytes]()
        addresses = itertools.cycle(_place(address) for address in target.addresses)
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: [one.close() for one in sockets.values()])
            while True:
                while len(sockets) < target.count:
                    one = _connected(next(addresses))
                    if one is None:
                        break
                    sockets[one.fileno()], left[one.fileno()] = one, speech()
                    poll.register(one, select.POLLIN)
                for number, words in list(left.items()):
                    with contextlib.suppress(OSError):
                        said = sockets[number].send(words[:1] if slowly else words) if words else 0
                        left[number] = words[said:]
                yield
                for number, _ in poll.poll(50):
                    if not _alive(sockets[number]):
                        poll.unregister(number)
                        sockets.pop(number).close()
                        del left[number]

    return visit


def _churn(target: Target) -> Iterator[None]:
    """They connect, and are gone."""
    addresses = itertools.cycle(_place(address) for address in target.addresses)
    while True:
        for _ in range(target.count):
            one = _connected(next(addresses))
            if one is not None:
                one.close()
        yield


def _keyed(*, asks: bool, stays: bool) -> Visit:
    """Peers with keys that read nothing."""

    def visit(target: Target) -> Iterator[None]:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        peers: list[zmq.Socket[bytes]] = []
        fields = {"transfer": 1, "name": target.name, "offer": 0, "first": 0, "count": 1}
        question = frames.encode(target.keys.run, protocol.GET, fields)
        try:
            while True:
                for number in range(target.count - len(peers)):
                    peer = context.socket(zmq.DEALER)
                    peer.linger, peer.rcvhwm, peer.rcvbuf = 0, 1, 4096
                    address = target.addresses[0 if asks else number % len(target.addresses)]
                    admission.identify(peer, target.keys, address)
                    peer.connect(address)
                    peers.append(peer)
                for peer in peers if asks else ():
                    with contextlib.suppress(zmq.Again):
                        peer.send_multipart(question, zmq.NOBLOCK)
                yield
                time.sleep(0.05)
                if not stays:
                    for peer in peers:
                        peer.close()
                    peers.clear()
        finally:
            context.destroy(linger=0)

    return visit


KINDS: Mapping[str, Visit] = {
    "idle": _hold(lambda: b""),
    "half-open": _hold(lambda: _GREETING),
    "half-a-frame": _hold(lambda: _GREETING + _HALF_A_FRAME),
    "byte-at-a-time": _hold(lambda: _GREETING, slowly=True),
    "garbage": _hold(lambda: os.urandom(200)),
    "churn": _churn,
    "slow-readers": _keyed(asks=True, stays=True),
    "silent-peers": _keyed(asks=False, stays=True),
    "peers-that-leave": _keyed(asks=True, stays=False),
}


def _place(address: str) -> tuple[str, int]:
    host, port = address.removeprefix("tcp://").split(":")
    return host, int(port)


def _connected(place: tuple[str, int]) -> socket.socket | None:
    """A connection that may still be on its way; None if the system has none left."""
    try:
        one = socket.socket()
    except OSError:
        return None
    one.setblocking(False)
    with contextlib.suppress(OSError):
        one.connect(place)
    return one


def _alive(one: socket.socket) -> bool:
    try:
        return bool(one.recv(4096))
    except BlockingIOError:
        return True
    except OSError:
        return False


def main() -> None:
    """Does it."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    kind, count, name, *addresses = sys.argv[1:]
    keys = RunKeys.from_json(sys.stdin.readline())
    end = time.monotonic() + _SECONDS
    with contextlib.closing(KINDS[kind](Target(addresses, name, keys, int(count)))) as steps:
        next(steps)
        print("ready", flush=True)
        while time.monotonic() < end and not select.select([sys.stdin], [], [], 0)[0]:
            next(steps)


if __name__ == "__main__":
    main()
