"""The servers' side of transfers with workers: offers arrays under names, and receives expected ones.

    worker                                    server
    get     name                              coming   bytes, if they exceed a frame
                                              tensors  with their bytes
                                              absent   no such offer
    put     name, with tensors                done     accepted, duplicate or late
                                              refused  with the reason; a retry would fail too

The worker chooses the number of its request, and every reply repeats it; replies to an unreadable message have number 0.
The document of a request is its name, that of a reply the kind and a detail.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, final

import numpy as np

from dorylax.net import frames
from dorylax.net.errors import LOG, Refusals, WireError
from dorylax.net.frames import Buffer, Message
from dorylax.net.keys import WORKERS, Kind, RunKeys
from dorylax.net.sockets import Socket, Sockets

Deliver = Callable[[tuple[np.ndarray, ...]], None]

MAX_NAME = 256
"""Limit of a name in characters."""


@final
@dataclasses.dataclass
class DataCounters:
    """Counts since the creation of a server. Bytes are those of tensors, without headers.

    Attributes:
        bytes_sent: Bytes to workers.
        bytes_received: Bytes of delivered puts.
        gets: Successful requests for names.
        puts: Delivered puts.
        late: Puts without a receiver.
        duplicates: Puts of an already delivered name.
        refused: Refused peers and messages.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    gets: int = 0
    puts: int = 0
    late: int = 0
    duplicates: int = 0
    refused: int = 0


@final
class Endpoint:
    """The offers and expected names of one address, and the replies to its messages. Without sockets.

    Any thread may call `offer`, `withdraw`, `expect` and `forget`; only the data thread calls `handle`.

    Args:
        label: Name in the log.
        counters: Counters to update.
        refusals: Receives refusals.
        max_bytes: Limit of one transfer in bytes.

    Attributes:
        address: Address for workers, set by `DataServer.open`.
    """

    def __init__(self, label: str, counters: DataCounters, refusals: Refusals, max_bytes: int) -> None:
        self.address = ""
        self._label, self._counters, self._refusals, self._max_bytes = label, counters, refusals, max_bytes
        self._lock = threading.Lock()
        self._offers: dict[str, list[np.ndarray]] = {}
        self._expected: dict[str, Deliver | None] = {}  # None: delivered

    def offer(self, name: str, arrays: Sequence[np.ndarray]) -> None:
        """Offer arrays to workers until `withdraw`.

        Args:
            name: Name for workers' requests.
            arrays: Arrays that stay unchanged until `withdraw`. Non-contiguous ones are copied.

        Raises:
            WireError: A dtype is unsupported, or the arrays exceed the limit of a transfer.
            ValueError: The name is offered already.
        """
        _check_name(name)
        prepared = frames.contiguous(arrays, self._max_bytes)
        with self._lock:
            if name in self._offers:
                raise ValueError(f"{name!r} is offered already: withdraw it first")
            self._offers[name] = prepared

    def withdraw(self, name: str) -> None:
        """Withdraw an offer, if it exists."""
        with self._lock:
            self._offers.pop(name, None)

    def expect(self, name: str, deliver: Deliver) -> None:
        """Expect arrays under a name.

        Args:
            name: Name for workers' puts.
            deliver: Called once in the data thread with the first complete put. It must be quick and not close the server.
                It may keep the arrays, which are aligned to 64 bytes. Its exceptions are logged.

        Raises:
            ValueError: The name has been expected since the last `forget`.
        """
        _check_name(name)
        with self._lock:
            if name in self._expected:
                raise ValueError(f"{name!r} is expected already: forget it first")
            self._expected[name] = deliver

    def forget(self, name: str) -> None:
        """Stop expecting a name. Later puts are acknowledged and dropped.

        A running `deliver` in the data thread continues.
        """
        with self._lock:
            self._expected.pop(name, None)

    def handle(self, message: Sequence[Buffer]) -> list[list[Buffer]]:
        """Return the replies to a message; all are given as frames."""
        number = 0
        try:
            bundle = frames.opened(message, self._max_bytes)
            if len(bundle.messages) != 1:
                raise WireError(f"a worker must send one message at a time, got {len(bundle.messages)}")
            request = bundle.messages[0]
            if not request.number:
                raise WireError("'number' must be at least 1, got 0")
            number, name = request.number, request.document
            if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
                raise WireError(f"a name must have 1 to {MAX_NAME} characters, got {str(name)[:80]!r}")
            if request.who == ["get"]:
                return self._get(request, name)
            if request.who == ["put"]:
                return [_reply(number, "done", self._put(request, name))]
            raise WireError(f"a request must be get or put, got {str(request.who)[:80]}")
        except WireError as error:
            self._refusals.add(self._label, str(error))
            return [_reply(number, "refused", str(error))]

    def _get(self, request: Message, name: str) -> list[list[Buffer]]:
        if request.arrays:
            raise WireError(f"a get must have no tensors, got {len(request.arrays)}")
        with self._lock:
            offer = self._offers.get(name)
        if offer is None:
            return [_reply(request.number, "absent")]
        nbytes = sum(array.nbytes for array in offer)
        self._counters.gets += 1
        self._counters.bytes_sent += nbytes
        coming = [_reply(request.number, "coming", nbytes)] if nbytes > frames.PIECE_BYTES else []
        return [*coming, _reply(request.number, "tensors", None, offer)]

    def _put(self, request: Message, name: str) -> str:
        with self._lock:
            if name not in self._expected:
                self._counters.late += 1
                return "late"
            deliver = self._expected[name]
            self._expected[name] = None
        if deliver is None:
            self._counters.duplicates += 1
            return "duplicate"
        self._counters.puts += 1
        self._counters.bytes_received += sum(array.nbytes for array in request.arrays)
        try:
            deliver(tuple(request.arrays))
        except Exception:
            LOG.exception("%s: what was put as %s could not be delivered", self._label, name)
        return "accepted"


