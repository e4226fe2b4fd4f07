"""The workers' end of the data plane: gets tensors from servers and puts results there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar, final

import numpy as np
import zmq

from dorylax.serverless.data import protocol
from dorylax.serverless.data.connection import Connection
from dorylax.serverless.data.errors import DataError, LostError, NotOfferedError
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.link import Link, SharedLink
from dorylax.serverless.data.parcel import Parcel
from dorylax.serverless.wire.errors import WireError

T = TypeVar("T")


@final
class DataClient:
    """Transfers of one worker. Connections are made when they are needed, and kept.

    **Threads.** Any thread may call `get` and `put` at any time. Each call waits in the calling thread and has a connection
    of its own while it lasts: an address has as many connections as it ever had calls at a time. All share the link.

    Args:
        keys: of the run.
        link: slows transfers down; None: not at all.
        timeout: seconds without a message after which an attempt is lost.
        attempts: of a transfer.
        chunk_bytes: of a chunk that is put.
        credit: chunks in flight at a time.
        max_bytes: of one transfer.

    Raises:
        ValueError: settings that cannot work.
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
        """Arrays that a server offers, each on a multiple of 64 bytes.

        Raises:
            NotOfferedError: it offers nothing under that name.
            DataError: no attempt succeeded, or the server refuses.
            RuntimeError: the client is closed.
        """
        return self._repeat(address, f"{name!r} could not be got", lambda connection: connection.get(name))

    def put(self, address: str, name: str, arrays: Sequence[np.ndarray]) -> None:
        """Gives arrays to a server; returns when it has acknowledged them, whether it needed them or not.

        Args:
            address: of the server.
            name: under which the server expects them.
            arrays: of any layout; those that are not contiguous are copied.

        Raises:
            WireError: a dtype that cannot be sent, or more than `max_bytes`.
            DataError: no attempt succeeded, or the server refuses.
            RuntimeError: the client is closed.
        """
        parcel = Parcel(arrays, self._chunk_bytes, self._max_bytes)
        self._repeat(
            address, f"{name!r} could not be put", lambda connection: connection.put(name, parcel, self._chunk_bytes)
        )

    def close(self) -> None:
        """Closes all connections, those in use when their calls end. A second call does nothing."""
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
            except (LostError, WireError) as error:  # an answer that cannot be read is lost too
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
            fine = True  # the first answer and the last: nothing else is in flight
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
                # Sockets may pass between threads under a lock, which orders what the threads see.
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
