"""The servers' side of the data plane: offers tensors under names, and receives expected ones."""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, final

import numpy as np
import zmq

from dorylax.serverless.data.connections import Capacity, raise_limit
from dorylax.serverless.data.endpoint import DataCounters, Deliver, Endpoint
from dorylax.serverless.data.keys import RunKeys
from dorylax.serverless.data.loop import Loop
from dorylax.serverless.data.messages import MAX_BYTES
from dorylax.serverless.data.refusals import Refusals
from dorylax.serverless.data.socket_folder import make_socket_folder


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
        self,
        keys: RunKeys,
        *,
        transport: Literal["ipc", "tcp"] = "ipc",
        host: str = "127.0.0.1",
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if max_bytes < 1:
            raise ValueError(f"max_bytes must be at least 1, got {max_bytes}")
        if transport not in ("ipc", "tcp"):
            raise ValueError(f"transport must be 'ipc' or 'tcp', got {transport!r}")
        if transport == "tcp" and keys.server_secret is None:
            raise ValueError("a server over tcp needs the servers' secret key, which RunKeys.to_json leaves out")
        self._run, self._max_bytes = keys.run, max_bytes
        self._endpoints: dict[str, Endpoint] = {}
        self._numbers = itertools.count()
        self._counters = counters = DataCounters()
        self._refusals = Refusals()

        def sent(nbytes: int) -> None:
            counters.bytes_sent += nbytes

        self._loop = Loop(
            keys,
            transport,
            host=host,
            folder=make_socket_folder() if transport == "ipc" else None,
            refusals=self._refusals,
            capacity=Capacity.of(raise_limit()),
            sent=sent,
        )
        # Also called with the last reference and at exit; the thread holds no reference to this object.
        self._stop = weakref.finalize(self, self._loop.stop)

    def open(self, name: str) -> str:
        """Open an endpoint.

        Args:
            name: Name in the log, for example "graph 0".

        Returns:
            Address of the endpoint, for workers and for the methods below.

        Raises:
            RuntimeError: The server is closed.
            OSError: The socket cannot be bound.
        """
        endpoint = Endpoint(name, self._run, self._counters, self._refusals, self._max_bytes)
        loop, number = self._loop, next(self._numbers)
        try:
            address = loop.do(lambda: loop.open(endpoint, number))
        except zmq.ZMQError as error:
            raise OSError(error.errno, f"the data endpoint {name!r} could not be bound: {error.strerror}") from error
        self._endpoints[address] = endpoint
        return address

    def offer(self, address: str, name: str, arrays: Sequence[np.ndarray]) -> None:
        """Offer arrays to workers until `withdraw`.

        Args:
            address: Address of the endpoint.
            name: Name for workers' requests.
            arrays: Arrays that stay unchanged until `withdraw`. Non-contiguous ones are copied.

        Raises:
            WireError: A dtype is unsupported, or the arrays exceed `max_bytes`.
            ValueError: The endpoint does not exist, or the name is offered already.
        """
        self._endpoint(address).offer(name, arrays)

    def withdraw(self, address: str, name: str) -> None:
        """Withdraw an offer, if it exists."""
        self._endpoint(address).withdraw(name)

    def expect(self, address: str, name: str, deliver: Deliver) -> None:
        """Expect arrays under a name.

        Args:
            address: Address of the endpoint.
            name: Name for workers' puts.
            deliver: Called once in the data thread with the first complete put. It must be quick and not close the server.
                It may keep the arrays, which are aligned to 64 bytes. Its exceptions are logged.

        Raises:
            ValueError: The endpoint does not exist, or the name has been expected since the last `forget`.
        """
        self._endpoint(address).expect(name, deliver)

    def forget(self, address: str, name: str) -> None:
        """Stop expecting a name. Later puts are acknowledged and dropped.

        A running `deliver` in the data thread continues.
        """
        self._endpoint(address).forget(name)

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

    def _endpoint(self, address: str) -> Endpoint:
        try:
            return self._endpoints[address]
        except KeyError:
            known = ", ".join(self._endpoints) or "none yet"
            raise ValueError(f"no data endpoint at {address!r}: open one; there are {known}") from None
