"""Worker side of the data plane: fetches tensors from servers and delivers results to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar, final

import numpy as np
import zmq

from dorylax.serverless.data import admission, messages
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.link import Link, SharedLink
from dorylax.serverless.data.messages import Buffer, Header, Tensors
from dorylax.serverless.wire.errors import TaskFailedError, WireError

T = TypeVar("T")

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
        max_bytes: int = messages.MAX_BYTES,
    ) -> None:
        if not 0 < timeout <= threading.TIMEOUT_MAX:
            raise ValueError(f"timeout must be > 0 seconds, got {timeout}")
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {attempts}")
        if max_bytes < 1:
            raise ValueError(f"max_bytes must be at least 1, got {max_bytes}")
        self._keys, self._timeout, self._attempts, self._max_bytes = keys, timeout, attempts, max_bytes
        self._link = SharedLink(link if link is not None else Link())
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._lock = threading.Lock()
        self._idle: dict[str, list[_Connection]] = {}
        self._busy = 0
        self._closed = False

    def get(self, address: str, name: str) -> tuple[np.ndarray, ...]:
        """Fetch arrays offered by a server. The arrays are writable and aligned to 64 bytes.

        Raises:
            TaskFailedError: If the server offers no such arrays (the task is finished or unknown) or refuses, all attempts
                fail, or the arrays exceed `max_bytes`.
            RuntimeError: If the client is closed.
        """

        def act(connection: _Connection) -> tuple[np.ndarray, ...] | None:
            self._link.request()
            arrays = connection.get(name, self._max_bytes)
            self._link.carry(sum(array.nbytes for array in arrays or ()))
            return arrays

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
        tensors = Tensors.of(arrays, self._max_bytes)

        def act(connection: _Connection) -> None:
            self._link.request()
            self._link.carry(tensors.nbytes)
            connection.put(name, tensors)

        self._repeat(address, f"{name!r} could not be put", act)

    def close(self) -> None:
        """Close all connections. Busy ones close after their calls. Idempotent."""
        with self._lock:
            self._closed = True
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()
            if not self._busy:
                self._context.term()

    def __enter__(self) -> DataClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repeat(self, address: str, failure: str, act: Callable[[_Connection], T]) -> T:
        for attempt in range(1, self._attempts + 1):
            try:
                return self._once(address, act)
            except (ConnectionError, WireError) as error:  # an unreadable reply counts as lost
                if attempt == self._attempts:
                    raise TaskFailedError(
                        f"{failure} at {address}, tried {attempt} times; the last time: {error}"
                    ) from error
        raise AssertionError("there is at least one attempt")

    def _once(self, address: str, act: Callable[[_Connection], T]) -> T:
        connection = self._take(address)
        fine = False
        try:
            result = act(connection)
            fine = True
        finally:
            self._give(address, connection, keep=fine)
        return result

    def _take(self, address: str) -> _Connection:
        with self._lock:
            if self._closed:
                raise RuntimeError("the data client is closed")
            idle = self._idle.get(address)
            connection = _Connection(self._context, address, self._keys, self._timeout) if not idle else idle.pop()
            self._busy += 1
            return connection

    def _give(self, address: str, connection: _Connection, *, keep: bool) -> None:
        with self._lock:
            self._busy -= 1
            if keep and not self._closed:
                # Sockets may move between threads under the lock.
                self._idle.setdefault(address, []).append(connection)
                return
            connection.close()
            if self._closed and not self._busy:
                self._context.term()


@final
class _Connection:
    """Socket for one transfer at a time. After an error, close it and create another.

    Args:
        context: ZeroMQ context.
        address: Address of the server.
        keys: Keys of the run.
        timeout: Timeout in seconds; see `DataClient`.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str, keys: RunKeys, timeout: float) -> None:
        self._address, self._run, self._timeout = address, keys.run, timeout
        self._number = 0
        self._socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        try:
            self._socket.linger = 0
            self._socket.maxmsgsize = messages.FRAME_BYTES
            admission.identify(self._socket, keys, address)
            self._socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise TaskFailedError(f"cannot connect to {address!r}: {error}") from error

    def close(self) -> None:
        """Close the socket and drop unsent messages."""
        self._socket.close()

    def get(self, name: str, max_bytes: int) -> tuple[np.ndarray, ...] | None:
        """Make one attempt to fetch arrays; return None if the server does not offer them.

        Raises:
            ConnectionError: If the attempt fails.
            WireError: If the reply is unreadable.
            TaskFailedError: See `DataClient.get`.
        """
        self._ask(messages.GET, name)
        header, contents = self._receive(0)
        if header.nbytes > max_bytes:
            raise TaskFailedError(
                f"{name!r} cannot be got from {self._address}: a transfer must have at most {max_bytes} bytes, got "
                f"{header.nbytes}"
            )
        if header.kind == messages.COMING:
            header, contents = self._receive(header.nbytes)
        if header.kind == messages.ABSENT:
            return None
        if header.kind != messages.TENSORS:
            raise ConnectionError(f"got {header.kind!r}, expected tensors")
        return messages.decode_tensors(header, contents, max_bytes)

    def put(self, name: str, tensors: Tensors) -> None:
        """Make one attempt to deliver arrays.

        Raises:
            ConnectionError: If the attempt fails.
            WireError: If the reply is unreadable.
            TaskFailedError: See `DataClient.put`.
        """
        self._ask(messages.PUT, name, tensors)
        header, _ = self._receive(tensors.nbytes)
        if header.kind != messages.DONE:
            raise ConnectionError(f"got {header.kind!r}, expected the end of a put")

    def _ask(self, kind: str, name: str, tensors: Tensors | None = None) -> None:
        self._number += 1
        specs, frames = ((), []) if tensors is None else (tensors.specs, tensors.frames)
        parts: list[Any] = [Header(self._run, kind, self._number, name, specs).encode(), *frames]
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                self._socket.send_multipart(parts, zmq.NOBLOCK, copy=False)
                return
            except zmq.Again:  # the socket is reconnecting
                self._wait(zmq.POLLOUT, give_up)

    def _receive(self, nbytes: int) -> tuple[Header, list[Buffer]]:
        """Receive the next message of this transfer.

        Args:
            nbytes: Bytes in flight, which extend the timeout.

        Raises:
            ConnectionError: If no message arrives.
            WireError: If the message is unreadable.
            TaskFailedError: If the server refuses the transfer.
        """
        give_up = time.monotonic() + self._timeout + nbytes / SLOWEST
        while True:
            self._wait(zmq.POLLIN, give_up)
            received = self._socket.recv_multipart(copy=False)
            header = messages.decode_header(received[0].buffer)
            if header.run != self._run:
                raise ConnectionError(f"got a message of run {header.run!r}")
            if header.kind == messages.REFUSED and header.number in (0, self._number):
                raise TaskFailedError(f"{self._address} refuses: {header.text}")
            if header.number == self._number:  # skip leftovers of earlier transfers
                return header, [frame.buffer for frame in received[1:]]

    def _wait(self, event: int, give_up: float) -> None:
        """Wait until the socket is ready for `event`.

        Raises:
            ConnectionError: If the socket is not ready by `give_up`.
        """
        left = give_up - time.monotonic()
        if left <= 0 or not self._socket.poll(int(left * 1000) + 1, event):
            raise ConnectionError(
                f"no message for {self._timeout:g} s: the server is gone or overloaded, or of another run than the keys"
            )
