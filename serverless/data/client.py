"""The workers' side of the data plane: gets tensors from servers and puts results there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar, final

import numpy as np
import zmq

from dorylax.serverless.data import protocol
from dorylax.serverless.data.connection import Connection
from dorylax.serverless.data.errors import DataError, NotOfferedError
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.link import Link, SharedLink
from dorylax.serverless.data.parcel import Parcel
from dorylax.serverless.wire.errors import WireError

T = TypeVar("T")


@final
class DataClient:
    """Transfers of one worker. It opens connections on demand and keeps them.

    **Threads.** Any thread may call `get` and `put`. Each call blocks its thread and uses one connection exclusively, so an
    address has as many connections as its peak of concurrent calls. All calls share the link.

    Args:
        keys: Keys of the run.
        link: Simulated link; None: full speed.
        timeout: Seconds without a message after which an attempt counts as lost.
        attempts: Attempts per transfer.
        chunk_bytes: Bytes per chunk of a put.
        credit: Limit of chunks in flight.
        max_bytes: Limit of one transfer in bytes.

    Raises:
        ValueError: A setting is out of range.
    """

    def __init__(
        self,
        keys: RunKeys,
        link: Link | None = None,
        timeout: float = 30.0,
        *,
        attempts: int = 3,
        chunk_bytes: int = protocol.CHUNK_BYTES,
        credit: int = protocol.CREDIT,
        max_bytes: int = protocol.MAX_BYTES,
    ) -> None:
        protocol.check_limits(chunk_bytes, credit, max_bytes)
        if not 0 < timeout <= threading.TIMEOUT_MAX:
            raise ValueError(f"timeout must be > 0 seconds, got {timeout}")
        if attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {attempts}")
        self._keys = keys
        self._link = SharedLink(link if link is not None else Link())
        self._timeout = timeout
        self._attempts = attempts
        self._chunk_bytes = chunk_bytes
        self._credit = credit
        self._max_bytes = max_bytes
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._lock = threading.Lock()
        self._idle: dict[str, list[Connection]] = {}
        self._busy = 0
        self._closed = False

    def get(self, address: str, name: str) -> tuple[np.ndarray, ...]:
        """Return arrays offered by a server, aligned to 64 bytes.

        Raises:
            NotOfferedError: The server has no offer under the name.
            DataError: All attempts failed, or the server refuses.
            RuntimeError: The client is closed.
        """
        return self._repeat(address, f"{name!r} could not be got", lambda connection: connection.get(name))

    def put(self, address: str, name: str, arrays: Sequence[np.ndarray]) -> None:
        """Send arrays to a server and wait for its acknowledgement, which also follows late and repeated puts.

        Args:
            address: Address of the server.
            name: Name under which the server expects the arrays.
            arrays: Arrays of any layout; non-contiguous ones are copied.

        Raises:
            WireError: A dtype is unsupported, or the arrays exceed `max_bytes`.
            DataError: All attempts failed, or the server refuses.
            RuntimeError: The client is closed.
        """
        parcel = Parcel(arrays, self._chunk_bytes, self._max_bytes)
        self._repeat(
            address, f"{name!r} could not be put", lambda connection: connection.put(name, parcel, self._chunk_bytes)
        )

    def close(self) -> None:
        """Close all connections; busy ones close after their calls. A second call does nothing."""
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

    def _repeat(self, address: str, failure: str, act: Callable[[Connection], T]) -> T:
        for attempt in range(1, self._attempts + 1):
            try:
                return self._once(address, act)
            except (ConnectionError, WireError) as error:  # an unreadable reply counts as lost
                if attempt == self._attempts:
                    raise DataError(f"{failure} at {address}, tried {attempt} times; the last time: {error}") from error
        raise AssertionError("there is at least one attempt")

    def _once(self, address: str, act: Callable[[Connection], T]) -> T:
        connection = self._take(address)
        fine = False
        try:
            result = act(connection)
            fine = True
        except NotOfferedError:
            fine = True  # the only reply: no other message is in flight
            raise
        finally:
            self._give(address, connection, keep=fine)
        return result

    def _take(self, address: str) -> Connection:
        with self._lock:
            if self._closed:
                raise RuntimeError("the data client is closed")
            idle = self._idle.get(address)
            connection = idle.pop() if idle else self._connect(address)
            self._busy += 1
            return connection

    def _give(self, address: str, connection: Connection, *, keep: bool) -> None:
        with self._lock:
            self._busy -= 1
            if keep and not self._closed:
                # The lock makes it safe to pass sockets between threads.
                self._idle.setdefault(address, []).append(connection)
                return
            connection.close()
            if self._closed and not self._busy:
                self._context.term()

    def _connect(self, address: str) -> Connection:
        return Connection(
            self._context,
            address,
            self._keys,
            self._link,
            timeout=self._timeout,
            credit=self._credit,
            max_bytes=self._max_bytes,
        )