@final
class DataServer:
    """All data endpoints of one process, with their sockets on one thread. Any thread may call it.

    Arrays are sent without a copy; do not write to offered arrays. Withdraw them when no result depends on them any more,
    because a reading worker may otherwise see old and new bytes.

    Args:
        keys: Keys of the run. Peers without them are refused, with a line in the log "dorylax.data".
        transport: "ipc" on this machine, with sockets in a new folder that only this user can enter, or "tcp" with
            encryption.
        host: For tcp: address of the interface to listen on, at which workers reach it.
        max_bytes: Limit of one transfer in bytes.

    Raises:
        ValueError: A setting is out of range, or for tcp the keys lack the servers' secret.
        RunError: For ipc, no folder for socket files is available.
    """

    def __init__(
        self, keys: RunKeys, *, transport: Kind = "ipc", host: str = "127.0.0.1", max_bytes: int = frames.MAX_BYTES
    ) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes must be at least 1, got {max_bytes}")
        self._max_bytes, self._number = max_bytes, 0
        self._counters, self._refusals = DataCounters(), Refusals()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_log_failure)
        try:
            self._sockets = Sockets(keys, WORKERS, transport, host=host, loop=self._loop, refusals=self._refusals)
        except BaseException:
            self._loop.close()
            raise
        # A daemon, so that a program without `close` can end. Starting it makes it safe to pass sockets to it.
        thread = threading.Thread(target=_serve, args=(self._loop, self._sockets), name="dorylax data", daemon=True)
        thread.start()
        # Also called with the last reference and at exit; the thread holds no reference to this object.
        self._stop = weakref.finalize(self, _end, self._loop, thread)

    def open(self, name: str) -> Endpoint:
        """Open an endpoint.

        Args:
            name: Name in the log, for example "graph 0".

        Raises:
            RuntimeError: The server is closed.
            OSError: The socket cannot be bound.
        """
        if not self._stop.alive:
            raise RuntimeError("the data server is closed")
        endpoint = Endpoint(name, self._counters, self._refusals, self._max_bytes)
        future = asyncio.run_coroutine_threadsafe(_open(self._sockets, endpoint, name, str(self._number)), self._loop)
        self._number += 1
        endpoint.address = future.result()
        return endpoint

    @property
    def counters(self) -> DataCounters:
        """Return a copy of the counters."""
        return dataclasses.replace(self._counters, refused=self._refusals.count)

    def close(self) -> None:
        """Stop the thread, close all sockets and remove their files. A second call does nothing."""
        self._stop()

    def __enter__(self) -> DataServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _open(sockets: Sockets, endpoint: Endpoint, label: str, name: str) -> str:
    def take(peer: bytes, message: Sequence[Buffer]) -> None:
        for reply in endpoint.handle(message):
            if not sockets.send(socket, [peer, *reply]):
                break

    socket: Socket
    socket, address = sockets.bind(label, name, take)
    return address


def _serve(loop: asyncio.AbstractEventLoop, sockets: Sockets) -> None:
    try:
        loop.run_forever()
    finally:
        sockets.close()
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:  # the data thread may drop the last reference to a server
        thread.join()


def _log_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a failing message, which must not stop the service."""
    LOG.error("a message could not be handled", exc_info=context.get("exception"))


def _reply(number: int, kind: str, detail: Any = None, arrays: Sequence[np.ndarray] = ()) -> list[Buffer]:
    return frames.bundle([frames.letter(number, (), [kind, detail], arrays)])


def _check_name(name: str) -> None:
    if not 0 < len(name) <= MAX_NAME:
        raise ValueError(f"a name must have 1 to {MAX_NAME} characters, got {len(name)}")
