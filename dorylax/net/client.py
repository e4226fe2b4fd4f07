"""The workers' side of transfers: fetches arrays from servers and delivers results to them."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar, final

import numpy as np
import zmq

from dorylax.net import frames
from dorylax.net.errors import TaskFailedError, WireError
from dorylax.net.keys import WORKERS, RunKeys, identify
from dorylax.net.link import Link, SharedLink

T = TypeVar("T")
Socket = zmq.Socket[bytes]

SLOWEST = 1e6
"""Bandwidth of the slowest supported link in bytes per second. Timeouts grow with the size of a message at this rate."""


@final
class DataClient:
    """Client for one worker's transfers. Opens connections on demand and keeps them open.

    **Threads.** Any thread may call `get` and `put`. Each call blocks its thread and uses one connection exclusively, so the
    number of connections per address equals the peak of concurrent calls. All calls share the link.

    Args:
        keys: Keys of the run.
        link: Simulated link, or None for full speed.
        timeout: Seconds without a message after which an attempt counts as lost, plus the transfer time at `SLOWEST`.
        attempts: Maximum number of attempts per transfer.
        max_bytes: Limit of one transfer in bytes.

    Raises:
        ValueError: If a setting is out of range.
    """

    def __init__(
        self,
        keys: RunKeys,
        link: Link | None = None,
        timeout: float = 30.0,
        *,
        attempts: int = 3,
        max_bytes: int = frames.MAX_BYTES,
    ) -> None:
        if not 0 < timeout <= threading.TIMEOUT_MAX:
            raise ValueError(f"timeout must be > 0 seconds, got {timeout}")
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {attempts}")
        if max_bytes < 1:
            raise ValueError(f"max_bytes must be at least 1, got {max_bytes}")
        self._keys, self._timeout, self._attempts, self._max_bytes = keys, timeout, attempts, max_bytes
        self._link = SharedLink(link if link is not None else Link())
        self._context: zmq.Context[Socket] = zmq.Context()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._idle: dict[str, list[Socket]] = {}
        self._busy = 0
        self._closed = False

    def get(self, address: str, name: str) -> tuple[np.ndarray, ...]:
        """Fetch arrays offered by a server. The arrays are writable and aligned to 64 bytes.

        Raises:
            TaskFailedError: If the server offers no such arrays (the task is finished or unknown) or refuses, all attempts
                fail, or the arrays exceed `max_bytes`.
            RuntimeError: If the client is closed.
        """

        def act(socket: Socket) -> tuple[np.ndarray, ...] | None:
            self._link.request()
            number = self._ask(socket, "get", name, ())
            kind, detail, arrays = self._receive(socket, address, number, 0)
            if kind == "coming":
                self._check(address, name, int(detail))
                kind, _, arrays = self._receive(socket, address, number, int(detail))
            if kind == "absent":
                return None
            if kind != "tensors":
                raise ConnectionError(f"got {kind!r}, expected tensors")
            self._check(address, name, nbytes := sum(array.nbytes for array in arrays))
            self._link.carry(nbytes)
            return tuple(arrays)

        found = self._repeat(address, f"{name!r} could not be got", act)
        if found is None:
            raise TaskFailedError(f"{address} offers nothing as {name!r}: it was answered or withdrawn")
        return found

    def put(self, address: str, name: str, arrays: Sequence[np.ndarray]) -> None:
        """Send arrays to a server and wait for the acknowledgement. Servers also acknowledge late and repeated puts.

        Args:
            address: Address of the server.
            name: Name under which the server expects the arrays.
            arrays: Arrays of any layout; non-contiguous ones are copied.

        Raises:
            WireError: If a dtype is unsupported or the arrays exceed `max_bytes`.
            TaskFailedError: If all attempts fail or the server refuses.
            RuntimeError: If the client is closed.
        """
        sent = frames.contiguous(arrays, self._max_bytes)
        nbytes = sum(array.nbytes for array in sent)

        def act(socket: Socket) -> None:
            self._link.request()
            self._link.carry(nbytes)
            number = self._ask(socket, "put", name, sent)
            kind, _, _ = self._receive(socket, address, number, nbytes)
            if kind != "done":
                raise ConnectionError(f"got {kind!r}, expected the end of a put")

        self._repeat(address, f"{name!r} could not be put", act)

    def close(self) -> None:
        """Close all connections. Busy ones close after their calls. Idempotent."""
        with self._lock:
            self._closed = True
            for socket in itertools.chain(*self._idle.values()):
                socket.close()
            self._idle.clear()
            if not self._busy:
                self._context.term()

    def __enter__(self) -> DataClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repeat(self, address: str, failure: str, act: Callable[[Socket], T]) -> T:
        for attempt in range(1, self._attempts + 1):
            try:
                with self._connection(address) as socket:
                    return act(socket)
            except (ConnectionError, WireError) as error:  # an unreadable reply counts as lost
                if attempt == self._attempts:
                    raise TaskFailedError(
                        f"{failure} at {address}, tried {attempt} times; the last time: {error}"
                    ) from error
        raise AssertionError("there is at least one attempt")

    @contextlib.contextmanager
    def _connection(self, address: str) -> Iterator[Socket]:
        """Lend a connection. After an error it is closed, because its reply may still be on the way."""
        socket, fine = self._take(address), False
        try:
            yield socket
            fine = True
        finally:
            with self._lock:
                self._busy -= 1
                if fine and not self._closed:
                    self._idle.setdefault(address, []).append(socket)  # sockets may move between threads under the lock
                else:
                    socket.close()
                if self._closed and not self._busy:
                    self._context.term()

    def _take(self, address: str) -> Socket:
        with self._lock:
            if self._closed:
                raise RuntimeError("the data client is closed")
            idle = self._idle.get(address)
            socket = idle.pop() if idle else self._connect(address)
            self._busy += 1
            return socket

    def _connect(self, address: str) -> Socket:
        socket = self._context.socket(zmq.DEALER)
        try:
            socket.linger = 0
            socket.maxmsgsize = WORKERS.frame_bytes
            identify(socket, self._keys, WORKERS, address)
            socket.connect(address)
        except zmq.ZMQError as error:
            socket.close()
            raise TaskFailedError(f"cannot connect to {address!r}: {error}") from error
        return socket

    def _ask(self, socket: Socket, kind: str, name: str, arrays: Sequence[np.ndarray]) -> int:
        """Send a request, and return its number."""
        number = next(self._numbers)
        parts = frames.bundle([frames.letter(number, [kind], name, arrays)])
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                socket.send_multipart(parts, zmq.NOBLOCK, copy=False)
                return number
            except zmq.Again:  # the socket is reconnecting
                self._wait(socket, zmq.POLLOUT, give_up)

    def _receive(self, socket: Socket, address: str, number: int, nbytes: int) -> tuple[str, Any, list[np.ndarray]]:
        """Return the kind, the detail and the arrays of the next reply to a request.

        Args:
            socket: Connection of the transfer.
            address: Address of the server.
            number: Number of the request.
            nbytes: Bytes in flight, which extend the timeout.

        Raises:
            ConnectionError: If no message arrives.
            WireError: If the message is unreadable.
            TaskFailedError: If the server refuses the transfer.
        """
        give_up = time.monotonic() + self._timeout + nbytes / SLOWEST
        while True:
            self._wait(socket, zmq.POLLIN, give_up)
            bundle = frames.opened([frame.buffer for frame in socket.recv_multipart(copy=False)])
            for message in bundle.messages:
                if not (isinstance(message.document, list) and len(message.document) == 2):
                    raise WireError(f"a reply must have a kind and a detail, got {str(message.document)[:80]}")
                kind, detail = message.document
                if kind == "refused" and message.number in (0, number):
                    raise TaskFailedError(f"{address} refuses: {detail}")
                if message.number == number:  # skip leftovers of earlier transfers
                    return kind, detail, message.arrays

    def _check(self, address: str, name: str, nbytes: int) -> None:
        if nbytes > self._max_bytes:
            raise TaskFailedError(
                f"{name!r} cannot be got from {address}: a transfer must have at most {self._max_bytes} bytes, got {nbytes}"
            )

    def _wait(self, socket: Socket, event: int, give_up: float) -> None:
        """Wait until the socket is ready for `event`.

        Raises:
            ConnectionError: If the socket is not ready by `give_up`.
        """
        left = give_up - time.monotonic()
        if left <= 0 or not socket.poll(int(left * 1000) + 1, event):
            raise ConnectionError(
                f"no message for {self._timeout:g} s: the server is gone or overloaded, or of another run than the keys"
            )
